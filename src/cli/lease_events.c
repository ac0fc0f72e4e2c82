/* Events of leases (see lease_events.h). */
#include "src/cli/lease_events.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"
#include "src/cli/http.h"
#include "src/cli/stream.h"

/* Names of new sessions are asked for soon, as their tenants may leave; but not all the time. The daemon keeps the
 * names of some hundred sessions of a user that have ended. */
#define NAMES_EVERY_NS DV_NS_PER_S
#define MAX_UNNAMED 64

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* ---- names ---- */

static struct dv_named_session *name_session(struct dv_lease_events *events, uint64_t id)
{
    struct dv_named_session *session;

    HASH_FIND(hh, events->sessions, &id, sizeof id, session);
    if (session || !(session = calloc(1, sizeof *session)))
        return session;
    session->id = id;
    events->unnamed++;
    snprintf(session->tenant, sizeof session->tenant, "session %" PRIu64, id);
    snprintf(session->command, sizeof session->command, "?");
    HASH_ADD(hh, events->sessions, id, sizeof session->id, session);
    return session;
}

static void take_sessions(struct dv_lease_events *events, const json_t *list)
{
    size_t index;
    json_t *one;

    json_array_foreach(list, index, one)
    {
        struct dv_named_session *session =
            name_session(events, (uint64_t)json_integer_value(json_object_get(one, "id")));
        const char *name = dv_http_text(one, "name", "");
        if (!session)
            continue;
        session->is_known = true;
        snprintf(session->tenant, sizeof session->tenant, "%s", dv_http_text(one, "tenant", "?"));
        snprintf(session->command, sizeof session->command, "%s", name[0] ? name : dv_http_text(one, "command", "?"));
    }
}

/* Asks for a list. Returns an exit code other than 0 after a message. */
static int ask_list(const char *directory, const char *path, const char *key, json_t **list)
{
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL;
    int code = dv_http_get(directory, path, &body, &document);

    *list = json_incref(json_object_get(document, key));
    json_decref(document);
    return code;
}

static int ask_sessions(struct dv_lease_events *events, const char *directory, const char *path, const char *key)
{
    json_t *list = NULL;
    int code = ask_list(directory, path, key, &list);

    take_sessions(events, list);
    json_decref(list);
    return code;
}

/* A divvyd that has just begun may still look for its devices. */
static int ask_devices(struct dv_lease_events *events, const char *directory)
{
    json_t *devices = NULL;
    int code = ask_list(directory, "/v1/devices", "devices", &devices);

    if (json_array_size(devices) > json_array_size(events->devices)) {
        json_decref(events->devices);
        events->devices = json_incref(devices);
    }
    json_decref(devices);
    return code;
}

const json_t *dv_lease_events_share(const struct dv_lease_events *events, const char *tenant, uint64_t device)
{
    size_t index, at;
    json_t *one, *there;

    json_array_foreach(events->tenants, index, one)
    {
        if (strcmp(dv_http_text(one, "name", ""), tenant) != 0)
            continue;
        json_array_foreach(json_object_get(one, "devices"), at, there)
        {
            if ((uint64_t)json_integer_value(json_object_get(there, "index")) == device)
                return there;
        }
    }
    return NULL;
}

/* Keeps those that are new, or new on a device. */
static void take_tenants(struct dv_lease_events *events, const json_t *list)
{
    size_t index, at;
    json_t *one, *there;

    if (!events->tenants)
        events->tenants = json_array();
    json_array_foreach(list, index, one)
    {
        bool is_new = false;
        json_array_foreach(json_object_get(one, "devices"), at, there)
        {
            uint64_t device = (uint64_t)json_integer_value(json_object_get(there, "index"));
            is_new |= !dv_lease_events_share(events, dv_http_text(one, "name", ""), device);
        }
        if (is_new)
            json_array_append(events->tenants, one);
    }
}

/* The sessions of now and those that have ended lately, and the tenants of now. */
static int ask_names(struct dv_lease_events *events, const char *directory)
{
    json_t *tenants = NULL;
    int code = ask_sessions(events, directory, "/v1/sessions", "sessions");

    if (code == DV_EXIT_OK)
        code = ask_sessions(events, directory, "/v1/ended", "ended");
    if (code == DV_EXIT_OK)
        code = ask_list(directory, "/v1/tenants", "tenants", &tenants);
    take_tenants(events, tenants);
    json_decref(tenants);
    events->unnamed = 0;
    events->named_ns = dv_now();
    return code;
}

const struct dv_named_session *dv_lease_events_session(struct dv_lease_events *events, uint64_t id)
{
    static const struct dv_named_session unknown = {.tenant = "?", .command = "?"};
    const struct dv_named_session *session = name_session(events, id);

    return session ? session : &unknown;
}

/* ---- events ---- */

static void take_line(void *user, const json_t *line)
{
    struct dv_lease_events *events = user;

    events->lost += (uint64_t)json_integer_value(json_object_get(line, "lost"));
    if (!json_object_get(line, "what"))
        return;
    if (events->count == events->capacity) {
        size_t capacity = events->capacity ? 2 * events->capacity : 4096;
        struct dv_lease_event *longer = realloc(events->all, capacity * sizeof *longer);
        if (!longer) {
            events->lost++;
            return;
        }
        events->all = longer;
        events->capacity = capacity;
    }
    struct dv_lease_event *event = &events->all[events->count++];
    *event = (struct dv_lease_event){.ns = (uint64_t)json_integer_value(json_object_get(line, "ns")),
                                     .session = (uint64_t)json_integer_value(json_object_get(line, "session")),
                                     .value = (uint64_t)json_integer_value(json_object_get(line, "value")),
                                     .end_ns = (uint64_t)json_integer_value(json_object_get(line, "end_ns")),
                                     .device = (unsigned)json_integer_value(json_object_get(line, "device")),
                                     .count = (unsigned)json_integer_value(json_object_get(line, "count")),
                                     .more = json_integer_value(json_object_get(line, "more")) != 0};
    snprintf(event->what, sizeof event->what, "%s", dv_http_text(line, "what", ""));
    name_session(events, event->session);
    if (event->end_ns)
        event->name = strdup(dv_http_text(line, "name", ""));
    event->is_part = json_is_true(json_object_get(line, "is_part"));
    snprintf(event->verdict, sizeof event->verdict, "%s", dv_http_text(line, "verdict", ""));
    if (dv_http_text(line, "whole_because", "")[0])
        event->whole_because = strdup(dv_http_text(line, "whole_because", ""));
}

static int listen_for(struct dv_lease_events *events, const char *directory, double seconds, bool has_commands)
{
    const char *path = has_commands ? "/v1/trace?commands=yes" : "/v1/trace";
    struct dv_stream *stream = dv_stream_open(directory, path, 0, take_line, events);
    dv_ns end = dv_now() + (dv_ns)(seconds * (double)DV_NS_PER_S), now, until;

    if (!stream) {
        dv_cli_error("out of memory");
        return DV_EXIT_FAILED;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    int code = DV_EXIT_OK;
    events->began_ns = dv_now();
    while (code == DV_EXIT_OK && !is_interrupted && (now = dv_now()) < end) {
        until = events->unnamed && now + NAMES_EVERY_NS < end ? now + NAMES_EVERY_NS : end;
        if (!dv_stream_wait(stream, -1, (int)((until - now) / DV_NS_PER_MS) + 1))
            break;
        if (events->unnamed >= MAX_UNNAMED || (events->unnamed && dv_now() > events->named_ns + NAMES_EVERY_NS))
            code = ask_names(events, directory);
    }
    events->ended_ns = dv_now();
    if (code == DV_EXIT_OK && dv_stream_error(stream)[0]) {
        dv_cli_error("the divvyd in %s: %s", directory, dv_stream_error(stream));
        code = DV_EXIT_FAILED;
    }
    dv_stream_close(stream);
    return code;
}

int dv_lease_events_listen(struct dv_lease_events *events, const char *wanted_directory, double seconds,
                           bool has_commands)
{
    char directory[DV_RUNDIR_BYTES];
    int found = dv_daemon_find(wanted_directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, directory);

    *events = (struct dv_lease_events){0};
    if (found < 0) {
        dv_daemon_explain(found, directory);
        return DV_EXIT_FAILED;
    }
    int code = ask_devices(events, directory);
    if (code == DV_EXIT_OK)
        code = ask_names(events, directory);
    if (code == DV_EXIT_OK)
        code = listen_for(events, directory, seconds, has_commands);
    if (code == DV_EXIT_OK)
        code = ask_devices(events, directory);
    if (code == DV_EXIT_OK) /* those that began meanwhile, and those that ended */
        code = ask_names(events, directory);
    return code;
}

void dv_lease_events_fini(struct dv_lease_events *events)
{
    struct dv_named_session *session, *next;

    HASH_ITER (hh, events->sessions, session, next) {
        HASH_DEL(events->sessions, session);
        free(session);
    }
    json_decref(events->devices);
    json_decref(events->tenants);
    for (size_t i = 0; i < events->count; i++) {
        free(events->all[i].name);
        free(events->all[i].whole_because);
    }
    free(events->all);
    *events = (struct dv_lease_events){0};
}
