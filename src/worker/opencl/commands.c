/* Commands of queues: from the record to the graph, from the graph to the vendor, and the vendor's
 * completion back to the client. */
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/base/probes.h"
#include "src/worker/opencl/executor.h"
#include "src/worker/opencl/residency.h"

static struct dvk_command *command_of(struct dvk_node *node)
{
    return (struct dvk_command *)node;
}

static const struct dv_queue_head *head_of(const struct dvk_command *c)
{
    return (const struct dv_queue_head *)c->record;
}

static size_t waits_bytes(const struct dv_queue_head *head)
{
    return dv_record_align(sizeof(uint32_t) * (size_t)head->wait_count);
}

size_t dvk_command_tail_bytes(const struct dvk_command *c, size_t fixed)
{
    return head_of(c)->record.bytes - fixed - waits_bytes(head_of(c));
}

bool dvk_command_keep_mem(struct dvk_worker *w, struct dvk_command *c, int at, struct dv_object_id id)
{
    struct dvk_mem *mem = dvk_find_mem(w, id);

    if (!mem || !dvk_mem_is_usable(mem))
        return false;
    mem->refs++;
    mem->pins++;
    c->mems[at] = mem;
    return true;
}

/* Keeps the objects until the vendor has them: the application may release them before. */
bool dvk_command_keep_mem_list(struct dvk_worker *w, struct dvk_command *c, const struct dv_object_id *ids,
                               uint32_t count)
{
    c->listed = calloc(count ? count : 1, sizeof *c->listed);
    if (!c->listed)
        return false;
    for (; c->listed_count < count; c->listed_count++) {
        struct dvk_mem *mem = dvk_find_mem(w, ids[c->listed_count]);
        if (!mem || mem->error)
            return false;
        mem->refs++;
        mem->pins++;
        c->listed[c->listed_count] = mem;
    }
    return true;
}

cl_mem *dvk_command_mem_list(const struct dvk_command *c)
{
    cl_mem *list = malloc((c->listed_count ? c->listed_count : 1) * sizeof *list);

    for (uint32_t i = 0; list && i < c->listed_count; i++)
        list[i] = c->listed[i]->vendor;
    return list;
}

static void let_go(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->listed_count; i++)
        dvk_mem_unpin(c->listed[i]);
    free(c->listed);
    c->listed = NULL;
    c->listed_count = 0;
    for (int i = 0; i < DVK_KEPT; i++)
        if (c->mems[i]) {
            dvk_mem_unpin(c->mems[i]);
            c->mems[i] = NULL;
        }
    if (c->arguments) {
        dvk_arguments_unpin(c->arguments);
        dvk_arguments_unref(c->arguments);
        c->arguments = NULL;
    }
    if (c->kernel) { /* the vendor keeps its own reference while it runs */
        dvk_kernel_unref(c->kernel);
        c->kernel = NULL;
    }
}

/* ---- the vendor's completion: on a thread of the vendor's ---- */

/* On CLOCK_MONOTONIC: the client stamps times of its own, and another device can go on with the queue. */
static void publish_times(struct dvk_command *c)
{
    struct dv_shm_event *slot = dvk_command_event_slot(c);
    cl_ulong submit = 0, start = 0, end = 0;

    dvk_cut_began(c, &submit, &start);
    clGetEventProfilingInfo(c->event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    submit -= c->queue->clock_offset_ns;
    start -= c->queue->clock_offset_ns;
    end -= c->queue->clock_offset_ns;
    cl_ulong queued = atomic_load(&slot->queued_ns);
    if (submit < queued)
        submit = queued;
    if (start < submit)
        start = submit;
    if (end < start)
        end = start;
    atomic_store(&slot->submit_ns, submit);
    atomic_store(&slot->start_ns, start);
    atomic_store(&slot->end_ns, end);
}

static void CL_CALLBACK vendor_completed(cl_event event, cl_int status, void *user)
{
    struct dvk_command *c = user;

    if (c->queue->profiling && c->node.event && status >= 0)
        publish_times(c);
    dvk_graph_report(&c->node, status < 0 ? status : CL_COMPLETE);
}

static void before_visible(struct dvk_node *node)
{
    struct dvk_command *c = command_of(node);

    if (c->may_print && node->reports) /* otherwise it has not run */
        dvk_output_drain(c->worker->runtime);
    if (c->flag)
        atomic_store_explicit(c->flag, 0, memory_order_release);
    if (c->free_after)
        dvk_runtime_upcall(c->worker->runtime, &(struct dv_upcall){.kind = DV_UPCALL_FREE, .b = c->free_after}, true);
}

static void notify(struct dvk_graph *graph, uint32_t slot)
{
    dvk_runtime_upcall(graph->owner, &(struct dv_upcall){.kind = DV_UPCALL_EVENT, .a = slot}, true);
}

/* ---- submission ---- */

static int32_t vendor_waits(struct dvk_command *c)
{
    if (c->node.dep_count == 0)
        return CL_SUCCESS;
    c->waits = malloc(c->node.dep_count * sizeof *c->waits);
    if (!c->waits)
        return CL_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < c->node.dep_count; i++) {
        struct dvk_command *dep = command_of(c->node.deps[i]);
        if (dep->node.state == DV_NODE_DONE && dep->node.status < 0)
            return DV_STATUS_DEPENDENCY_FAILED;
        if (dep->node.state == DV_NODE_SUBMITTED && dep->event)
            c->waits[c->wait_count++] = dep->event;
    }
    if (c->wait_count == 0) { /* all done meanwhile */
        free(c->waits);
        c->waits = NULL;
    }
    return CL_SUCCESS;
}

static int32_t open_lane(struct dvk_queue *queue)
{
    cl_int error = CL_SUCCESS;
    if (!queue->lane)
        queue->lane = clCreateCommandQueue(queue->context->vendor, queue->device->vendor, 0, &error);
    return error;
}

static int32_t submit(struct dvk_node *node)
{
    struct dvk_command *c = command_of(node);
    int32_t error = vendor_waits(c);

    if (error == CL_SUCCESS && node->stream == &c->queue->graph.lane)
        error = open_lane(c->queue);
    /* A command that reports also stands for the commands before it, and so for their output. */
    if (node->stream == &c->queue->graph.main) {
        c->queue->prints |= c->may_print;
        c->may_print = node->reports && c->queue->prints;
        c->queue->prints &= !node->reports;
    }
    if (error == CL_SUCCESS)
        error = c->refused;
    if (error == CL_SUCCESS)
        error = c->info->submit(c->worker, c);
    if (error == CL_SUCCESS) {
        DV_PROBE3(submit, c->worker->runtime->header->session, node->queue->gate ? node->queue->gate->device : 0,
                  node->cost_ns);
        dvk_residency_submitted(c);
    }
    if (error != CL_SUCCESS) {
        c->queue->prints |= c->may_print;
        c->may_print = false;
    }
    if (c->waits) {
        free(c->waits);
        c->waits = NULL;
        c->wait_count = 0;
    }
    let_go(c);
    if (error != CL_SUCCESS)
        return error;
    c->queue->unflushed = true;
    if (node->event)
        dvk_command_is_submitted(c);
    if (node->reports && clSetEventCallback(c->event, CL_COMPLETE, vendor_completed, c) != CL_SUCCESS) {
        /* there is no callback: wait for it here, late but correct */
        cl_int status = CL_COMPLETE;
        clWaitForEvents(1, &c->event);
        clGetEventInfo(c->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        vendor_completed(c->event, status, c);
    }
    return CL_SUCCESS;
}

static void ready(struct dvk_node *node)
{
    struct dvk_command *c = command_of(node);
    const struct dvw_host *m = (const void *)c->record;

    if (m->by_helper) {
        dvk_runtime_upcall(
            c->worker->runtime,
            &(struct dv_upcall){.kind = DV_UPCALL_READY, .a = head_of(c)->queue.value, .b = node->number}, true);
        return;
    }
    dvk_send_reply(dvk_find_reply(c->worker, m->reply, 0), CL_SUCCESS);
}

#define FAILURES_LOGGED 20 /* of a session: all sessions share the log */

static void failed(struct dvk_node *node, int32_t status)
{
    struct dvk_command *c = command_of(node);

    if (node->by_helper && node->doomed) /* the client still keeps the objects for the move */
        dvk_runtime_upcall(
            c->worker->runtime,
            &(struct dv_upcall){.kind = DV_UPCALL_READY, .a = head_of(c)->queue.value, .b = node->number, .c = 1},
            true);
    if (!node->queue || status == DV_STATUS_DEPENDENCY_FAILED)
        return;
    if (c->worker->failures < FAILURES_LOGGED)
        dv_warning("%s failed after it was accepted: error %d%s", c->info ? c->info->name : "fence", status,
                   ++c->worker->failures == FAILURES_LOGGED ? "; more such failures are not logged" : "");
    dvk_runtime_upcall(c->worker->runtime,
                       &(struct dv_upcall){
                           .kind = DV_UPCALL_CONTEXT, .a = c->queue->context->id.value, .b = (uint64_t)(int64_t)status},
                       true);
}

/* Releases the objects now, not in destroy(): a command at the gate may refer to this one and need the room. */
static void finished(struct dvk_node *node)
{
    dvk_residency_done(command_of(node));
}

static void destroy(struct dvk_node *node)
{
    struct dvk_command *c = command_of(node);

    let_go(c);
    dvk_residency_done(c);
    dvk_timing_unref(c->timing);
    dvk_cut_free(c->cut);
    if (c->event && !c->event_is_kept)
        clReleaseEvent(c->event);
    free(c->waits);
    free(c);
}

static int32_t submit_fence(struct dvk_worker *w, struct dvk_command *c)
{
    return clEnqueueMarkerWithWaitList(dvk_command_queue(c), 0, NULL, &c->event);
}

static struct dvk_node *fence(struct dvk_graph_queue *queue, struct dvk_stream *stream)
{
    static const struct dvk_message_info info = {.name = "fence", .submit = submit_fence};
    struct dvk_command *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->queue = (struct dvk_queue *)queue;
    c->worker = c->queue->context->worker;
    c->info = &info;
    return &c->node;
}

/* Looks past records that set arguments, for the next command of the same queue. A hint only: the records can still
 * change. */
static bool more_coming(const struct dvk_node *node)
{
    enum { FAR_ENOUGH = 32 };
    const struct dvk_command *c = (const struct dvk_command *)node;
    struct dv_ring_reader ahead = c->worker->runtime->ring;
    struct dv_queue_head next;

    for (int i = 0; i < FAR_ENOUGH; i++) {
        if (dv_ring_peek(&ahead, &next.record) != 0)
            return false;
        if (next.record.op == DVW_OP_SET_ARGUMENT) {
            ahead.head += next.record.bytes;
            continue;
        }
        if (next.record.op >= DVW_OP_COUNT || next.record.op == DVW_OP_HOST ||
            c->worker->messages[next.record.op].style != DVK_STYLE_QUEUE || next.record.bytes < sizeof next)
            return false;
        memcpy(&next, ahead.data + (ahead.head & DV_RING_MASK), sizeof next);
        return next.queue.value == head_of(c)->queue.value;
    }
    return false;
}

static struct dvk_runtime *runtime_of(struct dvk_gate *gate)
{
    return (struct dvk_runtime *)((char *)(gate - gate->device) - offsetof(struct dvk_runtime, gates));
}

/* Assumed cost of a kernel that was not measured yet, so that it runs with little behind it. */
#define UNKNOWN_COST_NS (1 * DV_NS_PER_MS)
/* Copies, fills and markers: their recent cost, within these limits. */
#define OTHER_COST_MIN_NS (1 * DV_NS_PER_US)
#define OTHER_COST_START_NS (5 * DV_NS_PER_US)
#define OTHER_COST_MAX_NS (1 * DV_NS_PER_MS)

static uint64_t cost(const struct dvk_node *node)
{
    const struct dvk_command *c = (const struct dvk_command *)node;

    if (!c->timing)
        return c->worker->other_cost_ns ? c->worker->other_cost_ns : OTHER_COST_START_NS;
    uint64_t part_ns = c->cut || c->node.is_part ? dvk_cut_expects(c) : 0;
    if (part_ns)
        return part_ns;
    if (!c->timing->cost_ns || c->compiles)
        return UNKNOWN_COST_NS;
    /* more work items take longer; fewer are not known to be quicker */
    double more = c->items > c->timing->items ? c->items / c->timing->items : 1;
    double expected = (double)c->timing->cost_ns * more;
    return expected < (double)DV_NS_PER_S ? (uint64_t)expected : DV_NS_PER_S;
}

/* As people see it in a trace. One message carries all reads and writes, also those of maps. */
static const char *traced_name(const struct dvk_command *c)
{
    if (c->timing)
        return c->timing->name;
    if (c->info->submit == dvk_submit_transfer)
        return c->writes ? "write" : "read";
    return c->info->name;
}

static void trace(struct dvk_command *c, uint64_t began_ns, uint64_t took_ns)
{
    struct dvk_gate *gate = c->node.queue->gate;

    DV_PROBE3(complete, c->worker->runtime->header->session, gate->device, took_ns);
    if (!c->node.fence)
        dvk_trace_join(c->worker->runtime,
                       &(struct dvk_traced){.kind = c->timing ? DV_TRACED_KERNEL : DV_TRACED_COMMAND,
                                            .device = gate->device,
                                            .begin_ns = began_ns,
                                            .end_ns = began_ns + took_ns,
                                            .verdict = c->timing ? c->timing->verdict.kind : 0,
                                            .reason = c->timing ? c->timing->verdict.reason : DV_WHOLE_NO_REASON,
                                            .is_part = c->node.is_part || c->cut,
                                            .name = traced_name(c)});
}

static void measured(struct dvk_node *node, uint64_t began_ns, uint64_t took_ns)
{
    struct dvk_command *c = command_of(node);

    if (c->node.is_part || c->cut) {
        dvk_cut_measured(c, took_ns);
    } else if (c->timing && !c->compiles) {
        struct dvk_timing *timing = c->timing;
        bool alike = timing->cost_ns && c->items < 2 * timing->items && timing->items < 2 * c->items;
        timing->cost_ns = alike ? (3 * timing->cost_ns + took_ns) / 4 : (took_ns ? took_ns : 1);
        timing->items = c->items;
        dvk_pace_note(&timing->pace, c->items, took_ns);
    }
    if (!c->timing) {
        uint64_t old = cost(node), new = old - old / 16 + took_ns / 16;
        c->worker->other_cost_ns = new < OTHER_COST_MIN_NS   ? OTHER_COST_MIN_NS
                                   : new > OTHER_COST_MAX_NS ? OTHER_COST_MAX_NS
                                                             : new;
    }
    trace(c, began_ns, took_ns);
    struct dv_lease_work *ran = &c->worker->ran;
    ran->took_ns += took_ns;
    if (c->compiles)
        ran->compile_ns += took_ns;
    else if (took_ns > ran->longest_ns)
        ran->longest_ns = took_ns;
}

static void all_measured(struct dvk_gate *gate)
{
    struct dvk_runtime *runtime = runtime_of(gate);
    struct dv_lease_work *ran = &dvk_worker_of(runtime)->ran;

    dvk_trace_part(runtime);
    dvk_cut_earn(dvk_worker_of(runtime), gate->device, ran->took_ns);
    dv_lease_ran(runtime->lease, gate->device, ran);
    *ran = (struct dv_lease_work){0};
}

static bool admit(struct dvk_gate *gate, struct dvk_node *node)
{
    struct dvk_runtime *runtime = node->graph->owner;

    dvk_gate_hold_up(gate, false);
    if (!dvk_cut_plan(command_of(node)))
        return false;
    if (!dvk_gate_admit(runtime, gate, cost(node), !command_of(node)->compiles)) {
        if (!dv_lease_held(runtime->lease, gate->device))
            dvk_residency_ahead(command_of(node));
        return false;
    }
    if (!dvk_residency_admit(command_of(node)))
        return false;
    dvk_gate_passed(node->graph->owner, gate);
    return true;
}

static void drained(struct dvk_gate *gate)
{
    dvk_gate_drained(runtime_of(gate), gate);
}

static void closed(struct dvk_gate *gate)
{
    dvk_gate_closed(runtime_of(gate), gate);
}

const struct dvk_graph_backend dvk_backend = {
    .cost = cost,
    .measured = measured,
    .all_measured = all_measured,
    .admit = admit,
    .cut = dvk_cut_next,
    .drained = drained,
    .closed = closed,
    .submit = submit,
    .fence = fence,
    .ready = ready,
    .before_visible = before_visible,
    .notify = notify,
    .failed = failed,
    .finished = finished,
    .destroy = destroy,
    .more_coming = more_coming,
};

/* ---- arrival ---- */

static struct dvk_command *new_command(struct dvk_worker *w, const struct dv_record *record)
{
    struct dvk_command *c = malloc(sizeof *c + record->bytes);

    if (!c)
        dvk_runtime_abandon(w->runtime, "exhausted the worker's memory");
    memset(c, 0, sizeof *c);
    return c;
}

/* Its record has been copied. */
static void accept(struct dvk_worker *w, struct dvk_command *c, const struct dvk_message_info *info)
{
    struct dvk_runtime *runtime = w->runtime;
    const struct dv_queue_head *head = head_of(c);
    const struct dv_record *record = &head->record;

    if (record->bytes < info->bytes || head->wait_count > DV_MAX_WAITS ||
        record->bytes - info->bytes < waits_bytes(head) || head->event > DV_SHM_EVENT_COUNT)
        dvk_runtime_abandon(runtime, "sent a command with wrong lengths");
    c->queue = dvk_find_queue(w, head->queue);
    if (!c->queue)
        dvk_runtime_abandon(runtime, "named an unknown queue");
    c->worker = w;
    c->info = info;
    c->writes = info->writes;
    c->node.queue = &c->queue->graph;
    c->node.stream = &c->queue->graph.main;
    c->node.number = head->number;
    c->node.event = head->event;
    c->node.runs_on = DV_RUNS_ON_DEVICE;
    c->node.refs = 1;
    int32_t error = info->resolve(w, c);
    if (error != CL_SUCCESS) {
        /* it keeps its place in the queue's order and fails there */
        c->node.runs_on = DV_RUNS_NOWHERE;
        c->node.doomed = true;
        c->node.failure = error;
        dv_warning("%s cannot run: error %d", info->name, error);
    }
    dvk_graph_add(&runtime->graph, &c->node, (const uint32_t *)(c->record + record->bytes - waits_bytes(head)),
                  head->wait_count);
}

void dvk_command_handle(struct dvk_worker *w, const struct dv_record *record, const struct dvk_message_info *info)
{
    struct dvk_command *c = new_command(w, record);

    dv_ring_take(&w->runtime->ring, record, c->record);
    accept(w, c, info);
}

void dvk_command_take_again(struct dvk_worker *w, const uint8_t *message, const struct dvk_message_info *info)
{
    const struct dv_record *record = (const void *)message;
    struct dvk_command *c = new_command(w, record);

    memcpy(c->record, message, record->bytes);
    accept(w, c, info);
}

/* ---- markers ---- */

int32_t dvk_resolve_marker(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_marker *m = (const void *)c->record;

    c->node.barrier = m->barrier;
    c->node.everything = !m->explicit;
    c->free_after = m->arena;
    if (!c->queue->graph.in_order && !c->queue->profiling)
        c->node.runs_on = DV_RUNS_NOWHERE;
    return CL_SUCCESS;
}

int32_t dvk_submit_marker(struct dvk_worker *w, struct dvk_command *c)
{
    /* Without an event there is nothing to mark: the stream keeps the order anyway. */
    if (!c->node.reports && c->wait_count == 0)
        return CL_SUCCESS;
    return clEnqueueMarkerWithWaitList(dvk_command_queue(c), c->wait_count, c->waits, dvk_command_event(c));
}

/* ---- user events ---- */

void dvk_on_create_user_event(struct dvk_worker *w, const struct dvw_create_user_event *m, const uint8_t *tail,
                              size_t tail_bytes)
{
    struct dvk_command *c = calloc(1, sizeof *c);

    if (!c)
        return;
    c->worker = w;
    c->node.event = m->event;
    if (m->event == 0 || m->event > DV_SHM_EVENT_COUNT || dvk_graph_add_user_event(&w->runtime->graph, &c->node) < 0)
        free(c);
}

void dvk_on_set_user_event(struct dvk_worker *w, const struct dvw_set_user_event *m, const uint8_t *tail,
                           size_t tail_bytes)
{
    struct dvk_node *node = dvk_graph_event_node(&w->runtime->graph, m->event);

    if (node && !node->queue)
        dvk_graph_finish(&w->runtime->graph, node, m->status < 0 ? m->status : CL_COMPLETE);
}
