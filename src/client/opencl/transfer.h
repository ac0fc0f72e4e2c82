/* Moving bytes between the application's memory and memory objects. */
#ifndef DV_CLIENT_OPENCL_TRANSFER_H
#define DV_CLIENT_OPENCL_TRANSFER_H

#include "src/client/opencl/enqueue.h"
#include "src/client/opencl/region.h"

/* A read or a write. */
struct dvc_transfer {
    struct dvc_queue *queue;
    enum dv_direction direction;
    struct dvc_mem *mem;
    const struct dvc_region *region;
    uint8_t *host;
    bool blocking;
    cl_uint wait_count;
    const cl_event *waits;
    struct dvc_event *event; /* or NULL; set by dvc_transfer */
};

/* ---- transfer.c ---- */
/* Runs or enqueues it. */
cl_int dvc_transfer(struct dvc_transfer *t, cl_command_type command, cl_event *event_ret);

/* ---- read_write.c ---- */
#define DV_NO_READ (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)
#define DV_NO_WRITE (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)
/* forbidden: flags that the object must not have. */
cl_int dvc_check_transfer(struct dvc_queue *queue, struct dvc_mem *mem, cl_mem_flags forbidden, const void *host,
                          cl_uint wait_count, const cl_event *waits);

/* ---- pump.c ---- */
/* Whether the object's bytes are in the arena. */
bool dvc_has_storage(const struct dvc_mem *mem);
void dvc_fill_transfer(struct dvw_transfer *m, const struct dvc_mem *mem, enum dv_direction direction,
                       const struct dvc_region *r);
/* Moves the bytes now, for a command that is ready. */
cl_int dvc_move(struct dvc_queue *queue, struct dvc_mem *mem, enum dv_direction direction, const struct dvc_region *r,
                uint8_t *host);

/* ---- host_commands.c ---- */
/* Enqueues it for the helper. The queue's lock is held. */
cl_int dvc_host_enqueue(const struct dvc_transfer *t);
/* Whether a pending read will still write into this memory. */
bool dvc_host_awaits_read(struct dvc_session *s, const uint8_t *from, size_t bytes);
void dvc_host_stamp(struct dvc_event *event, cl_ulong start);
void dvc_host_tell_done(struct dvc_session *s, struct dv_object_id queue_id, uint64_t first, uint64_t last,
                        cl_int status);
/* A host command is ready, or will never run (from the helper). */
void dvc_host_ready(struct dvc_session *s, struct dv_object_id queue_id, uint64_t number, bool cancelled);
/* None of them will run: the worker is gone. */
void dvc_host_give_up(struct dvc_session *s);
/* Reports to the worker the commands that dvc_host_ready has run since the last call. */
void dvc_host_flush(struct dvc_session *s);

#endif
