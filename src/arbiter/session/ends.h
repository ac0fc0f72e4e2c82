/* How sessions ended, and which were refused, for people who ask later. The last ones are kept for an hour. */
#ifndef DVD_SESSION_ENDS_H
#define DVD_SESSION_ENDS_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "src/arbiter/ids.h"
#include "src/arbiter/limits.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/wire/session/handshake.h"
#include "src/wire/session/shm.h"

struct dvd_session;

enum dvd_end_kind {
    DVD_END_ORDERLY,    /* its program ended, or closed it */
    DVD_END_CRASHED,    /* its worker ended under it */
    DVD_END_TERMINATED, /* by divvyd */
    DVD_END_REFUSED,    /* it did not begin */
};

struct dvd_end_record {
    struct dvd_session_id id;
    enum dvd_end_kind kind;
    uid_t uid;
    pid_t pid;
    time_t started, ended;
    dv_ns lasted_ns, used_ns, waited_ns;
    uint64_t commands, memory_peak_bytes;
    uint32_t kernels[DV_CUT_VERDICTS - 1]; /* by verdict, less 1 */
    char user[DV_MAX_USER_NAME];
    char tenant[DV_MAX_TENANT_NAME];
    char command[DV_MAX_COMMAND_NAME];
    char command_line[DV_MAX_COMMAND_LINE];
    char why[DV_MAX_MESSAGE_TEXT];
};

/* Records stay where they are when they change their order. */
struct dvd_end_place {
    uid_t uid;
    uint16_t record;
};

struct dvd_ends {
    struct dvd_end_record *records;        /* DV_MAX_ENDINGS of them; NULL: none yet */
    struct dvd_end_place *places;          /* as many, in the order of the ends */
    uint64_t of_kind[DVD_END_REFUSED + 1]; /* how many there have been */
    uint64_t count;                        /* kept so far: the last is at (count - 1) modulo DV_MAX_ENDINGS */
    struct dv_log_limit short_ends;
};

/* Notes the end of a session, and writes a line about it into the log. */
void dvd_ends_note(struct dvd_ends *ends, const struct dvd_session *session);
/* Notes that a program got no session. Of the record id, uid, pid, user, command and why are given. */
void dvd_ends_note_refusal(struct dvd_ends *ends, const struct dvd_end_record *refusal);
/* A session that ended within the last hour, or NULL. */
const struct dvd_end_record *dvd_ends_find(const struct dvd_ends *ends, struct dvd_session_id id);
/* How many are kept; and the one at a place from 0 (the oldest) on, or NULL when it is too old. */
uint64_t dvd_ends_kept(const struct dvd_ends *ends);
const struct dvd_end_record *dvd_ends_at(const struct dvd_ends *ends, uint64_t place);
const char *dvd_end_kind_word(enum dvd_end_kind kind);
void dvd_ends_fini(struct dvd_ends *ends);

#endif
