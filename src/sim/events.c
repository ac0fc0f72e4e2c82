/* A binary heap of events (see events.h). */
#include "src/sim/events.h"

#include <stdlib.h>

#define FIRST_CAPACITY 1024

static bool earlier(const struct dv_event *a, const struct dv_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static bool grow(struct dv_event_queue *queue)
{
    size_t capacity = queue->capacity ? 2 * queue->capacity : FIRST_CAPACITY;
    struct dv_event *heap = realloc(queue->heap, capacity * sizeof *heap);

    if (!heap)
        return false;
    queue->heap = heap;
    queue->capacity = capacity;
    return true;
}

void dv_events_push(struct dv_event_queue *queue, dv_ns at, enum dv_event_type type, void *subject, uint64_t generation)
{
    if (queue->count == queue->capacity && !grow(queue)) {
        queue->out_of_memory = true;
        return;
    }
    struct dv_event event = {at, queue->order++, type, subject, generation};
    size_t index = queue->count++;
    while (index && earlier(&event, &queue->heap[(index - 1) / 2])) {
        queue->heap[index] = queue->heap[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    queue->heap[index] = event;
}

struct dv_event dv_events_pop(struct dv_event_queue *queue)
{
    struct dv_event first = queue->heap[0];
    struct dv_event last = queue->heap[--queue->count];
    size_t index = 0;

    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= queue->count)
            break;
        if (child + 1 < queue->count && earlier(&queue->heap[child + 1], &queue->heap[child]))
            child++;
        if (!earlier(&queue->heap[child], &last))
            break;
        queue->heap[index] = queue->heap[child];
        index = child;
    }
    if (queue->count)
        queue->heap[index] = last;
    return first;
}

void dv_events_fini(struct dv_event_queue *queue)
{
    free(queue->heap);
}
