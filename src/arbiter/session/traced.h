/* What a session's worker does, command by command, while an operator traces it. The worker writes records into the
 * session's shared memory; the figures are its own and are for display only. */
#ifndef DVD_SESSION_TRACED_H
#define DVD_SESSION_TRACED_H

#include <stdbool.h>

#include "src/base/clock.h"
#include "src/wire/session/shm.h"

struct dvd_session;

/* A record, checked. */
struct dvd_traced {
    enum dv_traced_kind kind;
    uint32_t device; /* divvyd's number of it */
    uint32_t count;
    enum dv_cut_verdict verdict; /* of a kernel; 0: not known */
    enum dv_whole_reason reason;
    bool is_part;
    uint64_t begin_ns, end_ns, bytes;
    char name[DV_MAX_TRACED_NAME];
};

#define DVD_TRACED_BATCH 32

/* Has the worker write records for some seconds from now on. */
void dvd_session_trace(struct dvd_session *session, dv_ns now);
void dvd_session_end_trace(struct dvd_session *session);
/* Reads the next records, of what ended after `since`. Returns how many were read, and in *found how many of them are
 * valid. *lost counts records that the worker has overwritten. */
unsigned dvd_session_read_traced(struct dvd_session *session, dv_ns since, struct dvd_traced found[DVD_TRACED_BATCH],
                                 unsigned *valid, uint64_t *lost);
const char *dvd_traced_word(enum dv_traced_kind kind);

#endif
