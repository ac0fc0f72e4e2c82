/* Commands that move bytes between the arena and memory objects, and commands that the client runs itself. */
#include "src/worker/opencl/executor.h"

int32_t dvk_resolve_host(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_host *m = (const void *)c->record;
    c->node.runs_on = DV_RUNS_ON_HOST;
    c->node.by_helper = m->by_helper;
    return CL_SUCCESS;
}

int32_t dvk_submit_host(struct dvk_worker *w, struct dvk_command *c)
{
    return CL_INVALID_OPERATION; /* never goes to the vendor */
}

static struct dvk_graph_queue *queue_with_host_command(struct dvk_worker *w, const struct dvw_host_done *m)
{
    struct dvk_queue *queue = dvk_find_queue(w, m->queue);

    if (queue)
        return &queue->graph;
    for (queue = w->released_queues; queue; queue = queue->next_released)
        if (queue->id.value == m->queue.value && dvk_graph_find(&queue->graph, m->first))
            return &queue->graph;
    return NULL;
}

/* The first host command of the range that is ready and not finished. */
static struct dvk_node *host_command_within(struct dvk_graph_queue *queue, const struct dvw_host_done *m)
{
    struct dvk_node *node;

    TAILQ_FOREACH (node, &queue->active, in_active) { /* in the order of their numbers */
        if (node->number > m->last)
            break;
        if (node->number >= m->first && dvk_graph_is_ready(node))
            return node;
    }
    return NULL;
}

void dvk_on_host_done(struct dvk_worker *w, const struct dvw_host_done *m, const uint8_t *tail, size_t tail_bytes)
{
    struct dvk_graph_queue *queue = queue_with_host_command(w, m);
    struct dvk_node *node;

    /* Finishing one can end and free those behind it, so each is searched for again. */
    while (queue && (node = host_command_within(queue, m)))
        dvk_graph_finish(&w->runtime->graph, node, m->status < 0 ? m->status : CL_COMPLETE);
}

/* The bytes of tightly packed memory that a transfer touches, or UINT64_MAX. */
static uint64_t packed_bytes(const struct dvk_mem *mem, const struct dvw_transfer *m)
{
    unsigned __int128 total = mem->is_image ? mem->element_bytes : 1;

    if (m->shape == DV_SHAPE_LINEAR)
        return m->bytes;
    for (int i = 0; i < 3; i++)
        total *= m->region[i];
    return total > DV_SHM_BYTES_MAX ? UINT64_MAX : (uint64_t)total;
}

int32_t dvk_resolve_transfer(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_transfer *m = (const void *)c->record;

    c->writes = m->direction != DV_FROM_DEVICE;
    /* First set what must happen at the command's end, even if it fails: the client waits for it. */
    c->free_after = m->free_after ? m->arena : 0;
    if (m->flag && (m->flag % sizeof(uint32_t) || !(c->flag = dvk_runtime_arena(w->runtime, m->flag, sizeof *c->flag))))
        return CL_INVALID_VALUE;
    if (m->lane) {
        c->node.detached = true;
        c->node.stream = &c->queue->graph.lane;
    }
    if (!dvk_command_keep_mem(w, c, 0, m->mem))
        return CL_INVALID_MEM_OBJECT;
    if ((m->shape == DV_SHAPE_IMAGE) != c->mems[0]->is_image || m->shape < DV_SHAPE_LINEAR || m->shape > DV_SHAPE_IMAGE)
        return CL_INVALID_VALUE;
    uint64_t needed = packed_bytes(c->mems[0], m);
    if (m->bytes_inline ? needed > dvk_command_tail_bytes(c, sizeof *m)
                        : !dvk_runtime_arena(w->runtime, m->arena, needed))
        return CL_INVALID_VALUE;
    if (m->bytes_inline && m->direction != DV_TO_DEVICE)
        return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

int32_t dvk_submit_transfer(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_transfer *m = (const void *)c->record;
    void *memory = m->bytes_inline ? (void *)(m + 1) : (void *)(w->runtime->shm + m->arena);
    cl_command_queue queue = dvk_command_queue(c);
    cl_mem mem = c->mems[0]->vendor;
    cl_event *event = dvk_command_event(c);
    const size_t *origin = (const size_t *)m->origin, *region = (const size_t *)m->region;
    const size_t zero[3] = {0, 0, 0};
    bool to_device = m->direction == DV_TO_DEVICE;

    switch (m->shape) {
    case DV_SHAPE_LINEAR:
        return to_device ? clEnqueueWriteBuffer(queue, mem, CL_FALSE, origin[0], m->bytes, memory, c->wait_count,
                                                c->waits, event)
                         : clEnqueueReadBuffer(queue, mem, CL_FALSE, origin[0], m->bytes, memory, c->wait_count,
                                               c->waits, event);
    case DV_SHAPE_RECT:
        return to_device
                   ? clEnqueueWriteBufferRect(queue, mem, CL_FALSE, origin, zero, region, m->row_pitch, m->slice_pitch,
                                              region[0], region[0] * region[1], memory, c->wait_count, c->waits, event)
                   : clEnqueueReadBufferRect(queue, mem, CL_FALSE, origin, zero, region, m->row_pitch, m->slice_pitch,
                                             region[0], region[0] * region[1], memory, c->wait_count, c->waits, event);
    default:
        return to_device ? clEnqueueWriteImage(queue, mem, CL_FALSE, origin, region, 0, 0, memory, c->wait_count,
                                               c->waits, event)
                         : clEnqueueReadImage(queue, mem, CL_FALSE, origin, region, 0, 0, memory, c->wait_count,
                                              c->waits, event);
    }
}
