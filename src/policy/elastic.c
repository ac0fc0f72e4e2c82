/* The default policy: guaranteed shares first, the rest by weight, nobody above its limit, and
 * classes that decide the order among those who are entitled to run.
 *
 * Three clocks a tenant, all moved by the device time it really had:
 *   request_time  when its guaranteed share is due next; runs in real time
 *   fair_time     device time for its weight; compared with that of the others
 *   limit_time    when its limit lets it run again; runs in real time
 * The policy's fair_clock is the mean fair_time of all who share by weight: who is not ahead of it
 * has not had more than it is entitled to.
 *
 * Two lines (see order.h) hold who waits: by request and by weight. In both, a tenant may be served
 * once its start has come, and of those the one goes first whose turn should be over first. So
 * nobody falls behind what it is entitled to by much more than one turn, however uneven the shares
 * are. */
#include "src/policy/order.h"

/* How far behind a tenant can be at most and still catch up. */
#define LAG_MAX_NS (10 * DV_NS_PER_S)
/* Device time that a tenant with a limit may make up for when it had to wait although its limit
 * allowed it to run; otherwise waiting would cost it a part of what it may have. */
#define LIMIT_MAKE_UP_NS DV_SLICE_MAX_NS

/* Of each turn so much, and at most one in so many parts, goes into handing the device over. No kernel
 * of the tenant runs then; if nobody else wants the device, its limit does not count it. */
#define HAND_OVER_NS (200 * DV_NS_PER_US)
#define HAND_OVER_PART 100

/* Device time that latency work may save up while it is idle. */
#define LATENCY_SAVED_NS (20 * DV_NS_PER_MS)

static bool is_limited(const struct dv_policy_tenant *tenant)
{
    return tenant->share.limit_ppm < DV_PPM;
}

static struct dv_policy_tenant *tenant_by_request(struct dv_policy_place *place)
{
    return place ? DV_TENANT_OF(place, by_request) : NULL;
}

static struct dv_policy_tenant *tenant_by_fair(struct dv_policy_place *place)
{
    return place ? DV_TENANT_OF(place, by_fair) : NULL;
}

/* ---- sharing by weight ---- */

static dv_wide lead_of(const struct dv_policy *policy, const struct dv_policy_tenant *tenant)
{
    return (dv_wide)tenant->share.weight * (int64_t)(tenant->fair_time - policy->fair_clock);
}

/* Moves the clock to the mean of those who share, weighted; it stays where it is without any. */
static void set_fair_clock(struct dv_policy *policy)
{
    if (!policy->total_weight)
        return;
    int64_t step = (int64_t)(policy->fair_lead_sum / policy->total_weight);
    policy->fair_clock += (uint64_t)step;
    policy->fair_lead_sum -= (dv_wide)policy->total_weight * step;
}

static void stop_sharing(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    if (!tenant->counted)
        return;
    set_fair_clock(policy);
    policy->fair_lead_sum -= lead_of(policy, tenant);
    policy->total_weight -= tenant->share.weight;
    tenant->counted = false;
    if (!policy->total_weight)
        policy->fair_lead_sum = 0;
    set_fair_clock(policy);
}

/* A tenant takes part while it waits or holds, unless its request gives it more than its weight
 * does, or its limit less. */
static void share_if_due(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    bool wants = tenant->waiting.count > 0 || tenant->holding_count > 0;

    if (tenant->counted || !wants || tenant->at_request || tenant->at_limit)
        return;
    policy->fair_lead_sum += lead_of(policy, tenant);
    policy->total_weight += tenant->share.weight;
    tenant->counted = true;
    set_fair_clock(policy);
}

static void set_fair_time(struct dv_policy *policy, struct dv_policy_tenant *tenant, uint64_t time)
{
    if (tenant->counted)
        policy->fair_lead_sum +=
            (dv_wide)tenant->share.weight * (int64_t)(time - tenant->fair_time);
    tenant->fair_time = time;
    set_fair_clock(policy);
}

/* Where somebody new begins: at the mean of those who share, by what holders have really had, since
 * holds are charged in advance; and not behind those who wait, for a holder that is ahead may
 * leave. */
static uint64_t fair_start(const struct dv_policy *policy, dv_ns now)
{
    dv_wide all_sum = policy->fair_lead_sum, waiting_sum = policy->fair_lead_sum;
    int64_t all_weight = policy->total_weight, waiting_weight = policy->total_weight;

    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next) {
        int64_t had_ns = (int64_t)((now - holder->granted_at) / policy->slots);
        if (!holder->tenant->counted)
            continue;
        if (holder->charged_ns > had_ns)
            all_sum -= (dv_wide)dv_weighted(holder->charged_ns - had_ns, 1);
        if (!holder->tenant->waiting.count) {
            waiting_sum -= lead_of(policy, holder->tenant);
            waiting_weight -= holder->tenant->share.weight;
        }
    }
    if (all_weight <= 0)
        return policy->fair_clock;
    uint64_t start = policy->fair_clock + (uint64_t)(int64_t)(all_sum / all_weight);
    if (waiting_weight > 0)
        start = dv_earlier(start,
                           policy->fair_clock + (uint64_t)(int64_t)(waiting_sum / waiting_weight));
    return start;
}

/* The longest hold on the clock of the tenant with the least weight, so many times. */
static uint64_t behind_by_holds(const struct dv_policy *policy, uint32_t holds)
{
    dv_ns ns = policy->longest_hold_ns * holds;

    return policy->fair_clock - (uint64_t)dv_weighted((int64_t)(ns < LAG_MAX_NS ? ns : LAG_MAX_NS),
                                                      policy->least_weight);
}

/* Device time had by request counts as received. But a request above the share by weight must not
 * pile up a debt that the tenant would pay off for ever once others leave: it stays just so far
 * ahead that it gets nothing by weight on top, even if a turn of its own comes one hold late. */
static uint64_t furthest_ahead(const struct dv_policy *policy,
                               const struct dv_policy_tenant *tenant, dv_ns device_ns)
{
    const struct dv_share *share = &tenant->share;
    int64_t late_ns = (int64_t)(policy->longest_hold_ns * share->request_ppm / DV_PPM);

    return policy->fair_clock + (uint64_t)dv_weighted((int64_t)device_ns + late_ns, share->weight);
}

/* Nobody is rightly further behind than by one hold of each of the others, if they all went first.
 * Who is cannot use what its weight entitles it to: it has fewer sessions than the device has
 * slots. And who is held back by its limit keeps so much of a lag that it goes first once it may
 * run. */
static void bound_lag(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    uint32_t holds = tenant->at_limit ? 1 : policy->tenant_count + 1;
    uint64_t furthest = behind_by_holds(policy, holds);

    if (dv_before(tenant->fair_time, furthest)) {
        stop_sharing(policy, tenant);
        tenant->at_limit = true;
        tenant->fair_time = furthest;
    } else if (!dv_before(tenant->fair_time, policy->fair_clock)) {
        tenant->at_limit = false;
    }
}

/* ---- who waits ---- */

static void elastic_init(struct dv_policy *policy, dv_ns now)
{
    (void)now;
    policy->fair_clock = 0;
    policy->fair_lead_sum = 0;
    policy->total_weight = 0;
    policy->by_other = (struct dv_policy_tree){0};
    dv_line_init(&policy->by_request);
    dv_line_init(&policy->by_fair);
}

static void elastic_tenant_added(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                                 dv_ns now)
{
    tenant->fair_time = policy->fair_clock;
    tenant->request_time = now;
    tenant->limit_time = now;
    tenant->fair_lead = 0;
    tenant->demand_ended_at = now - DV_SAME_DEMAND_NS - 1;
}

/* Its limit clock, with no more unused device time than that. */
static dv_ns limit_not_before(const struct dv_policy_tenant *tenant, dv_ns unused_ns, dv_ns now)
{
    return dv_later(tenant->limit_time,
                    now - (uint64_t)dv_at_share((int64_t)unused_ns, tenant->share.limit_ppm));
}

/* Who was idle does not catch up on it. Who had had more than its share before still owes it, as
 * far as the others have not drawn level meanwhile. */
static int64_t debt_left(const struct dv_policy *policy, const struct dv_policy_tenant *tenant,
                         dv_ns now)
{
    int64_t sharers = policy->total_weight + tenant->share.weight;
    int64_t idle_ns = (int64_t)(now - tenant->demand_ended_at);
    dv_wide left = (dv_wide)tenant->fair_lead - (dv_wide)dv_weighted(1, 1) * idle_ns / sharers;

    return left > 0 ? (int64_t)left : 0;
}

/* On its request clock. Nobody saves up what it does not use; but requests of a service come in
 * clusters, and a cluster that its guarantee covers on average should not be cut short. */
static dv_ns saved_by_idling(const struct dv_policy_tenant *tenant)
{
    const struct dv_share *share = &tenant->share;

    if (share->class != DV_CLASS_LATENCY || !share->request_ppm)
        return 0;
    return (dv_ns)dv_at_share(LATENCY_SAVED_NS, share->request_ppm);
}

static void elastic_demand_begins(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                                  dv_ns now)
{
    /* What somebody had while nobody else wanted it is not held against its guarantee. */
    if (policy->demanding_tenants == 1 && policy->holders.first) {
        struct dv_policy_tenant *holder = policy->holders.first->tenant;
        holder->request_time = dv_earlier(holder->request_time, now);
    }
    if (now - tenant->demand_ended_at <= DV_SAME_DEMAND_NS)
        return;
    tenant->fair_time = fair_start(policy, now) + (uint64_t)debt_left(policy, tenant, now);
    tenant->request_time = dv_later(tenant->request_time, now - saved_by_idling(tenant));
    tenant->at_request = tenant->at_limit = false;
    if (is_limited(tenant))
        tenant->limit_time = limit_not_before(tenant, DV_SLICE_LIMITED_NS, now);
}

/* Into the lines of those who may run. */
static void make_ready(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    const struct dv_share *share = &tenant->share;
    int64_t turn_ns = (int64_t)(tenant->slice_ns / policy->slots);
    enum dv_class class = share->class;

    if (share->request_ppm) {
        /* Guarantees go by due time, whatever the class; only latency work is put first. */
        dv_ns due = dv_later(tenant->request_time, now - LAG_MAX_NS);
        tenant->request_time = due;
        dv_line_insert(&policy->by_request, &tenant->by_request, due,
                       due + (uint64_t)dv_at_share(turn_ns, share->request_ppm),
                       class == DV_CLASS_LATENCY ? DV_CLASS_LATENCY : DV_CLASS_STANDARD, now);
    }
    bound_lag(policy, tenant);
    share_if_due(policy, tenant);
    /* Batch work that its limit keeps from its share is not made to wait by its class as well. */
    if (tenant->at_limit && class == DV_CLASS_BATCH)
        class = DV_CLASS_STANDARD;
    dv_line_insert(&policy->by_fair, &tenant->by_fair, tenant->fair_time,
                   tenant->fair_time + (uint64_t)dv_weighted(turn_ns, share->weight), class,
                   policy->fair_clock);
}

static void elastic_enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    if (is_limited(tenant) && dv_before(now, tenant->limit_time)) {
        tenant->at_limit = true;
        stop_sharing(policy, tenant);
        dv_tree_insert(&policy->by_other, &tenant->by_other, 0, tenant->limit_time);
    } else {
        make_ready(policy, tenant, now);
    }
}

static void elastic_leave(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    (void)policy;
    dv_line_remove(&tenant->by_request);
    dv_line_remove(&tenant->by_fair);
    dv_tree_remove(&tenant->by_other);
}

static void elastic_demand_ends(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                                dv_ns now)
{
    (void)now;
    tenant->fair_lead = (int64_t)(tenant->fair_time - policy->fair_clock);
    stop_sharing(policy, tenant);
}

/* ---- whose turn it is ---- */

/* Brings the lines to the present: whose limit lets it run again, whose guarantee is due, who is
 * entitled by weight. */
static void advance(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_node *node;

    while ((node = dv_tree_first(&policy->by_other)) && !dv_before(now, node->key)) {
        dv_tree_remove(node);
        make_ready(policy, DV_TENANT_OF(node, by_other), now);
    }
    dv_line_advance(&policy->by_request, now);
    dv_line_advance(&policy->by_fair, policy->fair_clock);
}

/* A waiting tenant of the latency class that is still within its entitlement. */
static struct dv_pick pick_latency(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_place *due = dv_line_first_ready(&policy->by_request, now);
    struct dv_policy_place *fair = dv_line_first_ready(&policy->by_fair, policy->fair_clock);
    struct dv_pick pick = {.rule = DV_RULE_CLASS};

    if (due && due->group == DV_CLASS_LATENCY) {
        pick.tenant = tenant_by_request(due);
        pick.guaranteed = true;
    } else if (fair && fair->group == DV_CLASS_LATENCY) {
        pick.tenant = tenant_by_fair(fair);
    }
    return pick;
}

static struct dv_pick elastic_pick(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_place *place;
    struct dv_pick pick;

    advance(policy, now);
    pick = pick_latency(policy, now);
    if (!pick.tenant && (place = dv_line_first_ready(&policy->by_request, now)))
        pick = (struct dv_pick){
            .tenant = tenant_by_request(place), .rule = DV_RULE_REQUEST, .guaranteed = true};
    if (!pick.tenant) {
        place = dv_line_first_ready(&policy->by_fair, policy->fair_clock);
        if (!place) /* all who wait are ahead: the device does not idle for that */
            place = dv_line_first_ahead(&policy->by_fair);
        pick = (struct dv_pick){.tenant = tenant_by_fair(place), .rule = DV_RULE_LEAST_SERVED};
    }
    if (!pick.tenant)
        return (struct dv_pick){.rule = DV_RULE_LIMIT,
                                .ask_again_ns = dv_tree_first(&policy->by_other)->key};
    if (policy->waiting_tenants == 1)
        pick.rule = DV_RULE_ONLY_ONE;
    return pick;
}

/* ---- what it costs ---- */

static void elastic_hold_began(struct dv_policy *policy, struct dv_policy_session *session,
                               dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    (void)policy;
    session->fair_at_grant = tenant->fair_time;
    if (is_limited(tenant))
        tenant->limit_time = limit_not_before(tenant, LIMIT_MAKE_UP_NS, now);
}

static void elastic_charge(struct dv_policy *policy, struct dv_policy_session *session,
                           int64_t delta_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;
    const struct dv_share *share = &tenant->share;

    (void)now;
    set_fair_time(policy, tenant,
                  tenant->fair_time + (uint64_t)dv_weighted(delta_ns, share->weight));
    if (share->request_ppm)
        tenant->request_time += (uint64_t)dv_at_share(delta_ns, share->request_ppm);
    if (is_limited(tenant))
        tenant->limit_time += (uint64_t)dv_at_share(delta_ns, share->limit_ppm);
}

static void elastic_hold_ended(struct dv_policy *policy, struct dv_policy_session *session,
                               dv_ns device_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;
    const struct dv_share *share = &tenant->share;

    if (is_limited(tenant) && policy->demanding_tenants <= 1) {
        dv_ns hand_over = device_ns / HAND_OVER_PART;
        if (hand_over > HAND_OVER_NS)
            hand_over = HAND_OVER_NS;
        tenant->limit_time -= (uint64_t)dv_at_share((int64_t)hand_over, share->limit_ppm);
    }
    stop_sharing(policy, tenant);
    tenant->at_request = false;
    if (session->guaranteed && policy->demanding_tenants > 1) {
        uint64_t most = dv_later(session->fair_at_grant, furthest_ahead(policy, tenant, device_ns));
        /* Where all others are held back, time by request is no measure of what they should have.
         */
        tenant->at_request = dv_before(most, tenant->fair_time) || !policy->total_weight;
        tenant->fair_time = dv_earlier(tenant->fair_time, most);
    }
    share_if_due(policy, tenant);
    /* More than guaranteed is never held against the guarantee beyond this one turn. */
    if (share->request_ppm)
        tenant->request_time =
            dv_earlier(tenant->request_time,
                       now + (uint64_t)dv_at_share((int64_t)device_ns, share->request_ppm));
}

/* Keeps what a tenant is ahead or behind, in device time, under the new share. */
static void elastic_share_changed(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                                  const struct dv_share *old, dv_ns now)
{
    const struct dv_share share = tenant->share;
    int64_t limit_lead = (int64_t)(tenant->limit_time - now);

    tenant->share = *old; /* it leaves with the weight it came with */
    stop_sharing(policy, tenant);
    tenant->share = share;
    tenant->fair_time =
        policy->fair_clock + (uint64_t)((int64_t)(tenant->fair_time - policy->fair_clock) /
                                        (int64_t)share.weight * old->weight);
    if (share.request_ppm != old->request_ppm)
        tenant->request_time = now;
    if (old->limit_ppm >= DV_PPM || limit_lead < 0)
        limit_lead = 0;
    tenant->limit_time =
        now + (uint64_t)(limit_lead / (share.limit_ppm ? share.limit_ppm : 1) * old->limit_ppm);
    tenant->at_request = tenant->at_limit = false;
    share_if_due(policy, tenant);
}

/* ---- who steps aside ---- */

/* On a device with several slots, latency work gets as many as it takes to be done in time; the
 * others stay where they are. With one slot that is all or nothing. */
static uint32_t elastic_slots_wanted(struct dv_policy *policy, dv_ns now)
{
    advance(policy, now);
    if (!pick_latency(policy, now).tenant)
        return 0;
    dv_ns target = policy->latency_target_ns ? policy->latency_target_ns : 1;
    uint64_t wanted = (policy->latency_work_ns + target - 1) / target;
    wanted = wanted ? wanted : 1;
    return wanted < policy->slots ? (uint32_t)wanted : policy->slots;
}

static bool elastic_runnable(struct dv_policy *policy, dv_ns now, dv_ns *from)
{
    struct dv_policy_node *held;

    advance(policy, now);
    *from = now;
    if (dv_tree_first(&policy->by_fair.ready) || dv_tree_first(&policy->by_fair.ahead))
        return true;
    held = dv_tree_first(&policy->by_other);
    if (held)
        *from = held->key;
    return held != NULL;
}

const struct dv_policy_ops dv_policy_elastic = {
    .name = "elastic",
    .init = elastic_init,
    .enter = elastic_enter,
    .leave = elastic_leave,
    .pick = elastic_pick,
    .charge = elastic_charge,
    .tenant_added = elastic_tenant_added,
    .share_changed = elastic_share_changed,
    .demand_begins = elastic_demand_begins,
    .demand_ends = elastic_demand_ends,
    .hold_began = elastic_hold_began,
    .hold_ended = elastic_hold_ended,
    .slots_wanted = elastic_slots_wanted,
    .runnable = elastic_runnable,
};
