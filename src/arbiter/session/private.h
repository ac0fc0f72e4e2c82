/* Shared by the files of this folder only. */
#ifndef DVD_SESSION_PRIVATE_H
#define DVD_SESSION_PRIVATE_H

#include "src/arbiter/session/session.h"

/* Wide enough for %llu of an id. */
#define ID(session) ((unsigned long long)(session)->lessee.id.value)

/* ---- session.c ---- */

/* The facts that identify a session when it begins, and later in its record. */
struct dvd_session_origin {
    struct dvd_session_id id;
    uid_t uid;
    gid_t gid;
    pid_t pid;
    uint16_t version;
    uint32_t api, present_as;
    time_t started;
    uint64_t started_us;
};

/* Makes a session and puts it among the others. Returns NULL when there is no memory; then the process is dropped. */
struct dvd_session *dvd_session_new(struct dvd_sessions *sessions, struct dvd_process *process,
                                    const struct dvd_session_origin *origin);
/* Sets descriptors aside for it, or as many as there are left. Returns false: there are not enough. */
bool dvd_session_take_descriptors(struct dvd_session *session);
/* Makes room for the leases of its devices. Returns false when there is no memory. */
bool dvd_session_make_leases(struct dvd_session *session);
/* Returns 0 or a negative errno. */
int dvd_session_signal_worker(const struct dvd_session *session, int number);
void dvd_session_drop_client(struct dvd_session *session);
/* A session has one timer at a time. */
void dvd_session_set_timer(struct dvd_session *session, uint64_t delay_us, sd_event_time_handler_t handler);
/* Ends a session that has no worker, telling the client why. */
void dvd_session_refuse(struct dvd_session *session, enum dv_welcome_status status, const char *text);
/* A log for its worker's output, not open yet. Returns 0 or a negative errno. */
int dvd_session_make_log(struct dvd_session *session);
/* Its lease channel is read from now on, if it has one. Without a worker that is the session's own socket, which says
 * when it ends. Returns 0 or a negative errno. */
static inline int dvd_session_enter_channel(struct dvd_session *session)
{
    bool has_channel = session->lessee.leased_mask || !session->lessee.has_worker;

    return has_channel ? dvd_channel_enter(&session->sessions->channels, &session->channel) : 0;
}
/* It starts, or stops, waiting for devices or the zygote. */
void dvd_session_enter_waiting(struct dvd_session *session);
void dvd_session_leave_waiting(struct dvd_session *session);
/* Writes a text for its program into the shared memory, where its library looks for it. Other processes can make such a
 * write slow, so divvyd leaves it to another process; done is called when the text has been written, or will not be.
 * Returns false: it is not written. */
bool dvd_session_tell(const struct dvd_session *session, const char *text, dvd_aside_done *done);
/* Forgets it, in the state file, too. Its worker, if it has one, goes on. */
void dvd_session_free(struct dvd_session *session);
/* Closes the sockets with unread welcomes of sessions that are over. */
void dvd_sessions_forget_unread(struct dvd_sessions *sessions);

/* The tenant that its program belongs to by the present configuration. Returns false when a rule refuses it. */
bool dvd_session_identify(const struct dvd_session *session, struct dvd_identity *identity);

/* ---- record.c ---- */

/* Records it in the keeper and the state file, before its client is welcomed. */
void dvd_session_record(struct dvd_session *session);
/* If the daemon is killed right after this, before it has recorded the welcome, its successor sends it again: a second
 * welcome does a client no harm. */
int dvd_session_welcome(struct dvd_session *session);

/* ---- end.c ---- */

/* The session ends when its worker ends. Return 0 or a negative errno. */
int dvd_session_watch_worker(struct dvd_session *session);
int dvd_session_watch_client(struct dvd_session *session);
/* Its process has ended. */
void dvd_session_tenant_gone(struct dvd_session *session);
/* The other end of its lease channel is closed. */
void dvd_session_hung_up(struct dvd_session *session);

/* ---- parked.c ---- */

void dvd_session_take_park_answer(struct dvd_session *session, const struct dv_lease_message *m);
extern const struct dvd_session_parking dvd_session_parking;
/* It was parked under an earlier daemon. */
void dvd_session_goes_on_parked(struct dvd_session *session);
void dvd_sessions_bell_rang(void *owner, struct dvd_session_id id);
void dvd_sessions_bells_lost(void *owner);

/* ---- start.c ---- */

/* Asks for another worker of a parked session. Returns 0, or a negative errno: nothing has changed. */
int dvd_session_start_again(struct dvd_session *session);
/* Drops its channel, log and sandbox: it has no worker any more, or none has come. */
void dvd_session_drop_worker_parts(struct dvd_session *session);

/* ---- ledger_events.c ---- */

/* Asks a session of an earlier daemon what it holds; if its channel is full, asks as soon as it has room. */
void dvd_session_ask_state(struct dvd_session *session);

#endif
