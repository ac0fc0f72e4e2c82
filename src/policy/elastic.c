/* The default policy: guaranteed shares first, the rest by weight, nobody above its limit, and
 * classes that decide the order among those who are entitled to run.
 *
 * Three clocks a tenant, all moved by the device time it really had:
 *   request_time  when its guaranteed share is due next; runs in real time
 *   fair_time     device time for its weight; compared with the policy's virtual fair_clock
 *   limit_time    when its limit lets it run again; runs in real time
 * Two lines (see order.h) hold who waits: by request and by weight. In both, a tenant may be served
 * once its start has come, and of those the one goes first whose turn should be over first. That is
 * worst-case fair queueing: nobody falls behind what it is entitled to by more than one turn,
 * however uneven the shares are. */
#include "src/policy/order.h"

/* A tenant that comes back this soon never really stopped wanting the device. */
#define SAME_DEMAND_NS (1 * DV_NS_PER_MS)
/* How far behind a tenant can be and still catch up. Reached only by one that cannot use what it is
 * entitled to: say, with one session on a device of several slots. */
#define LAG_MAX_NS (10 * DV_NS_PER_S)
/* What a tenant at its limit may make up for, so that late grants do not cost it a part of it. */
#define LIMIT_BURST_NS (10 * DV_NS_PER_MS)

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

static void elastic_init(struct dv_policy *policy, dv_ns now)
{
    (void)now;
    policy->fair_clock = 0;
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
    tenant->demand_ended_at = now;
}

/* A tenant shares in the device while it holds it or is ready to run. */
static void count_weight(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    bool shares = tenant->holding_count > 0 || tenant->by_fair.node.tree;

    if (shares && !tenant->counted)
        policy->total_weight += tenant->share.weight;
    else if (!shares && tenant->counted)
        policy->total_weight -= tenant->share.weight;
    tenant->counted = shares;
}

/* A hold is charged in advance; this is where the holder's virtual time really is. */
static uint64_t fair_time_of(const struct dv_policy *policy, const struct dv_policy_session *holder,
                             dv_ns now)
{
    const struct dv_policy_tenant *tenant = holder->tenant;
    int64_t had_ns = (int64_t)((now - holder->granted_at) / policy->slots);
    int64_t ahead_ns = holder->charged_ns > had_ns ? holder->charged_ns - had_ns : 0;

    return tenant->fair_time - (uint64_t)dv_weighted(ahead_ns, tenant->share.weight);
}

/* Virtual time is never behind everybody who shares in the device. */
static void catch_up(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_place *first = dv_line_first_ahead(&policy->by_fair);
    bool found = first != NULL;
    uint64_t least = first ? first->start : 0;

    if (dv_line_first_ready(&policy->by_fair))
        return; /* somebody's start is not after the clock */
    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next) {
        uint64_t fair_time = fair_time_of(policy, holder, now);
        if (!found || dv_before(fair_time, least))
            least = fair_time;
        found = true;
    }
    if (found)
        policy->fair_clock = dv_later(policy->fair_clock, least);
}

static void elastic_demand_begins(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                                  dv_ns now)
{
    uint64_t earliest;

    catch_up(policy, now);
    earliest = policy->fair_clock;
    if (now - tenant->demand_ended_at <= SAME_DEMAND_NS)
        earliest -= (uint64_t)dv_weighted(DV_SLICE_MAX_NS, tenant->share.weight);
    else
        tenant->request_time = dv_later(tenant->request_time, now);
    tenant->fair_time = dv_later(tenant->fair_time, earliest);
    /* What somebody had while nobody else wanted it is not held against its guarantee. */
    if (policy->demanding_tenants == 1 && policy->holders.first) {
        struct dv_policy_tenant *holder = policy->holders.first->tenant;
        holder->request_time = dv_earlier(holder->request_time, now);
    }
    count_weight(policy, tenant);
}

/* Into the lines of those who may run. */
static void make_ready(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    const struct dv_share *share = &tenant->share;
    int64_t turn_ns = (int64_t)(tenant->slice_ns / policy->slots);

    tenant->request_time = dv_later(tenant->request_time, now - LAG_MAX_NS);
    tenant->fair_time =
        dv_later(tenant->fair_time,
                 policy->fair_clock - (uint64_t)dv_weighted(LAG_MAX_NS, share->weight));
    if (share->request_ppm) {
        /* Guarantees go by due time, whatever the class; only latency work is put first. */
        dv_ns due = tenant->request_time;
        dv_line_insert(&policy->by_request, &tenant->by_request, due,
                       due + (uint64_t)dv_at_share(turn_ns, share->request_ppm),
                       share->class == DV_CLASS_LATENCY ? DV_CLASS_LATENCY : DV_CLASS_STANDARD,
                       now);
    }
    dv_line_insert(&policy->by_fair, &tenant->by_fair, tenant->fair_time,
                   tenant->fair_time + (uint64_t)dv_weighted(turn_ns, share->weight), share->class,
                   policy->fair_clock);
}

static void elastic_enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    if (is_limited(tenant) && dv_before(now, tenant->limit_time))
        dv_tree_insert(&policy->by_other, &tenant->by_other, 0, tenant->limit_time);
    else
        make_ready(policy, tenant, now);
    count_weight(policy, tenant);
}

static void elastic_leave(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    dv_line_remove(&tenant->by_request);
    dv_line_remove(&tenant->by_fair);
    dv_tree_remove(&tenant->by_other);
    count_weight(policy, tenant);
}

static void elastic_demand_ends(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    (void)now;
    count_weight(policy, tenant);
}

/* Brings the lines to the present: whose limit lets it run again, whose guarantee is due, who is
 * entitled by weight. */
static void advance(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_node *node;

    while ((node = dv_tree_first(&policy->by_other)) && !dv_before(now, node->key)) {
        struct dv_policy_tenant *tenant = DV_TENANT_OF(node, by_other);
        dv_tree_remove(node);
        /* Held back, it was no part of the sharing, and does not catch up on it. */
        catch_up(policy, now);
        tenant->fair_time = dv_later(tenant->fair_time, policy->fair_clock);
        make_ready(policy, tenant, now);
        count_weight(policy, tenant);
    }
    dv_line_advance(&policy->by_request, now);
    dv_line_advance(&policy->by_fair, policy->fair_clock);
}

/* A waiting tenant of the latency class that is still within its entitlement. */
static struct dv_pick pick_latency(struct dv_policy *policy)
{
    struct dv_policy_place *due = dv_line_first_ready(&policy->by_request);
    struct dv_policy_place *fair = dv_line_first_ready(&policy->by_fair);
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
    pick = pick_latency(policy);
    if (!pick.tenant && (place = dv_line_first_ready(&policy->by_request)))
        pick = (struct dv_pick){
            .tenant = tenant_by_request(place), .rule = DV_RULE_REQUEST, .guaranteed = true};
    if (!pick.tenant) {
        catch_up(policy, now);
        dv_line_advance(&policy->by_fair, policy->fair_clock);
        place = dv_line_first_ready(&policy->by_fair);
        if (!place) /* the holders of other slots are behind: nobody idles for them */
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

static void elastic_hold_began(struct dv_policy *policy, struct dv_policy_session *session,
                               dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    session->fair_at_grant = tenant->fair_time;
    tenant->limit_time = dv_later(tenant->limit_time, now - LIMIT_BURST_NS);
    count_weight(policy, tenant);
}

static void elastic_charge(struct dv_policy *policy, struct dv_policy_session *session,
                           int64_t delta_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;
    const struct dv_share *share = &tenant->share;

    (void)policy, (void)now;
    tenant->fair_time += (uint64_t)dv_weighted(delta_ns, share->weight);
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
    uint64_t step = (uint64_t)dv_weighted((int64_t)device_ns, share->weight);

    if (session->guaranteed) {
        /* Counts as received, but a request above the share by weight must not pile up a debt that
         * the tenant would pay off for ever once others leave. */
        uint64_t most = dv_later(session->fair_at_grant, policy->fair_clock + step);
        tenant->fair_time = dv_earlier(tenant->fair_time, most);
    } else {
        policy->fair_clock += (uint64_t)dv_weighted((int64_t)device_ns, policy->total_weight);
    }
    /* More than guaranteed is never held against the guarantee beyond this one turn. */
    if (share->request_ppm)
        tenant->request_time = dv_earlier(
            tenant->request_time,
            now + (uint64_t)dv_at_share((int64_t)device_ns, share->request_ppm));
}

/* Keeps what a tenant is ahead or behind, in device time, under the new share. */
static void elastic_share_changed(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                                  const struct dv_share *old, dv_ns now)
{
    const struct dv_share *share = &tenant->share;
    int64_t fair_lead = (int64_t)(tenant->fair_time - policy->fair_clock);
    int64_t limit_lead = (int64_t)(tenant->limit_time - now);

    if (tenant->counted)
        policy->total_weight += (uint64_t)share->weight - old->weight;
    tenant->fair_time = policy->fair_clock + (uint64_t)(fair_lead / share->weight * old->weight);
    if (share->request_ppm != old->request_ppm)
        tenant->request_time = now;
    if (old->limit_ppm >= DV_PPM || limit_lead < 0)
        tenant->limit_time = now;
    else
        tenant->limit_time =
            now + (uint64_t)(limit_lead / (int64_t)(share->limit_ppm ? share->limit_ppm : 1) *
                             old->limit_ppm);
}

/* On a device with several slots, latency work gets as many as it takes to be done in time; the
 * others stay where they are. With one slot that is all or nothing. */
static uint32_t elastic_slots_wanted(struct dv_policy *policy, dv_ns now)
{
    advance(policy, now);
    if (!pick_latency(policy).tenant)
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
    if (dv_line_first_ready(&policy->by_fair) || dv_line_first_ahead(&policy->by_fair))
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
