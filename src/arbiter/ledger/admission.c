/* Admission: whether a tenant may have a share, and whether its requests fit beside those of other tenants. */
#include <errno.h>
#include <stdio.h>

#include "src/arbiter/ledger/private.h"
#include "src/base/text.h"

/* How many tenants a refusal searches for requests to name. It must not cost more than an admission. */
#define NAMED_MAX 1024

/* ---- shares ---- */

/* Whether the terms of a tenant allow it to raise its share this far by itself. */
static int check_terms(const struct dvd_tenant *tenant, const struct dv_share *old, const struct dv_share *share,
                       char *text, size_t bytes)
{
    const struct dvd_tenant_terms *terms = &tenant->terms;

    if (share->request_ppm > old->request_ppm && share->request_ppm > terms->may_request_ppm)
        snprintf(text, bytes,
                 "tenant %s may request at most %g%% of a device, not %g%%; the operator sets that with may-request "
                 "in divvy.yaml",
                 tenant->name, PERCENT(terms->may_request_ppm), PERCENT(share->request_ppm));
    else if (share->limit_ppm > old->limit_ppm && share->limit_ppm > terms->share.limit_ppm)
        snprintf(text, bytes,
                 "tenant %s is limited to %g%% of a device and cannot have a limit of %g%%; the operator sets that "
                 "with limit in divvy.yaml",
                 tenant->name, PERCENT(terms->share.limit_ppm), PERCENT(share->limit_ppm));
    else if (share->weight > old->weight && share->weight > terms->may_weight)
        snprintf(text, bytes,
                 "tenant %s may have a weight of at most %u, not %u; the operator sets that with may-weight in "
                 "divvy.yaml",
                 tenant->name, terms->may_weight, share->weight);
    else if (share->class < old->class && share->class < terms->may_class)
        snprintf(text, bytes,
                 "tenant %s may not run in class %s, at best in %s; the operator sets that with may-class in "
                 "divvy.yaml",
                 tenant->name, dv_class_word(share->class), dv_class_word(terms->may_class));
    else
        return 0;
    return -EPERM;
}

int dvd_check_share(const struct dvd_tenant *tenant, const struct dv_share *old, const struct dvd_share_change *change,
                    bool bounded, struct dv_share *share, char *text, size_t bytes)
{
    *share = dvd_share_with(*old, change);
    if (share->request_ppm > share->limit_ppm)
        snprintf(text, bytes, "a request of %g%% is above the limit of %g%%: raise the limit or ask for less",
                 PERCENT(share->request_ppm), PERCENT(share->limit_ppm));
    else if (share->limit_ppm < DV_PPM / 100 || share->limit_ppm > DV_PPM)
        snprintf(text, bytes, "a limit is from 1%% to 100%%");
    else if (share->weight < 1 || share->weight > DV_WEIGHT_MAX)
        snprintf(text, bytes, "a weight is from 1 to %u", DV_WEIGHT_MAX);
    else
        return bounded ? check_terms(tenant, old, share, text, bytes) : 0;
    return -EPERM;
}

/* ---- requests for time ---- */

uint64_t dvd_promised_to_others(const struct dvd_device *device, const struct dvd_tenant *tenant)
{
    const struct dvd_tenant_device *there = tenant->devices[device->id.number];

    return device->promised_ppm - (there ? there->policy.share.request_ppm : 0);
}

/* Names tenants with requests on a device, for a refusal. */
static void name_holders(const struct dvd_device *device, const struct dvd_tenant *tenant, char *text, size_t bytes)
{
    const struct dvd_tenant *other = device->ledger->tenants;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; other && i < NAMED_MAX && used < bytes; i++, other = other->hh.next) {
        const struct dvd_tenant_device *there = other->devices[device->id.number];
        if (other == tenant || !there || there->policy.share.request_ppm == 0)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %g%%", used ? ", " : "", other->name,
                                 PERCENT(there->policy.share.request_ppm));
    }
}

static int check_time(const struct dvd_device *device, const struct dvd_tenant *tenant, uint32_t request_ppm,
                      char *text, size_t bytes)
{
    uint64_t promised = dvd_promised_to_others(device, tenant);
    char holders[256];

    if (request_ppm == 0 || promised + request_ppm <= DV_PPM)
        return 0;
    name_holders(device, tenant, holders, sizeof holders);
    snprintf(text, bytes,
             "a request of %g%% cannot be kept on %.80s: %g%% of it is promised already (%s). Ask for at most %g%%, or "
             "wait until one of them ends",
             PERCENT(request_ppm), device->terms.name, PERCENT(promised), holders, PERCENT(DV_PPM - promised));
    return -ENOSPC;
}

/* ---- requests for memory ---- */

/* Sums the memory requests of other tenants, and lists them. */
static uint64_t sum_memory_requests(const struct dvd_device *device, const struct dvd_tenant *tenant, char *names,
                                    size_t bytes)
{
    uint64_t promised = 0;
    size_t used = 0;
    char size[32];

    snprintf(names, bytes, "none");
    for (const struct dvd_tenant *other = device->ledger->tenants; other; other = other->hh.next) {
        const struct dvd_tenant_device *there = other->devices[device->id.number];
        if (other == tenant || !there || there->users == 0 || there->memory.request == 0)
            continue;
        promised += there->memory.request;
        if (used >= bytes)
            continue;
        dv_text_format_size(size, sizeof size, there->memory.request);
        used += (size_t)snprintf(names + used, bytes - used, "%s%s %s", used ? ", " : "", other->name, size);
    }
    return promised;
}

/* Whether a memory request fits beside those of other tenants. Without swapping, no memory is promised. */
static int check_memory(const struct dvd_device *device, const struct dvd_tenant *tenant, uint64_t request, char *text,
                        size_t bytes)
{
    uint64_t capacity = device->terms.capacity_bytes;
    char holders[256], asked[32], had[32], left[32];

    if (request == 0 || !device->terms.swaps)
        return 0;
    uint64_t promised = sum_memory_requests(device, tenant, holders, sizeof holders);
    if (promised <= capacity && request <= capacity - promised)
        return 0;
    dv_text_format_size(asked, sizeof asked, request);
    dv_text_format_size(had, sizeof had, promised);
    dv_text_format_size(left, sizeof left, dvd_excess(capacity, 0, promised));
    snprintf(
        text, bytes,
        "a memory-request of %s cannot be kept on %.80s: %s of it is promised already (%s). Ask for at most %s, or "
        "wait until one of them ends",
        asked, device->terms.name, had, holders, left);
    return -ENOSPC;
}

int dvd_check_promises(const struct dvd_device *device, const struct dvd_tenant *tenant, uint32_t request_ppm,
                       uint64_t memory_request, char *text, size_t bytes)
{
    int status = check_time(device, tenant, request_ppm, text, bytes);

    return status < 0 ? status : check_memory(device, tenant, memory_request, text, bytes);
}

/* ---- changes of a tenant ---- */

/* A tenant may lower its memory by itself, and raise it again up to its terms. */
static int check_own_memory(const struct dvd_tenant_device *there, uint64_t wanted, uint64_t has, uint64_t may_have,
                            const char *verb, const char *key, char *text, size_t bytes)
{
    char size[32];

    if (wanted <= may_have || wanted <= has)
        return 0;
    dv_text_format_size(size, sizeof size, may_have);
    snprintf(
        text, bytes,
        "tenant %s may %s at most %s of the memory of %.80s; the operator sets that with %s in divvy.yaml, or with "
        "divvy set",
        there->tenant->name, verb, size, there->device->terms.name, key);
    return -EPERM;
}

static int check_memory_change(const struct dvd_tenant_device *there, const struct dvd_share_change *change,
                               bool bounded, char *text, size_t bytes)
{
    const struct dvd_tenant_terms *terms = &there->tenant->terms;
    uint64_t quota = dvd_device_size(there->device, &change->memory);
    uint64_t request = dvd_memory_request_on(there->device, &change->memory_request);
    int status = 0;

    if (bounded && change->has_memory)
        status = check_own_memory(there, quota, there->memory.quota, dvd_device_size(there->device, &terms->memory),
                                  "have", "memory", text, bytes);
    if (status == 0 && bounded && change->has_memory_request)
        status = check_own_memory(there, request, there->memory.request,
                                  dvd_memory_request_on(there->device, &terms->memory_request), "keep",
                                  "memory-request", text, bytes);
    if (status == 0 && change->has_memory_request && there->users)
        status = check_memory(there->device, there->tenant, request, text, bytes);
    return status;
}

/* Computes the tenant's shares after a change, on one device or all (NULL), and checks if they can be promised. */
int dvd_check_devices(const struct dvd_tenant *tenant, const struct dvd_device *device,
                      const struct dvd_share_change *change, bool bounded, struct dv_share shares[DV_MAX_DEVICES],
                      char *text, size_t bytes)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        const struct dvd_tenant_device *there = tenant->devices[i];
        if (!there || (device && there->device != device))
            continue;
        int status = dvd_check_share(tenant, &there->share, change, bounded, &shares[i], text, bytes);
        if (status == 0 && there->users)
            status = check_time(there->device, tenant, shares[i].request_ppm, text, bytes);
        if (status == 0)
            status = check_memory_change(there, change, bounded, text, bytes);
        if (status < 0)
            return status;
    }
    return 0;
}
