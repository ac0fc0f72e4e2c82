/* Changes by operators and tenants at run time: shares and policies. */
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/control/private.h"
#include "src/base/text.h"

#define PERCENT(ppm) ((double)(ppm) / (DV_PPM / 100.0))

static const char *argument(const struct dvd_request *request, const char *key)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, key);
}

/* ---- shares ---- */

/* Reads a number of a request. Returns false when it is given but is not a number up to max. */
static bool read_number(const struct dvd_request *request, const char *key, uint64_t max, bool *given, uint64_t *number)
{
    const char *text = argument(request, key);

    *given = text != NULL;
    *number = 0;
    return !text || dv_text_parse_number(text, max, number) >= 0;
}

/* The same for a number of bytes, or a part of a device's memory. */
static bool read_size(const struct dvd_request *request, const char *key, bool *given, struct dvd_memory_size *size)
{
    const char *text = argument(request, key);

    *size = (struct dvd_memory_size){0};
    if (text && strchr(text, '%')) {
        *given = true;
        return dv_text_parse_share(text, &size->ppm) == 0;
    }
    return read_number(request, key, DV_MEMORY_BYTES_MAX, given, &size->bytes);
}

/* Returns NULL, or what is wrong. */
static const char *read_change(const struct dvd_request *request, struct dvd_share_change *change)
{
    uint64_t request_ppm, limit_ppm, weight;
    const char *class = argument(request, "class");

    *change = (struct dvd_share_change){.has_class = class != NULL};
    if (!read_size(request, "memory_request", &change->has_memory_request, &change->memory_request))
        return "memory_request is a number of bytes, or a part of the device such as 50%";
    if (!read_size(request, "memory", &change->has_memory, &change->memory) ||
        (change->has_memory && change->memory.bytes == 0 && change->memory.ppm == 0))
        return "memory is a number of bytes, at least 1, or a part of the device such as 50%";
    if (!read_number(request, "request", DV_PPM, &change->has_request, &request_ppm))
        return "request is a number of parts per million, from 0 to 1000000";
    if (!read_number(request, "limit", DV_PPM, &change->has_limit, &limit_ppm))
        return "limit is a number of parts per million, from 10000 to 1000000";
    if (!read_number(request, "weight", DV_WEIGHT_MAX, &change->has_weight, &weight))
        return "weight is a number from 1 to 10000";
    if (class && !dv_class_by_word(class, &change->class))
        return "class is " DV_CLASS_WORDS;
    change->request_ppm = (uint32_t)request_ppm;
    change->limit_ppm = (uint32_t)limit_ppm;
    change->weight = (uint32_t)weight;
    if (!change->has_request && !change->has_limit && !change->has_weight && !change->has_class &&
        !change->has_memory && !change->has_memory_request)
        return "nothing to change: give request, limit, weight, class, memory or memory_request";
    return NULL;
}

static json_t *list_shares(const struct dvd_tenant *tenant, const struct dvd_device *device)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < DV_MAX_DEVICES; i++)
        if (tenant->devices[i] && (!device || tenant->devices[i]->device == device))
            json_array_append_new(list, dvd_view_share(tenant->devices[i]));
    return list;
}

static void format_memory(char *field, size_t bytes, const struct dvd_memory_size *size)
{
    if (size->ppm)
        snprintf(field, bytes, "%g%%", PERCENT(size->ppm));
    else if (size->bytes > DV_MEMORY_BYTES_MAX)
        snprintf(field, bytes, "no limit");
    else
        dv_text_format_size(field, bytes, size->bytes);
}

/* What a tenant has before a change: on the device, or on the first of its devices, or on those that it comes to next.
 */
struct old_share {
    struct dv_share share;
    struct dvd_memory_size memory, memory_request;
};

static struct old_share old_share_of(const struct dvd_tenant *tenant, const struct dvd_device *device)
{
    const struct dvd_tenant_device *there = device ? tenant->devices[device->id.number] : NULL;
    struct old_share old = {.share = there ? there->share : dvd_share_with(tenant->terms.share, &tenant->change),
                            .memory = tenant->terms.memory,
                            .memory_request = tenant->terms.memory_request};

    for (uint32_t i = 0; !there && i < DV_MAX_DEVICES; i++)
        there = tenant->devices[i];
    if (!there && old.memory.bytes == 0 && old.memory.ppm == 0)
        old.memory.ppm = DV_PPM;
    if (there) {
        old.memory = (struct dvd_memory_size){.bytes = there->memory.quota};
        old.memory_request = (struct dvd_memory_size){.bytes = there->memory.request};
    }
    return old;
}

static size_t format_size_change(char *text, size_t bytes, const char *what, const struct dvd_memory_size *new,
                                 const struct dvd_memory_size *old)
{
    char size[32], was[32];

    format_memory(size, sizeof size, new);
    if (!old)
        return (size_t)snprintf(text, bytes, ", %s %s", what, size);
    format_memory(was, sizeof was, old);
    return (size_t)snprintf(text, bytes, ", %s %s (was %s)", what, size, was);
}

/* Formats the change behind ", ". before: what the tenant had, or NULL. */
static void format_change(const struct dvd_share_change *change, const struct old_share *before, char *text,
                          size_t bytes)
{
    const struct dv_share *old = before ? &before->share : NULL;
    char was[64] = "";
    size_t used = 0;

    if (old && change->has_request)
        snprintf(was, sizeof was, " (was %g%%)", PERCENT(old->request_ppm));
    if (change->has_request)
        used += (size_t)snprintf(text + used, bytes - used, ", request %g%%%s", PERCENT(change->request_ppm), was);
    if (old && change->has_limit)
        snprintf(was, sizeof was, " (was %g%%)", PERCENT(old->limit_ppm));
    if (change->has_limit)
        used += (size_t)snprintf(text + used, bytes - used, ", limit %g%%%s", PERCENT(change->limit_ppm), was);
    if (old && change->has_weight)
        snprintf(was, sizeof was, " (was %u)", old->weight);
    if (change->has_weight)
        used += (size_t)snprintf(text + used, bytes - used, ", weight %u%s", change->weight, was);
    if (old && change->has_class)
        snprintf(was, sizeof was, " (was %s)", dv_class_word(old->class));
    if (change->has_class)
        used += (size_t)snprintf(text + used, bytes - used, ", class %s%s", dv_class_word(change->class), was);
    if (change->has_memory)
        used += format_size_change(text + used, bytes - used, "memory", &change->memory, old ? &before->memory : NULL);
    if (change->has_memory_request)
        format_size_change(text + used, bytes - used, "memory-request", &change->memory_request,
                           old ? &before->memory_request : NULL);
}

/* Who changed what. */
static void log_change(const struct dvd_tenant *tenant, const struct dvd_share_change *change,
                       const struct old_share *old, const struct dvd_device *device,
                       const struct dvd_control_peer *peer)
{
    char text[384];

    format_change(change, old, text, sizeof text);
    dv_info("user %u set tenant %s on %s: %s", (unsigned)peer->uid, tenant->name,
            device ? device->terms.name : "all its devices", text + 2);
}

/* ---- for good ---- */

/* Whether the change is to outlive the tenant. Returns false with an answer when it cannot be. */
static bool may_save(const struct dvd_control *control, const struct dvd_request *request, bool *save,
                     struct dvd_reply *refusal)
{
    const char *text = argument(request, "save");

    *save = text && strcmp(text, "yes") == 0;
    if (text && !*save && strcmp(text, "no") != 0)
        *refusal = dvd_view_error(MHD_HTTP_BAD_REQUEST, "save is yes or no");
    else if (*save && !request->peer.is_operator)
        *refusal = dvd_view_error(MHD_HTTP_FORBIDDEN, "only operators may save a share");
    else if (*save && argument(request, "device"))
        *refusal = dvd_view_error(MHD_HTTP_BAD_REQUEST, "a share is saved for all devices: leave `device` out");
    else if (*save && control->sessions->saved->is_broken)
        *refusal = dvd_view_error(MHD_HTTP_CONFLICT, "the file with saved shares, saved.json, has an error and is not "
                                                     "overwritten; divvyd's log says which error");
    else if (*save && control->sessions->saved->directory_fd < 0)
        *refusal = dvd_view_error(MHD_HTTP_CONFLICT, "this divvyd has no directory to save shares in (--state-dir)");
    else
        return true;
    return false;
}

static void explain_unsaved(const char *tenant, int status, char *text, size_t bytes)
{
    if (status == -ERANGE)
        snprintf(text, bytes,
                 "the share of tenant %.96s cannot be saved: together with what is saved for it, its request would be "
                 "above its limit, its limit below 1%% or its weight 0",
                 tenant);
    else if (status == -EINVAL)
        snprintf(text, bytes, "no tenant can be named '%.96s': a name is text in UTF-8 without control characters",
                 tenant);
    else
        snprintf(text, bytes, "the share of tenant %.96s cannot be saved: %s", tenant, strerror(-status));
}

/* change: NULL forgets what is saved. Returns 0, or a negative errno with the reason: then nothing has changed. */
static int save(struct dvd_control *control, const char *tenant, const struct dvd_share_change *change, char *text,
                size_t bytes)
{
    struct dvd_saved *saved = control->sessions->saved;
    const struct dvd_share_change *found = dvd_saved_find(saved, tenant);
    struct dvd_share_change before = found ? *found : (struct dvd_share_change){0};
    bool has_before = found != NULL;
    int status = dvd_saved_put(saved, tenant, change);

    if (status == 0) {
        status = dvd_sessions_save_shares(control->sessions);
        if (status < 0 && change)
            dvd_saved_put(saved, tenant, NULL);
        if (status < 0 && has_before)
            dvd_saved_put(saved, tenant, &before);
    }
    if (status == 0)
        dvd_tenant_forget_change(control->ledger, tenant);
    else
        explain_unsaved(tenant, status, text, bytes);
    return status;
}

struct dvd_reply dvd_serve_forget(struct dvd_control *control, const struct dvd_request *request)
{
    char text[512];

    if (!dvd_saved_find(control->sessions->saved, request->name)) {
        snprintf(text, sizeof text, "no share is saved for tenant %.96s", request->name);
        return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
    }
    if (save(control, request->name, NULL, text, sizeof text) < 0)
        return dvd_view_error(MHD_HTTP_CONFLICT, text);
    dv_info("user %u had the saved share of tenant %s forgotten", (unsigned)request->peer.uid, request->name);
    return dvd_view_reply(MHD_HTTP_OK, json_pack("{s:s, s:[]}", "tenant", request->name, "devices"));
}

/* A tenant that has no session now has the share when it comes. */
static struct dvd_reply save_for_later(struct dvd_control *control, const struct dvd_request *request,
                                       const struct dvd_share_change *change)
{
    char text[512];

    if (save(control, request->name, change, text, sizeof text) < 0)
        return dvd_view_error(MHD_HTTP_CONFLICT, text);
    format_change(change, NULL, text, sizeof text);
    dv_info("user %u saved a share of tenant %s: %s", (unsigned)request->peer.uid, request->name, text + 2);
    return dvd_view_reply(MHD_HTTP_OK, json_pack("{s:s, s:[]}", "tenant", request->name, "devices"));
}

static struct dvd_reply set_share(struct dvd_control *control, const struct dvd_request *request,
                                  struct dvd_tenant *tenant, const struct dvd_share_change *change)
{
    const struct dvd_control_peer *peer = &request->peer;
    const struct dvd_device *device = NULL;
    struct dvd_reply refusal;
    uint64_t index;
    bool has_device, is_for_good;
    char text[512];

    if (!may_save(control, request, &is_for_good, &refusal))
        return refusal;
    if (!read_number(request, "device", DV_MAX_DEVICES - 1, &has_device, &index))
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, "device is the number of a device as `divvy devices` shows it");
    if (has_device) {
        device = &control->ledger->devices[index];
        if (!tenant->devices[index]) {
            snprintf(text, sizeof text, "tenant %s has no share of device %u", tenant->name, (unsigned)index);
            return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
        }
    }
    int status = is_for_good ? dvd_saved_check(control->sessions->saved, tenant->name, change) : 0;
    if (status < 0) {
        explain_unsaved(tenant->name, status, text, sizeof text);
        return dvd_view_error(MHD_HTTP_CONFLICT, text);
    }
    struct old_share old = old_share_of(tenant, device);
    bool was_set = tenant->set_by_operator;
    status = dvd_tenant_set(tenant, device, change, !peer->is_operator, text, sizeof text);
    if (status < 0)
        return dvd_view_error(status == -EPERM ? MHD_HTTP_FORBIDDEN : MHD_HTTP_CONFLICT, text);
    log_change(tenant, change, &old, device, peer);
    if (is_for_good && save(control, tenant->name, change, text, sizeof text) < 0) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "; until its last program ends, it has the new share");
        return dvd_view_error(MHD_HTTP_CONFLICT, text);
    }
    if (is_for_good)
        dvd_tenant_note_saved(tenant, was_set);
    return dvd_view_reply(MHD_HTTP_OK,
                          json_pack("{s:s, s:o}", "tenant", tenant->name, "devices", list_shares(tenant, device)));
}

static struct dvd_reply no_session_now(const char *tenant)
{
    char text[256];

    snprintf(text, sizeof text,
             "there is no tenant %.96s with a session; `divvy tenants` lists them. With --save a share is kept for its "
             "next session",
             tenant);
    return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
}

struct dvd_reply dvd_serve_tenant_share(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_share_change change;
    const char *problem = read_change(request, &change);

    if (problem)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, problem);
    struct dvd_tenant *tenant = dvd_control_find_tenant(control, &request->peer, request->name);
    struct dvd_reply refusal;
    bool is_for_good;
    if (tenant)
        return set_share(control, request, tenant, &change);
    if (!may_save(control, request, &is_for_good, &refusal))
        return refusal;
    if (is_for_good)
        return save_for_later(control, request, &change);
    return request->peer.is_operator ? no_session_now(request->name) : dvd_view_no_tenant(request->name);
}

struct dvd_reply dvd_serve_session_share(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_share_change change;
    const char *problem = read_change(request, &change);

    if (problem)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, problem);
    const struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);
    if (session && session->lessee.tenant)
        return set_share(control, request, session->lessee.tenant, &change);
    return dvd_view_no_session(request->name);
}

/* ---- policies ---- */

static unsigned count_sessions_on(const struct dvd_control *control, uint32_t device)
{
    unsigned count = 0;

    for (const struct dvd_session *s = control->sessions->all; s; s = s->hh.next)
        for (uint32_t i = 0; i < s->lessee.device_count; i++)
            count += s->lessee.devices[i].number == device;
    return count;
}

struct dvd_reply dvd_serve_policy(struct dvd_control *control, const struct dvd_request *request)
{
    const char *name = argument(request, "name");
    uint64_t index, slice_ns;
    bool has_slice;

    if (dv_text_parse_number(request->name, DV_MAX_DEVICES - 1, &index) < 0 || index >= control->devices->count)
        return dvd_view_no_device();
    const struct dv_policy_ops *ops = name ? dv_policy_by_name(name) : NULL;
    if (!ops)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, "the policy (argument `name`) is elastic, fair, fifo or band");
    if (!read_number(request, "slice_ns", DV_SLICE_FIXED_MAX_NS, &has_slice, &slice_ns) ||
        (slice_ns && slice_ns < DV_SLICE_FIXED_MIN_NS))
        return dvd_view_error(MHD_HTTP_BAD_REQUEST,
                              "slice_ns is from 100000 (100 us) to 10000000000 (10 s), or 0: learned slices");
    struct dvd_device *device = &control->ledger->devices[index];
    if (!dvd_device_start(device))
        return dvd_view_error(MHD_HTTP_CONFLICT,
                              "the time of this device is not shared out (policy: none in divvy.yaml): change that, "
                              "reload divvyd, and restart the programs");
    device->set_by_operator = true;
    dvd_device_set_policy(device, ops, slice_ns);
    dv_info("the policy of device %u is %s now, set by user %u", (unsigned)index, ops->name,
            (unsigned)request->peer.uid);
    return dvd_view_reply(MHD_HTTP_OK,
                          json_pack("{s:i, s:s, s:s, s:I, s:i, s:i}", "index", (int)index, "device", device->terms.name,
                                    "policy", ops->name, "slice_ns", (json_int_t)device->policy.fixed_slice_ns, "slots",
                                    (int)device->policy.slots, "sessions",
                                    (int)count_sessions_on(control, device->id.number)));
}

/* ---- sessions ---- */

static json_t *view_named(const struct dvd_session *session)
{
    return json_pack("{s:I, s:s}", "id", (json_int_t)session->lessee.id.value, "command", session->command);
}

struct dvd_reply dvd_serve_end(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);
    char why[96];

    if (!session)
        return dvd_view_no_session(request->name);
    if ((!session->lessee.has_worker && !session->lease_only) ||
        (session->state != DV_SESSION_SERVED && session->state != DV_SESSION_PARKED))
        return dvd_view_error(MHD_HTTP_CONFLICT, "this session has no worker that could be ended; end its process");
    if (request->peer.uid == session->lessee.uid)
        snprintf(why, sizeof why, "its user ended it (divvy end)");
    else
        snprintf(why, sizeof why, "an operator (user %u) ended it (divvy end)", (unsigned)request->peer.uid);
    json_t *answer = view_named(session);
    dvd_session_end_for(session, why);
    return dvd_view_reply(MHD_HTTP_OK, answer);
}

struct dvd_reply dvd_serve_park(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);
    char text[DV_MAX_MESSAGE_TEXT];

    if (!session)
        return dvd_view_no_session(request->name);
    if (dvd_session_park(session, text, sizeof text) < 0)
        return dvd_view_error(MHD_HTTP_CONFLICT, text);
    dv_info("session %llu is to be parked, asked for by user %u", (unsigned long long)session->lessee.id.value,
            (unsigned)request->peer.uid);
    return dvd_view_reply(MHD_HTTP_OK, view_named(session));
}

struct dvd_reply dvd_serve_resume(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);

    if (!session)
        return dvd_view_no_session(request->name);
    dvd_session_resume(session);
    return dvd_view_reply(MHD_HTTP_OK, view_named(session));
}

/* ---- the configuration ---- */

static json_t *list_lines(char *text)
{
    json_t *list = json_array();

    for (char *line = text, *end; list && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        json_array_append_new(list, json_string(line));
    }
    return list;
}

struct dvd_reply dvd_serve_reload(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_reload reload;

    (void)request;
    if (control->events->reload(control->owner, &reload) < 0)
        return dvd_view_error(MHD_HTTP_CONFLICT, reload.text);
    return dvd_view_reply(MHD_HTTP_OK, json_pack("{s:i, s:o, s:s}", "changes", (int)reload.changes, "lines",
                                                 list_lines(reload.text), "warning", control->config->warning));
}
