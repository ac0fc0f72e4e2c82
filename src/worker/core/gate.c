/* Leases in the worker: ready commands wait at a device's gate until divvyd has granted the session
 * the device, and no more is submitted ahead than can be waited for when the lease is recalled. */
#include "src/base/priority.h"
#include "src/worker/core/runtime.h"

/* How much work is handed to the vendor ahead of the device. When half of it is done, more follows:
 * enough to keep the device busy, little enough to keep a recall short. */
#define AHEAD_NS (1 * DV_NS_PER_MS)
/* While no other tenant has a session on the device, no session waits for a recall. Longer runs of
 * commands disturb the driver less. */
#define AHEAD_ALONE_NS (20 * DV_NS_PER_MS)
/* The lease's thread submits at most this number of commands right after a grant. They keep the device
 * busy until the main thread has woken, which submits the rest. The lease's thread has to listen to
 * divvyd, and a tenant must not use its low nice value for long. */
#define LEASE_THREAD_MOST 4

void dvk_gates_wake_main(struct dvk_runtime *runtime)
{
    atomic_store(&runtime->gates_changed, true);
    /* The tenant can write to this word, so its value is not trusted: a worker that sleeps on while it
     * holds a device would delay others. */
    atomic_store(&runtime->header->worker_asleep, 0);
    dv_futex_wake(&runtime->header->worker_asleep, 1);
}

/* On the lease's thread. A session that waited for the device mostly sleeps, and the device would be idle
 * while its main thread wakes. */
static void granted(void *user, uint32_t device)
{
    struct dvk_runtime *runtime = user;

    (void)device;
    if (pthread_mutex_trylock(&runtime->submitting) == 0) {
        runtime->lease_thread_submits = true;
        runtime->lease_thread_left = LEASE_THREAD_MOST;
        dvk_gates_slept(runtime);
        dvk_gates_serve(runtime);
        runtime->ops->before_sleep(runtime);
        runtime->lease_thread_submits = false;
        pthread_mutex_unlock(&runtime->submitting);
    }
    dvk_gates_wake_main(runtime);
}

/* On the lease's thread. */
static void changed(void *user, uint32_t device)
{
    (void)device;
    dvk_gates_wake_main(user);
}

/* On the lease's thread. */
static void look(void *user)
{
    struct dvk_runtime *runtime = user;

    if (atomic_load(&runtime->graph.done))
        dvk_gates_wake_main(runtime);
}

/* On the lease's thread. */
static void placed(void *user, uint32_t device, uint64_t id, uint64_t bytes, bool placed)
{
    struct dvk_runtime *runtime = user;

    runtime->ops->placed(runtime, device, id, bytes, placed);
    dvk_gates_wake_main(runtime);
}

/* On the lease's thread. */
static void evict(void *user, uint32_t device, uint64_t id, uint64_t bytes)
{
    struct dvk_runtime *runtime = user;

    runtime->ops->evict(runtime, device, id, bytes);
    dvk_gates_wake_main(runtime);
}

/* On the lease's thread. */
static uint64_t call_back(void *user, uint32_t device)
{
    return dvk_account_call_back(user, device);
}

/* On the lease's thread. */
static void traced(void *user, uint64_t until_ns)
{
    struct dvk_runtime *runtime = user;

    atomic_store(&runtime->traced_until_ns, until_ns);
}

/* While no other session waits for the device, the end of the last command may be noticed later, which
 * saves waking the main thread for each. */
static void hurry(struct dvk_runtime *runtime, struct dvk_gate *gate, bool on)
{
    if (gate->hurried == on)
        return;
    gate->hurried = on;
    if (on)
        atomic_fetch_add(&runtime->graph.attention, 1);
    else
        atomic_fetch_sub(&runtime->graph.attention, 1);
}

int dvk_gates_start(struct dvk_runtime *runtime)
{
    const struct dvk_worker_start *start = runtime->start;
    struct dv_lease_callbacks callbacks = {.granted = granted,
                                           .recalled = changed,
                                           .look = look,
                                           .call_back = call_back,
                                           .placed = placed,
                                           .evict = evict,
                                           .traced = traced,
                                           .user = runtime};
    bool any = false;

    for (uint32_t i = 0; i < start->device_count; i++) {
        dvk_gate_init(&runtime->gates[i], i);
        any |= start->devices[i].leased != 0;
    }
    if (!any)
        return 0;
    runtime->lease = dv_lease_create(start->control_fd, start->device_count, &callbacks);
    return runtime->lease ? 0 : -ENOMEM;
}

/* A lone tenant can have many small commands, and a slightly late time harms no other tenant: the clock
 * is read again after this much work. */
#define CLOCK_EVERY_NS (50 * DV_NS_PER_US)
#define CLOCK_COMMAND_NS (1 * DV_NS_PER_US) /* minimum for one command */

static uint64_t gate_time(struct dvk_gate *gate, bool alone, uint64_t cost_ns)
{
    gate->since_clock_ns += cost_ns + CLOCK_COMMAND_NS;
    if (!alone || gate->flight.count == 0 || gate->since_clock_ns > CLOCK_EVERY_NS) {
        gate->since_clock_ns = 0;
        gate->now_ns = dv_now();
    }
    return gate->now_ns;
}

void dvk_gates_slept(struct dvk_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->start->device_count; i++)
        runtime->gates[i].since_clock_ns = CLOCK_EVERY_NS;
}

/* Whether one more command may go to the vendor. The first of a grant always may: a command
 * that is longer than any slice must run some time. */
static bool fits(struct dvk_runtime *runtime, struct dvk_gate *gate, uint64_t cost_ns)
{
    uint64_t end_ns = dv_lease_end_ns(runtime->lease, gate->device);
    bool alone = dv_lease_alone(runtime->lease, gate->device);
    uint64_t ahead_ns = alone ? AHEAD_ALONE_NS : AHEAD_NS;
    uint64_t now = gate_time(gate, alone, cost_ns);

    if (end_ns == 0)
        return false;
    if (gate->bringing) /* the slice does not run meanwhile */
        return true;
    if (now >= end_ns)
        return false;
    if (gate->serial != dv_lease_serial(runtime->lease, gate->device))
        return true;
    uint64_t busy_ns = gate->flight.count && gate->flight.ends_ns > now ? gate->flight.ends_ns - now : 0;
    if (busy_ns + cost_ns > end_ns - now)
        return false;
    /* The submitted commands should have ended long ago: their costs are not known, so only one waits
     * behind the one that runs. */
    if (gate->flight.count > 1 && now > gate->flight.ends_ns + ahead_ns) {
        gate->look_ns = now + AHEAD_NS;
        return false;
    }
    if (busy_ns <= (gate->full ? ahead_ns / 2 : ahead_ns)) {
        gate->full = false;
        return true;
    }
    gate->full = true;
    gate->look_ns = gate->flight.ends_ns - ahead_ns / 2;
    return false;
}

/* No more commands may follow under this grant. One fence makes the vendor report the end of the last
 * command passed, which otherwise would be noticed only when the ring is empty. */
static void close_gate(struct dvk_runtime *runtime, struct dvk_gate *gate)
{
    uint64_t serial = dv_lease_serial(runtime->lease, gate->device);

    if (gate->fenced != serial) {
        gate->fenced = serial;
        runtime->fence_due = true;
    }
    if (!gate->flight.closes)
        atomic_store(&gate->closes_with_more, true);
    dvk_gate_close(gate);
}

void dvk_gates_before_sleep(struct dvk_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        struct dvk_gate *gate = &runtime->gates[i];
        if (gate->flight.count == 0 || gate->flight.closes || gate->bringing || !TAILQ_EMPTY(&gate->waiting) ||
            !dv_lease_pauses(runtime->lease, i))
            continue;
        atomic_store(&gate->closes_with_more, false);
        dvk_gate_close(gate);
    }
}

bool dvk_gate_admit(struct dvk_runtime *runtime, struct dvk_gate *gate, uint64_t cost_ns, bool quick)
{
    struct dv_lease *lease = runtime->lease;

    if (runtime->lease_thread_submits && (!quick || runtime->lease_thread_left == 0))
        return false; /* the main thread is woken for it */
    gate->look_ns = 0;
    if (!dvk_gate_reopen(gate))
        return false; /* until that end has been noticed here too */
    /* The session now wants the device. On a core that we share with divvyd or the lease's thread, the
     * grant would otherwise come when the ring has been read to its end, with the device idle until then. */
    if (gate->flight.count == 0 && dv_lease_want(lease, gate->device))
        sched_yield();
    bool held = dv_lease_held(lease, gate->device); /* a later grant is not considered */
    if (fits(runtime, gate, cost_ns)) {
        if (dv_lease_contended(lease, gate->device))
            hurry(runtime, gate, true);
        return true;
    }
    if (dv_lease_end_ns(lease, gate->device) == 0)
        gate->bringing = false;
    if (gate->flight.count == 0 && held)
        dv_lease_yield(lease, gate->device);
    else if (gate->flight.count > 0 && gate->look_ns == 0)
        close_gate(runtime, gate);
    return false;
}

void dvk_gate_hold_up(struct dvk_gate *gate, bool held_up)
{
    gate->held_up = held_up;
}

/* Whether commands wait that the device could run. */
static bool has_more(const struct dvk_gate *gate)
{
    return !TAILQ_EMPTY(&gate->waiting) && !gate->held_up;
}

void dvk_gate_bring(struct dvk_runtime *runtime, uint32_t device, bool brings)
{
    runtime->gates[device].bringing = brings;
}

void dvk_gate_passed(struct dvk_runtime *runtime, struct dvk_gate *gate)
{
    if (runtime->lease_thread_submits)
        runtime->lease_thread_left--;
    gate->serial = dv_lease_serial(runtime->lease, gate->device);
    gate->fenced = 0;
}

/* On the vendor's thread: the device is free. */
void dvk_gate_closed(struct dvk_runtime *runtime, struct dvk_gate *gate)
{
    if (atomic_load(&gate->closes_with_more))
        dv_lease_yield(runtime->lease, gate->device);
    else
        dv_lease_drained(runtime->lease, gate->device, false);
}

/* The slice does not run meanwhile; a recall still comes when it takes too long. */
static bool brings_memory(const struct dvk_runtime *runtime, const struct dvk_gate *gate)
{
    return gate->bringing && dv_lease_end_ns(runtime->lease, gate->device) != 0;
}

void dvk_gate_drained(struct dvk_runtime *runtime, struct dvk_gate *gate)
{
    hurry(runtime, gate, false);
    if (!TAILQ_EMPTY(&gate->waiting)) /* also when the main thread is about to sleep */
        atomic_store(&runtime->gates_changed, true);
    if (brings_memory(runtime, gate))
        return;             /* after giving back now, its memory would be brought in once more */
    gate->bringing = false; /* under the next grant room is asked for anew */
    dv_lease_drained(runtime->lease, gate->device, has_more(gate));
}

uint64_t dvk_gates_due_ns(const struct dvk_runtime *runtime)
{
    uint64_t due = 0;

    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        const struct dvk_gate *gate = &runtime->gates[i];
        if (gate->look_ns && !TAILQ_EMPTY(&gate->waiting) && (!due || gate->look_ns < due))
            due = gate->look_ns;
    }
    return due;
}

/* The main thread submits what follows a grant, while the device is idle. A tenant that is alone
 * loses nothing by waiting, and its own threads are disturbed less. */
void dvk_gates_wake_soon_if_shared(struct dvk_runtime *runtime)
{
    bool shared = false;

    for (uint32_t i = 0; i < runtime->start->device_count; i++)
        shared |= dv_lease_serial(runtime->lease, i) && !dv_lease_alone(runtime->lease, i);
    if (shared != runtime->shares_a_device) {
        runtime->shares_a_device = shared;
        dv_priority_wake(shared, 0);
    }
}

void dvk_gates_serve(struct dvk_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        struct dvk_gate *gate = &runtime->gates[i];
        if (!runtime->start->devices[i].leased)
            continue;
        dvk_graph_open_gate(&runtime->graph, gate);
        if (!dv_lease_held(runtime->lease, i))
            continue;
        bool more = has_more(gate), open = dv_lease_open(runtime->lease, i);
        if (brings_memory(runtime, gate))
            continue;
        gate->bringing = false;
        if (gate->flight.count == 0 && (!open || !more)) {
            dv_lease_drained(runtime->lease, i, more);
        } else if (!open) {
            hurry(runtime, gate, true);
            if (more)
                close_gate(runtime, gate);
        }
    }
}
