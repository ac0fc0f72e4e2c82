/* The keeper: a small process beside divvyd that holds a copy of each descriptor which sessions need to
 * outlive the daemon, however it ends, and hands them to the next (src/wire/restart/keeper.h). */
#ifndef DV_KEEPER_KEEPER_H
#define DV_KEEPER_KEEPER_H

/* Serves daemons that connect to the listening socket, one after the other. Returns when it is told to
 * quit, or when there has been no daemon for too long. */
void dv_keeper_run(int listen_fd);

#endif
