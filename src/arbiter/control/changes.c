/* Changes by operators and tenants at run time: shares and policies. */
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/control/private.h"
#include "src/base/text.h"

/* A tenant with a session of the caller's; for an operator, with any session. */
static struct dvd_tenant *find_tenant(const struct dvd_control *control, const struct dvd_control_peer *peer,
                                      const char *name)
{
    struct dvd_tenant *tenant;

    HASH_FIND_STR(control->ledger->tenants, name, tenant);
    if (!tenant || tenant->sessions == 0)
        return NULL;
    return peer->is_operator || dvd_tenant_has_user(tenant, peer->uid) ? tenant : NULL;
}

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

/* Returns NULL, or what is wrong. */
static const char *read_change(const struct dvd_request *request, struct dvd_share_change *change)
{
    uint64_t request_ppm, limit_ppm, weight;
    const char *class = argument(request, "class");

    *change = (struct dvd_share_change){.has_class = class != NULL};
    if (!read_number(request, "memory_request", DV_MEMORY_BYTES_MAX, &change->has_memory_request,
                     &change->memory_request_bytes))
        return "memory_request is a number of bytes";
    if (!read_number(request, "memory", DV_MEMORY_BYTES_MAX, &change->has_memory, &change->memory_bytes) ||
        (change->has_memory && change->memory_bytes == 0))
        return "memory is a number of bytes, at least 1";
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

static struct dvd_reply set_share(struct dvd_control *control, const struct dvd_request *request,
                                  struct dvd_tenant *tenant, const struct dvd_share_change *change)
{
    const struct dvd_control_peer *peer = &request->peer;
    const struct dvd_device *device = NULL;
    uint64_t index;
    bool has_device;
    char text[512];

    if (!read_number(request, "device", DV_MAX_DEVICES - 1, &has_device, &index))
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, "device is the number of a device as `divvy devices` shows it");
    if (has_device) {
        device = &control->ledger->devices[index];
        if (!tenant->devices[index]) {
            snprintf(text, sizeof text, "tenant %s has no share of device %u", tenant->name, (unsigned)index);
            return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
        }
    }
    int status = dvd_tenant_set(tenant, device, change, !peer->is_operator, text, sizeof text);
    if (status < 0)
        return dvd_view_error(status == -EPERM ? MHD_HTTP_FORBIDDEN : MHD_HTTP_CONFLICT, text);
    dv_info("the share of tenant %s was changed by user %u", tenant->name, (unsigned)peer->uid);
    return dvd_view_reply(MHD_HTTP_OK,
                          json_pack("{s:s, s:o}", "tenant", tenant->name, "devices", list_shares(tenant, device)));
}

struct dvd_reply dvd_serve_tenant_share(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_share_change change;
    char text[256];

    const char *problem = read_change(request, &change);
    if (problem)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, problem);
    struct dvd_tenant *tenant = find_tenant(control, &request->peer, request->name);
    if (tenant)
        return set_share(control, request, tenant, &change);
    snprintf(text, sizeof text, "there is no tenant %.96s with a session; `divvy tenants` lists them", request->name);
    return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
}

struct dvd_reply dvd_serve_session_share(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_share_change change;
    char text[256];

    const char *problem = read_change(request, &change);
    if (problem)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, problem);
    const struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);
    if (session && session->lessee.tenant)
        return set_share(control, request, session->lessee.tenant, &change);
    snprintf(text, sizeof text, "there is no session %.64s; `divvy ps` lists them", request->name);
    return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
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
        return dvd_view_error(MHD_HTTP_NOT_FOUND,
                              "there is no such device; `divvy devices` lists them with their numbers");
    const struct dv_policy_ops *ops = name ? dv_policy_by_name(name) : NULL;
    if (!ops)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, "a policy is elastic, fair, fifo or band: name=...");
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
