/* The default policy: guaranteed shares first, the rest by weight, no tenant above its limit,
 * and classes that decide the order among the tenants that are entitled to run.
 *
 * Each tenant has three clocks, all moved by the device time it really had:
 *   request_time  when its guaranteed share is due next; runs in real time
 *   fair_time     device time for its weight; compared with that of the others
 *   limit_time    when its limit lets it run again; runs in real time
 * The policy's fair_clock is the mean fair_time of all tenants that share by weight: a tenant that is
 * not ahead of it has not had more than it is entitled to.
 *
 * Lines (see order.h) hold the waiting tenants: by request and by weight, one for each class that goes
 * before others. In each, a tenant can be served once its start has come, and the earliest finish goes
 * first. A tenant whose finish has passed is late, and no class goes before it. So a class buys order,
 * not share: no tenant falls behind its entitlement by much more than one slice, however uneven the
 * shares are.
 *
 * Work of class idle has no share by weight. It runs when no other work can, in an order of its own
 * (idle_clock). */
#include "src/policy/order.h"

/* Handing the device over takes its learned cost, but at most 1/HAND_OVER_PART of a hold. No kernel of
 * the tenant runs then; if no other tenant wants the device, its limit does not count this time. */
#define HAND_OVER_PART 100

/* Device time that latency work may save up while it is idle. */
#define LATENCY_SAVED_NS (20 * DV_NS_PER_MS)

static bool is_limited(const struct dv_policy_tenant *tenant)
{
    return tenant->share.limit_ppm < DV_PPM;
}

static bool is_idle_class(const struct dv_policy_tenant *tenant)
{
    return tenant->share.class == DV_CLASS_IDLE;
}

static struct dv_policy_tenant *tenant_by_request(struct dv_line_entry *entry)
{
    return entry ? DV_TENANT_OF(entry, by_request) : NULL;
}

static struct dv_policy_tenant *tenant_by_fair(struct dv_line_entry *entry)
{
    return entry ? DV_TENANT_OF(entry, by_fair) : NULL;
}

/* ---- sharing by weight ---- */

static dv_wide lead_of(const struct dv_policy *policy, const struct dv_policy_tenant *tenant)
{
    return (dv_wide)tenant->share.weight * (int64_t)(tenant->fair_time - policy->fair_clock);
}

/* Moves the clock to the weighted mean of the sharing tenants; without any, it stays. */
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

/* Whether it is so far ahead of the others that it is in debt. */
static bool is_far_ahead(const struct dv_policy_tenant *tenant, int64_t lead)
{
    return lead > dv_weighted((int64_t)DV_OVERRUN_FROM_NS, tenant->share.weight);
}

/* A tenant takes part while it waits or holds, unless its request gives it more than its weight, or
 * its limit less, or it is in debt. A tenant in debt waits until the others have caught up, by their
 * own clock. */
static void share_if_due(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    bool wants = tenant->waiting_count > 0 || tenant->holding_count > 0;

    tenant->in_debt = tenant->in_debt && dv_before(policy->fair_clock, tenant->fair_time);
    if (tenant->counted || !wants || tenant->at_request || tenant->at_limit || tenant->in_debt || is_idle_class(tenant))
        return;
    policy->fair_lead_sum += lead_of(policy, tenant);
    policy->total_weight += tenant->share.weight;
    tenant->counted = true;
    set_fair_clock(policy);
}

static void set_fair_time(struct dv_policy *policy, struct dv_policy_tenant *tenant, uint64_t time)
{
    if (tenant->counted)
        policy->fair_lead_sum += (dv_wide)tenant->share.weight * (int64_t)(time - tenant->fair_time);
    tenant->fair_time = time;
    set_fair_clock(policy);
}

/* The clock at this moment. Holds are charged in advance, so that a tenant does not get two slots
 * for one share. But the clock that entitles others moves with the time that passes; otherwise a
 * grant would at once entitle tenants for which the holder is recalled. */
static uint64_t clock_at(const struct dv_policy *policy, dv_ns now)
{
    int64_t ahead_ns = 0;

    if (!policy->total_weight)
        return policy->fair_clock;
    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next)
        if (holder->tenant->counted)
            ahead_ns += holder->charged_ns - (int64_t)((now - holder->granted_at) / policy->slots);
    return policy->fair_clock - (uint64_t)(dv_weighted(ahead_ns, 1) / policy->total_weight);
}

/* Where a new tenant begins: at the mean of the sharing tenants, by what holders have really had,
 * since holds are charged in advance; but no later than the mean of the waiting tenants, because a
 * holder that is ahead may leave. */
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
        if (!holder->tenant->waiting_count) {
            waiting_sum -= lead_of(policy, holder->tenant);
            waiting_weight -= holder->tenant->share.weight;
        }
    }
    if (all_weight <= 0)
        return policy->fair_clock;
    uint64_t start = policy->fair_clock + (uint64_t)(int64_t)(all_sum / all_weight);
    if (waiting_weight > 0)
        start = dv_earlier(start, policy->fair_clock + (uint64_t)(int64_t)(waiting_sum / waiting_weight));
    return start;
}

/* The longest hold that a tenant is expected to wait for. Unused time is saved up for a few of these.
 * Time lost to longer holds is owed to the tenant and counted apart. */
static dv_ns usual_hold(const struct dv_policy *policy)
{
    return policy->longest_hold_ns < DV_HOLD_USUAL_MAX_NS ? policy->longest_hold_ns : DV_HOLD_USUAL_MAX_NS;
}

/* Device time by request counts as received. But a request above the share by weight must not pile
 * up a debt that the tenant would pay off for ever once others leave. It stays just far enough ahead
 * to get nothing by weight on top, even if it is granted the device one hold late. */
static uint64_t furthest_ahead(const struct dv_policy *policy, const struct dv_policy_tenant *tenant, dv_ns device_ns)
{
    const struct dv_share *share = &tenant->share;
    int64_t late_ns = (int64_t)(2 * usual_hold(policy) * policy->slots * share->request_ppm / DV_PPM);

    return policy->fair_clock + (uint64_t)dv_weighted((int64_t)device_ns * policy->slots + late_ns, share->weight);
}

/* The maximum lag behind the clock that a tenant can have rightly: its own slice, and one hold of
 * each other tenant before it. The clock of the others alone, used while the tenant is not among
 * them, runs ahead of the one that includes it. */
static uint64_t furthest_behind(const struct dv_policy *policy, const struct dv_policy_tenant *tenant)
{
    int64_t weight = tenant->share.weight;
    int64_t others = policy->total_weight - (tenant->counted ? weight : 0);
    int64_t clock_of = tenant->counted ? others + weight : others;
    int64_t slice_ns = (int64_t)(tenant->slice_ns / policy->slots);
    int64_t holds_ns = (int64_t)usual_hold(policy) * (policy->demanding_tenants + 1);

    if (!others)
        return tenant->fair_time;
    dv_wide slice = (dv_wide)dv_weighted(slice_ns, tenant->share.weight) * (others + weight);
    return policy->fair_clock - (uint64_t)((slice + dv_weighted(holds_ns, 1)) / clock_of);
}

/* A tenant that is further behind cannot use what its weight entitles it to: it pauses, or has
 * fewer sessions than the device has slots, or its limit holds it back. It does not save that up,
 * and keeps just enough lag to go first when it can run. */
static void bound_lag(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    uint64_t furthest = furthest_behind(policy, tenant);

    if (dv_before(tenant->fair_time, furthest)) {
        stop_sharing(policy, tenant);
        tenant->at_limit = true;
        tenant->fair_time = furthest;
    } else if (!dv_before(tenant->fair_time, policy->fair_clock)) {
        tenant->at_limit = false;
    }
}

/* ---- guarantees ---- */

static dv_ns overrun_of(dv_ns held_ns)
{
    return held_ns > DV_OVERRUN_FROM_NS ? held_ns - DV_OVERRUN_FROM_NS : 0;
}

/* All overruns up to this moment, without those of the tenant's present holds. */
static uint64_t overruns_at(const struct dv_policy *policy, const struct dv_policy_tenant *tenant, dv_ns now)
{
    uint64_t sum = policy->overruns_ns;

    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next)
        if (holder->tenant != tenant)
            sum += overrun_of(now - holder->granted_at);
    return sum;
}

/* While a tenant waits, the overruns of others are owed to it. */
static void note_owed(const struct dv_policy *policy, struct dv_policy_tenant *tenant, bool waited, dv_ns now)
{
    uint64_t overruns = overruns_at(policy, tenant, now);

    if (waited)
        tenant->owed_ns += overruns - tenant->overruns_seen;
    tenant->overruns_seen = overruns;
}

/* When its guarantee is due: at the earliest, as long ago as is usual plus owed_ns, because unused time
 * is not saved up. Time that has been made up for is no longer owed. */
static dv_ns due_time(const struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    int64_t slice_ns = (int64_t)(tenant->slice_ns / policy->slots);
    dv_ns usual =
        now - (dv_ns)dv_at_share(slice_ns, tenant->share.request_ppm) - 2 * usual_hold(policy) * policy->slots;

    note_owed(policy, tenant, true, now);
    if (!dv_before(tenant->request_time, usual))
        tenant->owed_ns = 0;
    else if (usual - tenant->request_time < tenant->owed_ns)
        tenant->owed_ns = usual - tenant->request_time;
    return dv_later(tenant->request_time, usual - tenant->owed_ns);
}

/* ---- waiting tenants ---- */

static void elastic_init(struct dv_policy *policy, dv_ns now)
{
    (void)now;
    policy->fair_clock = policy->idle_clock = 0;
    policy->fair_lead_sum = 0;
    policy->total_weight = 0;
    policy->by_other = (struct dv_policy_tree){0};
    for (int i = 0; i < DV_REQUEST_LINES; i++)
        dv_line_init(&policy->by_request[i]);
    for (int i = 0; i < DV_CLASS_COUNT; i++)
        dv_line_init(&policy->by_fair[i]);
    for (int i = 0; i < DV_CLASS_IDLE; i++)
        policy->by_resident[i] = (struct dv_policy_tree){0};
}

static void elastic_tenant_added(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    tenant->fair_time = is_idle_class(tenant) ? policy->idle_clock : policy->fair_clock;
    tenant->request_time = now;
    tenant->limit_time = now;
    tenant->fair_lead = tenant->set_aside = 0;
    tenant->in_debt = false;
    tenant->owed_ns = 0;
    tenant->overruns_seen = policy->overruns_ns;
    tenant->request_of_clock = tenant->share.request_ppm;
    tenant->demand_ended_at = now - DV_SAME_DEMAND_NS - 1;
}

/* Its limit clock, with at most unused_ns of unused device time. */
static dv_ns limit_not_before(const struct dv_policy_tenant *tenant, dv_ns unused_ns, dv_ns now)
{
    return dv_later(tenant->limit_time, now - (uint64_t)dv_at_share((int64_t)unused_ns, tenant->share.limit_ppm));
}

/* A tenant does not catch up on idle time. If it had more than its share before, it still owes the
 * part that the others have not caught up on meanwhile. */
static int64_t debt_left(const struct dv_policy *policy, const struct dv_policy_tenant *tenant, dv_ns now)
{
    int64_t sharers = policy->total_weight + tenant->share.weight;
    int64_t idle_ns = (int64_t)(now - tenant->demand_ended_at);
    dv_wide left = (dv_wide)tenant->fair_lead - (dv_wide)dv_weighted(1, 1) * idle_ns / sharers;

    return left > 0 ? (int64_t)left : 0;
}

/* No tenant has waited without a pause since the debts arose, so they are owed to no tenant that is
 * here. The clock goes on at the tenant that is least in debt. */
static void forget_debts(struct dv_policy *policy)
{
    uint64_t first = 0;
    bool any = false;

    if (policy->total_weight)
        return;
    for (int i = 0; i < DV_CLASS_IDLE; i++) {
        struct dv_line_entry *entry = dv_line_first_ahead(&policy->by_fair[i]);
        if (entry && (!any || dv_before(tenant_by_fair(entry)->fair_time, first)))
            first = tenant_by_fair(entry)->fair_time;
        any |= entry != NULL;
    }
    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next) {
        if (!holder->tenant->in_debt)
            continue;
        if (!any || dv_before(holder->tenant->fair_time, first))
            first = holder->tenant->fair_time;
        any = true;
    }
    if (any)
        policy->fair_clock = dv_later(policy->fair_clock, first);
}

/* Whether a tenant goes on as if it had not stopped. A tenant that pauses long compared with its holds
 * has less work than its share, and is owed nothing. */
static bool has_hardly_paused(const struct dv_policy_tenant *tenant, dv_ns now)
{
    dv_ns pause_ns = now - tenant->demand_ended_at;

    return pause_ns <= DV_SAME_DEMAND_NS && pause_ns <= tenant->last_hold_ns / 4;
}

/* On its request clock. Unused time is not saved up; but requests of a service come in clusters, and a
 * cluster that its guarantee covers on average should not be cut short. */
static dv_ns saved_by_idling(const struct dv_policy_tenant *tenant)
{
    const struct dv_share *share = &tenant->share;

    if (share->class != DV_CLASS_LATENCY || !share->request_ppm)
        return 0;
    return (dv_ns)dv_at_share(LATENCY_SAVED_NS, share->request_ppm);
}

static void elastic_demand_begins(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    note_owed(policy, tenant, false, now);
    if (!has_hardly_paused(tenant, now)) {
        tenant->owed_ns = 0;
        forget_debts(policy);
        /* Device time that no other tenant wanted does not count against the guarantee. */
        if (policy->demanding_tenants == 1 && policy->holders.first) {
            struct dv_policy_tenant *holder = policy->holders.first->tenant;
            holder->request_time = dv_earlier(holder->request_time, now);
        }
    }
    if (now - tenant->demand_ended_at <= DV_SAME_DEMAND_NS)
        return;
    if (is_idle_class(tenant)) {
        tenant->fair_time = dv_later(tenant->fair_time, policy->idle_clock);
    } else {
        int64_t left = debt_left(policy, tenant, now);
        tenant->in_debt = is_far_ahead(tenant, left);
        tenant->fair_time = fair_start(policy, now) + (uint64_t)left;
    }
    tenant->request_time = dv_later(tenant->request_time, now - saved_by_idling(tenant));
    tenant->at_request = tenant->at_limit = false;
    if (is_limited(tenant))
        tenant->limit_time = limit_not_before(tenant, DV_SLICE_LIMITED_NS, now);
}

/* Requests of a service come in clusters: latency work may run up to one hold ahead of its share,
 * as long as no other tenant is late. With a guarantee it saves up a little instead, see
 * saved_by_idling. */
static uint64_t may_be_ahead(const struct dv_policy_tenant *tenant)
{
    const struct dv_share *share = &tenant->share;

    return share->class == DV_CLASS_LATENCY && !share->request_ppm
               ? (uint64_t)dv_weighted(DV_SLICE_MAX_NS, share->weight)
               : 0;
}

/* Puts the tenant into the lines of runnable tenants. */
static void make_ready(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    const struct dv_share *share = &tenant->share;
    int64_t slice_ns = (int64_t)(tenant->slice_ns / policy->slots);

    if (share->request_ppm) {
        /* Guarantees go by due time, whatever the class; only latency work is put first. */
        int line = share->class == DV_CLASS_LATENCY ? DV_REQUEST_LATENCY : DV_REQUEST_OTHERS;
        dv_ns due = due_time(policy, tenant, now);
        tenant->request_time = due;
        dv_line_insert(&policy->by_request[line], &tenant->by_request, due,
                       due + (uint64_t)dv_at_share(slice_ns, share->request_ppm), now);
    }
    if (!is_idle_class(tenant))
        bound_lag(policy, tenant);
    share_if_due(policy, tenant);
    dv_line_insert(&policy->by_fair[share->class], &tenant->by_fair, tenant->fair_time - may_be_ahead(tenant),
                   tenant->fair_time + (uint64_t)dv_weighted(slice_ns, share->weight),
                   is_idle_class(tenant) ? tenant->fair_time : policy->fair_clock);
    if (!is_idle_class(tenant) && tenant->order.count && !tenant->in_debt)
        dv_tree_insert(&policy->by_resident[share->class], &tenant->by_resident, tenant->fair_time);
}

static void elastic_enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    if (is_limited(tenant) && dv_before(now, tenant->limit_time)) {
        tenant->at_limit = true;
        stop_sharing(policy, tenant);
        dv_tree_insert(&policy->by_other, &tenant->by_other, tenant->limit_time);
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
    dv_tree_remove(&tenant->by_resident);
}

static void elastic_demand_ends(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    (void)now;
    stop_sharing(policy, tenant); /* its debt to the others counts by their clock */
    tenant->fair_lead = (int64_t)(tenant->fair_time - policy->fair_clock);
}

/* ---- the next tenant ---- */

/* Brings the lines up to date: tenants whose limit lets them run again, whose guarantee is due, or
 * that are entitled by weight. */
static void advance(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_node *node;
    uint64_t clock;

    while ((node = dv_tree_first(&policy->by_other)) && !dv_before(now, node->key)) {
        dv_tree_remove(node);
        make_ready(policy, DV_TENANT_OF(node, by_other), now);
    }
    clock = clock_at(policy, now);
    for (int i = 0; i < DV_REQUEST_LINES; i++)
        dv_line_advance(&policy->by_request[i], now);
    for (int i = 0; i < DV_CLASS_IDLE; i++)
        dv_line_advance(&policy->by_fair[i], clock);
}

/* The first in each line at one moment. NULL: nothing is ready there. */
struct front {
    struct dv_line_entry *latency_due, *other_due; /* guarantees */
    struct dv_line_entry *fair[DV_CLASS_IDLE];     /* by weight, in each class */
    struct dv_line_entry *late;                    /* of them, the late one with the earliest finish */
    bool guarantee_late;                           /* the finish of other_due has passed */
};

static struct front look(struct dv_policy *policy, dv_ns now)
{
    uint64_t clock = clock_at(policy, now);
    struct front front = {.latency_due = dv_line_first_ready(&policy->by_request[DV_REQUEST_LATENCY], now),
                          .other_due = dv_line_first_ready(&policy->by_request[DV_REQUEST_OTHERS], now)};

    front.guarantee_late = front.other_due && dv_before(front.other_due->finish, now);
    for (int i = DV_CLASS_LATENCY; i < DV_CLASS_IDLE; i++) {
        struct dv_line_entry *entry = dv_line_first_ready(&policy->by_fair[i], clock);
        front.fair[i] = entry;
        if (entry && dv_before(entry->finish, clock) && (!front.late || dv_before(entry->finish, front.late->finish)))
            front.late = entry;
    }
    return front;
}

/* A waiting tenant of the latency class that goes before all others: it is within its entitlement,
 * and no other tenant is late, or not as late. */
static struct dv_pick pick_latency(const struct front *front)
{
    struct dv_line_entry *by_weight = front->fair[DV_CLASS_LATENCY];
    struct dv_pick pick = {.rule = DV_RULE_CLASS};
    bool first = front->latency_due &&
                 (!front->guarantee_late || dv_before(front->latency_due->finish, front->other_due->finish));

    if (first) {
        pick.tenant = tenant_by_request(front->latency_due);
        pick.guaranteed = true;
    } else if (!front->guarantee_late && (!front->late || front->late == by_weight)) {
        pick.tenant = tenant_by_fair(by_weight);
    }
    return pick;
}

/* By weight: a late tenant; else one that has not had its share yet, by class; else the one least
 * ahead, so that the device does not idle. */
static struct dv_line_entry *first_by_weight(struct dv_policy *policy, const struct front *front)
{
    struct dv_line_entry *least = NULL;

    if (front->late)
        return front->late;
    for (int i = DV_CLASS_LATENCY; i < DV_CLASS_IDLE; i++)
        if (front->fair[i])
            return front->fair[i];
    for (int i = DV_CLASS_LATENCY; i < DV_CLASS_IDLE; i++) {
        struct dv_line_entry *entry = dv_line_first_ahead(&policy->by_fair[i]);
        if (entry && (!least || dv_before(entry->start, least->start)))
            least = entry;
    }
    return least;
}

/* For time that no other tenant can use. */
static struct dv_pick pick_idle(struct dv_policy *policy)
{
    struct dv_policy_node *node = dv_tree_first(&policy->by_fair[DV_CLASS_IDLE].ready);

    if (!node)
        return (struct dv_pick){.rule = DV_RULE_LIMIT};
    struct dv_policy_tenant *tenant = DV_TENANT_OF(node, by_fair.node);
    policy->idle_clock = dv_later(policy->idle_clock, tenant->fair_time);
    return (struct dv_pick){.tenant = tenant, .rule = DV_RULE_LEFT_OVER};
}

/* Prefers resident memory among tenants, as dv_policy_next_session does among sessions of one: only
 * within a class, and only among those that share by weight. */
static struct dv_policy_tenant *with_memory_there(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    const struct dv_policy_session *session = dv_policy_next_session(tenant, now);
    struct dv_policy_node *node = dv_tree_first(&policy->by_resident[tenant->share.class]);

    if (!session->away || !node || now - session->waiting_since >= DV_AWAY_WAITS_NS)
        return NULL;
    return DV_TENANT_OF(node, by_resident);
}

/* Between two kernels a program does not ask for the device. A tenant with long holds would take every
 * such moment, and most of the device: it has to let the other tenant come back first. */
static bool must_let_others_come_back(const struct dv_policy *policy, const struct dv_pick *pick, dv_ns now)
{
    return pick->tenant && !pick->guaranteed && pick->tenant->overran && policy->demanding_tenants == 1 &&
           policy->holders.count == 0 && pick->tenant->demand_ended_at != policy->demand_ended_at &&
           now - policy->demand_ended_at < DV_SAME_DEMAND_NS;
}

static struct dv_pick elastic_pick(struct dv_policy *policy, dv_ns now)
{
    advance(policy, now);
    struct front front = look(policy, now);
    struct dv_pick pick = pick_latency(&front);

    if (!pick.tenant && front.other_due) {
        pick = (struct dv_pick){.tenant = tenant_by_request(front.other_due),
                                .rule = DV_RULE_REQUEST,
                                .guaranteed = true,
                                .keeps_slice = front.guarantee_late};
    }
    if (!pick.tenant) {
        struct dv_line_entry *entry = first_by_weight(policy, &front);
        pick = (struct dv_pick){
            .tenant = tenant_by_fair(entry), .rule = DV_RULE_LEAST_SERVED, .keeps_slice = entry && entry == front.late};
        struct dv_policy_tenant *there = pick.tenant ? with_memory_there(policy, pick.tenant, now) : NULL;
        if (there)
            pick = (struct dv_pick){.tenant = there, .rule = DV_RULE_RESIDENT};
    }
    if (!pick.tenant)
        pick = pick_idle(policy);
    if (must_let_others_come_back(policy, &pick, now))
        return (struct dv_pick){.rule = DV_RULE_IDLE_WINDOW,
                                .ask_again_ns = policy->demand_ended_at + DV_SAME_DEMAND_NS};
    if (!pick.tenant)
        pick.ask_again_ns = dv_tree_first(&policy->by_other)->key;
    else if (policy->waiting_tenants == 1)
        pick.rule = DV_RULE_ONLY_ONE;
    return pick;
}

/* ---- charging ---- */

static void elastic_hold_began(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    session->fair_at_grant = tenant->fair_time;
    note_owed(policy, tenant, true, now);
    /* It waited for another's hold although its limit allowed it to run. It may make up for that;
     * otherwise waiting would cost it a part of what its limit allows. */
    if (is_limited(tenant))
        tenant->limit_time = limit_not_before(tenant, usual_hold(policy) * policy->slots, now);
}

static void elastic_charge(struct dv_policy *policy, struct dv_policy_session *session, int64_t delta_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;
    const struct dv_share *share = &tenant->share;

    (void)now;
    /* Idle work that keeps the device while other work waits takes more than what is left over. */
    if (is_idle_class(tenant) && policy->waiting_tenants > policy->waiting_idle)
        tenant->set_aside += dv_weighted(delta_ns, 1);
    set_fair_time(policy, tenant, tenant->fair_time + (uint64_t)dv_weighted(delta_ns, share->weight));
    if (share->request_ppm)
        tenant->request_time += (uint64_t)dv_at_share(delta_ns, share->request_ppm);
    if (is_limited(tenant))
        tenant->limit_time += (uint64_t)dv_at_share(delta_ns, share->limit_ppm);
}

/* A hold by weight counts against the guarantee for one slice at most. */
static void forgive(struct dv_policy_tenant *tenant, dv_ns device_ns, dv_ns now)
{
    uint64_t slice = (uint64_t)dv_at_share((int64_t)device_ns, tenant->share.request_ppm);
    dv_ns before = tenant->request_time - slice;

    tenant->request_time = dv_later(before, dv_earlier(tenant->request_time, now + slice));
}

static void elastic_hold_ended(struct dv_policy *policy, struct dv_policy_session *session, dv_ns device_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;
    const struct dv_share *share = &tenant->share;

    if (is_limited(tenant) && policy->demanding_tenants <= 1) {
        dv_ns hand_over = device_ns / HAND_OVER_PART;
        if (hand_over > policy->hand_over_ns)
            hand_over = policy->hand_over_ns;
        tenant->limit_time -= (uint64_t)dv_at_share((int64_t)hand_over, share->limit_ppm);
    }
    policy->overruns_ns += overrun_of(tenant->last_hold_ns);
    tenant->overruns_seen += overrun_of(tenant->last_hold_ns); /* it owes itself nothing */
    if (!tenant->waiting_count)
        note_owed(policy, tenant, false, now);
    stop_sharing(policy, tenant);
    tenant->at_request = false;
    if (session->guaranteed && policy->demanding_tenants > 1 && !is_idle_class(tenant)) {
        uint64_t most = dv_later(session->fair_at_grant, furthest_ahead(policy, tenant, device_ns));
        /* If all others are held back, time by request does not measure what they should have. */
        tenant->at_request = dv_before(most, tenant->fair_time) || !policy->total_weight;
        tenant->fair_time = dv_earlier(tenant->fair_time, most);
    }
    if (tenant->last_hold_ns > DV_OVERRUN_FROM_NS && policy->total_weight)
        tenant->in_debt |= is_far_ahead(tenant, (int64_t)(tenant->fair_time - policy->fair_clock));
    share_if_due(policy, tenant);
    if (share->request_ppm && !session->guaranteed)
        forgive(tenant, device_ns, now);
}

/* The lead or lag of its guarantee under the new request: the same device time as under the request
 * that its clock has run by. A first request begins now. */
static int64_t request_lead(const struct dv_policy_tenant *tenant, dv_ns now)
{
    dv_wide lead = (int64_t)(tenant->request_time - now);

    return (int64_t)(lead * tenant->request_of_clock / tenant->share.request_ppm);
}

/* Keeps the tenant's lead or lag, in device time, under the new share. */
static void elastic_share_changed(struct dv_policy *policy, struct dv_policy_tenant *tenant, const struct dv_share *old,
                                  dv_ns now)
{
    const struct dv_share share = tenant->share;
    int64_t limit_lead = (int64_t)(tenant->limit_time - now);

    tenant->share = *old; /* it leaves with the weight it came with */
    stop_sharing(policy, tenant);
    tenant->share = share;
    if (old->class != DV_CLASS_IDLE)
        tenant->set_aside = (int64_t)(tenant->fair_time - policy->fair_clock) * old->weight;
    else if (tenant->set_aside < 0)
        tenant->set_aside = 0;
    tenant->fair_time =
        is_idle_class(tenant) ? policy->idle_clock : policy->fair_clock + (uint64_t)(tenant->set_aside / share.weight);
    tenant->in_debt = !is_idle_class(tenant) && is_far_ahead(tenant, (int64_t)(tenant->fair_time - policy->fair_clock));
    if (share.request_ppm) {
        tenant->request_time = now + (uint64_t)request_lead(tenant, now);
        tenant->request_of_clock = share.request_ppm;
    }
    if (old->limit_ppm >= DV_PPM || limit_lead < 0)
        limit_lead = 0;
    tenant->limit_time = now + (uint64_t)(limit_lead / (share.limit_ppm ? share.limit_ppm : 1) * old->limit_ppm);
    tenant->at_request = tenant->at_limit = false;
    share_if_due(policy, tenant);
}

/* ---- recalls ---- */

/* Waiting tenants that no limit holds back and that have a share. */
static uint32_t runnable_tenants(const struct dv_policy *policy)
{
    uint32_t count = 0;

    for (int i = 0; i < DV_CLASS_IDLE; i++)
        count += policy->by_fair[i].ready.count + policy->by_fair[i].ahead.count;
    return count;
}

/* On a device with several slots, latency work gets as many as it needs to finish in time; the other
 * holders stay. With one slot that is all or nothing. */
static uint32_t slots_for_latency(const struct dv_policy *policy)
{
    dv_ns target = policy->latency_target_ns ? policy->latency_target_ns : 1;
    uint64_t wanted = (policy->latency_work_ns + target - 1) / target;

    wanted = wanted ? wanted : 1;
    return wanted < policy->slots ? (uint32_t)wanted : policy->slots;
}

static uint32_t elastic_slots_wanted(struct dv_policy *policy, enum dv_class class, dv_ns now)
{
    advance(policy, now);
    if (class == DV_CLASS_IDLE)
        return runnable_tenants(policy);
    struct front front = look(policy, now);
    return pick_latency(&front).tenant ? slots_for_latency(policy) : 0;
}

static bool elastic_runnable(struct dv_policy *policy, dv_ns now, dv_ns *from)
{
    struct dv_policy_node *held;

    advance(policy, now);
    *from = now;
    if (runnable_tenants(policy) || policy->by_fair[DV_CLASS_IDLE].ready.count)
        return true;
    held = dv_tree_first(&policy->by_other);
    if (held)
        *from = held->key;
    return held != NULL;
}

const struct dv_policy_ops dv_policy_elastic = {
    .name = "elastic",
    .knows_classes = true,
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
