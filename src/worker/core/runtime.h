/* Services of the session's main thread for the part that executes an API. */
#ifndef DV_WORKER_CORE_RUNTIME_H
#define DV_WORKER_CORE_RUNTIME_H

#include <pthread.h>

#include "include/divvy/lease.h"
#include "src/wire/lease/lease.h"
#include "src/wire/session/ring.h"
#include "src/worker/core/graph.h"
#include "src/worker/core/guard.h"
#include "src/worker/core/session.h"
#include "src/worker/core/store.h"
#include "src/worker/core/trace.h"

struct dvk_runtime_api;

/* A device's account (memory_credit.c). */
struct dvk_account {
    uint64_t used;     /* by objects that exist */
    uint64_t promised; /* claimed for objects that are about to be created */
    uint64_t credit;   /* for the client to take without asking */
    uint64_t credit_most;
};

/* Set by the lease's thread. */
struct dvk_parking {
    _Atomic bool wanted;
    _Atomic int store_fd; /* to be opened; -1: none */
    _Atomic uint64_t store_bytes;
};

struct dvk_runtime {
    const struct dvk_worker_start *start;
    uint8_t *shm;
    uint64_t shm_bytes;
    struct dvk_guard guard; /* of the arena, for the vendor's memory objects */
    struct dv_shm_header *header;
    struct dv_ring_reader ring;
    struct dvk_graph graph;
    pthread_mutex_t upcall_lock; /* upcalls come from the vendor's threads too */
    uint64_t upcall_tail;
    struct dv_upcall *overflow; /* posted while the ring was full */
    size_t overflow_count, overflow_capacity;
    struct dv_lease *lease; /* NULL: no device of the session is leased */
    struct dvk_gate gates[DV_MAX_DEVICES];
    struct dvk_account accounts[DV_MAX_DEVICES];
    pthread_mutex_t accounts_lock; /* objects end on threads of the vendor's */
    /* Held by the thread that submits: the main thread unless it sleeps, and then, right after a
     * grant, the lease's thread. */
    pthread_mutex_t submitting;
    bool lease_thread_submits;
    unsigned lease_thread_left;       /* commands that it may still submit */
    bool shares_a_device;             /* holds one that other tenants use as well */
    bool fence_due;                   /* a lease is over: the last of its commands must be reported */
    _Atomic bool gates_changed;       /* a lease was granted or recalled; set by the lease's thread */
    _Atomic uint64_t traced_until_ns; /* 0: it is not traced; set by the lease's thread */
    struct dvk_trace trace;
    struct dvk_parking parking;
    struct dvk_store store; /* for the worker that follows; not open until the session is parked for the first time */
    const struct dvk_runtime_api *ops; /* the executing part */
    void *api;                         /* its own state */
};

/* The part that executes an API. */
struct dvk_runtime_api {
    /* Loads the vendor's libraries without initialising them (the zygote's only preparation), so that forked workers
     * share their pages and start fast. Returns 0 or a negative errno. */
    int (*preload)(void);
    /* Fills reports about the vendor's devices; initialises the vendor, so it runs in a forked child only. Returns
     * their number or a negative errno, with a reason in words; *found is how many there are, whether there was room
     * for them or not. */
    int (*probe)(struct dv_device_report *reports, int capacity, uint32_t *found, char *text, size_t text_bytes);
    const struct dvk_graph_backend *backend;
    /* Initialises the vendor. Returns 0 or a negative errno with a reason in words. */
    int (*init)(struct dvk_runtime *runtime, char *text, size_t text_bytes);
    /* Executes one record: a private copy of record->bytes, freed by the callee's owner. */
    void (*handle)(struct dvk_runtime *runtime, const struct dv_record *record);
    /* Submitted commands must go to the vendor now: the main thread is about to sleep, or the lease's
     * thread has submitted in its place. */
    void (*before_sleep)(struct dvk_runtime *runtime);
    /* Does a piece of the work beside the commands. Returns whether there is more at once. */
    bool (*work)(struct dvk_runtime *runtime);
    /* On the lease's thread: answers to dv_memory_place, and requests to evict for others. */
    void (*placed)(struct dvk_runtime *runtime, uint32_t device, uint64_t id, uint64_t bytes, bool placed);
    void (*evict)(struct dvk_runtime *runtime, uint32_t device, uint64_t id, uint64_t bytes);
    /* Leaves all that a worker needs that is to follow this one in runtime->store. No command runs. */
    enum dv_park_reason (*park)(struct dvk_runtime *runtime);
    /* Takes in what another worker has left there. Returns 0 or a negative errno with a reason in words. */
    int (*follow)(struct dvk_runtime *runtime, char *text, size_t text_bytes);
};

/* Leases (gate.c): whether the gate of a leased device lets a command through, and what happens
 * when the device is drained. For backends. */
int dvk_gates_start(struct dvk_runtime *runtime);
/* quick: to hand it to the vendor takes microseconds, without compiling. */
bool dvk_gate_admit(struct dvk_runtime *runtime, struct dvk_gate *gate, uint64_t cost_ns, bool quick);
/* Memory for the command at the gate is being brought in, or is there: meanwhile the slice does not run. */
void dvk_gate_bring(struct dvk_runtime *runtime, uint32_t device, bool brings);
/* The first command at the gate waits for something that takes long: the device is given back meanwhile. */
void dvk_gate_hold_up(struct dvk_gate *gate, bool held_up);
/* The command that dvk_gate_admit let through goes to the vendor. */
void dvk_gate_passed(struct dvk_runtime *runtime, struct dvk_gate *gate);
void dvk_gate_closed(struct dvk_runtime *runtime, struct dvk_gate *gate);
void dvk_gate_drained(struct dvk_runtime *runtime, struct dvk_gate *gate);
/* The main thread is about to sleep: where the program will pause, the thread that reports the last
 * command gives the device back. */
void dvk_gates_before_sleep(struct dvk_runtime *runtime);
/* When dvk_gates_serve is due although nothing happens; 0: never. */
uint64_t dvk_gates_due_ns(const struct dvk_runtime *runtime);
/* The main thread has slept: its last readings of the clock are old. */
void dvk_gates_slept(struct dvk_runtime *runtime);
void dvk_gates_wake_soon_if_shared(struct dvk_runtime *runtime);
/* From any thread. */
void dvk_gates_wake_main(struct dvk_runtime *runtime);
/* Acts on grants and recalls; by the thread that submits. */
void dvk_gates_serve(struct dvk_runtime *runtime);

/* Device memory (memory_credit.c). Any thread, unless said otherwise. */
void dvk_accounts_start(struct dvk_runtime *runtime);
/* Claims bytes to be allocated on the device. Asks divvyd if need be; main thread. Returns 0 or
 * -ENOMEM. Claimed bytes must be used or unclaimed. */
int dvk_account_claim(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes);
/* An object of that size is created, from claimed bytes or from the client's credit. */
bool dvk_account_use(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes, bool claimed);
/* The object is gone. */
void dvk_account_drop(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes);
/* Reserves what an earlier worker had promised: credit that the client has taken for objects that are still to come,
 * and bytes that it has claimed. Returns 0 or -ENOMEM. */
int dvk_account_inherit(struct dvk_runtime *runtime, uint32_t device, uint64_t credit, uint64_t promised);
/* Takes back all credit that the client has not taken. Returns how much that was. */
uint64_t dvk_account_call_back(struct dvk_runtime *runtime, uint32_t device);

/* Posts an upcall to the client's helper, waking it when asked and asleep. Any thread. */
void dvk_runtime_upcall(struct dvk_runtime *runtime, const struct dv_upcall *upcall, bool wake);
void dvk_runtime_wake_client(struct dvk_runtime *runtime);

/* Moves upcalls that wait because the ring was full. Returns whether any still waits. */
bool dvk_runtime_upcalls_wait(struct dvk_runtime *runtime);

/* A checked pointer into the shared memory behind the fixed parts, or NULL: for the worker's own reads
 * and writes. */
void *dvk_runtime_arena(struct dvk_runtime *runtime, uint64_t offset, uint64_t bytes);
/* The same for accesses of kernels, until dvk_runtime_take_back; or NULL. */
void *dvk_runtime_lend(struct dvk_runtime *runtime, uint64_t offset, uint64_t bytes);
void dvk_runtime_take_back(struct dvk_runtime *runtime, uint64_t offset, uint64_t bytes);

/* Ends the worker because its client broke the protocol. */
_Noreturn void dvk_runtime_abandon(struct dvk_runtime *runtime, const char *reason);

/* Makes a call of the vendor's that can take seconds, on a thread of its own: the main thread, which
 * waits for it here, goes on with commands, and gives back devices that others wait for. */
void dvk_runtime_take_long(struct dvk_runtime *runtime, void (*call)(void *argument), void *argument);

/* Makes a call on a thread of its own, which nobody waits for. Returns 0 or a negative errno. */
int dvk_runtime_call_beside(void (*call)(void *argument), void *argument);

/* Output of kernels. */
int dvk_output_start(struct dvk_runtime *runtime);
/* Moves all that was printed so far to the client's output ring. Any thread. */
void dvk_output_drain(struct dvk_runtime *runtime);
/* Whether all that was printed is in the client's output ring. */
bool dvk_output_is_posted(struct dvk_runtime *runtime);

/* Parking (parking.c). By the main thread. */
/* From now on its client learns when this thread dies. */
void dvk_life_tie(struct dvk_runtime *runtime);
void dvk_parking_start(struct dvk_runtime *runtime);
/* Whether this worker, which has taken in all that another one left, may serve the session. Otherwise it ends, and the
 * session stays parked. */
bool dvk_parking_may_follow(struct dvk_runtime *runtime);
bool dvk_parking_is_due(const struct dvk_runtime *runtime);
/* Parks the session, if it is to be parked and nothing runs. Does not return then. is_settled: the client has, or can
 * take, all that it was told. */
void dvk_parking_consider(struct dvk_runtime *runtime, bool is_settled);

#endif
