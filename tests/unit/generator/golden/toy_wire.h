/* Generated from the API specification by tools/generate.py. Do not edit. */
#ifndef DV_TOY_WIRE_H
#define DV_TOY_WIRE_H

#include <assert.h>
#include <stdint.h>

#include "src/wire/session/record.h"

#define DV_ENTRY TOY_CALL
#define DV_BAD_VALUE TOY_BAD_VALUE
#define DV_NO_MEMORY TOY_NO_MEMORY

enum dvw_op {
    DVW_OP_PAD = 0, /* fills the ring's end */
    DVW_OP_HANG_LAMP = 1,
    DVW_OP_SET_SHADE = 2,
    DVW_OP_QUERY = 3,
    DVW_OP_WAIT = 4,
    DVW_OP_TOY_ENQUEUE_BLINK = 5,
    DVW_OP_TOY_ENQUEUE_PAINT = 6,
    DVW_OP_TOY_ENQUEUE_DARKEN = 7,
    DVW_OP_COUNT = 8,
};

/* Functions that a `query` message can name. */
enum dvw_query_function {
    DVW_QUERY_toyAskLamp = 1,
};

/* a lamp on a wire */
struct dvw_hang_lamp {
    struct dv_call_head head;
    struct dv_object_id id;
    uint32_t watts;
    struct dv_object_id wire;
    uint32_t padding;
};
static_assert(sizeof(struct dvw_hang_lamp) == 40, "wire");

/* a shade; then: cloth */
struct dvw_set_shade {
    struct dv_record head;
    uint64_t height;
    uint64_t corner[3];
    struct dv_object_id lamp;
    int32_t tilt;
};
static_assert(sizeof(struct dvw_set_shade) == 48, "wire");

/* a question for the vendor; then: input */
struct dvw_query {
    struct dv_call_head head;
    uint32_t function;
    struct dv_object_id object;
    struct dv_object_id device;
    uint32_t param;
    uint32_t input_bytes;
    uint32_t padding;
};
static_assert(sizeof(struct dvw_query) == 48, "wire");

/* nothing for a while */
struct dvw_wait {
    struct dv_queue_head head;
    uint32_t seconds;
    uint32_t padding;
};
static_assert(sizeof(struct dvw_wait) == 48, "wire");

/* the command of that name */
struct dvw_toyEnqueueBlink {
    struct dv_queue_head head;
    uint64_t times;
    uint64_t pattern[3];
    uint64_t pause[3];
    struct dv_object_id lamp;
    uint32_t dims;
    uint32_t has_pause;
    uint32_t padding;
};
static_assert(sizeof(struct dvw_toyEnqueueBlink) == 112, "wire");

/* the command of that name; then: colour */
struct dvw_toyEnqueuePaint {
    struct dv_queue_head head;
    uint64_t colour_size;
    struct dv_object_id lamp;
    uint32_t colour_bytes;
};
static_assert(sizeof(struct dvw_toyEnqueuePaint) == 56, "wire");

/* the command of that name; then: object ids of lamps */
struct dvw_toyEnqueueDarken {
    struct dv_queue_head head;
    uint32_t count;
    uint32_t padding;
};
static_assert(sizeof(struct dvw_toyEnqueueDarken) == 48, "wire");

#endif
