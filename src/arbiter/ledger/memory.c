/* The memory ledger (see memory.h). */
#include "src/arbiter/ledger/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/restart/state.h"
#include "src/arbiter/ledger/tenants.h"
#include "src/wire/lease/sync.h"

/* Time for sessions to give back what they do not use. They answer on a thread that never enters a driver;
 * a session that does not answer is stopped. */
#define PATIENCE_NS (100 * DV_NS_PER_MS)
/* Each session that a round asks puts the next round off by this time: rounds of a tenant with a thousand
 * sessions are 100 ms apart, those of a tenant with two 0.2 ms. */
#define ROUND_NS_PER_SESSION (100 * DV_NS_PER_US)
/* Waiting sessions that are looked at again, while a round goes on, when a session gives memory back. */
#define LOOKED_AT_AGAIN 8

/* Larger questions than this are put to the host as well; so much is left to it. */
#define HOST_ASKED_FROM (UINT64_C(1) << 20)
#define HOST_RESERVE (UINT64_C(128) << 20)
#define HOST_LOOK_NS (10 * DV_NS_PER_MS)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

uint64_t dv_memory_capacity(const struct dv_arbiter *arbiter, uint32_t device)
{
    const struct dv_device_rule *rule = dv_devices_rule(&arbiter->devices, device, &arbiter->config);
    return rule && rule->capacity_bytes ? rule->capacity_bytes
                                        : arbiter->devices.reports[device].memory_bytes;
}

uint64_t dv_memory_per_context(const struct dv_arbiter *arbiter, uint32_t device)
{
    const struct dv_device_rule *rule = dv_devices_rule(&arbiter->devices, device, &arbiter->config);
    return rule ? rule->per_context_bytes : 0;
}

uint64_t dv_memory_size_on(const struct dv_arbiter *arbiter, uint32_t device,
                           const struct dv_memory_size *size)
{
    uint64_t capacity = dv_memory_capacity(arbiter, device);

    if (size->bytes)
        return size->bytes;
    return size->ppm ? (uint64_t)((unsigned __int128)capacity * size->ppm / DV_PPM) : capacity;
}

uint64_t dv_memory_request_on(const struct dv_arbiter *arbiter, uint32_t device,
                              const struct dv_memory_size *request)
{
    return request->bytes || request->ppm ? dv_memory_size_on(arbiter, device, request) : 0;
}

/* ---- messages ---- */

static void tell(struct dv_session_lease *lease, enum dv_memory_type type, uint64_t id,
                 uint64_t bytes)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = (uint16_t)type,
                                  .device = lease->index,
                                  .id = id,
                                  .bytes = bytes};

    if (lease->session->control_fd >= 0)
        dv_channels_send(lease->session, &m, sizeof m);
}

/* What a successor will know. */
static void note(struct dv_session_lease *lease)
{
    if (!lease->record)
        return;
    atomic_store_explicit(&lease->record->reserved, lease->memory.reserved, memory_order_relaxed);
    atomic_store_explicit(&lease->record->placed, lease->memory.placed, memory_order_relaxed);
}

static uint64_t read_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib;
    uint64_t bytes = UINT64_MAX; /* who cannot know does not refuse */

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = kib << 10;
    if (file)
        fclose(file);
    return bytes;
}

/* Asked as often as somebody likes, so it is looked up now and then. */
static uint64_t available_on_host(struct dv_leases *leases)
{
    dv_ns now = dv_now();

    if (now - leases->host_looked_at >= HOST_LOOK_NS) {
        leases->host_available = read_available();
        leases->host_looked_at = now;
    }
    return leases->host_available;
}

/* Every object may come to lie in host memory: where a device computes in it, or when it is evicted.
 * Whoever asks for what the host has not gets an error now, so that nobody is killed for it later. */
static bool fits_on_host(const struct dv_session_lease *lease, uint64_t bytes)
{
    const struct dv_tenant *tenant = lease->tenant->tenant;
    const struct dv_session *session = lease->session;
    uint64_t capacity =
        dv_memory_capacity(session->arbiter, session->device_indices[lease->index]);

    if (tenant->terms.host_bytes &&
        lease->tenant->memory.reserved + bytes > capacity + tenant->terms.host_bytes)
        return false;
    return bytes < HOST_ASKED_FROM ||
           bytes + HOST_RESERVE < available_on_host(&session->arbiter->leases);
}

static bool fits(const struct dv_session_lease *lease, uint64_t bytes)
{
    const struct dv_tenant_memory *tenant = &lease->tenant->memory;

    return tenant->reserved <= tenant->quota && bytes <= tenant->quota - tenant->reserved &&
           fits_on_host(lease, bytes);
}

static void set_reserved(struct dv_session_lease *lease, uint64_t bytes)
{
    struct dv_tenant_memory *tenant = &lease->tenant->memory;

    if (bytes && !lease->memory.reserved) {
        /* what it has from now on a round under way need not ask for */
        lease->memory.owes_answer &= lease->memory.called_in == tenant->round;
        lease->memory.called_in = tenant->round;
        DL_APPEND2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
    } else if (!bytes && lease->memory.reserved) {
        DL_DELETE2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
    }
    tenant->reserved += bytes - lease->memory.reserved;
    dv_lease_device_of(lease)->memory.reserved += bytes - lease->memory.reserved;
    lease->memory.reserved = bytes;
}

static void reserve(struct dv_session_lease *lease, uint64_t id, uint64_t bytes)
{
    set_reserved(lease, lease->memory.reserved + bytes);
    note(lease);
    tell(lease, DV_MEMORY_RESERVED, id, bytes);
}

/* ---- calling back ----
 *
 * When a reservation does not fit, the tenant's other sessions are asked to give back what they do not
 * use, in rounds. Who asks while a round goes on waits for the next one: some have answered already, and
 * may have reserved more since. Sessions can be many, so each step of a round asks a few of them, and a
 * message of one session never causes messages to all others. */

static void settle(struct dv_tenant_device *tenant);

static int on_round(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    settle(userdata);
    return 0;
}

static void look_at(struct dv_tenant_device *tenant, dv_ns when)
{
    sd_event *event = tenant->memory.askers->session->arbiter->event;
    uint64_t usec = when / DV_NS_PER_US + 1;

    if (!tenant->memory.timer) {
        if (sd_event_add_time(event, &tenant->memory.timer, CLOCK_MONOTONIC, usec, 1, on_round, tenant) < 0)
            dv_error("no timer for reservations of device memory: some wait for long");
        return;
    }
    sd_event_source_set_time(tenant->memory.timer, usec);
    sd_event_source_set_enabled(tenant->memory.timer, SD_EVENT_ONESHOT);
}

static void ask_for(struct dv_session_lease *lease, uint64_t id, uint64_t bytes)
{
    struct dv_tenant_memory *tenant = &lease->tenant->memory;

    lease->memory.asked = bytes;
    lease->memory.asked_id = id;
    lease->memory.asked_in = tenant->round + 1;
    DL_APPEND2(tenant->askers, lease, memory.prev_asker, memory.next_asker);
}

static void asks_no_longer(struct dv_session_lease *lease)
{
    lease->memory.asked = 0;
    DL_DELETE2(lease->tenant->memory.askers, lease, memory.prev_asker, memory.next_asker);
}

/* Answers one that waits: it has the memory, or does not get it. */
static void answer(struct dv_session_lease *lease)
{
    uint64_t bytes = lease->memory.asked;

    asks_no_longer(lease);
    if (fits(lease, bytes))
        reserve(lease, lease->memory.asked_id, bytes);
    else
        tell(lease, DV_MEMORY_REFUSED, lease->memory.asked_id, bytes);
}

/* It has given back what it does not use, or goes. */
static void owes_nothing(struct dv_session_lease *lease)
{
    if (lease->memory.owes_answer && lease->memory.called_in == lease->tenant->memory.round)
        lease->tenant->memory.owing--;
    lease->memory.owes_answer = false;
}

static void begin_round(struct dv_tenant_memory *tenant, dv_ns now)
{
    tenant->round++;
    tenant->calling = true;
    tenant->owing = 0;
    tenant->next_round = now;
}

/* The next of those whom this round has not asked; NULL: there is none. */
static struct dv_session_lease *next_to_call(const struct dv_tenant_memory *tenant)
{
    struct dv_session_lease *first = tenant->reservers;

    return first && first->memory.called_in != tenant->round ? first : NULL;
}

/* Who asks alone has kept nothing back, and is not asked itself. */
static void call_some(struct dv_tenant_memory *tenant, dv_ns now)
{
    const struct dv_session_lease *alone = tenant->askers->memory.next_asker ? NULL : tenant->askers;
    struct dv_session_lease *lease;

    for (int i = 0; i < DV_LIMIT_BATCH && (lease = next_to_call(tenant)); i++) {
        DL_DELETE2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
        DL_APPEND2(tenant->reservers, lease, memory.prev_reserver, memory.next_reserver);
        lease->memory.called_in = tenant->round;
        lease->memory.owes_answer = lease != alone;
        if (lease == alone)
            continue;
        tenant->owing++;
        tenant->next_round += ROUND_NS_PER_SESSION;
        tenant->patience_ends = now + PATIENCE_NS;
        tell(lease, DV_MEMORY_CALL_BACK, 1, 0);
    }
}

/* One step of a round. Returns false when it is over. */
static bool go_on_calling(struct dv_tenant_device *tenant, dv_ns now)
{
    struct dv_tenant_memory *memory = &tenant->memory;
    struct dv_session_lease *lease, *next;
    int looked = 0;

    call_some(memory, now);
    DL_FOREACH_SAFE2 (memory->askers, lease, next, memory.next_asker) {
        if (looked++ == LOOKED_AT_AGAIN)
            break;
        if (fits(lease, lease->memory.asked))
            answer(lease);
    }
    bool called = !next_to_call(memory);
    memory->calling = !called || (memory->owing && now < memory->patience_ends);
    if (memory->calling && memory->askers)
        look_at(tenant, called ? memory->patience_ends : now);
    return memory->calling;
}

/* Answers those who wait, as far as it is known what is left: some of them, and the others in the next
 * turn. */
static void settle(struct dv_tenant_device *tenant)
{
    struct dv_tenant_memory *memory = &tenant->memory;
    dv_ns now = dv_now();

    for (int answers = 0; memory->askers; answers++) {
        if (answers == DV_LIMIT_BATCH) {
            look_at(tenant, now);
            return;
        }
        if (memory->calling && go_on_calling(tenant, now))
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
    memory->calling = false;
    if (memory->timer)
        sd_event_source_set_enabled(memory->timer, SD_EVENT_OFF);
}

/* ---- room on the device ---- */

/* Granted beside what is asked for, if there is plenty: the next objects need not ask. */
#define EXTRA_BYTES (UINT64_C(32) << 20)
#define EXTRA_PART 8 /* of what is free, at most */
/* Whoever is asked to evict and has not for so long is passed over, unless its class has a deadline. */
#define EVICTION_PATIENCE_NS (2 * DV_NS_PER_S)
/* A session in line for room may be recalled after this time, when others have work for the device. */
#define IN_LINE_HOLDS_NS (10 * DV_NS_PER_MS)
/* While sessions are in line, those who kept something are asked again so often. */
#define ASK_AGAIN_NS (100 * DV_NS_PER_MS)
/* A session is idle after this time in which it has neither used the device nor waited for it. */
#define IDLE_FROM_NS DV_NS_PER_S
/* So many sessions are asked to evict at once. */
#define VICTIMS_AT_ONCE 16
/* Less than this is brought in without making others wait for long. */
#define AWAY_FROM_BYTES (UINT64_C(1) << 20)
/* Bringing memory in is never slower than this. Beside it a little time goes into other things, which
 * counts as moving; and a busy machine may be late. */
#define MOVED_AT_LEAST_BYTES_PER_US 128
#define MOVING_COSTS_BESIDE_NS (5 * DV_NS_PER_MS)
#define MOVING_MAY_BE_LATE_NS (100 * DV_NS_PER_MS)

static uint64_t beyond(uint64_t have, uint64_t more, uint64_t most)
{
    return have + more > most ? have + more - most : 0;
}

/* What nobody has, of the device and of the tenant's quota. */
static uint64_t free_room(const struct dv_session_lease *lease)
{
    const struct dv_lease_device *device = dv_lease_device_of(lease);
    const struct dv_tenant_memory *tenant = &lease->tenant->memory;
    uint64_t capacity = dv_memory_capacity(device->arbiter, device->index);

    return least(beyond(capacity, 0, device->memory.placed), beyond(tenant->quota, 0, tenant->placed));
}

static void set_evicting(struct dv_session_lease *lease, uint64_t bytes)
{
    lease->tenant->memory.evicting += bytes - lease->memory.evicting;
    lease->memory.evicting = bytes;
}

/* How much it can be asked for by another session: all of it by one of its own tenant, by others what its
 * tenant has beyond its request. */
static uint64_t takeable(const struct dv_session_lease *lease, const struct dv_session_lease *asking)
{
    const struct dv_tenant_memory *tenant = &lease->tenant->memory;
    uint64_t bytes = lease->memory.placed - lease->memory.evicting;

    if (lease->tenant == asking->tenant)
        return bytes;
    return least(bytes, beyond(tenant->placed, 0, tenant->request + tenant->evicting));
}

static enum dv_class class_of(const struct dv_session_lease *lease)
{
    return lease->policy.tenant->share.class;
}

/* Whether it should give up memory before another: by class, then who is idle before who waits, and then
 * who has not run for longest. */
static bool goes_before(const struct dv_session_lease *lease, const struct dv_session_lease *other)
{
    if (class_of(lease) != class_of(other))
        return class_of(lease) > class_of(other);
    if (lease->policy.waiting != other->policy.waiting)
        return other->policy.waiting;
    return lease->changed_at < other->changed_at;
}

/* Which sessions are asked to evict. */
enum whom { ALL, OWN_TENANT, IDLE };

static bool is_idle(const struct dv_session_lease *lease)
{
    return !lease->policy.holding && !lease->policy.waiting && dv_now() - lease->changed_at >= IDLE_FROM_NS;
}

/* A better class is asked only for a session that has nothing left which it could evict itself. */
static bool may_be_asked(const struct dv_session_lease *lease, const struct dv_session_lease *asking,
                         enum whom whom)
{
    bool last_resort = whom != IDLE && asking->memory.place_in_line;

    return (whom != OWN_TENANT || lease->tenant == asking->tenant) && (whom != IDLE || is_idle(lease)) &&
           (class_of(lease) >= class_of(asking) || last_resort);
}

/* Whom to ask next. */
static struct dv_session_lease *find_victim(const struct dv_lease_device *device,
                                            const struct dv_session_lease *asking, enum whom whom)
{
    struct dv_session_lease *lease, *best = NULL;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there) {
        if (lease == asking || lease->policy.holding || lease->memory.keeps || lease->memory.silent ||
            takeable(lease, asking) == 0 || !may_be_asked(lease, asking, whom))
            continue;
        if (!best || goes_before(lease, best))
            best = lease;
    }
    return best;
}

static void settle_places(struct dv_lease_device *device);
static void keeps_no_longer(struct dv_session_lease *lease);

/* Who is late again and again is waited for less and less. */
static dv_ns patience_with(const struct dv_session_lease *lease)
{
    enum { HALVED_MOST = 6 };
    dv_ns deadline = dv_lease_memory_deadline(lease);

    return deadline ? deadline : EVICTION_PATIENCE_NS >> least(lease->memory.late, HALVED_MOST);
}

/* What it has on the device becomes less. */
static void unplace(struct dv_session_lease *lease, uint64_t bytes)
{
    bytes = least(bytes, lease->memory.placed);
    lease->memory.placed -= bytes;
    set_evicting(lease, lease->memory.evicting - least(bytes, lease->memory.evicting));
    lease->memory.copied = least(lease->memory.copied, lease->memory.placed);
    lease->tenant->memory.placed -= bytes;
    dv_lease_device_of(lease)->memory.placed -= bytes;
    note(lease);
}

/* Nothing is to be had from it, for now. */
static void note_kept(struct dv_session_lease *lease)
{
    if (!lease->memory.kept_since)
        lease->memory.kept_since = dv_now();
}

/* It does not answer, or too slowly: its worker hangs in its driver, or compiles for long, or it does
 * not want to. With a deadline it is ended, and its memory comes back with its end; a process that is not
 * ours to end has no memory in the books any more. */
static void lose_patience(struct dv_lease_device *device, struct dv_session_lease *lease)
{
    dv_ns deadline = dv_lease_memory_deadline(lease);

    if (!deadline || device->memory.askers == 0) {
        lease->memory.silent = true;
        lease->memory.late++;
        note_kept(lease);
        return;
    }
    dv_session_overdue(lease->session, deadline, "memory of a device");
    lease->memory.in_time_until = dv_now();
    if (lease->session->api == DV_API_LEASE)
        unplace(lease, lease->memory.placed);
}

static void speaks_again(struct dv_session_lease *lease)
{
    if (lease->memory.silent)
        lease->memory.in_time_until = dv_now();
    lease->memory.silent = false;
}

static bool is_asked(const struct dv_session_lease *lease)
{
    return lease->memory.evicting && !lease->memory.silent;
}

/* What they could not part with a moment ago they may by now. Those who hold the device are asked when
 * they have given it back. */
static void ask_keepers_again(struct dv_lease_device *device)
{
    struct dv_session_lease *lease;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (lease->memory.keeps && !lease->policy.holding)
            keeps_no_longer(lease);
}

static int on_eviction_impatience(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_lease_device *device = userdata;
    struct dv_session_lease *lease;

    (void)source;
    (void)usec;
    device->memory.patience = sd_event_source_disable_unref(device->memory.patience);
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease) && dv_now() - lease->memory.in_time_until >= patience_with(lease))
            lose_patience(device, lease);
    if (device->memory.in_line)
        ask_keepers_again(device);
    settle_places(device); /* which asks, and waits, again */
    return 0;
}

/* Until the first of those who were asked has been silent for too long, or those who kept something are
 * to be asked again. */
static void wait_for_eviction(struct dv_lease_device *device)
{
    struct dv_session_lease *lease;
    dv_ns first = device->memory.in_line ? dv_now() + ASK_AGAIN_NS : UINT64_MAX;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease))
            first = least(first, lease->memory.in_time_until + patience_with(lease));
    if (first == UINT64_MAX)
        return;
    int error = device->memory.patience
                    ? sd_event_source_set_time(device->memory.patience, first / DV_NS_PER_US + 1)
                    : sd_event_add_time(device->arbiter->event, &device->memory.patience,
                                        CLOCK_MONOTONIC, first / DV_NS_PER_US + 1, 0,
                                        on_eviction_impatience, device);
    if (error >= 0)
        return;
    dv_error("cannot wait for memory that sessions give up: %s", strerror(-error));
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease)) /* others are asked, or refused, with the next message */
            lease->memory.silent = true;
}

/* By the clock, so that no number is one of an earlier daemon. */
static uint64_t next_evict_id(const struct dv_session_lease *lease)
{
    uint64_t now = dv_now();

    return now > lease->memory.evict_id ? now : lease->memory.evict_id + 1;
}

/* It can have something to give up again. What it says from now on in answer to an earlier question, it
 * may have found before. */
static void keeps_no_longer(struct dv_session_lease *lease)
{
    lease->memory.keeps = false;
    speaks_again(lease);
    lease->memory.evict_id = next_evict_id(lease);
}

static void ask_to_evict(struct dv_session_lease *lease, uint64_t bytes)
{
    if (lease->memory.evicting == 0)
        lease->memory.in_time_until = dv_now();
    if (!lease->memory.owes_since)
        lease->memory.owes_since = dv_now();
    set_evicting(lease, lease->memory.evicting + bytes);
    lease->memory.evict_id = next_evict_id(lease);
    tell(lease, DV_MEMORY_EVICT, lease->memory.evict_id, bytes);
}

/* Asks others for what lacks, a few of them: each looks at all who have memory there. The others are asked
 * when those have answered. Returns false when there is nobody to ask or to wait for. */
static bool ask_for_room(struct dv_lease_device *device, struct dv_session_lease *asking,
                         uint64_t lacks, enum whom whom)
{
    struct dv_session_lease *lease;
    uint64_t coming = 0;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (is_asked(lease) && (whom != OWN_TENANT || lease->tenant == asking->tenant))
            coming += lease->memory.evicting;
    for (int asked = 0; asked < VICTIMS_AT_ONCE && coming < lacks &&
                        (lease = find_victim(device, asking, whom)); asked++) {
        uint64_t bytes = least(takeable(lease, asking), lacks - coming);
        coming += bytes;
        ask_to_evict(lease, bytes);
    }
    if (coming)
        wait_for_eviction(device);
    return coming > 0;
}

static dv_ns room_patience(const struct dv_lease_device *device)
{
    const struct dv_arbiter *arbiter = device->arbiter;
    const struct dv_device_rule *rule =
        dv_devices_rule(&arbiter->devices, device->index, &arbiter->config);

    return rule && rule->room_patience_ns ? rule->room_patience_ns : DV_ROOM_PATIENCE_NS;
}

/* Whether what it has can be had some time: it runs, or has not been asked, or has not kept it for long. */
static bool may_give_up(const struct dv_session_lease *lease, dv_ns patience, dv_ns now)
{
    return lease->memory.placed &&
           (lease->policy.holding || !lease->memory.kept_since || now - lease->memory.kept_since < patience);
}

/* What a tenant's sessions may give up to one that asks, some time. */
static uint64_t obtainable(const struct dv_tenant_device *tenant, const struct dv_session_lease *asking)
{
    const struct dv_session_lease *lease;
    dv_ns patience = room_patience(dv_lease_device_of(asking)), now = dv_now();
    uint64_t bytes = 0;

    DL_FOREACH2 (tenant->memory.members, lease, memory.next)
        if (lease != asking && may_give_up(lease, patience, now))
            bytes += lease->memory.placed;
    return tenant == asking->tenant ? bytes
                                    : least(bytes, beyond(tenant->memory.placed, 0, tenant->memory.request));
}

/* Whether waiting can help one who lacks room that nobody can be asked for now: with all that others may
 * give up, there is enough. */
static bool can_wait(const struct dv_lease_device *device, const struct dv_session_lease *asking,
                     uint64_t lacks, bool own_tenant)
{
    const struct dv_session_lease *lease;
    uint64_t others = 0;

    if (own_tenant)
        return obtainable(asking->tenant, asking) >= lacks;
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        if (lease->tenant->memory.members == lease) /* of each tenant the first */
            others += obtainable(lease->tenant, asking);
    return others >= lacks;
}

/* Whether the session moves memory at all: not where the device computes in the host's memory, and divvyd
 * knows of nobody who would move that of a session without a worker. */
static bool moves_memory(const struct dv_session_lease *lease)
{
    const struct dv_lease_device *device = dv_lease_device_of(lease);
    const struct dv_arbiter *arbiter = device->arbiter;

    return lease->session->api != DV_API_LEASE &&
           dv_devices_swaps(&arbiter->devices, device->index, &arbiter->config);
}

/* How long a session can take to bring in what it was given room for in this turn, once: nobody gets a longer
 * turn, or keeps others waiting, by saying that it takes long. What waiting for others took is beside that. */
static dv_ns longest_move(const struct dv_session_lease *lease, dv_ns beside_ns)
{
    const struct dv_lease_device *device = dv_lease_device_of(lease);
    uint64_t bytes =
        least(lease->memory.brought, dv_memory_capacity(device->arbiter, device->index));

    if (!moves_memory(lease))
        return 0;
    return beside_ns + lease->memory.waited_ns + bytes / MOVED_AT_LEAST_BYTES_PER_US * DV_NS_PER_US;
}

/* Others have the room that it waits for, and none of them can be asked now. It keeps the device until
 * others want that; and those who have the device beside it do not keep it for longer than their turn. */
static void stand_in_line(struct dv_session_lease *lease, bool in_line)
{
    struct dv_lease_device *device = dv_lease_device_of(lease);

    if (lease->memory.in_line == in_line)
        return;
    lease->memory.in_line = in_line;
    device->memory.in_line += in_line ? 1 : -1;
    dv_policy_in_line(&device->policy, &lease->policy, in_line, dv_now());
    if (lease->policy.holding)
        dv_policy_moves(&lease->policy, in_line ? IN_LINE_HOLDS_NS : DV_MOVING_MAX_NS, dv_now());
    if (in_line)
        dv_leases_look_again(device);
}

static void wait_for_room(struct dv_session_lease *lease, uint64_t bytes)
{
    struct dv_device_memory *device = &dv_lease_device_of(lease)->memory;
    dv_ns now = dv_now();

    stand_in_line(lease, false);
    device->askers += (bytes != 0) - (lease->memory.place_asked != 0);
    if (lease->memory.place_asked)
        lease->memory.waited_ns += now - lease->memory.waits_since;
    lease->memory.place_asked = bytes;
    lease->memory.waits_since = now;
    if (lease->memory.brings) /* while it waits it is others who are slow */
        dv_policy_moves(&lease->policy,
                        bytes ? DV_MOVING_MAX_NS : longest_move(lease, MOVING_MAY_BE_LATE_NS), now);
}

static void unlist(struct dv_session_lease *lease)
{
    struct dv_device_memory *device = &dv_lease_device_of(lease)->memory;

    if (lease->memory.listed)
        DL_DELETE2(device->sessions, lease, memory.prev_there, memory.next_there);
    lease->memory.listed = false;
}

/* Sessions without memory make no room, and can be many: the device does not list them, and of a tenant's
 * sessions they come last. */
static void list(struct dv_session_lease *lease, bool there)
{
    struct dv_device_memory *device = &dv_lease_device_of(lease)->memory;
    struct dv_tenant_memory *tenant = &lease->tenant->memory;

    if (there == lease->memory.listed)
        return;
    DL_DELETE2(tenant->members, lease, memory.prev, memory.next);
    if (there) {
        DL_PREPEND2(tenant->members, lease, memory.prev, memory.next);
        DL_APPEND2(device->sessions, lease, memory.prev_there, memory.next_there);
        lease->memory.listed = true;
    } else {
        DL_APPEND2(tenant->members, lease, memory.prev, memory.next);
        unlist(lease);
    }
}

static void grant_place(struct dv_session_lease *lease, uint64_t id, uint64_t bytes)
{
    lease->memory.placed += bytes;
    lease->tenant->memory.placed += bytes;
    dv_lease_device_of(lease)->memory.placed += bytes;
    note(lease);
    list(lease, true);
    tell(lease, DV_MEMORY_PLACED, id, bytes);
}

/* ---- who keeps more than its part ---- */

/* What a tenant may keep of a device while others wait for room: an equal part of it, or its request. */
static uint64_t part_of(const struct dv_lease_device *device, const struct dv_tenant_device *tenant)
{
    const struct dv_session_lease *lease;
    uint64_t tenants = 0;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        tenants += lease->tenant->memory.members == lease; /* of each tenant the first */
    uint64_t part = dv_memory_capacity(device->arbiter, device->index) / (tenants ? tenants : 1);
    return part > tenant->memory.request ? part : tenant->memory.request;
}

/* Whether a session was asked for what its tenant has beyond its part, does not compute, and has given
 * nothing up within the limit. From then on its word that it cannot give anything up does not count. */
static bool overstays(const struct dv_session_lease *lease, const struct dv_session_lease *asking, dv_ns limit)
{
    return limit && lease->tenant != asking->tenant && lease->memory.placed && !lease->policy.holding &&
           lease->memory.owes_since && dv_now() - lease->memory.owes_since >= limit &&
           lease->tenant->memory.placed > part_of(dv_lease_device_of(lease), lease->tenant);
}

/* A worker is ended, if there are deadlines: its memory comes back with its end. A process that is not ours
 * to end has no memory in the books any more. */
static void take_from_who_overstays(struct dv_lease_device *device, const struct dv_session_lease *asking)
{
    struct dv_session_lease *lease;

    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there) {
        bool has_worker = lease->session->api != DV_API_LEASE;
        dv_ns limit = has_worker ? dv_lease_deadline(lease) : EVICTION_PATIENCE_NS;
        if (!overstays(lease, asking, limit))
            continue;
        dv_session_overdue(lease->session, limit, "memory of a device");
        lease->tenant->memory.hoards = true;
        if (!has_worker)
            unplace(lease, lease->memory.placed);
    }
}

/* Answers those who hold the device and wait for room, as far as there is any. */
static void settle_holders(struct dv_lease_device *device)
{
    struct dv_session_lease *lease;

    if (device->memory.askers == 0) /* as always when there is enough: sessions can be many */
        return;
    uint64_t capacity = dv_memory_capacity(device->arbiter, device->index);
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there) {
        struct dv_tenant_memory *tenant = &lease->tenant->memory;
        uint64_t bytes = lease->memory.place_asked;
        if (bytes == 0)
            continue;
        if (beyond(device->memory.placed, bytes, capacity))
            take_from_who_overstays(device, lease);
        uint64_t lacks = beyond(device->memory.placed, bytes, capacity);
        uint64_t lacks_own = beyond(tenant->placed, bytes, tenant->quota);
        if (lacks == 0 && lacks_own == 0) {
            lease->memory.brought += bytes;
            wait_for_room(lease, 0);
            grant_place(lease, lease->memory.place_id,
                        bytes + least((free_room(lease) - bytes) / EXTRA_PART, EXTRA_BYTES));
            continue;
        }
        bool hope = lacks_own ? ask_for_room(device, lease, lacks_own, OWN_TENANT)
                              : ask_for_room(device, lease, lacks, ALL);
        if (hope) {
            stand_in_line(lease, false);
        } else if (lease->memory.place_in_line && can_wait(device, lease, lacks_own, true) &&
                   can_wait(device, lease, lacks, false)) {
            stand_in_line(lease, true);
            wait_for_eviction(device);
        } else {
            wait_for_room(lease, 0);
            tell(lease, DV_MEMORY_NO_ROOM, lease->memory.place_id, bytes);
        }
    }
}

/* What a session gave up for others has to be brought in again before it can run: it lets those go first
 * that have all they need. */
static void set_away(struct dv_session_lease *lease, uint64_t bytes)
{
    lease->memory.away = bytes;
    dv_policy_set_away(&dv_lease_device_of(lease)->policy, &lease->policy, bytes >= AWAY_FROM_BYTES,
                       dv_now());
}

/* So many bytes have been moved for others: it was in time for so long. */
static void note_moving(struct dv_session_lease *lease, uint64_t bytes)
{
    dv_ns worth = bytes / MOVED_AT_LEAST_BYTES_PER_US * DV_NS_PER_US;

    lease->memory.in_time_until = least(lease->memory.in_time_until + worth, dv_now());
}

/* It gives something up. Little by little would keep others waiting for ever, so what counts is how
 * much: moving is never slower than that. */
static void give_up(struct dv_session_lease *lease, uint64_t bytes)
{
    bool was_asked = lease->memory.evicting > 0;

    bytes = least(bytes, lease->memory.placed);
    set_away(lease, lease->memory.away + least(bytes, lease->memory.evicting));
    uint64_t known = least(bytes, lease->memory.copied);
    lease->memory.copied -= known;
    note_moving(lease, bytes - known);
    unplace(lease, bytes);
    lease->memory.keeps = false;
    speaks_again(lease);
    if (was_asked && lease->memory.evicting == 0) {
        lease->memory.late = 0;
        lease->memory.kept_since = 0;
        lease->memory.owes_since = 0;
    }
}

/* A large object is on its way out. What it says of it counts once, and at most for all that it has. */
static void copy_out(struct dv_session_lease *lease, uint64_t bytes)
{
    bytes = least(bytes, lease->memory.placed - lease->memory.copied);
    if (bytes == 0)
        return;
    lease->memory.copied += bytes;
    note_moving(lease, bytes);
    speaks_again(lease);
}

/* ---- ahead of a turn ---- */

/* What nobody has, unless somebody waits for it. */
static void answer_ahead(struct dv_session_lease *lease, uint64_t id, uint64_t bytes)
{
    bytes = least(bytes, free_room(lease));
    if (dv_lease_device_of(lease)->memory.askers || lease->memory.evicting)
        bytes = 0;
    if (bytes) {
        set_away(lease, lease->memory.away - least(bytes, lease->memory.away));
        grant_place(lease, id, bytes);
    } else {
        tell(lease, DV_MEMORY_NO_ROOM, id, 0);
    }
}

static void forget_ahead(const struct dv_session_lease *lease)
{
    struct dv_device_memory *device = &dv_lease_device_of(lease)->memory;

    if (device->ahead == lease)
        device->ahead = NULL;
}

/* Only where copies do not slow the holder down, for one waiting session at a time, and not beyond its
 * tenant's quota. */
static bool may_others_evict_ahead(const struct dv_session_lease *lease, uint64_t bytes)
{
    const struct dv_lease_device *device = dv_lease_device_of(lease);
    const struct dv_arbiter *arbiter = device->arbiter;
    const struct dv_tenant_memory *tenant = &lease->tenant->memory;

    return lease->policy.waiting && !lease->memory.evicting && !device->memory.ahead &&
           !device->memory.askers && beyond(tenant->placed, bytes, tenant->quota) == 0 &&
           dv_devices_copies_beside(&arbiter->devices, device->index, &arbiter->config);
}

/* For one whose turn has not come. Idle sessions evict for it: they would have to in its turn. */
static void place_ahead(struct dv_session_lease *lease, uint64_t id, uint64_t bytes)
{
    struct dv_lease_device *device = dv_lease_device_of(lease);
    uint64_t spare = free_room(lease);

    forget_ahead(lease);
    if (lease->tenant->memory.hoards) { /* it was given room before, and kept it from others */
        tell(lease, DV_MEMORY_NO_ROOM, id, 0);
        return;
    }
    keeps_no_longer(lease);
    if (bytes > spare && may_others_evict_ahead(lease, bytes) &&
        ask_for_room(device, lease, bytes - spare, IDLE)) {
        device->memory.ahead = lease;
        lease->memory.ahead_id = id;
        lease->memory.ahead_bytes = bytes;
        return;
    }
    answer_ahead(lease, id, bytes);
}

/* The evictions for it may be done, or the holder may need the room that they make. */
static void settle_ahead(struct dv_lease_device *device)
{
    struct dv_session_lease *ahead = device->memory.ahead, *lease;
    bool coming = false;

    if (!ahead)
        return;
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        coming |= is_asked(lease);
    if (coming && !device->memory.askers && free_room(ahead) < ahead->memory.ahead_bytes)
        return;
    forget_ahead(ahead);
    answer_ahead(ahead, ahead->memory.ahead_id, ahead->memory.ahead_bytes);
}

/* Answers those who wait for room. */
static void settle_places(struct dv_lease_device *device)
{
    settle_holders(device);
    settle_ahead(device);
}

/* So much of what it was asked for does not leave. A busy worker can say so after it has given the device
 * back, or has been asked again: then it may well have something to give up now. */
static void keep(struct dv_session_lease *lease, uint64_t id, uint64_t bytes)
{
    set_evicting(lease, lease->memory.evicting - least(bytes, lease->memory.evicting));
    if (id != lease->memory.evict_id)
        return;
    lease->memory.keeps = true;
    note_kept(lease);
}

/* Only who holds the device makes others give up memory: two who did would take it from each other for
 * ever. Who says so without holding it has been recalled meanwhile, or lies. */
static void take_place(struct dv_session_lease *lease, const struct dv_memory_message *m)
{
    struct dv_lease_device *device = dv_lease_device_of(lease);
    dv_ns now = dv_now();

    switch (m->type) {
    case DV_MEMORY_PLACE:
        if (m->flags & DV_MEMORY_AHEAD) {
            place_ahead(lease, m->id, m->bytes);
            break;
        }
        if (!lease->policy.holding)
            break;
        forget_ahead(lease);
        keeps_no_longer(lease);
        if (!lease->memory.brings) {
            lease->memory.brings_since = now;
            lease->memory.waited_ns = 0;
        }
        lease->memory.brings = true;
        wait_for_room(lease, m->bytes);
        lease->memory.place_id = m->id;
        lease->memory.place_in_line = m->flags & DV_MEMORY_WAITS;
        settle_places(device);
        break;
    case DV_MEMORY_IN_PLACE: {
        if (!lease->memory.brings)
            break;
        wait_for_room(lease, 0);
        lease->memory.brings = false;
        set_away(lease, 0);
        dv_ns took = least(now - lease->memory.brings_since,
                           longest_move(lease, MOVING_COSTS_BESIDE_NS));
        lease->memory.moved_ns += took;
        dv_leases_moved(lease, took);
        break;
    }
    case DV_MEMORY_KEEPS:
        keep(lease, m->id, m->bytes);
        settle_places(device);
        break;
    case DV_MEMORY_MOVES:
        copy_out(lease, m->bytes);
        break;
    default: /* UNPLACE */
        give_up(lease, m->bytes);
        settle_places(device);
        break;
    }
}

static void give_back(struct dv_session_lease *lease, uint64_t bytes)
{
    set_reserved(lease, lease->memory.reserved - least(bytes, lease->memory.reserved));
    note(lease);
}

void dv_memory_fini(struct dv_device_memory *device)
{
    device->patience = sd_event_source_disable_unref(device->patience);
}

void dv_memory_take(struct dv_session_lease *lease, const struct dv_memory_message *m)
{
    struct dv_tenant_memory *tenant = &lease->tenant->memory;

    if (m->bytes > DV_MEMORY_BYTES_MOST) {
        if (m->type == DV_MEMORY_RESERVE)
            tell(lease, DV_MEMORY_REFUSED, m->id, m->bytes);
        return;
    }
    switch (m->type) {
    case DV_MEMORY_RESERVE:
        if (lease->memory.asked || m->bytes == 0) /* it did not wait for the answer to the first */
            break;
        if (fits(lease, m->bytes)) {
            reserve(lease, m->id, m->bytes);
            break;
        }
        if (m->bytes > tenant->quota) {
            tell(lease, DV_MEMORY_REFUSED, m->id, m->bytes);
            break;
        }
        ask_for(lease, m->id, m->bytes);
        settle(lease->tenant);
        break;
    case DV_MEMORY_RETURN:
        give_back(lease, m->bytes);
        if (m->id)
            owes_nothing(lease);
        settle(lease->tenant);
        break;
    case DV_MEMORY_PLACE:
    case DV_MEMORY_IN_PLACE:
    case DV_MEMORY_UNPLACE:
    case DV_MEMORY_KEEPS:
    case DV_MEMORY_MOVES:
        list(lease, true);
        take_place(lease, m);
        list(lease, lease->memory.placed || lease->memory.place_asked);
        break;
    default:
        break;
    }
}

/* ---- coming and going ---- */

void dv_memory_join(struct dv_session_lease *lease)
{
    DL_APPEND2(lease->tenant->memory.members, lease, memory.prev, memory.next);
}

void dv_memory_part(struct dv_session_lease *lease)
{
    set_reserved(lease, 0);
    owes_nothing(lease);
    if (lease->memory.asked)
        asks_no_longer(lease);
    DL_DELETE2(lease->tenant->memory.members, lease, memory.prev, memory.next);
    settle(lease->tenant);
    struct dv_lease_device *device = dv_lease_device_of(lease);
    wait_for_room(lease, 0);
    unplace(lease, lease->memory.placed);
    unlist(lease);
    forget_ahead(lease);
    settle_places(device);
}

/* A quota below what is there: the rest goes to host memory. */
static void shrink(struct dv_tenant_device *tenant)
{
    struct dv_session_lease *lease;
    uint64_t over = beyond(tenant->memory.placed, 0, tenant->memory.quota);

    DL_FOREACH2 (tenant->memory.members, lease, memory.next)
        over -= least(lease->memory.evicting, over);
    DL_FOREACH2 (tenant->memory.members, lease, memory.next) {
        uint64_t bytes = least(lease->memory.placed - lease->memory.evicting, over);
        over -= bytes;
        if (bytes)
            ask_to_evict(lease, bytes);
    }
}

/* What it could not part with while it computed it can now. */
void dv_memory_given_back(struct dv_session_lease *lease)
{
    if (!lease->memory.brings) /* it could run */
        set_away(lease, 0);
    lease->memory.brings = false;
    lease->memory.brought = 0;
    keeps_no_longer(lease);
    wait_for_room(lease, 0);
    if (lease->tenant->memory.placed > lease->tenant->memory.quota)
        shrink(lease->tenant);
    settle_places(dv_lease_device_of(lease)); /* before it is granted the device again */
}

void dv_memory_leave(struct dv_tenant_device *tenant)
{
    tenant->memory.timer = sd_event_source_disable_unref(tenant->memory.timer);
}

/* ---- after a restart ---- */

void dv_memory_readopt(struct dv_session_lease *lease)
{
    set_reserved(lease, least(lease->record->reserved, DV_MEMORY_BYTES_MOST));
    lease->memory.placed = least(lease->record->placed, DV_MEMORY_BYTES_MOST);
    lease->tenant->memory.placed += lease->memory.placed;
    dv_lease_device_of(lease)->memory.placed += lease->memory.placed;
    list(lease, lease->memory.placed > 0);
}

void dv_memory_adopt(struct dv_session_lease *lease, const struct dv_sync_message *m)
{
    struct dv_memory_message asked = {.type = DV_MEMORY_RESERVE, .id = m->asked_id, .bytes = m->asked};
    struct dv_memory_message place = {.type = DV_MEMORY_PLACE,
                                      .flags = (m->flags & DV_SYNC_AHEAD ? DV_MEMORY_AHEAD : 0) |
                                               (m->flags & DV_SYNC_IN_LINE ? DV_MEMORY_WAITS : 0),
                                      .id = m->place_id,
                                      .bytes = m->place_bytes};

    give_back(lease, beyond(lease->memory.reserved, 0, m->reserved));
    unplace(lease, beyond(lease->memory.placed, 0, m->placed));
    set_evicting(lease, least(m->evicting, lease->memory.placed));
    lease->memory.in_time_until = dv_now();
    settle(lease->tenant);
    if (m->asked)
        dv_memory_take(lease, &asked);
    if (m->place_bytes || (m->flags & DV_SYNC_BRINGS))
        dv_memory_take(lease, &place);
    settle_places(dv_lease_device_of(lease));
}

void dv_memory_set_request(struct dv_tenant_device *tenant, uint64_t request)
{
    tenant->memory.request = least(request, tenant->memory.quota);
    if (tenant->record)
        tenant->record->memory_request = tenant->memory.request;
}

void dv_memory_set_quota(struct dv_tenant_device *tenant, uint64_t quota)
{
    tenant->memory.quota = quota;
    if (tenant->record)
        tenant->record->quota = quota;
    dv_memory_set_request(tenant, tenant->memory.request);
    settle(tenant);
    shrink(tenant);
}

/* ---- checking ---- */

static void complain(char *text, size_t bytes, unsigned *count, const char *what, const char *who,
                     uint64_t ledger, uint64_t truth)
{
    size_t used = strlen(text);

    ++*count;
    if (used < bytes)
        snprintf(text + used, bytes - used, "%s of %s: the ledger says %" PRIu64 ", it is %" PRIu64 "\n",
                 what, who, ledger, truth);
}

unsigned dv_memory_check(struct dv_arbiter *arbiter, char *text, size_t bytes)
{
    unsigned count = 0;

    text[0] = '\0';
    for (const struct dv_tenant *tenant = arbiter->tenants; tenant; tenant = tenant->hh.next)
        for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
            const struct dv_session_lease *lease;
            uint64_t reserved = 0;
            if (!tenant->devices[i])
                continue;
            DL_FOREACH2 (tenant->devices[i]->memory.members, lease, memory.next)
                reserved += lease->memory.reserved;
            if (reserved != tenant->devices[i]->memory.reserved)
                complain(text, bytes, &count, "reserved bytes", tenant->name,
                         tenant->devices[i]->memory.reserved, reserved);
        }
    for (const struct dv_session *session = arbiter->sessions; session; session = session->hh.next) {
        struct dv_session_figures figures;
        uint64_t reserved = 0, placed = 0;
        char who[32];
        if (session->state != DV_SESSION_SERVED || !session->leases)
            continue;
        for (uint32_t i = 0; i < session->device_count; i++)
            if (session->leases[i]) {
                reserved += session->leases[i]->memory.reserved;
                placed += session->leases[i]->memory.placed;
            }
        dv_session_read_figures(session, &figures);
        snprintf(who, sizeof who, "session %" PRIu64, session->id);
        if (placed < figures.placed_bytes)
            complain(text, bytes, &count, "bytes on devices", who, placed, figures.placed_bytes);
        if (reserved != figures.reserved_bytes)
            complain(text, bytes, &count, "reserved bytes", who, reserved, figures.reserved_bytes);
    }
    return count;
}
