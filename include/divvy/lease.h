/* The lease client: asks divvyd for the right to keep a device busy, and gives it back in time.
 * Any front end can embed it. The functions may be called from any thread; the callbacks come on
 * the library's own thread, which must not be held up. */
#ifndef DIVVY_LEASE_H
#define DIVVY_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct dv_lease;

struct dv_lease_callbacks {
    /* The device may be used from now on. */
    void (*granted)(void *user, uint32_t device);
    /* Stop submitting; call dv_lease_drained when what was submitted is complete. */
    void (*recalled)(void *user, uint32_t device);
    /* Now and then while a lease is held and nobody else waits for it: is what was submitted
     * complete by now? Then dv_lease_drained is due. */
    void (*look)(void *user);
    /* Device memory (memory.h); NULL: not used. */
    /* Takes what is reserved and not used out of reserve, and says how much that is. */
    uint64_t (*call_back)(void *user, uint32_t device);
    /* The answer to the question `id` of dv_memory_place: there is room for so many bytes, or (placed
     * false) nobody but the caller itself can make room. It may come after a newer question was asked:
     * then the room is granted all the same, and the newer question will have an answer of its own. */
    void (*placed)(void *user, uint32_t device, uint64_t id, uint64_t bytes, bool placed);
    /* Others need that much more room: dv_memory_unplace when it is free, or dv_memory_keeps. */
    void (*evict)(void *user, uint32_t device, uint64_t id, uint64_t bytes);
    void *user;
};

/* Takes over a connected socket to divvyd. Without a daemon (socket -1, or later when it is lost)
 * nobody decides who runs, and all devices may be used.
 * Returns NULL when out of memory or threads. */
struct dv_lease *dv_lease_create(int socket, uint32_t device_count,
                                 const struct dv_lease_callbacks *callbacks);
void dv_lease_destroy(struct dv_lease *lease);

/* The program comes to use a device: what the tenant requests is to be kept there. Waits for divvyd's
 * answer, the first time. Returns 0, or -EBUSY: it cannot be kept. Whoever does not ask and just wants
 * the device gets it all the same, if need be without the request. */
int dv_lease_join(struct dv_lease *lease, uint32_t device);

/* Whether work may be submitted now: granted, not recalled, slice not over. */
bool dv_lease_open(const struct dv_lease *lease, uint32_t device);
/* Whether it is held in any way, draining included. */
bool dv_lease_held(const struct dv_lease *lease, uint32_t device);
/* Whether it was granted while others waited, or has been recalled since: then the device should be
 * given back as soon as it is drained, and who embeds this should notice that at once. */
bool dv_lease_contended(const struct dv_lease *lease, uint32_t device);
/* Whether no other tenant had a session on the device when it was granted. */
bool dv_lease_alone(const struct dv_lease *lease, uint32_t device);
/* Which grant it is, to tell one from the next. */
uint64_t dv_lease_serial(const struct dv_lease *lease, uint32_t device);
/* When the slice ends, by CLOCK_MONOTONIC; 0 when nothing may be submitted. */
uint64_t dv_lease_end_ns(const struct dv_lease *lease, uint32_t device);
/* There is work: asks unless asked already. Returns whether it has asked just now. */
bool dv_lease_want(struct dv_lease *lease, uint32_t device);
/* Nothing submitted is unfinished. more: there is work that waits. Gives the lease back if it was
 * recalled or its slice is over; and if there is no more work, after the moment that divvyd allows
 * for it. */
void dv_lease_drained(struct dv_lease *lease, uint32_t device, bool more);
/* Whether dv_lease_drained would give the lease back at once although there is no more work: others
 * wait for the device, and the program mostly pauses after what it runs. */
bool dv_lease_pauses(struct dv_lease *lease, uint32_t device);
/* Nothing submitted is unfinished, and the next piece of work is longer than what is left of the
 * slice: gives the lease back and asks for another. */
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
