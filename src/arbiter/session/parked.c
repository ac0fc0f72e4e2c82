/* Parking: a session gives up its worker, and so all that it has on devices, until its program wants a worker again.
 * The worker leaves what the next one needs in the session's store. The program notices nothing but the time. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/private.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/futex.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

/* ---- asking the worker ---- */

/* As large as the memory that the session shares with its program: it holds the same objects. */
static int make_store(struct dvd_session *session)
{
    char name[32];

    if (session->store_fd >= 0)
        return 0;
    snprintf(name, sizeof name, "divvy-store-%llu", ID(session));
    session->store_fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (session->store_fd < 0)
        return -errno;
    if (ftruncate(session->store_fd, (off_t)session->shm_bytes) < 0 ||
        fcntl(session->store_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int error = -errno;
        dv_close_fd(&session->store_fd);
        return error;
    }
    return 0;
}

static int ask_worker(struct dvd_session *session, bool parks)
{
    const struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                       .version = DV_LEASE_VERSION,
                                       .type = DV_LEASE_PARK,
                                       .slice_ns = parks ? session->shm_bytes : 0};

    return dvd_channel_send_fd(&session->channel, &m, sizeof m, parks ? session->store_fd : -1);
}

/* It goes on as if it had not been asked. */
static int on_impatience(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_session *session = userdata;

    (void)source;
    (void)usec;
    if (session->parking == DVD_PARK_ASKED) {
        session->parking = DVD_PARK_NOT;
        ask_worker(session, false);
        dv_warning("session %llu of %s (process %d) is not parked: its commands have not ended within %d s",
                   ID(session), session->command, session->tenant_pid, (int)(DV_PARK_PATIENCE_US / DV_S));
    }
    return 0;
}

int dvd_session_park(struct dvd_session *session, char *text, size_t bytes)
{
    if (session->state == DV_SESSION_PARKED || session->parking != DVD_PARK_NOT)
        return 0;
    if (session->state != DV_SESSION_SERVED || session->api != DV_API_OPENCL || session->worker_gone ||
        session->tenant_gone || session->ended_because[0]) {
        snprintf(text, bytes, "this session has no worker that could leave it");
        return -EINVAL;
    }
    if (!session->lessee.leased_mask) {
        snprintf(text, bytes,
                 "the time of its devices is not shared out (policy: none in divvy.yaml), so divvyd cannot "
                 "speak with its worker");
        return -EINVAL;
    }
    int error = make_store(session);
    if (session->lessee.record) /* the next daemon must have it when the worker answers */
        dvd_keeper_put(session->sessions->keeper, session->lessee.id.value);
    if (error == 0)
        error = ask_worker(session, true);
    if (error < 0) {
        snprintf(text, bytes, "its worker cannot be asked: %s", strerror(-error));
        return error;
    }
    session->parking = DVD_PARK_ASKED;
    dvd_session_set_timer(session, DV_PARK_PATIENCE_US, on_impatience);
    return 0;
}

static const char *reason_words(uint32_t reason)
{
    switch (reason) {
    case DV_PARK_NO_MEMORY:
        return "its worker or the driver lacks memory to save all";
    case DV_PARK_NO_ROOM:
        return "its store is too small for all";
    case DV_PARK_NO_STORE:
        return "its worker cannot map the store";
    default:
        return "its worker says no reason";
    }
}

void dvd_session_take_park_answer(struct dvd_session *session, const struct dv_lease_message *m)
{
    bool is_asked = session->parking == DVD_PARK_ASKED;

    /* Without its program the session ends with the worker, whatever that says: the timer is for that. */
    if (session->state != DV_SESSION_SERVED || session->store_fd < 0 || session->parking == DVD_PARK_DONE ||
        session->tenant_gone || session->worker_gone || (m->type == DV_LEASE_NOT_PARKED && !is_asked))
        return;
    if (is_asked)
        session->timer = sd_event_source_disable_unref(session->timer);
    if (m->type == DV_LEASE_NOT_PARKED) {
        session->parking = DVD_PARK_NOT;
        dv_warning("session %llu of %s (process %d) is not parked: %s", ID(session), session->command,
                   session->tenant_pid, reason_words(m->flags));
        return;
    }
    session->parking = DVD_PARK_DONE;
    dvd_session_signal_worker(session, SIGKILL); /* it only waits for that */
}

/* ---- parked ---- */

static void watch_bell(struct dvd_session *session)
{
    int error = dvd_bells_watch(&session->sessions->bells, session->lessee.id, session->shm_fd,
                                offsetof(struct dv_shm_header, worker_asleep));

    if (error < 0) {
        dv_warning("session %llu: cannot watch for its program, so it is not parked for long: %s", ID(session),
                   strerror(-error));
        dvd_session_resume(session);
    }
}

/* A worker can end before its answer is read, or an earlier daemon may have read it. The header is the client's to
 * write, too, so it counts only where a worker was asked: otherwise one that crashes would be followed for ever. */
static bool has_left(const struct dvd_session *session)
{
    uint32_t state = DV_WORKER_STARTING;

    if (session->store_fd < 0 || session->tenant_gone || session->ended_because[0])
        return false;
    return session->parking == DVD_PARK_DONE ||
           ((session->parking == DVD_PARK_ASKED || session->asked_before) &&
            pread(session->shm_fd, &state, sizeof state, offsetof(struct dv_shm_header, worker_state)) ==
                (ssize_t)sizeof state &&
            state == DV_WORKER_PARKED);
}

void dvd_session_goes_on_parked(struct dvd_session *session)
{
    session->state = DV_SESSION_PARKED;
    watch_bell(session);
}

static bool worker_left(struct dvd_session *session)
{
    if (!has_left(session))
        return false;
    dvd_channel_leave(&session->channel);
    dvd_lessee_part(&session->lessee);
    session->timer = sd_event_source_disable_unref(session->timer);
    session->worker_io = sd_event_source_disable_unref(session->worker_io);
    dv_close_fd(&session->worker_pidfd);
    dvd_session_drop_worker_parts(session);
    dv_info("session %llu of %s (process %d) is parked; worker %d has ended", ID(session), session->command,
            session->tenant_pid, session->worker_pid);
    session->worker_pid = 0;
    session->worker_gone = session->worker_ended_first = session->request_sent = false;
    session->parking = DVD_PARK_NOT;
    session->asked_before = false;
    session->state = DV_SESSION_PARKED;
    dvd_session_record(session);
    dvd_session_goes_on_parked(session);
    return true;
}

void dvd_sessions_bell_rang(void *owner, struct dvd_session_id id)
{
    struct dvd_session *session = dvd_session_find(owner, id);

    if (session && session->state == DV_SESSION_PARKED)
        dvd_session_resume(session);
}

void dvd_sessions_bells_lost(void *owner)
{
    struct dvd_sessions *sessions = owner;
    struct dvd_session *session, *next;

    HASH_ITER (hh, sessions->all, session, next)
        if (session->state == DV_SESSION_PARKED)
            watch_bell(session);
}

/* ---- a new worker ---- */

static int on_try_again(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    dvd_session_resume(userdata);
    return 0;
}

/* No worker has come: the next attempt is later. */
static void not_resumed(struct dvd_session *session, const char *why)
{
    dv_warning("session %llu of %s (process %d) stays parked: %s", ID(session), session->command, session->tenant_pid,
               why);
    dvd_session_drop_worker_parts(session);
    session->request_sent = false;
    session->state = DV_SESSION_PARKED;
    dvd_session_set_timer(session, 10 * DV_RESUME_PAUSE_US, on_try_again);
}

/* For a program that waits for a worker that will never come. */
static void mark_ended(int fd, const void *data)
{
    struct dv_shm_header *header = mmap(NULL, DV_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    (void)data;
    if (header == MAP_FAILED)
        return;
    atomic_fetch_or(&header->worker_life, DV_LIFE_DIED);
    dv_futex_wake(&header->worker_life, INT_MAX);
    munmap(header, DV_PAGE);
}

static void tell_end(struct dvd_session *session)
{
    if (session->store_fd < 0 || session->worker_pid || session->tenant_gone)
        return;
    if (session->sessions->is_stopping ||
        !dvd_aside_start(&session->sessions->asides, mark_ended, session->shm_fd, NULL, NULL, session->lessee.id))
        mark_ended(session->shm_fd, NULL);
}

void dvd_session_resume(struct dvd_session *session)
{
    if (session->state != DV_SESSION_PARKED)
        return;
    dvd_bells_forget(&session->sessions->bells, session->lessee.id);
    if (dvd_session_start_again(session) < 0) /* as when divvyd has too few descriptors: its program waits */
        dvd_session_set_timer(session, DV_RESUME_PAUSE_US, on_try_again);
}

const struct dvd_session_parking dvd_session_parking = {
    .worker_left = worker_left, .not_resumed = not_resumed, .tell_end = tell_end};
