/* Commands and events. */
#ifndef DV_CLIENT_OPENCL_ENQUEUE_H
#define DV_CLIENT_OPENCL_ENQUEUE_H

#include "src/client/opencl/objects.h"

/* ---- event.c ---- */
struct dvc_event *dvc_event_create(struct dvc_context *context, struct dvc_queue *queue, cl_command_type command);
cl_int dvc_event_status(struct dvc_event *event);
cl_int dvc_event_check_profiling(struct dvc_event *event);
/* Waits for the event; returns its final status. */
cl_int dvc_event_wait(struct dvc_event *event);
/* Completes the event of a command that the client has finished itself. */
void dvc_event_complete_here(struct dvc_event *event, cl_ulong start_ns);
void dvc_event_fire_callbacks(struct dvc_event *event);
cl_int dvc_check_waits(struct dvc_context *context, cl_uint count, const cl_event *list);

/* ---- enqueue.c ---- */
cl_int dvc_enqueue(struct dvc_queue *queue, uint16_t op, struct dv_queue_head *message, size_t bytes, const void *tail,
                   size_t tail_bytes, cl_command_type command, cl_uint wait_count, const cl_event *waits,
                   cl_event *event);
/* The same with the queue's lock held. The caller has created the event, if any; this sets its number. */
cl_int dvc_enqueue_locked(struct dvc_queue *queue, uint16_t op, struct dv_queue_head *message, size_t bytes,
                          const void *tail, size_t tail_bytes, cl_uint wait_count, const cl_event *waits,
                          struct dvc_event *event);
bool dvc_queue_idle(struct dvc_queue *queue);
void dvc_queue_wait(struct dvc_queue *queue, uint64_t number);
/* Whether any event of the list is not yet complete. */
bool dvc_waits_pending(cl_uint count, const cl_event *list);

cl_int dvc_check_ndrange(struct dvc_queue *queue, struct dvc_kernel *kernel, cl_uint dims, const size_t *offset,
                         const size_t *global, const size_t *local);
cl_int dvc_check_copy_buffer(struct dvc_queue *queue, struct dvc_mem *src, struct dvc_mem *dst, size_t src_offset,
                             size_t dst_offset, size_t size);
cl_int dvc_check_copy_buffer_rect(struct dvc_queue *queue, struct dvc_mem *src, struct dvc_mem *dst,
                                  const size_t *src_origin, const size_t *dst_origin, const size_t *region,
                                  size_t src_row_pitch, size_t src_slice_pitch, size_t dst_row_pitch,
                                  size_t dst_slice_pitch);
cl_int dvc_check_copy_image(struct dvc_queue *queue, struct dvc_mem *src, struct dvc_mem *dst, const size_t *src_origin,
                            const size_t *dst_origin, const size_t *region);
cl_int dvc_check_copy_image_to_buffer(struct dvc_queue *queue, struct dvc_mem *image, struct dvc_mem *buffer,
                                      const size_t *origin, const size_t *region, size_t offset);
cl_int dvc_check_copy_buffer_to_image(struct dvc_queue *queue, struct dvc_mem *buffer, struct dvc_mem *image,
                                      size_t offset, const size_t *origin, const size_t *region);
cl_int dvc_check_fill_buffer(struct dvc_queue *queue, struct dvc_mem *buffer, const void *pattern, size_t pattern_size,
                             size_t offset, size_t size);
cl_int dvc_check_fill_image(struct dvc_queue *queue, struct dvc_mem *image, const void *color, const size_t *origin,
                            const size_t *region);
cl_int dvc_check_migrate(struct dvc_queue *queue, cl_uint count, const cl_mem *list, cl_mem_migration_flags flags);

#endif
