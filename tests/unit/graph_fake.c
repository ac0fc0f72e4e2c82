/* The fake backend (see graph_fake.h). */
#include "unit.h"

#include "graph_fake.h"
#include "src/base/futex.h"

static struct fake_command *command_of(struct dvk_node *node)
{
    return (struct fake_command *)node;
}

static struct fake_trace *trace_of(struct dvk_node *node)
{
    struct fake_command *c = command_of(node);
    return &c->fake->traces[c->id];
}

static int32_t submit(struct dvk_node *node)
{
    struct fake_command *c = command_of(node);
    struct fake *fake = c->fake;
    struct fake_trace *trace = trace_of(node);
    int32_t status = trace->refusal;

    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < node->dep_count; i++) {
        struct dvk_node *dep = node->deps[i];
        if (dep->state == DV_NODE_DONE && dep->status < 0)
            status = DV_STATUS_DEPENDENCY_FAILED;
        else if (dep->state == DV_NODE_SUBMITTED && trace->wait_count < FAKE_WAITS)
            trace->waits[trace->wait_count++] = command_of(dep)->id;
    }
    trace->reports = node->reports;
    trace->stream = node->stream;
    if (status == 0) {
        trace->submitted = ++fake->clock;
        fake->order[fake->submissions++] = c->id;
        if (fake->on_submit)
            fake->on_submit(fake, c->id);
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static struct dvk_node *fence(struct dvk_graph_queue *queue, struct dvk_stream *stream)
{
    struct dvk_node *last = TAILQ_LAST(&stream->flight, dv_node_list);
    struct fake *fake = command_of(last)->fake;

    if (fake->no_fence)
        return NULL;
    struct fake_command *c = fake_command(fake, queue, DV_RUNS_ON_DEVICE);
    fake->traces[c->id].is_fence = true;
    fake->traces[c->id].refusal = fake->fence_refusal;
    fake->traces[c->id].plan = fake->fence_plan;
    fake->fences++;
    return &c->node;
}

static void ready(struct dvk_node *node)
{
    struct fake_command *c = command_of(node);
    struct fake *fake = c->fake;

    pthread_mutex_lock(&fake->lock);
    trace_of(node)->turned = ++fake->clock;
    fake->turns++;
    if (fake->on_submit)
        fake->on_submit(fake, c->id);
    pthread_mutex_unlock(&fake->lock);
    /* the client will write to the ring some time */
    atomic_store(&fake->graph.shm->worker_asleep, 0);
    dv_futex_wake(&fake->graph.shm->worker_asleep, 1);
}

static void before_visible(struct dvk_node *node)
{
    struct fake_command *c = command_of(node);

    pthread_mutex_lock(&c->fake->lock);
    trace_of(node)->final = node->status;
    if (c->fake->on_visible)
        c->fake->on_visible(c->fake, c->id);
    pthread_mutex_unlock(&c->fake->lock);
    atomic_fetch_add(&trace_of(node)->visible, 1);
}

static void notify(struct dvk_graph *graph, uint32_t slot)
{
    struct fake *fake = graph->owner;
    atomic_fetch_add(&fake->notified, 1);
    atomic_store(&fake->last_notified, slot);
}

static void failed(struct dvk_node *node, int32_t status)
{
    trace_of(node)->failures++;
    trace_of(node)->failure = status;
}

static void finished(struct dvk_node *node)
{
    trace_of(node)->finished++;
    assert_int_equal(trace_of(node)->destroyed, 0);
}

static void destroy(struct dvk_node *node)
{
    struct fake *fake = command_of(node)->fake;

    pthread_mutex_lock(&fake->lock);
    trace_of(node)->destroyed++;
    trace_of(node)->command = NULL;
    pthread_mutex_unlock(&fake->lock);
    free(node);
}

static bool more_coming(const struct dvk_node *node)
{
    return ((const struct fake_command *)node)->fake->more;
}

static const struct dvk_graph_backend backend = {
    .submit = submit,
    .fence = fence,
    .ready = ready,
    .before_visible = before_visible,
    .notify = notify,
    .failed = failed,
    .finished = finished,
    .destroy = destroy,
    .more_coming = more_coming,
};

void fake_init(struct fake *fake, uint32_t capacity)
{
    memset(fake, 0, sizeof *fake);
    fake->shm = sparse_memory(FAKE_SHM_BYTES);
    fake->capacity = capacity;
    fake->traces = calloc(capacity + 1, sizeof *fake->traces);
    fake->order = calloc(capacity + 1, sizeof *fake->order);
    pthread_mutex_init(&fake->lock, NULL);
    assert_int_equal(dvk_graph_init(&fake->graph, &backend, fake, fake->shm), 0);
}

void fake_fini(struct fake *fake)
{
    for (uint32_t id = 1; id <= fake->count; id++) {
        if (fake->traces[id].destroyed != 1)
            fail_msg("command %u was destroyed %u times", id, fake->traces[id].destroyed);
        if (fake->traces[id].finished != 1)
            fail_msg("command %u was finished %u times", id, fake->traces[id].finished);
        if (atomic_load(&fake->traces[id].visible) != 1 && !fake->traces[id].is_fence)
            fail_msg("command %u became visible %u times", id, atomic_load(&fake->traces[id].visible));
    }
    assert_int_equal(atomic_load(&fake->graph.attention), 0);
    assert_true(dvk_graph_oldest_blocked(&fake->graph) == UINT64_MAX);
    for (uint32_t i = 0; i < fake->graph.queue_count; i++) {
        struct dvk_graph_queue *queue = fake->graph.queues[i];
        assert_true(TAILQ_EMPTY(&queue->active));
        assert_true(TAILQ_EMPTY(&queue->main.flight));
        assert_true(TAILQ_EMPTY(&queue->lane.flight));
        assert_null(queue->barrier);
    }
    while (fake->graph.queue_count)
        dvk_graph_queue_fini(&fake->graph, fake->graph.queues[0]);
    dvk_graph_fini(&fake->graph);
    munmap(fake->shm, FAKE_SHM_BYTES);
    pthread_mutex_destroy(&fake->lock);
    free(fake->traces);
    free(fake->order);
}

struct fake_command *fake_command(struct fake *fake, struct dvk_graph_queue *queue, enum dvk_runs_on runs_on)
{
    struct fake_command *c = calloc(1, sizeof *c);

    pthread_mutex_lock(&fake->lock);
    assert_true(fake->count < fake->capacity);
    c->fake = fake;
    c->id = ++fake->count;
    c->node.queue = queue;
    c->node.runs_on = runs_on;
    c->node.stream = queue ? &queue->main : NULL;
    fake->traces[c->id].command = c;
    pthread_mutex_unlock(&fake->lock);
    return c;
}

bool fake_may_execute(struct fake *fake, uint32_t id)
{
    const struct fake_trace *trace = &fake->traces[id];

    if (!trace->submitted || trace->executed)
        return false;
    for (uint32_t i = 0; i < fake->submissions && fake->order[i] != id; i++)
        if (fake->traces[fake->order[i]].stream == trace->stream && !fake->traces[fake->order[i]].executed)
            return false;
    for (uint32_t i = 0; i < trace->wait_count; i++)
        if (!fake->traces[trace->waits[i]].executed)
            return false;
    return true;
}

void fake_execute(struct fake *fake, uint32_t id)
{
    struct fake_trace *trace = &fake->traces[id];

    trace->executed = ++fake->clock;
    trace->outcome = trace->plan;
    for (uint32_t i = 0; i < trace->wait_count; i++)
        if (fake->traces[trace->waits[i]].outcome < 0)
            trace->outcome = DV_STATUS_DEPENDENCY_FAILED;
    if (fake->on_execute)
        fake->on_execute(fake, id);
}

void fake_report(struct fake *fake, uint32_t id)
{
    struct fake_trace *trace = &fake->traces[id];

    trace->reported = true;
    dvk_graph_report(&trace->command->node, trace->outcome);
}

void fake_complete(struct fake *fake, uint32_t id)
{
    assert_true(fake_may_execute(fake, id));
    fake_execute(fake, id);
    if (fake->traces[id].reports)
        fake_report(fake, id);
}

void fake_drain(struct fake *fake)
{
    bool moved;
    do {
        moved = false;
        for (uint32_t i = 0; i < fake->submissions; i++)
            if (fake_may_execute(fake, fake->order[i])) {
                fake_complete(fake, fake->order[i]);
                moved = true;
            }
        dvk_graph_reap(&fake->graph);
        if (!moved) {
            uint32_t before = fake->submissions;
            dvk_graph_fence(&fake->graph);
            moved = fake->submissions != before;
        }
    } while (moved);
}

struct dv_shm_event *fake_event_slot(struct fake *fake, uint32_t event)
{
    return (struct dv_shm_event *)(fake->shm + DV_SHM_EVENT_OFFSET) + (event - 1);
}

struct dv_shm_queue *fake_queue_slot(struct fake *fake, uint32_t slot)
{
    return (struct dv_shm_queue *)(fake->shm + DV_SHM_QUEUE_OFFSET) + slot;
}
