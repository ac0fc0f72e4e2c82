/* A trace of leases (see trace.h). */
#include "src/arbiter/ledger/trace.h"

#include <errno.h>
#include <stdlib.h>

#include "src/arbiter/ledger/private.h"

int dvd_trace_begin(struct dvd_trace *trace)
{
    if (!trace->records)
        trace->records = calloc(DVD_TRACE_RECORDS, sizeof *trace->records);
    if (!trace->records)
        return -ENOMEM;
    trace->readers++;
    return 0;
}

void dvd_trace_end(struct dvd_trace *trace)
{
    if (--trace->readers > 0)
        return;
    free(trace->records);
    trace->records = NULL;
}

void dvd_trace_write(const struct dvd_lease *lease, enum dvd_trace_kind kind, uint64_t value, int more)
{
    struct dvd_ledger *ledger = lease->lessee->ledger;
    struct dvd_trace *trace = &ledger->trace;

    trace->records[trace->count++ % DVD_TRACE_RECORDS] = (struct dvd_trace_record){.time = dvd_ledger_now(ledger),
                                                                                   .session = lease->lessee->id.value,
                                                                                   .value = value,
                                                                                   .device = lease->device->id.number,
                                                                                   .kind = (uint8_t)kind,
                                                                                   .more = more != 0};
}

const char *dvd_trace_word(enum dvd_trace_kind kind)
{
    static const char *const words[] = {
        [DVD_TRACE_WAIT] = "wait",     [DVD_TRACE_CANCEL] = "cancel",   [DVD_TRACE_GRANT] = "grant",
        [DVD_TRACE_RECALL] = "recall", [DVD_TRACE_RELEASE] = "release", [DVD_TRACE_BRING] = "bring",
        [DVD_TRACE_PLACED] = "placed", [DVD_TRACE_EVICT] = "evict",     [DVD_TRACE_LEAVE] = "leave"};
    return words[kind];
}
