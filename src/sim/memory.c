/* Sets that move (see memory.h). Room is booked when a move begins (`placed`); what is really there
 * follows (`resident`). Both change in place, unplace, count_move and the two functions of moves
 * ahead only. */
#include "src/sim/memory.h"

/* As in divvyd, which does not believe that bringing memory in is slower. */
#define MOVED_AT_LEAST_BYTES_PER_US 128
#define MOVING_COSTS_BESIDE_NS (5 * DV_NS_PER_MS)
#define MOVING_MAY_BE_LATE_NS (100 * DV_NS_PER_MS)
/* A move can be stopped between two pieces. */
#define PIECE_BYTES (UINT64_C(8) << 20)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t set_of(const struct dv_sim_session *session)
{
    return session->tenant->spec->set_bytes;
}

static dv_ns copy_ns(const struct dv_sim_device *device, uint64_t bytes)
{
    return (dv_ns)((dv_wide)bytes * DV_NS_PER_S / (dv_wide)device->spec->copy_bytes_per_s);
}

/* In whole pieces. */
static uint64_t copied_bytes(const struct dv_sim_device *device, dv_ns ns)
{
    uint64_t bytes =
        (uint64_t)((dv_wide)ns * (dv_wide)device->spec->copy_bytes_per_s / DV_NS_PER_S);
    return bytes / PIECE_BYTES * PIECE_BYTES;
}

static void place(struct dv_sim_session *session, uint64_t bytes)
{
    session->memory.placed += bytes;
    session->tenant->device->memory.placed += bytes;
}

/* Tells the policy, which prefers sessions whose sets are there. */
static void set_resident(struct dv_engine *engine, struct dv_sim_session *session, uint64_t bytes)
{
    session->memory.resident = bytes;
    dv_policy_set_away(&session->tenant->device->policy, &session->lease, bytes < set_of(session),
                       engine->now);
}

static void unplace(struct dv_engine *engine, struct dv_sim_session *session, uint64_t bytes)
{
    session->memory.placed -= bytes;
    session->tenant->device->memory.placed -= bytes;
    set_resident(engine, session, least(session->memory.resident, session->memory.placed));
}

void dv_sim_memory_join(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->tenant->device->spec->memory_bytes)
        set_resident(engine, session, 0);
}

/* ---- whose set goes ---- */

static bool can_lose(const struct dv_sim_session *session, const struct dv_sim_session *asking)
{
    return session != asking && session->memory.placed > 0 && !session->lease.holding;
}

/* What is brought in ahead of a turn takes nothing from those who may need it first. */
static bool may_take(const struct dv_sim_session *session, const struct dv_sim_session *asking,
                     bool ahead)
{
    if (ahead && (session->state != DV_WORKER_IDLE ||
                  session->tenant->spec->share.class < asking->tenant->spec->share.class))
        return false;
    return can_lose(session, asking);
}

/* The lower class first, then idle before waiting, then the one that has not run for longest. */
static bool goes_before(const struct dv_sim_session *a, const struct dv_sim_session *b)
{
    enum dv_class class_a = a->tenant->spec->share.class, class_b = b->tenant->spec->share.class;

    if (class_a != class_b)
        return class_a > class_b;
    if (a->lease.waiting != b->lease.waiting)
        return b->lease.waiting;
    return a->memory.used_at < b->memory.used_at;
}

static struct dv_sim_session *find_victim(const struct dv_sim_device *device,
                                          const struct dv_sim_session *asking, bool ahead)
{
    struct dv_sim_session *best = NULL;

    for (struct dv_sim_tenant *tenant = device->tenants; tenant; tenant = tenant->next_there) {
        for (unsigned j = 0; j < tenant->spec->session_count; j++) {
            struct dv_sim_session *session = &tenant->sessions[j];
            if (may_take(session, asking, ahead) && (!best || goes_before(session, best)))
                best = session;
        }
    }
    return best;
}

static void evict(struct dv_engine *engine, struct dv_sim_session *victim, uint64_t bytes)
{
    struct dv_sim_tenant *tenant = victim->tenant;
    /* room that is booked and empty costs nothing to give up */
    uint64_t empty = victim->memory.placed - victim->memory.resident;

    bytes = least(bytes, victim->memory.placed);
    tenant->evicted_bytes += bytes > empty ? bytes - empty : 0;
    tenant->device->memory.evicted_bytes += bytes > empty ? bytes - empty : 0;
    unplace(engine, victim, bytes);
}

/* Books room for the whole set. Returns false when it cannot be had now: nothing is evicted then.
 */
static bool make_room(struct dv_engine *engine, struct dv_sim_session *session, bool ahead)
{
    struct dv_sim_device *device = session->tenant->device;
    uint64_t needs = set_of(session) - session->memory.placed, stays = 0;
    struct dv_sim_session *victim;

    for (struct dv_sim_tenant *tenant = device->tenants; tenant; tenant = tenant->next_there) {
        for (unsigned j = 0; j < tenant->spec->session_count; j++)
            if (&tenant->sessions[j] != session && !may_take(&tenant->sessions[j], session, ahead))
                stays += tenant->sessions[j].memory.placed;
    }
    if (stays + set_of(session) > device->spec->memory_bytes)
        return false;
    while (device->memory.placed + needs > device->spec->memory_bytes &&
           (victim = find_victim(device, session, ahead)))
        evict(engine, victim, device->memory.placed + needs - device->spec->memory_bytes);
    place(session, needs);
    return true;
}

bool dv_sim_memory_fits_beside(const struct dv_policy *policy,
                               const struct dv_policy_session *lease)
{
    const struct dv_sim_session *session = (const void *)lease;
    uint64_t most = session->tenant->device->spec->memory_bytes, needs = set_of(session);

    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next)
        needs += set_of(dv_sim_session_of(holder));
    return !most || needs <= most;
}

/* ---- ahead of a turn ---- */

/* What has been brought in so far stays. */
static void stop_ahead(struct dv_engine *engine, struct dv_sim_device *device)
{
    struct dv_sim_session *session = device->memory.ahead;

    if (!session)
        return;
    uint64_t bytes = copied_bytes(device, engine->now - device->memory.ahead_since);
    bytes = least(bytes, session->memory.placed - session->memory.resident);
    set_resident(engine, session, session->memory.resident + bytes);
    device->memory.moved_bytes += bytes;
    session->tenant->moved_bytes += bytes;
    unplace(engine, session, session->memory.placed - session->memory.resident);
    device->memory.ahead = NULL;
    device->memory.ahead_number++;
}

static struct dv_sim_session *longest_waiting(const struct dv_sim_device *device)
{
    struct dv_sim_session *best = NULL;

    for (struct dv_sim_tenant *tenant = device->tenants; tenant; tenant = tenant->next_there) {
        for (unsigned j = 0; j < tenant->spec->session_count; j++) {
            struct dv_sim_session *session = &tenant->sessions[j];
            if (session->lease.waiting && session->memory.resident < set_of(session) &&
                (!best || session->lease.waiting_since < best->lease.waiting_since))
                best = session;
        }
    }
    return best;
}

void dv_sim_memory_ahead(struct dv_engine *engine, struct dv_sim_device *device)
{
    struct dv_sim_memory *memory = &device->memory;

    if (!device->spec->has_copy_engine || memory->ahead || memory->copies_until > engine->now)
        return;
    struct dv_sim_session *session = longest_waiting(device);
    uint64_t evicted = memory->evicted_bytes;
    if (!session || !make_room(engine, session, true))
        return;
    uint64_t in = set_of(session) - session->memory.resident;
    uint64_t out = memory->evicted_bytes - evicted;
    memory->ahead = session;
    memory->ahead_since = engine->now;
    dv_events_push(&engine->events, engine->now + copy_ns(device, in > out ? in : out),
                   DV_EVENT_AHEAD, device, ++memory->ahead_number);
}

void dv_sim_memory_ahead_done(struct dv_engine *engine, struct dv_sim_device *device)
{
    struct dv_sim_session *session = device->memory.ahead;
    uint64_t bytes = set_of(session) - session->memory.resident;

    set_resident(engine, session, session->memory.resident + bytes);
    session->tenant->moved_bytes += bytes;
    session->tenant->moves_ahead++;
    device->memory.moved_bytes += bytes;
    device->memory.ahead = NULL;
    dv_sim_memory_ahead(engine, device);
}

/* ---- in a turn ---- */

/* How long a session can take to bring in as much as it has on the device, itself. */
static dv_ns longest_move(const struct dv_sim_session *session, dv_ns beside_ns)
{
    return beside_ns + session->memory.waited_ns +
           session->memory.placed / MOVED_AT_LEAST_BYTES_PER_US * DV_NS_PER_US;
}

/* Room is booked. Others' sets leave first; a copy engine moves both ways at once. Moves of several
 * holders follow one another. */
static void begin_move(struct dv_engine *engine, struct dv_sim_session *session, uint64_t out_bytes)
{
    struct dv_sim_device *device = session->tenant->device;
    dv_ns queue_ns =
        device->memory.copies_until > engine->now ? device->memory.copies_until - engine->now : 0;
    dv_ns out_ns = copy_ns(device, out_bytes);
    dv_ns in_ns = copy_ns(device, set_of(session) - session->memory.resident);
    dv_ns all_ns = !device->spec->has_copy_engine ? out_ns + in_ns
                   : out_ns > in_ns               ? out_ns
                                                  : in_ns;

    dv_sim_set_state(session, DV_WORKER_MOVING);
    session->memory.bring_since = engine->now + queue_ns + all_ns - in_ns;
    device->memory.copies_until = engine->now + queue_ns + all_ns;
    dv_sim_later(engine, session, queue_ns + all_ns - in_ns, DV_EVENT_ROOM);
    dv_sim_later(engine, session, queue_ns + all_ns, DV_EVENT_MOVED);
}

bool dv_sim_memory_bring(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_device *device = session->tenant->device;

    if (!device->spec->memory_bytes)
        return false;
    if (device->memory.ahead == session)
        stop_ahead(engine, device);
    if (session->memory.resident == set_of(session)) {
        dv_sim_memory_ahead(engine, device);
        return false;
    }
    stop_ahead(engine, device);
    uint64_t evicted = device->memory.evicted_bytes;
    make_room(engine, session,
              false); /* there is room beside the other holders, or it had no turn */
    session->memory.moves_since = engine->now;
    session->memory.waited_ns = 0;
    dv_policy_moves(&session->lease, DV_MOVING_MAX_NS, engine->now);
    begin_move(engine, session, device->memory.evicted_bytes - evicted);
    return true;
}

void dv_sim_memory_has_room(struct dv_engine *engine, struct dv_sim_session *session)
{
    session->memory.waited_ns = engine->now - session->memory.moves_since;
    dv_policy_moves(&session->lease, longest_move(session, MOVING_MAY_BE_LATE_NS), engine->now);
}

static void count_move(struct dv_engine *engine, struct dv_sim_session *session, uint64_t bytes)
{
    struct dv_sim_tenant *tenant = session->tenant;
    dv_ns lost_ns = engine->now - session->memory.moves_since;

    tenant->moves++;
    tenant->moved_bytes += bytes;
    tenant->moving_ns += lost_ns;
    tenant->device->memory.moves++;
    tenant->device->memory.moved_bytes += bytes;
    tenant->device->memory.moving_ns += lost_ns;
    set_resident(engine, session, session->memory.resident + bytes);
}

void dv_sim_memory_is_there(struct dv_engine *engine, struct dv_sim_session *session)
{
    count_move(engine, session, set_of(session) - session->memory.resident);
    dv_ns took_ns = least(engine->now - session->memory.moves_since,
                          longest_move(session, MOVING_COSTS_BESIDE_NS));
    struct dv_decision decision =
        dv_policy_moved(&session->tenant->device->policy, &session->lease, took_ns, engine->now);
    if (decision.session) {
        session->slice_ends = engine->now + decision.slice_ns;
        if (decision.linger_ns > session->linger_ns)
            session->linger_ns = decision.linger_ns;
    }
    dv_sim_memory_ahead(engine, session->tenant->device);
}

void dv_sim_memory_stop(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_device *device = session->tenant->device;
    dv_ns piece_ns = copy_ns(device, PIECE_BYTES) + 1;
    dv_ns since = session->memory.bring_since;
    dv_ns into_ns = engine->now > since ? (engine->now - since) % piece_ns : 0;

    dv_sim_set_state(session, DV_WORKER_STOPPING);
    dv_sim_later(engine, session, into_ns ? piece_ns - into_ns : 0, DV_EVENT_STOPPED);
}

void dv_sim_memory_stopped(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_device *device = session->tenant->device;
    dv_ns since = session->memory.bring_since;
    uint64_t bytes = engine->now > since ? copied_bytes(device, engine->now - since) : 0;

    count_move(engine, session, least(bytes, set_of(session) - session->memory.resident));
    if (device->memory.copies_until > engine->now)
        device->memory.copies_until = engine->now;
    unplace(engine, session, session->memory.placed - session->memory.resident);
}

/* ---- after a turn ---- */

void dv_sim_memory_forget(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_device *device = session->tenant->device;

    if (device->memory.ahead == session)
        stop_ahead(engine, device);
    unplace(engine, session, session->memory.placed);
}
