/* Shared by all policies: waiting sessions, holders, charges. Each policy only chooses the next
 * tenant. */
#include <string.h>

#include "src/policy/order.h"

/* Waiting latency work should be done within this time, or more slots are freed for it. */
#define LATENCY_TARGET_NS (20 * DV_NS_PER_MS)

/* A class recalls no holder sooner after its grant. A grant therefore always moves time on:
 * grants and recalls cannot repeat for ever at one moment. */
#define HOLD_MIN_NS (100 * DV_NS_PER_US)

/* Neither of two holders that wait for each other's room is recalled sooner after its grant. */
#define IN_LINE_MIN_NS DV_NS_PER_MS

/* The learned cost of a hand-over falls by 1/HAND_OVER_FALLS, and rises nine times as slowly. */
#define HAND_OVER_FALLS 16
#define HAND_OVER_START_NS (200 * DV_NS_PER_US)

/* How late a worker may be that gives back by itself at the end of its slice. */
#define GRACE_NS DV_NS_PER_MS

/* After a restart: a tenant that had work before and asks within this time keeps its place. */
#define RESUMES_WITHIN_NS (500 * DV_NS_PER_MS)

static const struct dv_policy_ops *const policies[] = {&dv_policy_elastic, &dv_policy_fair, &dv_policy_fifo,
                                                       &dv_policy_band};

const struct dv_policy_ops *dv_policy_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}

static const char *const class_words[] = {"latency", "standard", "batch", "idle"};

const char *dv_class_word(enum dv_class class)
{
    return class_words[class];
}

bool dv_class_by_word(const char *word, enum dv_class *class)
{
    for (int i = DV_CLASS_LATENCY; i < DV_CLASS_COUNT; i++) {
        if (strcmp(word, class_words[i]) == 0) {
            *class = (enum dv_class)i;
            return true;
        }
    }
    return false;
}

const char *dv_rule_text(enum dv_rule rule)
{
    static const char *const texts[] = {
        [DV_RULE_NONE] = "no session waits",
        [DV_RULE_ONLY_ONE] = "no other tenant had work",
        [DV_RULE_REQUEST] = "its guaranteed share was due",
        [DV_RULE_LEAST_SERVED] = "it had the least device time for its weight",
        [DV_RULE_CLASS] = "its class goes first",
        [DV_RULE_ARRIVAL] = "it came first",
        [DV_RULE_CREDIT] = "it had credit left",
        [DV_RULE_LIMIT] = "all waiting tenants are at their limits",
        [DV_RULE_BUSY] = "the device is in use",
        [DV_RULE_RESIDENT] = "its memory was on the device",
        [DV_RULE_CROWDED] = "its memory does not fit beside that of the present holders",
        [DV_RULE_LEFT_OVER] = "no other work could run",
        [DV_RULE_IDLE_WINDOW] = "kept free for a moment for an under-served tenant",
    };
    return (unsigned)rule < sizeof texts / sizeof texts[0] ? texts[rule] : "";
}

static void queue_append(struct dv_policy_queue *queue, struct dv_policy_session *session)
{
    session->next = NULL;
    session->prev = queue->last;
    if (queue->last)
        queue->last->next = session;
    else
        queue->first = session;
    queue->last = session;
    queue->count++;
}

static void queue_remove(struct dv_policy_queue *queue, struct dv_policy_session *session)
{
    if (session->prev)
        session->prev->next = session->next;
    else
        queue->first = session->next;
    if (session->next)
        session->next->prev = session->prev;
    else
        queue->last = session->prev;
    session->next = session->prev = NULL;
    queue->count--;
}

/* Idle work that is guaranteed a share may take the device from others. */
static bool takes_what_is_left(const struct dv_policy_tenant *tenant)
{
    return tenant->share.class == DV_CLASS_IDLE && !tenant->share.request_ppm;
}

/* A tenant leaves the policy's queues whenever its account changes, and then enters them again. */
static void leave(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    if (!tenant->waiting_count)
        return;
    policy->waiting_idle -= takes_what_is_left(tenant);
    policy->ops->leave(policy, tenant);
}

static void enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    if (!tenant->waiting_count)
        return;
    policy->waiting_idle += takes_what_is_left(tenant);
    policy->ops->enter(policy, tenant, now);
}

static void charge(struct dv_policy *policy, struct dv_policy_session *session, int64_t delta_ns, dv_ns now)
{
    leave(policy, session->tenant);
    policy->ops->charge(policy, session, delta_ns, now);
    enter(policy, session->tenant, now);
    session->charged_ns += delta_ns;
}

/* The device time that a hold takes: with several slots, a part of its length. */
static dv_ns device_time(const struct dv_policy *policy, dv_ns held_ns)
{
    return held_ns / policy->slots;
}

/* Charges holders for time beyond the expected slice, before a new tenant gets a place that depends
 * on it. */
static void settle(struct dv_policy *policy, dv_ns now)
{
    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next) {
        int64_t had_ns = (int64_t)device_time(policy, now - holder->granted_at);
        if (had_ns > holder->charged_ns)
            charge(policy, holder, had_ns - holder->charged_ns, now);
    }
}

static void begin_demand(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    if (tenant->in_demand)
        return;
    settle(policy, now);
    bool goes_on = tenant->resumes && now - tenant->demand_ended_at < RESUMES_WITHIN_NS;
    tenant->resumes = false;
    if (policy->ops->demand_begins && !goes_on)
        policy->ops->demand_begins(policy, tenant, now);
    tenant->in_demand = true;
    policy->demanding_tenants++;
}

static void end_demand(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    if (!tenant->in_demand || tenant->waiting_count || tenant->holding_count)
        return;
    if (policy->ops->demand_ends)
        policy->ops->demand_ends(policy, tenant, now);
    tenant->in_demand = false;
    tenant->demand_ended_at = policy->demand_ended_at = now;
    policy->demanding_tenants--;
}

/* Moving memory costs more than a slice. So a session whose memory is not there lets others go
 * first, but not for long. */
struct dv_policy_session *dv_policy_next_session(struct dv_policy_tenant *tenant, dv_ns now)
{
    struct dv_policy_node *there = dv_tree_first(&tenant->order);
    struct dv_policy_node *away = dv_tree_first(&tenant->order_away);

    if (!there)
        return away ? DV_SESSION_OF(away) : NULL;
    if (!away || dv_before(there->key, away->key) || now - DV_SESSION_OF(away)->waiting_since < DV_AWAY_WAITS_NS)
        return DV_SESSION_OF(there);
    return DV_SESSION_OF(away);
}

static void into_order(struct dv_policy_session *session)
{
    struct dv_policy_tenant *tenant = session->tenant;

    dv_tree_insert(session->away ? &tenant->order_away : &tenant->order, &session->in_order, session->served_time);
}

/* Sessions of a tenant are served by least device time. A session that comes back begins where the
 * last served one began: it does not catch up on its pause. */
static void start_waiting(struct dv_policy_session *session)
{
    struct dv_policy_tenant *tenant = session->tenant;

    session->waiting = true;
    session->served_time = dv_later(session->served_time, tenant->served_clock);
    tenant->waiting_count++;
    into_order(session);
}

/* Takes a session out of its tenant's order. The tenant is in no queue of the policy. */
static void stop_waiting(struct dv_policy *policy, struct dv_policy_session *session)
{
    struct dv_policy_tenant *tenant = session->tenant;

    dv_tree_remove(&session->in_order);
    tenant->waiting_count--;
    policy->waiting_sessions--;
    session->waiting = false;
    policy->latency_work_ns -= session->latency_work_ns;
    session->latency_work_ns = 0;
    if (tenant->waiting_count == 0)
        policy->waiting_tenants--;
}

void dv_policy_init(struct dv_policy *policy, const struct dv_policy_ops *ops, uint32_t slots, dv_ns now)
{
    *policy = (struct dv_policy){.ops = ops,
                                 .slots = slots ? slots : 1,
                                 .free_slots = slots ? slots : 1,
                                 .longest_hold_ns = DV_SLICE_MAX_NS,
                                 .hand_over_ns = HAND_OVER_START_NS,
                                 .moving_part_ppm = DV_MOVING_PART_PPM,
                                 .moved_slice_max_ns = DV_MOVED_SLICE_MAX_NS,
                                 .hold_max_ns = DV_HOLD_MOVING_MAX_NS,
                                 .latency_target_ns = LATENCY_TARGET_NS};
    ops->init(policy, now);
}

void dv_policy_tenant_add(struct dv_policy *policy, struct dv_policy_tenant *tenant, const struct dv_share *share,
                          dv_ns now)
{
    *tenant = (struct dv_policy_tenant){.share = *share, .slice_ns = DV_SLICE_START_NS, .next = policy->tenants};
    if (policy->tenants)
        policy->tenants->prev = tenant;
    policy->tenants = tenant;
    policy->tenant_count++;
    if (policy->ops->tenant_added)
        policy->ops->tenant_added(policy, tenant, now);
}

void dv_policy_tenant_remove(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    if (tenant->prev)
        tenant->prev->next = tenant->next;
    else
        policy->tenants = tenant->next;
    if (tenant->next)
        tenant->next->prev = tenant->prev;
    tenant->next = tenant->prev = NULL;
    policy->tenant_count--;
    if (policy->last_tenant == tenant)
        policy->last_tenant = NULL;
}

void dv_policy_tenant_set(struct dv_policy *policy, struct dv_policy_tenant *tenant, const struct dv_share *share,
                          dv_ns now)
{
    struct dv_share old = tenant->share;

    settle(policy, now);
    leave(policy, tenant);
    tenant->share = *share;
    if (policy->ops->share_changed)
        policy->ops->share_changed(policy, tenant, &old, now);
    enter(policy, tenant, now);
}

void dv_policy_session_init(struct dv_policy_session *session, struct dv_policy_tenant *tenant)
{
    *session = (struct dv_policy_session){.tenant = tenant};
}

void dv_policy_wait(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    if (session->waiting || session->holding)
        return;
    begin_demand(policy, tenant, now);
    session->waiting_since = now;
    if (tenant->share.class == DV_CLASS_LATENCY) {
        session->latency_work_ns = session->learned_ns ? session->learned_ns : session->burst.last_ns;
        policy->latency_work_ns += session->latency_work_ns;
    }
    start_waiting(session);
    policy->waiting_sessions++;
    if (tenant->waiting_count == 1) {
        policy->waiting_tenants++;
        enter(policy, tenant, now);
    }
}

void dv_policy_cancel(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    if (!session->waiting)
        return;
    leave(policy, tenant);
    stop_waiting(policy, session);
    enter(policy, tenant, now);
    end_demand(policy, tenant, now);
}

/* The length of a hold of which moving is a small part. A burst that is not much longer is not cut:
 * memory would have to be brought in once more. A longer one is cut into equal parts. */
static dv_ns worth_moving(const struct dv_policy *policy, const struct dv_policy_session *session)
{
    dv_ns fair = session->moved_ns / policy->moving_part_ppm * (DV_PPM - policy->moving_part_ppm);
    dv_ns burst = session->burst.p90_ns; /* learned_ns follows too slowly for bursts of seconds */

    burst = burst < policy->moved_slice_max_ns ? burst + burst / 20 : 0;
    if (burst > fair && fair > 0)
        fair = burst / ((burst + fair / 2) / fair);
    /* Others wait meanwhile. But a slice shorter than the moving for it would be wasted. */
    dv_ns most = policy->moved_slice_max_ns > session->moved_ns ? policy->moved_slice_max_ns : session->moved_ns;
    return fair < most ? fair : most;
}

/* Whether no other session waits that may take the device from this one: idle work may not. */
static bool is_alone(const struct dv_policy *policy, const struct dv_policy_tenant *tenant)
{
    uint32_t others = policy->waiting_tenants - 1;

    if (policy->ops->knows_classes && tenant->share.class != DV_CLASS_IDLE)
        others -= policy->waiting_idle;
    return others == 0 && tenant->waiting_count == 1;
}

/* Gives the slot to the next waiting session of the chosen tenant. */
static struct dv_decision grant(struct dv_policy *policy, const struct dv_pick *pick, dv_ns now)
{
    struct dv_policy_tenant *tenant = pick->tenant;
    struct dv_policy_session *session = dv_policy_next_session(tenant, now);
    bool alone = is_alone(policy, tenant);

    leave(policy, tenant);
    stop_waiting(policy, session);
    session->own_ns = session->slice_ns = tenant->slice_ns = dv_slice_learn(policy, session);
    dv_ns alone_ns = tenant->share.limit_ppm < DV_PPM ? DV_SLICE_ALONE_LIMITED_NS : DV_SLICE_ALONE_NS;
    if (alone && !policy->fixed_slice_ns && session->slice_ns < alone_ns)
        session->slice_ns = alone_ns;
    session->holding = true;
    session->recalled = session->moving = false;
    session->moved_ns = 0;
    session->granted_at = now;
    session->rule = tenant->last_rule = pick->rule;
    session->guaranteed = pick->guaranteed;
    session->keeps_ns = pick->keeps_slice ? session->own_ns : HOLD_MIN_NS;
    tenant->served_clock = session->served_time;
    queue_append(&policy->holders, session);
    tenant->holding_count++;
    policy->free_slots--;
    policy->last_tenant = tenant;
    if (policy->ops->hold_began)
        policy->ops->hold_began(policy, session, now);
    session->charged_ns = (int64_t)device_time(policy, session->own_ns);
    policy->ops->charge(policy, session, session->charged_ns, now);
    enter(policy, tenant, now);
    return (struct dv_decision){
        .session = session, .slice_ns = session->slice_ns, .linger_ns = dv_slice_linger(session), .rule = pick->rule};
}

struct dv_decision dv_policy_next(struct dv_policy *policy, dv_ns now)
{
    policy->crowded = false;
    if (policy->waiting_tenants == 0)
        return (struct dv_decision){.rule = DV_RULE_NONE};
    if (policy->free_slots == 0)
        return (struct dv_decision){.rule = DV_RULE_BUSY};
    if (policy->holders.first) /* several slots: time of a long kernel counts at once */
        settle(policy, now);
    struct dv_pick pick = policy->ops->pick(policy, now);
    if (!pick.tenant)
        return (struct dv_decision){.rule = pick.rule, .ask_again_ns = pick.ask_again_ns};
    policy->crowded = policy->holders.first && policy->may_run_beside &&
                      !policy->may_run_beside(policy, dv_policy_next_session(pick.tenant, now));
    if (policy->crowded)
        return (struct dv_decision){.rule = DV_RULE_CROWDED};
    return grant(policy, &pick, now);
}

/* The cost of a hand-over is the part of a hold in which the device was idle although there was
 * work. It includes gaps between kernels, and reports of sessions can be wrong, so the estimate
 * follows the lowest tenth: it is right if any session keeps the device busy, and too high only if
 * all of them report wrongly. */
static void learn_hand_over(struct dv_policy *policy, const struct dv_policy_session *session, dv_ns held_ns)
{
    dv_ns idle_ns = held_ns > session->busy_ns ? held_ns - session->busy_ns : 0;
    dv_ns known = policy->hand_over_ns;

    if (!session->busy_ns || session->moved_ns || held_ns < session->own_ns / 2)
        return;
    if (idle_ns < known)
        policy->hand_over_ns -= known / HAND_OVER_FALLS;
    else if (known * DV_HAND_OVER_PART < DV_SLICE_DEAR_MAX_NS)
        policy->hand_over_ns += known / (HAND_OVER_FALLS * 9) + 1;
}

void dv_policy_release(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    if (!session->holding)
        return;
    dv_policy_in_line(policy, session, false, now);
    dv_ns held_ns = now - session->granted_at;
    dv_ns device_ns = device_time(policy, held_ns);
    learn_hand_over(policy, session, held_ns);
    session->busy_ns = 0;
    tenant->used_ns += device_ns;
    tenant->last_hold_ns = held_ns;
    tenant->overran = session->recalled && now - session->recalled_at > DV_OVERRUN_FROM_NS;
    session->served_time += device_ns;
    policy->longest_hold_ns -= policy->longest_hold_ns / 1024; /* forgotten in time */
    if (policy->longest_hold_ns < DV_SLICE_MAX_NS)
        policy->longest_hold_ns = DV_SLICE_MAX_NS;
    if (policy->longest_hold_ns < device_ns)
        policy->longest_hold_ns = device_ns;
    leave(policy, tenant);
    policy->ops->charge(policy, session, (int64_t)device_ns - session->charged_ns, now);
    if (policy->ops->hold_ended)
        policy->ops->hold_ended(policy, session, device_ns, now);
    queue_remove(&policy->holders, session);
    session->holding = session->recalled = false;
    tenant->holding_count--;
    if (policy->excess)
        policy->excess--;
    else
        policy->free_slots++;
    enter(policy, tenant, now);
    end_demand(policy, tenant, now);
}

void dv_policy_set_away(struct dv_policy *policy, struct dv_policy_session *session, bool away, dv_ns now)
{
    if (session->away == away)
        return;
    leave(policy, session->tenant);
    session->away = away;
    if (session->waiting)
        into_order(session);
    enter(policy, session->tenant, now);
}

void dv_policy_moves(struct dv_policy_session *session, dv_ns most_ns, dv_ns now)
{
    session->moving_most_ns = most_ns;
    if (session->moving) /* a repeated call does not restart the time */
        return;
    session->moving = session->holding;
    session->moving_since = now;
}

void dv_policy_in_line(struct dv_policy *policy, struct dv_policy_session *session, bool in_line, dv_ns now)
{
    if (session->in_line == in_line || !session->holding)
        return;
    session->in_line = in_line;
    session->in_line_since = now;
    policy->in_line += in_line ? 1 : -1;
}

/* When a holder can be recalled although it still brings memory in. */
static dv_ns moving_ends(const struct dv_policy *policy, const struct dv_policy_session *session)
{
    dv_ns had_ns = session->moved_ns < DV_MOVING_MAX_NS ? session->moved_ns : DV_MOVING_MAX_NS;
    dv_ns most_ns = DV_MOVING_MAX_NS - had_ns;

    if (session->moving_most_ns < most_ns)
        most_ns = session->moving_most_ns;
    return dv_earlier(session->moving_since + most_ns, session->granted_at + policy->hold_max_ns);
}

static bool is_moving(const struct dv_policy *policy, const struct dv_policy_session *session, dv_ns now)
{
    return session->moving && dv_before(now, moving_ends(policy, session));
}

bool dv_policy_class_waits(const struct dv_policy *policy, enum dv_class class)
{
    const struct dv_policy_line *line = &policy->by_fair[class];

    return policy->ops != &dv_policy_elastic || line->ready.count + line->ahead.count > 0;
}

static dv_ns beyond(dv_ns a, dv_ns b)
{
    return a > b ? a - b : 0;
}

struct dv_decision dv_policy_moved(struct dv_policy *policy, struct dv_policy_session *session, dv_ns took_ns,
                                   dv_ns now)
{
    dv_ns used_ns = now - session->granted_at;

    session->moving = false;
    if (!session->holding || session->recalled)
        return (struct dv_decision){.rule = DV_RULE_NONE};
    if (took_ns > used_ns - session->moved_ns)
        took_ns = used_ns - session->moved_ns;
    session->moved_ns += took_ns;
    /* The rest of the slice remains, */
    dv_ns slice = beyond(session->slice_ns, used_ns - took_ns);
    dv_ns own = beyond(session->own_ns, used_ns - took_ns), linger = dv_slice_linger(session);
    if (!policy->fixed_slice_ns) {
        /* and is extended, so that moving was worth it. */
        dv_ns more = beyond(worth_moving(policy, session), used_ns - session->moved_ns);
        dv_ns most = beyond(policy->hold_max_ns, used_ns);
        more = more < most ? more : most;
        own = own > more ? own : more;
        slice = slice > own ? slice : own;
        /* leaving in a pause shorter than the cost of coming back is a loss */
        if (linger < session->moved_ns)
            linger = session->moved_ns < DV_LINGER_MOVING_MAX_NS ? session->moved_ns : DV_LINGER_MOVING_MAX_NS;
    }
    session->slice_ns = used_ns + slice;
    session->own_ns = session->tenant->slice_ns = used_ns + own;
    return (struct dv_decision){.session = session, .slice_ns = slice, .linger_ns = linger, .rule = session->rule};
}

/* Idle work that is guaranteed a share is idle work beyond that share only. */
static enum dv_class class_of(const struct dv_policy_session *holder)
{
    enum dv_class class = holder->tenant->share.class;
    return class == DV_CLASS_IDLE && holder->guaranteed ? DV_CLASS_BATCH : class;
}

/* A holder of this class, or of one that goes after it. The most recently begun hold loses least;
 * idle work steps aside before batch work, and that before standard work. A holder that brings
 * memory in steps aside as well: it stops between two pieces, and goes on from there in its next
 * hold. */
static struct dv_policy_session *victim(struct dv_policy *policy, enum dv_class class, dv_ns now, dv_ns *again)
{
    struct dv_policy_session *best = NULL;

    for (struct dv_policy_session *holder = policy->holders.last; holder; holder = holder->prev) {
        enum dv_class its = class_of(holder);
        if (its < class || holder->recalled || (best && its <= class_of(best)))
            continue;
        dv_ns from = holder->granted_at + holder->keeps_ns;
        dv_ns own_ends = holder->granted_at + holder->own_ns;
        if (!holder->moving && dv_before(now, own_ends) && own_ends - now < policy->hand_over_ns)
            continue; /* a recall would not be faster */
        if (!dv_before(now, from))
            best = holder;
        else if (!*again || dv_before(from, *again))
            *again = from;
    }
    return best;
}

/* When the holder is recalled: not before own_ns is over. A worker that knows the end of its slice
 * gives back by itself, and is recalled only if it does not. */
static dv_ns end_of_hold(const struct dv_policy *policy, const struct dv_policy_session *holder)
{
    dv_ns end = holder->slice_ns > holder->own_ns ? holder->granted_at + holder->own_ns
                                                  : holder->granted_at + holder->slice_ns + GRACE_NS;

    /* a session that can wait for less may have come since this long slice was given */
    return holder->moved_ns ? dv_earlier(end, holder->granted_at + policy->hold_max_ns) : end;
}

/* Whether another holder waits for room that this one may have; of two in line, the earlier one. */
static bool has_room_for_another(const struct dv_policy *policy, const struct dv_policy_session *holder)
{
    if (policy->in_line == 0 || !holder->in_line)
        return policy->in_line > 0;
    for (const struct dv_policy_session *other = policy->holders.first; other; other = other->next)
        if (other != holder && other->in_line && !other->recalled &&
            dv_before(other->in_line_since, holder->in_line_since))
            return true;
    return false;
}

static bool has_free_slot(const struct dv_policy *policy)
{
    return policy->free_slots && !policy->crowded;
}

/* A holder whose time is over because another session can run, or because of its own limit. */
static struct dv_policy_session *overdue(struct dv_policy *policy, dv_ns now, dv_ns *again)
{
    dv_ns from = now;
    bool any = !has_free_slot(policy) && policy->waiting_tenants &&
               (!policy->ops->runnable || policy->ops->runnable(policy, now, &from));
    bool only_idle = policy->ops->knows_classes && policy->waiting_idle == policy->waiting_tenants;

    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next) {
        bool limited = holder->tenant->share.limit_ppm < DV_PPM;
        bool wanted = any && (!only_idle || holder->tenant->share.class == DV_CLASS_IDLE);
        bool in_way = has_room_for_another(policy, holder);
        if (holder->recalled || (!wanted && !limited && !in_way))
            continue;
        dv_ns at = in_way && holder->in_line        ? holder->granted_at + IN_LINE_MIN_NS
                   : is_moving(policy, holder, now) ? moving_ends(policy, holder)
                   : wanted || in_way               ? end_of_hold(policy, holder)
                                                    : holder->granted_at + holder->slice_ns + GRACE_NS;
        if (!limited && !in_way)
            at = dv_later(at, from);
        if (!dv_before(now, at))
            return holder;
        if (!*again || dv_before(at, *again))
            *again = at;
    }
    return NULL;
}

/* A holder of this class, or of one that goes after it, that must make room for a higher class. */
static struct dv_policy_session *in_the_way(struct dv_policy *policy, enum dv_class class, dv_ns now, dv_ns *again)
{
    uint32_t wanted = policy->ops->slots_wanted(policy, class, now);

    for (struct dv_policy_session *holder = policy->holders.first; holder && wanted; holder = holder->next)
        wanted -= holder->recalled || (class != DV_CLASS_IDLE && holder->tenant->share.class == DV_CLASS_LATENCY);
    return wanted ? victim(policy, class, now, again) : NULL;
}

static struct dv_policy_session *yields_to_class(struct dv_policy *policy, dv_ns now, dv_ns *again)
{
    if (has_free_slot(policy) || !policy->waiting_tenants || !policy->ops->slots_wanted)
        return NULL;
    struct dv_policy_session *chosen = in_the_way(policy, DV_CLASS_IDLE, now, again);
    return chosen ? chosen : in_the_way(policy, DV_CLASS_STANDARD, now, again);
}

struct dv_policy_session *dv_policy_recall(struct dv_policy *policy, dv_ns now, dv_ns *again)
{
    *again = 0;
    struct dv_policy_session *chosen = yields_to_class(policy, now, again);
    if (!chosen)
        chosen = overdue(policy, now, again);
    if (chosen) {
        chosen->recalled = true;
        chosen->recalled_at = now;
    }
    return chosen;
}

dv_ns dv_policy_held_back(const struct dv_policy *policy, const struct dv_policy_tenant *tenant, dv_ns now)
{
    bool limits = policy->ops == &dv_policy_elastic && tenant->share.limit_ppm < DV_PPM;
    return limits && dv_before(now, tenant->limit_time) ? tenant->limit_time - now : 0;
}

void dv_policy_switch(struct dv_policy *policy, const struct dv_policy_ops *ops, dv_ns now)
{
    struct dv_policy_tenant *tenant;

    for (tenant = policy->tenants; tenant; tenant = tenant->next)
        leave(policy, tenant);
    policy->ops = ops;
    policy->demanding_tenants = 0;
    ops->init(policy, now);
    for (tenant = policy->tenants; tenant; tenant = tenant->next) {
        tenant->counted = tenant->at_request = tenant->at_limit = false;
        tenant->fair_time = tenant->share.class == DV_CLASS_IDLE ? 0 : policy->fair_clock;
        tenant->request_time = tenant->limit_time = tenant->demand_ended_at = now;
        tenant->credit_ns = tenant->period_ns = 0;
        if (ops->tenant_added)
            ops->tenant_added(policy, tenant, now);
        if (!tenant->in_demand)
            continue;
        if (ops->demand_begins)
            ops->demand_begins(policy, tenant, now);
        policy->demanding_tenants++;
    }
    for (tenant = policy->tenants; tenant; tenant = tenant->next)
        enter(policy, tenant, now);
}

/* ---- after a restart ---- */

/* No account is further off than this, and no hold longer. */
#define ADOPTED_MOST_NS (600 * DV_NS_PER_S)

static dv_ns near_now(dv_ns time, dv_ns now)
{
    int64_t off = (int64_t)(time - now);
    return off > -(int64_t)ADOPTED_MOST_NS && off < (int64_t)ADOPTED_MOST_NS ? time : now;
}

static int64_t bounded(int64_t ns)
{
    return ns > -(int64_t)ADOPTED_MOST_NS && ns < (int64_t)ADOPTED_MOST_NS ? ns : 0;
}

static uint64_t near_clock(const struct dv_policy *policy, uint64_t fair_time)
{
    int64_t lead = (int64_t)(fair_time - policy->fair_clock), most = dv_weighted(ADOPTED_MOST_NS, 1);
    return lead > -most && lead < most ? fair_time : policy->fair_clock;
}

struct dv_policy_account dv_policy_account(const struct dv_policy_tenant *tenant)
{
    return (struct dv_policy_account){.used_ns = tenant->used_ns,
                                      .slice_ns = tenant->slice_ns,
                                      .fair_time = tenant->fair_time,
                                      .request_time = tenant->request_time,
                                      .limit_time = tenant->limit_time,
                                      .credit_ns = tenant->credit_ns,
                                      .period_ns = tenant->period_ns,
                                      .in_demand = tenant->in_demand};
}

void dv_policy_adopt_tenant(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                            const struct dv_policy_account *account, dv_ns now)
{
    tenant->used_ns = account->used_ns;
    tenant->slice_ns =
        account->slice_ns && account->slice_ns <= DV_HOLD_MOVING_MAX_NS ? account->slice_ns : DV_SLICE_START_NS;
    if (tenant->share.class != DV_CLASS_IDLE) /* their clock begins anew */
        tenant->fair_time = near_clock(policy, account->fair_time);
    tenant->fair_lead = (int64_t)(tenant->fair_time - policy->fair_clock);
    tenant->request_time = near_now(account->request_time, now);
    tenant->limit_time = near_now(account->limit_time, now);
    tenant->credit_ns = bounded(account->credit_ns);
    tenant->period_ns = bounded(account->period_ns);
    tenant->in_debt = tenant->fair_lead > dv_weighted((int64_t)DV_OVERRUN_FROM_NS, tenant->share.weight);
    tenant->demand_ended_at = now;
    tenant->resumes = account->in_demand;
}

struct dv_policy_hold dv_policy_hold(const struct dv_policy_session *session)
{
    return (struct dv_policy_hold){.granted_at = session->granted_at,
                                   .slice_ns = session->slice_ns,
                                   .own_ns = session->own_ns,
                                   .charged_ns = session->charged_ns,
                                   .fair_at_grant = session->fair_at_grant,
                                   .guaranteed = session->guaranteed};
}

void dv_policy_adopt_hold(struct dv_policy *policy, struct dv_policy_session *session,
                          const struct dv_policy_hold *hold, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;
    bool sound = hold->slice_ns <= DV_HOLD_MOVING_MAX_NS && hold->own_ns <= hold->slice_ns;

    session->granted_at = dv_earlier(near_now(hold->granted_at, now), now);
    session->slice_ns = sound ? hold->slice_ns : DV_SLICE_START_NS;
    session->own_ns = sound ? hold->own_ns : DV_SLICE_START_NS;
    session->charged_ns = bounded(hold->charged_ns);
    session->fair_at_grant = near_clock(policy, hold->fair_at_grant);
    session->guaranteed = hold->guaranteed;
    begin_demand(policy, tenant, now);
    leave(policy, tenant);
    session->holding = true;
    queue_append(&policy->holders, session);
    tenant->holding_count++;
    if (policy->free_slots)
        policy->free_slots--;
    else
        policy->excess++;
    enter(policy, tenant, now);
}

struct dv_decision dv_policy_rest(const struct dv_policy_session *session, dv_ns now)
{
    return (struct dv_decision){.slice_ns = beyond(session->slice_ns, now - session->granted_at),
                                .linger_ns = dv_slice_linger(session)};
}

dv_ns dv_policy_error_bound(dv_ns slice_ns, dv_ns kernel_ns)
{
    dv_ns own_ns = slice_ns > kernel_ns ? slice_ns : kernel_ns;
    return own_ns * 5 / 2;
}
