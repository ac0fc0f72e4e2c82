/* How a session ends: with its worker, with its program, by divvyd, or with divvyd. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/private.h"
#include "src/base/clock.h"
#include "src/base/text.h"

/* ---- the worker's end ---- */

/* The signal that ended it, or 0. */
static int signal_of(int status)
{
    return WIFSIGNALED(status)                            ? WTERMSIG(status)
           : WEXITSTATUS(status) > DV_SANDBOX_SIGNAL_BASE ? WEXITSTATUS(status) - DV_SANDBOX_SIGNAL_BASE
                                                          : 0;
}

static void describe_end(char *text, size_t bytes, int status)
{
    int number = signal_of(status);

    if (number) {
        const char *name = sigabbrev_np(number);
        snprintf(text, bytes, "was ended by signal %d (SIG%s)", number, name ? name : "?");
    } else {
        snprintf(text, bytes, "ended with code %d", WEXITSTATUS(status));
    }
}

/* Its worker has ended under its program: what it wrote last may say why. */
static void note_crash(struct dvd_session *session, const char *how)
{
    const char *last = session->log ? dvd_worker_log_last(session->log) : "";

    session->end_kind = DVD_END_CRASHED;
    snprintf(session->ended_because, sizeof session->ended_because, "its worker %s before its program ended%s%s%s", how,
             last[0] ? "; the worker's last words: \"" : "", last, last[0] ? "\"" : "");
}

/* The session is over: its worker and its holds are gone. */
static void session_end(struct dvd_session *session, const char *how, bool orderly)
{
    char text[DV_MAX_MESSAGE_TEXT];

    if (session->ended_because[0])
        dv_warning("session %llu of %s (process %d): worker %d was terminated: %s", ID(session), session->command,
                   session->tenant_pid, session->worker_pid, session->ended_because);
    else if (session->worker_ended_first)
        dv_log(orderly || session->sessions->is_stopping ? DV_LOG_INFO : DV_LOG_WARNING,
               "session %llu of %s (process %d): worker %d %s while its program runs", ID(session), session->command,
               session->tenant_pid, session->worker_pid, how);
    if (session->worker_ended_first && !orderly && !session->ended_because[0])
        note_crash(session, how);
    if (session->client_fd >= 0 && !session->tenant_gone) {
        snprintf(text, sizeof text,
                 "the worker of this session %s; see divvyd's log, and restart the program to get a "
                 "new worker",
                 how);
        dvd_session_send_welcome(session->client_fd, session->version, DV_WELCOME_GONE, session->lessee.id.value, 0, -1,
                                 text);
    }
    dvd_session_free(session);
}

static int on_no_status(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    session_end(userdata, "has ended", true);
    return 0;
}

static int on_worker_gone(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_session *session = userdata;

    (void)source;
    (void)fd;
    (void)events;
    if (session->sessions->parking->worker_left(session))
        return 0;
    session->worker_gone = true;
    session->worker_ended_first = !session->tenant_gone;
    dvd_channel_leave(&session->channel);
    dvd_lessee_part(&session->lessee);
    session->worker_io = sd_event_source_disable_unref(session->worker_io);
    /* Only its parent knows how a process ended. */
    if (session->sessions->zygote->fd >= 0 && session->zygote_generation == session->sessions->zygote->generation)
        dvd_session_set_timer(session, DV_STATUS_TIMEOUT_US, on_no_status);
    else
        session_end(session, "has ended", true);
    return 0;
}

int dvd_session_watch_worker(struct dvd_session *session)
{
    return sd_event_add_io(session->sessions->event, &session->worker_io, session->worker_pidfd, EPOLLIN,
                           on_worker_gone, session);
}

void dvd_session_worker_exited(struct dvd_session *session, pid_t pid, int status)
{
    char how[64];

    if (session->state != DV_SESSION_SERVED || session->worker_pid != pid)
        return;
    if (session->sessions->parking->worker_left(session))
        return;
    if (!session->worker_gone) /* the zygote was quicker than the kernel */
        session->worker_ended_first = !session->tenant_gone;
    /* A program that has lost its worker may be gone sooner than the rest of the worker. */
    session->worker_ended_first |= signal_of(status) && !session->worker_killed && !session->sessions->is_stopping;
    describe_end(how, sizeof how, status);
    if (!session->ended_because[0] && signal_of(status) == SIGKILL &&
        dvd_sandbox_starved(session->sessions->sandboxes, &session->sandbox)) {
        snprintf(session->ended_because, sizeof session->ended_because,
                 "the workers of its tenant and user had used up their memory (worker-memory)");
        session->end_kind = DVD_END_TERMINATED;
    }
    session_end(session, how, WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- terminated by divvyd ---- */

/* Called when its program has been told why, or cannot be. */
static void end_worker(void *owner, struct dvd_session_id id, bool is_told)
{
    const struct dvd_session *session = dvd_session_find(owner, id);

    (void)is_told;
    if (session)
        dvd_session_signal_worker(session, SIGKILL);
}

void dvd_session_end_for(struct dvd_session *session, const char *why)
{
    if (session->ended_because[0])
        return;
    dv_text_copy(session->ended_because, sizeof session->ended_because, why);
    session->end_kind = DVD_END_TERMINATED;
    if (session->state == DV_SESSION_PARKED) {
        session->sessions->parking->tell_end(session);
        dvd_session_free(session);
        return;
    }
    if (session->api == DV_API_LEASE) {
        dv_warning("session %llu of %s (process %d): %s; the next session gets it", ID(session), session->command,
                   session->tenant_pid, session->ended_because);
        if (session->lease_only) /* its process is the tenant's own; this is reported as its end */
            shutdown(session->channel.fd, SHUT_RDWR);
        return;
    }
    if (session->tenant_gone || !dvd_session_tell(session, session->ended_because, end_worker))
        end_worker(session->sessions, session->lessee.id, false);
}

/* ---- the tenant's end ---- */

static int on_orphan_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_session *session = userdata;

    (void)source;
    (void)usec;
    dv_warning("session %llu: worker %d did not end with its program, it is killed", ID(session), session->worker_pid);
    session->worker_killed = true;
    dvd_session_signal_worker(session, SIGKILL);
    return 0;
}

static void session_orphaned(struct dvd_session *session)
{
    if (session->state == DV_SESSION_SERVED && !session->worker_gone)
        dvd_session_set_timer(session, DV_ORPHAN_TIMEOUT_US, on_orphan_deadline);
}

void dvd_session_tenant_gone(struct dvd_session *session)
{
    session->tenant_gone = true;
    dvd_session_drop_client(session);
    if (session->state == DV_SESSION_SERVED && session->api != DV_API_LEASE) {
        session_orphaned(session);
        return;
    }
    dv_debug("session %llu: its program has left", ID(session));
    dvd_session_free(session); /* a worker that is forked after all is killed on arrival */
}

void dvd_session_hung_up(struct dvd_session *session)
{
    if (session->api == DV_API_LEASE)
        dvd_session_free(session);
    /* otherwise the worker's pidfd reports the end */
}

/* After hello a client only listens: after any event on its socket divvyd closes its end. A client
 * that leaves before it has its worker wants no session. */
static int on_client_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_session *session = userdata;

    (void)source;
    (void)fd;
    (void)events;
    dvd_session_drop_client(session);
    if (session->state != DV_SESSION_SERVED)
        dvd_session_free(session);
    return 0;
}

int dvd_session_watch_client(struct dvd_session *session)
{
    return sd_event_add_io(session->sessions->event, &session->client_io, session->client_fd, EPOLLIN, on_client_io,
                           session);
}

/* ---- the end of all sessions ---- */

void dvd_sessions_exits_lost(struct dvd_sessions *sessions)
{
    struct dvd_session *session, *next;

    HASH_ITER (hh, sessions->all, session, next)
        if (session->state == DV_SESSION_SERVED && session->worker_gone)
            session_end(session, "has ended", true);
}

void dvd_sessions_stop(struct dvd_sessions *sessions, int signal_number)
{
    struct dvd_session *session, *next;

    /* Without a worker a holder goes on for a moment: the device must not be granted to the next when it is freed. */
    for (session = sessions->all; session; session = session->hh.next)
        if (session->state == DV_SESSION_SERVED && session->api == DV_API_LEASE)
            shutdown(session->channel.fd, SHUT_RDWR);
    HASH_ITER (hh, sessions->all, session, next) {
        if (session->state == DV_SESSION_SERVED && session->api == DV_API_LEASE)
            dvd_session_free(session);
        else if (session->state == DV_SESSION_SERVED)
            dvd_session_signal_worker(session, signal_number);
        else
            dvd_session_refuse(session, DV_WELCOME_REFUSED, "divvyd is ending");
    }
}

void dvd_sessions_forget(struct dvd_sessions *sessions)
{
    struct dvd_session *session, *next;

    HASH_ITER (hh, sessions->all, session, next) {
        dvd_session_free(session);
    }
}
