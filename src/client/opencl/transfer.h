/* Commands that the client runs itself: reads and writes of application memory. */
#ifndef DV_CLIENT_OPENCL_TRANSFER_H
#define DV_CLIENT_OPENCL_TRANSFER_H

#include "src/client/opencl/enqueue.h"
#include "src/client/opencl/region.h"

/* It is a host command's turn, or it will never run (from the helper). */
void dv_host_ready(struct dv_session *s, uint32_t queue_id, uint64_t number, bool cancelled);
/* None of them will have its turn: the worker is gone. */
void dv_host_give_up(struct dv_session *s);
/* Tells the worker of what dv_host_ready has done since. */
void dv_host_flush(struct dv_session *s);

#endif
