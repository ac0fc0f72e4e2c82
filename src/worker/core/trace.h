/* What a worker does, for an operator who traces the session: records in the shared memory, which divvyd reads. Written
 * by the thread that submits, and only while divvyd asks for them. */
#ifndef DV_WORKER_CORE_TRACE_H
#define DV_WORKER_CORE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/wire/session/shm.h"

struct dvk_runtime;

struct dvk_traced {
    enum dv_traced_kind kind;
    uint32_t device;
    uint64_t begin_ns, end_ns, bytes;
    enum dv_cut_verdict verdict; /* of a kernel; 0: not known */
    enum dv_whole_reason reason;
    bool is_part;
    const char *name; /* stays valid while the kernel or command exists; NULL: none */
};

struct dvk_trace {
    uint64_t count;            /* records ever written */
    struct dvk_traced pending; /* commands of one name that were reported together */
    uint32_t pending_count;
};

/* Whether the session is traced: then the caller notes what it does. */
bool dvk_trace_is_on(const struct dvk_runtime *runtime);
/* Writes a record, if the session is traced. */
void dvk_trace_note(struct dvk_runtime *runtime, const struct dvk_traced *traced);
/* The same for a command that the vendor reported together with others: those of one name share a record. Small
 * commands come by the thousand, and their own times are not known. */
void dvk_trace_join(struct dvk_runtime *runtime, const struct dvk_traced *traced);
/* The commands that were reported together are noted. */
void dvk_trace_part(struct dvk_runtime *runtime);

#endif
