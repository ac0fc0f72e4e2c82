/* The lease client: asks divvyd for a device, and gives it back in time. Any front end can embed it, and programs that
 * share a device of their own link libdivvy-lease. docs/lease.md is a tutorial.
 *
 * Threads. A lease has a thread of its own, which blocks all signals, reads divvyd's messages and runs the callbacks.
 * Callbacks must not block, and must not call dv_lease_wait, dv_lease_join, dv_lease_destroy or the functions of
 * memory.h. All other functions can be called from any thread, callbacks included, at the same time; dv_lease_wait from
 * one thread at a time for each device.
 *
 * Ownership. A lease belongs to its caller until dv_lease_destroy, which no other call may overlap. Structures and
 * texts that are passed in are copied. Descriptors are close-on-exec. The library changes no signal handler,
 * environment or locale, prints nothing, and never ends the process. It calls malloc.
 *
 * fork(2). A child must not use a lease of its parent: it lacks the thread, and its messages would count as the
 * parent's. It can make one of its own. dv_lease_destroy does nothing there.
 *
 * dlclose(3) leaves the library in memory; destroy leases all the same.
 *
 * Trust. The kernel tells divvyd who the process is. divvyd believes no number that the process sends, and charges the
 * time from a grant to its release by its own clock. But it cannot keep a process from using a device that another
 * holds: the owner of the device has to do that, with the device's own fence. That is a check on the side of the device
 * which turns away a program that was not granted it, or no longer is: a lock that it takes for each use, or the number
 * of the grant (dv_lease_serial), which rises with each grant, so that the device can refuse work with a lower number
 * than it has seen. divvyd takes a device away from a session that does not give it back within its deadline, and ends
 * the session; the process goes on. */
#ifndef DIVVY_LEASE_H
#define DIVVY_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dv_lease;

/* Each can be NULL. */
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
    /* An operator traces the session until then, by CLOCK_MONOTONIC; 0: no longer. NULL: not used. */
    void (*traced)(void *user, uint64_t until_ns);
    /* Of dv_lease_connect: the session is over, and memory that was reserved or placed counts as returned. Reserve it
     * again, or free it. A device that was held has been recalled. Restarts of divvyd are not reported. */
    void (*lost)(void *user);
    void *user;
};

/* ---- a lease-only device ---- */

/* The device of a lease of dv_lease_connect. */
#define DV_LEASE_DEVICE 0u

enum dv_lease_without_divvyd {
    /* The device is not used while there is no divvyd: the safe choice, because other programs may use it, too. */
    DV_LEASE_STOPS = 0,
    /* Without a divvyd for 3 s, the device counts as granted until there is one again. For a device that has a fence of
     * its own, or only this program. */
    DV_LEASE_GOES_ON = 1,
};

struct dv_lease_options {
    const char *device;    /* its name in divvy.yaml (lease-only: yes) */
    const char *directory; /* of divvyd; NULL: $DIVVY_DIR, or the system's, or the user's own */
    enum dv_lease_without_divvyd without_divvyd;
    char *reason; /* where to write why there is no lease; NULL: nowhere */
    size_t reason_bytes;
};

/* Begins a session with divvyd, without a worker: this process uses the device itself. The share is what the
 * configuration gives the user's tenant, or what `divvy run` was told (--request, --limit, --weight, --class,
 * --deadline). Waits up to a minute for divvyd's answer. Returns NULL with errno:
 *   EINVAL                an option makes no sense
 *   ENOENT, ECONNREFUSED  there is no divvyd
 *   EPERM                 a daemon that neither root nor this user owns answers
 *   EACCES                divvyd refuses: there is no such device, its users are others, the request cannot be kept
 *   EPROTO                divvyd is of another release
 *   ENOMEM                out of memory, descriptors or threads
 * A restart of divvyd goes unnoticed. If the session is lost nevertheless (divvyd was stopped, or has ended the session
 * because it kept the device beyond its deadline), the library recalls the device, begins another session, and asks for
 * the device again if there is work. */
struct dv_lease *dv_lease_connect(const struct dv_lease_options *options, const struct dv_lease_callbacks *callbacks);

/* Asks for the device and waits until work may be submitted. All submitted work is complete: if the device has been
 * recalled or its slice is over, it is given back first. timeout_ns UINT64_MAX: without a limit. Returns 0 or
 * -ETIMEDOUT; then the wish stays until dv_lease_drained. */
int dv_lease_wait(struct dv_lease *lease, uint32_t device, uint64_t timeout_ns);

/* ---- a socket that the caller has ---- */

/* Takes over a connected socket to divvyd, also when it fails. Without a daemon (socket -1, or later when it is lost)
 * sessions are not coordinated, and all devices can be used.
 * Returns NULL when out of memory or threads. */
struct dv_lease *dv_lease_create(int socket, uint32_t device_count, const struct dv_lease_callbacks *callbacks);

/* ---- both ---- */

/* Ends the session. Work on the device is complete. */
void dv_lease_destroy(struct dv_lease *lease);

/* The program begins to use a device, where the tenant's request is to be kept. The first call waits for
 * divvyd's answer. Returns 0, or -EBUSY if the request cannot be kept. A session that wants the device
 * without joining gets it all the same, if need be without the request. A lease of dv_lease_connect has joined. */
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
/* How long a piece of work should be that cannot be interrupted, if the program can choose: others wait for its end. 1:
 * as short as can be. 0: it does not matter. Of the last grant. */
uint64_t dv_lease_part_ns(const struct dv_lease *lease, uint32_t device);
/* How much of the time it may cost to divide work into such pieces, in parts per million. 0: it does not matter. */
uint32_t dv_lease_part_cost_ppm(const struct dv_lease *lease, uint32_t device);
/* The number of the grant, to tell it from the next. It rises with each grant of the device, to any session, as long as
 * divvyd and its restarts go on; when divvyd was stopped, numbers begin anew. */
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

#ifdef __cplusplus
}
#endif

#endif
