/* Which sessions can hold a device at the same time: those whose memory fits on it together. */
#ifndef DVD_LEDGER_BESIDE_H
#define DVD_LEDGER_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

struct dv_policy;
struct dv_policy_session;
struct dv_session_lease;

/* What a session had on the device when it last held it, and so will need again. */
struct dv_working_set {
    bool known;              /* it has held the device */
    uint64_t placed;         /* then, with what it waited for */
    uint64_t reserved;       /* then */
};

/* A hold is over: its memory is still as it was. */
void dv_beside_note(struct dv_session_lease *lease);
/* Whether it fits beside those who hold the device: a policy's may_run_beside. */
bool dv_beside_fits(const struct dv_policy *policy, const struct dv_policy_session *session);

#endif
