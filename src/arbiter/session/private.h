/* Between session.c, session_begin.c, session_keep.c and session_end.c, and for nobody else. */
#ifndef DVD_SESSION_PRIVATE_H
#define DVD_SESSION_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_session;

/* Wide enough for %llu of an id. */
#define ID(session) ((unsigned long long)(session)->lessee.id)

/* session.c */

/* Counts a session of a user in or out; returns how many it had before, or UINT_MAX when memory is
 * short. */
unsigned dv_session_count(struct dv_arbiter *arbiter, uid_t uid, bool in);
/* Returns 0 or a negative errno. */
int dv_session_signal_worker(const struct dv_session *session, int number);
void dv_session_drop_client(struct dv_session *session);
/* It has one at a time. */
void dv_session_set_timer(struct dv_session *session, uint64_t delay_us, sd_event_time_handler_t handler);
/* Ends a session that has no worker, telling the client why. */
void dv_session_refuse(struct dv_session *session, enum dv_welcome_status status, const char *text);
/* A log for what its worker says, not open yet. Returns 0 or a negative errno. */
int dv_session_make_log(struct dv_session *session);
/* Forgets it, in the state file, too. Its worker, if it has one, goes on. */
void dv_session_destroy(struct dv_session *session);

/* session_begin.c */

/* The name of a user in the local file only: the loop must not wait for a directory service. */
void dv_session_find_user(uid_t uid, char *name, size_t bytes);
/* It does not wait for devices or the zygote any more, if it did. */
void dv_session_leave_waiting(struct dv_session *session);
/* A daemon that is cut off right after this, before it has noted it, has a successor that does it again:
 * who has been welcomed already does not mind. */
int dv_session_welcome(struct dv_session *session);

/* session_keep.c */

/* Before its client is welcomed, the keeper has its descriptors and the state file knows of it. */
void dv_session_keep(struct dv_session *session);

/* session_end.c */

/* Once its worker has ended, so does the session. Return 0 or a negative errno. */
int dv_session_watch_worker(struct dv_session *session);
int dv_session_watch_client(struct dv_session *session);

#endif
