/* The memory ledger: how much of each device's memory every tenant has reserved, and how much of it is
 * resident. A reservation is bounded by the tenant's quota, over all its processes; what is resident
 * by the device's capacity. Numbers are kept by session, so whoever goes takes its part with it. */
#ifndef DVD_LEDGER_MEMORY_H
#define DVD_LEDGER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "src/arbiter/config/config.h"
#include "src/wire/lease/memory.h"

struct dv_arbiter;
struct dv_session;
struct dv_session_lease;
struct dv_tenant_device;

/* A session's part on one device. */
struct dv_session_memory {
    uint64_t reserved;
    uint64_t asked;    /* bytes it waits for; 0: none */
    uint64_t asked_id;
    uint64_t asked_in;   /* the round whose end decides on that */
    uint64_t called_in;  /* the last round in which it was asked to give back what it does not use */
    bool owes_answer;    /* to that */
    struct dv_session_lease *prev_asker, *next_asker;       /* who wait for an answer, oldest first */
    struct dv_session_lease *prev_reserver, *next_reserver; /* who have something reserved */
    uint64_t placed;   /* room on the device that it has */
    uint64_t brought;  /* room that it has asked for since it was granted the device, and got */
    uint64_t evicting; /* of that, what it was asked to give up */
    uint64_t evict_id; /* of the newest such question whose answer counts */
    uint64_t copied;   /* bytes that it has copied out of what is still there */
    bool keeps;        /* it said that it has nothing more to give up */
    bool silent;       /* it does not answer in time */
    dv_ns owes_since;  /* when it was first asked for what it has not given up since; 0: nothing */
    dv_ns kept_since;  /* when it first did one of both since it last gave all it was asked for; 0: not */
    unsigned late;     /* how often it did not answer in time, since it last did */
    uint64_t away;     /* what it gave up for others since it last ran, and has not got back */
    bool brings;       /* it brings memory in */
    uint64_t place_asked; /* room that it waits for; 0: none */
    uint64_t place_id;    /* of that question */
    bool in_line;         /* nobody can be asked for it now */
    bool place_in_line;   /* it waits even if none of those who have the room can be asked now */
    uint64_t ahead_bytes, ahead_id; /* of its question ahead of its turn, if the device's `ahead` is it */
    uint64_t in_time_until; /* it began to be asked then, and has given up since what takes so long */
    uint64_t brings_since;
    uint64_t waits_since, waited_ns; /* of that, for room that others had to make */
    uint64_t moved_ns;    /* so long it has spent on bringing memory in */
    bool listed;          /* among those with memory on the device */
    struct dv_session_lease *prev_there, *next_there; /* those */
    struct dv_session_lease *prev, *next; /* of the same tenant on the same device */
};

/* A tenant's part on one device. */
struct dv_tenant_memory {
    uint64_t quota;
    uint64_t request;  /* what others do not take of what it has on the device; at most the quota */
    uint64_t reserved; /* the sum of its sessions' */
    uint64_t placed, evicting;
    struct dv_session_lease *members;
    struct dv_session_lease *askers;    /* wait for an answer, oldest first */
    struct dv_session_lease *reservers; /* have something reserved; who was called last comes last */
    uint64_t round;     /* of calling back: the number of the last one */
    bool calling;       /* it goes on */
    unsigned owing;     /* sessions that have not answered it */
    dv_ns patience_ends; /* then they are not waited for any longer */
    dv_ns next_round;   /* not before */
    sd_event_source *timer; /* for the next step of a round, or the next round */
    bool hoards; /* a session of it had to be taken what it kept from others */
};

/* A device. */
struct dv_device_memory {
    uint64_t placed; /* the sum of all sessions' */
    uint64_t reserved; /* the same */
    unsigned askers;  /* sessions that wait for room */
    unsigned in_line; /* of those, whom nobody could be asked for */
    struct dv_session_lease *sessions; /* with memory there, or that wait for room */
    struct dv_session_lease *ahead;    /* idle sessions evict for it ahead of its turn; NULL: for nobody */
    sd_event_source *patience; /* for those who are asked to evict */
};

/* So long those who have room may keep it from a session in line; then that is refused. */
#define DV_ROOM_PATIENCE_NS (30 * DV_NS_PER_S)

/* What the configuration says of a device: its capacity, what each context costs. */
uint64_t dv_memory_capacity(const struct dv_arbiter *arbiter, uint32_t device);
uint64_t dv_memory_per_context(const struct dv_arbiter *arbiter, uint32_t device);
uint64_t dv_memory_size_on(const struct dv_arbiter *arbiter, uint32_t device,
                           const struct dv_memory_size *size);

/* What a tenant's memory-request means on a device; 0: nothing. */
uint64_t dv_memory_request_on(const struct dv_arbiter *arbiter, uint32_t device,
                              const struct dv_memory_size *request);

/* After a restart: what the state file says of a session that has joined, until it says so itself; and
 * its own word, which only counts as far as that goes. */
struct dv_sync_message;
void dv_memory_readopt(struct dv_session_lease *lease);
void dv_memory_adopt(struct dv_session_lease *lease, const struct dv_sync_message *m);

void dv_memory_join(struct dv_session_lease *lease);
void dv_memory_part(struct dv_session_lease *lease);
/* It does not hold the device any more: nobody makes room for it, until it asks again. */
void dv_memory_given_back(struct dv_session_lease *lease);
void dv_memory_leave(struct dv_tenant_device *tenant);
void dv_memory_fini(struct dv_device_memory *device);
void dv_memory_take(struct dv_session_lease *lease, const struct dv_memory_message *m);
void dv_memory_set_quota(struct dv_tenant_device *tenant, uint64_t quota);
void dv_memory_set_request(struct dv_tenant_device *tenant, uint64_t request);

/* Compares the ledger with itself and with what the workers say of themselves. Returns the number of
 * differences; the first few are put into words, a line each. */
unsigned dv_memory_check(struct dv_arbiter *arbiter, char *text, size_t bytes);

#endif
