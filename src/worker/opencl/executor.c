/* The OpenCL part of a worker: initialises the vendor and executes records. */
#include "src/worker/opencl/executor.h"

#include "src/worker/opencl/api.h"
#include "src/worker/opencl/parking.h"
#include "src/worker/opencl/residency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"

static const uint64_t presented_type[] = {
    [DV_PRESENT_AS_CPU] = CL_DEVICE_TYPE_CPU,
    [DV_PRESENT_AS_GPU] = CL_DEVICE_TYPE_GPU,
    [DV_PRESENT_AS_ACCELERATOR] = CL_DEVICE_TYPE_ACCELERATOR,
};

static int add_device(struct dvk_worker *w, const struct dv_device_grant *grant, const struct dv_device_report *report,
                      cl_device_id vendor, cl_platform_id platform)
{
    struct dvk_device *device = calloc(1, sizeof *device);

    if (!device)
        return -ENOMEM;
    *device = (struct dvk_device){.vendor = vendor,
                                  .platform = platform,
                                  .platform_index = report->platform,
                                  .index = w->device_count,
                                  .type = report->type,
                                  .scrubbed = grant->scrubbed == 1,
                                  .unified = grant->unified == DV_UNIFIED_AUTO ? report->host_unified
                                                                               : grant->unified == DV_UNIFIED_YES};
    if (grant->present_as > DV_PRESENT_AS_IS && grant->present_as <= DV_PRESENT_AS_ACCELERATOR)
        device->type = presented_type[grant->present_as] | (report->type & CL_DEVICE_TYPE_DEFAULT);
    snprintf(device->name, sizeof device->name, "%.*s", DV_MAX_DEVICE_NAME - 1, grant->name);
    w->devices[w->device_count++] = device;
    return dvk_put(w, DV_KIND_DEVICE, DV_OBJECT_ID(w->device_count), device) == CL_SUCCESS ? 0 : -ENOMEM;
}

static int init(struct dvk_runtime *runtime, char *text, size_t text_bytes)
{
    DV_AUTO_FREE struct dv_device_report *reports = calloc(DV_MAX_DEVICES, sizeof *reports);
    struct dvk_worker *w = calloc(1, sizeof *w);
    cl_device_id devices[DV_MAX_DEVICES];
    cl_platform_id platforms[DV_MAX_DEVICES];

    if (!reports || !w) {
        snprintf(text, text_bytes, "the worker is out of memory");
        return -ENOMEM;
    }
    w->runtime = runtime;
    runtime->api = w;
    w->messages = dvk_messages;
    dvk_history_init(&w->history);
    uint32_t found;
    int count = dvk_vendor_devices(reports, devices, platforms, DV_MAX_DEVICES, &found, text, text_bytes);
    for (uint32_t g = 0; g < runtime->start->device_count && g < DV_MAX_DEVICES; g++) {
        const struct dv_device_grant *grant = &runtime->start->devices[g];
        for (int i = 0; i < count; i++)
            if (reports[i].platform == grant->platform && reports[i].device == grant->device &&
                add_device(w, grant, &reports[i], devices[i], platforms[i]) < 0)
                return -ENOMEM;
    }
    if (w->device_count == 0) {
        if (count > 0)
            snprintf(text, text_bytes, "no device granted to this session is present");
        return -ENODEV;
    }
    dvk_residency_start(w);
    dvk_cut_start(w);
    return 0;
}

static void answer(struct dvk_worker *w, const struct dvk_message_info *info, const uint8_t *record, size_t tail_bytes)
{
    const struct dv_call_head *head = (const void *)record;
    struct dvk_reply reply = {.block = dvk_find_reply(w, head->reply, head->reply_bytes),
                              .capacity = head->reply_bytes};

    reply.data = (uint8_t *)(reply.block + 1);
    int32_t status = info->call(w, record, record + info->bytes, tail_bytes, &reply);
    reply.block->bytes = reply.bytes;
    dvk_send_reply(reply.block, status);
}

static void handle(struct dvk_runtime *runtime, const struct dv_record *record)
{
    struct dvk_worker *w = dvk_worker_of(runtime);

    if (record->op >= DVW_OP_COUNT)
        dvk_runtime_abandon(runtime, "sent an unknown message");
    const struct dvk_message_info *info = &dvk_messages[record->op];
    if (record->bytes < info->bytes)
        dvk_runtime_abandon(runtime, "sent a message that is too short");
    if (info->style == DVK_STYLE_QUEUE) {
        dvk_command_handle(w, record, info);
        return;
    }
    if (record->bytes > w->scratch_bytes) {
        free(w->scratch);
        w->scratch_bytes = record->bytes < 4096 ? 4096 : record->bytes;
        w->scratch = malloc(w->scratch_bytes);
        if (!w->scratch)
            dvk_runtime_abandon(runtime, "exhausted the worker's memory");
    }
    dv_ring_take(&runtime->ring, record, w->scratch);
    size_t tail_bytes = record->bytes - info->bytes;
    if (info->style == DVK_STYLE_SEND)
        info->send(w, w->scratch, w->scratch + info->bytes, tail_bytes);
    else
        answer(w, info, w->scratch, tail_bytes);
}

static void before_sleep(struct dvk_runtime *runtime)
{
    struct dvk_worker *w = dvk_worker_of(runtime);

    if (w->released_queues)
        dvk_close_released_queues(w);
    dvk_flush(w);
}

static bool work(struct dvk_runtime *runtime)
{
    return dvk_residency_work(dvk_worker_of(runtime));
}

static void placed(struct dvk_runtime *runtime, uint32_t device, uint64_t id, uint64_t bytes, bool placed)
{
    dvk_residency_placed(dvk_worker_of(runtime), device, id, bytes, placed);
}

static void evict(struct dvk_runtime *runtime, uint32_t device, uint64_t id, uint64_t bytes)
{
    dvk_residency_evict(dvk_worker_of(runtime), device, id, bytes);
}

const struct dvk_runtime_api dvk_opencl = {
    .preload = dvk_preload,
    .probe = dvk_probe,
    .backend = &dvk_backend,
    .init = init,
    .handle = handle,
    .before_sleep = before_sleep,
    .work = work,
    .placed = placed,
    .evict = evict,
    .park = dvk_park,
    .follow = dvk_follow,
};
