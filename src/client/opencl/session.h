/* The session of a tenant's process: its shared memory, its messages to the worker, and the client's own threads.
 *
 * libdivvy-opencl.so is a guest in that process: it never exits, prints, touches signals or leaves descriptors; after
 * the handshake it needs none. */
#ifndef DV_CLIENT_OPENCL_SESSION_H
#define DV_CLIENT_OPENCL_SESSION_H

#include <CL/cl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opencl_client.h"
#include "src/base/clock.h"
#include "src/client/opencl/arena.h"
#include "src/client/opencl/staging.h"
#include "src/wire/session/handshake.h"
#include "src/wire/session/opencl_replies.h"
#include "src/wire/session/ring.h"

struct dvc_host_job;

struct dvc_session {
    struct dvc_session *earlier; /* its worker is gone; old objects still point to it */
    uint8_t *shm;
    uint64_t shm_bytes;
    struct dv_shm_header *header;
    uint64_t id;
    _Atomic bool dead;   /* the worker is gone, or this is a forked child */
    _Atomic bool forked; /* this is a forked child, without the shared memory */
    pthread_mutex_t ring_lock;
    struct dv_ring_writer ring;
    struct dvc_arena arena;
    pthread_mutex_t host_lock;
    struct dvc_host_job *host_jobs; /* for the helper, in the order enqueued */
    struct dvc_host_job **host_jobs_end;
    struct {
        struct dv_object_id queue_id; /* 0: none */
        uint64_t first, last;
        size_t bytes;
    } done;              /* host commands finished, not yet reported; only the helper uses it */
    bool helper_started; /* with host_lock */
    pthread_mutex_t output_lock;
    _Atomic uint64_t releasing_bytes; /* of released buffers that the worker has not freed yet */
    _Atomic uint32_t gone;            /* futex: counts freed buffers */
    pthread_mutex_t staging_lock;
    struct dvc_staging staging;
};

/* A session's calls to the parts above it. */
struct dvc_session_events {
    /* Fills in the numbers of the devices that the program knows, in its order. Returns false if it knows none yet. */
    bool (*known_devices)(char *list, size_t bytes);
    /* A session is open. An error ends it. */
    cl_int (*opened)(struct dvc_session *s);
    /* In a forked child. */
    void (*forked)(void);
};
void dvc_session_set_events(const struct dvc_session_events *given);

/* The process's session, connecting if needed; NULL when no daemon serves the process. */
struct dvc_session *dvc_session_get(void);

static inline bool dvc_session_alive(struct dvc_session *s)
{
    return s && !atomic_load_explicit(&s->dead, memory_order_relaxed);
}
/* Checks whether the worker is alive; marks the session dead if not. */
bool dvc_session_check(struct dvc_session *s);

/* Sleeps until *word differs from seen or the worker is dead; can return early. */
void dvc_session_wait(struct dvc_session *s, _Atomic uint32_t *word, uint32_t seen);

/* Send a message. Lengths are in bytes; records must fit DV_MAX_RECORD_BYTES. */
cl_int dvc_send(struct dvc_session *s, uint16_t op, struct dv_record *message, size_t bytes, const void *tail,
                size_t tail_bytes);
cl_int dvc_call(struct dvc_session *s, uint16_t op, struct dv_call_head *message, size_t bytes, const void *tail,
                size_t tail_bytes, void *answer, size_t capacity, size_t *answer_bytes);
/* The part of a send that needs the ring's lock held: room for a record, or NULL when dead. */
void *dvc_ring_room(struct dvc_session *s, size_t bytes);
cl_int dvc_wait_reply(struct dvc_session *s, struct dv_reply *reply);
void dvc_flush_output(struct dvc_session *s);

static inline void *dvc_arena_pointer(struct dvc_session *s, uint64_t offset)
{
    return s->shm + offset;
}

/* ---- the call log (call_log.c) ---- */

void dvc_log_open(void);
bool dvc_log_enabled(void);
void dvc_log_call(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- the callback thread (callbacks.c) ---- */

/* Work for the callback thread. A job is part of the object that it reports on, so posting it needs no memory. */
struct dvc_job {
    struct dvc_job *next;
    void (*run)(struct dvc_job *);
};

/* Starts a thread that blocks all signals. */
bool dvc_thread_start(void *(*function)(void *), void *argument);
/* Starts the callback thread, unless it runs. Called before registering anything to post later. */
bool dvc_callbacks_start(void);
/* Runs a job on the callback thread, so that application code never blocks the helper. */
void dvc_callback_post(struct dvc_job *job, void (*run)(struct dvc_job *));
void dvc_callbacks_after_fork(void);

/* ---- the helper thread (helper.c) ---- */

/* Upcalls of the worker, on the helper thread. Ids are the worker's. */
struct dvc_upcall_handlers {
    void (*event_ended)(struct dvc_session *s, uint32_t event_id);
    /* A host command is ready to run, or will never run. */
    void (*host_ready)(struct dvc_session *s, struct dv_object_id queue_id, uint64_t number, bool cancelled);
    void (*mem_gone)(struct dvc_session *s, struct dv_object_id mem_id);
    void (*command_failed)(struct dvc_session *s, struct dv_object_id context_id, cl_int code);
    /* There are no more upcalls for now. */
    void (*all_served)(struct dvc_session *s);
    void (*worker_lost)(struct dvc_session *s);
};
void dvc_helper_set_handlers(const struct dvc_upcall_handlers *given);
/* Starts the thread that serves upcalls, unless it runs. */
bool dvc_helper_start(struct dvc_session *s);
extern _Thread_local bool dvc_is_helper; /* this thread */

#endif
