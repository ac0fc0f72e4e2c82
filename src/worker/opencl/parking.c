/* Leaves all that the session has for a worker that follows this one, and takes it in again
 * (src/wire/session/parked.h).
 *
 * The entries are the messages that made the objects, and the commands that have not started, in the order in which
 * they came. Behind a memory object are its contents, if they are not in the arena; before each launch are the
 * arguments that it was enqueued with; at the end, those that the kernels have now. */
#include "src/worker/opencl/parking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/worker/core/parked.h"
#include "src/worker/opencl/backing.h"
#include "src/worker/opencl/memory.h"
#include "src/worker/opencl/residency.h"

/* ---- leaving ---- */

static void put_message(struct dvk_parked_writer *writer, const struct dv_record *message, const void *data,
                        uint64_t data_bytes)
{
    dvk_parked_put(writer, &(struct dv_parked_entry){.kind = DV_PARKED_MESSAGE, .data_bytes = data_bytes}, message,
                   data);
}

/* has_released: it may name objects that were released later. Otherwise such an argument becomes one that is not set:
 * another object can have the same id by then. */
static void put_argument(struct dvk_parked_writer *writer, struct dv_object_id kernel, uint32_t index,
                         const struct dvk_argument *argument, bool has_released)
{
    uint64_t value_bytes = argument->form == DV_ARGUMENT_VALUE ? argument->size : 0;
    uint64_t bytes = dv_record_align(sizeof(struct dvw_set_argument) + value_bytes);
    struct dvw_set_argument *m;

    if (!argument->form)
        return;
    m = calloc(1, bytes);
    if (!m) {
        writer->is_broken = true;
        return;
    }
    *m = (struct dvw_set_argument){.head = {.bytes = (uint32_t)bytes, .op = DVW_OP_SET_ARGUMENT},
                                   .kernel = kernel,
                                   .index = index,
                                   .form = argument->form,
                                   .size = argument->size};
    if (argument->mem)
        m->object = argument->mem->released && !has_released ? DV_OBJECT_ID(DV_MAX_OBJECT_ID) : argument->mem->id;
    else if (argument->sampler)
        m->object = argument->sampler->id;
    if (value_bytes)
        memcpy(m + 1, argument->value, value_bytes);
    put_message(writer, &m->head, NULL, 0);
    free(m);
}

static void put_arguments(struct dvk_parked_writer *writer, struct dv_object_id kernel,
                          const struct dvk_arguments *arguments, bool has_released)
{
    for (uint32_t i = 0; i < arguments->count; i++)
        put_argument(writer, kernel, i, &arguments->list[i], has_released);
}

static void put_command(struct dvk_parked_writer *writer, const struct dvk_command *c)
{
    const struct dv_record *message = (const void *)c->record;

    if (message->op == DVW_OP_CL_ENQUEUE_NDRANGE_KERNEL && c->arguments)
        put_arguments(writer, ((const struct dvw_clEnqueueNDRangeKernel *)message)->kernel, c->arguments,
                      !c->node.doomed);
    put_message(writer, message, NULL, 0);
}

/* User events that are not set, and events that failed: commands that come later can wait for them. */
static void put_events(struct dvk_parked_writer *writer, const struct dvk_graph *graph)
{
    for (uint32_t i = 0; i < graph->event_capacity; i++) {
        const struct dvk_event_entry *entry = &graph->events[i];
        if (entry->node && !entry->node->queue) {
            const struct dvw_create_user_event m = {.head = {.bytes = sizeof m, .op = DVW_OP_CREATE_USER_EVENT},
                                                    .event = i + 1};
            put_message(writer, &m.head, NULL, 0);
        } else if (!entry->node && entry->status < 0) {
            dvk_parked_put(writer,
                           &(struct dv_parked_entry){.kind = DV_PARKED_FAILED, .id = i + 1, .status = entry->status},
                           NULL, NULL);
        }
    }
}

static void put_kernels(struct dvk_parked_writer *writer, const struct dvk_worker *w)
{
    const struct dvk_table *table = &w->tables[DV_KIND_KERNEL];

    for (uint32_t id = 1; id < table->capacity; id++)
        if (table->slots[id])
            put_arguments(writer, DV_OBJECT_ID(id), ((const struct dvk_kernel *)table->slots[id])->arguments, false);
}

/* ---- contents ---- */

/* Reads or writes all of an object that stays with the vendor. */
static cl_int copy_unmanaged(struct dvk_mem *mem, const struct dvk_context *context, uint8_t *bytes, bool out)
{
    const size_t zero[3] = {0, 0, 0};
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(context->vendor, context->devices[0]->vendor, 0, &error);

    if (error != CL_SUCCESS)
        return error;
    if (mem->is_image)
        error = out ? clEnqueueReadImage(queue, mem->vendor, CL_TRUE, zero, mem->region, 0, 0, bytes, 0, NULL, NULL)
                    : clEnqueueWriteImage(queue, mem->vendor, CL_TRUE, zero, mem->region, 0, 0, bytes, 0, NULL, NULL);
    else
        error = out ? clEnqueueReadBuffer(queue, mem->vendor, CL_TRUE, 0, mem->bytes, bytes, 0, NULL, NULL)
                    : clEnqueueWriteBuffer(queue, mem->vendor, CL_TRUE, 0, mem->bytes, bytes, 0, NULL, NULL);
    clReleaseCommandQueue(queue);
    return error;
}

static uint64_t content_bytes(const struct dvk_mem *mem)
{
    return mem->root || mem->is_image ? mem->backing_bytes : mem->bytes;
}

/* Whether its bytes are with the vendor, and its own. Those of views and parts are their parent's. */
static bool has_unmanaged_bytes(const struct dvk_mem *mem)
{
    return !mem->root && mem->vendor && !mem->lent && mem->make.context && !mem->is_part;
}

/* Copies in the store, to be given back if the session is not parked after all. */
struct copies {
    struct dvk_store *store;
    uint64_t *at;
    uint32_t count, capacity;
};

/* Room for a copy, or 0. */
static uint64_t take_room(struct copies *copies, uint64_t bytes)
{
    if (copies->count == copies->capacity) {
        uint32_t capacity = copies->capacity ? copies->capacity * 2 : 64;
        uint64_t *grown = realloc(copies->at, capacity * sizeof *grown);
        if (!grown)
            return 0;
        copies->at = grown;
        copies->capacity = capacity;
    }
    uint64_t at = dvk_store_take(copies->store, bytes);
    if (at)
        copies->at[copies->count++] = at;
    return at;
}

static void give_back(struct copies *copies)
{
    while (copies->count)
        dvk_store_give(copies->store, copies->at[--copies->count]);
    free(copies->at);
}

/* Leaves the bytes in the store, or, if there are few, among the entries. */
static int put_content(struct dvk_parked_writer *writer, struct copies *copies, struct dvk_mem *mem)
{
    struct dv_parked_entry entry = {.kind = DV_PARKED_CONTENT, .id = mem->id.value};
    bool managed = mem->root == mem;
    DV_AUTO_FREE uint8_t *copy = NULL;
    uint64_t bytes = content_bytes(mem);

    if (managed && mem->stored) {
        entry.at = mem->stored;
        entry.value = bytes;
        dvk_parked_put(writer, &entry, NULL, NULL);
        return 0;
    }
    if (!managed) {
        copy = malloc(bytes ? bytes : 1);
        if (!copy)
            return -ENOMEM;
        if (copy_unmanaged(mem, mem->make.context, copy, true) != CL_SUCCESS)
            return -EIO;
    }
    const uint8_t *from = managed ? mem->backing : copy;
    entry.value = bytes;
    if (bytes >= DVK_STORED_FROM && (entry.at = take_room(copies, bytes))) {
        memcpy(copies->store->base + entry.at, from, bytes);
        dvk_parked_put(writer, &entry, NULL, NULL);
    } else {
        entry.data_bytes = bytes;
        dvk_parked_put(writer, &entry, NULL, from);
    }
    return 0;
}

/* What an object starts with is not kept: its contents are, right behind the message that makes it. */
static int put_kept(struct dvk_parked_writer *writer, struct copies *copies, const struct dvk_kept *kept)
{
    const struct dv_record *message = (const void *)kept->message;
    struct dvk_mem *mem = kept->origin->object;

    if (message->op == DVW_OP_CREATE_BUFFER) {
        struct dvw_create_buffer m;
        memcpy(&m, message, sizeof m);
        if (m.initial)
            m.arena = m.initial = 0;
        m.head.bytes = sizeof m;
        put_message(writer, &m.head, NULL, 0);
    } else if (message->op == DVW_OP_CREATE_IMAGE) {
        struct dvw_create_image m;
        memcpy(&m, message, sizeof m);
        m.data = 0;
        m.head.record.bytes = sizeof m;
        put_message(writer, &m.head.record, NULL, 0);
    } else {
        put_message(writer, message, kept->data, kept->data_bytes);
        return 0;
    }
    if (mem->root == mem ? mem->content == DVK_CONTENT_ON_HOST : has_unmanaged_bytes(mem))
        return put_content(writer, copies, mem);
    return 0;
}

static int put_objects_and_commands(struct dvk_parked_writer *writer, struct copies *copies, struct dvk_worker *w)
{
    struct dvk_node **nodes;
    const struct dvk_kept *kept;
    int64_t count = dvk_graph_list(&w->runtime->graph, &nodes), at = 0;
    int error = 0;

    if (count < 0)
        return -ENOMEM;
    put_events(writer, &w->runtime->graph);
    TAILQ_FOREACH (kept, &w->history.kept, in_history) {
        for (; at < count && nodes[at]->arrival <= kept->arrival; at++)
            put_command(writer, (const struct dvk_command *)nodes[at]);
        error = put_kept(writer, copies, kept);
        if (error < 0)
            break;
    }
    for (; error == 0 && at < count; at++)
        put_command(writer, (const struct dvk_command *)nodes[at]);
    free(nodes);
    return error;
}

/* Objects whose end the vendor has not reported yet: the client waits for that. */
static bool await_leaving(const struct dvk_worker *w)
{
    for (int i = 0; i < 1000 && atomic_load(&w->leaving); i++)
        usleep(1000);
    return atomic_load(&w->leaving) == 0;
}

static void put_accounts(struct dvk_parked_writer *writer, struct dvk_runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        dvk_account_call_back(runtime, i);
        const struct dvk_account *account = &runtime->accounts[i];
        if (account->credit || account->promised)
            dvk_parked_put(writer,
                           &(struct dv_parked_entry){
                               .kind = DV_PARKED_ACCOUNT, .id = i, .at = account->credit, .value = account->promised},
                           NULL, NULL);
    }
}

enum dv_park_reason dvk_park(struct dvk_runtime *runtime)
{
    struct dvk_worker *w = dvk_worker_of(runtime);
    struct dvk_parked_writer writer = {0};
    struct copies copies = {.store = &runtime->store};

    if (w->history.is_incomplete || !await_leaving(w) || !dvk_residency_evacuate(w))
        return DV_PARK_NO_MEMORY;
    put_accounts(&writer, runtime);
    int error = put_objects_and_commands(&writer, &copies, w);
    put_kernels(&writer, w);
    if (error == 0)
        error = dvk_parked_finish(&writer, &runtime->store);
    else
        free(writer.bytes);
    if (error < 0)
        give_back(&copies);
    return error == 0 ? DV_PARK_DONE : error == -ENOSPC ? DV_PARK_NO_ROOM : DV_PARK_NO_MEMORY;
}

/* ---- following ---- */

/* A call whose answer the client has had. */
static int32_t call_again(struct dvk_worker *w, const struct dvk_message_info *info, const uint8_t *message,
                          uint64_t bytes)
{
    struct dv_reply block;
    struct dvk_reply reply = {.block = &block, .data = (uint8_t *)(&block + 1), .capacity = 0};

    return info->call(w, message, message + info->bytes, bytes - info->bytes, &reply);
}

static int take_message(struct dvk_worker *w, const uint8_t *message, uint64_t bytes, char *text, size_t text_bytes)
{
    struct dv_record head;

    memcpy(&head, message, sizeof head);
    if (head.op >= DVW_OP_COUNT || bytes < dvk_messages[head.op].bytes)
        return -EPROTO;
    const struct dvk_message_info *info = &dvk_messages[head.op];
    if (info->style == DVK_STYLE_QUEUE) {
        dvk_command_take_again(w, message, info);
    } else if (info->style == DVK_STYLE_SEND) {
        info->send(w, message, message + info->bytes, bytes - info->bytes);
    } else {
        int32_t error = call_again(w, info, message, bytes);
        if (error != CL_SUCCESS && head.op != DVW_OP_BUILD_PROGRAM) {
            snprintf(text, text_bytes, "the device refuses %s with error %d", info->name, error);
            return -EIO;
        }
    }
    return 0;
}

static int take_content(struct dvk_worker *w, const struct dv_parked_entry *entry, const uint8_t *data)
{
    struct dvk_mem *mem = dvk_find_mem(w, DV_OBJECT_ID(entry->id));
    struct dvk_store *store = &w->runtime->store;

    if (!mem || mem->error)
        return -EPROTO;
    bool managed = mem->root == mem;
    if ((!managed && !has_unmanaged_bytes(mem)) || entry->value != content_bytes(mem) ||
        (!entry->at && entry->data_bytes != entry->value))
        return -EPROTO;
    if (entry->at && !dvk_store_take_at(store, entry->at, entry->value))
        return -EPROTO;
    const uint8_t *from = entry->at ? store->base + entry->at : data;
    if (managed && entry->at) {
        mem->stored = entry->at;
        mem->backing = store->base + entry->at;
        mem->content = DVK_CONTENT_ON_HOST;
        return 0;
    }
    if (managed) {
        if (!dvk_backing_need(mem, NULL))
            return -ENOMEM;
        memcpy(mem->backing, from, entry->value);
        mem->content = DVK_CONTENT_ON_HOST;
        return 0;
    }
    cl_int error = copy_unmanaged(mem, mem->make.context, (uint8_t *)from, false);
    if (entry->at)
        dvk_store_give(store, entry->at);
    return error == CL_SUCCESS ? 0 : -EIO;
}

static int take_account(struct dvk_runtime *runtime, const struct dv_parked_entry *entry)
{
    if (entry->id >= runtime->start->device_count)
        return -EPROTO;
    return dvk_account_inherit(runtime, entry->id, entry->at, entry->value);
}

static int take_entry(struct dvk_worker *w, const struct dv_parked_entry *entry, const uint8_t *message,
                      const uint8_t *data, char *text, size_t text_bytes)
{
    int error = -EPROTO;

    switch (entry->kind) {
    case DV_PARKED_MESSAGE:
        w->following_data = data;
        w->following_bytes = entry->data_bytes;
        return message ? take_message(w, message, entry->message_bytes, text, text_bytes) : -EPROTO;
    case DV_PARKED_CONTENT:
        return take_content(w, entry, data);
    case DV_PARKED_FAILED:
        dvk_graph_note_failed(&w->runtime->graph, entry->id, entry->status);
        return 0;
    case DV_PARKED_ACCOUNT:
        error = take_account(w->runtime, entry);
        if (error == -ENOMEM)
            snprintf(text, text_bytes, "its tenant's memory on the device is in use by other sessions");
        return error;
    default:
        return error;
    }
}

/* Objects that are made again count again. */
static void forget_figures(struct dvk_runtime *runtime)
{
    struct dv_shm_header *header = runtime->header;

    atomic_store(&header->memory_bytes, 0);
    atomic_store(&header->placed_bytes, 0);
    for (int i = 0; i < DV_CUT_VERDICTS - 1; i++)
        atomic_store(&header->kernels[i], 0);
    memset(runtime->shm + DV_SHM_KERNEL_OFFSET, 0, DV_SHM_KERNEL_BYTES);
}

int dvk_follow(struct dvk_runtime *runtime, char *text, size_t text_bytes)
{
    struct dvk_worker *w = dvk_worker_of(runtime);
    struct dvk_parked_reader reader;
    struct dv_parked_entry entry;
    const uint8_t *message, *data;
    int error = dvk_parked_open(&reader, &runtime->store), found = 0;

    snprintf(text, text_bytes, "what its last worker has left is not complete");
    if (error < 0)
        return error;
    w->follows = true;
    forget_figures(runtime);
    dvk_graph_pause(&runtime->graph, true);
    while (error == 0 && (found = dvk_parked_next(&reader, &entry, &message, &data)) == 1)
        error = take_entry(w, &entry, message, data, text, text_bytes);
    w->follows = false;
    dvk_parked_close(&reader);
    if (error == 0 && found < 0)
        error = found;
    if (error == 0)
        dvk_graph_pause(&runtime->graph, false);
    return error;
}
