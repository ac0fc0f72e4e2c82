/* Generated from the API specification by tools/generate.py. Do not edit. */
#ifndef DV_WORKER_DISPATCH_H
#define DV_WORKER_DISPATCH_H

#include "toy_wire.h"

struct dvk_worker;
struct dvk_command;

/* Written by hand in src/worker/toy/: one function a message. `tail` follows the
 * fixed part; it is a private copy. */
int32_t dvk_on_hang_lamp(struct dvk_worker *w, const struct dvw_hang_lamp *m, const uint8_t *tail,
        size_t tail_bytes, struct dvk_reply *reply);
void dvk_on_set_shade(struct dvk_worker *w, const struct dvw_set_shade *m, const uint8_t *tail,
        size_t tail_bytes);
int32_t dvk_on_query(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *tail,
        size_t tail_bytes, struct dvk_reply *reply);
int32_t dvk_resolve_wait(struct dvk_worker *w, struct dvk_command *c);
int32_t dvk_submit_wait(struct dvk_worker *w, struct dvk_command *c);
int32_t dvk_resolve_toyEnqueuePaint(struct dvk_worker *w, struct dvk_command *c);
int32_t dvk_submit_toyEnqueuePaint(struct dvk_worker *w, struct dvk_command *c);

/* One entry of the table of messages. */
struct dvk_message_info {
    const char *name;
    uint32_t bytes; /* of the fixed part */
    uint32_t style; /* enum dvk_style */
    uint32_t writes; /* a bit for each object kept for the command that it writes */
    uint32_t writes_list; /* 1: those of its list */
    void (*send)(struct dvk_worker *, const void *, const uint8_t *, size_t);
    int32_t (*call)(struct dvk_worker *, const void *, const uint8_t *, size_t,
                    struct dvk_reply *);
    int32_t (*resolve)(struct dvk_worker *, struct dvk_command *);
    int32_t (*submit)(struct dvk_worker *, struct dvk_command *);
};
extern const struct dvk_message_info dvk_messages[DVW_OP_COUNT];

int32_t dvk_query(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input,
                  size_t capacity, void *value, size_t *bytes);

#endif
