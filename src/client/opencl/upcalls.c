/* Handles the worker's upcalls, which change the application's objects. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/client/opencl/transfer.h"
#include "src/client/opencl/upcalls.h"

static void tell_context(struct dvc_job *job)
{
    struct dvc_context_error *error = (struct dvc_context_error *)job;

    error->context->notify(error->text, &error->code, sizeof error->code, error->context->notify_user);
    dvc_context_unuse(error->context);
    free(error);
}

static void context_failed(struct dvc_context *context, cl_int code, const char *what, const char *why)
{
    struct dvc_context_error *error = NULL;

    if (!context || !dvc_object_try_use(&context->object))
        return;
    if (context->notify && !(error = malloc(sizeof *error)))
        error = atomic_exchange(&context->spare_error, NULL);
    if (!error) {
        dvc_context_unuse(context);
        return;
    }
    error->context = context;
    error->code = code;
    snprintf(error->text, sizeof error->text, "divvy: %s%s%s", what, why[0] ? ": " : "", why);
    dvc_callback_post(&error->job, tell_context);
}

/* The worker is gone. Reports it to the contexts' callbacks, and ends waits for events and for memory that the worker
 * was about to release. */
static void worker_lost(struct dvc_session *s)
{
    char why[sizeof s->header->text];

    memcpy(why, s->header->text, sizeof why); /* the worker could write there */
    why[sizeof why - 1] = '\0';
    for (uint32_t id = 1; id <= dvc_object_most_id(DV_KIND_CONTEXT); id++) {
        struct dvc_context *context = dvc_object_by_id(DV_KIND_CONTEXT, DV_OBJECT_ID(id));
        if (context && context->object.session == s)
            context_failed(context, CL_OUT_OF_RESOURCES,
                           "the worker process of this program has ended, and all of its contexts are lost", why);
    }
    for (uint32_t id = 1; id <= dvc_object_most_id(DV_KIND_EVENT); id++) {
        struct dvc_event *event = dvc_object_by_id(DV_KIND_EVENT, DV_OBJECT_ID(id));
        if (event && event->object.session == s && event->callbacks)
            dvc_event_fire_callbacks(event);
    }
    dvc_host_give_up(s); /* they use memory, queues and events */
    for (uint32_t id = 1; id <= dvc_object_most_id(DV_KIND_MEM); id++) {
        struct dvc_mem *mem = dvc_object_by_id(DV_KIND_MEM, DV_OBJECT_ID(id));
        if (mem && mem->object.session == s)
            dvc_mem_gone(mem);
    }
}

static void command_failed(struct dvc_session *s, struct dv_object_id context_id, cl_int code)
{
    (void)s;
    context_failed(dvc_object_by_id(DV_KIND_CONTEXT, context_id), code, "a command failed after it was accepted",
                   code == CL_OUT_OF_RESOURCES ? "out of resources" : "");
}

static void event_ended(struct dvc_session *s, uint32_t event_id)
{
    struct dvc_event *event = dvc_object_by_id(DV_KIND_EVENT, DV_OBJECT_ID(event_id));

    if (event && event->object.session == s)
        dvc_event_fire_callbacks(event);
}

static void mem_gone(struct dvc_session *s, struct dv_object_id mem_id)
{
    struct dvc_mem *mem = dvc_object_by_id(DV_KIND_MEM, mem_id);

    if (mem && mem->object.session == s)
        dvc_mem_gone(mem);
}

const struct dvc_upcall_handlers dvc_upcalls = {.event_ended = event_ended,
                                                .host_ready = dvc_host_ready,
                                                .mem_gone = mem_gone,
                                                .command_failed = command_failed,
                                                .all_served = dvc_host_flush,
                                                .worker_lost = worker_lost};
