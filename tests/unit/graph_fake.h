/* A backend for the command graph that does nothing by itself: it notes what it was given, and the
 * test decides when the "vendor" executes a command and when it reports it. It keeps the vendor's
 * promises: a stream runs in the order submitted, and a command waits for its wait list. */
#ifndef DV_TESTS_UNIT_GRAPH_FAKE_H
#define DV_TESTS_UNIT_GRAPH_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "src/worker/core/graph.h"

#define FAKE_SHM_BYTES DV_SHM_ARENA_OFFSET
#define FAKE_WAITS 64

struct fake;

/* What has happened to a command; outlives it. Counts order events by `fake.clock`, from 1. */
struct fake_trace {
    struct fake_command *command; /* NULL once destroyed */
    struct dvk_stream *stream;
    uint32_t waits[FAKE_WAITS]; /* the vendor's wait list at submission, by id */
    uint32_t wait_count;
    uint32_t submitted, executed, turned;   /* when; 0: not yet */
    _Atomic uint32_t visible;               /* how often completion was made visible */
    uint32_t failures, finished, destroyed; /* how often */
    int32_t failure;
    int32_t plan;    /* status the vendor ends it with */
    int32_t refusal; /* status submit answers, 0: accepts */
    int32_t outcome; /* status the vendor reported or will report */
    int32_t final;   /* status it became visible with */
    bool reports, reported, is_fence;
};

struct fake_command {
    struct dvk_node node; /* first */
    struct fake *fake;
    uint32_t id;
};

struct fake {
    struct dvk_graph graph;
    uint8_t *shm;
    struct fake_trace *traces; /* by id, from 1 */
    uint32_t count, capacity;
    uint32_t *order; /* ids in the order submitted */
    uint32_t submissions;
    uint32_t clock;
    bool more; /* what more_coming answers */
    uint32_t fences;
    bool no_fence;                     /* fence answers NULL */
    int32_t fence_refusal, fence_plan; /* as in the traces, for fences to come */
    uint32_t turns;
    _Atomic uint32_t notified;
    _Atomic uint32_t last_notified;
    pthread_mutex_t lock; /* over traces and order, when a vendor thread runs */
    /* Called, if set, with the lock held: when a command is submitted or gets its turn, when it is
     * executed, and when its completion becomes visible. */
    void (*on_submit)(struct fake *fake, uint32_t id);
    void (*on_execute)(struct fake *fake, uint32_t id);
    void (*on_visible)(struct fake *fake, uint32_t id);
    void *user;
};

void fake_init(struct fake *fake, uint32_t capacity);
/* Checks that nothing is left over, then frees. */
void fake_fini(struct fake *fake);

/* A command with a new id, not yet added. */
struct fake_command *fake_command(struct fake *fake, struct dvk_graph_queue *queue, enum dvk_runs_on runs_on);

/* The vendor executes a command, if it may; answers whether it did. */
bool fake_may_execute(struct fake *fake, uint32_t id);
void fake_execute(struct fake *fake, uint32_t id);
/* The vendor reports an executed command that is to be reported; any thread. */
void fake_report(struct fake *fake, uint32_t id);
/* Both. */
void fake_complete(struct fake *fake, uint32_t id);
/* Executes all that may be, reports it and reaps, until nothing moves. */
void fake_drain(struct fake *fake);

struct dv_shm_event *fake_event_slot(struct fake *fake, uint32_t event);
struct dv_shm_queue *fake_queue_slot(struct fake *fake, uint32_t slot);

#endif
