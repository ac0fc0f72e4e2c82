/* Sets that move (see memory.h). */
#include "src/sim/memory.h"

#include "src/sim/daemon.h"

/* A set is copied in this many pieces, unless they would be tiny: copies out and in can overlap. */
#define PIECES 16
#define PIECE_MIN_BYTES (UINT64_C(1) << 20)

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t set_of(const struct dv_sim_session *session)
{
    return session->tenant->device->spec->memory_bytes ? session->tenant->spec->set_bytes : 0;
}

static uint64_t lacks(const struct dv_sim_session *session)
{
    return set_of(session) - session->memory.resident;
}

static uint64_t piece_of(const struct dv_sim_session *session)
{
    uint64_t piece = set_of(session) / PIECES;

    return piece > PIECE_MIN_BYTES ? piece : PIECE_MIN_BYTES;
}

bool dv_sim_memory_is_there(const struct dv_sim_session *session)
{
    return lacks(session) == 0 && session->memory.copy == DV_COPY_NONE;
}

static bool holds_device(const struct dv_sim_session *session)
{
    return session->state >= DV_WORKER_STARTING;
}

/* ---- copies ---- */

/* Begins to copy a piece as soon as the device can. */
static void begin_copy(struct dv_engine *engine, struct dv_sim_session *session, enum dv_copy copy, uint64_t bytes)
{
    struct dv_sim_device *device = session->tenant->device;
    bool both_ways = device->spec->has_copy_engine;
    dv_ns *free_at = &device->memory.free_at[both_ways && copy == DV_COPY_OUT];
    dv_ns takes = (dv_ns)((dv_wide)bytes * DV_NS_PER_S / (dv_wide)device->spec->copy_bytes_per_s);

    session->memory.copy = copy;
    session->memory.copy_bytes = bytes;
    *free_at = (*free_at > engine->now ? *free_at : engine->now) + takes;
    dv_events_push(&engine->events, *free_at, DV_EVENT_COPIED, session, ++session->memory.copy_number);
}

void dv_sim_memory_copied(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;
    struct dv_sim_memory *device = &tenant->device->memory;
    uint64_t bytes = session->memory.copy_bytes;

    if (session->memory.copy == DV_COPY_IN) {
        session->memory.resident += bytes;
        tenant->moved_bytes += bytes;
        device->moved_bytes += bytes;
    } else {
        session->memory.resident -= bytes;
        tenant->evicted_bytes += bytes;
        device->evicted_bytes += bytes;
    }
    session->memory.copy = DV_COPY_NONE;
    if (device->ahead == session && lacks(session) == 0) {
        device->ahead = NULL;
        tenant->moves_ahead++;
        dv_sim_memory_ahead(engine, tenant->device);
    }
}

/* ---- room ---- */

void dv_sim_memory_hear(struct dv_sim_session *session, const struct dv_memory_message *m)
{
    switch (m->type) {
    case DV_MEMORY_PLACED:
        session->memory.room += m->bytes;
        session->memory.asked &= m->id != session->memory.place_id;
        break;
    case DV_MEMORY_NO_ROOM:
        session->memory.refused |= m->id == session->memory.place_id;
        session->memory.asked &= m->id != session->memory.place_id;
        break;
    case DV_MEMORY_EVICT:
        session->memory.evict_due += m->bytes;
        session->memory.evict_id = m->id;
        break;
    default:
        break;
    }
}

static void ask_for_room(struct dv_sim_session *session, uint64_t bytes, uint32_t flags)
{
    session->memory.asked = bytes > 0; /* without a need for room it tells the daemon that it moves */
    session->memory.refused = false;
    dv_daemon_memory(session, DV_MEMORY_PLACE, ++session->memory.place_id, bytes, flags);
}

static void give_room_back(struct dv_sim_session *session, uint64_t bytes, uint64_t evict_id)
{
    session->memory.room -= bytes;
    dv_daemon_memory(session, DV_MEMORY_UNPLACE, evict_id, bytes, 0);
}

/* Room without data costs nothing to give up. A session that holds the device needs all that it has. */
static void evict(struct dv_engine *engine, struct dv_sim_session *session)
{
    uint64_t due = session->memory.evict_due;
    uint64_t spare = smaller(session->memory.room - session->memory.resident, due);

    if (holds_device(session) || (!spare && !session->memory.resident)) {
        session->memory.evict_due = 0;
        dv_daemon_memory(session, DV_MEMORY_KEEPS, session->memory.evict_id, due, 0);
        return;
    }
    if (spare) {
        session->memory.evict_due -= spare;
        give_room_back(session, spare, session->memory.evict_id);
    }
    if (session->memory.evict_due)
        begin_copy(engine, session, DV_COPY_OUT,
                   smaller(smaller(session->memory.evict_due, session->memory.resident), piece_of(session)));
}

static void bring_in(struct dv_engine *engine, struct dv_sim_session *session)
{
    uint64_t ready = smaller(session->memory.room - session->memory.resident, lacks(session));

    if (ready)
        begin_copy(engine, session, DV_COPY_IN, smaller(ready, piece_of(session)));
}

/* Asks for the next piece while this one is copied. A session that was refused queues for the whole rest. */
static void ask_for_next(struct dv_sim_session *session)
{
    uint64_t needs = set_of(session) - smaller(set_of(session), session->memory.room);

    if (session->memory.asked || needs == 0 || dv_sim_memory_is_stuck(session))
        return;
    session->memory.queues |= session->memory.refused;
    ask_for_room(session, session->memory.queues ? needs : smaller(needs, piece_of(session)),
                 session->memory.queues ? DV_MEMORY_WAITS : 0);
}

bool dv_sim_memory_is_stuck(const struct dv_sim_session *session)
{
    return session->memory.refused && session->memory.queues;
}

void dv_sim_memory_step(struct dv_engine *engine, struct dv_sim_session *session)
{
    bool moves = session->state == DV_WORKER_MOVING;

    if (session->state == DV_WORKER_ABSENT)
        return;
    if (moves)
        ask_for_next(session);
    if (session->memory.copy != DV_COPY_NONE)
        return;
    if (session->memory.evict_due)
        evict(engine, session);
    else if (moves || session->tenant->device->memory.ahead == session)
        bring_in(engine, session);
}

/* ---- ahead of a grant ---- */

static bool is_before(const struct dv_sim_session *session, const struct dv_sim_session *other)
{
    return !other || session->asked_at < other->asked_at;
}

static struct dv_sim_session *longest_waiting(const struct dv_sim_device *device)
{
    struct dv_sim_session *best = NULL;

    for (struct dv_sim_tenant *tenant = device->tenants; tenant; tenant = tenant->next_there) {
        for (unsigned j = 0; j < tenant->spec->session_count; j++) {
            struct dv_sim_session *session = &tenant->sessions[j];
            if (session->state == DV_WORKER_WAITING && lacks(session) && is_before(session, best))
                best = session;
        }
    }
    return best;
}

void dv_sim_memory_ahead(struct dv_engine *engine, struct dv_sim_device *device)
{
    struct dv_sim_session *ahead = device->memory.ahead;

    if (!device->spec->has_copy_engine || !device->spec->memory_bytes)
        return;
    if (ahead && ahead->state == DV_WORKER_WAITING && (ahead->memory.asked || ahead->memory.copy != DV_COPY_NONE))
        return;
    device->memory.ahead = ahead = longest_waiting(device);
    if (!ahead)
        return;
    if (ahead->memory.room < set_of(ahead))
        ask_for_room(ahead, set_of(ahead) - ahead->memory.room, DV_MEMORY_AHEAD);
    dv_sim_memory_step(engine, ahead);
}

/* ---- holds ---- */

void dv_sim_memory_begin(struct dv_engine *engine, struct dv_sim_session *session)
{
    session->memory.moves_since = engine->now;
    session->memory.asked = session->memory.refused = session->memory.queues = false;
    if (session->tenant->device->memory.ahead == session)
        session->tenant->device->memory.ahead = NULL;
    if (session->memory.room >= set_of(session))
        ask_for_room(session, 0, 0);
    dv_sim_memory_step(engine, session);
}

void dv_sim_memory_end(struct dv_engine *engine, struct dv_sim_session *session, bool is_there)
{
    struct dv_sim_tenant *tenant = session->tenant;
    dv_ns lost = engine->now - session->memory.moves_since;

    tenant->moves++;
    tenant->moving_ns += lost;
    tenant->device->memory.moves++;
    tenant->device->memory.moving_ns += lost;
    if (!is_there)
        return;
    dv_daemon_memory(session, DV_MEMORY_IN_PLACE, 0, lost, 0);
    if (session->memory.room > set_of(session))
        give_room_back(session, session->memory.room - set_of(session), 0);
}

void dv_sim_memory_forget(struct dv_sim_session *session)
{
    struct dv_sim_memory *device = &session->tenant->device->memory;

    if (device->ahead == session)
        device->ahead = NULL;
    session->memory.room = session->memory.resident = session->memory.evict_due = 0;
    session->memory.copy = DV_COPY_NONE;
    session->memory.copy_number++;
}
