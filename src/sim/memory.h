/* Memory of simulated devices: each session has a set that must be on the device while it computes.
 * A session that gets the device moves what lacks there, and others' sets out if there is no room,
 * before its first kernel; divvyd's rules say whose go first and by how much that lengthens the
 * turn.
 *
 * With a copy engine of its own a device moves sets in both directions at once, and brings in sets
 * of those who wait while another session computes. */
#ifndef DV_SIM_MEMORY_H
#define DV_SIM_MEMORY_H

#include "src/sim/private.h"

/* For the policy: whether the sets of a session and of all holders fit together. */
bool dv_sim_memory_fits_beside(const struct dv_policy *policy,
                               const struct dv_policy_session *lease);
/* A turn begins. Returns false when all is there. Otherwise the session's state is MOVING, and
 * events follow. */
bool dv_sim_memory_bring(struct dv_engine *engine, struct dv_sim_session *session);
/* Those events. After the second, or after the move was stopped, the session can go on. */
void dv_sim_memory_has_room(struct dv_engine *engine, struct dv_sim_session *session);
void dv_sim_memory_is_there(struct dv_engine *engine, struct dv_sim_session *session);
void dv_sim_memory_stopped(struct dv_engine *engine, struct dv_sim_session *session);
/* A session that moves was recalled, or leaves: it stops after the piece that is under way. */
void dv_sim_memory_stop(struct dv_engine *engine, struct dv_sim_session *session);

/* It comes, and nothing of its set is there. */
void dv_sim_memory_join(struct dv_engine *engine, struct dv_sim_session *session);
/* It leaves and takes its memory with it. */
void dv_sim_memory_forget(struct dv_engine *engine, struct dv_sim_session *session);
/* Starts to bring in the set of a session that waits, where a copy engine has nothing to do. */
void dv_sim_memory_ahead(struct dv_engine *engine, struct dv_sim_device *device);
/* That set is there. */
void dv_sim_memory_ahead_done(struct dv_engine *engine, struct dv_sim_device *device);

#endif
