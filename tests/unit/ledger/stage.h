/* The ledger alone, at virtual time: sessions are scripted by the test, and every message to them is kept until the
 * test has looked at it. */
#ifndef DV_TESTS_UNIT_LEDGER_STAGE_H
#define DV_TESTS_UNIT_LEDGER_STAGE_H

#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/restart/state.h"
#include "tests/unit/unit.h"

#define MS DV_NS_PER_MS
#define MIB (UINT64_C(1) << 20)
#define MESSAGES_MAX 512
#define TIMERS_MAX 256

struct peer {
    struct dvd_lessee lessee;
    struct dvd_lease *leases[DV_MAX_DEVICES];
    union dv_channel_message messages[MESSAGES_MAX];
    unsigned first, count;
    uint64_t serial; /* of the last grant that it has looked at */
    uint64_t next_id;
    bool is_stopped;
    bool is_full; /* its channel takes nothing */
    bool answers_late;
    unsigned overdue, unanswered, turned_away;
    char reason[512]; /* why it was turned away, or what it kept */
    dv_ns deadline;
    char text[512]; /* of the last call that failed */
};

struct stage {
    struct dv_timers timers; /* the first, so that both have one address */
    dv_ns now;
    bool no_timers; /* setting one fails */
    struct {
        struct dv_timer *timer;
        dv_ns when;
    } set[TIMERS_MAX];
    unsigned set_count;
    struct dvd_ledger ledger;
    struct dvd_state state; /* without a file unless a test opens one */
    struct dvd_device_terms devices[DV_MAX_DEVICES];
    unsigned tenants_freed;
};

/* A ledger with one device of 64 MiB and one slot, whose memory can be moved. */
void stage_start(struct stage *stage, uint32_t devices);
/* Tells the ledger of changes in stage->devices. */
void stage_set_devices(struct stage *stage, uint32_t devices);
/* No session is left. Fails if the ledger has kept anything. */
void stage_end(struct stage *stage);
/* Lets time pass, and fires timers when they are due. */
void stage_pass(struct stage *stage, dv_ns ns);
extern uint64_t stage_host_available;

/* Terms of a tenant that may have anything. */
struct dvd_identity tenant_named(const char *name);
/* Admits a session of a tenant on all devices; returns what dvd_lessee_admit does. */
int peer_begin(struct stage *stage, struct peer *peer, const char *tenant);
int peer_begin_as(struct stage *stage, struct peer *peer, const struct dvd_identity *identity,
                  const struct dvd_share_change *change);
void peer_end(struct peer *peer);

/* What a session says. */
void say(struct peer *peer, const void *message, size_t bytes);
void say_lease(struct peer *peer, uint32_t device, enum dv_lease_type type, uint64_t serial, uint32_t flags);
void say_want(struct peer *peer);
/* Releases the last grant that it has looked at. */
void say_release(struct peer *peer, bool again);
void say_memory(struct peer *peer, enum dv_memory_type type, uint64_t id, uint64_t bytes, uint32_t flags);

/* The next message to a session, which must be of this kind. */
const struct dv_lease_message *hear_lease(struct peer *peer, enum dv_lease_type type);
const struct dv_memory_message *hear_memory(struct peer *peer, enum dv_memory_type type);
void hear_nothing(const struct peer *peer);
void forget_messages(struct peer *peer);

#endif
