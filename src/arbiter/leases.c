/* Leases (see leases.h). */
#include "src/arbiter/leases.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session.h"

static void dispatch(struct dv_lease_device *device);

/* ---- sending ---- */

static void send_lease(struct dv_session *session, uint32_t index, enum dv_lease_type type,
                       uint32_t flags, uint64_t slice_ns)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = index,
                                 .flags = flags,
                                 .serial = session->leases[index].serial,
                                 .slice_ns = slice_ns};

    /* A worker that does not read its channel hurts only itself: it holds what it holds. */
    if (session->control_fd >= 0)
        send(session->control_fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct dv_session_lease *lease_of(struct dv_policy_session *policy)
{
    return (struct dv_session_lease *)((char *)policy - offsetof(struct dv_session_lease, policy));
}

/* ---- decisions ---- */

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    dispatch(userdata);
    return 0;
}

static void ask_again_at(struct dv_lease_device *device, dv_ns when)
{
    if (when == 0) {
        if (device->timer)
            sd_event_source_set_enabled(device->timer, SD_EVENT_OFF);
        return;
    }
    uint64_t usec = when / 1000 + 1;
    if (!device->timer) {
        if (sd_event_add_time(device->arbiter->event, &device->timer, CLOCK_MONOTONIC, usec, 1,
                              on_time, device) < 0)
            return;
    } else {
        sd_event_source_set_time(device->timer, usec);
    }
    sd_event_source_set_enabled(device->timer, SD_EVENT_ONESHOT);
}

static void dispatch(struct dv_lease_device *device)
{
    dv_ns now = dv_now(), again = 0, recall_again = 0;

    while (device->policy.free_slots > 0) {
        struct dv_decision decision = dv_policy_next(&device->policy, now);
        if (!decision.session) {
            again = decision.ask_again_ns;
            break;
        }
        struct dv_session_lease *lease = lease_of(decision.session);
        lease->serial = ++device->grants;
        send_lease(lease->session, lease->index, DV_LEASE_GRANT,
                   device->policy.waiting_tenants ? DV_LEASE_CONTENDED : 0, decision.slice_ns);
    }
    struct dv_policy_session *holder;
    while ((holder = dv_policy_recall(&device->policy, now, &recall_again))) {
        struct dv_session_lease *lease = lease_of(holder);
        send_lease(lease->session, lease->index, DV_LEASE_RECALL, 0, 0);
    }
    if (recall_again && (!again || recall_again < again))
        again = recall_again;
    ask_again_at(device, again);
}

/* ---- messages ---- */

static uint64_t plausible(uint64_t ns)
{
    return ns < DV_LEASE_ESTIMATE_MOST_NS ? ns : DV_LEASE_ESTIMATE_MOST_NS;
}

static void take_message(struct dv_session *session, const struct dv_lease_message *m)
{
    if (m->magic != DV_LEASE_MAGIC || m->version != DV_LEASE_VERSION ||
        m->device >= session->device_count || !session->leases[m->device].tenant)
        return;
    struct dv_session_lease *lease = &session->leases[m->device];
    struct dv_lease_device *device =
        &session->arbiter->leases.devices[session->device_indices[m->device]];
    dv_ns now = dv_now();

    lease->policy.burst.kernel_ns = plausible(m->kernel_ns);
    lease->policy.burst.p90_ns = plausible(m->p90_ns);
    lease->policy.burst.last_ns = plausible(m->last_ns);
    switch (m->type) {
    case DV_LEASE_WANT:
        dv_policy_wait(&device->policy, &lease->policy, now);
        break;
    case DV_LEASE_CANCEL:
        dv_policy_cancel(&device->policy, &lease->policy, now);
        break;
    case DV_LEASE_RELEASE:
        if (!lease->policy.holding || m->serial != lease->serial)
            return;
        dv_policy_release(&device->policy, &lease->policy, now);
        if (m->flags & DV_LEASE_AGAIN)
            dv_policy_wait(&device->policy, &lease->policy, now);
        break;
    default:
        return;
    }
    dispatch(device);
}

static int on_message(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    enum { AT_ONCE = 16 }; /* then others have a turn */
    struct dv_session *session = userdata;

    (void)events;
    for (int i = 0; i < AT_ONCE; i++) {
        struct dv_lease_message m;
        ssize_t bytes = recv(fd, &m, sizeof m, MSG_DONTWAIT);
        if (bytes == (ssize_t)sizeof m) {
            take_message(session, &m);
            continue;
        }
        if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
            sd_event_source_set_enabled(source, SD_EVENT_OFF); /* its pidfd tells the rest */
        if (bytes <= 0)
            break;
    }
    return 0;
}

/* ---- coming and going ---- */

static struct dv_lease_tenant *tenant_on(struct dv_arbiter *arbiter, uid_t uid, uint32_t index)
{
    static const struct dv_share plain = {
        .request_ppm = 0, .limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD};
    struct dv_lease_tenant *tenant, wanted;

    memset(&wanted.key, 0, sizeof wanted.key);
    wanted.key.uid = uid;
    wanted.key.device = index;
    HASH_FIND(hh, arbiter->leases.tenants, &wanted.key, sizeof wanted.key, tenant);
    if (tenant)
        return tenant;
    tenant = calloc(1, sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->key = wanted.key;
    dv_policy_tenant_add(&arbiter->leases.devices[index].policy, &tenant->policy, &plain, dv_now());
    HASH_ADD(hh, arbiter->leases.tenants, key, sizeof tenant->key, tenant);
    return tenant;
}

static void start_device(struct dv_arbiter *arbiter, uint32_t index)
{
    struct dv_lease_device *device = &arbiter->leases.devices[index];
    const struct dv_device_rule *rule =
        dv_devices_rule(&arbiter->devices, index, &arbiter->config);

    if (device->started || !rule || !rule->policy)
        return;
    device->arbiter = arbiter;
    device->index = index;
    device->started = true;
    dv_policy_init(&device->policy, dv_policy_by_name(dv_config_policy_word(rule->policy)),
                   rule->slots ? (uint32_t)*rule->slots : 1, dv_now());
}

int dv_leases_join(struct dv_arbiter *arbiter, struct dv_session *session)
{
    bool any = false;

    for (uint32_t i = 0; i < session->device_count; i++) {
        struct dv_session_lease *lease = &session->leases[i];
        if (!session->devices[i].leased)
            continue;
        start_device(arbiter, session->device_indices[i]);
        lease->tenant = tenant_on(arbiter, session->uid, session->device_indices[i]);
        if (!lease->tenant)
            return -ENOMEM;
        lease->tenant->sessions++;
        dv_policy_session_init(&lease->policy, &lease->tenant->policy);
        lease->session = session;
        lease->index = i;
        any = true;
    }
    if (!any)
        return 0;
    return sd_event_add_io(arbiter->event, &session->lease_io, session->control_fd, EPOLLIN,
                           on_message, session);
}

void dv_leases_part(struct dv_arbiter *arbiter, struct dv_session *session)
{
    session->lease_io = sd_event_source_disable_unref(session->lease_io);
    for (uint32_t i = 0; i < session->device_count; i++) {
        struct dv_session_lease *lease = &session->leases[i];
        struct dv_lease_device *device = &arbiter->leases.devices[session->device_indices[i]];
        struct dv_lease_tenant *tenant = lease->tenant;
        if (!tenant)
            continue;
        if (lease->policy.holding)
            dv_policy_release(&device->policy, &lease->policy, dv_now());
        else
            dv_policy_cancel(&device->policy, &lease->policy, dv_now());
        lease->tenant = NULL;
        if (--tenant->sessions == 0) {
            dv_policy_tenant_remove(&device->policy, &tenant->policy);
            HASH_DEL(arbiter->leases.tenants, tenant);
            free(tenant);
        }
        dispatch(device);
    }
}

void dv_leases_fini(struct dv_arbiter *arbiter)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        arbiter->leases.devices[i].timer =
            sd_event_source_disable_unref(arbiter->leases.devices[i].timer);
}
