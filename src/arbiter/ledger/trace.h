/* What happens to leases, for people who trace or record it: a ring of records that is filled only while a caller reads
 * it. Readers that are too slow lose the oldest. */
#ifndef DVD_LEDGER_TRACE_H
#define DVD_LEDGER_TRACE_H

#include <stdint.h>

#include "src/base/clock.h"

struct dvd_lease;

enum dvd_trace_kind {
    DVD_TRACE_WAIT,    /* it begins to wait for the device */
    DVD_TRACE_CANCEL,  /* it does not want the device any more */
    DVD_TRACE_GRANT,   /* value: the slice in ns */
    DVD_TRACE_RECALL,  /* it is asked to release */
    DVD_TRACE_RELEASE, /* value: the longest recent kernel in ns */
    DVD_TRACE_BRING,   /* it begins to bring memory in */
    DVD_TRACE_PLACED,  /* its memory is there; value: the bytes that it has on the device */
    DVD_TRACE_EVICT,   /* it is asked to evict; value: bytes */
    DVD_TRACE_LEAVE,   /* it leaves the device */
    DVD_TRACE_KINDS
};

struct dvd_trace_record {
    dv_ns time;
    uint64_t session, value;
    uint8_t device, kind;
    uint8_t more; /* of a release: further work waits */
};

#define DVD_TRACE_RECORDS 65536 /* a power of two */

struct dvd_trace {
    struct dvd_trace_record *records; /* DVD_TRACE_RECORDS of them; NULL: it is off */
    uint64_t count;                   /* ever written */
    unsigned readers;
};

/* A reader begins at trace->count, or ends. Returns 0 or -ENOMEM. */
int dvd_trace_begin(struct dvd_trace *trace);
void dvd_trace_end(struct dvd_trace *trace);
/* Writes a record; trace->records is there. The ledger calls dvd_trace_note, which is in private.h. */
void dvd_trace_write(const struct dvd_lease *lease, enum dvd_trace_kind kind, uint64_t value, int more);
/* The word for a kind in a trace. */
const char *dvd_trace_word(enum dvd_trace_kind kind);

#endif
