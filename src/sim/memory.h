/* Memory of simulated devices, as a worker moves it: each session has a set that must be on the device while it
 * computes. A session that gets the device brings in the missing part, piece by piece, before its first kernel. The
 * daemon says which other sessions evict for it, and by how much that lengthens the slice.
 *
 * A device copies one piece at a time. With a copy engine of its own it copies in both directions at once, and
 * brings in the set of a session that waits while another computes. */
#ifndef DV_SIM_MEMORY_H
#define DV_SIM_MEMORY_H

#include "src/sim/private.h"

/* Whether all of the session's set is on the device. */
bool dv_sim_memory_is_there(const struct dv_sim_session *session);
/* The daemon has no room for it, and does not let it queue either. */
bool dv_sim_memory_is_stuck(const struct dv_sim_session *session);
/* A hold begins, and the set is not there: the session's state is MOVING. */
void dv_sim_memory_begin(struct dv_engine *engine, struct dv_sim_session *session);
/* A hold in which the set was moved goes on with kernels, or ends. */
void dv_sim_memory_end(struct dv_engine *engine, struct dv_sim_session *session, bool is_there);
/* Notes a message of the daemon. */
void dv_sim_memory_hear(struct dv_sim_session *session, const struct dv_memory_message *m);
/* Does what the session can do now: evicts for others, brings its set in, or asks for room. */
void dv_sim_memory_step(struct dv_engine *engine, struct dv_sim_session *session);
/* A piece is copied. */
void dv_sim_memory_copied(struct dv_engine *engine, struct dv_sim_session *session);
/* Begins to bring in the set of a session that waits, if a copy engine is idle. */
void dv_sim_memory_ahead(struct dv_engine *engine, struct dv_sim_device *device);
/* The session is gone, and its memory with it. */
void dv_sim_memory_forget(struct dv_sim_session *session);

#endif
