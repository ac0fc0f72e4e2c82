/* divvy trace: a timeline of who held each device, for Perfetto. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/lease_events.h"
#include "src/cli/output.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy trace -o FILE [--for TIME] [--leases] [--daemon DIR]\n"
    "\n"
    "Writes a timeline of the devices: which session held each, which waited and for how long,\n"
    "kernels by name, copies, compilations, recalls, and memory that was brought in and evicted.\n"
    "Open the file in Perfetto (https://ui.perfetto.dev) or in chrome://tracing. For operators.\n"
    "\n"
    "  -o FILE        the file to write; -: standard output\n"
    "  --for TIME     how long, such as 30s; default: 10s. Ctrl-C ends it earlier\n"
    "  --leases       leave out what the sessions do while they hold a device\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

#define MAX_SLOTS 64
/* Tracks below are of the device, those above of sessions: a few for each, as spans of one track cannot overlap. */
#define SESSION_TRACK 1000
enum { LEASE_TRACK, COMMAND_TRACK, COMPILE_TRACK, MEMORY_TRACK, TRACKS };

/* A session on a device, as far as the events are read. */
struct track {
    struct {
        uint64_t session, device;
    } key;
    uint64_t waits_since, holds_since, brings_since; /* 0: it does not */
    uint64_t slice_ns;
    unsigned slot;
    bool recalled;
    bool is_named[TRACKS];
    UT_hash_handle hh;
};

struct writer {
    FILE *out;
    struct dv_lease_events *events;
    struct track *tracks;
    bool taken[256][MAX_SLOTS]; /* tracks of each device that show a hold */
    uint64_t first_ns;
    bool has_events;
};

/* ---- events of the format ---- */

static double us(const struct writer *writer, uint64_t ns)
{
    return (double)(ns - writer->first_ns) / 1e3;
}

/* Takes over the arguments. */
static void write_event(struct writer *writer, json_t *event, json_t *arguments)
{
    if (arguments)
        json_object_set_new(event, "args", arguments);
    fputs(writer->has_events ? ",\n" : "\n", writer->out);
    json_dumpf(event, writer->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    writer->has_events = true;
    json_decref(event);
}

static void write_span(struct writer *writer, const char *name, unsigned device, uint64_t track, uint64_t from,
                       uint64_t to, json_t *arguments)
{
    write_event(writer,
                json_pack("{s:s, s:s, s:f, s:f, s:i, s:I}", "name", name, "ph", "X", "ts", us(writer, from), "dur",
                          (double)(to - from) / 1e3, "pid", (int)device + 1, "tid", (json_int_t)track),
                arguments);
}

static void write_moment(struct writer *writer, const char *name, unsigned device, uint64_t track, uint64_t at,
                         json_t *arguments)
{
    write_event(writer,
                json_pack("{s:s, s:s, s:f, s:i, s:I, s:s}", "name", name, "ph", "i", "ts", us(writer, at), "pid",
                          (int)device + 1, "tid", (json_int_t)track, "s", "t"),
                arguments);
}

static void write_name(struct writer *writer, const char *what, unsigned device, uint64_t track, const char *name)
{
    write_event(
        writer,
        json_pack("{s:s, s:s, s:i, s:I}", "name", what, "ph", "M", "pid", (int)device + 1, "tid", (json_int_t)track),
        json_pack("{s:s}", "name", name));
}

/* ---- sessions ---- */

static struct track *find_track(struct writer *writer, const struct dv_lease_event *event)
{
    struct track *track, wanted = {.key = {.session = event->session, .device = event->device}};

    HASH_FIND(hh, writer->tracks, &wanted.key, sizeof wanted.key, track);
    if (track || !(track = calloc(1, sizeof *track)))
        return track;
    track->key = wanted.key;
    HASH_ADD(hh, writer->tracks, key, sizeof track->key, track);
    return track;
}

static uint64_t number_of(const struct track *track, unsigned kind)
{
    return SESSION_TRACK + track->key.session * TRACKS + kind;
}

/* The number of one of the session's tracks, which gets its name when it is first used. */
static uint64_t use_track(struct writer *writer, struct track *track, unsigned kind)
{
    static const char *const kinds[] = {"", " runs", " compiles", " moves memory"};
    const struct dv_named_session *session = dv_lease_events_session(writer->events, track->key.session);
    char name[512];

    if (!track->is_named[kind]) {
        track->is_named[kind] = true;
        snprintf(name, sizeof name, "session %llu%s: %s (%s)", (unsigned long long)track->key.session, kinds[kind],
                 session->command, session->tenant);
        write_name(writer, "thread_name", (unsigned)track->key.device, number_of(track, kind), name);
    }
    return number_of(track, kind);
}

static void end_wait(struct writer *writer, struct track *track, uint64_t now)
{
    if (track->waits_since)
        write_span(writer, "waits", (unsigned)track->key.device, use_track(writer, track, LEASE_TRACK),
                   track->waits_since, now, NULL);
    track->waits_since = 0;
}

static void end_bring(struct writer *writer, struct track *track, uint64_t now, uint64_t bytes)
{
    if (track->brings_since)
        write_span(writer, "brings memory", (unsigned)track->key.device, use_track(writer, track, LEASE_TRACK),
                   track->brings_since, now, json_pack("{s:I}", "bytes_on_device", (json_int_t)bytes));
    track->brings_since = 0;
}

static void begin_hold(struct writer *writer, struct track *track, const struct dv_lease_event *event)
{
    bool *taken = writer->taken[event->device & 255];

    track->slot = 0;
    while (track->slot + 1 < MAX_SLOTS && taken[track->slot])
        track->slot++;
    taken[track->slot] = true;
    track->holds_since = event->ns;
    track->slice_ns = event->value;
    track->recalled = false;
}

static void end_hold(struct writer *writer, struct track *track, uint64_t now)
{
    const struct dv_named_session *session = dv_lease_events_session(writer->events, track->key.session);
    char name[512];

    end_bring(writer, track, now, 0);
    if (!track->holds_since)
        return;
    snprintf(name, sizeof name, "%s: %s", session->tenant, session->command);
    for (int own = 0; own < 2; own++) /* on the device's own track, and on the session's */
        write_span(writer, own ? "holds" : name, (unsigned)track->key.device,
                   own ? use_track(writer, track, LEASE_TRACK) : track->slot, track->holds_since, now,
                   json_pack("{s:I, s:s, s:f, s:b}", "session", (json_int_t)track->key.session, "tenant",
                             session->tenant, "slice_ms", (double)track->slice_ns / 1e6, "recalled",
                             (int)track->recalled));
    writer->taken[track->key.device & 255][track->slot] = false;
    track->holds_since = 0;
}

static void take_command(struct writer *writer, struct track *track, const struct dv_lease_event *event)
{
    const char *name = event->name && event->name[0] ? event->name : event->what;
    unsigned kind = COMMAND_TRACK;
    json_t *arguments = NULL;

    if (strcmp(event->what, "compile") == 0) {
        kind = COMPILE_TRACK;
    } else if (strcmp(event->what, "copy-in") == 0 || strcmp(event->what, "copy-out") == 0) {
        kind = MEMORY_TRACK;
        arguments = json_pack("{s:I}", "bytes", (json_int_t)event->value);
    } else {
        arguments = json_object();
        if (event->count > 1)
            json_object_set_new(arguments, "commands", json_integer(event->count));
        if (event->verdict[0]) {
            json_object_set_new(arguments, "slice", json_boolean(event->is_part));
            json_object_set_new(arguments, "sliceable", json_string(event->verdict));
        }
        if (event->whole_because)
            json_object_set_new(arguments, "whole because", json_string(event->whole_because));
    }
    write_span(writer, name, event->device, use_track(writer, track, kind), event->ns, event->end_ns, arguments);
}

static void take_event(struct writer *writer, const struct dv_lease_event *event)
{
    struct track *track = find_track(writer, event);

    if (!track)
        return;
    if (event->end_ns) {
        take_command(writer, track, event);
    } else if (strcmp(event->what, "wait") == 0) {
        track->waits_since = track->waits_since ? track->waits_since : event->ns;
    } else if (strcmp(event->what, "grant") == 0) {
        end_wait(writer, track, event->ns);
        if (!track->holds_since) /* at the beginning of another trace it is told again */
            begin_hold(writer, track, event);
    } else if (strcmp(event->what, "recall") == 0) {
        track->recalled = true;
        write_moment(writer, "recall", event->device, use_track(writer, track, LEASE_TRACK), event->ns, NULL);
    } else if (strcmp(event->what, "release") == 0) {
        end_hold(writer, track, event->ns);
        track->waits_since = event->more ? event->ns : 0;
    } else if (strcmp(event->what, "bring") == 0) {
        track->brings_since = event->ns;
    } else if (strcmp(event->what, "placed") == 0) {
        end_bring(writer, track, event->ns, event->value);
    } else if (strcmp(event->what, "evict") == 0) {
        write_moment(writer, "evict", event->device, use_track(writer, track, LEASE_TRACK), event->ns,
                     json_pack("{s:I}", "bytes", (json_int_t)event->value));
    } else { /* cancel or leave */
        end_wait(writer, track, event->ns);
        end_hold(writer, track, event->ns);
    }
}

/* ---- the file ---- */

static void name_devices(struct writer *writer)
{
    size_t index;
    json_t *device;

    json_array_foreach(writer->events->devices, index, device)
    {
        char name[256];
        snprintf(name, sizeof name, "device %zu %s", index, dv_http_text(device, "name", "?"));
        write_name(writer, "process_name", (unsigned)index, 0, name);
        write_name(writer, "thread_name", (unsigned)index, 0, "held by");
    }
}

static void write_trace(struct writer *writer)
{
    const struct dv_lease_events *events = writer->events;
    struct track *track, *next;

    writer->first_ns = events->began_ns;
    for (size_t i = 0; i < events->count; i++) /* a command is told when it has ended */
        if (events->all[i].ns < writer->first_ns)
            writer->first_ns = events->all[i].ns;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", writer->out);
    name_devices(writer);
    for (size_t i = 0; i < events->count; i++)
        take_event(writer, &events->all[i]);
    HASH_ITER (hh, writer->tracks, track, next) { /* what is under way ends with the trace */
        end_wait(writer, track, events->ended_ns);
        end_hold(writer, track, events->ended_ns);
        HASH_DEL(writer->tracks, track);
        free(track);
    }
    fputs("\n]}\n", writer->out);
}

static int trace(const char *path, const struct dv_cli_view *view, double seconds, bool has_commands)
{
    static struct writer writer;
    struct dv_lease_events events = {0};
    struct dv_cli_output output;
    int code = dv_cli_output_open(&output, path);

    if (code != DV_EXIT_OK)
        return code;
    code = dv_lease_events_listen(&events, view->daemon_directory, seconds, has_commands);
    writer = (struct writer){.events = &events};
    if (code == DV_EXIT_OK && !(writer.out = dv_cli_output_begin(&output)))
        code = DV_EXIT_FAILED;
    if (code == DV_EXIT_OK)
        write_trace(&writer);
    code = dv_cli_output_close(&output, code);
    if (code == DV_EXIT_OK && strcmp(path, "-") != 0)
        printf("%zu events in %s%s\n", events.count, path,
               events.lost ? "; some were lost, as there were too many" : "");
    dv_lease_events_fini(&events);
    return code;
}

int dv_cli_trace(int argc, char **argv)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS,
                                            {"for", required_argument, NULL, 'f'},
                                            {"leases", no_argument, NULL, 'l'},
                                            {NULL, 0, NULL, 0}};
    struct dv_cli_view view = {0};
    double seconds = 10;
    const char *path = NULL;
    bool has_commands = true;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        if (option == 'o') {
            path = optarg;
        } else if (option == 'l') {
            has_commands = false;
        } else if (option == 'f') {
            if (dv_value_parse_seconds(optarg, &seconds) < 0) {
                dv_cli_error("--for is a time such as 30s or 2min, not '%s'.", optarg);
                return DV_EXIT_USAGE;
            }
        } else if (dv_cli_view_option(&view, option, argv, usage) != DV_EXIT_OK) {
            return DV_EXIT_USAGE;
        }
    }
    if (!path) {
        dv_cli_error("missing -o FILE. Example: divvy trace -o divvy.json --for 30s");
        return DV_EXIT_USAGE;
    }
    int code = dv_cli_check_arguments(argc, argv, 0);
    return code == DV_EXIT_OK ? trace(path, &view, seconds, has_commands) : code;
}
