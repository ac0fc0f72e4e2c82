/* Contexts and command queues. */
#include <stdlib.h>
#include <string.h>

#include "src/client/opencl/objects.h"

/* ---- contexts ---- */

static cl_int check_context_properties(const cl_context_properties *properties, struct dvc_platform **platform,
                                       size_t *count)
{
    *count = 0;
    if (!properties)
        return CL_SUCCESS;
    for (size_t i = 0; properties[i]; i += 2) {
        switch (properties[i]) {
        case CL_CONTEXT_PLATFORM:
            if (*platform)
                return CL_INVALID_PROPERTY;
            *platform = dvc_platform_of((void *)properties[i + 1]);
            if (!*platform)
                return CL_INVALID_PLATFORM;
            break;
        case CL_CONTEXT_INTEROP_USER_SYNC:
            break;
        default:
            return CL_INVALID_PROPERTY;
        }
        *count = i + 2;
    }
    ++*count;
    return CL_SUCCESS;
}

/* divvyd does not let the session use a device. OpenCL reports only an error code. The reason goes to the context's
 * callback and to the log, if there is one. */
static void tell_why(struct dvc_session *s, void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                     void *user)
{
    const cl_int code = CL_DEVICE_NOT_AVAILABLE;
    char text[sizeof s->header->text + sizeof "divvy: "] = "divvy: ";
    char *why = text + strlen(text);

    if (!s || !dvc_session_check(s))
        return;
    memcpy(why, s->header->text, sizeof s->header->text);
    why[sizeof s->header->text] = '\0';
    if (!why[0])
        return;
    if (dvc_log_enabled())
        dvc_log_call("divvy: no device: %s", why);
    if (notify)
        notify(text, &code, sizeof code, user);
}

static void free_context(struct dvc_context *context)
{
    free(context->devices);
    free(context->device_handles);
    free(context->properties);
    free(context->spare_error);
    dvc_object_free(&context->object);
}

static struct dvc_context *make_context(const cl_context_properties *properties, size_t property_count, cl_uint count,
                                        struct dvc_device *const *devices, cl_int *error)
{
    struct dvc_session *s = dvc_session_get();
    struct dvw_create_context message = {.device_count = count};
    struct dv_object_id ids[DV_MAX_DEVICES];

    if (!s) {
        *error = CL_DEVICE_NOT_AVAILABLE;
        return NULL;
    }
    struct dvc_context *context = dvc_object_create(DV_KIND_CONTEXT, s);
    if (!context) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    message.id = context->object.id;
    context->device_count = count;
    context->devices = malloc(count * sizeof *context->devices);
    context->device_handles = malloc(count * sizeof *context->device_handles);
    context->property_count = property_count;
    if (property_count)
        context->properties = malloc(property_count * sizeof *properties);
    for (cl_uint i = 0; i < count; i++)
        ids[i] = devices[i]->object.id;
    *error = CL_OUT_OF_HOST_MEMORY;
    if (context->devices && context->device_handles && (context->properties || !property_count) && dvc_helper_start(s))
        *error = dvc_call(s, DVW_OP_CREATE_CONTEXT, &message.head, sizeof message, ids, count * 4, NULL, 0, NULL);
    if (*error != CL_SUCCESS) {
        free_context(context);
        return NULL;
    }
    if (property_count)
        memcpy(context->properties, properties, property_count * sizeof *properties);
    context->unified = true;
    context->max_alloc_bytes = UINT64_MAX;
    for (cl_uint i = 0; i < count; i++) {
        context->devices[i] = devices[i];
        context->device_handles[i] = (cl_device_id)devices[i];
        context->unified &= devices[i]->unified;
        if (devices[i]->max_alloc_bytes < context->max_alloc_bytes)
            context->max_alloc_bytes = devices[i]->max_alloc_bytes;
        if (devices[i]->base_align > context->base_align)
            context->base_align = devices[i]->base_align;
        if (devices[i]->parent)
            dvc_object_use(&devices[i]->object);
    }
    return context;
}

cl_context CL_API_CALL dvc_clCreateContext(const cl_context_properties *properties, cl_uint num_devices,
                                           const cl_device_id *devices,
                                           void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *),
                                           void *user_data, cl_int *errcode_ret)
{
    struct dvc_device *list[DV_MAX_DEVICES];
    struct dvc_platform *platform = NULL;
    struct dvc_context *context = NULL;
    struct dvc_context_error *spare = NULL;
    size_t property_count;
    cl_uint count = 0;

    cl_int error = check_context_properties(properties, &platform, &property_count);
    if (error == CL_SUCCESS &&
        (num_devices == 0 || !devices || num_devices > DV_MAX_DEVICES || (!pfn_notify && user_data)))
        error = CL_INVALID_VALUE;
    for (cl_uint i = 0; error == CL_SUCCESS && i < num_devices; i++) {
        struct dvc_device *device = dvc_device_of(devices[i]);
        bool twice = false;
        if (!device || (platform && device->platform != platform)) {
            error = CL_INVALID_DEVICE;
            break;
        }
        for (cl_uint k = 0; k < count; k++)
            twice |= list[k] == device;
        if (!twice)
            list[count++] = device;
    }
    if (error == CL_SUCCESS && pfn_notify && !(dvc_callbacks_start() && (spare = malloc(sizeof *spare))))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        context = make_context(properties, property_count, count, list, &error);
    if (context) {
        context->spare_error = spare;
        context->notify = pfn_notify;
        context->notify_user = user_data;
    } else {
        free(spare);
        if (error == CL_DEVICE_NOT_AVAILABLE)
            tell_why(dvc_session_get(), pfn_notify, user_data);
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_context)context;
}

cl_context CL_API_CALL dvc_clCreateContextFromType(const cl_context_properties *properties, cl_device_type device_type,
                                                   void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t,
                                                                                 void *),
                                                   void *user_data, cl_int *errcode_ret)
{
    struct dvc_platform *platform = NULL;
    cl_device_id devices[DV_MAX_DEVICES];
    size_t property_count;
    cl_uint count = 0;

    cl_int error = check_context_properties(properties, &platform, &property_count);
    if (error == CL_SUCCESS && !pfn_notify && user_data)
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = dvc_clGetDeviceIDs((cl_platform_id)platform, device_type, DV_MAX_DEVICES, devices, &count);
    if (error == CL_SUCCESS)
        return dvc_clCreateContext(properties, count, devices, pfn_notify, user_data, errcode_ret);
    if (errcode_ret)
        *errcode_ret = error;
    return NULL;
}

cl_int dvc_context_retain(struct dvc_context *context)
{
    atomic_fetch_add(&context->object.count, 1);
    return CL_SUCCESS;
}

static void context_destroy(struct dvc_context *context)
{
    struct dvw_release message = {.kind = DV_KIND_CONTEXT, .id = context->object.id};

    while (context->destructors) {
        struct dvc_context_callback *callback = context->destructors;
        context->destructors = callback->next;
        callback->function((cl_context)context, callback->user);
        free(callback);
    }
    dvc_send(context->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0);
    for (cl_uint i = 0; i < context->device_count; i++)
        dvc_device_unuse(context->devices[i]);
    free_context(context);
}

static void finish_context(struct dvc_job *job)
{
    context_destroy((struct dvc_context *)((char *)job - offsetof(struct dvc_context, finishing)));
}

/* Usually runs on the helper thread, which must not call the application's functions. */
void dvc_context_unuse(struct dvc_context *context)
{
    if (atomic_fetch_sub(&context->object.count, DV_COUNT_USE) != DV_COUNT_USE)
        return;
    if (context->destructors)
        dvc_callback_post(&context->finishing, finish_context);
    else
        context_destroy(context);
}

cl_int dvc_context_release(struct dvc_context *context)
{
    if (dvc_object_refs(&context->object) == 0)
        return CL_INVALID_CONTEXT;
    if (atomic_fetch_sub(&context->object.count, 1) == 1)
        context_destroy(context);
    return CL_SUCCESS;
}

cl_int CL_API_CALL dvc_clSetContextDestructorCallback(cl_context context,
                                                      void(CL_CALLBACK *pfn_notify)(cl_context, void *),
                                                      void *user_data)
{
    struct dvc_context *c = dvc_context_of(context);

    if (!c)
        return CL_INVALID_CONTEXT;
    if (!pfn_notify)
        return CL_INVALID_VALUE;
    struct dvc_context_callback *callback = dvc_callbacks_start() ? malloc(sizeof *callback) : NULL;
    if (!callback)
        return CL_OUT_OF_HOST_MEMORY;
    *callback = (struct dvc_context_callback){atomic_load(&c->destructors), pfn_notify, user_data};
    while (!atomic_compare_exchange_weak(&c->destructors, &callback->next, callback))
        ;
    return CL_SUCCESS;
}

/* ---- queues ---- */

static struct dvc_queue *make_queue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
                                    const cl_queue_properties *list, size_t list_count, cl_int *error)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_device *d = dvc_device_of(device);
    bool belongs = false;

    if (!c) {
        *error = CL_INVALID_CONTEXT;
        return NULL;
    }
    for (cl_uint i = 0; d && i < c->device_count; i++)
        belongs |= c->devices[i] == d;
    if (!belongs) {
        *error = CL_INVALID_DEVICE;
        return NULL;
    }
    struct dvc_session *s = c->object.session;
    struct dvc_queue *queue = dvc_object_create(DV_KIND_QUEUE, s);
    if (!queue) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    queue->context = c;
    queue->device = d;
    queue->properties = properties;
    queue->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    queue->slot = (struct dv_shm_queue *)(s->shm + DV_SHM_QUEUE_OFFSET) + queue->object.id.value;
    pthread_mutex_init(&queue->lock, NULL);
    struct dvw_create_queue message = {.id = queue->object.id,
                                       .context = c->object.id,
                                       .device = d->object.id,
                                       .profiling = !!(properties & CL_QUEUE_PROFILING_ENABLE),
                                       .out_of_order = !queue->in_order};
    queue->property_count = list_count;
    if (list_count)
        queue->property_list = malloc(list_count * sizeof *list);
    *error = CL_OUT_OF_HOST_MEMORY;
    if (queue->property_list || !list_count)
        *error = dvc_call(s, DVW_OP_CREATE_QUEUE, &message.head, sizeof message, NULL, 0, NULL, 0, NULL);
    if (*error == CL_DEVICE_NOT_AVAILABLE && dvc_session_check(s)) {
        tell_why(s, c->notify, c->notify_user);
        *error = CL_OUT_OF_RESOURCES; /* an error that the function may return */
    }
    if (*error != CL_SUCCESS) {
        free(queue->property_list);
        dvc_object_free(&queue->object);
        return NULL;
    }
    if (list_count)
        memcpy(queue->property_list, list, list_count * sizeof *list);
    dvc_object_use(&c->object);
    return queue;
}

#define QUEUE_PROPERTIES (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE)

static cl_int check_queue_properties(cl_command_queue_properties properties)
{
    if (properties & ~(cl_command_queue_properties)(QUEUE_PROPERTIES | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT))
        return CL_INVALID_VALUE;
    return properties & ~(cl_command_queue_properties)QUEUE_PROPERTIES ? CL_INVALID_QUEUE_PROPERTIES : CL_SUCCESS;
}

cl_command_queue CL_API_CALL dvc_clCreateCommandQueue(cl_context context, cl_device_id device,
                                                      cl_command_queue_properties properties, cl_int *errcode_ret)
{
    struct dvc_queue *queue = NULL;
    cl_int error = check_queue_properties(properties);

    if (!dvc_context_of(context))
        error = CL_INVALID_CONTEXT;
    if (error == CL_SUCCESS)
        queue = make_queue(context, device, properties, NULL, 0, &error);
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_command_queue)queue;
}

cl_command_queue CL_API_CALL dvc_clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                                    const cl_queue_properties *properties,
                                                                    cl_int *errcode_ret)
{
    struct dvc_queue *queue = NULL;
    cl_command_queue_properties flags = 0;
    cl_int error = dvc_context_of(context) ? CL_SUCCESS : CL_INVALID_CONTEXT;
    size_t count = 0;

    for (; error == CL_SUCCESS && properties && properties[count]; count += 2) {
        if (properties[count] == CL_QUEUE_PROPERTIES) {
            flags = properties[count + 1];
            error = check_queue_properties(flags);
        } else if (properties[count] == CL_QUEUE_SIZE) {
            error = CL_INVALID_QUEUE_PROPERTIES; /* only for queues on the device */
        } else {
            error = CL_INVALID_VALUE;
        }
    }
    if (error == CL_SUCCESS)
        queue = make_queue(context, device, flags, properties, properties ? count + 1 : 0, &error);
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_command_queue)queue;
}

cl_int CL_API_CALL dvc_clSetCommandQueueProperty(cl_command_queue command_queue, cl_command_queue_properties properties,
                                                 cl_bool enable, cl_command_queue_properties *old_properties)
{
    return dvc_queue_of(command_queue) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

cl_int dvc_queue_retain(struct dvc_queue *queue)
{
    atomic_fetch_add(&queue->object.count, 1);
    return CL_SUCCESS;
}

static void queue_destroy(struct dvc_queue *queue)
{
    struct dvc_context *context = queue->context;
    struct dvw_release message = {.kind = DV_KIND_QUEUE, .id = queue->object.id};

    dvc_send(queue->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0);
    free(queue->property_list);
    dvc_object_free(&queue->object);
    dvc_context_unuse(context);
}

void dvc_queue_unuse(struct dvc_queue *queue)
{
    if (atomic_fetch_sub(&queue->object.count, DV_COUNT_USE) == DV_COUNT_USE)
        queue_destroy(queue);
}

cl_int dvc_queue_release(struct dvc_queue *queue)
{
    if (dvc_object_refs(&queue->object) == 0)
        return CL_INVALID_COMMAND_QUEUE;
    if (atomic_fetch_sub(&queue->object.count, 1) == 1)
        queue_destroy(queue);
    return CL_SUCCESS;
}
