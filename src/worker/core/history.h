/* The messages that made a session's objects, in the order in which they came. A worker that is to serve the session
 * after this one takes them in again, so each stays as long as anything depends on it.
 *
 * What made one object is its origin: the message that created it and those that changed it since. Other origins can
 * need it: a kernel needs its program, a linked program those that it was linked from. The release of an object is kept
 * like any message, because another object may get its id. */
#ifndef DV_WORKER_CORE_HISTORY_H
#define DV_WORKER_CORE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "src/wire/session/record.h"

struct dvk_origin;

/* A message. */
struct dvk_kept {
    TAILQ_ENTRY(dvk_kept) in_history;
    STAILQ_ENTRY(dvk_kept) in_origin;
    struct dvk_origin *origin;
    struct dvk_origin **needs;
    uint32_t need_count;
    uint64_t arrival; /* how many commands had come before it */
    uint8_t *data;    /* what it referred to in the shared memory, or NULL */
    uint64_t data_bytes;
    uint8_t message[]; /* with its tail; its head says how long it is */
};

struct dvk_history {
    TAILQ_HEAD(dvk_kept_list, dvk_kept) kept;
    uint64_t count;
    bool is_incomplete; /* memory was short: no worker can follow */
};

struct dvk_origin {
    struct dvk_history *history;
    uint32_t refs;
    void *object; /* that has it, for its owner */
    STAILQ_HEAD(, dvk_kept) kept;
};

void dvk_history_init(struct dvk_history *history);

/* Of an object that is made now; NULL: memory is short. An origin that is NULL can be passed to all of these. */
struct dvk_origin *dvk_origin_new(struct dvk_history *history);
struct dvk_origin *dvk_origin_ref(struct dvk_origin *origin);
/* Nothing depends on it any more: its messages are forgotten. */
void dvk_origin_unref(struct dvk_origin *origin);

/* Keeps a message. data: a copy of what it refers to in the shared memory, which is taken over; or NULL. Returns NULL
 * when memory is short. */
struct dvk_kept *dvk_origin_keep(struct dvk_origin *origin, const struct dv_record *message, uint64_t arrival,
                                 void *data, uint64_t data_bytes);
/* The message depends on another origin. */
void dvk_kept_needs(struct dvk_kept *kept, struct dvk_origin *other);
/* Forgets the messages of this kind that it has: a newer one replaces them. */
void dvk_origin_forget(struct dvk_origin *origin, uint16_t op);

#endif
