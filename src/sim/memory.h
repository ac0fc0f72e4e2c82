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

enum dv_bring {
    DV_BRING_THERE,
    DV_BRING_MOVES,  /* its state is MOVING, and events follow */
    DV_BRING_NO_ROOM /* beside the sets of those who hold the device, too */
};

/* A turn begins. */
enum dv_bring dv_sim_memory_bring(struct dv_engine *engine, struct dv_sim_session *session);
/* Those events. After the second, or after the move was stopped, the session can go on. */
void dv_sim_memory_has_room(struct dv_engine *engine, struct dv_sim_session *session);
void dv_sim_memory_is_there(struct dv_engine *engine, struct dv_sim_session *session);
void dv_sim_memory_stopped(struct dv_engine *engine, struct dv_sim_session *session);
/* A session that moves was recalled, or leaves: it stops after the piece that is under way. */
void dv_sim_memory_stop(struct dv_engine *engine, struct dv_sim_session *session);

/* It leaves and takes its memory with it. */
void dv_sim_memory_forget(struct dv_engine *engine, struct dv_sim_session *session);
/* Starts to bring in the set of a session that waits, where a copy engine has nothing to do. */
void dv_sim_memory_ahead(struct dv_engine *engine, struct dv_sim_device *device);
/* That set is there. */
void dv_sim_memory_ahead_done(struct dv_engine *engine, struct dv_sim_device *device);

#endif
