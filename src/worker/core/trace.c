/* Records for a trace (see trace.h). */
#include "src/worker/core/trace.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/worker/core/runtime.h"

bool dvk_trace_is_on(const struct dvk_runtime *runtime)
{
    uint64_t until = atomic_load_explicit(&runtime->traced_until_ns, memory_order_relaxed);

    return until && dv_now() < until;
}

static struct dv_shm_traced *record_at(const struct dvk_runtime *runtime, uint64_t number)
{
    struct dv_shm_traced *records = (struct dv_shm_traced *)(runtime->shm + DV_SHM_TRACE_OFFSET);

    return &records[(number - 1) % DV_SHM_TRACE_COUNT];
}

static void write_record(struct dvk_runtime *runtime, const struct dvk_traced *traced, uint32_t count)
{
    uint64_t number = ++runtime->trace.count;
    struct dv_shm_traced *record = record_at(runtime, number);

    atomic_store(&record->number, 0);
    record->begin_ns = traced->begin_ns;
    record->end_ns = traced->end_ns;
    record->bytes = traced->bytes;
    record->count = count;
    record->device = traced->device;
    record->kind = traced->kind;
    record->verdict = (uint8_t)traced->verdict;
    record->reason = (uint8_t)traced->reason;
    record->is_part = traced->is_part;
    dv_text_copy(record->name, sizeof record->name, traced->name ? traced->name : "");
    atomic_store(&record->number, number);
}

void dvk_trace_note(struct dvk_runtime *runtime, const struct dvk_traced *traced)
{
    if (dvk_trace_is_on(runtime))
        write_record(runtime, traced, 1);
}

void dvk_trace_join(struct dvk_runtime *runtime, const struct dvk_traced *traced)
{
    struct dvk_trace *trace = &runtime->trace;

    if (trace->pending_count && trace->pending.name == traced->name) {
        trace->pending.end_ns = traced->end_ns;
        trace->pending.bytes += traced->bytes;
        trace->pending_count++;
        return;
    }
    dvk_trace_part(runtime);
    if (!dvk_trace_is_on(runtime))
        return;
    trace->pending = *traced;
    trace->pending_count = 1;
}

void dvk_trace_part(struct dvk_runtime *runtime)
{
    struct dvk_trace *trace = &runtime->trace;

    if (trace->pending_count)
        write_record(runtime, &trace->pending, trace->pending_count);
    trace->pending_count = 0;
}
