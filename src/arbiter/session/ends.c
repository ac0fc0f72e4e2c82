/* How sessions ended (see ends.h). */
#include "src/arbiter/session/ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "src/arbiter/session/private.h"
#include "src/base/text.h"

#define SECONDS(ns) ((double)(ns) / DV_NS_PER_S)

const char *dvd_end_kind_word(enum dvd_end_kind kind)
{
    static const char *const words[] = {[DVD_END_ORDERLY] = "ended",
                                        [DVD_END_CRASHED] = "crashed",
                                        [DVD_END_TERMINATED] = "terminated",
                                        [DVD_END_REFUSED] = "refused"};
    return words[kind];
}

/* ---- the log ---- */

/* The service manager reads our standard error into its journal, which can keep figures beside the text. The variable
 * says which stream that is; it may also have been inherited, and standard error be another. */
static bool has_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat info;

    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &info) == 0 &&
           info.st_dev == device && info.st_ino == inode;
}

static void write_line(const struct dvd_end_record *end)
{
    char memory[32], text[512];
    double lasted = SECONDS(end->lasted_ns), used = SECONDS(end->used_ns);

    dv_text_format_size(memory, sizeof memory, end->memory_peak_bytes);
    snprintf(text, sizeof text,
             "session %llu over: %s of %s, tenant %s, %.1f s, device time %.1f s (%.0f%%), waited %.1f s, %llu "
             "commands, memory peak %s",
             (unsigned long long)end->id.value, end->command, end->user, end->tenant, lasted, used,
             lasted > 0 ? 100 * used / lasted : 0, SECONDS(end->waited_ns), (unsigned long long)end->commands, memory);
    if (!has_journal()) {
        dv_info("%s", text);
        return;
    }
    sd_journal_send("MESSAGE=%s", text, "PRIORITY=6", "SYSLOG_IDENTIFIER=divvyd", "DIVVY_SESSION=%llu",
                    (unsigned long long)end->id.value, "DIVVY_USER=%s", end->user, "DIVVY_TENANT=%s", end->tenant,
                    "DIVVY_COMMAND=%s", end->command, "DIVVY_END=%s", dvd_end_kind_word(end->kind),
                    "DIVVY_LASTED_S=%.3f", lasted, "DIVVY_DEVICE_S=%.3f", used, "DIVVY_WAITED_S=%.3f",
                    SECONDS(end->waited_ns), "DIVVY_COMMANDS=%llu", (unsigned long long)end->commands,
                    "DIVVY_MEMORY_PEAK_BYTES=%llu", (unsigned long long)end->memory_peak_bytes, NULL);
}

/* ---- records ---- */

static struct dvd_end_place *place_at(const struct dvd_ends *ends, uint64_t place)
{
    return &ends->places[place % DV_MAX_ENDINGS];
}

static struct dvd_end_record *record_at(const struct dvd_ends *ends, uint64_t place)
{
    return &ends->records[place_at(ends, place)->record];
}

static uint64_t first_place(const struct dvd_ends *ends)
{
    return ends->count > DV_MAX_ENDINGS ? ends->count - DV_MAX_ENDINGS : 0;
}

/* A user that ends many sessions overwrites its own records first: the oldest of them moves to the place that is
 * overwritten next. */
static void make_place(const struct dvd_ends *ends, uid_t uid)
{
    unsigned count = 0;
    uint64_t oldest = 0;

    if (ends->count < DV_MAX_ENDINGS)
        return;
    for (uint64_t i = ends->count; i > first_place(ends); i--)
        if (place_at(ends, i - 1)->uid == uid) {
            count++;
            oldest = i - 1;
        }
    if (count <= DV_MAX_ENDINGS_PER_UID)
        return;
    struct dvd_end_place moved = *place_at(ends, oldest);
    for (uint64_t i = oldest; i > first_place(ends); i--)
        *place_at(ends, i) = *place_at(ends, i - 1);
    *place_at(ends, first_place(ends)) = moved;
}

static bool make_records(struct dvd_ends *ends)
{
    if (!ends->records)
        ends->records = calloc(DV_MAX_ENDINGS, sizeof *ends->records);
    if (!ends->places && (ends->places = calloc(DV_MAX_ENDINGS, sizeof *ends->places)))
        for (uint16_t i = 0; i < DV_MAX_ENDINGS; i++)
            ends->places[i].record = i;
    return ends->records && ends->places;
}

static struct dvd_end_record *add_record(struct dvd_ends *ends, uid_t uid)
{
    if (!make_records(ends))
        return NULL;
    make_place(ends, uid);
    place_at(ends, ends->count)->uid = uid;
    return record_at(ends, ends->count++);
}

static void fill(struct dvd_end_record *end, const struct dvd_session *session)
{
    const struct dvd_lessee *lessee = &session->lessee;
    struct dvd_session_figures figures;

    dvd_session_read_figures(session, &figures);
    *end = (struct dvd_end_record){.id = lessee->id,
                                   .kind = session->end_kind,
                                   .uid = lessee->uid,
                                   .pid = session->tenant_pid,
                                   .started = session->started,
                                   .ended = time(NULL),
                                   .lasted_ns = dv_now() - session->started_us * DV_NS_PER_US,
                                   .used_ns = lessee->used_ns,
                                   .waited_ns = lessee->waited_ns,
                                   .commands = figures.commands,
                                   .memory_peak_bytes = lessee->reserved_peak};
    memcpy(end->kernels, figures.kernels, sizeof end->kernels);
    dv_text_copy(end->user, sizeof end->user, session->user);
    dv_text_copy(end->tenant, sizeof end->tenant,
                 lessee->tenant            ? lessee->tenant->name
                 : session->refused_tenant ? session->refused_tenant
                                           : "");
    dv_text_copy(end->command, sizeof end->command, session->command);
    dv_text_copy(end->command_line, sizeof end->command_line, figures.command_line);
    dv_text_copy(end->why, sizeof end->why, session->ended_because[0] ? session->ended_because : "its program ended");
}

static bool is_recent(const struct dvd_end_record *end)
{
    return time(NULL) - end->ended < DV_ENDINGS_KEPT_S;
}

void dvd_ends_note(struct dvd_ends *ends, const struct dvd_session *session)
{
    bool is_trial = session->api == DV_API_LEASE && session->lessee.used_ns == 0;

    if (session->end_kind == DVD_END_ORDERLY && (is_trial || session->state != DV_SESSION_SERVED))
        return;
    ends->of_kind[session->end_kind]++;
    struct dvd_end_record *end = add_record(ends, session->lessee.uid);
    if (!end)
        return;
    fill(end, session);
    bool is_short = end->kind == DVD_END_ORDERLY && end->lasted_ns < DV_NS_PER_S;
    if (end->kind != DVD_END_REFUSED && (!is_short || dv_log_within(&ends->short_ends, DV_SHORT_ENDS_PER_S)))
        write_line(end);
}

void dvd_ends_note_refusal(struct dvd_ends *ends, const struct dvd_end_record *refusal)
{
    struct dvd_end_record *end = add_record(ends, refusal->uid);

    ends->of_kind[DVD_END_REFUSED]++;
    if (!end)
        return;
    *end = *refusal;
    end->kind = DVD_END_REFUSED;
    end->started = end->ended = time(NULL);
}

uint64_t dvd_ends_kept(const struct dvd_ends *ends)
{
    return ends->count - first_place(ends);
}

const struct dvd_end_record *dvd_ends_at(const struct dvd_ends *ends, uint64_t place)
{
    const struct dvd_end_record *end = record_at(ends, first_place(ends) + place);

    return is_recent(end) ? end : NULL;
}

const struct dvd_end_record *dvd_ends_find(const struct dvd_ends *ends, struct dvd_session_id id)
{
    for (uint64_t i = first_place(ends); i < ends->count; i++)
        if (record_at(ends, i)->id.value == id.value && is_recent(record_at(ends, i)))
            return record_at(ends, i);
    return NULL;
}

void dvd_ends_fini(struct dvd_ends *ends)
{
    free(ends->records);
    free(ends->places);
    *ends = (struct dvd_ends){0};
}
