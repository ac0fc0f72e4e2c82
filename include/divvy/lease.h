/* The lease client: asks divvyd for a device, and gives it back in time. Any front end can embed it.
 * The functions can be called from any thread. The callbacks run on the library's own thread and must
 * not block. */
#ifndef DIVVY_LEASE_H
#define DIVVY_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct dv_lease;

struct dv_lease_callbacks {
    /* The device may be used from now on. */
    void (*granted)(void *user, uint32_t device);
    /* Stop submitting; call dv_lease_drained when all submitted work is complete. */
    void (*recalled)(void *user, uint32_t device);
    /* Now and then while the device is held and no other session waits for it: call dv_lease_drained
     * if all submitted work is complete. */
    void (*look)(void *user);
    /* Device memory (memory.h); NULL: not used. */
    /* Gives up reserved bytes that are not used, and returns how many. */
    uint64_t (*call_back)(void *user, uint32_t device);
    /* The answer to the question `id` of dv_memory_place: there is room for `bytes`, or (placed false)
     * only the caller itself can make room. It can come after a newer question was asked: then the room
     * is granted all the same, and the newer question gets an answer of its own. */
    void (*placed)(void *user, uint32_t device, uint64_t id, uint64_t bytes, bool placed);
    /* Others need `bytes` more room: call dv_memory_unplace when it is free, or dv_memory_keeps. */
    void (*evict)(void *user, uint32_t device, uint64_t id, uint64_t bytes);
    void *user;
};

/* Takes over a connected socket to divvyd. Without a daemon (socket -1, or later when it is lost)
 * sessions are not coordinated, and all devices can be used.
 * Returns NULL when out of memory or threads. */
struct dv_lease *dv_lease_create(int socket, uint32_t device_count, const struct dv_lease_callbacks *callbacks);
void dv_lease_destroy(struct dv_lease *lease);

/* The program begins to use a device, where the tenant's request is to be kept. The first call waits for
 * divvyd's answer. Returns 0, or -EBUSY if the request cannot be kept. A session that wants the device
 * without joining gets it all the same, if need be without the request. */
int dv_lease_join(struct dv_lease *lease, uint32_t device);

/* Whether work may be submitted now: granted, not recalled, slice not over. */
bool dv_lease_open(const struct dv_lease *lease, uint32_t device);
/* Whether the device is held, draining included. */
bool dv_lease_held(const struct dv_lease *lease, uint32_t device);
/* Whether the device was granted while others waited, or has been recalled since. Then it should be
 * given back as soon as it is drained, and the front end should notice that at once. */
bool dv_lease_contended(const struct dv_lease *lease, uint32_t device);
/* Whether no other tenant had a session on the device when it was granted. */
bool dv_lease_alone(const struct dv_lease *lease, uint32_t device);
/* The number of the grant, to tell it from the next. */
uint64_t dv_lease_serial(const struct dv_lease *lease, uint32_t device);
/* When the slice ends, by CLOCK_MONOTONIC; 0 when nothing may be submitted. */
uint64_t dv_lease_end_ns(const struct dv_lease *lease, uint32_t device);
/* There is work: asks for the device unless asked already. Returns whether this call asked. */
bool dv_lease_want(struct dv_lease *lease, uint32_t device);
/* All submitted work is complete. more: further work waits. Gives the device back if it was recalled
 * or its slice is over; and if there is no more work, after the linger time that divvyd allows. */
void dv_lease_drained(struct dv_lease *lease, uint32_t device, bool more);
/* Whether dv_lease_drained without more work would give the device back at once, without lingering:
 * others wait for the device, and the program mostly pauses after its work. */
bool dv_lease_pauses(struct dv_lease *lease, uint32_t device);
/* All submitted work is complete, and the next piece of work is longer than the rest of the slice:
 * gives the device back and asks for it again. */
void dv_lease_yield(struct dv_lease *lease, uint32_t device);
/* The burst monitor: commands that kept the device busy, and for how long. First launches of kernels,
 * which had to be compiled, are charged and shown but kept out of the estimates. */
struct dv_lease_work {
    uint64_t took_ns;    /* all of them */
    uint64_t compile_ns; /* of that, first launches */
    uint64_t longest_ns; /* of the others */
};
void dv_lease_ran(struct dv_lease *lease, uint32_t device, const struct dv_lease_work *work);

#endif
