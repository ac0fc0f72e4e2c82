/* Which tenant a caller's programs belong to, what they may ask for, and what is left. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "src/arbiter/config/saved.h"
#include "src/arbiter/control/private.h"
#include "src/arbiter/session/identity.h"

/* The caller, as if it opened a session. */
static bool identify(const struct dvd_control *control, const struct dvd_request *request,
                     struct dvd_identity *identity)
{
    struct ucred credentials = {0};
    socklen_t bytes = sizeof credentials;
    char user[DV_MAX_USER_NAME];
    struct dvd_peer peer = {.fd = request->fd, .uid = request->peer.uid, .user = user, .command = "?"};

    getsockopt(request->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes);
    peer.gid = credentials.gid;
    peer.pid = credentials.pid;
    dvd_user_name(request->peer.uid, user, sizeof user);
    return dvd_identity_find(control->config, &peer, identity);
}

/* A device: what is promised to other tenants, and so what this one can still request; and its memory. tenant NULL: it
 * has none of these terms now. */
static json_t *list_devices(const struct dvd_control *control, const struct dvd_tenant *tenant,
                            const struct dvd_tenant_terms *terms)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < control->devices->count; i++) {
        const struct dvd_device *device = &control->ledger->devices[i];
        const struct dvd_tenant_device *there = tenant ? tenant->devices[i] : NULL;
        uint64_t promised = device->promised_ppm - (there ? there->policy.share.request_ppm : 0);
        if (device->terms.is_hidden)
            continue;
        uint64_t quota = there ? there->memory.quota : dvd_device_size(device, &terms->memory);
        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:I, s:I, s:I}", "index", (int)i, "device", device->terms.name,
                                        "left_ppm", (json_int_t)(promised < DV_PPM ? DV_PPM - promised : 0),
                                        "memory_quota_bytes", (json_int_t)quota, "memory_reserved_bytes",
                                        (json_int_t)(there ? there->memory.reserved : 0)));
    }
    return list;
}

struct dvd_reply dvd_serve_whoami(struct dvd_control *control, const struct dvd_request *request)
{
    struct dvd_identity identity;
    struct dvd_tenant *tenant = NULL;
    bool admitted = identify(control, request, &identity);
    char user[DV_MAX_USER_NAME];

    dvd_user_name(request->peer.uid, user, sizeof user);
    if (!admitted)
        return dvd_view_reply(200, json_pack("{s:i, s:s, s:b, s:b}", "uid", (int)request->peer.uid, "user", user,
                                             "operator", (int)request->peer.is_operator, "refused", 1));
    const struct dvd_share_change *saved =
        control->sessions->saved ? dvd_saved_find(control->sessions->saved, identity.name) : NULL;
    if (saved)
        dvd_terms_apply(&identity.terms, saved);
    HASH_FIND_STR(control->ledger->tenants, identity.name, tenant);
    /* a tenant that is only remembered gets the terms of the configuration with its next program */
    bool is_current = tenant && (tenant->sessions > 0 || tenant->set_by_operator);
    const struct dvd_tenant_terms *terms = is_current ? &tenant->terms : &identity.terms;
    return dvd_view_reply(
        200, json_pack("{s:i, s:s, s:b, s:b, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:s, s:o}", "uid",
                       (int)request->peer.uid, "user", user, "operator", (int)request->peer.is_operator, "refused", 0,
                       "tenant", identity.name, "shared", (int)identity.is_shared, "sessions",
                       (int)(tenant ? tenant->sessions : 0), "sessions_of_user",
                       (int)dvd_sessions_of_user(control->sessions, request->peer.uid), "sessions_per_user",
                       (int)control->config->sessions_per_user, "request_ppm", (int)terms->share.request_ppm,
                       "limit_ppm", (int)terms->share.limit_ppm, "weight", (int)terms->share.weight, "class",
                       dv_class_word(terms->share.class), "may_request_ppm", (int)terms->may_request_ppm, "may_weight",
                       (int)terms->may_weight, "may_class", dv_class_word(terms->may_class), "devices",
                       list_devices(control, is_current ? tenant : NULL, terms)));
}
