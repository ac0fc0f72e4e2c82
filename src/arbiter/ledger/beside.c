/* Which sessions can hold a device at the same time (see beside.h). */
#include "src/arbiter/ledger/beside.h"

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/ledger/tenants.h"

/* What it has, and what it waits for. */
static uint64_t needs_now(const struct dv_session_lease *lease)
{
    return lease->memory.placed + lease->memory.place_asked;
}

void dv_beside_note(struct dv_session_lease *lease)
{
    lease->set = (struct dv_working_set){.known = true,
                                         .placed = needs_now(lease),
                                         .reserved = lease->memory.reserved};
}

/* What it will need on the device, as far as the ledger knows: what it had there when it last held it and
 * what it has allocated since; if it never held it, all that it has allocated. */
static uint64_t set_of(const struct dv_session_lease *lease)
{
    uint64_t reserved = lease->memory.reserved, now = needs_now(lease);
    uint64_t set = lease->set.known ? lease->set.placed : reserved;

    if (lease->set.known && reserved > lease->set.reserved)
        set += reserved - lease->set.reserved;
    set = set < reserved ? set : reserved;
    return set > now ? set : now;
}

bool dv_beside_fits(const struct dv_policy *policy, const struct dv_policy_session *session)
{
    const struct dv_session_lease *lease = dv_lease_of((struct dv_policy_session *)session);
    const struct dv_lease_device *device = dv_lease_device_of(lease);
    const struct dv_arbiter *arbiter = device->arbiter;
    uint64_t in_all = set_of(lease), of_tenant = in_all;
    bool shares_quota = false;

    if (!dv_devices_swaps(&arbiter->devices, device->index, &arbiter->config))
        return true; /* nothing is moved */
    for (struct dv_policy_session *s = policy->holders.first; s; s = s->next) {
        const struct dv_session_lease *holder = dv_lease_of(s);
        in_all += set_of(holder);
        if (holder->tenant == lease->tenant) {
            of_tenant += set_of(holder);
            shares_quota = true;
        }
    }
    return in_all <= dv_memory_capacity(arbiter, device->index) &&
           (!shares_quota || of_tenant <= lease->tenant->memory.quota);
}
