/* Policies: which session may keep a device busy next, and for how long. Pure code: no sockets, no clock
 * calls, no allocation; the same objects run in divvyd, in tests and in the simulator at virtual
 * time. Includes nothing but src/base/ and the tree macros.
 *
 * Words: a tenant is entitled; its sessions alternate inside its entitlement. A slot is the right
 * of one session at a time to keep the device busy; most devices have one. The caller owns all
 * memory: it embeds a struct dv_policy_tenant in its own record of "tenant on device" and a struct
 * dv_policy_session in its record of a session's lease.
 *
 * The caller's loop, after anything happened:
 *     while ((decision = dv_policy_next(policy, now)).session) send the grant;
 *     while ((session = dv_policy_recall(policy, now, &again))) send the recall;
 *     come back at decision.ask_again_ns and at `again`, where they are not 0.
 * A holder that gives back and still wants the device is released and made to wait before
 * dv_policy_next is asked, so that it competes with the others. */
#ifndef DV_POLICY_POLICY_H
#define DV_POLICY_POLICY_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/clock.h"

#define DV_PPM 1000000u /* shares are parts per million of the device's time */
#define DV_WEIGHT_MAX 10000u

/* The shortest slice, and the longest while others wait (unless a single kernel is longer): a burst
 * that fits is not cut, a longer one is cut into equal parts. Short enough that shares hold over a
 * second. */
#define DV_SLICE_MIN_NS (2 * DV_NS_PER_MS)
#define DV_SLICE_MAX_NS (10 * DV_NS_PER_MS)
/* If a hand-over is found to cost more than 1/DV_HAND_OVER_PART of that, slices are longer, up to
 * DV_SLICE_DEAR_MAX_NS: handing over stays at most 2 % of a slice. */
#define DV_HAND_OVER_PART 50
#define DV_SLICE_DEAR_MAX_NS (100 * DV_NS_PER_MS)
/* A longer hold is an overrun: its tenant owes the others the time that they lost, however long it takes
 * to give back. */
#define DV_OVERRUN_FROM_NS DV_SLICE_DEAR_MAX_NS
/* Unused time is saved up for a few holds of others. This is the maximum that counts as such a hold. */
#define DV_HOLD_USUAL_MAX_NS DV_NS_PER_S
/* The maximum slice for a kernel that is reported to be long. Longer ones run, as the first kernel of
 * a slice always does, but reporting long kernels earns no long slices. */
#define DV_SLICE_KERNEL_MAX_NS (40 * DV_NS_PER_MS)
/* The slice of a session about which nothing is known yet. */
#define DV_SLICE_START_NS (5 * DV_NS_PER_MS)
/* The slice of a tenant with a limit, so that its time is spread evenly. */
#define DV_SLICE_LIMITED_NS (8 * DV_NS_PER_MS)
/* The slice when no other session waits. The holder is recalled once one does, see dv_policy_recall. */
#define DV_SLICE_ALONE_NS (200 * DV_NS_PER_MS)
/* The same with a limit: long enough that the hand-overs, which the limit counts too, do not
 * matter. */
#define DV_SLICE_ALONE_LIMITED_NS (20 * DV_NS_PER_MS)
/* The maximum slice once memory has been brought in for it, unless bringing it in took longer; and the
 * maximum of the whole hold, however long that took. */
#define DV_MOVED_SLICE_MAX_NS (2 * DV_NS_PER_S)
#define DV_HOLD_MOVING_MAX_NS (60 * DV_NS_PER_S)
/* The range for an operator's own moved_slice_max_ns. */
#define DV_MOVED_SLICE_LIMIT_MIN_NS (10 * DV_NS_PER_MS)
#define DV_MOVED_SLICE_LIMIT_MAX_NS (60 * DV_NS_PER_S)
#define DV_LINGER_MOVING_MAX_NS (1 * DV_NS_PER_S)
/* The maximum time for bringing memory in, in one hold. */
#define DV_MOVING_MAX_NS (30 * DV_NS_PER_S)
/* A session whose memory is not on the device is passed over for at most this long. */
#define DV_AWAY_WAITS_NS (1 * DV_NS_PER_S)
/* The part of the time that may go into moving memory. */
#define DV_MOVING_PART_PPM (DV_PPM / 20)

/* The range for a slice that an operator fixes instead. */
#define DV_SLICE_FIXED_MIN_NS (100 * DV_NS_PER_US)
#define DV_SLICE_FIXED_MAX_NS (10 * DV_NS_PER_S)

/* In the order in which their work goes first. A class buys order, not share; only `idle` is
 * different: it has no share by weight and takes what all others leave over. */
enum dv_class { DV_CLASS_LATENCY, DV_CLASS_STANDARD, DV_CLASS_BATCH, DV_CLASS_IDLE, DV_CLASS_COUNT };
#define DV_CLASS_WORDS "latency, standard, batch or idle"

const char *dv_class_word(enum dv_class class);
bool dv_class_by_word(const char *word, enum dv_class *class); /* false: there is none */

struct dv_share {
    uint32_t request_ppm; /* guaranteed while there is demand; at most limit_ppm */
    uint32_t limit_ppm;   /* never more; DV_PPM: no limit */
    uint32_t weight;      /* of what is not guaranteed to others, 1 to DV_WEIGHT_MAX */
    enum dv_class class;
};

/* A report of the burst monitor in a session's front end; estimates only. */
struct dv_burst {
    dv_ns kernel_ns; /* longest recent kernel */
    dv_ns p90_ns;    /* 90th percentile of merged bursts */
    dv_ns last_ns;   /* last burst */
};

/* Why a decision was made, for `divvy explain`. */
enum dv_rule {
    DV_RULE_NONE,
    DV_RULE_ONLY_ONE,     /* no other tenant had work */
    DV_RULE_REQUEST,      /* its guaranteed share was due */
    DV_RULE_LEAST_SERVED, /* least device time for its weight */
    DV_RULE_CLASS,        /* its class goes first */
    DV_RULE_ARRIVAL,      /* came first */
    DV_RULE_CREDIT,       /* has credit left */
    DV_RULE_LIMIT,        /* held back: at its limit */
    DV_RULE_BUSY,         /* the device is in use */
    DV_RULE_RESIDENT,     /* its memory is on the device, that of the tenant before it is not */
    DV_RULE_LEFT_OVER,    /* no other work could run */
    DV_RULE_CROWDED,      /* its memory does not fit beside that of the holders */
    DV_RULE_IDLE_WINDOW,  /* kept free for a moment: an under-served tenant may be back at once */
};
const char *dv_rule_text(enum dv_rule rule);

__extension__ typedef __int128 dv_wide;

struct dv_policy;
struct dv_policy_tenant;
struct dv_policy_session;

/* A tree of tenants that a policy keeps, ordered by key, then arrival in the tree.
 * Keys may wrap around: only their differences count. Callers do not touch any of it. */
struct dv_policy_node {
    RB_ENTRY(dv_policy_node) link;
    struct dv_policy_tree *tree; /* NULL: in none */
    uint64_t key, order;
};
struct dv_policy_tree {
    RB_HEAD(dv_policy_nodes, dv_policy_node) nodes;
    uint64_t order;       /* of the last one that came in */
    uint64_t comparisons; /* made so far: what a decision costs */
    uint32_t count;
};

/* Tenants in line for a service that is due at `start` on some clock and should be over by
 * `finish`: those whose start lies ahead, and those that can be served, the earliest finish first. */
struct dv_policy_line {
    struct dv_policy_tree ahead; /* key: start */
    struct dv_policy_tree ready; /* key: finish */
};
/* Guarantees of latency work are in a line of their own, all others in one. */
enum { DV_REQUEST_LATENCY, DV_REQUEST_OTHERS, DV_REQUEST_LINES };
struct dv_line_entry {
    struct dv_policy_node node;
    uint64_t start, finish;
};

/* One session's wish to keep the device busy. */
struct dv_policy_session {
    struct dv_policy_tenant *tenant;
    struct dv_burst burst; /* set by the caller whenever there is a report */
    dv_ns busy_ns;         /* set by the caller before a release: how long work kept the device busy, if the
                              hold ended though there was more work. 0: not known */
    bool waiting, holding;
    bool recalled;     /* while holding: dv_policy_recall has named it */
    dv_ns recalled_at; /* when it did */
    bool away;         /* memory would have to be moved if it were granted: see dv_policy_set_away */
    bool in_line;      /* while holding: it waits for room on the device that others have */
    dv_ns in_line_since;
    bool moving; /* while holding: memory is brought in for it, so its slice does not run */
    dv_ns moving_since;
    dv_ns moving_most_ns; /* the longest it may take, as the caller expects */
    dv_ns moved_ns;       /* while holding: how long moving has taken so far */
    dv_ns waiting_since;
    dv_ns granted_at, slice_ns; /* while holding */
    dv_ns own_ns;               /* while holding: the part of the slice that is its own even when
                                    others begin to wait */
    enum dv_rule rule;          /* of its last grant */
    dv_ns learned_ns;           /* burst estimate behind its slices; 0: nothing known */
    /* the policy's own */
    struct dv_policy_session *next, *prev; /* the device's holders */
    struct dv_policy_node in_order;        /* while waiting: key is served_time */
    uint64_t served_time;                  /* device time had, for the order inside its tenant */
    int64_t charged_ns;                    /* for the present hold so far */
    uint64_t fair_at_grant;
    dv_ns latency_work_ns;
    bool guaranteed; /* granted because its guaranteed share was due */
    dv_ns keeps_ns;  /* while holding: no class recalls it sooner. If it was late: its slice */
};

struct dv_policy_queue {
    struct dv_policy_session *first, *last;
    uint32_t count;
};

/* A tenant on one device. */
struct dv_policy_tenant {
    struct dv_share share;
    /* Its sessions that wait, those with the least device time first: with their memory on the
     * device, and without. */
    struct dv_policy_tree order, order_away;
    uint32_t waiting_count;
    uint64_t served_clock; /* served_time of the session that it served last */
    uint32_t holding_count;
    dv_ns used_ns;  /* held so far by all its sessions, without the present holds */
    dv_ns slice_ns; /* its last slice */
    enum dv_rule last_rule;
    /* the policy's own */
    struct dv_policy_tenant *next, *prev; /* all of the device */
    bool in_demand;                       /* a session waits or holds */
    bool resumes;                         /* it did so under an earlier daemon */
    bool counted;                         /* its weight is in the policy's total */
    bool at_request, at_limit;            /* its request, or its limit, sets its share */
    bool in_debt;                         /* it had more than its share in an overrun, and still owes it */
    dv_ns last_hold_ns;                   /* how long it held the device when it last did */
    bool overran;                         /* and gave it back long after the recall */
    dv_ns owed_ns;                        /* how much later than usual its guarantee may be, for holds of others */
    uint64_t overruns_seen;               /* those of the policy's overruns that are in owed_ns */
    int64_t set_aside;                    /* class idle: weight x how far it was ahead when it had a share by weight */
    uint32_t request_of_clock;            /* the last request that request_time ran by */
    dv_ns demand_ended_at;
    uint64_t fair_time; /* weighted device time received */
    int64_t fair_lead;  /* how far it was ahead when its demand ended */
    dv_ns request_time; /* when its guaranteed share is due next */
    dv_ns limit_time;   /* when its limit allows more */
    int64_t credit_ns, period_ns;
    struct dv_line_entry by_request, by_fair;
    struct dv_policy_node by_other; /* limit or arrival */
    struct dv_policy_node by_resident;
};

struct dv_decision {
    struct dv_policy_session *session; /* NULL: none may run now */
    dv_ns slice_ns;
    dv_ns linger_ns; /* how long the holder may keep the device without work: a short gap between
                        two kernels is no reason to give back */
    enum dv_rule rule;
    dv_ns ask_again_ns; /* session NULL: when one may run; 0: none */
};

/* A policy's answer: the next tenant. */
struct dv_pick {
    struct dv_policy_tenant *tenant; /* NULL: none now */
    enum dv_rule rule;
    bool guaranteed;
    bool keeps_slice; /* it was late, see struct dv_policy_session */
    dv_ns ask_again_ns;
};

/* The functions of a policy. Those after charge may be NULL. A tenant's account is only ever
 * changed while it is in no queue: policy.c calls leave before and enter after. */
struct dv_policy_ops {
    const char *name;
    bool knows_classes; /* work of class idle steps aside for all other work */
    void (*init)(struct dv_policy *policy, dv_ns now);
    /* At least one session of the tenant waits: put it into the queues; or take it out of them. */
    void (*enter)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now);
    void (*leave)(struct dv_policy *policy, struct dv_policy_tenant *tenant);
    /* Chooses the tenant for a free slot. At least one waits. */
    struct dv_pick (*pick)(struct dv_policy *policy, dv_ns now);
    /* At the grant a tenant is charged for the expected slice; the difference to the real hold is
     * charged (or paid back) later. */
    void (*charge)(struct dv_policy *policy, struct dv_policy_session *session, int64_t delta_ns, dv_ns now);

    void (*tenant_added)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now);
    void (*share_changed)(struct dv_policy *policy, struct dv_policy_tenant *tenant, const struct dv_share *old,
                          dv_ns now);
    /* The tenant has work (a session waits or holds), or no longer has. */
    void (*demand_begins)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now);
    void (*demand_ends)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now);
    /* A hold begins, not yet charged; or is over and charged in full: it took device_ns. */
    void (*hold_began)(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
    void (*hold_ended)(struct dv_policy *policy, struct dv_policy_session *session, dv_ns device_ns, dv_ns now);
    /* How many slots waiting work of higher classes needs at once, from holders of this class and
     * below. NULL: none. */
    uint32_t (*slots_wanted)(struct dv_policy *policy, enum dv_class class, dv_ns now);
    /* Whether a waiting tenant may run, and from when on. NULL: always, at once. */
    bool (*runnable)(struct dv_policy *policy, dv_ns now, dv_ns *from);
};

/* A policy at work on one device. */
struct dv_policy {
    const struct dv_policy_ops *ops;
    uint32_t slots, free_slots;
    uint32_t excess; /* holds of an earlier daemon that had more slots */
    uint32_t waiting_tenants;
    uint32_t waiting_sessions;  /* of all of them */
    uint32_t waiting_idle;      /* of them, those that take only what is left over */
    uint32_t demanding_tenants; /* with a session that waits or holds */
    dv_ns fixed_slice_ns;       /* 0: learned. The caller may set it at any time. */
    uint32_t moving_part_ppm;   /* maximum part of the time for moving memory; the same */
    dv_ns moved_slice_max_ns;   /* maximum slice after moving; the same */
    dv_ns hold_max_ns;          /* maximum hold with moving; the same */
    dv_ns latency_target_ns;    /* within which waiting latency work should be done */
    /* With several slots: whether a waiting session may run beside the present holders (at least one).
     * NULL: always. The caller may set it at any time. A session that may not run waits, and no other
     * goes before it, until the holders in its way have given back. */
    bool (*may_run_beside)(const struct dv_policy *policy, const struct dv_policy_session *session);
    /* the policy's own */
    bool crowded; /* the next session may not run beside the present holders: no slot is free for it */
    struct dv_policy_tenant *tenants;
    struct dv_policy_queue holders;
    uint32_t in_line;      /* holders that wait for room which others have */
    dv_ns latency_work_ns; /* estimated, of all waiting sessions of the latency class */
    uint32_t tenant_count; /* on the device */
    dv_ns longest_hold_ns; /* recently, as device time */
    uint64_t overruns_ns;  /* sum of all overruns so far */
    dv_ns demand_ended_at; /* of the tenant whose demand ended last */
    dv_ns hand_over_ns;    /* learned cost of a hand-over */
    uint64_t fair_clock;   /* virtual time: weighted device time that each should have */
    uint64_t idle_clock;   /* the same for the class idle, which shares what is left over */
    dv_wide fair_lead_sum; /* weight x (fair_time - fair_clock), of all sharing tenants */
    int64_t total_weight;  /* of them */
    struct dv_policy_line by_request[DV_REQUEST_LINES], by_fair[DV_CLASS_COUNT];
    struct dv_policy_tree by_other;
    struct dv_policy_tree by_resident[DV_CLASS_IDLE]; /* may run by weight, without moving memory */
    struct dv_policy_tenant *last_tenant;             /* the one served last */
    dv_ns period_began, window_ends;
    int64_t busy_ns, last_busy_ns; /* in this period and in the one before */
};

extern const struct dv_policy_ops dv_policy_elastic, dv_policy_fair, dv_policy_fifo, dv_policy_band;
const struct dv_policy_ops *dv_policy_by_name(const char *name); /* NULL: there is none */

/* ---- what the caller does (policy.c), the same for every policy ---- */

void dv_policy_init(struct dv_policy *policy, const struct dv_policy_ops *ops, uint32_t slots, dv_ns now);
/* A tenant comes to the device, or goes (when none of its sessions waits or holds any more). */
void dv_policy_tenant_add(struct dv_policy *policy, struct dv_policy_tenant *tenant, const struct dv_share *share,
                          dv_ns now);
void dv_policy_tenant_remove(struct dv_policy *policy, struct dv_policy_tenant *tenant);
/* Changes the share of a tenant at once, whatever it is doing. */
void dv_policy_tenant_set(struct dv_policy *policy, struct dv_policy_tenant *tenant, const struct dv_share *share,
                          dv_ns now);
void dv_policy_session_init(struct dv_policy_session *session, struct dv_policy_tenant *tenant);

/* A session wants the device (idempotent; ignored while it holds). */
void dv_policy_wait(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
/* It no longer does (gave up, or died) without having been granted. */
void dv_policy_cancel(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
/* The next decision for a free slot; grants it if there is one (session->holding is set). */
struct dv_decision dv_policy_next(struct dv_policy *policy, dv_ns now);
/* The holder gave back (or died) at `now`; charges [granted_at, now). */
void dv_policy_release(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
/* Whether memory has to be moved before the session's work can run. Among tenants that
 * share by weight, one whose memory is there goes first, until the other has waited for DV_AWAY_WAITS_NS. */
void dv_policy_set_away(struct dv_policy *policy, struct dv_policy_session *session, bool away, dv_ns now);
/* The holder begins to bring in the memory that its work needs: it is not recalled meanwhile,
 * unless work of a higher class takes the device, or moving takes longer than most_ns (which a later
 * call may change), or DV_MOVING_MAX_NS in all. */
void dv_policy_moves(struct dv_policy_session *session, dv_ns most_ns, dv_ns now);
/* The holder waits for room on the device, and no session that has it can be asked for it now. Other
 * holders are recalled at the end of their slice, as if a session waited for the device. If two wait for
 * each other, the one that began later is recalled almost at once. Ends with the hold. */
void dv_policy_in_line(struct dv_policy *policy, struct dv_policy_session *session, bool in_line, dv_ns now);
/* Whether a tenant of the class waits and could run. Only elastic knows classes; others say yes. */
bool dv_policy_class_waits(const struct dv_policy *policy, enum dv_class class);
/* The memory is there. The rest of the slice remains. If it is not fixed, it is extended so that moving
 * memory stays a small part of the hold (policy->moving_part_ppm), up to policy->moved_slice_max_ns. */
struct dv_decision dv_policy_moved(struct dv_policy *policy, struct dv_policy_session *session, dv_ns took_ns,
                                   dv_ns now);
/* A holder that should give back now; each is named once. Latency work waits, or the holder's time is
 * over (own_ns if it had been alone, or a slice that it did not end by itself) and another session can
 * run or its limit requires it. NULL: none, and then *again says when to ask again (0: not before
 * something happens). */
struct dv_policy_session *dv_policy_recall(struct dv_policy *policy, dv_ns now, dv_ns *again);
/* How long the tenant's limit still keeps it from running; 0: not at all. */
dv_ns dv_policy_held_back(const struct dv_policy *policy, const struct dv_policy_tenant *tenant, dv_ns now);
/* Replaces the policy under running tenants. Waiting sessions keep their order; accounts
 * begin anew. */
void dv_policy_switch(struct dv_policy *policy, const struct dv_policy_ops *ops, dv_ns now);

/* State that must outlive the daemon, so that no tenant is served twice or forgotten: a tenant's
 * accounts, and a hold. Adopted values are checked, because they come from a file. Adopt a tenant's
 * accounts right after dv_policy_tenant_add, and a session's hold right after dv_policy_session_init. */
struct dv_policy_account {
    dv_ns used_ns, slice_ns;
    uint64_t fair_time;
    dv_ns request_time, limit_time;
    int64_t credit_ns, period_ns;
    bool in_demand;
};
struct dv_policy_hold {
    dv_ns granted_at, slice_ns, own_ns;
    int64_t charged_ns;
    uint64_t fair_at_grant;
    bool guaranteed;
};
struct dv_policy_account dv_policy_account(const struct dv_policy_tenant *tenant);
void dv_policy_adopt_tenant(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                            const struct dv_policy_account *account, dv_ns now);
struct dv_policy_hold dv_policy_hold(const struct dv_policy_session *session);
void dv_policy_adopt_hold(struct dv_policy *policy, struct dv_policy_session *session,
                          const struct dv_policy_hold *hold, dv_ns now);
/* The rest of the slice of an adopted hold, for its holder. */
struct dv_decision dv_policy_rest(const struct dv_policy_session *session, dv_ns now);

/* The share of each tenant of the list if all of them always had work, in ppm: by weight, but not
 * below its request or above its limit. For display and for tests. */
void dv_policy_entitlements(const struct dv_share *shares, uint32_t count, uint32_t *ppm);

/* How far, in ns of device time, a backlogged tenant of the one class may be off its entitlement
 * over any window (divide by the window): a slice too much at one end, a slice too little at the
 * other, and half a slice for guarantees that fall due together; `slice_ns` and `kernel_ns` are the
 * longest of all sharing tenants. With slices of DV_SLICE_MAX_NS that is 25 ms, or 2.5 %
 * of a one-second window. */
dv_ns dv_policy_error_bound(dv_ns slice_ns, dv_ns kernel_ns);

#endif
