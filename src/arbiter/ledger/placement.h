/* The order in which a session sees its devices: programs mostly take the first, so that is the one which
 * has most to give. */
#ifndef DVD_LEDGER_PLACEMENT_H
#define DVD_LEDGER_PLACEMENT_H

#include <stdint.h>

#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_session;
struct dv_tenant;

/* Fills in the session's devices, as indices in its list, best first for a tenant that requests so much
 * of the one that it uses; as they are in the list if the configuration says so. */
void dv_placement_order(const struct dv_arbiter *arbiter, const struct dv_session *session,
                        const struct dv_tenant *tenant, uint32_t request_ppm,
                        uint8_t order[DV_MAX_DEVICES]);

#endif
