/* Reservations of device memory: bounded by the tenant's quota, over all its sessions (see memory.h). */
#include <stdio.h>
#include <utlist.h>

#include "src/arbiter/ledger/private.h"

/* Time for sessions to return unused bytes. They answer on a thread that never enters a driver, so a session
 * that does not answer is stopped. */
#define PATIENCE_NS (100 * DV_NS_PER_MS)
/* Each session that a round asks delays the next round by this time: rounds of a tenant with a thousand sessions
 * are 100 ms apart, those of a tenant with two 0.2 ms. */
#define ROUND_NS_PER_SESSION (100 * DV_NS_PER_US)
/* Waiting sessions that a step of a round looks at again. */
#define LOOKED_AT_AGAIN 8

/* A request above this size must fit into host memory, too; this much of it is left to the host. */
#define HOST_ASKED_FROM (UINT64_C(1) << 20)
#define HOST_RESERVE (UINT64_C(128) << 20)
#define HOST_LOOK_NS (10 * DV_NS_PER_MS)

void dvd_memory_send(struct dvd_lease *lease, enum dv_memory_type type, uint64_t id, uint64_t bytes)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = (uint16_t)type,
                                  .device = lease->index.at,
                                  .id = id,
                                  .bytes = bytes};

    lease->lessee->ledger->events->send(lease->lessee, &m, sizeof m);
}

/* ---- what fits ---- */

/* Sessions can ask at any rate, so the answer is kept for a moment. */
static uint64_t available_on_host(struct dvd_ledger *ledger)
{
    dv_ns now = dvd_ledger_now(ledger);

    if (ledger->host_looked_at == 0 || now - ledger->host_looked_at >= HOST_LOOK_NS) {
        ledger->host_available = ledger->read_host_available();
        ledger->host_looked_at = now;
    }
    return ledger->host_available;
}

/* Every object can end up in host memory: where the device computes in it, or when the object is evicted. A
 * request that the host cannot hold fails now, so that no process is killed for it later. */
static bool fits_on_host(const struct dvd_lease *lease, uint64_t bytes)
{
    const struct dvd_tenant_terms *terms = &lease->tenant->tenant->terms;

    if (terms->host_bytes &&
        lease->tenant->memory.reserved + bytes > lease->device->terms.capacity_bytes + terms->host_bytes)
        return false;
    return bytes < HOST_ASKED_FROM || bytes + HOST_RESERVE < available_on_host(lease->device->ledger);
}

static bool fits(const struct dvd_lease *lease, uint64_t bytes)
{
    const struct dvd_tenant_memory *tenant = &lease->tenant->memory;
    uint64_t own_max = lease->lessee->memory_max;

    if (own_max && (lease->memory.reserved > own_max || bytes > own_max - lease->memory.reserved))
        return false;
    return tenant->reserved <= tenant->quota && bytes <= tenant->quota - tenant->reserved && fits_on_host(lease, bytes);
}

void dvd_reservations_set(struct dvd_lease *lease, uint64_t bytes)
{
    struct dvd_tenant_memory *tenant = &lease->tenant->memory;

    if (bytes && !lease->memory.reserved) {
        /* a round under way need not ask for what is reserved from now on */
        lease->memory.owes_answer &= lease->memory.called_in == tenant->round;
        lease->memory.called_in = tenant->round;
        DL_APPEND2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
    } else if (!bytes && lease->memory.reserved) {
        DL_DELETE2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
    }
    tenant->reserved += bytes - lease->memory.reserved;
    lease->device->memory.reserved += bytes - lease->memory.reserved;
    lease->lessee->reserved += bytes - lease->memory.reserved;
    if (lease->lessee->reserved > lease->lessee->reserved_peak)
        lease->lessee->reserved_peak = lease->lessee->reserved;
    lease->memory.reserved = bytes;
    dvd_record_memory(lease);
}

static void reserve(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    dvd_reservations_set(lease, lease->memory.reserved + bytes);
    dvd_memory_send(lease, DV_MEMORY_RESERVED, id, bytes);
}

/* ---- calling back ----
 *
 * When a reservation does not fit, the tenant's other sessions are asked to return what they do not use, in
 * rounds. A session that asks during a round waits for the next one: some sessions have answered already, and may
 * have reserved more since. Sessions can be many, so each step of a round asks a few of them, and a message of
 * one session never causes messages to all others. */

static void on_round(void *owner)
{
    dvd_reservations_settle(owner);
}

static void look_at(struct dvd_tenant_device *tenant, dv_ns when)
{
    struct dv_timers *timers = tenant->device->ledger->timers;

    tenant->memory.timer.fired = on_round;
    tenant->memory.timer.owner = tenant;
    if (timers->set(timers, &tenant->memory.timer, when) < 0)
        dv_error("cannot set the timer for memory reservations: some may be delayed");
}

static void start_waiting(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    struct dvd_tenant_memory *tenant = &lease->tenant->memory;

    lease->memory.asked = bytes;
    lease->memory.asked_id = id;
    lease->memory.asked_in = tenant->round + 1;
    DL_APPEND2(tenant->askers, lease, memory.prev_asker, memory.next_asker);
}

static void stop_waiting(struct dvd_lease *lease)
{
    lease->memory.asked = 0;
    DL_DELETE2(lease->tenant->memory.askers, lease, memory.prev_asker, memory.next_asker);
}

static void answer(struct dvd_lease *lease)
{
    uint64_t bytes = lease->memory.asked;

    stop_waiting(lease);
    if (fits(lease, bytes))
        reserve(lease, lease->memory.asked_id, bytes);
    else
        dvd_memory_send(lease, DV_MEMORY_REFUSED, lease->memory.asked_id, bytes);
}

/* The session has returned what it does not use, or leaves. */
static void note_answer(struct dvd_lease *lease)
{
    if (lease->memory.owes_answer && lease->memory.called_in == lease->tenant->memory.round)
        lease->tenant->memory.owing--;
    lease->memory.owes_answer = false;
}

static void begin_round(struct dvd_tenant_memory *tenant, dv_ns now)
{
    tenant->round++;
    tenant->is_calling = true;
    tenant->owing = 0;
    tenant->next_round = now;
}

/* The next session that this round has not asked, or NULL. */
static struct dvd_lease *next_to_call(const struct dvd_tenant_memory *tenant)
{
    struct dvd_lease *first = tenant->reservers;

    return first && first->memory.called_in != tenant->round ? first : NULL;
}

/* A session that is the only asker has nothing unused, and is not asked itself. */
static void call_some(struct dvd_tenant_memory *tenant, dv_ns now)
{
    const struct dvd_lease *alone = tenant->askers->memory.next_asker ? NULL : tenant->askers;
    struct dvd_lease *lease;

    for (int i = 0; i < DV_MAX_BATCH && (lease = next_to_call(tenant)); i++) {
        DL_DELETE2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
        DL_APPEND2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
        lease->memory.called_in = tenant->round;
        lease->memory.owes_answer = lease != alone;
        if (lease == alone)
            continue;
        tenant->owing++;
        tenant->next_round += ROUND_NS_PER_SESSION;
        tenant->patience_ends = now + PATIENCE_NS;
        dvd_memory_send(lease, DV_MEMORY_CALL_BACK, 1, 0);
    }
}

/* One step of a round. Returns false when it is over. */
static bool continue_round(struct dvd_tenant_device *tenant, dv_ns now)
{
    struct dvd_tenant_memory *memory = &tenant->memory;
    struct dvd_lease *lease, *next;
    int looked = 0;

    call_some(memory, now);
    DL_FOREACH_SAFE2(memory->askers, lease, next, memory.next_asker)
    {
        if (looked++ == LOOKED_AT_AGAIN)
            break;
        if (fits(lease, lease->memory.asked))
            answer(lease);
    }
    bool all_called = !next_to_call(memory);
    memory->is_calling = !all_called || (memory->owing && now < memory->patience_ends);
    if (memory->is_calling && memory->askers)
        look_at(tenant, all_called ? memory->patience_ends : now);
    return memory->is_calling;
}

/* Answers a batch of sessions; the others follow in the next iteration of the event loop. */
void dvd_reservations_settle(struct dvd_tenant_device *tenant)
{
    struct dvd_tenant_memory *memory = &tenant->memory;
    dv_ns now = dvd_ledger_now(tenant->device->ledger);

    for (int answers = 0; memory->askers; answers++) {
        if (answers == DV_MAX_BATCH) {
            look_at(tenant, now);
            return;
        }
        if (memory->is_calling && continue_round(tenant, now))
            return;
        if (!memory->askers)
            break;
        if (memory->askers->memory.asked_in <= memory->round) {
            answer(memory->askers);
        } else if (now < memory->next_round) {
            look_at(tenant, memory->next_round);
            return;
        } else {
            begin_round(memory, now);
        }
    }
    memory->is_calling = false;
    look_at(tenant, 0);
}

/* ---- messages ---- */

static void take_request(struct dvd_lease *lease, uint64_t id, uint64_t bytes)
{
    if (lease->memory.asked || bytes == 0) /* it did not wait for the answer to the first */
        return;
    if (fits(lease, bytes)) {
        reserve(lease, id, bytes);
    } else if (bytes > lease->tenant->memory.quota) {
        dvd_memory_send(lease, DV_MEMORY_REFUSED, id, bytes);
    } else {
        start_waiting(lease, id, bytes);
        dvd_reservations_settle(lease->tenant);
    }
}

void dvd_reservations_take(struct dvd_lease *lease, const struct dv_memory_message *m)
{
    if (m->type == DV_MEMORY_RESERVE) {
        take_request(lease, m->id, m->bytes);
        return;
    }
    dvd_reservations_set(lease, lease->memory.reserved - dvd_min(m->bytes, lease->memory.reserved));
    if (m->id)
        note_answer(lease);
    dvd_reservations_settle(lease->tenant);
}

/* ---- coming and going ---- */

void dvd_reservations_join(struct dvd_lease *lease)
{
    DL_APPEND2(lease->tenant->memory.members, lease, memory.prev, memory.next);
}

void dvd_reservations_part(struct dvd_lease *lease)
{
    dvd_reservations_set(lease, 0);
    note_answer(lease);
    if (lease->memory.asked)
        stop_waiting(lease);
    DL_DELETE2(lease->tenant->memory.members, lease, memory.prev, memory.next);
    dvd_reservations_settle(lease->tenant);
}

void dvd_reservations_drop(struct dvd_tenant_device *tenant)
{
    struct dv_timers *timers = tenant->device->ledger->timers;

    timers->drop(timers, &tenant->memory.timer);
}
