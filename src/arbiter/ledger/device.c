/* The time of a device: which sessions hold it, are recalled or are overdue. Feeds the device's policy, sends
 * its decisions, and charges holds on the ledger's clock. */
#include <string.h>

#include "src/arbiter/ledger/private.h"

/* A recall without an answer for this time: the holder may be stopped. */
#define STOPPED_AFTER_NS (200 * DV_NS_PER_MS)
/* A recall without an answer for this time: divvyd tells the operator. */
#define UNANSWERED_NS (10 * DV_NS_PER_S)

struct dvd_lease *dvd_lease_of(struct dv_policy_session *policy)
{
    return (struct dvd_lease *)((char *)policy - offsetof(struct dvd_lease, policy));
}

static dv_ns now_of(const struct dvd_device *device)
{
    return dvd_ledger_now(device->ledger);
}

void dvd_lease_send(struct dvd_lease *lease, enum dv_lease_type type, uint32_t flags,
                    const struct dv_decision *decision)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = lease->index.at,
                                 .flags = flags,
                                 .serial = lease->serial,
                                 .slice_ns = decision ? decision->slice_ns : 0,
                                 .linger_ns = decision ? decision->linger_ns : 0};

    if (type == DV_LEASE_GRANT) {
        m.part_ns = dvd_lease_part(lease);
        m.part_cost_ppm = lease->device->terms.kernel_slice_cost_ppm;
    }

    /* A session that does not read its channel hurts only itself: its holds do not change. */
    lease->lessee->ledger->events->send(lease->lessee, &m, sizeof m);
}

/* ---- deadlines ---- */

/* The shorter of two, where 0 means none. */
static dv_ns shorter(dv_ns a, dv_ns b)
{
    if (!a || !b)
        return a + b;
    return dvd_min(a, b);
}

/* A tenant in another class than the configured one does not get a longer deadline. */
static dv_ns deadline_in(const struct dvd_lease *lease, const dv_ns deadlines[DV_CLASS_COUNT])
{
    return shorter(deadlines[lease->tenant->tenant->terms.configured_class],
                   deadlines[lease->policy.tenant->share.class]);
}

dv_ns dvd_lease_deadline(const struct dvd_lease *lease)
{
    return shorter(deadline_in(lease, lease->device->ledger->terms.deadline_ns), lease->lessee->deadline_ns);
}

dv_ns dvd_lease_memory_deadline(const struct dvd_lease *lease)
{
    return deadline_in(lease, lease->device->ledger->terms.memory_deadline_ns);
}

/* A slice that is longer because memory was moved ends before the deadline of any class that waits. */
static void bound_holds(struct dvd_device *device)
{
    dv_ns longest = DV_HOLD_MOVING_MAX_NS;

    for (int i = 0; i < DV_CLASS_COUNT; i++)
        if (dv_policy_class_waits(&device->policy, (enum dv_class)i))
            longest = shorter(longest, device->ledger->terms.deadline_ns[i]);
    device->policy.hold_max_ns = longest;
}

/* ---- holds ---- */

/* With several slots, a hold is a part of the device's time. */
static void count_hold(struct dvd_lease *lease, dv_ns held, dv_ns now)
{
    struct dvd_account_device *account = dvd_lease_account(lease);
    dv_ns from = now - held / lease->device->policy.slots;

    lease->used_ns += held / lease->device->policy.slots;
    lease->device->held_ns += held;
    if (account)
        account->used_ns += held;
    dvd_usage_add(&lease->usage, from, now);
    dvd_usage_add(&lease->tenant->usage, from, now);
    dvd_usage_add(&lease->device->usage, from, now);
}

void dvd_lease_release(struct dvd_lease *lease)
{
    struct dvd_device *device = lease->device;
    dv_ns now = now_of(device), held = now - lease->policy.granted_at;

    count_hold(lease, held, now);
    dvd_trace_note(lease, DVD_TRACE_RELEASE, lease->policy.burst.kernel_ns, lease->wants_again);
    dv_policy_release(&device->policy, &lease->policy, now);
    dvd_beside_note(lease);
    dvd_room_released(lease);
    lease->overdue_at = 0;
    lease->changed_at = now;
    dvd_record_release(lease);
}

void dvd_lease_waited(struct dvd_lease *lease, dv_ns now)
{
    struct dvd_account_device *account = dvd_lease_account(lease);
    dv_ns waited = now - lease->policy.waiting_since;

    lease->waited_ns += waited;
    lease->tenant->waited_ns += waited;
    if (account)
        account->waited_ns += waited;
}

/* Releases a lease without its holder. The holder's later messages about that grant are ignored. */
static void take_away(struct dvd_lease *lease)
{
    dvd_lease_release(lease);
    lease->serial = 0;
}

/* ---- holders that do not release ---- */

static void sooner(dv_ns *when, dv_ns other)
{
    if (other && (!*when || other < *when))
        *when = other;
}

/* A holder whose process is stopped cannot answer, but it submits nothing either, and when it continues it finds
 * its slice over: the device goes to the next session. */
static void take_from_stopped(struct dvd_device *device, dv_ns now, dv_ns *again)
{
    struct dv_policy_session *holder, *next;

    for (holder = device->policy.holders.first; holder; holder = next) {
        struct dvd_lease *lease = dvd_lease_of(holder);
        next = holder->next;
        if (!lease->recalled_at)
            continue;
        if (now - lease->recalled_at < STOPPED_AFTER_NS) {
            sooner(again, lease->recalled_at + STOPPED_AFTER_NS);
        } else if (device->ledger->events->is_stopped(lease->lessee)) {
            dv_info("session %llu is stopped: its device is taken away", ID(lease->lessee));
            take_away(lease);
        } else {
            lease->recalled_at = now; /* a long kernel: look again later */
            sooner(again, now + STOPPED_AFTER_NS);
        }
    }
}

dv_ns dvd_device_unanswered(const struct dvd_device *device)
{
    const struct dv_policy_session *holder = device->policy.holders.first;
    dv_ns now = now_of(device), longest = 0;

    for (; holder && device->policy.waiting_tenants; holder = holder->next)
        if (holder->recalled && now - holder->recalled_at > longest)
            longest = now - holder->recalled_at;
    return longest >= UNANSWERED_NS ? longest : 0;
}

/* Without a line in the log, a device that is never released would look like a busy one. */
static void report_unanswered(struct dvd_device *device, dv_ns now, dv_ns *again)
{
    for (struct dv_policy_session *holder = device->policy.holders.first; holder; holder = holder->next) {
        struct dvd_lease *lease = dvd_lease_of(holder);
        if (!holder->recalled || lease->is_reported || !device->policy.waiting_tenants)
            continue;
        if (now - holder->recalled_at < UNANSWERED_NS) {
            sooner(again, holder->recalled_at + UNANSWERED_NS);
            continue;
        }
        lease->is_reported = true;
        device->ledger->events->unanswered(lease->lessee, device, now - holder->recalled_at, dvd_lease_deadline(lease));
    }
}

/* Terminates sessions that have not released within the deadline of their class: an endless kernel, or a worker
 * that ignores the recall. The deadline runs only while other tenants wait. */
static void end_overdue(struct dvd_device *device, dv_ns now, dv_ns *again)
{
    struct dv_policy_session *holder, *next;

    for (holder = device->policy.holders.first; holder; holder = next) {
        struct dvd_lease *lease = dvd_lease_of(holder);
        dv_ns deadline = dvd_lease_deadline(lease);
        next = holder->next;
        if (!device->policy.waiting_tenants || !holder->recalled || !deadline) {
            lease->overdue_at = 0;
        } else if (!lease->overdue_at) {
            lease->overdue_at = now + deadline;
        } else if (now >= lease->overdue_at) {
            device->ledger->events->overdue(lease->lessee, deadline, "a device");
            lease->overdue_at = now + deadline;
            if (!lease->lessee->has_worker)
                take_away(lease);
        }
        sooner(again, lease->overdue_at);
    }
}

/* ---- decisions ---- */

static void on_time(void *owner)
{
    dvd_device_dispatch(owner);
}

static void look_again_at(struct dvd_device *device, dv_ns when)
{
    struct dv_timers *timers = device->ledger->timers;

    device->timer.fired = on_time;
    device->timer.owner = device;
    int error = timers->set(timers, &device->timer, when);
    if (error < 0) /* the next message looks again */
        dv_error("device %s: cannot set the timer of its leases: %s", device->terms.name, strerror(-error));
}

/* Whether the holder should release soon: another tenant waits, or its own limit applies. */
static bool is_contended(const struct dv_policy *policy, const struct dv_policy_session *holder)
{
    return policy->waiting_tenants > 0 || holder->tenant->share.limit_ppm < DV_PPM;
}

/* Beside a latency tenant parts are shorter than beside others, and a tenant that is alone has longer ones: one that
 * comes while it runs waits once. */
#define BESIDE_LATENCY 5
#define ALONE 4

dv_ns dvd_lease_part(const struct dvd_lease *lease)
{
    const struct dvd_device *device = lease->device;
    enum dvd_slice_kernels own = lease->tenant->tenant->terms.slice_kernels, all = device->terms.slice_kernels;
    bool is_latency = lease->tenant->sessions > 0 && lease->tenant->present_as == DV_CLASS_LATENCY;

    if (own == DV_SLICE_KERNELS_NEVER || all == DV_SLICE_KERNELS_NEVER)
        return 0;
    if (own == DV_SLICE_KERNELS_ALWAYS || all == DV_SLICE_KERNELS_ALWAYS)
        return DV_LEASE_PART_SMALLEST;
    if (device->tenants_present == 1)
        return device->terms.kernel_slice_ns * ALONE;
    if (device->present_of_class[DV_CLASS_LATENCY] > is_latency)
        return device->terms.kernel_slice_ns / BESIDE_LATENCY;
    return device->terms.kernel_slice_ns;
}

static void grant(struct dvd_device *device, const struct dv_decision *decision, dv_ns now)
{
    struct dvd_lease *lease = dvd_lease_of(decision->session);
    uint32_t flags = is_contended(&device->policy, decision->session) ? DV_LEASE_CONTENDED : 0;

    if (device->tenants_present == 1)
        flags |= DV_LEASE_ALONE;
    dvd_lease_waited(lease, now);
    lease->serial = ++device->grants;
    lease->grants++;
    if (dvd_lease_account(lease))
        dvd_lease_account(lease)->grants++;
    lease->changed_at = now;
    lease->recalled_at = 0;
    lease->is_reported = false;
    dvd_record_grants(device);
    dvd_record_hold(lease);
    dvd_lease_send(lease, DV_LEASE_GRANT, flags, decision);
    dvd_trace_note(lease, DVD_TRACE_GRANT, decision->slice_ns, 0);
}

static void recall(struct dvd_lease *lease, dv_ns now)
{
    lease->recalls++;
    lease->recalled_at = now;
    dvd_lease_send(lease, DV_LEASE_RECALL, 0, NULL);
    dvd_trace_note(lease, DVD_TRACE_RECALL, 0, 0);
}

void dvd_device_dispatch(struct dvd_device *device)
{
    dv_ns now = now_of(device), again = 0, recall_again = 0;
    struct dv_policy_session *holder;

    bound_holds(device);
    if (device->policy.waiting_tenants)
        take_from_stopped(device, now, &again);
    end_overdue(device, now, &again);
    while (device->policy.free_slots > 0) {
        struct dv_decision decision = dv_policy_next(&device->policy, now);
        if (!decision.session) {
            sooner(&again, decision.ask_again_ns);
            break;
        }
        grant(device, &decision, now);
    }
    while ((holder = dv_policy_recall(&device->policy, now, &recall_again))) {
        recall(dvd_lease_of(holder), now);
        sooner(&again, now + STOPPED_AFTER_NS);
    }
    end_overdue(device, now, &again);
    report_unanswered(device, now, &again);
    sooner(&again, recall_again);
    look_again_at(device, again);
    dvd_record_grants(device);
}

void dvd_device_dispatch_soon(struct dvd_device *device)
{
    look_again_at(device, now_of(device));
}

void dvd_lease_moved(struct dvd_lease *lease, dv_ns took_ns)
{
    struct dvd_device *device = lease->device;

    bound_holds(device);
    struct dv_decision decision = dv_policy_moved(&device->policy, &lease->policy, took_ns, now_of(device));
    if (decision.session) {
        dvd_record_slice(lease);
        dvd_lease_send(lease, DV_LEASE_EXTEND, 0, &decision);
    }
    dvd_device_dispatch(device);
}

/* ---- the device itself ---- */

static void set_moving_terms(struct dvd_device *device)
{
    device->policy.moving_part_ppm = device->terms.moving_part_ppm;
    device->policy.moved_slice_max_ns = device->terms.moved_slice_max_ns;
}

void dvd_device_start_anyway(struct dvd_device *device)
{
    if (device->started)
        return;
    device->started = true;
    device->usage.since = now_of(device);
    dv_policy_init(&device->policy, device->terms.policy, device->terms.slots, now_of(device));
    device->policy.fixed_slice_ns = device->terms.slice_ns;
    device->policy.may_run_beside = dvd_beside_fits;
    set_moving_terms(device);
}

bool dvd_device_start(struct dvd_device *device)
{
    bool is_leased = device->terms.is_shared_out && !device->terms.is_hidden;

    if (is_leased)
        dvd_device_start_anyway(device);
    return is_leased;
}

void dvd_device_set_policy(struct dvd_device *device, const struct dv_policy_ops *ops, dv_ns slice_ns)
{
    device->policy.fixed_slice_ns = slice_ns;
    if (device->policy.ops != ops)
        dv_policy_switch(&device->policy, ops, now_of(device));
    dvd_device_dispatch(device);
    dvd_record_policy(device);
}

void dvd_ledger_apply_device_terms(struct dvd_ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->device_count; i++) {
        struct dvd_device *device = &ledger->devices[i];
        set_moving_terms(device);
        device->set_by_operator = false;
        if (device->started && device->terms.is_shared_out)
            dvd_device_set_policy(device, device->terms.policy, device->terms.slice_ns);
    }
}

/* ---- its tenants ---- */

void dvd_device_add_tenant(struct dvd_tenant_device *tenant, const struct dv_share *share)
{
    struct dvd_device *device = tenant->device;

    dv_policy_tenant_add(&device->policy, &tenant->policy, share, now_of(device));
    device->promised_ppm += share->request_ppm;
    dvd_record_share(tenant);
}

void dvd_device_set_share(struct dvd_tenant_device *tenant, const struct dv_share *share)
{
    struct dvd_device *device = tenant->device;

    device->promised_ppm += (uint64_t)share->request_ppm - tenant->policy.share.request_ppm;
    dv_policy_tenant_set(&device->policy, &tenant->policy, share, now_of(device));
    dvd_record_share(tenant);
    dvd_device_dispatch(device);
}

void dvd_device_remove_tenant(struct dvd_tenant_device *tenant)
{
    struct dvd_device *device = tenant->device;

    device->promised_ppm -= tenant->policy.share.request_ppm;
    dv_policy_tenant_remove(&device->policy, &tenant->policy);
    dvd_device_dispatch(device); /* others may be entitled to more now */
}
