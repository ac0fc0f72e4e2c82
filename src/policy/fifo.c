/* Service in order of arrival, as by a device's own queue, or by locks around a device. Only slots and
 * the length of a slice are enforced. The baseline for the other policies. */
#include "src/policy/order.h"

static void fifo_init(struct dv_policy *policy, dv_ns now)
{
    (void)now;
    policy->by_other = (struct dv_policy_tree){0};
}

static void fifo_enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    dv_tree_insert(&policy->by_other, &tenant->by_other, dv_policy_next_session(tenant, now)->waiting_since);
}

static void fifo_leave(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    (void)policy;
    dv_tree_remove(&tenant->by_other);
}

static struct dv_pick fifo_pick(struct dv_policy *policy, dv_ns now)
{
    (void)now;
    return (struct dv_pick){.tenant = DV_TENANT_OF(dv_tree_first(&policy->by_other), by_other),
                            .rule = policy->waiting_tenants == 1 ? DV_RULE_ONLY_ONE : DV_RULE_ARRIVAL};
}

static void fifo_charge(struct dv_policy *policy, struct dv_policy_session *session, int64_t delta_ns, dv_ns now)
{
    (void)policy, (void)session, (void)delta_ns, (void)now;
}

const struct dv_policy_ops dv_policy_fifo = {
    .name = "fifo",
    .init = fifo_init,
    .enter = fifo_enter,
    .leave = fifo_leave,
    .pick = fifo_pick,
    .charge = fifo_charge,
};
