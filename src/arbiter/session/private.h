/* Between the files of this folder, and for no others. */
#ifndef DVD_SESSION_PRIVATE_H
#define DVD_SESSION_PRIVATE_H

#include "src/arbiter/session/session.h"

/* Wide enough for %llu of an id. */
#define ID(session) ((unsigned long long)(session)->lessee.id)

/* ---- session.c ---- */

/* What a session is known by when it begins, and what its record says of it later. */
struct dvd_session_origin {
    uint64_t id;
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
/* How many sessions a user has. */
unsigned dvd_sessions_of_user(const struct dvd_sessions *sessions, uid_t uid);
/* Sets descriptors aside for it, or as many as there are left. Returns false: there are not enough. */
bool dvd_session_take_descriptors(struct dvd_session *session);
/* Makes room for the leases of its devices. Returns false when there is no memory. */
bool dvd_session_make_leases(struct dvd_session *session);
/* Returns 0 or a negative errno. */
int dvd_session_signal_worker(const struct dvd_session *session, int number);
void dvd_session_drop_client(struct dvd_session *session);
/* It has one at a time. */
void dvd_session_set_timer(struct dvd_session *session, uint64_t delay_us, sd_event_time_handler_t handler);
/* Ends a session that has no worker, telling the client why. */
void dvd_session_refuse(struct dvd_session *session, enum dv_welcome_status status, const char *text);
/* A log for what its worker says, not open yet. Returns 0 or a negative errno. */
int dvd_session_make_log(struct dvd_session *session);
/* It waits for devices or the zygote, and no longer. */
void dvd_session_enter_waiting(struct dvd_session *session);
void dvd_session_leave_waiting(struct dvd_session *session);
/* Writes a text for its program where its library looks for it: in the shared memory. Others may write there and make
 * it slow, so divvyd itself does not; done is called when it has been written, or will not be. Returns false: it is not
 * written. */
bool dvd_session_tell(const struct dvd_session *session, const char *text, dvd_aside_done *done);
/* Forgets it, in the state file, too. Its worker, if it has one, goes on. */
void dvd_session_free(struct dvd_session *session);
/* Closes the sockets with unread welcomes of sessions that are over. */
void dvd_sessions_forget_unread(struct dvd_sessions *sessions);

/* ---- record.c ---- */

/* Before its client is welcomed, the keeper has its descriptors and the state file knows of it. */
void dvd_session_record(struct dvd_session *session);
/* A daemon that is cut off right after this, before it has noted it, has a successor that does it again: a client that
 * has been welcomed already does not mind. */
int dvd_session_welcome(struct dvd_session *session);

/* ---- end.c ---- */

/* Once its worker has ended, so does the session. Return 0 or a negative errno. */
int dvd_session_watch_worker(struct dvd_session *session);
int dvd_session_watch_client(struct dvd_session *session);
/* Its process has ended. */
void dvd_session_tenant_gone(struct dvd_session *session);
/* The other end of its lease channel is closed. */
void dvd_session_hung_up(struct dvd_session *session);

/* ---- ledger_events.c ---- */

/* Asks a session of an earlier daemon what it holds; if it does not read now, as soon as it does. */
void dvd_session_ask_state(struct dvd_session *session);

#endif
