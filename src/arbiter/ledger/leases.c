/* Leases (see leases.h). */
#include "src/arbiter/ledger/leases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/restart/state.h"
#include "src/arbiter/ledger/tenants.h"
#include "src/base/text.h"
#include "src/wire/lease/message.h"

/* A recall unanswered for so long: is its holder stopped? */
#define STOPPED_AFTER_NS (200 * DV_NS_PER_MS)
/* A recall unanswered for this time: divvyd tells the operator. */
#define UNANSWERED_NS (10 * DV_NS_PER_S)

static void dispatch(struct dv_lease_device *device);

/* ---- sending ---- */

static void send_lease(struct dv_session_lease *lease, enum dv_lease_type type, uint32_t flags,
                       const struct dv_decision *decision)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = lease->index,
                                 .flags = flags,
                                 .serial = lease->serial,
                                 .slice_ns = decision ? decision->slice_ns : 0,
                                 .linger_ns = decision ? decision->linger_ns : 0};

    /* One who does not read its channel hurts only itself: it holds what it holds. */
    if (lease->session->control_fd >= 0)
        dv_channels_send(lease->session, &m, sizeof m);
}

struct dv_session_lease *dv_lease_of(struct dv_policy_session *policy)
{
    return (struct dv_session_lease *)((char *)policy - offsetof(struct dv_session_lease, policy));
}

/* ---- what a successor will know ---- */

static void note_account(struct dv_tenant_device *tenant)
{
    struct dv_policy_account account = dv_policy_account(&tenant->policy);
    struct dv_state_place *record = tenant->record;

    if (!record)
        return;
    record->used_ns = account.used_ns;
    record->slice_ns = account.slice_ns;
    record->fair_time = account.fair_time;
    record->request_time = account.request_time;
    record->limit_time = account.limit_time;
    record->credit_ns = account.credit_ns;
    record->period_ns = account.period_ns;
    record->in_demand = account.in_demand;
}

/* A hold begins: before the holder hears of it. */
static void note_hold(struct dv_session_lease *lease)
{
    struct dv_policy_hold hold = dv_policy_hold(&lease->policy);
    struct dv_state_lease *record = lease->record;

    note_account(lease->tenant);
    if (!record)
        return;
    record->granted_at = hold.granted_at;
    record->slice_ns = hold.slice_ns;
    record->turn_ns = hold.turn_ns;
    record->charged_ns = hold.charged_ns;
    record->fair_at_grant = hold.fair_at_grant;
    record->guaranteed = hold.guaranteed;
    record->grants = lease->grants;
    atomic_store_explicit(&record->serial, lease->serial, memory_order_release);
}

static void note_release(struct dv_session_lease *lease)
{
    if (lease->record) {
        atomic_store_explicit(&lease->record->serial, 0, memory_order_release);
        lease->record->used_ns = lease->used_ns;
        lease->record->compile_ns = lease->compile_ns;
    }
    note_account(lease->tenant);
}

static struct dv_state_device *device_record(const struct dv_lease_device *device)
{
    struct dv_state_header *header = device->arbiter->state.header;
    return header ? &header->devices[device->index] : NULL;
}

static void note_device(const struct dv_lease_device *device)
{
    struct dv_state_device *record = device_record(device);

    if (!record)
        return;
    record->grants = device->grants;
    record->fair_clock = device->policy.fair_clock;
}

static void note_policy(const struct dv_lease_device *device)
{
    struct dv_state_device *record = device_record(device);

    if (!record)
        return;
    record->slice_ns = device->policy.fixed_slice_ns;
    dv_text_copy(record->policy, sizeof record->policy,
                 device->set_by_operator ? device->policy.ops->name : "");
}

static void note_share(struct dv_tenant_device *tenant)
{
    if (tenant->record) {
        tenant->record->share = dv_state_share_of(&tenant->share);
        tenant->record->promised = tenant->users > 0;
    }
    note_account(tenant);
}

static void note_use(const struct dv_session_lease *lease)
{
    if (!lease->record)
        return;
    lease->record->in_use = lease->in_use;
    lease->record->promised = lease->promised;
}

/* ---- holds ---- */

struct dv_lease_device *dv_lease_device_of(const struct dv_session_lease *lease)
{
    const struct dv_session *session = lease->session;
    return &session->arbiter->leases.devices[session->device_indices[lease->index]];
}

/* The end of a hold: by the holder's word or by its end. */
static void release(struct dv_session_lease *lease, dv_ns now)
{
    struct dv_lease_device *device = dv_lease_device_of(lease);
    dv_ns from = lease->policy.granted_at;

    lease->used_ns += now - from;
    dv_usage_add(&lease->tenant->usage, now - (now - from) / device->policy.slots, now);
    dv_policy_release(&device->policy, &lease->policy, now);
    dv_beside_note(lease);
    dv_memory_given_back(lease);
    lease->overdue_at = 0;
    lease->changed_at = now;
    note_release(lease);
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
    int error = device->timer ? sd_event_source_set_time(device->timer, usec)
                              : sd_event_add_time(device->arbiter->event, &device->timer,
                                                  CLOCK_MONOTONIC, usec, 1, on_time, device);
    if (error >= 0)
        error = sd_event_source_set_enabled(device->timer, SD_EVENT_ONESHOT);
    if (error < 0) /* the next message looks again */
        dv_error("device %s: cannot set the timer of its leases: %s",
                 dv_leases_device_name(device->arbiter, device->index), strerror(-error));
}

/* Whether the holder should hurry to give back: somebody waits, or its own limit runs. */
static bool is_contended(const struct dv_policy *policy, const struct dv_policy_session *holder)
{
    return policy->waiting_tenants > 0 || holder->tenant->share.limit_ppm < DV_PPM;
}

static void sooner(dv_ns *when, dv_ns other)
{
    if (other && (!*when || other < *when))
        *when = other;
}

static bool is_stopped(const struct dv_session *session)
{
    return dv_process_is_stopped(session->worker_pid ? session->worker_pid : session->tenant_pid);
}

/* A holder whose process is stopped cannot answer, but it submits nothing either, and when it goes
 * on it finds its slice over: the device goes to the next. */
static void take_from_stopped(struct dv_lease_device *device, dv_ns now, dv_ns *again)
{
    struct dv_policy_session *holder, *next;

    for (holder = device->policy.holders.first; holder; holder = next) {
        struct dv_session_lease *lease = dv_lease_of(holder);
        next = holder->next;
        if (!lease->recalled_at)
            continue;
        if (now - lease->recalled_at < STOPPED_AFTER_NS) {
            sooner(again, lease->recalled_at + STOPPED_AFTER_NS);
        } else if (is_stopped(lease->session)) {
            dv_info("session %llu is stopped: its device goes to the next",
                    (unsigned long long)lease->session->id);
            release(lease, now);
            lease->serial = 0; /* what it says of that grant counts no longer */
        } else {
            lease->recalled_at = now; /* a long kernel: look again later */
            sooner(again, now + STOPPED_AFTER_NS);
        }
    }
}

static dv_ns shorter(dv_ns a, dv_ns b)
{
    if (!a || !b)
        return a + b;
    return a < b ? a : b;
}

static dv_ns memory_deadline_of(const struct dv_arbiter *arbiter, enum dv_class class)
{
    dv_ns given = arbiter->config.deadline_ns[class];

    return given == DV_DEADLINE_NONE ? 0 : given;
}

/* The programs of a user's own daemon are all that user's, who can end them. */
static dv_ns deadline_of(const struct dv_arbiter *arbiter, enum dv_class class)
{
    if (arbiter->config.deadline_ns[class] || arbiter->options.user)
        return memory_deadline_of(arbiter, class);
    return class == DV_CLASS_LATENCY ? DV_DEADLINE_USUAL_LATENCY_NS : DV_DEADLINE_USUAL_NS;
}

/* A tenant may choose a lower class than it was given, but no later deadline with it. */
dv_ns dv_lease_deadline(const struct dv_session_lease *lease)
{
    const struct dv_arbiter *arbiter = lease->session->arbiter;

    return shorter(deadline_of(arbiter, lease->tenant->tenant->terms.share.class),
                   deadline_of(arbiter, lease->policy.tenant->share.class));
}

dv_ns dv_lease_memory_deadline(const struct dv_session_lease *lease)
{
    const struct dv_arbiter *arbiter = lease->session->arbiter;

    return shorter(memory_deadline_of(arbiter, lease->tenant->tenant->terms.share.class),
                   memory_deadline_of(arbiter, lease->policy.tenant->share.class));
}

/* A turn that is longer for moving memory is not longer than those who wait let anybody keep a device. */
static void bound_holds(struct dv_lease_device *device)
{
    dv_ns most = DV_HOLD_MOVING_MAX_NS;

    for (int class = 0; class < DV_CLASS_COUNT; class++)
        if (dv_policy_class_waits(&device->policy, (enum dv_class)class))
            most = shorter(most, deadline_of(device->arbiter, (enum dv_class)class));
    device->policy.hold_max_ns = most;
}

dv_ns dv_leases_unanswered(const struct dv_lease_device *device)
{
    const struct dv_policy_session *holder = device->policy.holders.first;
    dv_ns now = dv_now(), longest = 0;

    for (; holder && device->policy.waiting_tenants; holder = holder->next)
        if (holder->recalled && now - holder->recalled_at > longest)
            longest = now - holder->recalled_at;
    return longest >= UNANSWERED_NS ? longest : 0;
}

/* Without a word in the log, a device that nobody gets would look like one that is busy. */
static void tell_of_unanswered(struct dv_lease_device *device, dv_ns now, dv_ns *again)
{
    for (struct dv_policy_session *holder = device->policy.holders.first; holder; holder = holder->next) {
        struct dv_session_lease *lease = dv_lease_of(holder);
        if (!holder->recalled || lease->told_of || !device->policy.waiting_tenants)
            continue;
        if (now - holder->recalled_at < UNANSWERED_NS) {
            sooner(again, holder->recalled_at + UNANSWERED_NS);
            continue;
        }
        const struct dv_session *session = lease->session;
        dv_ns deadline = dv_lease_deadline(lease);
        char then[96] = "nothing ends it, for its class has no deadline (deadlines in divvy.yaml)";
        lease->told_of = true;
        if (deadline)
            snprintf(then, sizeof then, "it loses it after %.1f s", (double)deadline / DV_NS_PER_S);
        dv_warning("session %llu of %s (process %d, %s) was asked to give %s back %.0f s ago and has not, "
                   "while others wait: %s",
                   (unsigned long long)session->id, session->command, (int)session->tenant_pid,
                   session->user, dv_leases_device_name(device->arbiter, device->index),
                   (double)(now - holder->recalled_at) / DV_NS_PER_S, then);
    }
}

/* Who does not give back what it was asked for is ended, if its class has a deadline: a kernel that
 * never ends, or a worker that does not obey. Time runs only while somebody waits. */
static void end_overdue(struct dv_lease_device *device, dv_ns now, dv_ns *again)
{
    struct dv_policy_session *holder, *next;

    for (holder = device->policy.holders.first; holder; holder = next) {
        struct dv_session_lease *lease = dv_lease_of(holder);
        dv_ns deadline = dv_lease_deadline(lease);
        next = holder->next;
        if (!device->policy.waiting_tenants || !holder->recalled || !deadline)
            lease->overdue_at = 0;
        else if (!lease->overdue_at)
            lease->overdue_at = now + deadline;
        else if (now >= lease->overdue_at) {
            dv_session_overdue(lease->session, deadline, "a device");
            lease->overdue_at = now + deadline;
            if (lease->session->api == DV_API_LEASE) { /* its process is not ours to end */
                release(lease, now);
                lease->serial = 0;
            }
        }
        sooner(again, lease->overdue_at);
    }
}

static void dispatch(struct dv_lease_device *device)
{
    dv_ns now = dv_now(), again = 0, recall_again = 0;

    bound_holds(device);
    if (device->policy.waiting_tenants)
        take_from_stopped(device, now, &again);
    end_overdue(device, now, &again);
    while (device->policy.free_slots > 0) {
        struct dv_decision decision = dv_policy_next(&device->policy, now);
        if (!decision.session) {
            sooner(&again, decision.ask_again_ns);
            break;
        }
        struct dv_session_lease *lease = dv_lease_of(decision.session);
        lease->serial = ++device->grants;
        lease->grants++;
        lease->changed_at = now;
        lease->recalled_at = 0;
        lease->told_of = false;
        uint32_t flags =
            is_contended(&device->policy, decision.session) ? DV_LEASE_CONTENDED : 0;
        if (device->tenants_present == 1)
            flags |= DV_LEASE_ALONE;
        note_device(device);
        note_hold(lease);
        send_lease(lease, DV_LEASE_GRANT, flags, &decision);
    }
    struct dv_policy_session *holder;
    while ((holder = dv_policy_recall(&device->policy, now, &recall_again))) {
        struct dv_session_lease *lease = dv_lease_of(holder);
        lease->recalls++;
        lease->recalled_at = now;
        sooner(&again, now + STOPPED_AFTER_NS);
        send_lease(lease, DV_LEASE_RECALL, 0, NULL);
    }
    end_overdue(device, now, &again);
    tell_of_unanswered(device, now, &again);
    sooner(&again, recall_again);
    ask_again_at(device, again);
    note_device(device);
}

/* Not from within a decision, which may be on its way. */
void dv_leases_look_again(struct dv_lease_device *device)
{
    ask_again_at(device, dv_now());
}

void dv_leases_moved(struct dv_session_lease *lease, dv_ns took_ns)
{
    struct dv_lease_device *device = dv_lease_device_of(lease);

    bound_holds(device);
    struct dv_decision decision =
        dv_policy_moved(&device->policy, &lease->policy, took_ns, dv_now());

    if (decision.session) {
        if (lease->record) {
            lease->record->slice_ns = lease->policy.slice_ns;
            lease->record->turn_ns = lease->policy.turn_ns;
        }
        send_lease(lease, DV_LEASE_EXTEND, 0, &decision);
    }
    dispatch(device);
}

/* ---- messages ---- */

static uint64_t plausible(uint64_t ns)
{
    return ns < DV_LEASE_ESTIMATE_MOST_NS ? ns : DV_LEASE_ESTIMATE_MOST_NS;
}

/* Whether a session may speak of a device. What it says before it has answered what it holds was said to
 * an earlier daemon. */
static bool may_speak(const struct dv_session *session, uint32_t index)
{
    return index < session->device_count && (session->leased_mask >> index & 1) &&
           !(session->unsynced_mask >> index & 1);
}

/* Why a device is not to be had, for those who ask: the program itself and `divvy explain`. */
static void note_turned_away(struct dv_session *session, const char *text)
{
    if (dv_log_within(&session->arbiter->refusals, DV_REFUSALS_PER_S))
        dv_warning("session %llu of %s (process %d, %s) cannot have a device: %s",
                   (unsigned long long)session->id, session->command, (int)session->tenant_pid,
                   session->user, text);
    free(session->turned_away);
    session->turned_away = strdup(text);
}

static void answer_late(struct dv_arbiter *arbiter, uint64_t id)
{
    struct dv_session *session = dv_session_find(arbiter, id);

    if (!session || !session->late_answer.type || session->control_fd < 0)
        return;
    dv_channels_send(session, &session->late_answer, sizeof session->late_answer);
    session->late_answer.type = 0;
}

/* A program comes to use a device, and may still do something else if it may not. */
static void take_join(struct dv_session *session, const struct dv_lease_message *asked)
{
    char text[DV_MAX_MESSAGE_TEXT];
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = DV_LEASE_JOINED,
                                 .device = asked->device,
                                 .serial = asked->serial};

    if (dv_leases_use(session, asked->device, true, text, sizeof text) < 0) {
        m.type = DV_LEASE_TURNED_AWAY;
        note_turned_away(session, text);
        if (!session->late_answer.type && dv_session_tell(session, text, answer_late)) {
            session->late_answer = m;
            return;
        }
    }
    dv_channels_send(session, &m, sizeof m);
}

/* The lease of a session that speaks of a device without having asked whether it may use it: what it
 * wants it gets, with its tenant's request if that can be kept. works: it has work for the device, and not
 * only memory. NULL: there is no memory for it. */
static struct dv_session_lease *lease_in_use(struct dv_session *session, uint32_t index, bool works)
{
    struct dv_session_lease *lease = session->leases[index];
    char text[DV_MAX_MESSAGE_TEXT];

    if (lease && lease->in_use && (lease->promised || lease->unpromised || !works))
        return lease;
    if (works && dv_leases_use(session, index, true, text, sizeof text) < 0) {
        if (dv_leases_use(session, index, false, text, sizeof text) < 0)
            return NULL;
        session->leases[index]->unpromised = true;
    } else if (!works && dv_leases_use(session, index, false, text, sizeof text) < 0) {
        return NULL;
    }
    return session->leases[index];
}

static void take_message(struct dv_session *session, const struct dv_lease_message *m)
{
    if (m->version != DV_LEASE_VERSION || !may_speak(session, m->device))
        return;
    if (m->type == DV_LEASE_JOIN) {
        take_join(session, m);
        return;
    }
    struct dv_session_lease *lease = m->type == DV_LEASE_WANT
                                         ? lease_in_use(session, m->device, true)
                                         : session->leases[m->device];
    if (!lease)
        return;
    struct dv_lease_device *device = dv_lease_device_of(lease);
    dv_ns now = dv_now();

    lease->policy.burst.kernel_ns = plausible(m->kernel_ns);
    lease->policy.burst.p90_ns = plausible(m->p90_ns);
    lease->policy.burst.last_ns = plausible(m->last_ns);
    switch (m->type) {
    case DV_LEASE_WANT:
        if (!lease->policy.waiting && !lease->policy.holding)
            lease->changed_at = now;
        dv_policy_wait(&device->policy, &lease->policy, now);
        note_account(lease->tenant);
        break;
    case DV_LEASE_CANCEL:
        dv_policy_cancel(&device->policy, &lease->policy, now);
        break;
    case DV_LEASE_RELEASE:
        if (!lease->policy.holding || m->serial != lease->serial) {
            /* of a grant that was taken away: that it wants another still counts */
            if (m->flags & DV_LEASE_AGAIN)
                dv_policy_wait(&device->policy, &lease->policy, now);
            break;
        }
        lease->compile_ns += plausible(m->compile_ns);
        lease->policy.busy_ns = m->flags & DV_LEASE_AGAIN ? plausible(m->busy_ns) : 0;
        release(lease, now);
        if (m->flags & DV_LEASE_AGAIN)
            dv_policy_wait(&device->policy, &lease->policy, now);
        break;
    default:
        return;
    }
    uint64_t grants = device->grants;
    dispatch(device);
    if (device->grants != grants)
        dv_durations_add(&device->decisions, dv_now() - now);
}

static void take_memory_message(struct dv_session *session, const struct dv_memory_message *m)
{
    if (m->version != DV_MEMORY_VERSION || !may_speak(session, m->device))
        return;
    struct dv_session_lease *lease = lease_in_use(session, m->device, false);
    if (lease)
        dv_memory_take(lease, m);
}

/* Its own word on what it holds and waits for, as far as the state file agrees. */
static void take_state(struct dv_session *session, const struct dv_sync_message *m)
{
    if (m->version != DV_SYNC_VERSION || m->type != DV_SYNC_STATE ||
        m->device >= session->device_count || !(session->unsynced_mask >> m->device & 1) ||
        m->id != session->sync_id)
        return; /* an answer to an earlier daemon, or none of ours */
    session->unsynced_mask &= ~(UINT64_C(1) << m->device);
    struct dv_session_lease *lease = session->leases[m->device];
    bool works = m->flags & (DV_SYNC_HOLDS | DV_SYNC_WAITS);
    if (works || m->reserved || m->placed || m->asked || m->place_bytes)
        lease = lease_in_use(session, m->device, works);
    if (!lease)
        return; /* it does not use the device */
    struct dv_lease_device *device = dv_lease_device_of(lease);
    dv_ns now = dv_now();

    bool says_so = m->flags & DV_SYNC_HOLDS;
    bool holds = says_so && lease->policy.holding && m->serial == lease->serial;
    if (lease->policy.holding && !holds)
        release(lease, now); /* it never heard of that grant, or has given it back */
    if (holds && !(m->flags & DV_SYNC_BRINGS)) {
        struct dv_decision rest = dv_policy_rest(&lease->policy, now);
        send_lease(lease, DV_LEASE_EXTEND, 0, &rest);
    }
    if (says_so && !holds) { /* of a grant that was taken away meanwhile */
        lease->serial = m->serial;
        send_lease(lease, DV_LEASE_RECALL, 0, NULL);
        lease->serial = 0;
    }
    if (m->flags & DV_SYNC_WAITS)
        dv_policy_wait(&device->policy, &lease->policy, now);
    note_account(lease->tenant);
    dv_memory_adopt(lease, m);
    dispatch(device);
}

/* Asks a session of an earlier daemon what it holds; if it does not read just now, as soon as it does. */
static void ask_state(struct dv_session *session)
{
    struct dv_sync_message m = {
        .magic = DV_SYNC_MAGIC, .version = DV_SYNC_VERSION, .type = DV_SYNC_ASK, .id = session->sync_id};

    bool later = session->unsynced_mask &&
                 dv_channels_send(session, &m, sizeof m) == -EAGAIN;
    if (later)
        dv_warning("session %llu does not read what divvyd says: its work waits",
                   (unsigned long long)session->id);
    dv_channels_watch(session, later ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

unsigned dv_leases_hear(struct dv_session *session, uint32_t events, unsigned most)
{
    unsigned count = 0;

    if (events & EPOLLOUT)
        ask_state(session);
    for (; count < most; count++) {
        union dv_channel_message m = {0};
        ssize_t bytes = dv_channels_receive(session, &m, sizeof m);
        switch (dv_channel_kind(&m, bytes)) {
        case DV_LEASE_MAGIC:
            take_message(session, &m.lease);
            break;
        case DV_MEMORY_MAGIC:
            take_memory_message(session, &m.memory);
            break;
        case DV_SYNC_MAGIC:
            take_state(session, &m.sync);
            break;
        default:
            break;
        }
        if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
            dv_channels_leave(session);
            dv_session_hung_up(session);
            break;
        }
        if (bytes <= 0)
            break;
    }
    return count;
}

/* ---- devices ---- */

const char *dv_leases_device_name(const struct dv_arbiter *arbiter, uint32_t device)
{
    const struct dv_devices *devices = &arbiter->devices;
    if (device >= devices->count)
        return "a device that is gone";
    const struct dv_device_rule *rule = dv_devices_rule(devices, device, &arbiter->config);
    return rule && rule->name ? rule->name : devices->reports[device].name;
}

static void set_moving_terms(struct dv_lease_device *device, const struct dv_device_rule *rule)
{
    device->policy.moving_part_ppm =
        rule && rule->swap_part_ppm ? rule->swap_part_ppm : DV_MOVING_PART_PPM;
    device->policy.turn_max_ns = rule && rule->turn_max_ns ? rule->turn_max_ns : DV_TURN_MAX_NS;
}

/* Once. */
static void start_device(struct dv_arbiter *arbiter, uint32_t index)
{
    struct dv_lease_device *device = &arbiter->leases.devices[index];
    const struct dv_device_rule *rule = dv_devices_rule(&arbiter->devices, index, &arbiter->config);
    int choice = dv_devices_policy(&arbiter->devices, index, &arbiter->config);

    if (device->started)
        return;
    if (choice == DV_POLICY_NONE) /* now; there is a session that began before */
        choice = DV_POLICY_ELASTIC;
    device->arbiter = arbiter;
    device->index = index;
    device->started = true;
    dv_policy_init(&device->policy, dv_policy_by_name(dv_config_policy_word(choice)),
                   rule && rule->slots ? (uint32_t)*rule->slots : 1, dv_now());
    device->policy.fixed_slice_ns = rule ? rule->slice_ns : 0;
    device->policy.may_run_beside = dv_beside_fits;
    set_moving_terms(device, rule);
}

bool dv_leases_start_device(struct dv_arbiter *arbiter, uint32_t index)
{
    const struct dv_device_rule *rule = dv_devices_rule(&arbiter->devices, index, &arbiter->config);

    if (dv_devices_policy(&arbiter->devices, index, &arbiter->config) == DV_POLICY_NONE ||
        (rule && rule->hidden))
        return false;
    start_device(arbiter, index);
    return true;
}

void dv_leases_set_policy(struct dv_arbiter *arbiter, uint32_t index,
                          const struct dv_policy_ops *ops, dv_ns slice_ns)
{
    struct dv_lease_device *device = &arbiter->leases.devices[index];

    device->policy.fixed_slice_ns = slice_ns;
    if (device->policy.ops != ops)
        dv_policy_switch(&device->policy, ops, dv_now());
    dispatch(device);
    note_policy(device);
}

void dv_leases_apply_config(struct dv_arbiter *arbiter)
{
    for (uint32_t i = 0; i < arbiter->devices.count && i < DV_MAX_DEVICES; i++) {
        const struct dv_device_rule *rule =
            dv_devices_rule(&arbiter->devices, i, &arbiter->config);
        int choice = dv_devices_policy(&arbiter->devices, i, &arbiter->config);
        set_moving_terms(&arbiter->leases.devices[i], rule);
        arbiter->leases.devices[i].set_by_operator = false;
        if (arbiter->leases.devices[i].started && choice != DV_POLICY_NONE)
            dv_leases_set_policy(arbiter, i, dv_policy_by_name(dv_config_policy_word(choice)),
                                 rule ? rule->slice_ns : 0);
    }
}

/* ---- tenants on a device ---- */

void dv_leases_add_tenant(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                          uint32_t device, const struct dv_share *share)
{
    dv_policy_tenant_add(&arbiter->leases.devices[device].policy, &tenant->policy, share, dv_now());
    arbiter->leases.devices[device].promised_ppm += share->request_ppm;
    note_share(tenant);
}

void dv_leases_set_share(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                         uint32_t device, const struct dv_share *share)
{
    struct dv_lease_device *there = &arbiter->leases.devices[device];

    there->promised_ppm += (uint64_t)share->request_ppm - tenant->policy.share.request_ppm;
    dv_policy_tenant_set(&there->policy, &tenant->policy, share, dv_now());
    note_share(tenant);
    dispatch(there);
}

void dv_leases_remove_tenant(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                             uint32_t device)
{
    struct dv_lease_device *there = &arbiter->leases.devices[device];

    there->promised_ppm -= tenant->policy.share.request_ppm;
    dv_policy_tenant_remove(&there->policy, &tenant->policy);
    dispatch(there); /* others may be entitled to more now */
}

uint32_t dv_leases_share_ppm(const struct dv_arbiter *arbiter,
                             const struct dv_tenant_device *tenant, uint32_t index,
                             unsigned window_s)
{
    const struct dv_policy *policy = &arbiter->leases.devices[index].policy;
    dv_ns now = dv_now();

    if (tenant->policy.holding_count == 0)
        return dv_usage_ppm(&tenant->usage, window_s, now);
    struct dv_usage usage = tenant->usage;
    for (const struct dv_policy_session *s = policy->holders.first; s; s = s->next)
        if (s->tenant == &tenant->policy)
            dv_usage_add(&usage, now - (now - s->granted_at) / policy->slots, now);
    return dv_usage_ppm(&usage, window_s, now);
}

/* ---- sessions ---- */

static struct dv_session_lease *new_lease(struct dv_session *session, uint32_t index)
{
    struct dv_session_lease *lease = calloc(1, sizeof *lease);

    if (!lease)
        return NULL;
    lease->session = session;
    lease->index = index;
    lease->changed_at = dv_now();
    return lease;
}

/* Its tenant has a place on the device for it. */
static void join(struct dv_session_lease *lease, struct dv_tenant_device *place)
{
    lease->tenant = place;
    lease->session->leases[lease->index] = lease;
    dv_policy_session_init(&lease->policy, &place->policy);
    dv_memory_join(lease);
}

static void keep(struct dv_session *session, struct dv_session_lease *lease)
{
    struct dv_state *state = &session->arbiter->state;

    lease->record = session->record ? dv_state_add(&state->leases) : NULL;
    if (!lease->record)
        return;
    lease->record->session = dv_state_index(&state->sessions, session->record);
    lease->record->index = lease->index;
    note_use(lease);
    dv_state_commit(lease->record);
}

/* The session uses the device no longer, or another instead. */
static void part(struct dv_session_lease *lease)
{
    struct dv_session *session = lease->session;
    struct dv_lease_device *device = dv_lease_device_of(lease);
    bool involved = lease->policy.holding || lease->policy.waiting;

    dv_memory_part(lease);
    if (lease->policy.holding)
        release(lease, dv_now());
    else
        dv_policy_cancel(&device->policy, &lease->policy, dv_now());
    dv_state_drop(&session->arbiter->state.leases, lease->record);
    session->leases[lease->index] = NULL;
    dv_tenants_go(session->arbiter, lease->tenant, device->index, lease->promised);
    free(lease);
    if (involved)
        dispatch(device);
}

/* Puts a session on a device that it is not on. */
static int come(struct dv_session *session, uint32_t index, bool promised, char *text, size_t bytes)
{
    struct dv_arbiter *arbiter = session->arbiter;
    uint32_t device = session->device_indices[index];
    struct dv_session_lease *lease = new_lease(session, index);

    if (!lease) {
        snprintf(text, bytes, "divvyd has no memory for another session on a device");
        return -ENOMEM;
    }
    start_device(arbiter, device);
    struct dv_tenant_device *place =
        dv_tenants_come(arbiter, session->tenant, device, promised, text, bytes);
    if (!place) {
        free(lease);
        return -ENOSPC;
    }
    lease->promised = promised;
    join(lease, place);
    keep(session, lease);
    return 0;
}

int dv_leases_admit(struct dv_session *session, uint32_t index, char *text, size_t bytes)
{
    return come(session, index, true, text, bytes);
}

/* The device that a session was admitted on and has not used is free again. */
static void leave_unused(struct dv_session *session)
{
    for (uint32_t i = 0; i < session->device_count; i++)
        if (session->leases[i] && !session->leases[i]->in_use)
            part(session->leases[i]);
}

int dv_leases_use(struct dv_session *session, uint32_t index, bool promised, char *text,
                  size_t bytes)
{
    struct dv_session_lease *lease = session->leases[index];
    int status = 0;

    if (!lease)
        status = come(session, index, promised, text, bytes);
    else if (promised && !lease->promised)
        status = dv_tenants_promise(session->arbiter, lease->tenant, session->device_indices[index],
                                    text, bytes);
    if (status < 0)
        return status;
    lease = session->leases[index];
    lease->in_use = true;
    lease->promised |= promised;
    note_use(lease);
    if (promised)
        leave_unused(session);
    return 0;
}

int dv_leases_join(struct dv_arbiter *arbiter, struct dv_session *session)
{
    for (uint32_t i = 0; i < session->device_count; i++)
        if (session->leases[i])
            keep(session, session->leases[i]);
    return session->leased_mask ? dv_channels_enter(session) : 0;
}

/* ---- after a restart ---- */

bool dv_leases_adopt_device(struct dv_arbiter *arbiter, uint32_t index)
{
    struct dv_lease_device *device = &arbiter->leases.devices[index];
    const struct dv_state_device *record = &arbiter->state.header->devices[index];
    char name[DV_STATE_POLICY_NAME];

    if (device->started)
        return true;
    if (!dv_leases_start_device(arbiter, index))
        return false;
    device->grants = record->grants;
    dv_text_copy(name, sizeof name, record->policy);
    const struct dv_policy_ops *ops = dv_policy_by_name(name);
    if (ops) { /* what an operator has set lasts until it is set again or the configuration loaded */
        device->set_by_operator = true;
        if (ops != device->policy.ops)
            dv_policy_switch(&device->policy, ops, dv_now());
        device->policy.fixed_slice_ns =
            record->slice_ns <= DV_SLICE_FIXED_MAX_NS ? record->slice_ns : 0;
    }
    device->policy.fair_clock = record->fair_clock;
    return true;
}

void dv_leases_adopt_tenant(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                            uint32_t index, struct dv_state_place *record)
{
    struct dv_policy_account account = {.used_ns = record->used_ns,
                                        .slice_ns = record->slice_ns,
                                        .fair_time = record->fair_time,
                                        .request_time = record->request_time,
                                        .limit_time = record->limit_time,
                                        .credit_ns = record->credit_ns,
                                        .period_ns = record->period_ns,
                                        .in_demand = record->in_demand};

    dv_policy_adopt_tenant(&arbiter->leases.devices[index].policy, &tenant->policy, &account,
                           dv_now());
    tenant->record = record;
}

static void adopt_hold(struct dv_session_lease *lease)
{
    struct dv_lease_device *device = dv_lease_device_of(lease);
    const struct dv_state_lease *record = lease->record;
    struct dv_policy_hold hold = {.granted_at = record->granted_at,
                                  .slice_ns = record->slice_ns,
                                  .turn_ns = record->turn_ns,
                                  .charged_ns = record->charged_ns,
                                  .fair_at_grant = record->fair_at_grant,
                                  .guaranteed = record->guaranteed == 1};

    lease->serial = record->serial;
    dv_policy_adopt_hold(&device->policy, &lease->policy, &hold, dv_now());
    lease->changed_at = lease->policy.granted_at;
}

/* A lease that the state file knows, on a place that it knows too. Returns 0 or a negative errno. */
static int rejoin(struct dv_session *session, uint32_t index, struct dv_state_lease *record)
{
    struct dv_arbiter *arbiter = session->arbiter;
    uint32_t device = session->device_indices[index];
    struct dv_tenant_device *place = session->tenant->devices[device];
    struct dv_session_lease *lease = place ? new_lease(session, index) : NULL;

    if (!lease)
        return place ? -ENOMEM : 0;
    lease->record = record;
    lease->in_use = record->in_use == 1;
    lease->promised = record->promised == 1;
    dv_tenants_come_again(arbiter, place, device, lease->promised);
    join(lease, place);
    lease->used_ns = record->used_ns;
    lease->compile_ns = record->compile_ns;
    lease->grants = record->grants;
    dv_memory_readopt(lease);
    if (record->serial)
        adopt_hold(lease);
    return 0;
}

int dv_leases_rejoin(struct dv_arbiter *arbiter, struct dv_session *session,
                     struct dv_state_lease *const records[DV_MAX_DEVICES])
{
    int error = 0;

    for (uint32_t i = 0; i < session->device_count && error == 0; i++)
        if (records[i] && (session->leased_mask >> i & 1))
            error = rejoin(session, i, records[i]);
    if (error < 0 || !session->leased_mask)
        return error;
    session->sync_id = dv_now();
    session->unsynced_mask = session->leased_mask;
    error = dv_channels_enter(session);
    if (error == 0)
        ask_state(session);
    return error;
}

void dv_leases_part(struct dv_arbiter *arbiter, struct dv_session *session)
{
    (void)arbiter;
    dv_channels_leave(session);
    for (uint32_t i = 0; session->leases && i < session->device_count; i++)
        if (session->leases[i])
            part(session->leases[i]);
}

void dv_leases_fini(struct dv_arbiter *arbiter)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        arbiter->leases.devices[i].timer =
            sd_event_source_disable_unref(arbiter->leases.devices[i].timer);
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        dv_memory_fini(&arbiter->leases.devices[i].memory);
        dv_entitled_fini(&arbiter->leases.devices[i].entitled);
    }
}
