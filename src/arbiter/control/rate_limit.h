/* Who is connected to the control socket. A tenant has a few connections and a rate of questions, and all
 * tenants together leave some connections to operators, who are not bounded otherwise. */
#ifndef DVD_CONTROL_RATE_LIMIT_H
#define DVD_CONTROL_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct dv_caller;

struct dv_callers {
    struct dv_caller *by_uid;
    unsigned connections, of_tenants;
};

/* Whether there is place for one more connection. */
bool dv_callers_have_place(const struct dv_callers *callers, uid_t uid, bool is_operator);
/* One more, or NULL when memory is short. */
struct dv_caller *dv_callers_enter(struct dv_callers *callers, uid_t uid, bool is_operator);
void dv_callers_leave(struct dv_callers *callers, struct dv_caller *caller, uint64_t now_us);
/* Whether a question is within its rate: it then counts. */
bool dv_caller_may_ask(struct dv_caller *caller, uint64_t now_us);
/* Whether one would be, of a user who may not be connected. */
bool dv_callers_may_ask(const struct dv_callers *callers, uid_t uid, bool is_operator, uint64_t now_us);

void dv_callers_fini(struct dv_callers *callers);

#endif
