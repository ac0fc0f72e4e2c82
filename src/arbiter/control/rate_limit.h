/* Callers of the control socket. A tenant has a maximum of connections and a rate of questions, and all
 * tenants together leave some connections to operators, who have no other limits. */
#ifndef DVD_CONTROL_RATE_LIMIT_H
#define DVD_CONTROL_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct dvd_caller;

struct dvd_callers {
    struct dvd_caller *by_uid;
    unsigned connections, of_tenants;
};

/* Whether one more connection is allowed. */
bool dvd_callers_have_place(const struct dvd_callers *callers, uid_t uid, bool is_operator);
/* One more, or NULL when memory is short. */
struct dvd_caller *dvd_callers_enter(struct dvd_callers *callers, uid_t uid, bool is_operator);
void dvd_callers_leave(struct dvd_callers *callers, struct dvd_caller *caller, uint64_t now_us);
/* Whether a question is within the rate; if so, counts it. */
bool dvd_caller_may_ask(struct dvd_caller *caller, uint64_t now_us);
/* The same without counting, connected or not. */
bool dvd_callers_may_ask(const struct dvd_callers *callers, uid_t uid, bool is_operator, uint64_t now_us);

void dvd_callers_fini(struct dvd_callers *callers);

#endif
