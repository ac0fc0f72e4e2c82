/* As much of a worker as the generated half of the made-up API needs to compile. */
#ifndef TOY_EXECUTOR_H
#define TOY_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <toy.h>

struct dvk_reply;
enum dvk_style { DVK_STYLE_SEND, DVK_STYLE_CALL, DVK_STYLE_QUEUE };

#include "toy_worker.h"

struct dvk_lamp {
    toy_lamp vendor;
};
struct dvk_device {
    toy_lamp vendor;
};
struct dvk_command {
    uint32_t wait_count;
    toy_event *waits;
    uint8_t *record;
};

bool dvk_command_keep_lamp(struct dvk_worker *w, struct dvk_command *c, int at, struct dv_object_id id);
toy_lamp dvk_command_lamp(struct dvk_command *c, int at);
toy_wire dvk_command_queue(struct dvk_command *c);
toy_event *dvk_command_event(struct dvk_command *c);
size_t dvk_command_tail_bytes(const struct dvk_command *c, size_t fixed);
struct dvk_lamp *dvk_find_lamp(struct dvk_worker *w, struct dv_object_id id);
struct dvk_device *dvk_find_device(struct dvk_worker *w, struct dv_object_id id);
bool dvk_command_keep_lamp_list(struct dvk_worker *w, struct dvk_command *c, const struct dv_object_id *ids,
                                uint32_t count);
toy_lamp *dvk_command_lamp_list(const struct dvk_command *c);
int32_t dvk_query_by_hand(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input,
                          size_t capacity, void *value, size_t *bytes);

#endif
