/* What the worker's upcalls do to the objects of the application. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/client/opencl/transfer.h"
#include "src/client/opencl/upcalls.h"

static void tell_context(struct dv_job *job)
{
    struct dv_context_error *error = (struct dv_context_error *)job;

    error->context->notify(error->text, &error->code, sizeof error->code,
                           error->context->notify_user);
    dv_context_unuse(error->context);
    free(error);
}

static void context_failed(struct dv_context *context, cl_int code, const char *what,
                           const char *why)
{
    struct dv_context_error *error = NULL;

    if (!context || !dv_object_try_use(&context->object))
        return;
    if (context->notify && !(error = malloc(sizeof *error)))
        error = atomic_exchange(&context->spare_error, NULL);
    if (!error) {
        dv_context_unuse(context);
        return;
    }
    error->context = context;
    error->code = code;
    snprintf(error->text, sizeof error->text, "divvy: %s%s%s", what, why[0] ? ": " : "", why);
    dv_callback_post(&error->job, tell_context);
}

/* The worker is gone: those who asked to hear of errors do, and so does what waits for an event or for
 * memory that the worker was about to let go. */
static void worker_lost(struct dv_session *s)
{
    char why[sizeof s->header->text];

    memcpy(why, s->header->text, sizeof why); /* the worker could write there, too */
    why[sizeof why - 1] = '\0';
    for (uint32_t id = 1; id <= dv_object_most_id(DV_KIND_CONTEXT); id++) {
        struct dv_context *context = dv_object_by_id(DV_KIND_CONTEXT, id);
        if (context && context->object.session == s)
            context_failed(context, CL_OUT_OF_RESOURCES,
                           "the process that runs this program's commands has ended, and with it all "
                           "of its contexts",
                           why);
    }
    for (uint32_t id = 1; id <= dv_object_most_id(DV_KIND_EVENT); id++) {
        struct dv_event *event = dv_object_by_id(DV_KIND_EVENT, id);
        if (event && event->object.session == s && event->callbacks)
            dv_event_fire_callbacks(event);
    }
    dv_host_give_up(s); /* they use memory, queues and events */
    for (uint32_t id = 1; id <= dv_object_most_id(DV_KIND_MEM); id++) {
        struct dv_mem *mem = dv_object_by_id(DV_KIND_MEM, id);
        if (mem && mem->object.session == s)
            dv_mem_gone(mem);
    }
}

static void command_failed(struct dv_session *s, uint32_t context_id, cl_int code)
{
    (void)s;
    context_failed(dv_object_by_id(DV_KIND_CONTEXT, context_id), code, "a command failed after it was accepted",
                   code == CL_OUT_OF_RESOURCES ? "out of resources" : "");
}

static void event_ended(struct dv_session *s, uint32_t event_id)
{
    struct dv_event *event = dv_object_by_id(DV_KIND_EVENT, event_id);

    if (event && event->object.session == s)
        dv_event_fire_callbacks(event);
}

static void mem_gone(struct dv_session *s, uint32_t mem_id)
{
    struct dv_mem *mem = dv_object_by_id(DV_KIND_MEM, mem_id);

    if (mem && mem->object.session == s)
        dv_mem_gone(mem);
}

const struct dv_upcall_handlers dv_upcalls = {.event_ended = event_ended,
                                              .host_ready = dv_host_ready,
                                              .mem_gone = mem_gone,
                                              .command_failed = command_failed,
                                              .all_served = dv_host_flush,
                                              .worker_lost = worker_lost};
