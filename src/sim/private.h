/* What the files of the simulation share and its users do not see. */
#ifndef DV_SIM_PRIVATE_H
#define DV_SIM_PRIVATE_H

#include "src/policy/pauses.h"
#include "src/sim/engine.h"
#include "src/sim/events.h"

enum dv_worker_state {
    DV_WORKER_ABSENT,
    DV_WORKER_IDLE,
    DV_WORKER_WAITING,
    DV_WORKER_STARTING,
    DV_WORKER_MOVING,
    DV_WORKER_STOPPING, /* ends a move that it was recalled from */
    DV_WORKER_RUNNING,
    DV_WORKER_LINGERING,
    DV_WORKER_RELEASING
};

struct dv_sim_session {
    struct dv_policy_session lease; /* first: the policy's pointers lead back to the session */
    struct dv_sim_tenant *tenant;
    uint64_t random;
    enum dv_worker_state state;
    uint64_t generation;
    bool leaving;
    dv_ns *arrivals; /* of bursts not yet done, in a ring */
    size_t arrivals_first, arrivals_count, arrivals_capacity;
    uint64_t trace_next;
    unsigned kernels_left; /* of the first burst */
    dv_ns next_kernel_ns;
    dv_ns running_ns;
    dv_ns slice_ns, slice_ends; /* of this turn */
    dv_ns linger_ns,
        short_linger_ns;    /* how long it may keep an idle device; the same without moves */
    dv_ns bridge_ns;        /* a pause up to this does not end a burst */
    struct dv_pauses pauses;
    bool contended; /* others waited when its turn began */
    unsigned lease_kernels; /* in this turn */
    dv_ns busy_ns;          /* the same, their time */
    struct dv_burst_monitor monitor;
    struct {
        uint64_t placed, resident; /* room that it has; of that, what holds its data */
        dv_ns used_at;             /* its last turn ended */
        dv_ns moves_since;         /* in this turn */
        dv_ns bring_since;         /* the same without waiting for others to leave */
        dv_ns waited_ns;           /* for that */
    } memory;
};

struct dv_engine {
    struct dv_sim sim; /* first: what users see */
    struct dv_event_queue events;
    dv_ns now;
    uint64_t random; /* for overheads */
    bool out_of_memory;
};

static inline struct dv_sim_session *dv_sim_session_of(struct dv_policy_session *lease)
{
    return (struct dv_sim_session *)(void *)lease;
}

/* An event of the session in its present state: it lapses when the session moves on before. */
static inline void dv_sim_later(struct dv_engine *engine, struct dv_sim_session *session,
                                dv_ns delay_ns, enum dv_event_type type)
{
    dv_events_push(&engine->events, engine->now + delay_ns, type, session, session->generation);
}

static inline void dv_sim_set_state(struct dv_sim_session *session, enum dv_worker_state state)
{
    session->state = state;
    session->generation++;
}

void dv_sim_sample(struct dv_engine *engine, struct dv_samples *samples, dv_ns value);

/* ---- livelock.c: a policy that keeps deciding and lets nothing run ---- */

void dv_livelock_granted(struct dv_engine *engine, struct dv_sim_tenant *tenant);
void dv_livelock_asked_again(struct dv_engine *engine, struct dv_sim_device *device);
void dv_livelock_kernel_ended(struct dv_engine *engine, struct dv_sim_device *device);

/* ---- devices.c: which device a tenant goes to ---- */

/* Sets tenant->device. Returns false when there is none that can take it. */
bool dv_devices_admit(struct dv_engine *engine, struct dv_sim_tenant *tenant);
/* What it was promised is free again; later, its last kernel is done, and it is gone. */
void dv_devices_leave(struct dv_sim_tenant *tenant);
void dv_devices_remove(struct dv_sim_tenant *tenant);

/* ---- arrivals.c: what a session has to do, and when more comes ---- */

dv_ns dv_arrivals_kernel(struct dv_sim_session *session);
/* Of a tenant: what it has to do in all; 0: no end. */
dv_ns dv_arrivals_work(struct dv_sim_session *session);
/* A burst is there now. */
void dv_arrivals_add(struct dv_engine *engine, struct dv_sim_session *session);
/* The first one, right after a session has joined; and the one after the present one. */
void dv_arrivals_begin(struct dv_engine *engine, struct dv_sim_session *session);
void dv_arrivals_set_next(struct dv_engine *engine, struct dv_sim_session *session);
/* A kernel of the first burst is done, and the burst with it if that was its last. */
void dv_arrivals_kernel_done(struct dv_engine *engine, struct dv_sim_session *session);

/* The session takes no more work. Bursts that are late already count as such; of younger ones it
 * will never be known. */
void dv_arrivals_abandon(struct dv_engine *engine, struct dv_sim_session *session);

#endif
