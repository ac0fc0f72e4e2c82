/* The memory that sessions share with their workers (see arenas.h). */
#include "src/arbiter/session/arenas.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/system/peers.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

#define GIB (UINT64_C(1) << 30)

/* ---- size ---- */

/* The quotas of all devices of the session together; UINT64_MAX: one of them has none. */
static uint64_t quota_of(const struct dvd_session *session)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < session->lessee.device_count; i++) {
        uint32_t device = session->lessee.devices[i].number;
        const struct dvd_tenant_device *there = session->lessee.tenant->devices[device];
        if (!(session->lessee.leased_mask >> i & 1))
            return UINT64_MAX; /* no ledger counts it */
        uint64_t quota =
            there ? there->memory.quota
                  : dvd_device_size(&session->sessions->ledger->devices[device], &session->lessee.tenant->terms.memory);
        if (__builtin_add_overflow(sum, quota, &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* Half as much again is for gaps between objects, the rest for other memory. */
uint64_t dvd_arenas_size(const struct dvd_session *session)
{
    uint64_t most = session->sessions->config->arena_bytes, quota = quota_of(session);

    if (quota > most)
        return most;
    uint64_t bytes = (DV_SHM_ARENA_OFFSET + quota + quota / 2 + GIB) / DV_PAGE * DV_PAGE;
    return bytes < most ? bytes : most;
}

/* ---- contents ---- */

/* The bytes that may be backed by memory: the rings; each object, and a copy where it is mapped or comes from;
 * freed memory that the library keeps; staging, replies and sources. */
static uint64_t bytes_allowed(const struct dvd_session *session)
{
    uint64_t quota = quota_of(session), reserved = 0;

    if (quota == UINT64_MAX)
        return UINT64_MAX;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        if (session->lessee.leases[i])
            reserved += session->lessee.leases[i]->memory.reserved;
    uint64_t warm = quota < DV_ARENA_WARM_MAX ? quota : DV_ARENA_WARM_MAX;
    if (warm < DV_ARENA_WARM_MIN)
        warm = DV_ARENA_WARM_MIN;
    return DV_SHM_ARENA_OFFSET + 2 * reserved + warm + DV_ARENA_OTHER_BYTES;
}

static void look_at(struct dvd_session *session)
{
    struct stat info;
    char has[32], may[32], why[sizeof session->ended_because];

    if (session->state != DV_SESSION_SERVED || session->shm_fd < 0 || fstat(session->shm_fd, &info) < 0)
        return;
    uint64_t bytes = (uint64_t)info.st_blocks * 512, most = bytes_allowed(session);
    if (bytes <= most) {
        session->arena_over = 0;
        return;
    }
    /* A released reservation stops counting at once, but the program frees its memory: one that is
     * stopped by a debugger cannot. */
    if (++session->arena_over < DV_ARENA_LOOKS || dvd_process_is_stopped(session->tenant_pid))
        return;
    dv_text_format_size(has, sizeof has, bytes);
    dv_text_format_size(may, sizeof may, most);
    snprintf(why, sizeof why,
             "the memory that it shares with its program has taken %s of host memory for %d s; its "
             "reservations allow %s",
             has, DV_ARENA_LOOKS, may);
    session->sessions->arenas.on_excess(session, why);
}

/* ---- periodic checks ---- */

static void arm(struct dvd_sessions *sessions, uint64_t delay_us);

/* A few sessions at a time, so that other events of the loop are handled in between. */
static int on_look(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_sessions *sessions = userdata;
    struct dvd_session *session = sessions->arenas.next ? sessions->arenas.next : sessions->all;

    (void)source;
    (void)usec;
    for (unsigned i = 0; session && i < DV_MAX_BATCH; i++) {
        struct dvd_session *next = session->hh.next;
        look_at(session);
        session = next;
    }
    sessions->arenas.next = session;
    if (sessions->all)
        arm(sessions, session ? DV_ARENA_STEP_US : DV_ARENA_LOOK_US);
    return 0;
}

static void arm(struct dvd_sessions *sessions, uint64_t delay_us)
{
    sd_event_source **timer = &sessions->arenas.timer;
    int error = 0;

    if (!*timer)
        error = sd_event_add_time_relative(sessions->event, timer, CLOCK_MONOTONIC, delay_us, 100 * DV_MS, on_look,
                                           sessions);
    else
        error = sd_event_source_set_time_relative(*timer, delay_us);
    if (error >= 0)
        error = sd_event_source_set_enabled(*timer, SD_EVENT_ONESHOT);
    if (error < 0)
        dv_error("cannot check sessions' shared memory: %s", strerror(-error));
}

void dvd_arenas_watch(struct dvd_sessions *sessions)
{
    int enabled = SD_EVENT_OFF;

    if (!sessions->arenas.timer ||
        (sd_event_source_get_enabled(sessions->arenas.timer, &enabled) >= 0 && enabled == SD_EVENT_OFF))
        arm(sessions, DV_ARENA_LOOK_US);
}

void dvd_arenas_session_goes(struct dvd_sessions *sessions, const struct dvd_session *session)
{
    if (sessions->arenas.next == session)
        sessions->arenas.next = session->hh.next;
}

void dvd_arenas_fini(struct dvd_sessions *sessions)
{
    sessions->arenas.timer = sd_event_source_disable_unref(sessions->arenas.timer);
}
