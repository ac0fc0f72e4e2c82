/* Generated from the API specification by tools/generate.py. Do not edit. */
#include <string.h>

#include "src/base/cleanup.h"
#include "src/client/toy/enqueue.h"

toy_status DV_ENTRY dvc_toyRetainLamp(toy_lamp lamp)
{
    struct dvc_lamp *o = dvc_lamp_of(lamp);
    if (!o)
        return TOY_BAD_LAMP;
    return dvc_lamp_retain(o);
}

toy_status DV_ENTRY dvc_toyReleaseLamp(toy_lamp lamp)
{
    struct dvc_lamp *o = dvc_lamp_of(lamp);
    if (!o)
        return TOY_BAD_LAMP;
    return dvc_lamp_release(o);
}

toy_status DV_ENTRY dvc_toyGetLampInfo(toy_lamp lamp, toy_param param, size_t size, void *value, size_t *size_ret)
{
    struct dvc_lamp *o = dvc_lamp_of(lamp);
    if (!o)
        return TOY_BAD_LAMP;
    int32_t error = dvc_lamp_look(o);
    if (error)
        return error;
    switch (param) {
    case TOY_LAMP_NAME:
        return dvc_info_text(o->name, size, value, size_ret);
    case TOY_LAMP_WATTS: {
        uint32_t answer = o->watts;
        return dvc_info_bytes(&answer, sizeof answer, size, value, size_ret);
    }
    case TOY_LAMP_HISTORY:
        return dvc_info_bytes(o->history, o->history_bytes, size, value, size_ret);
    case TOY_LAMP_SECRET:
        return TOY_NOT_HERE;
    default:
        return DV_BAD_VALUE;
    }
}

toy_status DV_ENTRY dvc_toyEnqueueBlink(toy_wire wire, toy_lamp lamp, uint64_t times, uint32_t dims, const size_t *pattern, const size_t *pause, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event)
{
    struct dvc_queue *queue_ = dvc_queue_of(wire);
    if (!queue_)
        return TOY_BAD_WIRE;
    struct dvc_lamp *lamp_ = dvc_lamp_of(lamp);
    if (!lamp_)
        return TOY_BAD_LAMP;
    int32_t error = dvc_check_waits(queue_->context, num_events_in_wait_list, event_wait_list);
    if (!error)
        error = dvc_check_blink(queue_, lamp_, times, dims, pattern, pause);
    if (error)
        return error;
    struct dvw_toyEnqueueBlink message;
    memset(&message, 0, sizeof message);
    message.lamp = lamp_->object.id;
    message.times = (uint64_t)times;
    message.dims = (uint32_t)dims;
    for (uint32_t i = 0; i < 3; i++)
        message.pattern[i] = pattern[i];
    message.has_pause = pause != NULL;
    if (pause)
        for (uint32_t i = 0; i < dims; i++)
            message.pause[i] = pause[i];
    return dvc_enqueue(queue_, DVW_OP_TOY_ENQUEUE_BLINK, &message.head, sizeof message, NULL, 0,
                      TOY_BLINK, num_events_in_wait_list, event_wait_list, event);
}

toy_status DV_ENTRY dvc_toyEnqueuePaint(toy_wire wire, toy_lamp lamp, const void *colour, size_t colour_size, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event)
{
    struct dvc_queue *queue_ = dvc_queue_of(wire);
    if (!queue_)
        return TOY_BAD_WIRE;
    struct dvc_lamp *lamp_ = dvc_lamp_of(lamp);
    if (!lamp_)
        return TOY_BAD_LAMP;
    int32_t error = dvc_check_waits(queue_->context, num_events_in_wait_list, event_wait_list);
    if (!error)
        error = dvc_check_paint(queue_, lamp_, colour, colour_size);
    if (error)
        return error;
    struct dvw_toyEnqueuePaint message;
    memset(&message, 0, sizeof message);
    message.lamp = lamp_->object.id;
    message.colour_bytes = (uint32_t)(colour_size);
    message.colour_size = (uint64_t)colour_size;
    return dvc_enqueue(queue_, DVW_OP_TOY_ENQUEUE_PAINT, &message.head, sizeof message, colour, colour_size,
                      TOY_PAINT, num_events_in_wait_list, event_wait_list, event);
}

toy_status DV_ENTRY dvc_toyEnqueueDarken(toy_wire wire, uint32_t count, const toy_lamp *lamps, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event)
{
    struct dvc_queue *queue_ = dvc_queue_of(wire);
    if (!queue_)
        return TOY_BAD_WIRE;
    int32_t error = dvc_check_waits(queue_->context, num_events_in_wait_list, event_wait_list);
    if (!error)
        error = dvc_check_darken(queue_, count, lamps);
    if (error)
        return error;
    DV_AUTO_FREE struct dv_object_id *ids = dvc_ids_of_lamp(count, lamps);
    if (!ids)
        return DV_NO_MEMORY;
    struct dvw_toyEnqueueDarken message;
    memset(&message, 0, sizeof message);
    message.count = (uint32_t)count;
    return dvc_enqueue(queue_, DVW_OP_TOY_ENQUEUE_DARKEN, &message.head, sizeof message, ids, sizeof(struct dv_object_id) * count,
                      TOY_DARKEN, num_events_in_wait_list, event_wait_list, event);
}

static void * DV_ENTRY absent_toyShareWithSun(toy_wire wire, toy_status *errcode_ret)
{
    if (errcode_ret)
        *errcode_ret = TOY_NOT_HERE;
    return NULL;
}

static void DV_ENTRY absent_toyForget(toy_lamp lamp)
{
}

/* For entries without a prototype in this system's headers. */
static toy_status DV_ENTRY absent_without_prototype(void)
{
    return TOY_NOT_HERE;
}

static toy_lamp DV_ENTRY logged_toyHangLamp(toy_wire wire, uint32_t watts, toy_status *errcode_ret)
{
    toy_lamp result = dvc_toyHangLamp(wire, watts, errcode_ret);
    dvc_log_call("toyHangLamp(wire=%p, watts=%lld, errcode_ret=%p) = %p", (void *)(uintptr_t)wire, (long long)watts, (void *)(uintptr_t)errcode_ret, (void *)(uintptr_t)result);
    return result;
}

static toy_status DV_ENTRY logged_toyRetainLamp(toy_lamp lamp)
{
    toy_status result = dvc_toyRetainLamp(lamp);
    dvc_log_call("toyRetainLamp(lamp=%p) = %d", (void *)(uintptr_t)lamp, (int)result);
    return result;
}

static toy_status DV_ENTRY logged_toyReleaseLamp(toy_lamp lamp)
{
    toy_status result = dvc_toyReleaseLamp(lamp);
    dvc_log_call("toyReleaseLamp(lamp=%p) = %d", (void *)(uintptr_t)lamp, (int)result);
    return result;
}

static toy_status DV_ENTRY logged_toyGetLampInfo(toy_lamp lamp, toy_param param, size_t size, void *value, size_t *size_ret)
{
    toy_status result = dvc_toyGetLampInfo(lamp, param, size, value, size_ret);
    dvc_log_call("toyGetLampInfo(lamp=%p, param=%lld, size=%lld, value=%p, size_ret=%p) = %d", (void *)(uintptr_t)lamp, (long long)param, (long long)size, (void *)(uintptr_t)value, (void *)(uintptr_t)size_ret, (int)result);
    return result;
}

static toy_status DV_ENTRY logged_toyAskLamp(toy_lamp lamp, toy_lamp neighbour, toy_param param, size_t input_size, const void *input, size_t size, void *value, size_t *size_ret)
{
    toy_status result = dvc_toyAskLamp(lamp, neighbour, param, input_size, input, size, value, size_ret);
    dvc_log_call("toyAskLamp(lamp=%p, neighbour=%p, param=%lld, input_size=%lld, input=%p, size=%lld, value=%p, size_ret=%p) = %d", (void *)(uintptr_t)lamp, (void *)(uintptr_t)neighbour, (long long)param, (long long)input_size, (void *)(uintptr_t)input, (long long)size, (void *)(uintptr_t)value, (void *)(uintptr_t)size_ret, (int)result);
    return result;
}

static toy_status DV_ENTRY logged_toyEnqueueBlink(toy_wire wire, toy_lamp lamp, uint64_t times, uint32_t dims, const size_t *pattern, const size_t *pause, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event)
{
    toy_status result = dvc_toyEnqueueBlink(wire, lamp, times, dims, pattern, pause, num_events_in_wait_list, event_wait_list, event);
    dvc_log_call("toyEnqueueBlink(wire=%p, lamp=%p, times=%lld, dims=%lld, pattern=%p, pause=%p, num_events_in_wait_list=%lld, event_wait_list=%p, event=%p) = %d", (void *)(uintptr_t)wire, (void *)(uintptr_t)lamp, (long long)times, (long long)dims, (void *)(uintptr_t)pattern, (void *)(uintptr_t)pause, (long long)num_events_in_wait_list, (void *)(uintptr_t)event_wait_list, (void *)(uintptr_t)event, (int)result);
    return result;
}

static toy_status DV_ENTRY logged_toyEnqueuePaint(toy_wire wire, toy_lamp lamp, const void *colour, size_t colour_size, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event)
{
    toy_status result = dvc_toyEnqueuePaint(wire, lamp, colour, colour_size, num_events_in_wait_list, event_wait_list, event);
    dvc_log_call("toyEnqueuePaint(wire=%p, lamp=%p, colour=%p, colour_size=%lld, num_events_in_wait_list=%lld, event_wait_list=%p, event=%p) = %d", (void *)(uintptr_t)wire, (void *)(uintptr_t)lamp, (void *)(uintptr_t)colour, (long long)colour_size, (long long)num_events_in_wait_list, (void *)(uintptr_t)event_wait_list, (void *)(uintptr_t)event, (int)result);
    return result;
}

static toy_status DV_ENTRY logged_toyEnqueueDarken(toy_wire wire, uint32_t count, const toy_lamp *lamps, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event)
{
    toy_status result = dvc_toyEnqueueDarken(wire, count, lamps, num_events_in_wait_list, event_wait_list, event);
    dvc_log_call("toyEnqueueDarken(wire=%p, count=%lld, lamps=%p, num_events_in_wait_list=%lld, event_wait_list=%p, event=%p) = %d", (void *)(uintptr_t)wire, (long long)count, (void *)(uintptr_t)lamps, (long long)num_events_in_wait_list, (void *)(uintptr_t)event_wait_list, (void *)(uintptr_t)event, (int)result);
    return result;
}

static void * DV_ENTRY logged_toyShareWithSun(toy_wire wire, toy_status *errcode_ret)
{
    void *result = absent_toyShareWithSun(wire, errcode_ret);
    dvc_log_call("toyShareWithSun(wire=%p, errcode_ret=%p) = %p", (void *)(uintptr_t)wire, (void *)(uintptr_t)errcode_ret, (void *)(uintptr_t)result);
    return result;
}

static void DV_ENTRY logged_toyForget(toy_lamp lamp)
{
    absent_toyForget(lamp);
    dvc_log_call("toyForget(lamp=%p)", (void *)(uintptr_t)lamp);
}

const struct toy_table dvc_dispatch = {
    .toyHangLamp = dvc_toyHangLamp,
    .toyRetainLamp = dvc_toyRetainLamp,
    .toyReleaseLamp = dvc_toyReleaseLamp,
    .toyGetLampInfo = dvc_toyGetLampInfo,
    .toyAskLamp = dvc_toyAskLamp,
    .toyEnqueueBlink = dvc_toyEnqueueBlink,
    .toyEnqueuePaint = dvc_toyEnqueuePaint,
    .toyEnqueueDarken = dvc_toyEnqueueDarken,
    .toyShareWithSun = absent_toyShareWithSun,
    .toyForget = absent_toyForget,
    .toyOld = (void *)absent_without_prototype,
};

const struct toy_table dvc_dispatch_logged = {
    .toyHangLamp = logged_toyHangLamp,
    .toyRetainLamp = logged_toyRetainLamp,
    .toyReleaseLamp = logged_toyReleaseLamp,
    .toyGetLampInfo = logged_toyGetLampInfo,
    .toyAskLamp = logged_toyAskLamp,
    .toyEnqueueBlink = logged_toyEnqueueBlink,
    .toyEnqueuePaint = logged_toyEnqueuePaint,
    .toyEnqueueDarken = logged_toyEnqueueDarken,
    .toyShareWithSun = logged_toyShareWithSun,
    .toyForget = logged_toyForget,
    .toyOld = (void *)absent_without_prototype,
};

void *dvc_function_by_name(const char *name)
{
    static const struct {
        const char *name;
        size_t offset;
    } table[] = {
        {"toyHangLamp", offsetof(struct toy_table, toyHangLamp)},
        {"toyRetainLamp", offsetof(struct toy_table, toyRetainLamp)},
        {"toyReleaseLamp", offsetof(struct toy_table, toyReleaseLamp)},
        {"toyGetLampInfo", offsetof(struct toy_table, toyGetLampInfo)},
        {"toyAskLamp", offsetof(struct toy_table, toyAskLamp)},
        {"toyEnqueueBlink", offsetof(struct toy_table, toyEnqueueBlink)},
        {"toyEnqueuePaint", offsetof(struct toy_table, toyEnqueuePaint)},
        {"toyEnqueueDarken", offsetof(struct toy_table, toyEnqueueDarken)},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(name, table[i].name) == 0)
            return *(void *const *)((const char *)&dvc_dispatch + table[i].offset);
    return NULL;
}
