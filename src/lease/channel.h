/* The inside of the lease client, shared by its parts. */
#ifndef DV_LEASE_CHANNEL_H
#define DV_LEASE_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "include/divvy/lease.h"
#include "src/policy/burst.h"
#include "src/policy/pauses.h"
#include "src/wire/lease/message.h"

enum state { IDLE, WAITING, GRANTED, RECALLED };

struct device {
    _Atomic int state;
    _Atomic uint64_t slice_end_ns;
    _Atomic uint64_t serial;
    _Atomic bool contended, alone;
    bool wanted;              /* there is work */
    bool joined;              /* divvyd has allowed its use */
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
    int socket;
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

/* With the lock held: asks for the device that is about to be used, again after a restart. */
void dv_lease_send_join(struct dv_lease *lease);

/* On the lease's thread: a message about memory has come, a new daemon asks, or the daemon is gone. */
void dv_sync_handle(struct dv_lease *lease, const struct dv_sync_message *m);
void dv_memory_handle(struct dv_lease *lease, const struct dv_memory_message *m);
void dv_memory_daemon_gone(struct dv_lease *lease);

#endif
