/* The memory of devices: how much of it every tenant has reserved, and how much of that is resident. A
 * reservation is bounded by the tenant's quota, over all its processes; resident memory by the device's
 * capacity. Sums are kept by session, so the part of a session ends with it. */
#ifndef DVD_LEDGER_MEMORY_H
#define DVD_LEDGER_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/timers.h"

struct dvd_lease;

/* Memory that a session had on the device when it last held it, and will need again. */
struct dvd_working_set {
    bool known; /* it has held the device */
    uint64_t placed, reserved;
};

/* A session's part on one device. */
struct dvd_lease_memory {
    /* reservations */
    uint64_t reserved;
    uint64_t asked; /* bytes that it waits for; 0: none */
    uint64_t asked_id;
    uint64_t asked_in;                               /* the round whose end decides on that */
    uint64_t called_in;                              /* the last round in which it was asked to return unused bytes */
    bool owes_answer;                                /* to that */
    struct dvd_lease *prev_asker, *next_asker;       /* that wait for an answer, oldest first */
    struct dvd_lease *prev_reserver, *next_reserver; /* that have something reserved */
    struct dvd_lease *prev, *next;                   /* of the same tenant on the same device */
    /* room on the device */
    uint64_t placed;
    uint64_t brought;               /* room that it got since it was granted the device */
    uint64_t evicting;              /* the part of `placed` it was asked to evict */
    uint64_t evict_id;              /* of the newest such request whose answer counts */
    uint64_t copied;                /* bytes of `placed` that it has copied out already */
    bool keeps;                     /* it said that it has nothing more to evict */
    bool is_silent;                 /* it does not answer in time */
    dv_ns owes_since;               /* when it was first asked for what it has not evicted; 0: it owes nothing */
    dv_ns kept_since;               /* when it last began to keep memory, or stopped answering; 0: neither */
    unsigned late;                  /* how often in a row it did not answer in time */
    uint64_t away;                  /* evicted for others since it last ran, and not brought back */
    uint64_t place_asked;           /* room that it waits for; 0: none */
    uint64_t place_id;              /* of that request */
    bool may_queue;                 /* it waits even if no session can be asked to evict now */
    bool is_queued;                 /* no session can be asked to evict for it now */
    uint64_t ahead_bytes, ahead_id; /* its request ahead of its grant, if the device's `ahead` is this lease */
    dv_ns in_time_until; /* when it was asked to evict, plus the time that its progress since may have taken */
    bool brings;         /* it brings memory in */
    dv_ns brings_since;
    dv_ns waits_since, waited_ns; /* of that, for others to make room */
    dv_ns moved_ns;               /* spent on bringing memory in, so far */
    bool is_listed;               /* among the device's sessions with memory */
    struct dvd_lease *prev_there, *next_there;
};

/* A tenant's part on one device. */
struct dvd_tenant_memory {
    uint64_t quota;
    uint64_t request;  /* resident bytes that others cannot take; at most the quota */
    uint64_t reserved; /* the sum of its sessions' */
    uint64_t placed, evicting;
    struct dvd_lease *members;
    struct dvd_lease *askers;    /* wait for an answer, oldest first */
    struct dvd_lease *reservers; /* have something reserved; the one that was called last comes last */
    uint64_t round;              /* number of the last round of calling back */
    bool is_calling;             /* that round goes on */
    unsigned owing;              /* sessions that have not answered it */
    dv_ns patience_ends;         /* when divvyd stops waiting for them */
    dv_ns next_round;            /* not before */
    struct dv_timer timer;       /* for the next step of a round, or the next round */
    bool hoards;                 /* memory that it kept from others had to be taken from it */
};

/* A device. */
struct dvd_device_memory {
    uint64_t placed, reserved;  /* the sums of all sessions' */
    unsigned askers;            /* sessions that wait for room */
    unsigned queued;            /* of those, sessions for which no other can be asked to evict */
    struct dvd_lease *sessions; /* with memory there, or that wait for room */
    struct dvd_lease *ahead;    /* idle sessions evict for it ahead of its grant; NULL: none */
    struct dv_timer patience;   /* with sessions that are asked to evict */
};

#endif
