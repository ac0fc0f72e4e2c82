/* divvy record: what sessions did, as a workload for divvy-sim. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/lease_events.h"
#include "src/cli/output.h"
#include "src/cli/values.h"
#include "src/wire/session/handshake.h"

static const char usage[] =
    "Usage: divvy record -o FILE [--for TIME] [--daemon DIR]\n"
    "\n"
    "Records what all sessions do, as a workload for divvy-sim(1): when each had work for a\n"
    "device, and how much. `divvy-sim FILE --config divvy.yaml` then shows what each tenant would\n"
    "have got with that configuration. For operators.\n"
    "\n"
    "  -o FILE        the file to write; -: standard output\n"
    "  --for TIME     how long, such as 10min; at most 60min; default: 60s. Ctrl-C ends\n"
    "                 it earlier\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

#define KERNEL_MIN_NS 1000
#define WORK_MIN_NS 100 /* divvy-sim(1) takes no shorter bursts */
#define MAX_BURSTS 100000
#define MAX_SESSIONS 16384 /* of a tenant on a device; these three are limits of divvy-sim(1), too */
#define MAX_SECONDS 3600
#define PPM_OF_DEVICE 1000000

struct burst {
    uint64_t gap_ns, work_ns, kernel_ns;
};

/* A session on a device, as far as the events are read. */
struct recording {
    struct {
        uint64_t session, device;
    } key;
    bool is_known;                     /* its state is; at the beginning it is not */
    bool has_left;                     /* the device */
    uint64_t burst_ended, burst_began; /* burst_began 0: it has no work */
    uint64_t granted;                  /* 0: it does not hold the device */
    uint64_t work_ns;                  /* of the burst under way */
    double kernels, kernels_ns;        /* in its holds, as their lengths were estimated, and how long these were */
    struct burst *bursts;
    size_t count, capacity;
    bool is_cut; /* it had more */
    UT_hash_handle hh;
};

struct recorder {
    struct dv_lease_events *events;
    struct recording *all;
    uint64_t first_ns, last_ns;
    uint64_t requested_ppm[DV_MAX_DEVICES]; /* of each device, by tenants that are written */
    bool is_cut;                            /* something was left out, as divvy-sim(1) takes no more */
};

/* ---- bursts ---- */

static struct recording *find(struct recorder *recorder, const struct dv_lease_event *event)
{
    struct recording *recording, wanted = {.key = {.session = event->session, .device = event->device}};

    HASH_FIND(hh, recorder->all, &wanted.key, sizeof wanted.key, recording);
    if (recording || !(recording = calloc(1, sizeof *recording)))
        return recording;
    recording->key = wanted.key;
    recording->burst_ended = recorder->first_ns;
    HASH_ADD(hh, recorder->all, key, sizeof recording->key, recording);
    return recording;
}

static void begin_burst(struct recording *recording, uint64_t now)
{
    if (recording->burst_began)
        return;
    recording->burst_began = now;
    recording->work_ns = 0;
    recording->kernels = recording->kernels_ns = 0;
}

/* The mean, over the holds of the burst: one kernel that was slow must not make all of them long. */
static uint64_t kernel_of(const struct recording *recording)
{
    double mean = recording->kernels > 0 ? recording->kernels_ns / recording->kernels : 0;

    return mean > KERNEL_MIN_NS ? (uint64_t)mean : KERNEL_MIN_NS;
}

static void end_burst(struct recording *recording, uint64_t now)
{
    if (!recording->burst_began)
        return;
    recording->is_cut |= recording->count == MAX_BURSTS;
    if (recording->work_ns >= WORK_MIN_NS && recording->count < MAX_BURSTS) {
        if (recording->count == recording->capacity) {
            size_t capacity = recording->capacity ? 2 * recording->capacity : 64;
            struct burst *longer = realloc(recording->bursts, capacity * sizeof *longer);
            if (!longer)
                return;
            recording->bursts = longer;
            recording->capacity = capacity;
        }
        recording->bursts[recording->count++] = (struct burst){
            .gap_ns =
                recording->burst_began > recording->burst_ended ? recording->burst_began - recording->burst_ended : 0,
            .work_ns = recording->work_ns,
            .kernel_ns = kernel_of(recording)};
    }
    recording->burst_began = 0;
    recording->burst_ended = now;
}

static void end_hold(struct recording *recording, uint64_t now, uint64_t kernel_ns)
{
    if (!recording->granted)
        return;
    uint64_t held = now - recording->granted;
    recording->work_ns += held;
    if (kernel_ns) {
        recording->kernels += (double)held / (double)kernel_ns;
        recording->kernels_ns += (double)held;
    }
    recording->granted = 0;
}

static void take_event(struct recorder *recorder, const struct dv_lease_event *event)
{
    struct recording *recording = find(recorder, event);

    if (!recording)
        return;
    if (strcmp(event->what, "wait") == 0) {
        begin_burst(recording, event->ns);
    } else if (strcmp(event->what, "grant") == 0) {
        begin_burst(recording, event->ns); /* it waited before the recording began */
        if (!recording->granted)           /* at the beginning of another recording it is told again */
            recording->granted = event->ns;
    } else if (strcmp(event->what, "release") == 0) {
        if (!recording->is_known && !recording->granted) { /* it held the device before the recording began */
            begin_burst(recording, recorder->first_ns);
            recording->granted = recorder->first_ns;
        }
        end_hold(recording, event->ns, event->value);
        if (!event->more)
            end_burst(recording, event->ns);
    } else if (strcmp(event->what, "leave") == 0 || strcmp(event->what, "cancel") == 0) {
        end_hold(recording, event->ns, 0);
        end_burst(recording, event->ns);
        recording->has_left |= strcmp(event->what, "leave") == 0;
    }
    recording->is_known = true;
}

/* Drops sessions that the daemon does not list and that did nothing: by those, programs look for a daemon. Drops
 * devices that are not in the list, too: they have no name. */
static void drop_others(struct recorder *recorder)
{
    struct recording *recording, *next;

    HASH_ITER (hh, recorder->all, recording, next) {
        if (recording->key.device < json_array_size(recorder->events->devices) &&
            (recording->count || dv_lease_events_session(recorder->events, recording->key.session)->is_known))
            continue;
        HASH_DEL(recorder->all, recording);
        free(recording->bursts);
        free(recording);
    }
}

static void read_events(struct recorder *recorder)
{
    const struct dv_lease_events *events = recorder->events;

    recorder->first_ns = events->count && events->all[0].ns < events->began_ns ? events->all[0].ns : events->began_ns;
    recorder->last_ns = events->ended_ns;
    for (size_t i = 0; i < events->count; i++)
        take_event(recorder, &events->all[i]);
    for (struct recording *recording = recorder->all; recording; recording = recording->hh.next) {
        end_hold(recording, recorder->last_ns, 0); /* what is under way ends with the recording */
        end_burst(recording, recorder->last_ns);
        recorder->is_cut |= recording->is_cut;
    }
    drop_others(recorder);
}

/* ---- the file ---- */

/* Names are in quotes: they can have any character. */
static void write_text(FILE *out, const char *key, const char *text)
{
    json_t *string = json_string(text);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

    fprintf(out, "%s%s\n", key, quoted ? quoted : "\"?\"");
    free(quoted);
    json_decref(string);
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Devices of one name are told apart by their numbers. */
static void write_device_name(FILE *out, const char *key, const json_t *devices, size_t index)
{
    const char *name = dv_http_text(json_array_get(devices, index), "name", "?");
    char text[DV_MAX_DEVICE_NAME + 16];
    size_t other, same = 0;
    json_t *device;

    json_array_foreach(devices, other, device) same += strcmp(dv_http_text(device, "name", "?"), name) == 0;
    if (same > 1)
        snprintf(text, sizeof text, "%s #%zu", name, index);
    else
        snprintf(text, sizeof text, "%s", name);
    write_text(out, key, text);
}

static void write_devices(FILE *out, const json_t *devices)
{
    size_t index;
    json_t *device;

    fprintf(out, "devices:\n");
    json_array_foreach(devices, index, device)
    {
        const char *policy = dv_http_text(device, "policy", "elastic");
        write_device_name(out, "  - name: ", devices, index);
        fprintf(out, "    slots: %.0f\n", number_of(device, "slots"));
        if (strcmp(policy, "none") != 0)
            fprintf(out, "    policy: %s\n", policy);
        if (number_of(device, "slice_ns") > 0)
            fprintf(out, "    slice: %.0fus\n", number_of(device, "slice_ns") / 1e3);
    }
}

static void write_share(FILE *out, struct recorder *recorder, const char *name, uint64_t device)
{
    const json_t *share = dv_lease_events_share(recorder->events, name, device);
    uint64_t *requested = &recorder->requested_ppm[device];
    char request[32], limit[32];

    if (!share)
        return;
    uint64_t ppm = (uint64_t)json_integer_value(json_object_get(share, "request_ppm"));
    if (ppm > PPM_OF_DEVICE - *requested) { /* they were not all there at one time, and are in the simulation */
        ppm = PPM_OF_DEVICE - *requested;
        fprintf(out, "    # lowered: the requests of all tenants must fit the device\n");
    }
    *requested += ppm;
    dv_value_format_share(request, sizeof request, (int64_t)ppm);
    dv_value_format_share(limit, sizeof limit, json_integer_value(json_object_get(share, "limit_ppm")));
    fprintf(out, "    request: %s\n    limit: %s\n    weight: %.0f\n    class: %s\n", request, limit,
            number_of(share, "weight"), dv_http_text(share, "class", "standard"));
}

static void write_bursts(FILE *out, const struct recording *recording)
{
    fprintf(out, "      - ended: %s\n        bursts:%s\n", recording->has_left ? "true" : "false",
            recording->count ? "" : " []");
    for (size_t i = 0; i < recording->count; i++) {
        const struct burst *burst = &recording->bursts[i];
        fprintf(out, "          - %.3fus %.3fus %.3fus\n", (double)burst->gap_ns / 1e3, (double)burst->work_ns / 1e3,
                (double)burst->kernel_ns / 1e3);
    }
}

static const char *tenant_of(struct recorder *recorder, const struct recording *recording)
{
    return dv_lease_events_session(recorder->events, recording->key.session)->tenant;
}

/* Whether an earlier recording is of the same tenant on the same device. */
static bool is_written(struct recorder *recorder, const struct recording *recording)
{
    for (const struct recording *earlier = recorder->all; earlier != recording; earlier = earlier->hh.next)
        if (earlier->key.device == recording->key.device &&
            strcmp(tenant_of(recorder, earlier), tenant_of(recorder, recording)) == 0)
            return true;
    return false;
}

static void write_tenant(FILE *out, struct recorder *recorder, const struct recording *first)
{
    const char *tenant = tenant_of(recorder, first);
    unsigned sessions = 0;

    write_text(out, "  - name: ", tenant);
    write_device_name(out, "    device: ", recorder->events->devices, (size_t)first->key.device);
    write_share(out, recorder, tenant, first->key.device);
    fprintf(out, "    kernel: 1ms\n    arrival: recorded\n    recorded:\n");
    for (const struct recording *one = first; one; one = one->hh.next) {
        if (one->key.device != first->key.device || strcmp(tenant_of(recorder, one), tenant) != 0)
            continue;
        if (sessions++ < MAX_SESSIONS)
            write_bursts(out, one);
        else
            recorder->is_cut = true;
    }
}

static void write_workload(FILE *out, struct recorder *recorder)
{
    fprintf(out, "# Written by divvy record. divvy-sim(1) describes the format.\n");
    double seconds = (double)(recorder->last_ns - recorder->first_ns) / 1e9;
    fprintf(out, "duration: %.3fs\n", seconds < MAX_SECONDS ? seconds : MAX_SECONDS);
    write_devices(out, recorder->events->devices);
    fprintf(out, "tenants:\n");
    for (const struct recording *one = recorder->all; one; one = one->hh.next)
        if (!is_written(recorder, one))
            write_tenant(out, recorder, one);
}

static int record(const char *path, const struct dv_cli_view *view, double seconds)
{
    struct dv_lease_events events = {0};
    struct recorder recorder = {.events = &events};
    struct recording *recording, *next;
    struct dv_cli_output output;
    FILE *out;
    int code = dv_cli_output_open(&output, path);

    if (code != DV_EXIT_OK)
        return code;
    code = dv_lease_events_listen(&events, view->daemon_directory, seconds, false);

    if (code == DV_EXIT_OK)
        read_events(&recorder);
    if (code == DV_EXIT_OK && !recorder.all) {
        dv_cli_error("no session used a device in this time: there is nothing to record");
        code = DV_EXIT_FAILED;
    }
    if (code == DV_EXIT_OK && !(out = dv_cli_output_begin(&output)))
        code = DV_EXIT_FAILED;
    if (code == DV_EXIT_OK)
        write_workload(out, &recorder);
    code = dv_cli_output_close(&output, code);
    if (code == DV_EXIT_OK && events.lost)
        dv_cli_error("%" PRIu64 " events were lost, because there were too many: the recording is not complete",
                     events.lost);
    if (code == DV_EXIT_OK && recorder.is_cut)
        dv_cli_error(
            "there was more than divvy-sim takes: at most %u sessions of a tenant, and %u bursts of a session, "
            "are recorded",
            MAX_SESSIONS, MAX_BURSTS);
    HASH_ITER (hh, recorder.all, recording, next) {
        HASH_DEL(recorder.all, recording);
        free(recording->bursts);
        free(recording);
    }
    dv_lease_events_fini(&events);
    return code;
}

int dv_cli_record(int argc, char **argv)
{
    static const struct option options[] = {
        DV_CLI_VIEW_OPTIONS, {"for", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0}};
    struct dv_cli_view view = {0};
    const char *path = NULL;
    double seconds = 60;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        if (option == 'o')
            path = optarg;
        else if (option == 'f' && dv_value_parse_seconds(optarg, &seconds) == 0)
            continue;
        else if (option == 'f') {
            dv_cli_error("--for is a time such as 30s or 10min, not '%s'.", optarg);
            return DV_EXIT_USAGE;
        } else if (dv_cli_view_option(&view, option, argv, usage) != DV_EXIT_OK)
            return DV_EXIT_USAGE;
    }
    if (seconds > MAX_SECONDS) {
        dv_cli_error("--for is at most 60min, as divvy-sim simulates no longer time.");
        return DV_EXIT_USAGE;
    }
    if (!path) {
        dv_cli_error("missing -o FILE. Example: divvy record -o day.yaml --for 10min");
        return DV_EXIT_USAGE;
    }
    int code = dv_cli_check_arguments(argc, argv, 0);
    return code == DV_EXIT_OK ? record(path, &view, seconds) : code;
}
