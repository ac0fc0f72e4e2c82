/* The objects that commands use, and which of them are to be brought in. */
#ifndef DV_WORKER_OPENCL_WORKING_SET_H
#define DV_WORKER_OPENCL_WORKING_SET_H

#include "src/worker/opencl/moving.h"

/* Notes which managed objects the command uses. Returns false when there is no memory. */
bool dvk_list_uses(struct dvk_command *c);
/* Fills room->set with the objects that a command and those behind it lack, and room->wanted with all that they
 * use. Wanted objects are not evicted, and stay known until they are forgotten. */
struct dvk_set dvk_gather(struct dvk_room *room, struct dvk_command *c);
void dvk_forget_wanted(struct dvk_room *room);

#endif
