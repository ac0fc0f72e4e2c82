/* The lease client: asks divvyd for the right to keep a device busy, and gives it back in time.
 * Any front end can embed it. The functions may be called from any thread; the callbacks come on
 * the library's own thread, which never enters a vendor's driver and must not be held up. */
#ifndef DIVVY_LEASE_H
#define DIVVY_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct dv_lease;

struct dv_lease_callbacks {
    /* The device may be used from now on. */
    void (*granted)(void *user, uint32_t device);
    /* Stop submitting; call dv_lease_release when what was submitted is complete. */
    void (*recalled)(void *user, uint32_t device);
    void *user;
};

/* Takes over a connected socket to divvyd. Without a daemon (socket -1, or later when it is lost)
 * a lease that is held stays held, and a wish waits until dv_lease_attach gives a new socket.
 * Returns NULL when out of memory or threads. */
struct dv_lease *dv_lease_create(int socket, uint32_t device_count,
                                 const struct dv_lease_callbacks *callbacks);
void dv_lease_destroy(struct dv_lease *lease);

/* Whether work may be submitted now: granted, not recalled, slice not over. */
bool dv_lease_open(const struct dv_lease *lease, uint32_t device);
/* Whether it is held in any way, draining included. */
bool dv_lease_held(const struct dv_lease *lease, uint32_t device);
/* There is work: asks unless asked already. */
void dv_lease_want(struct dv_lease *lease, uint32_t device);
/* Nothing submitted is unfinished. more: there is work that waits. Gives the lease back if it was
 * recalled or its slice is over; or if there is no more work, at once when others wait and after a
 * moment when nobody does. */
void dv_lease_drained(struct dv_lease *lease, uint32_t device, bool more);
/* Nanoseconds of the slice that are left; UINT64_MAX when nobody else wants the device. */
uint64_t dv_lease_left_ns(const struct dv_lease *lease, uint32_t device);

/* ---- the burst monitor ---- */

/* A command began to run on a device that was idle, and the device became idle again. */
void dv_lease_burst(struct dv_lease *lease, uint32_t device, uint64_t begin_ns, uint64_t end_ns);
/* A kernel took this long. compiling: its first run, kept out of the estimates. */
void dv_lease_kernel(struct dv_lease *lease, uint32_t device, uint64_t took_ns, bool compiling);

#endif
