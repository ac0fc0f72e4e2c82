/*
 * Queues, the commands in them and the events that tell of them. Each queue has one thread that
 * runs its commands; it takes them in order, or any that is ready from an out-of-order queue.
 */
#include "vendor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- events ---------------------------------------------------------------------------------*/

static void destroy_event(struct dv_object *object)
{
    cl_event event = (cl_event)object;
    while (event->callbacks != NULL) {
        struct dv_event_callback *callback = event->callbacks;
        event->callbacks = callback->next;
        free(callback);
    }
    if (event->queue != NULL) {
        dv_object_unref(event->queue);
    }
    dv_object_unref(event->context);
    free(event);
}

static cl_event create_event(cl_context context, cl_command_queue queue, cl_command_type type)
{
    cl_event event = calloc(1, sizeof *event);
    if (event == NULL) {
        return NULL;
    }
    dv_object_init(&event->base, DV_KIND_EVENT, destroy_event);
    dv_object_ref(context);
    event->context = context;
    if (queue != NULL) {
        dv_object_ref(queue);
        event->queue = queue;
    }
    event->type = type;
    event->status = queue != NULL ? CL_QUEUED : CL_SUBMITTED;
    event->queued_ns = dv_now_ns();
    return event;
}

static bool is_over(cl_event event)
{
    return event->status <= CL_COMPLETE;
}

/* Sets the status, with the lock held, and returns the callbacks that are due. */
static struct dv_event_callback *set_status_locked(cl_event event, cl_int status)
{
    event->status = status;
    struct dv_event_callback *due = NULL;
    struct dv_event_callback **place = &event->callbacks;
    while (*place != NULL) {
        struct dv_event_callback *callback = *place;
        if (status <= callback->type) {
            *place = callback->next;
            callback->next = due;
            due = callback;
        } else {
            place = &callback->next;
        }
    }
    pthread_cond_broadcast(&event->context->changed);
    return due;
}

/* Calls what set_status_locked returned, with no lock held. */
static void run_callbacks(cl_event event, struct dv_event_callback *due, cl_int status)
{
    while (due != NULL) {
        struct dv_event_callback *callback = due;
        due = callback->next;
        callback->notify(event, status < 0 ? status : callback->type, callback->user_data);
        free(callback);
    }
}

static void change_status(cl_event event, cl_int status, cl_ulong *timestamp)
{
    pthread_mutex_lock(&event->context->lock);
    if (timestamp != NULL) {
        *timestamp = dv_now_ns();
    }
    struct dv_event_callback *due = set_status_locked(event, status);
    pthread_mutex_unlock(&event->context->lock);
    run_callbacks(event, due, status);
}

cl_event CL_API_CALL clCreateUserEvent(cl_context context, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    cl_event event = create_event(context, NULL, CL_COMMAND_USER);
    dv_fail(errcode_ret, event != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
    return event;
}

cl_int CL_API_CALL clSetUserEventStatus(cl_event event, cl_int status)
{
    DV_ENTER();
    if (!dv_object_is(event, DV_KIND_EVENT) || event->queue != NULL) {
        return CL_INVALID_EVENT;
    }
    if (status > CL_COMPLETE) {
        return CL_INVALID_VALUE;
    }
    dv_object_ref(event);
    pthread_mutex_lock(&event->context->lock);
    bool first = !event->user_status_set;
    event->user_status_set = true;
    struct dv_event_callback *due = first ? set_status_locked(event, status) : NULL;
    pthread_mutex_unlock(&event->context->lock);
    run_callbacks(event, due, status);
    dv_object_unref(event);
    return first ? CL_SUCCESS : CL_INVALID_OPERATION;
}

cl_int CL_API_CALL clSetEventCallback(cl_event event, cl_int type,
                                      void(CL_CALLBACK *pfn_notify)(cl_event, cl_int, void *), void *user_data)
{
    DV_ENTER();
    if (!dv_object_is(event, DV_KIND_EVENT)) {
        return CL_INVALID_EVENT;
    }
    if (pfn_notify == NULL || (type != CL_SUBMITTED && type != CL_RUNNING && type != CL_COMPLETE)) {
        return CL_INVALID_VALUE;
    }
    struct dv_event_callback *callback = malloc(sizeof *callback);
    if (callback == NULL) {
        return CL_OUT_OF_HOST_MEMORY;
    }
    *callback = (struct dv_event_callback){type, pfn_notify, user_data, NULL};
    pthread_mutex_lock(&event->context->lock);
    cl_int status = event->status;
    bool due = status <= type;
    if (!due) {
        callback->next = event->callbacks;
        event->callbacks = callback;
    }
    pthread_mutex_unlock(&event->context->lock);
    if (due) {
        dv_object_ref(event);
        run_callbacks(event, callback, status);
        dv_object_unref(event);
    }
    return CL_SUCCESS;
}

cl_int CL_API_CALL clRetainEvent(cl_event event)
{
    DV_ENTER();
    return dv_object_is(event, DV_KIND_EVENT) && dv_object_api_retain(event) ? CL_SUCCESS : CL_INVALID_EVENT;
}

cl_int CL_API_CALL clReleaseEvent(cl_event event)
{
    DV_ENTER();
    return dv_object_is(event, DV_KIND_EVENT) && dv_object_api_release(event) ? CL_SUCCESS : CL_INVALID_EVENT;
}

cl_int CL_API_CALL clGetEventInfo(cl_event event, cl_event_info param_name, size_t param_value_size, void *param_value,
                                  size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(event, DV_KIND_EVENT)) {
        return CL_INVALID_EVENT;
    }
    cl_int status;
    switch (param_name) {
    case CL_EVENT_COMMAND_QUEUE:
        return DV_VALUE(cl_command_queue, event->queue);
    case CL_EVENT_CONTEXT:
        return DV_VALUE(cl_context, event->context);
    case CL_EVENT_COMMAND_TYPE:
        return DV_VALUE(cl_command_type, event->type);
    case CL_EVENT_COMMAND_EXECUTION_STATUS:
        pthread_mutex_lock(&event->context->lock);
        status = event->status;
        pthread_mutex_unlock(&event->context->lock);
        return DV_VALUE(cl_int, status);
    case CL_EVENT_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(event));
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clGetEventProfilingInfo(cl_event event, cl_profiling_info param_name, size_t param_value_size,
                                           void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(event, DV_KIND_EVENT)) {
        return CL_INVALID_EVENT;
    }
    if (event->queue == NULL || (event->queue->properties & CL_QUEUE_PROFILING_ENABLE) == 0) {
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    }
    cl_ulong value = 0;
    pthread_mutex_lock(&event->context->lock);
    bool available = event->status == CL_COMPLETE;
    switch (param_name) {
    case CL_PROFILING_COMMAND_QUEUED:
        value = event->queued_ns;
        break;
    case CL_PROFILING_COMMAND_SUBMIT:
        value = event->submit_ns;
        break;
    case CL_PROFILING_COMMAND_START:
        value = event->start_ns;
        break;
    case CL_PROFILING_COMMAND_END:
    case CL_PROFILING_COMMAND_COMPLETE:
        value = event->end_ns;
        break;
    }
    pthread_mutex_unlock(&event->context->lock);
    if (!available) {
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    }
    return value == 0 ? CL_INVALID_VALUE : DV_VALUE(cl_ulong, value);
}

/* ---- commands -------------------------------------------------------------------------------*/

static cl_int check_wait_list(cl_context context, cl_uint num_waits, const cl_event *waits)
{
    if ((num_waits == 0) != (waits == NULL)) {
        return CL_INVALID_EVENT_WAIT_LIST;
    }
    for (cl_uint i = 0; i < num_waits; i++) {
        if (!dv_object_is(waits[i], DV_KIND_EVENT)) {
            return CL_INVALID_EVENT_WAIT_LIST;
        }
        if (waits[i]->context != context) {
            return CL_INVALID_CONTEXT;
        }
    }
    return CL_SUCCESS;
}

struct dv_command *dv_command_create(const char *function, cl_command_queue queue, cl_command_type type,
                                     cl_uint num_waits, const cl_event *waits, cl_int *error)
{
    if (!dv_object_is(queue, DV_KIND_QUEUE)) {
        return dv_fail(error, CL_INVALID_COMMAND_QUEUE);
    }
    *error = check_wait_list(queue->context, num_waits, waits);
    if (*error != CL_SUCCESS) {
        return NULL;
    }
    if (dv_device_is_lost()) {
        return dv_fail(error, CL_OUT_OF_RESOURCES);
    }
    struct dv_command *command = calloc(1, sizeof *command);
    cl_event event = create_event(queue->context, queue, type);
    cl_event *list = num_waits > 0 ? calloc(num_waits, sizeof *list) : NULL;
    if (command == NULL || event == NULL || (num_waits > 0 && list == NULL)) {
        free(command);
        free(list);
        if (event != NULL) {
            dv_object_unref(event);
        }
        return dv_fail(error, CL_OUT_OF_HOST_MEMORY);
    }
    atomic_store(&event->base.api_refs, 0); /* until the application gets it */
    command->function = function;
    command->queue = queue;
    command->event = event;
    command->num_waits = num_waits;
    command->waits = list;
    for (cl_uint i = 0; i < num_waits; i++) {
        dv_object_ref(waits[i]);
        list[i] = waits[i];
    }
    return command;
}

void dv_command_keep(struct dv_command *command, void *object)
{
    dv_object_ref(object);
    command->objects[command->num_objects++] = object;
}

/* Gives back everything but the event. */
static void drop_references(struct dv_command *command)
{
    for (unsigned i = 0; i < command->num_objects; i++) {
        dv_object_unref(command->objects[i]);
    }
    command->num_objects = 0;
    for (unsigned i = 0; i < command->num_more_objects; i++) {
        dv_object_unref(command->more_objects[i]);
    }
    command->num_more_objects = 0;
    for (cl_uint i = 0; i < command->num_waits; i++) {
        dv_object_unref(command->waits[i]);
    }
    command->num_waits = 0;
    for (unsigned i = 0; i < DV_MAX_KERNEL_ARGS; i++) {
        free(command->launch.args[i].value);
        command->launch.args[i].value = NULL;
    }
    if (command->mapping != NULL) {
        free(command->mapping->staging);
        free(command->mapping);
        command->mapping = NULL;
    }
}

void dv_command_destroy(struct dv_command *command)
{
    drop_references(command);
    dv_object_unref(command->event);
    free(command->waits);
    free(command->more_objects);
    free(command);
}

static void flush_locked(cl_command_queue queue)
{
    queue->flushed_sequence = queue->last_sequence;
    pthread_cond_broadcast(&queue->context->changed);
}

cl_int dv_command_enqueue(struct dv_command *command, cl_bool blocking, cl_event *event_ret)
{
    cl_command_queue queue = command->queue;
    cl_context context = queue->context;
    cl_event event = command->event;
    dv_object_ref(event); /* the command may be gone before we are done with its event */
    if (!blocking && event_ret != NULL) {
        dv_object_ref(event);
        atomic_store(&event->base.api_refs, 1);
        *event_ret = event;
    }
    pthread_mutex_lock(&context->lock);
    command->sequence = ++queue->last_sequence;
    TAILQ_INSERT_TAIL(&queue->commands, command, link);
    pthread_cond_broadcast(&context->changed);
    cl_int status = CL_COMPLETE;
    if (blocking) {
        flush_locked(queue);
        while (!is_over(event)) {
            pthread_cond_wait(&context->changed, &context->lock);
        }
        status = event->status;
    }
    pthread_mutex_unlock(&context->lock);
    if (blocking && event_ret != NULL && status == CL_COMPLETE) {
        dv_object_ref(event);
        atomic_store(&event->base.api_refs, 1);
        *event_ret = event;
    }
    dv_object_unref(event);
    return status < 0 ? status : CL_SUCCESS;
}

/* ---- running commands -----------------------------------------------------------------------*/

static void fill(const struct dv_command *command)
{
    for (size_t z = 0; z < command->depth; z++) {
        for (size_t y = 0; y < command->height; y++) {
            char *row = command->dst.base + z * command->dst.slice_pitch + y * command->dst.row_pitch;
            for (size_t x = 0; x < command->row_bytes; x += command->pattern_bytes) {
                memcpy(row + x, command->pattern, command->pattern_bytes);
            }
        }
    }
}

static cl_int perform(const struct dv_command *command)
{
    switch (command->operation) {
    case DV_OP_KERNEL:
        return dv_behaviour_run(&command->launch);
    case DV_OP_FILL:
        fill(command);
        return CL_COMPLETE;
    case DV_OP_COPY:
    case DV_OP_UNMAP:
        dv_rect_copy(command->dst, command->src, command->row_bytes, command->height, command->depth);
        return CL_COMPLETE;
    case DV_OP_NONE:
        return CL_COMPLETE;
    }
    return CL_COMPLETE;
}

static void tell_loss(cl_context context)
{
    if (!atomic_exchange(&context->loss_told, true)) {
        dv_context_notify(context, "the device is lost");
    }
}

/* Runs a command whose wait list is over, with no lock held. */
static void run_command(struct dv_command *command)
{
    cl_event event = command->event;
    cl_context context = event->context;
    bool waits_failed = false;
    for (cl_uint i = 0; i < command->num_waits; i++) {
        /* a status that is over does not change; the lock was held when it was seen to be */
        waits_failed = waits_failed || command->waits[i]->status < 0;
    }
    cl_int status;
    change_status(event, CL_SUBMITTED, &event->submit_ns);
    change_status(event, CL_RUNNING, &event->start_ns);
    if (waits_failed) {
        status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    } else if (!dv_device_start_command()) {
        status = CL_OUT_OF_RESOURCES;
        tell_loss(context);
    } else {
        status = perform(command);
        cl_ulong end_ns = dv_now_ns();
        /* lateness is in the news of the end, not in the end itself */
        cl_int scripted = dv_script_complete(command->function);
        status = status < 0 || scripted == CL_SUCCESS ? status : scripted;
        if (status < 0) {
            char message[160];
            snprintf(message, sizeof message, "%s: command failed with status %d", command->function, status);
            dv_context_notify(context, message);
        }
        pthread_mutex_lock(&context->lock);
        event->end_ns = end_ns;
        pthread_mutex_unlock(&context->lock);
    }
    dv_script_log("complete", command->function, status);
    drop_references(command);

    pthread_mutex_lock(&context->lock);
    TAILQ_REMOVE(&command->queue->commands, command, link);
    struct dv_event_callback *due = set_status_locked(event, status);
    pthread_mutex_unlock(&context->lock);
    run_callbacks(event, due, status);
    dv_command_destroy(command);
}

static bool waits_are_over(const struct dv_command *command)
{
    for (cl_uint i = 0; i < command->num_waits; i++) {
        if (!is_over(command->waits[i])) {
            return false;
        }
    }
    return true;
}

/* A command that may start now, with the lock held. */
static struct dv_command *pick_locked(cl_command_queue queue)
{
    const struct dv_settings *settings = dv_settings_get();
    bool any_order = (queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
    struct dv_command *picked = NULL;
    struct dv_command *command;
    TAILQ_FOREACH (command, &queue->commands, link) {
        bool is_first = command == TAILQ_FIRST(&queue->commands);
        bool in_turn = is_first || (any_order && !command->after_all_before);
        bool flushed = !settings->flush_required || queue->closing || command->sequence <= queue->flushed_sequence;
        if (in_turn && flushed && waits_are_over(command)) {
            picked = command;
            if (!settings->newest_first) {
                break;
            }
        }
        if (!any_order || command->before_all_after) {
            break;
        }
    }
    return picked;
}

static void *queue_main(void *argument)
{
    cl_command_queue queue = argument;
    cl_context context = queue->context;
    pthread_mutex_lock(&context->lock);
    for (;;) {
        struct dv_command *command = pick_locked(queue);
        if (command != NULL) {
            pthread_mutex_unlock(&context->lock);
            run_command(command);
            pthread_mutex_lock(&context->lock);
        } else if (queue->closing && TAILQ_EMPTY(&queue->commands)) {
            break;
        } else {
            pthread_cond_wait(&context->changed, &context->lock);
        }
    }
    pthread_mutex_unlock(&context->lock);
    dv_object_unref(queue);
    return NULL;
}

/* Detached, because a queue may be released by a callback on its own thread. */
static bool start_queue_thread(cl_command_queue queue)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;
    sigfillset(&all); /* the application's signals are not ours, a crash is */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGABRT);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    dv_object_ref(queue);
    int failed = pthread_create(&thread, &attributes, queue_main, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed) {
        dv_object_unref(queue);
    }
    return !failed;
}

/* ---- queues ---------------------------------------------------------------------------------*/

static void destroy_queue(struct dv_object *object)
{
    cl_command_queue queue = (cl_command_queue)object;
    dv_object_unref(queue->context);
    free(queue->property_list);
    free(queue);
}

static cl_command_queue create_queue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
                                     const cl_queue_properties *property_list, cl_int *errcode_ret)
{
    const cl_command_queue_properties known = CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if (!dv_object_is(device, DV_KIND_DEVICE) || !dv_context_has_device(context, device)) {
        return dv_fail(errcode_ret, CL_INVALID_DEVICE);
    }
    if ((properties & ~known) != 0) {
        bool for_device = (properties & (CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT)) != 0;
        return dv_fail(errcode_ret, for_device ? CL_INVALID_QUEUE_PROPERTIES : CL_INVALID_VALUE);
    }
    if (dv_device_is_lost()) {
        return dv_fail(errcode_ret, CL_DEVICE_NOT_AVAILABLE);
    }
    cl_command_queue queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    dv_object_init(&queue->base, DV_KIND_QUEUE, destroy_queue);
    dv_object_ref(context);
    queue->context = context;
    queue->device = device;
    queue->properties = properties;
    queue->property_list = dv_properties_copy((const intptr_t *)property_list, &queue->num_property_list);
    TAILQ_INIT(&queue->commands);
    if (!start_queue_thread(queue)) {
        dv_object_unref(queue);
        return dv_fail(errcode_ret, CL_OUT_OF_RESOURCES);
    }
    dv_fail(errcode_ret, CL_SUCCESS);
    return queue;
}

cl_command_queue CL_API_CALL clCreateCommandQueue(cl_context context, cl_device_id device,
                                                  cl_command_queue_properties properties, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    return create_queue(context, device, properties, NULL, errcode_ret);
}

cl_command_queue CL_API_CALL clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                                const cl_queue_properties *properties,
                                                                cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    cl_command_queue_properties bits = 0;
    for (size_t i = 0; properties != NULL && properties[i] != 0; i += 2) {
        if (properties[i] == CL_QUEUE_SIZE) {
            return dv_fail(errcode_ret, CL_INVALID_QUEUE_PROPERTIES);
        }
        if (properties[i] != CL_QUEUE_PROPERTIES) {
            return dv_fail(errcode_ret, CL_INVALID_VALUE);
        }
        bits = properties[i + 1];
    }
    return create_queue(context, device, bits, properties, errcode_ret);
}

cl_int CL_API_CALL clRetainCommandQueue(cl_command_queue queue)
{
    DV_ENTER();
    return dv_object_is(queue, DV_KIND_QUEUE) && dv_object_api_retain(queue) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int CL_API_CALL clReleaseCommandQueue(cl_command_queue queue)
{
    DV_ENTER();
    if (!dv_object_is(queue, DV_KIND_QUEUE)) {
        return CL_INVALID_COMMAND_QUEUE;
    }
    dv_object_ref(queue);
    bool released = dv_object_api_release(queue);
    if (released && dv_object_count(queue) == 0) {
        pthread_mutex_lock(&queue->context->lock);
        queue->closing = true; /* its thread ends when it has run what is left */
        flush_locked(queue);
        pthread_mutex_unlock(&queue->context->lock);
    }
    dv_object_unref(queue);
    return released ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int CL_API_CALL clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info param_name,
                                         size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(queue, DV_KIND_QUEUE)) {
        return CL_INVALID_COMMAND_QUEUE;
    }
    switch (param_name) {
    case CL_QUEUE_CONTEXT:
        return DV_VALUE(cl_context, queue->context);
    case CL_QUEUE_DEVICE:
        return DV_VALUE(cl_device_id, queue->device);
    case CL_QUEUE_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(queue));
    case CL_QUEUE_PROPERTIES:
        return DV_VALUE(cl_command_queue_properties, queue->properties);
    case CL_QUEUE_PROPERTIES_ARRAY:
        return DV_BYTES(queue->property_list, queue->num_property_list * sizeof(cl_queue_properties));
    case CL_QUEUE_SIZE:
        return CL_INVALID_COMMAND_QUEUE; /* a question to queues on the device only */
    case CL_QUEUE_DEVICE_DEFAULT:
        return DV_VALUE(cl_command_queue, NULL);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clFlush(cl_command_queue queue)
{
    DV_ENTER();
    if (!dv_object_is(queue, DV_KIND_QUEUE)) {
        return CL_INVALID_COMMAND_QUEUE;
    }
    pthread_mutex_lock(&queue->context->lock);
    flush_locked(queue);
    pthread_mutex_unlock(&queue->context->lock);
    return dv_device_is_lost() ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

cl_int CL_API_CALL clFinish(cl_command_queue queue)
{
    DV_ENTER();
    if (!dv_object_is(queue, DV_KIND_QUEUE)) {
        return CL_INVALID_COMMAND_QUEUE;
    }
    pthread_mutex_lock(&queue->context->lock);
    flush_locked(queue);
    uint64_t last = queue->last_sequence;
    for (;;) {
        /* the oldest command is always at the head */
        struct dv_command *oldest = TAILQ_FIRST(&queue->commands);
        if (oldest == NULL || oldest->sequence > last) {
            break;
        }
        pthread_cond_wait(&queue->context->changed, &queue->context->lock);
    }
    pthread_mutex_unlock(&queue->context->lock);
    return dv_device_is_lost() ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

cl_int CL_API_CALL clWaitForEvents(cl_uint num_events, const cl_event *events)
{
    DV_ENTER();
    if (num_events == 0 || events == NULL) {
        return CL_INVALID_VALUE;
    }
    for (cl_uint i = 0; i < num_events; i++) {
        if (!dv_object_is(events[i], DV_KIND_EVENT)) {
            return CL_INVALID_EVENT;
        }
        if (events[i]->context != events[0]->context) {
            return CL_INVALID_CONTEXT;
        }
    }
    cl_context context = events[0]->context;
    bool failed = false;
    pthread_mutex_lock(&context->lock);
    for (cl_uint i = 0; i < num_events; i++) {
        if (events[i]->queue != NULL) {
            flush_locked(events[i]->queue);
        }
    }
    for (cl_uint i = 0; i < num_events; i++) {
        while (!is_over(events[i])) {
            pthread_cond_wait(&context->changed, &context->lock);
        }
        failed = failed || events[i]->status < 0;
    }
    pthread_mutex_unlock(&context->lock);
    return failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
}
