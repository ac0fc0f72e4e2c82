/*
 * What all objects of the scripted platform share: reference counts, answers to queries, the
 * clock of the profiling timestamps.
 */
#include "vendor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void dv_object_init(struct dv_object *object, enum dv_kind kind, void (*destroy)(struct dv_object *object))
{
    object->dispatch = &dv_dispatch;
    object->kind = kind;
    object->destroy = destroy;
    atomic_init(&object->api_refs, 1);
    atomic_init(&object->refs, 1);
}

void dv_object_ref(void *object)
{
    struct dv_object *head = object;
    atomic_fetch_add_explicit(&head->refs, 1, memory_order_relaxed);
}

void dv_object_unref(void *object)
{
    struct dv_object *head = object;
    if (atomic_fetch_sub_explicit(&head->refs, 1, memory_order_acq_rel) == 1) {
        head->kind = 0;
        head->destroy(head);
    }
}

bool dv_object_api_retain(void *object)
{
    struct dv_object *head = object;
    if (atomic_load(&head->api_refs) == 0) {
        return false;
    }
    atomic_fetch_add(&head->api_refs, 1);
    dv_object_ref(head);
    return true;
}

bool dv_object_api_release(void *object)
{
    struct dv_object *head = object;
    unsigned held = atomic_load(&head->api_refs);
    do {
        if (held == 0) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&head->api_refs, &held, held - 1));
    dv_object_unref(head);
    return true;
}

bool dv_object_is(const void *object, enum dv_kind kind)
{
    const struct dv_object *head = object;
    return head != NULL && head->kind == kind;
}

cl_uint dv_object_count(const void *object)
{
    const struct dv_object *head = object;
    return atomic_load(&head->api_refs);
}

cl_int dv_answer(const void *value, size_t value_size, size_t param_value_size, void *param_value,
                 size_t *param_value_size_ret)
{
    if (param_value != NULL) {
        if (param_value_size < value_size) {
            return CL_INVALID_VALUE;
        }
        if (value_size > 0) {
            memcpy(param_value, value, value_size);
        }
    }
    if (param_value_size_ret != NULL) {
        *param_value_size_ret = value_size;
    }
    return CL_SUCCESS;
}

cl_int dv_answer_string(const char *text, size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    return dv_answer(text, strlen(text) + 1, param_value_size, param_value, param_value_size_ret);
}

void *dv_fail(cl_int *errcode_ret, cl_int error)
{
    if (errcode_ret != NULL) {
        *errcode_ret = error;
    }
    return NULL;
}

void *dv_properties_copy(const intptr_t *list, size_t *count)
{
    *count = 0;
    if (list == NULL) {
        return NULL;
    }
    size_t length = 1;
    for (size_t i = 0; list[i] != 0; i += 2) {
        length += 2;
    }
    intptr_t *copy = malloc(length * sizeof *copy);
    if (copy != NULL) {
        memcpy(copy, list, length * sizeof *copy);
        *count = length;
    }
    return copy;
}

cl_ulong dv_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (cl_ulong)now.tv_sec * 1000000000u + (cl_ulong)now.tv_nsec;
}

bool dv_context_has_device(cl_context context, cl_device_id device)
{
    for (cl_uint i = 0; i < context->num_devices; i++) {
        if (context->devices[i] == device) {
            return true;
        }
    }
    return false;
}

void dv_context_notify(cl_context context, const char *message)
{
    if (context->notify != NULL) {
        context->notify(message, NULL, 0, context->notify_data);
    }
}
