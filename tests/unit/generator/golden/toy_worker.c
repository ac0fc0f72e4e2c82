/* Generated from the API specification by tools/generate.py. Do not edit. */
#include "src/base/cleanup.h"
#include "src/worker/toy/executor.h"

static int32_t call_hang_lamp(struct dvk_worker *w, const void *m, const uint8_t *tail, size_t bytes,
    struct dvk_reply *reply)
{
    return dvk_on_hang_lamp(w, m, tail, bytes, reply);
}

static void send_set_shade(struct dvk_worker *w, const void *m, const uint8_t *tail, size_t bytes)
{
    dvk_on_set_shade(w, m, tail, bytes);
}

static int32_t call_query(struct dvk_worker *w, const void *m, const uint8_t *tail, size_t bytes,
    struct dvk_reply *reply)
{
    return dvk_on_query(w, m, tail, bytes, reply);
}

static int32_t resolve_toyEnqueueBlink(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_toyEnqueueBlink *m = (const void *)c->record;
    (void)m;
    if (!dvk_command_keep_lamp(w, c, 0, m->lamp))
        return TOY_BAD_LAMP;
    return 0;
}

static int32_t submit_toyEnqueueBlink(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_toyEnqueueBlink *m = (const void *)c->record;
    (void)m;
    (void)w;
    const size_t pattern[3] = {m->pattern[0], m->pattern[1], m->pattern[2]};
    const size_t pause[3] = {m->pause[0], m->pause[1], m->pause[2]};
    return toyEnqueueBlink(dvk_command_queue(c), dvk_command_lamp(c, 0), (uint64_t)m->times, (uint32_t)m->dims, pattern, m->has_pause ? pause : NULL, c->wait_count, c->waits,
        dvk_command_event(c));
}

static int32_t resolve_toyEnqueueDarken(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_toyEnqueueDarken *m = (const void *)c->record;
    (void)m;
    if (m->count > dvk_command_tail_bytes(c, sizeof *m) / sizeof(uint32_t))
        return DV_BAD_VALUE;
    if (!dvk_command_keep_lamp_list(w, c, (const struct dv_object_id *)(m + 1), m->count))
        return TOY_BAD_LAMP;
    return 0;
}

static int32_t submit_toyEnqueueDarken(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_toyEnqueueDarken *m = (const void *)c->record;
    (void)m;
    (void)w;
    DV_AUTO_FREE toy_lamp *objects = dvk_command_lamp_list(c);
    if (!objects)
        return DV_NO_MEMORY;
    return toyEnqueueDarken(dvk_command_queue(c), (uint32_t)m->count, objects, c->wait_count, c->waits,
        dvk_command_event(c));
}

const struct dvk_message_info dvk_messages[DVW_OP_COUNT] = {
    [DVW_OP_HANG_LAMP] = {"hang_lamp", sizeof(struct dvw_hang_lamp), DVK_STYLE_CALL, .call = call_hang_lamp},
    [DVW_OP_SET_SHADE] = {"set_shade", sizeof(struct dvw_set_shade), DVK_STYLE_SEND, .send = send_set_shade},
    [DVW_OP_QUERY] = {"query", sizeof(struct dvw_query), DVK_STYLE_CALL, .call = call_query},
    [DVW_OP_WAIT] = {"wait", sizeof(struct dvw_wait), DVK_STYLE_QUEUE, .resolve = dvk_resolve_wait, .submit = dvk_submit_wait},
    [DVW_OP_TOY_ENQUEUE_BLINK] = {"toyEnqueueBlink", sizeof(struct dvw_toyEnqueueBlink), DVK_STYLE_QUEUE, .writes = 0, .writes_list = 0, .resolve = resolve_toyEnqueueBlink, .submit = submit_toyEnqueueBlink},
    [DVW_OP_TOY_ENQUEUE_PAINT] = {"toyEnqueuePaint", sizeof(struct dvw_toyEnqueuePaint), DVK_STYLE_QUEUE, .resolve = dvk_resolve_toyEnqueuePaint, .submit = dvk_submit_toyEnqueuePaint},
    [DVW_OP_TOY_ENQUEUE_DARKEN] = {"toyEnqueueDarken", sizeof(struct dvw_toyEnqueueDarken), DVK_STYLE_QUEUE, .writes = 0, .writes_list = 1, .resolve = resolve_toyEnqueueDarken, .submit = submit_toyEnqueueDarken},
};

int32_t dvk_query(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input,
                  size_t capacity, void *value, size_t *bytes)
{
    switch (m->function) {
    case DVW_QUERY_toyAskLamp: {
        struct dvk_lamp *o = dvk_find_lamp(w, m->object);
        if (!o)
            return TOY_BAD_LAMP;
        struct dvk_device *d = dvk_find_device(w, m->device);
        if (!d && m->device.value)
            return TOY_BAD_LAMP;
        switch (m->param) {
        case TOY_LAMP_HISTORY:
        case TOY_LAMP_SECRET:
            return toyAskLamp(o->vendor, d ? d->vendor : NULL, m->param, m->input_bytes, m->input_bytes ? input : NULL, capacity, value, bytes);
        default:
            return DV_BAD_VALUE;
        }
    }
    default:
        return dvk_query_by_hand(w, m, input, capacity, value, bytes);
    }
}
