/* Room on a device: which session's memory is resident, and which sessions evict for others (see memory.h).
 *
 * Only the holder of a device makes others evict: two sessions that both did would take room from each other for
 * ever. A session that asks ahead of its grant gets free room, or room that idle sessions make. */
#include <string.h>
#include <utlist.h>

#include "src/arbiter/ledger/private.h"

/* Granted beyond what is asked for, if there is plenty: the next objects need not ask. */
#define EXTRA_BYTES (UINT64_C(32) << 20)
#define EXTRA_PART 8 /* of what is free, at most */
/* A session that does not evict within this time after it was asked is skipped, unless its class has a deadline. */
#define EVICTION_PATIENCE_NS (2 * DV_NS_PER_S)
/* A queued holder may be recalled after this time, when others have work for the device. */
#define QUEUED_HOLDS_NS (10 * DV_NS_PER_MS)
/* While sessions are queued, sessions that kept something are asked again this often. */
#define ASK_AGAIN_NS (100 * DV_NS_PER_MS)
/* A session is idle after this time without using the device or waiting for it. */
#define IDLE_FROM_NS DV_NS_PER_S
/* Sessions that one request for room asks to evict. */
#define VICTIMS_MAX 16
/* Less than this is brought in without a delay that others would notice. */
#define AWAY_FROM_BYTES (UINT64_C(1) << 20)
/* Bringing memory in is never slower than this. Some time beside it counts as moving, too, and a busy machine may
 * be late. */
#define MOVED_MIN_BYTES_PER_US 128
#define MOVING_COSTS_BESIDE_NS (5 * DV_NS_PER_MS)
#define MOVING_MAY_BE_LATE_NS (100 * DV_NS_PER_MS)

static dv_ns now_of(const struct dvd_lease *lease)
{
    return dvd_ledger_now(lease->device->ledger);
}

/* ---- sums ---- */

/* Free bytes of the device within the tenant's quota. */
static uint64_t free_room(const struct dvd_lease *lease)
{
    const struct dvd_device *device = lease->device;
    const struct dvd_tenant_memory *tenant = &lease->tenant->memory;

    return dvd_min(dvd_excess(device->terms.capacity_bytes, 0, device->memory.placed),
                   dvd_excess(tenant->quota, 0, tenant->placed));
}

static void set_placed(struct dvd_lease *lease, uint64_t bytes)
{
    uint64_t more = bytes - lease->memory.placed;

    lease->memory.placed += more;
    lease->tenant->memory.placed += more;
    lease->device->memory.placed += more;
}

static void set_evicting(struct dvd_lease *lease, uint64_t bytes)
{
    lease->tenant->memory.evicting += bytes - lease->memory.evicting;
    lease->memory.evicting = bytes;
}

static void unplace(struct dvd_lease *lease, uint64_t bytes)
{
    bytes = dvd_min(bytes, lease->memory.placed);
    set_placed(lease, lease->memory.placed - bytes);
    set_evicting(lease, lease->memory.evicting - dvd_min(bytes, lease->memory.evicting));
    lease->memory.copied = dvd_min(lease->memory.copied, lease->memory.placed);
    dvd_record_memory(lease);
}

/* Lists the session among those with memory on the device, or removes it. Sessions without memory make no room,
 * and can be many: the device does not list them, and among a tenant's sessions they come last. */
static void set_listed(struct dvd_lease *lease, bool listed)
{
    struct dvd_device_memory *device = &lease->device->memory;
    struct dvd_tenant_memory *tenant = &lease->tenant->memory;

    if (listed == lease->memory.is_listed)
        return;
    lease->memory.is_listed = listed;
    DL_DELETE2(tenant->members, lease, memory.prev, memory.next);
    if (listed) {
        DL_PREPEND2(tenant->members, lease, memory.prev, memory.next);
        DL_APPEND2(device->sessions, lease, memory.prev_there, memory.next_there);
    } else {
        DL_APPEND2(tenant->members, lease, memory.prev, memory.next);
        DL_DELETE2(device->sessions, lease, memory.prev_there, memory.next_there);
    }
}

static void grant_room(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    set_placed(lease, lease->memory.placed + bytes);
    dvd_record_memory(lease);
    set_listed(lease, true);
    dvd_memory_send(lease, DV_MEMORY_PLACED, id, bytes);
}

/* ---- choosing a victim ---- */

/* Which sessions may be asked to evict. */
enum victims { ANY, OWN_TENANT, IDLE };

/* How much another session can ask it for: all of it within one tenant, else what its tenant has beyond its
 * request. */
static uint64_t takeable(const struct dvd_lease *lease, const struct dvd_lease *asking)
{
    const struct dvd_tenant_memory *tenant = &lease->tenant->memory;
    uint64_t bytes = lease->memory.placed - lease->memory.evicting;

    if (lease->tenant == asking->tenant)
        return bytes;
    return dvd_min(bytes, dvd_excess(tenant->placed, 0, tenant->request + tenant->evicting));
}

static enum dv_class class_of(const struct dvd_lease *lease)
{
    return lease->policy.tenant->share.class;
}

/* Whether it should evict before another session: by class, then idle sessions before those that wait, then the
 * one that has not run for longest. */
static bool evicts_before(const struct dvd_lease *lease, const struct dvd_lease *other)
{
    if (class_of(lease) != class_of(other))
        return class_of(lease) > class_of(other);
    if (lease->policy.waiting != other->policy.waiting)
        return other->policy.waiting;
    return lease->changed_at < other->changed_at;
}

static bool is_idle(const struct dvd_lease *lease)
{
    return !lease->policy.holding && !lease->policy.waiting && now_of(lease) - lease->changed_at >= IDLE_FROM_NS;
}

/* A better class is asked only for a session that has nothing left to evict itself. */
static bool may_be_asked(const struct dvd_lease *lease, const struct dvd_lease *asking, enum victims victims)
{
    bool is_last_resort = victims != IDLE && asking->memory.may_queue;

    return (victims != OWN_TENANT || lease->tenant == asking->tenant) && (victims != IDLE || is_idle(lease)) &&
           (class_of(lease) >= class_of(asking) || is_last_resort);
}

static struct dvd_lease *find_victim(const struct dvd_device *device, const struct dvd_lease *asking,
                                     enum victims victims)
{
    struct dvd_lease *lease, *best = NULL;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there) {
        if (lease == asking || lease->policy.holding || lease->memory.keeps || lease->memory.is_silent ||
            takeable(lease, asking) == 0 || !may_be_asked(lease, asking, victims))
            continue;
        if (!best || evicts_before(lease, best))
            best = lease;
    }
    return best;
}

/* ---- asking for evictions, and waiting for them ---- */

/* A session that is late again and again gets less and less time. */
static dv_ns patience_with(const struct dvd_lease *lease)
{
    enum { HALVED_MAX = 6 };
    dv_ns deadline = dvd_lease_memory_deadline(lease);

    return deadline ? deadline : EVICTION_PATIENCE_NS >> dvd_min(lease->memory.late, HALVED_MAX);
}

static void note_kept(struct dvd_lease *lease)
{
    if (!lease->memory.kept_since)
        lease->memory.kept_since = now_of(lease);
}

/* The session does not answer, or answers too slowly: its worker hangs in its driver, compiles for long, or
 * refuses. With a deadline it is terminated, which frees its memory. A process that divvyd cannot terminate loses
 * its memory in the ledger. */
static void handle_timeout(struct dvd_lease *lease)
{
    dv_ns deadline = dvd_lease_memory_deadline(lease);

    if (!deadline || lease->device->memory.askers == 0) {
        lease->memory.is_silent = true;
        lease->memory.late++;
        note_kept(lease);
        return;
    }
    lease->device->ledger->events->overdue(lease->lessee, deadline, "memory of a device");
    lease->memory.in_time_until = now_of(lease);
    if (!lease->lessee->has_worker)
        unplace(lease, lease->memory.placed);
}

static void note_answer(struct dvd_lease *lease)
{
    if (lease->memory.is_silent)
        lease->memory.in_time_until = now_of(lease);
    lease->memory.is_silent = false;
}

static bool is_asked(const struct dvd_lease *lease)
{
    return lease->memory.evicting && !lease->memory.is_silent;
}

/* Ids are times, so that they differ from an earlier daemon's. */
static uint64_t next_evict_id(const struct dvd_lease *lease)
{
    uint64_t now = now_of(lease);

    return now > lease->memory.evict_id ? now : lease->memory.evict_id + 1;
}

/* The session may be asked again. From now on its answers to earlier requests do not count as a refusal: they
 * may be out of date. */
static void forget_refusal(struct dvd_lease *lease)
{
    lease->memory.keeps = false;
    note_answer(lease);
    lease->memory.evict_id = next_evict_id(lease);
}

/* Holders are asked after they release the device. */
static void forget_refusals(struct dvd_device *device)
{
    struct dvd_lease *lease;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (lease->memory.keeps && !lease->policy.holding)
            forget_refusal(lease);
}

static void on_patience_ends(void *owner)
{
    struct dvd_device *device = owner;
    struct dvd_lease *lease;
    dv_ns now = dvd_ledger_now(device->ledger);

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease) && now - lease->memory.in_time_until >= patience_with(lease))
            handle_timeout(lease);
    if (device->memory.queued)
        forget_refusals(device);
    dvd_room_settle(device); /* which asks, and waits, again */
}

/* Sets the timer for the first session that will have been silent for too long, or for the next request to those
 * that kept something. */
static void wait_for_evictions(struct dvd_device *device)
{
    struct dv_timers *timers = device->ledger->timers;
    struct dvd_lease *lease;
    dv_ns first = device->memory.queued ? dvd_ledger_now(device->ledger) + ASK_AGAIN_NS : UINT64_MAX;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease))
            first = dvd_min(first, lease->memory.in_time_until + patience_with(lease));
    if (first == UINT64_MAX)
        return;
    device->memory.patience.fired = on_patience_ends;
    device->memory.patience.owner = device;
    int error = timers->set(timers, &device->memory.patience, first);
    if (error >= 0)
        return;
    dv_error("cannot set the timer for evictions: %s", strerror(-error));
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease)) /* the next message asks others, or refuses */
            lease->memory.is_silent = true;
}

static void ask_to_evict(struct dvd_lease *lease, uint64_t bytes)
{
    if (lease->memory.evicting == 0)
        lease->memory.in_time_until = now_of(lease);
    if (!lease->memory.owes_since)
        lease->memory.owes_since = now_of(lease);
    set_evicting(lease, lease->memory.evicting + bytes);
    lease->memory.evict_id = next_evict_id(lease);
    dvd_memory_send(lease, DV_MEMORY_EVICT, lease->memory.evict_id, bytes);
    dvd_trace_note(lease, DVD_TRACE_EVICT, bytes, 0);
}

/* Asks a few sessions to evict: the search for each looks at all sessions with memory. Others are asked when
 * these have answered. Returns false when there is no session to ask or to wait for. */
static bool ask_for_room(struct dvd_lease *asking, uint64_t bytes, enum victims victims)
{
    struct dvd_device *device = asking->device;
    struct dvd_lease *lease;
    uint64_t coming = 0;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease) && (victims != OWN_TENANT || lease->tenant == asking->tenant))
            coming += lease->memory.evicting;
    for (int asked = 0; asked < VICTIMS_MAX && coming < bytes && (lease = find_victim(device, asking, victims));
         asked++) {
        uint64_t part = dvd_min(takeable(lease, asking), bytes - coming);
        coming += part;
        ask_to_evict(lease, part);
    }
    if (coming)
        wait_for_evictions(device);
    return coming > 0;
}

/* ---- queueing ---- */

/* Whether its memory can be evicted later: it holds the device, was not asked, or has not kept it for long. */
static bool may_evict_later(const struct dvd_lease *lease, dv_ns patience, dv_ns now)
{
    return lease->memory.placed &&
           (lease->policy.holding || !lease->memory.kept_since || now - lease->memory.kept_since < patience);
}

/* Bytes that a tenant's sessions can evict later for the asking one. */
static uint64_t obtainable(const struct dvd_tenant_device *tenant, const struct dvd_lease *asking)
{
    const struct dvd_lease *lease;
    dv_ns patience = asking->device->terms.room_patience_ns, now = now_of(asking);
    uint64_t bytes = 0;

    DL_FOREACH2 (tenant->memory.members, lease, memory.next)
        if (lease != asking && may_evict_later(lease, patience, now))
            bytes += lease->memory.placed;
    return tenant == asking->tenant ? bytes
                                    : dvd_min(bytes, dvd_excess(tenant->memory.placed, 0, tenant->memory.request));
}

/* Whether waiting helps a session that lacks room: others can evict enough. */
static bool can_wait(const struct dvd_lease *asking, uint64_t bytes, bool own_tenant)
{
    const struct dvd_lease *lease;
    uint64_t others = 0;

    if (own_tenant)
        return obtainable(asking->tenant, asking) >= bytes;
    DL_FOREACH2 (asking->device->memory.sessions, lease, memory.next_there)
        if (lease->tenant->memory.members == lease) /* the first of each tenant */
            others += obtainable(lease->tenant, asking);
    return others >= bytes;
}

/* The longest time to bring in, once, the bytes that it got room for in this hold: no session gets a longer
 * slice, or keeps others waiting, by claiming that it takes long. Sessions without a worker move nothing, nor
 * does any session where the device computes in host memory. */
static dv_ns longest_move(const struct dvd_lease *lease, dv_ns beside_ns)
{
    const struct dvd_device_terms *terms = &lease->device->terms;
    uint64_t bytes = dvd_min(lease->memory.brought, terms->capacity_bytes);

    if (!lease->lessee->has_worker || !terms->swaps)
        return 0;
    return beside_ns + lease->memory.waited_ns + bytes / MOVED_MIN_BYTES_PER_US * DV_NS_PER_US;
}

/* Other sessions have the room that it waits for, and none of them can be asked now. It keeps the device until
 * others want it, and sessions that hold the device beside it do not keep it longer than their slice. */
static void set_queued(struct dvd_lease *lease, bool queued)
{
    struct dvd_device *device = lease->device;

    if (lease->memory.is_queued == queued)
        return;
    lease->memory.is_queued = queued;
    device->memory.queued += queued ? 1 : -1u;
    dv_policy_in_line(&device->policy, &lease->policy, queued, now_of(lease));
    if (lease->policy.holding)
        dv_policy_moves(&lease->policy, queued ? QUEUED_HOLDS_NS : DV_MOVING_MAX_NS, now_of(lease));
    if (queued)
        dvd_device_dispatch_soon(device);
}

/* The session waits for this room; 0: for none. */
static void set_waiting(struct dvd_lease *lease, uint64_t bytes)
{
    struct dvd_device_memory *device = &lease->device->memory;
    dv_ns now = now_of(lease);

    set_queued(lease, false);
    device->askers += (bytes != 0) - (lease->memory.place_asked != 0);
    if (lease->memory.place_asked)
        lease->memory.waited_ns += now - lease->memory.waits_since;
    lease->memory.place_asked = bytes;
    lease->memory.waits_since = now;
    if (lease->memory.brings) /* while it waits, other sessions are slow, not this one */
        dv_policy_moves(&lease->policy, bytes ? DV_MOVING_MAX_NS : longest_move(lease, MOVING_MAY_BE_LATE_NS), now);
}

/* ---- sessions that keep more than their part ---- */

/* Bytes that a tenant may keep on a device while others wait for room: an equal part, or its request. */
static uint64_t part_of(const struct dvd_device *device, const struct dvd_tenant_device *tenant)
{
    const struct dvd_lease *lease;
    uint64_t tenants = 0;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        tenants += lease->tenant->memory.members == lease; /* the first of each tenant */
    uint64_t part = device->terms.capacity_bytes / (tenants ? tenants : 1);
    return part > tenant->memory.request ? part : tenant->memory.request;
}

/* Whether a session was asked for what its tenant has beyond its part, does not compute, and has evicted nothing
 * within the limit. From then on its claim that it cannot evict is ignored. */
static bool overstays(const struct dvd_lease *lease, const struct dvd_lease *asking, dv_ns limit)
{
    return limit && lease->tenant != asking->tenant && lease->memory.placed && !lease->policy.holding &&
           lease->memory.owes_since && now_of(lease) - lease->memory.owes_since >= limit &&
           lease->tenant->memory.placed > part_of(lease->device, lease->tenant);
}

/* With a deadline, a worker is terminated, which frees its memory. A process that divvyd cannot terminate loses
 * its memory in the ledger. */
static void reclaim_overstayed(const struct dvd_lease *asking)
{
    struct dvd_device *device = asking->device;
    struct dvd_lease *lease;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there) {
        bool has_worker = lease->lessee->has_worker;
        dv_ns limit = has_worker ? dvd_lease_deadline(lease) : EVICTION_PATIENCE_NS;
        if (!overstays(lease, asking, limit))
            continue;
        device->ledger->events->overdue(lease->lessee, limit, "memory of a device");
        lease->tenant->memory.hoards = true;
        if (!has_worker)
            unplace(lease, lease->memory.placed);
    }
}

/* ---- answering ---- */

static void refuse(struct dvd_lease *lease)
{
    uint64_t bytes = lease->memory.place_asked;

    set_waiting(lease, 0);
    dvd_memory_send(lease, DV_MEMORY_NO_ROOM, lease->memory.place_id, bytes);
}

/* Answers a holder that waits for room, if its answer is known. */
static void settle_holder(struct dvd_lease *lease)
{
    struct dvd_device *device = lease->device;
    const struct dvd_tenant_memory *tenant = &lease->tenant->memory;
    uint64_t bytes = lease->memory.place_asked, capacity = device->terms.capacity_bytes;

    if (dvd_excess(device->memory.placed, bytes, capacity))
        reclaim_overstayed(lease);
    uint64_t lacks = dvd_excess(device->memory.placed, bytes, capacity);
    uint64_t lacks_own = dvd_excess(tenant->placed, bytes, tenant->quota);
    if (lacks == 0 && lacks_own == 0) {
        lease->memory.brought += bytes;
        set_waiting(lease, 0);
        grant_room(lease, lease->memory.place_id,
                   bytes + dvd_min((free_room(lease) - bytes) / EXTRA_PART, EXTRA_BYTES));
        return;
    }
    if (lacks_own ? ask_for_room(lease, lacks_own, OWN_TENANT) : ask_for_room(lease, lacks, ANY)) {
        set_queued(lease, false);
    } else if (lease->memory.may_queue && can_wait(lease, lacks_own, true) && can_wait(lease, lacks, false)) {
        set_queued(lease, true);
        wait_for_evictions(device);
    } else {
        refuse(lease);
    }
}

static void settle_holders(struct dvd_device *device)
{
    struct dvd_lease *lease;

    if (device->memory.askers == 0) /* as always when there is enough: sessions can be many */
        return;
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (lease->memory.place_asked)
            settle_holder(lease);
}

/* Notes what a session evicted for others and has to bring in again before it can run: sessions that have all
 * they need go first. */
static void set_away(struct dvd_lease *lease, uint64_t bytes)
{
    lease->memory.away = bytes;
    dv_policy_set_away(&lease->device->policy, &lease->policy, bytes >= AWAY_FROM_BYTES, now_of(lease));
}

/* ---- ahead of a grant ---- */

/* Grants what is free, unless a holder waits for it. */
static void answer_ahead(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    bytes = dvd_min(bytes, free_room(lease));
    if (lease->device->memory.askers || lease->memory.evicting)
        bytes = 0;
    if (bytes) {
        set_away(lease, lease->memory.away - dvd_min(bytes, lease->memory.away));
        grant_room(lease, id, bytes);
    } else {
        dvd_memory_send(lease, DV_MEMORY_NO_ROOM, id, 0);
    }
}

static void forget_ahead(const struct dvd_lease *lease)
{
    if (lease->device->memory.ahead == lease)
        lease->device->memory.ahead = NULL;
}

/* Only where copies do not slow the holder down, for one waiting session at a time, and within its tenant's
 * quota. */
static bool may_others_evict_ahead(const struct dvd_lease *lease, uint64_t bytes)
{
    const struct dvd_device *device = lease->device;
    const struct dvd_tenant_memory *tenant = &lease->tenant->memory;

    return lease->policy.waiting && !lease->memory.evicting && !device->memory.ahead && !device->memory.askers &&
           dvd_excess(tenant->placed, bytes, tenant->quota) == 0 && device->terms.copies_beside;
}

/* Room for a session before its grant. Idle sessions evict for it: they would have to after the grant. */
static void place_ahead(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    uint64_t spare = free_room(lease);

    forget_ahead(lease);
    if (lease->tenant->memory.hoards) { /* it kept earlier room from others */
        dvd_memory_send(lease, DV_MEMORY_NO_ROOM, id, 0);
        return;
    }
    forget_refusal(lease);
    if (bytes > spare && may_others_evict_ahead(lease, bytes) && ask_for_room(lease, bytes - spare, IDLE)) {
        lease->device->memory.ahead = lease;
        lease->memory.ahead_id = id;
        lease->memory.ahead_bytes = bytes;
        return;
    }
    answer_ahead(lease, id, bytes);
}

/* The evictions for it may be done, or the holder may need the room that they make. */
static void settle_ahead(struct dvd_device *device)
{
    struct dvd_lease *ahead = device->memory.ahead, *lease;
    bool is_coming = false;

    if (!ahead)
        return;
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        is_coming |= is_asked(lease);
    if (is_coming && !device->memory.askers && free_room(ahead) < ahead->memory.ahead_bytes)
        return;
    forget_ahead(ahead);
    answer_ahead(ahead, ahead->memory.ahead_id, ahead->memory.ahead_bytes);
}

void dvd_room_settle(struct dvd_device *device)
{
    settle_holders(device);
    settle_ahead(device);
}

/* ---- messages ---- */

static void take_place(struct dvd_lease *lease, const struct dv_memory_message *m)
{
    if (m->flags & DV_MEMORY_AHEAD) {
        place_ahead(lease, m->id, m->bytes);
        return;
    }
    if (!lease->policy.holding) /* it was recalled meanwhile, or the message is false */
        return;
    forget_ahead(lease);
    forget_refusal(lease);
    if (!lease->memory.brings) {
        lease->memory.brings_since = now_of(lease);
        lease->memory.waited_ns = 0;
        dvd_trace_note(lease, DVD_TRACE_BRING, 0, 0);
    }
    lease->memory.brings = true;
    set_waiting(lease, m->bytes);
    lease->memory.place_id = m->id;
    lease->memory.may_queue = m->flags & DV_MEMORY_WAITS;
    dvd_room_settle(lease->device);
}

/* All that its next work needs is on the device. */
static void take_in_place(struct dvd_lease *lease)
{
    if (!lease->memory.brings)
        return;
    set_waiting(lease, 0);
    lease->memory.brings = false;
    set_away(lease, 0);
    dv_ns took = dvd_min(now_of(lease) - lease->memory.brings_since, longest_move(lease, MOVING_COSTS_BESIDE_NS));
    lease->memory.moved_ns += took;
    if (dvd_lease_account(lease))
        dvd_lease_account(lease)->moving_ns += took;
    dvd_trace_note(lease, DVD_TRACE_PLACED, lease->memory.placed, 0);
    dvd_lease_moved(lease, took);
}

/* Moving these bytes took time in which the session was not late. */
static void note_moving(struct dvd_lease *lease, uint64_t bytes)
{
    dv_ns worth = bytes / MOVED_MIN_BYTES_PER_US * DV_NS_PER_US;

    lease->memory.in_time_until = dvd_min(lease->memory.in_time_until + worth, now_of(lease));
}

/* Progress is measured in bytes, so a session cannot stall others by evicting in tiny steps. */
static void take_unplace(struct dvd_lease *lease, uint64_t bytes)
{
    bool was_asked = lease->memory.evicting > 0;

    bytes = dvd_min(bytes, lease->memory.placed);
    set_away(lease, lease->memory.away + dvd_min(bytes, lease->memory.evicting));
    uint64_t known = dvd_min(bytes, lease->memory.copied);
    lease->memory.copied -= known;
    note_moving(lease, bytes - known);
    unplace(lease, bytes);
    lease->memory.keeps = false;
    note_answer(lease);
    if (was_asked && lease->memory.evicting == 0) {
        lease->memory.late = 0;
        lease->memory.kept_since = 0;
        lease->memory.owes_since = 0;
    }
    dvd_room_settle(lease->device);
}

/* A large object is on its way out. These bytes count once, and at most for all that the session has. */
static void take_moves(struct dvd_lease *lease, uint64_t bytes)
{
    bytes = dvd_min(bytes, lease->memory.placed - lease->memory.copied);
    if (bytes == 0)
        return;
    lease->memory.copied += bytes;
    note_moving(lease, bytes);
    note_answer(lease);
}

/* These bytes do not leave. The answer to an earlier request says nothing of what the session can evict now. */
static void take_keeps(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    set_evicting(lease, lease->memory.evicting - dvd_min(bytes, lease->memory.evicting));
    if (id == lease->memory.evict_id) {
        lease->memory.keeps = true;
        note_kept(lease);
    }
    dvd_room_settle(lease->device);
}

void dvd_room_take(struct dvd_lease *lease, const struct dv_memory_message *m)
{
    set_listed(lease, true);
    switch (m->type) {
    case DV_MEMORY_PLACE:
        take_place(lease, m);
        break;
    case DV_MEMORY_IN_PLACE:
        take_in_place(lease);
        break;
    case DV_MEMORY_KEEPS:
        take_keeps(lease, m->id, m->bytes);
        break;
    case DV_MEMORY_MOVES:
        take_moves(lease, m->bytes);
        break;
    default: /* DV_MEMORY_UNPLACE */
        take_unplace(lease, m->bytes);
        break;
    }
    set_listed(lease, lease->memory.placed || lease->memory.place_asked);
}

/* ---- holds, and their end ---- */

void dvd_room_part(struct dvd_lease *lease)
{
    set_waiting(lease, 0);
    unplace(lease, lease->memory.placed);
    if (lease->memory.is_listed)
        DL_DELETE2(lease->device->memory.sessions, lease, memory.prev_there, memory.next_there);
    lease->memory.is_listed = false;
    forget_ahead(lease);
    dvd_room_settle(lease->device);
}

void dvd_room_shrink(struct dvd_tenant_device *tenant)
{
    struct dvd_lease *lease;
    uint64_t over = dvd_excess(tenant->memory.placed, 0, tenant->memory.quota);

    DL_FOREACH2 (tenant->memory.members, lease, memory.next)
        over -= dvd_min(lease->memory.evicting, over);
    DL_FOREACH2 (tenant->memory.members, lease, memory.next) {
        uint64_t bytes = dvd_min(lease->memory.placed - lease->memory.evicting, over);
        over -= bytes;
        if (bytes)
            ask_to_evict(lease, bytes);
    }
}

/* It can now evict memory that it needed to compute. */
void dvd_room_released(struct dvd_lease *lease)
{
    if (!lease->memory.brings) /* it could run */
        set_away(lease, 0);
    lease->memory.brings = false;
    lease->memory.brought = 0;
    forget_refusal(lease);
    set_waiting(lease, 0);
    if (lease->tenant->memory.placed > lease->tenant->memory.quota)
        dvd_room_shrink(lease->tenant);
    dvd_room_settle(lease->device); /* before it is granted the device again */
}

/* ---- after a restart ---- */

void dvd_room_restore(struct dvd_lease *lease, uint64_t placed)
{
    set_placed(lease, placed);
    set_listed(lease, placed > 0);
}

void dvd_room_sync(struct dvd_lease *lease, const struct dv_sync_message *m)
{
    unplace(lease, dvd_excess(lease->memory.placed, 0, m->placed));
    set_evicting(lease, dvd_min(m->evicting, lease->memory.placed));
    lease->memory.in_time_until = now_of(lease);
}
