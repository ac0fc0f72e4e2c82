/* Shared by the files of the simulation, hidden from its users. */
#ifndef DV_SIM_PRIVATE_H
#define DV_SIM_PRIVATE_H

#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/restart/state.h"
#include "src/policy/pauses.h"
#include "src/sim/engine.h"
#include "src/sim/events.h"

enum dv_worker_state {
    DV_WORKER_ABSENT,
    DV_WORKER_IDLE,
    DV_WORKER_WAITING,
    DV_WORKER_STARTING,
    DV_WORKER_MOVING, /* holds the device and brings its set in */
    DV_WORKER_RUNNING,
    DV_WORKER_LINGERING,
    DV_WORKER_RELEASING
};

enum dv_copy { DV_COPY_NONE, DV_COPY_IN, DV_COPY_OUT };

struct dv_sim_session {
    struct dvd_lessee lessee; /* first: the ledger's pointers lead back to the session */
    struct dv_sim_tenant *tenant;
    uint32_t device_index; /* in its list of devices */
    uint64_t serial;       /* of the present or last grant */
    bool recalled;         /* that grant */
    bool told;             /* an event for the daemon's message is in the queue */
    dv_ns asked_at, granted_at;
    uint64_t random;
    enum dv_worker_state state;
    uint64_t generation;
    bool abandoned;  /* it takes no more work */
    dv_ns *arrivals; /* of bursts not yet done, in a ring */
    size_t arrivals_first, arrivals_count, arrivals_capacity;
    uint64_t trace_next;
    unsigned kernels_left; /* of the first burst */
    dv_ns next_kernel_ns;
    dv_ns running_ns;
    dv_ns rest_ns;                    /* of a kernel in slices, that has not run; 0: none */
    dv_ns part_ns;                    /* how long slices of kernels are, in this hold; 0: kernels stay whole */
    dv_ns slice_ns, slice_ends;       /* of this hold */
    dv_ns linger_ns, short_linger_ns; /* how long it may keep an idle device; the same without moves */
    dv_ns bridge_ns;                  /* a pause up to this does not end a burst */
    struct dv_pauses pauses;
    bool contended;         /* others waited when its hold began */
    unsigned lease_kernels; /* in this hold */
    dv_ns busy_ns;          /* the same, their time */
    struct dv_burst_monitor monitor;
    struct {
        uint64_t room, resident;      /* bytes that the daemon has granted; of those, with its data */
        uint64_t evict_due, evict_id; /* bytes it was asked to evict, and by which request */
        uint64_t place_id;            /* of its newest request for room */
        bool asked;                   /* that has no answer yet */
        bool refused;                 /* the answer was a refusal */
        bool queues;                  /* it asks for the rest at once, and waits */
        enum dv_copy copy;            /* of a piece, under way */
        uint64_t copy_bytes;
        uint64_t copy_number; /* of the copy whose event counts */
        dv_ns moves_since;    /* in this hold */
    } memory;
};

struct dv_engine {
    struct dv_sim sim; /* first: the part that users see */
    struct dv_event_queue events;
    dv_ns now;
    struct dvd_ledger ledger; /* its clock, and its records, which are in no file */
    struct dv_timers timers;
    struct dvd_state state;
    struct dv_sim_timer *timers_all, *timers_free;
    const struct dv_daemon_events *daemon_events;
    uint64_t last_session_id;
    uint64_t random; /* for overheads */
    bool out_of_memory;
};

/* An event of the session in its present state: it lapses when the session leaves that state before. */
static inline void dv_sim_later(struct dv_engine *engine, struct dv_sim_session *session, dv_ns delay_ns,
                                enum dv_event_type type)
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

/* ---- arrivals.c: the work of a session, and when more comes ---- */

dv_ns dv_arrivals_kernel(struct dv_sim_session *session);
/* The total work of a tenant; 0: no end. */
dv_ns dv_arrivals_work(struct dv_sim_session *session);
/* A burst is there now. */
void dv_arrivals_add(struct dv_engine *engine, struct dv_sim_session *session);
/* The first one, right after a session has joined; and the one after the present one. */
void dv_arrivals_begin(struct dv_engine *engine, struct dv_sim_session *session);
void dv_arrivals_set_next(struct dv_engine *engine, struct dv_sim_session *session);
/* A kernel of the first burst is done, and the burst with it if that was its last. */
void dv_arrivals_kernel_done(struct dv_engine *engine, struct dv_sim_session *session);

/* The session takes no more work. Bursts that are late already count as such; younger ones do
 * not count. */
void dv_arrivals_abandon(struct dv_engine *engine, struct dv_sim_session *session);

#endif
