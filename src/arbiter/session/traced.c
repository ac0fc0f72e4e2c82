/* Commands of a session for a trace (see traced.h). */
#include "src/arbiter/session/traced.h"

#include <unistd.h>

#include "src/arbiter/session/session.h"
#include "src/base/text.h"
#include "src/wire/lease/lease.h"

/* The worker stops by itself if divvyd does not ask again: a divvyd that was killed cannot tell it. */
#define TRACE_NS (10 * DV_NS_PER_S)

static void tell(struct dvd_session *session, dv_ns for_ns)
{
    struct dv_lease_message m = {
        .magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_TRACE, .slice_ns = for_ns};

    dvd_session_send(&session->lessee, &m, sizeof m);
}

void dvd_session_trace(struct dvd_session *session, dv_ns now)
{
    if (session->state != DV_SESSION_SERVED || !session->lessee.leases || session->traced_until > now + TRACE_NS / 2)
        return;
    session->traced_until = now + TRACE_NS;
    tell(session, TRACE_NS);
}

void dvd_session_end_trace(struct dvd_session *session)
{
    if (session->traced_until && session->state == DV_SESSION_SERVED)
        tell(session, 0);
    session->traced_until = 0;
}

static bool take(const struct dvd_session *session, const struct dv_shm_traced *record, dv_ns since,
                 struct dvd_traced *found)
{
    const struct dvd_lessee *lessee = &session->lessee;

    if (record->kind == 0 || record->kind >= DV_TRACED_KINDS || record->device >= lessee->device_count ||
        record->verdict >= DV_CUT_VERDICTS || record->reason >= DV_WHOLE_REASONS || record->begin_ns > record->end_ns ||
        record->end_ns <= since || record->end_ns > dv_now())
        return false;
    *found = (struct dvd_traced){.kind = (enum dv_traced_kind)record->kind,
                                 .device = lessee->devices[record->device].number,
                                 .count = record->count,
                                 .verdict = (enum dv_cut_verdict)record->verdict,
                                 .reason = (enum dv_whole_reason)record->reason,
                                 .is_part = record->is_part != 0,
                                 .begin_ns = record->begin_ns < since ? since : record->begin_ns,
                                 .end_ns = record->end_ns,
                                 .bytes = record->bytes};
    dv_text_copy(found->name, sizeof found->name, record->name);
    return true;
}

unsigned dvd_session_read_traced(struct dvd_session *session, dv_ns since, struct dvd_traced found[DVD_TRACED_BATCH],
                                 unsigned *valid, uint64_t *lost)
{
    struct dv_shm_traced records[DVD_TRACED_BATCH];
    uint64_t at = session->traced_count % DV_SHM_TRACE_COUNT;
    uint64_t most = DV_SHM_TRACE_COUNT - at < DVD_TRACED_BATCH ? DV_SHM_TRACE_COUNT - at : DVD_TRACED_BATCH;
    unsigned read = 0;

    *valid = 0;
    *lost = 0;
    /* A page that the worker has not written is read as zeros and stays without memory. */
    ssize_t bytes = session->shm_fd < 0 ? -1
                                        : pread(session->shm_fd, records, most * sizeof records[0],
                                                (off_t)(DV_SHM_TRACE_OFFSET + at * sizeof records[0]));
    uint64_t count = bytes < 0 ? 0 : (uint64_t)bytes / sizeof records[0];
    for (; read < count; read++) {
        struct dv_shm_traced *record = &records[read];
        uint64_t number = record->number, expected = session->traced_count + 1;
        if (number < expected || (number - expected) % DV_SHM_TRACE_COUNT != 0)
            break;
        *lost += number - expected;
        session->traced_count = number;
        record->name[sizeof record->name - 1] = '\0';
        *valid += take(session, record, since, &found[*valid]);
    }
    return read;
}

const char *dvd_traced_word(enum dv_traced_kind kind)
{
    static const char *const words[] = {[DV_TRACED_KERNEL] = "kernel",
                                        [DV_TRACED_COMMAND] = "command",
                                        [DV_TRACED_COMPILE] = "compile",
                                        [DV_TRACED_BRING] = "copy-in",
                                        [DV_TRACED_EVICT] = "copy-out"};
    return words[kind];
}
