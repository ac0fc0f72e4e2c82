/* Metrics (see metrics.h). Labels are device and tenant only: numbers of sessions or processes would make a new series
 * for each program that starts. */
#include "src/arbiter/control/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/arbiter/control/private.h"

/* ---- values ---- */

/* All are whole numbers, which are exact and quickly written. A family's unit says what one of them stands for. */
enum unit {
    COUNT,
    NANOSECONDS, /* written as seconds */
    MILLIONTHS,  /* written as a ratio */
};

/* What a sample is about: a device, and an account of tenants on it, or nothing. */
struct subject {
    const struct dvd_control *control;
    const struct dvd_device *device;
    const struct dvd_account *account;
    struct dvd_tenant_device *tenant; /* of the account, while its tenants are added up */
};

static uint64_t build_info(const struct subject *subject)
{
    (void)subject;
    return 1;
}

static uint64_t sessions(const struct subject *subject)
{
    return HASH_COUNT(subject->control->sessions->all);
}

static uint64_t ended(const struct subject *subject)
{
    return subject->control->sessions->ends.of_kind[DVD_END_ORDERLY];
}

static uint64_t crashed(const struct subject *subject)
{
    return subject->control->sessions->ends.of_kind[DVD_END_CRASHED];
}

static uint64_t terminated(const struct subject *subject)
{
    return subject->control->sessions->ends.of_kind[DVD_END_TERMINATED];
}

static uint64_t refused(const struct subject *subject)
{
    return subject->control->sessions->ends.of_kind[DVD_END_REFUSED];
}

static uint64_t device_busy(const struct subject *subject)
{
    return dvd_device_figures(subject->device).held_ns / subject->device->policy.slots;
}

static uint64_t device_grants(const struct subject *subject)
{
    return subject->device->grants;
}

static uint64_t device_sessions(const struct subject *subject)
{
    return subject->device->sessions;
}

static uint64_t device_waiting(const struct subject *subject)
{
    return subject->device->policy.waiting_sessions;
}

static uint64_t device_promised(const struct subject *subject)
{
    return subject->device->promised_ppm;
}

static uint64_t device_memory(const struct subject *subject)
{
    return subject->device->terms.capacity_bytes;
}

static uint64_t device_memory_used(const struct subject *subject)
{
    return dvd_device_figures(subject->device).used_bytes;
}

static uint64_t device_unanswered(const struct subject *subject)
{
    return dvd_device_unanswered(subject->device);
}

static const struct dvd_account_device *counters(const struct subject *subject)
{
    return &subject->account->devices[subject->device->id.number];
}

/* Holds that are over, and those under way. */
static uint64_t tenant_used(const struct subject *subject)
{
    dv_ns now = dvd_ledger_now(subject->device->ledger), used = counters(subject)->used_ns;

    for (struct dv_policy_session *s = subject->device->policy.holders.first; s; s = s->next)
        if (dvd_lease_of(s)->tenant->tenant->account == subject->account)
            used += now - s->granted_at;
    return used / subject->device->policy.slots;
}

static uint64_t tenant_waited(const struct subject *subject)
{
    return counters(subject)->waited_ns;
}

static uint64_t tenant_moving(const struct subject *subject)
{
    return counters(subject)->moving_ns;
}

static uint64_t tenant_grants(const struct subject *subject)
{
    return counters(subject)->grants;
}

/* Of one tenant of the account; the sample is the sum over those with a session on the device. */

static uint64_t tenant_sessions(const struct subject *subject)
{
    return subject->tenant->sessions;
}

static uint64_t tenant_waiting(const struct subject *subject)
{
    return subject->tenant->policy.waiting_count;
}

static uint64_t tenant_request(const struct subject *subject)
{
    return subject->tenant->policy.share.request_ppm;
}

static uint64_t tenant_limit(const struct subject *subject)
{
    return subject->tenant->policy.share.limit_ppm;
}

static uint64_t tenant_entitled(const struct subject *subject)
{
    return dvd_tenant_entitled_ppm(subject->tenant);
}

static uint64_t tenant_reserved(const struct subject *subject)
{
    return subject->tenant->memory.reserved;
}

static uint64_t tenant_placed(const struct subject *subject)
{
    return subject->tenant->memory.placed;
}

static uint64_t tenant_quota(const struct subject *subject)
{
    return subject->tenant->memory.quota;
}

/* ---- families ---- */

enum scope {
    OF_DAEMON,
    OF_DEVICE,
    OF_TENANT,         /* on a device: all that have ever used it */
    OF_PRESENT_TENANT, /* only those with a session on the device */
};

static const struct family {
    const char *name, *help;
    bool is_counter;
    enum scope scope;
    enum unit unit;
    uint64_t (*value)(const struct subject *subject);
} families[] = {
    {"divvy_build_info", "The version of divvyd.", false, OF_DAEMON, COUNT, build_info},
    {"divvy_sessions", "Sessions now.", false, OF_DAEMON, COUNT, sessions},
    {"divvy_sessions_ended_total", "Sessions that ended with their program.", true, OF_DAEMON, COUNT, ended},
    {"divvy_sessions_crashed_total", "Sessions whose worker ended under their program.", true, OF_DAEMON, COUNT,
     crashed},
    {"divvy_sessions_terminated_total", "Sessions that divvyd terminated.", true, OF_DAEMON, COUNT, terminated},
    {"divvy_sessions_refused_total", "Sessions that were refused.", true, OF_DAEMON, COUNT, refused},
    {"divvy_device_busy_seconds_total", "Time in which sessions held the device.", true, OF_DEVICE, NANOSECONDS,
     device_busy},
    {"divvy_device_grants_total", "Grants of the device.", true, OF_DEVICE, COUNT, device_grants},
    {"divvy_device_sessions", "Sessions that use the device.", false, OF_DEVICE, COUNT, device_sessions},
    {"divvy_device_waiting_sessions", "Sessions that wait for the device.", false, OF_DEVICE, COUNT, device_waiting},
    {"divvy_device_promised_ratio", "The sum of all requests in force.", false, OF_DEVICE, MILLIONTHS, device_promised},
    {"divvy_device_memory_bytes", "Memory of the device.", false, OF_DEVICE, COUNT, device_memory},
    {"divvy_device_memory_used_bytes", "Memory of the device in use.", false, OF_DEVICE, COUNT, device_memory_used},
    {"divvy_device_unanswered_seconds", "How long a holder has not answered a recall; 0: not for long.", false,
     OF_DEVICE, NANOSECONDS, device_unanswered},
    {"divvy_tenant_device_seconds_total", "Time in which the tenant held the device.", true, OF_TENANT, NANOSECONDS,
     tenant_used},
    {"divvy_tenant_wait_seconds_total", "Time that sessions of the tenant waited for the device.", true, OF_TENANT,
     NANOSECONDS, tenant_waited},
    {"divvy_tenant_moving_seconds_total", "Time spent on bringing the tenant's memory to the device.", true, OF_TENANT,
     NANOSECONDS, tenant_moving},
    {"divvy_tenant_grants_total", "Grants of the device to the tenant.", true, OF_TENANT, COUNT, tenant_grants},
    {"divvy_tenant_sessions", "Sessions of the tenant that use the device.", false, OF_PRESENT_TENANT, COUNT,
     tenant_sessions},
    {"divvy_tenant_waiting_sessions", "Sessions of the tenant that wait for the device.", false, OF_PRESENT_TENANT,
     COUNT, tenant_waiting},
    {"divvy_tenant_request_ratio", "The tenant's guaranteed share.", false, OF_PRESENT_TENANT, MILLIONTHS,
     tenant_request},
    {"divvy_tenant_limit_ratio", "The tenant's maximum share.", false, OF_PRESENT_TENANT, MILLIONTHS, tenant_limit},
    {"divvy_tenant_entitled_ratio", "The share that the tenant has if it always has work.", false, OF_PRESENT_TENANT,
     MILLIONTHS, tenant_entitled},
    {"divvy_tenant_memory_bytes", "Memory that the tenant has allocated.", false, OF_PRESENT_TENANT, COUNT,
     tenant_reserved},
    {"divvy_tenant_memory_resident_bytes", "Memory of the tenant that is on the device.", false, OF_PRESENT_TENANT,
     COUNT, tenant_placed},
    {"divvy_tenant_memory_quota_bytes", "Memory that the tenant may allocate.", false, OF_PRESENT_TENANT, COUNT,
     tenant_quota},
};
#define FAMILY_COUNT (sizeof families / sizeof families[0])

/* ---- text ---- */

/* A value of a label, with quotes and backslashes escaped. Names are clean otherwise. */
static void escape(char *field, size_t bytes, const char *text)
{
    size_t used = 0;

    for (; *text && used + 2 < bytes; text++) {
        if (*text == '"' || *text == '\\')
            field[used++] = '\\';
        field[used++] = *text;
    }
    field[used] = '\0';
}

static void write_value(char *text, size_t bytes, uint64_t value, enum unit unit)
{
    if (unit == NANOSECONDS)
        snprintf(text, bytes, " %" PRIu64 ".%09" PRIu64 "\n", value / DV_NS_PER_S, value % DV_NS_PER_S);
    else if (unit == MILLIONTHS)
        snprintf(text, bytes, " %" PRIu64 ".%06" PRIu64 "\n", value / DV_PPM, value % DV_PPM);
    else
        snprintf(text, bytes, " %" PRIu64 "\n", value);
}

static void write_sample(const struct family *family, const struct subject *subject, uint64_t value, char *text,
                         size_t bytes)
{
    char name[2 * DV_MAX_TENANT_NAME];
    size_t used = (size_t)snprintf(text, bytes, "%s", family->name);

    if (subject->account) {
        escape(name, sizeof name, subject->account->name);
        used += (size_t)snprintf(text + used, bytes - used, "{device=\"%u\",tenant=\"%s\"}",
                                 (unsigned)subject->device->id.number, name);
    } else if (subject->device) {
        used += (size_t)snprintf(text + used, bytes - used, "{device=\"%u\"}", (unsigned)subject->device->id.number);
    } else if (family->value == build_info) {
        used += (size_t)snprintf(text + used, bytes - used, "{version=\"%s\"}", DIVVY_VERSION);
    }
    write_value(text + used, bytes - used, value, family->unit);
}

/* Where each program is a tenant, an account can have thousands of them: they are looked at in several steps. */
#define TENANTS_AT_ONCE 16

/* Returns false while there are more of them. */
static bool add_up(const struct family *family, struct subject *subject, struct dvd_metrics_place *place)
{
    if (!place->in_account)
        place->tenant = subject->account->tenants;
    place->in_account = true;
    for (int i = 0; place->tenant && i < TENANTS_AT_ONCE; i++) {
        subject->tenant = place->tenant->devices[subject->device->id.number];
        place->tenant = place->tenant->next_of_account;
        if (!subject->tenant || subject->tenant->sessions == 0)
            continue; /* it is gone, and remembered for a while */
        place->has_present = true;
        if (__builtin_add_overflow(place->sum, family->value(subject), &place->sum))
            place->sum = UINT64_MAX; /* quotas without a limit */
    }
    return !place->tenant;
}

/* Writes the sample of an account on a device, if it has one. Returns false when that takes another step. */
static bool write_account(const struct family *family, struct subject *subject, struct dvd_metrics_place *place,
                          char *text, size_t bytes)
{
    if (!subject->account->name[0] || !subject->account->devices[subject->device->id.number].is_used)
        return true;
    if (family->scope == OF_TENANT)
        write_sample(family, subject, family->value(subject), text, bytes);
    else if (!add_up(family, subject, place))
        return false;
    else if (place->has_present)
        write_sample(family, subject, place->sum, text, bytes);
    return true;
}

/* Moves on to the next account and device. Returns false when there is none. */
static bool advance(const struct dvd_control *control, const struct family *family, struct dvd_metrics_place *place)
{
    place->tenant = NULL;
    place->in_account = place->has_present = false;
    place->sum = 0;
    if (family->scope >= OF_TENANT && ++place->account <= DV_MAX_ACCOUNTS)
        return true;
    place->account = 0;
    return family->scope != OF_DAEMON && ++place->device < control->devices->count;
}

static void leave_family(struct dvd_metrics_place *place)
{
    *place = (struct dvd_metrics_place){.family = place->family + 1};
}

bool dvd_metrics_next(const struct dvd_control *control, struct dvd_metrics_place *place, char *text, size_t bytes)
{
    const struct family *family = &families[place->family];
    const struct dvd_ledger *ledger = control->ledger;
    struct subject subject = {.control = control};

    text[0] = '\0';
    if (place->family == FAMILY_COUNT)
        return false;
    if (!place->has_head) {
        snprintf(text, bytes, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
                 family->is_counter ? "counter" : "gauge");
        place->has_head = true;
        return true;
    }
    if (family->scope != OF_DAEMON && place->device >= control->devices->count) {
        leave_family(place);
        return true;
    }
    if (family->scope != OF_DAEMON)
        subject.device = &ledger->devices[place->device];
    if (family->scope >= OF_TENANT && ledger->accounts)
        subject.account = &ledger->accounts->all[place->account];
    bool is_leased = !subject.device || subject.device->started;
    if (is_leased && family->scope < OF_TENANT)
        write_sample(family, &subject, family->value(&subject), text, bytes);
    else if (is_leased && subject.account && !write_account(family, &subject, place, text, bytes))
        return true;
    if (!advance(control, family, place))
        leave_family(place);
    return true;
}

void dvd_metrics_tenant_goes(struct dvd_metrics_place *place, const struct dvd_tenant *tenant)
{
    if (place->tenant == tenant)
        place->tenant = tenant->next_of_account;
}
