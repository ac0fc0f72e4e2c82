/* Leases in the worker: ready commands wait at a device's gate until divvyd has granted the session
 * the device, and no more is submitted ahead than can be waited for when the lease is recalled. */
#include "src/worker/core/runtime.h"

/* Beside the command that runs, so much work may be with the vendor. */
#define AHEAD_NS (1 * DV_NS_PER_MS)

static void wake_main(struct dv_runtime *runtime)
{
    atomic_store(&runtime->gates_changed, true);
    if (atomic_exchange(&runtime->header->worker_asleep, 0))
        dv_futex_wake(&runtime->header->worker_asleep, 1);
}

/* On the lease's thread. */
static void changed(void *user, uint32_t device)
{
    (void)device;
    wake_main(user);
}

int dv_gates_start(struct dv_runtime *runtime)
{
    const struct dv_worker_start *start = runtime->start;
    struct dv_lease_callbacks callbacks = {
        .granted = changed, .recalled = changed, .user = runtime};
    bool any = false;

    for (uint32_t i = 0; i < start->device_count; i++) {
        dv_gate_init(&runtime->gates[i], i);
        any |= start->devices[i].leased != 0;
    }
    if (!any)
        return 0;
    runtime->lease = dv_lease_create(start->control_fd, start->device_count, &callbacks);
    return runtime->lease ? 0 : -ENOMEM;
}

bool dv_gate_admit(struct dv_runtime *runtime, struct dv_gate *gate, uint64_t cost_ns)
{
    struct dv_lease *lease = runtime->lease;

    if (!dv_lease_open(lease, gate->device)) {
        if (gate->in_flight == 0 && dv_lease_held(lease, gate->device))
            dv_lease_drained(lease, gate->device, true); /* its slice is over */
        else
            dv_lease_want(lease, gate->device);
        return false;
    }
    if (gate->in_flight == 0) {
        dv_lease_want(lease, gate->device); /* it is not idle any more */
        return true;
    }
    /* what is already submitted must end before the slice does */
    return gate->in_flight_ns + cost_ns <= AHEAD_NS + (gate->in_flight == 1 ? cost_ns : 0) &&
           dv_lease_left_ns(lease, gate->device) > gate->in_flight_ns;
}

void dv_gate_drained(struct dv_runtime *runtime, struct dv_gate *gate, uint64_t from_ns,
                     uint64_t to_ns)
{
    dv_lease_burst(runtime->lease, gate->device, from_ns, to_ns);
    dv_lease_drained(runtime->lease, gate->device, !TAILQ_EMPTY(&gate->waiting));
}

void dv_gates_serve(struct dv_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        struct dv_gate *gate = &runtime->gates[i];
        if (!runtime->start->devices[i].leased)
            continue;
        dv_graph_open_gate(&runtime->graph, gate);
        if (gate->in_flight == 0 && dv_lease_held(runtime->lease, i) &&
            !dv_lease_open(runtime->lease, i))
            dv_lease_drained(runtime->lease, i, !TAILQ_EMPTY(&gate->waiting));
    }
}
