/* Callers of the control socket (see rate_limit.h). */
#include "src/arbiter/control/rate_limit.h"

#include <stdlib.h>
#include <uthash.h>

#include "src/arbiter/limits.h"

/* One for each user that is or was connected. A user that leaves with a spent rate is remembered, so that
 * reconnecting does not renew it. A user that is an operator by group has one more as an operator. */
struct dvd_caller {
    struct {
        uid_t uid;
        uint32_t is_operator;
    } key;
    unsigned connections;
    uint64_t questions_us; /* cost of its questions, each a fraction of a second; decreases with time */
    uint64_t counted_at_us;
    UT_hash_handle hh;
};

#define QUESTION_US (DV_S / DV_MAX_CONTROL_QUESTIONS_PER_S)

static struct dvd_caller *find(const struct dvd_callers *callers, uid_t uid, bool is_operator)
{
    struct dvd_caller *caller, wanted = {.key = {.uid = uid, .is_operator = is_operator}};

    HASH_FIND(hh, callers->by_uid, &wanted.key, sizeof wanted.key, caller);
    return caller;
}

bool dvd_callers_have_place(const struct dvd_callers *callers, uid_t uid, bool is_operator)
{
    if (callers->connections >= DV_MAX_CONTROL_CONNECTIONS)
        return false;
    if (is_operator)
        return true;
    const struct dvd_caller *caller = find(callers, uid, false);
    return callers->of_tenants < DV_MAX_CONTROL_OF_TENANTS &&
           (!caller || caller->connections < DV_MAX_CONTROL_PER_TENANT);
}

static void forget(struct dvd_callers *callers, struct dvd_caller *caller)
{
    HASH_DEL(callers->by_uid, caller);
    free(caller);
}

static void drain(struct dvd_caller *caller, uint64_t now_us)
{
    uint64_t passed = now_us > caller->counted_at_us ? now_us - caller->counted_at_us : 0;

    caller->questions_us -= passed < caller->questions_us ? passed : caller->questions_us;
    caller->counted_at_us = now_us;
}

struct dvd_caller *dvd_callers_enter(struct dvd_callers *callers, uid_t uid, bool is_operator)
{
    struct dvd_caller *caller = find(callers, uid, is_operator);

    if (!caller) {
        caller = calloc(1, sizeof *caller);
        if (!caller)
            return NULL;
        caller->key.uid = uid;
        caller->key.is_operator = is_operator;
        HASH_ADD(hh, callers->by_uid, key, sizeof caller->key, caller);
    }
    caller->connections++;
    callers->connections++;
    callers->of_tenants += !is_operator;
    return caller;
}

/* Forgets callers that are gone and whose rate has recovered. Checks a few, and moves them to the end. */
static void forget_some(struct dvd_callers *callers, uint64_t now_us)
{
    enum { LOOKED_AT = 8 };
    unsigned count = HASH_COUNT(callers->by_uid);

    for (unsigned i = 0; i < LOOKED_AT && i < count; i++) {
        struct dvd_caller *caller = callers->by_uid;
        drain(caller, now_us);
        if (caller->connections == 0 && caller->questions_us == 0) {
            forget(callers, caller);
        } else {
            HASH_DEL(callers->by_uid, caller);
            HASH_ADD(hh, callers->by_uid, key, sizeof caller->key, caller);
        }
    }
}

void dvd_callers_leave(struct dvd_callers *callers, struct dvd_caller *caller, uint64_t now_us)
{
    callers->connections--;
    callers->of_tenants -= !caller->key.is_operator;
    caller->connections--;
    forget_some(callers, now_us);
}

static bool within_rate(const struct dvd_caller *caller)
{
    return caller->key.is_operator ||
           caller->questions_us + QUESTION_US <= DV_MAX_CONTROL_QUESTIONS_BURST * QUESTION_US;
}

bool dvd_caller_may_ask(struct dvd_caller *caller, uint64_t now_us)
{
    drain(caller, now_us);
    if (!within_rate(caller))
        return false;
    if (!caller->key.is_operator)
        caller->questions_us += QUESTION_US;
    return true;
}

bool dvd_callers_may_ask(const struct dvd_callers *callers, uid_t uid, bool is_operator, uint64_t now_us)
{
    struct dvd_caller *caller = find(callers, uid, is_operator);

    if (caller)
        drain(caller, now_us);
    return !caller || within_rate(caller);
}

void dvd_callers_fini(struct dvd_callers *callers)
{
    struct dvd_caller *caller, *next;

    HASH_ITER (hh, callers->by_uid, caller, next)
        forget(callers, caller);
}
