/* Pauses of a session that holds a device: how long it should keep the device without work. Keeping
 * it through a short gap saves two hand-overs; keeping it through a pause makes others wait. */
#ifndef DV_POLICY_PAUSES_H
#define DV_POLICY_PAUSES_H

#include <stdbool.h>

#include "src/policy/policy.h"

struct dv_pauses {
    dv_ns pause_ns; /* recent pauses longer than the bridge; 0: none yet */
    unsigned ended; /* of the last gaps, in 256ths: those that were longer than the bridge */
};

/* The session had no work for gap_ns. Gaps up to bridge_ns are worth keeping the device. */
void dv_pauses_note(struct dv_pauses *pauses, dv_ns gap_ns, dv_ns bridge_ns);

/* How long to keep it: linger_ns, which can include the cost of moving memory, or short_ns, which does
 * not. contended: others wait meanwhile. */
dv_ns dv_pauses_linger(const struct dv_pauses *pauses, dv_ns linger_ns, dv_ns short_ns, bool contended);

#endif
