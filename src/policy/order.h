/* Shared by the policies: ordered sets of tenants, weighted time, slices. */
#ifndef DV_POLICY_ORDER_H
#define DV_POLICY_ORDER_H

#include <stddef.h>

#include "src/policy/policy.h"

/* A tenant that comes back this soon never really stopped wanting the device: a holder gives back
 * and asks again in two messages. */
#define DV_SAME_DEMAND_NS (1 * DV_NS_PER_MS)

#define DV_TENANT_OF(node_pointer, member)                                                                             \
    ((struct dv_policy_tenant *)(void *)((char *)(node_pointer)-offsetof(struct dv_policy_tenant, member)))

/* Comparison of clock values that may have wrapped around. */
static inline bool dv_before(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) < 0;
}

static inline uint64_t dv_later(uint64_t a, uint64_t b)
{
    return dv_before(a, b) ? b : a;
}

static inline uint64_t dv_earlier(uint64_t a, uint64_t b)
{
    return dv_before(b, a) ? b : a;
}

/* Device time as a step on a tenant's virtual clock: the more weight, the shorter the step. The
 * factor keeps the rounding error small for large weights. */
static inline int64_t dv_weighted(int64_t ns, uint32_t weight)
{
    return ns * 4096 / (weight ? weight : 1);
}

/* How long it takes to earn ns of device time at a share of ppm. */
static inline int64_t dv_at_share(int64_t ns, uint32_t ppm)
{
    return (int64_t)((dv_wide)ns * DV_PPM / (ppm ? ppm : 1));
}

#define DV_SESSION_OF(node_pointer)                                                                                    \
    ((struct dv_policy_session *)(void *)((char *)(node_pointer)-offsetof(struct dv_policy_session, in_order)))

/* ---- policy.c ---- */

/* The session of a waiting tenant that is next. */
struct dv_policy_session *dv_policy_next_session(struct dv_policy_tenant *tenant, dv_ns now);

/* ---- order.c ---- */

void dv_tree_insert(struct dv_policy_tree *tree, struct dv_policy_node *node, uint64_t key);
void dv_tree_remove(struct dv_policy_node *node); /* from the tree it is in, if any */
struct dv_policy_node *dv_tree_first(struct dv_policy_tree *tree);
struct dv_policy_node *dv_tree_next(struct dv_policy_node *node);

void dv_line_init(struct dv_policy_line *line);
void dv_line_insert(struct dv_policy_line *line, struct dv_line_entry *entry, uint64_t start, uint64_t finish,
                    uint64_t clock);
void dv_line_remove(struct dv_line_entry *entry);
/* Makes the entries ready whose start has come. */
void dv_line_advance(struct dv_policy_line *line, uint64_t clock);
/* The first entry that can be served now. If the clock went back, some entries are no longer ready. */
struct dv_line_entry *dv_line_first_ready(struct dv_policy_line *line, uint64_t clock);
struct dv_line_entry *dv_line_first_ahead(struct dv_policy_line *line);

/* ---- slice.c ---- */

/* The longest slice while others wait: it follows from the hand-over cost of this device. */
dv_ns dv_slice_max(const struct dv_policy *policy);
/* Takes in the session's last report and returns how long its slice should be. */
dv_ns dv_slice_learn(const struct dv_policy *policy, struct dv_policy_session *session);
/* How long the holder may keep the device while it has no work. */
dv_ns dv_slice_linger(const struct dv_policy_session *session);

#endif
