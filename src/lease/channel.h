/* The inside of the lease client, shared by its parts. */
#ifndef DV_LEASE_CHANNEL_H
#define DV_LEASE_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "include/divvy/lease.h"
#include "src/lease/parking.h"
#include "src/policy/burst.h"
#include "src/policy/pauses.h"
#include "src/wire/lease/message.h"

enum state { IDLE, WAITING, GRANTED, RECALLED };

struct device {
    _Atomic int state;
    _Atomic uint64_t slice_end_ns;
    _Atomic uint64_t serial;
    _Atomic bool contended, alone;
    _Atomic uint64_t part_ns; /* of this grant; 0: kernels are not cut */
    _Atomic uint32_t part_cost_ppm;
    bool wanted;              /* there is work */
    bool joined;              /* divvyd has allowed its use */
    bool lost;                /* held by a session that is over: to be drained, and not to be released */
    uint64_t idle_since;      /* 0: not idle */
    uint64_t linger_ns;       /* of this grant */
    uint64_t short_linger_ns; /* the same before memory was moved for it */
    uint64_t went_idle_ns;    /* when the work last ended; 0: not yet */
    struct dv_pauses pauses;
    uint64_t bridge_ns; /* pauses up to this belong to a burst */
    uint64_t busy_ns, compile_ns;
    struct dv_burst_monitor monitor;
    /* memory, as divvyd knows it; with the lock held */
    uint64_t reserved, placed;
    uint64_t place_asked; /* room that is waited for; 0: none */
    uint64_t place_id;    /* of the newest question for room */
    uint32_t place_flags; /* of that, too: enum dv_memory_flag */
    uint64_t evicting;    /* bytes that divvyd asked for and did not get so far */
    bool brings;          /* from the first such question until all is in place */
};

struct dv_lease {
    struct dv_lease_callbacks callbacks;
    dv_lease_on_park *on_park;  /* NULL: it cannot be parked */
    int socket;                 /* -1: there is no session */
    bool uncoordinated;         /* there is no divvyd, and devices are used all the same */
    struct dv_lease_home *home; /* of a lease that finds divvyd by itself; NULL: of a worker, which cannot */
    pid_t process;
    int wake;              /* eventfd: the thread has an earlier deadline */
    uint64_t next_look_ns; /* when the thread looks by itself; UINT64_MAX: only after an event */
    pthread_mutex_t lock;
    pthread_t thread;
    _Atomic bool ending;
    /* the one question about memory that is waited for (memory.c) */
    pthread_mutex_t asking; /* held by the thread that asks */
    pthread_cond_t answered;
    uint64_t memory_id; /* of the last question */
    uint64_t memory_answer_id;
    bool memory_granted;
    uint32_t memory_device;
    uint64_t memory_bytes;
    /* the same for the device that is about to be used */
    uint64_t join_id;  /* of the last question */
    bool join_pending; /* it is not answered yet */
    bool join_refused;
    uint32_t join_device;
    uint32_t device_count;
    struct device devices[];
};

/* A lease that finds divvyd by itself (connect.c). */
struct dv_lease_home {
    /* On the lease's thread: the session is over. Returns when there is another one, or the lease ends. */
    void (*lost)(struct dv_lease *lease);
};

/* Takes socket and home over, also if it fails. home is freed with the lease. */
struct dv_lease *dv_lease_start(int socket, uint32_t device_count, const struct dv_lease_callbacks *callbacks,
                                struct dv_lease_home *home);
/* With the lock held: releases the device, and asks for it again if there is work. */
void dv_lease_give_back(struct dv_lease *lease, uint32_t index);
/* With the lock held. */
void dv_lease_send_want(struct dv_lease *lease, uint32_t index);
/* On the lease's thread: there is no divvyd, and devices are used all the same. */
void dv_lease_go_on_alone(struct dv_lease *lease);
/* With the lock held: whether device memory is allowed without divvyd's answer. */
static inline bool dv_lease_allows(const struct dv_lease *lease)
{
    return !lease->home || lease->uncoordinated;
}

/* With the lock held: asks for the device that is about to be used, again after a restart. */
void dv_lease_send_join(struct dv_lease *lease);

/* On the lease's thread: a message about memory has come, a new daemon asks, or the daemon is gone. */
void dv_sync_handle(struct dv_lease *lease, const struct dv_sync_message *m);
void dv_memory_handle(struct dv_lease *lease, const struct dv_memory_message *m);
void dv_memory_daemon_gone(struct dv_lease *lease);

#endif
