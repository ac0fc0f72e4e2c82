/* The daemon of a simulation: divvyd's own ledger, at virtual time. It exchanges messages of the lease
 * channel with sessions. */
#ifndef DV_SIM_DAEMON_H
#define DV_SIM_DAEMON_H

#include "src/sim/private.h"

/* Messages of the daemon to a session. None of these may call the daemon: they are called in the middle of
 * a decision. */
struct dv_daemon_events {
    void (*lease)(struct dv_engine *engine, struct dv_sim_session *session, const struct dv_lease_message *m);
    void (*memory)(struct dv_engine *engine, struct dv_sim_session *session, const struct dv_memory_message *m);
    /* The daemon looks at a device again without a message. */
    void (*asked_again)(struct dv_engine *engine, struct dv_sim_device *device);
};

/* Tells the ledger of the devices of engine->sim. */
void dv_daemon_start(struct dv_engine *engine, const struct dv_daemon_events *events);
/* Sessions that are still there leave. */
void dv_daemon_stop(struct dv_engine *engine);

/* Admits the sessions of a tenant, all on one device, and sets tenant->device. Returns 0, or a negative errno:
 * -ENOSPC if no device can take it. */
int dv_daemon_join(struct dv_engine *engine, struct dv_sim_tenant *tenant);
/* A session ends, and all its holds with it. */
void dv_daemon_leave(struct dv_sim_session *session);

/* Messages of a session. */
void dv_daemon_want(struct dv_sim_session *session);
void dv_daemon_release(struct dv_sim_session *session, bool again);
void dv_daemon_memory(struct dv_sim_session *session, enum dv_memory_type type, uint64_t id, uint64_t bytes,
                      uint32_t flags);

/* A timer of the ledger is due: the event that it pushed. */
void dv_daemon_timer(struct dv_engine *engine, const struct dv_event *event);

#endif
