/* As much of a client as the generated half of the made-up API needs to compile. */
#ifndef TOY_CLIENT_H
#define TOY_CLIENT_H

#include <stddef.h>

#include "toy_client.h"

struct dvc_object {
    struct dv_object_id id;
};
struct dvc_queue {
    struct dvc_object object;
    void *context;
};
struct dvc_lamp {
    struct dvc_object object;
    const char *name;
    uint32_t watts;
    const void *history;
    size_t history_bytes;
};

struct dvc_queue *dvc_queue_of(toy_wire wire);
struct dvc_lamp *dvc_lamp_of(toy_lamp lamp);
int32_t dvc_lamp_retain(struct dvc_lamp *lamp);
int32_t dvc_lamp_release(struct dvc_lamp *lamp);
int32_t dvc_lamp_look(struct dvc_lamp *lamp);
struct dv_object_id *dvc_ids_of_lamp(uint32_t count, const toy_lamp *lamps);
int32_t dvc_check_waits(void *context, uint32_t count, const toy_event *list);
int32_t dvc_check_blink(struct dvc_queue *queue, struct dvc_lamp *lamp, uint64_t times, uint32_t dims,
                       const size_t *pattern, const size_t *pause);
int32_t dvc_check_paint(struct dvc_queue *queue, struct dvc_lamp *lamp, const void *colour,
                       size_t colour_size);
int32_t dvc_check_darken(struct dvc_queue *queue, uint32_t count, const toy_lamp *lamps);
int32_t dvc_enqueue(struct dvc_queue *queue, uint16_t op, struct dv_queue_head *message, size_t bytes,
                   const void *tail, size_t tail_bytes, int command, uint32_t wait_count,
                   const toy_event *waits, toy_event *event);
int32_t dvc_info_text(const char *text, size_t room, void *into, size_t *bytes_ret);
int32_t dvc_info_bytes(const void *value, size_t bytes, size_t room, void *into, size_t *bytes_ret);
void dvc_log_call(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
