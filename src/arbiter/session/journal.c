/* The journal of used device time (see journal.h). */
#include "src/arbiter/session/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/private.h"
#include "src/base/text.h"
#include "src/base/usage_journal.h"

#define SEVERAL "(several)" /* in place of a name in a sum */

struct dvd_journal_user {
    uid_t uid;
    struct dv_log_bucket ends;
    bool has_sum;
    struct dv_usage_line sum; /* stands for several sessions, under the number and start of the first of them */
    UT_hash_handle hh;
};

/* ---- lines ---- */

static bool write_line(struct dvd_journal *journal, const struct dv_usage_line *line)
{
    char text[DV_USAGE_LINE_BYTES];
    size_t bytes = dv_usage_line_write(line, text, sizeof text);

    return bytes > 0 && dvd_journal_file_append(&journal->file, text, bytes);
}

/* Returns the device time that the line has. */
static dv_ns make_line(const struct dvd_session *session, bool is_last, struct dv_usage_line *line)
{
    const struct dvd_lessee *lessee = &session->lessee;
    dv_ns used = lessee->used_ns, waited = lessee->waited_ns;

    for (uint32_t i = 0; lessee->leases && i < lessee->device_count; i++)
        if (lessee->leases[i]) {
            struct dvd_lease_figures figures = dvd_lease_figures(lessee->leases[i]);
            used += figures.used_ns;
            waited += figures.waited_ns;
        }
    *line = (struct dv_usage_line){.time_s = time(NULL),
                                   .started_s = session->started,
                                   .session = lessee->id.value,
                                   .uid = lessee->uid,
                                   .is_last = is_last,
                                   .used_ms = used / DV_NS_PER_MS,
                                   .waited_ms = waited / DV_NS_PER_MS};
    dv_text_copy(line->user, sizeof line->user, session->user);
    dv_text_copy(line->tenant, sizeof line->tenant, lessee->tenant ? lessee->tenant->name : "");
    dv_text_copy(line->command, sizeof line->command, session->command);
    return used;
}

static void write_due_line(struct dvd_session *session)
{
    struct dv_usage_line line;
    dv_ns used = make_line(session, false, &line);

    if (used > session->journaled_ns && write_line(&session->sessions->journal, &line)) {
        session->journaled_ns = used;
        session->has_line = true;
    }
}

/* ---- sums of sessions that end in quick succession ---- */

static void write_sum(struct dvd_journal *journal, struct dvd_journal_user *user)
{
    if (user->has_sum)
        write_line(journal, &user->sum);
    user->has_sum = false;
}

void dvd_journal_write_sums(struct dvd_journal *journal)
{
    for (struct dvd_journal_user *user = journal->users; user; user = user->hh.next)
        write_sum(journal, user);
}

static int on_sums_due(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_sessions *sessions = userdata;

    (void)source;
    (void)usec;
    dvd_journal_write_sums(&sessions->journal);
    return 0;
}

static void arm_sums(struct dvd_sessions *sessions)
{
    struct dvd_journal *journal = &sessions->journal;
    int enabled = SD_EVENT_OFF;

    if (!journal->sums_timer &&
        sd_event_add_time(sessions->event, &journal->sums_timer, CLOCK_MONOTONIC, 0, DV_S, on_sums_due, sessions) >= 0)
        sd_event_source_set_enabled(journal->sums_timer, SD_EVENT_OFF);
    if (!journal->sums_timer || sd_event_source_get_enabled(journal->sums_timer, &enabled) < 0 ||
        enabled != SD_EVENT_OFF)
        return;
    sd_event_source_set_time_relative(journal->sums_timer, DV_JOURNAL_SUMS_US);
    sd_event_source_set_enabled(journal->sums_timer, SD_EVENT_ONESHOT);
}

static void name_sum(char *sum, const char *name, size_t bytes)
{
    if (strcmp(sum, name) != 0)
        dv_text_copy(sum, bytes, SEVERAL);
}

static void add_to_sum(struct dvd_journal_user *user, const struct dv_usage_line *line)
{
    struct dv_usage_line *sum = &user->sum;

    if (!user->has_sum) {
        *sum = *line;
        user->has_sum = true;
        return;
    }
    sum->time_s = line->time_s;
    sum->used_ms += line->used_ms;
    sum->waited_ms += line->waited_ms;
    name_sum(sum->tenant, line->tenant, sizeof sum->tenant);
    name_sum(sum->command, line->command, sizeof sum->command);
}

static void forget_user(struct dvd_journal *journal, struct dvd_journal_user *user)
{
    write_sum(journal, user);
    HASH_DEL(journal->users, user);
    free(user);
}

/* Returns NULL when there is no memory. */
static struct dvd_journal_user *find_user(struct dvd_journal *journal, uid_t uid)
{
    struct dvd_journal_user *user;

    HASH_FIND(hh, journal->users, &uid, sizeof uid, user);
    if (user)
        return user;
    if (HASH_COUNT(journal->users) >= DV_MAX_JOURNAL_USERS)
        forget_user(journal, journal->users);
    user = calloc(1, sizeof *user);
    if (!user)
        return NULL;
    user->uid = uid;
    HASH_ADD(hh, journal->users, uid, sizeof user->uid, user);
    return user;
}

/* A session that has a line already keeps its own. */
static void write_last_line(struct dvd_session *session)
{
    struct dvd_journal *journal = &session->sessions->journal;
    struct dv_usage_line line;
    dv_ns used = make_line(session, true, &line);

    if (used == session->journaled_ns)
        return; /* it has used nothing since */
    struct dvd_journal_user *user = session->has_line ? NULL : find_user(journal, line.uid);
    if (!user || dv_log_fill(&user->ends, DV_JOURNAL_ENDS_PER_S, DV_JOURNAL_ENDS_BURST)) {
        if (user)
            user->ends.left--;
        write_line(journal, &line);
        return;
    }
    add_to_sum(user, &line);
    arm_sums(session->sessions);
}

/* ---- the next line ---- */

static int on_due(sd_event_source *source, uint64_t usec, void *userdata);

static void arm(struct dvd_sessions *sessions)
{
    struct dvd_journal *journal = &sessions->journal;
    const struct dvd_session *next = journal->sessions;

    if (!next) {
        if (journal->timer)
            sd_event_source_set_enabled(journal->timer, SD_EVENT_OFF);
        return;
    }
    if (!journal->timer && sd_event_add_time(sessions->event, &journal->timer, CLOCK_MONOTONIC, next->journal_due_us,
                                             DV_S, on_due, sessions) < 0)
        return;
    sd_event_source_set_time(journal->timer, next->journal_due_us);
    sd_event_source_set_enabled(journal->timer, SD_EVENT_ONESHOT);
}

/* One at a time: other events are handled between two. */
static int on_due(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_sessions *sessions = userdata;
    struct dvd_journal *journal = &sessions->journal;
    struct dvd_session *session = journal->sessions;

    (void)source;
    (void)usec;
    if (session) {
        write_due_line(session);
        DL_DELETE2(journal->sessions, session, prev_journal, next_journal);
        session->journal_due_us = dv_now() / DV_NS_PER_US + DV_JOURNAL_PERIOD_US;
        DL_APPEND2(journal->sessions, session, prev_journal, next_journal);
    }
    arm(sessions);
    return 0;
}

void dvd_journal_enter(struct dvd_session *session)
{
    struct dvd_journal *journal = &session->sessions->journal;

    if (journal->file.directory_fd < 0)
        return;
    session->in_journal = true;
    session->journal_due_us = dv_now() / DV_NS_PER_US + DV_JOURNAL_PERIOD_US;
    DL_APPEND2(journal->sessions, session, prev_journal, next_journal);
    if (journal->sessions == session)
        arm(session->sessions);
}

void dvd_journal_leave(struct dvd_session *session)
{
    if (!session->in_journal)
        return;
    session->in_journal = false;
    write_last_line(session);
    DL_DELETE2(session->sessions->journal.sessions, session, prev_journal, next_journal);
    arm(session->sessions);
}

/* ---- life ---- */

void dvd_journal_open(struct dvd_sessions *sessions, const char *directory, gid_t readers)
{
    struct dvd_journal *journal = &sessions->journal;

    *journal = (struct dvd_journal){0};
    int error = dvd_journal_file_open(&journal->file, directory, readers);
    if (error < 0)
        dv_warning("no journal of used device time in %s: %s; `divvy usage` will know nothing", directory,
                   strerror(-error));
}

void dvd_journal_close(struct dvd_sessions *sessions)
{
    struct dvd_journal *journal = &sessions->journal;

    while (journal->users)
        forget_user(journal, journal->users);
    journal->timer = sd_event_source_disable_unref(journal->timer);
    journal->sums_timer = sd_event_source_disable_unref(journal->sums_timer);
    dvd_journal_file_close(&journal->file);
}
