/* The vendor's queues behind the client's: starting and awaiting the work that was handed to them. */
#include "src/worker/opencl/executor.h"

/* Waits if the flush fails: nothing else would start the commands. */
static void flush(cl_command_queue queue)
{
    if (clFlush(queue) != CL_SUCCESS)
        clFinish(queue);
}

void dvk_flush(struct dvk_worker *w)
{
    struct dvk_graph *graph = &w->runtime->graph;

    for (uint32_t i = 0; i < graph->queue_count; i++) {
        struct dvk_queue *queue = (struct dvk_queue *)graph->queues[i];
        if (!queue->unflushed)
            continue;
        queue->unflushed = false;
        flush(queue->vendor);
        if (queue->lane)
            flush(queue->lane);
    }
}

void dvk_finish(struct dvk_worker *w)
{
    struct dvk_graph *graph = &w->runtime->graph;

    for (uint32_t i = 0; i < graph->queue_count; i++) {
        struct dvk_queue *queue = (struct dvk_queue *)graph->queues[i];
        clFinish(queue->vendor);
        if (queue->lane)
            clFinish(queue->lane);
    }
}
