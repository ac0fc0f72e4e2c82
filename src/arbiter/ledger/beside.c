/* Which sessions hold a device at the same time: those whose memory fits on it together. */
#include "src/arbiter/ledger/private.h"

/* Bytes it has placed or waits for. */
static uint64_t needs_now(const struct dvd_lease *lease)
{
    return lease->memory.placed + lease->memory.place_asked;
}

void dvd_beside_note(struct dvd_lease *lease)
{
    lease->set =
        (struct dvd_working_set){.known = true, .placed = needs_now(lease), .reserved = lease->memory.reserved};
}

/* Estimates the bytes that the session will need on the device: those it had there when it last held it, and
 * those it has allocated since. If it never held the device: all that it has allocated. */
static uint64_t set_of(const struct dvd_lease *lease)
{
    uint64_t reserved = lease->memory.reserved, now = needs_now(lease);
    uint64_t set = lease->set.known ? lease->set.placed : reserved;

    if (lease->set.known && reserved > lease->set.reserved)
        set += reserved - lease->set.reserved;
    set = dvd_min(set, reserved);
    return set > now ? set : now;
}

bool dvd_beside_fits(const struct dv_policy *policy, const struct dv_policy_session *session)
{
    const struct dvd_lease *lease = dvd_lease_of((struct dv_policy_session *)session);
    uint64_t in_all = set_of(lease), of_tenant = in_all;
    bool shares_quota = false;

    if (!lease->device->terms.swaps)
        return true; /* nothing is moved */
    for (struct dv_policy_session *s = policy->holders.first; s; s = s->next) {
        const struct dvd_lease *holder = dvd_lease_of(s);
        in_all += set_of(holder);
        if (holder->tenant == lease->tenant) {
            of_tenant += set_of(holder);
            shares_quota = true;
        }
    }
    return in_all <= lease->device->terms.capacity_bytes && (!shares_quota || of_tenant <= lease->tenant->memory.quota);
}
