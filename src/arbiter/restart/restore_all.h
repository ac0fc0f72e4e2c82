/* Going on where an earlier daemon stopped, however it ended: its state file says what there was, its
 * keeper has the descriptors, and the sessions say themselves what they hold (src/arbiter/restart/state.h,
 * src/arbiter/restart/keeper_client.h, src/wire/lease/sync.h). */
#ifndef DVD_RESTART_RESTORE_ALL_H
#define DVD_RESTART_RESTORE_ALL_H

#include <stdbool.h>

struct dv_arbiter;

/* Opens the state file and finds the keeper. */
void dv_adopt_begin(struct dv_arbiter *arbiter);
/* Returns whether there is a zygote that serves on as it is. */
bool dv_adopt_zygote(struct dv_arbiter *arbiter);
/* One of the listening sockets (enum in src/wire/restart/keeper.h), or -1. */
int dv_adopt_socket(struct dv_arbiter *arbiter, int kind);
/* Tenants and sessions. What makes no sense is left out, and said so. */
void dv_adopt_sessions(struct dv_arbiter *arbiter);

/* Devices are known: a successor will know them, too. */
void dv_adopt_note_devices(struct dv_arbiter *arbiter);

#endif
