/* The command graph (see graph.h). */
#include "src/worker/core/graph.h"

#include <errno.h>
#include <stdlib.h>

#include "src/base/futex.h"

/* Gated work is reported after this much, so that the gate can be kept fed. */
#define REPORT_EVERY_NS (1 * DV_NS_PER_MS)

/* Another node waits for a node: `to` counts it in blocked_by until it fires. */
struct dvk_edge {
    struct dvk_edge *next;
    struct dvk_node *to;
    bool on_submit; /* fires when the node is submitted, not only when it is done */
    bool listed;    /* from a wait list: failure spreads */
};

int dvk_graph_init(struct dvk_graph *graph, const struct dvk_graph_backend *backend, void *owner, void *shm)
{
    *graph = (struct dvk_graph){.backend = backend, .owner = owner, .shm = shm};
    TAILQ_INIT(&graph->ready);
    TAILQ_INIT(&graph->blocked);
    TAILQ_INIT(&graph->held);
    SLIST_INIT(&graph->cutting);
    return 0;
}

void dvk_graph_fini(struct dvk_graph *graph)
{
    free(graph->events);
    free(graph->queues);
}

int dvk_graph_queue_init(struct dvk_graph *graph, struct dvk_graph_queue *queue, uint32_t slot, bool in_order)
{
    if (slot >= DV_SHM_QUEUE_COUNT)
        return -EINVAL;
    if (graph->queue_count == graph->queue_capacity) {
        uint32_t capacity = graph->queue_capacity ? graph->queue_capacity * 2 : 16;
        void *grown = realloc(graph->queues, capacity * sizeof *graph->queues);
        if (!grown)
            return -ENOMEM;
        graph->queues = grown;
        graph->queue_capacity = capacity;
    }
    graph->queues[graph->queue_count++] = queue;
    *queue = (struct dvk_graph_queue){.in_order = in_order};
    queue->slot = (struct dv_shm_queue *)((uint8_t *)graph->shm + DV_SHM_QUEUE_OFFSET) + slot;
    TAILQ_INIT(&queue->active);
    TAILQ_INIT(&queue->main.flight);
    TAILQ_INIT(&queue->lane.flight);
    return 0;
}

void dvk_graph_queue_fini(struct dvk_graph *graph, struct dvk_graph_queue *queue)
{
    for (uint32_t i = 0; i < graph->queue_count; i++)
        if (graph->queues[i] == queue) {
            graph->queues[i] = graph->queues[--graph->queue_count];
            return;
        }
}

static void drop_deps(struct dvk_node *node)
{
    struct dvk_node **deps = node->deps;
    uint32_t count = node->dep_count;

    node->deps = NULL;
    node->dep_count = 0;
    for (uint32_t i = 0; i < count; i++)
        dvk_node_unref(deps[i]);
    free(deps);
}

void dvk_node_unref(struct dvk_node *node)
{
    if (--node->refs > 0)
        return;
    drop_deps(node);
    node->graph->backend->destroy(node);
}

/* ---- events ---- */

static struct dvk_event_entry *event_entry(struct dvk_graph *graph, uint32_t event)
{
    if (event == 0 || event > DV_SHM_EVENT_COUNT)
        return NULL;
    if (event > graph->event_capacity) {
        uint32_t capacity = graph->event_capacity ? graph->event_capacity : 1024;
        while (capacity < event)
            capacity *= 2;
        struct dvk_event_entry *grown = realloc(graph->events, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        for (uint32_t i = graph->event_capacity; i < capacity; i++)
            grown[i] = (struct dvk_event_entry){0};
        graph->events = grown;
        graph->event_capacity = capacity;
    }
    return &graph->events[event - 1];
}

struct dvk_node *dvk_graph_event_node(struct dvk_graph *graph, uint32_t event)
{
    struct dvk_event_entry *entry = event_entry(graph, event);
    return entry ? entry->node : NULL;
}

static struct dv_shm_event *event_slot(struct dvk_graph *graph, uint32_t event)
{
    return (struct dv_shm_event *)((uint8_t *)graph->shm + DV_SHM_EVENT_OFFSET) + (event - 1);
}

static void publish_event(struct dvk_node *node, int32_t status)
{
    struct dv_shm_event *slot = event_slot(node->graph, node->event);

    atomic_store(&slot->status, status);
    if (atomic_load(&slot->waiters))
        dv_futex_wake((_Atomic uint32_t *)&slot->status, INT_MAX);
    if (atomic_load(&slot->notify))
        node->graph->backend->notify(node->graph, node->event - 1);
}

static void publish_queue(struct dvk_graph_queue *queue, uint64_t number)
{
    uint64_t seen = atomic_load(&queue->slot->completed);

    while (seen < number)
        if (atomic_compare_exchange_weak(&queue->slot->completed, &seen, number)) {
            atomic_fetch_add(&queue->slot->progress, 1);
            if (atomic_load(&queue->slot->waiters)) {
                /* a sleeper woken at every step of a long queue would only slow it down */
                uint64_t at = atomic_load(&queue->slot->wake_at);
                if (at == 0 || number >= at) {
                    atomic_store(&queue->slot->wake_at, 0); /* a thread that waits on sets it again */
                    dv_futex_wake(&queue->slot->progress, INT_MAX);
                }
            }
            return;
        }
}

/* Shows the end to the client, from whichever thread learns of it first. */
static void make_visible(struct dvk_node *node, int32_t status)
{
    node->graph->backend->before_visible(node);
    if (node->event)
        publish_event(node, status);
    if (node->queue && node->queue->in_order && (!node->detached || node->fence))
        publish_queue(node->queue, node->number);
}

/* ---- dependencies ---- */

static void add_edge(struct dvk_node *from, struct dvk_node *to, bool on_submit, bool listed)
{
    struct dvk_edge *edge = malloc(sizeof *edge);

    if (!edge) {
        to->doomed = true; /* out of memory: the command fails rather than run too early */
        return;
    }
    *edge = (struct dvk_edge){.next = from->successors, .to = to, .on_submit = on_submit, .listed = listed};
    from->successors = edge;
    to->blocked_by++;
}

static void keep_dep(struct dvk_node *node, struct dvk_node *dep)
{
    struct dvk_node **grown = realloc(node->deps, (node->dep_count + 1) * sizeof *grown);

    if (!grown) {
        node->doomed = true;
        return;
    }
    node->deps = grown;
    node->deps[node->dep_count++] = dep;
    dep->refs++;
}

static void depend(struct dvk_node *node, struct dvk_node *dep, bool listed)
{
    bool both_on_device = node->runs_on == DV_RUNS_ON_DEVICE && dep->runs_on == DV_RUNS_ON_DEVICE;

    if (dep->state == DV_NODE_DONE) {
        if (listed && dep->status < 0)
            node->doomed = true;
    } else if (both_on_device && dep->state == DV_NODE_SUBMITTED && (dep->reports || dep->stream == node->stream)) {
        if (dep->reports && (listed || dep->stream != node->stream))
            keep_dep(node, dep);
    } else if (both_on_device && dep->state == DV_NODE_BLOCKED) {
        add_edge(dep, node, true, listed);
    } else if (!listed && node->by_helper && dep->by_helper && dep->state == DV_NODE_SUBMITTED) {
        /* the helper runs its commands in the order given: no need to wait for the first's end */
    } else if (!listed && node->by_helper && dep->by_helper && dep->state == DV_NODE_BLOCKED) {
        add_edge(dep, node, true, false);
    } else {
        add_edge(dep, node, false, listed);
    }
}

/* A helper's command that waits only for the command before it can be started by the thread that
 * reports that one, which saves waking the main thread in between. */
static void arrange_early_start(struct dvk_node *node, struct dvk_node *before)
{
    struct dvk_node *none = NULL;

    if (node->by_helper && node->blocked_by == 1 && !node->doomed && before->runs_on == DV_RUNS_ON_DEVICE)
        atomic_compare_exchange_strong(&before->next_ready, &none, node);
}

static void make_ready(struct dvk_node *node)
{
    struct dvk_graph *graph = node->graph;

    if (node->in_blocked_list) {
        TAILQ_REMOVE(&graph->blocked, node, in_blocked);
        node->in_blocked_list = false;
        atomic_fetch_sub(&graph->attention, 1);
    }
    TAILQ_INSERT_TAIL(&graph->ready, node, in_ready);
}

static void fire_edges(struct dvk_node *node, bool done)
{
    struct dvk_edge **link = &node->successors;

    while (*link) {
        struct dvk_edge *edge = *link;
        if (!done && !edge->on_submit) {
            link = &edge->next;
            continue;
        }
        *link = edge->next;
        struct dvk_node *to = edge->to;
        if (done && edge->listed && node->status < 0)
            to->doomed = true;
        if (!done && node->runs_on == DV_RUNS_ON_DEVICE && node->reports &&
            (edge->listed || node->stream != to->stream))
            keep_dep(to, node);
        free(edge);
        if (--to->blocked_by == 0)
            make_ready(to);
    }
}

static bool must_report(const struct dvk_node *node)
{
    bool next_is_here = false;

    if (node->event || node->detached || node->is_cut || !node->queue->in_order)
        return true;
    for (const struct dvk_edge *edge = node->successors; edge; edge = edge->next) {
        if (!edge->on_submit || edge->to->stream != node->stream)
            return true;
        next_is_here = true;
    }
    if (node->passed_gate && node->stream->unreported_ns + node->cost_ns >= REPORT_EVERY_NS)
        return true;
    return node->stream->unreported >= DV_MAX_UNREPORTED || (!next_is_here && !node->graph->backend->more_coming(node));
}

/* ---- progress ---- */

static void leave_gate(struct dvk_node *node)
{
    struct dvk_gate *gate = node->queue->gate;

    gate->flight.count--;
    gate->flight.ns -= node->cost_ns;
    if (node->reported_ns) /* the next one began then */
        gate->flight.ends_ns = node->reported_ns + gate->flight.ns;
    if (gate->flight.last == node)
        gate->flight.last = NULL;
    if (gate->flight.closes == node) {
        gate->flight.closes = NULL;
        atomic_store(&gate->flight.closing, NULL);
    }
    if (gate->flight.count == 0)
        node->graph->backend->drained(gate);
}

/* A part is done. The command fails with the first part that does. */
static void leave_whole(struct dvk_node *part)
{
    struct dvk_node *whole = part->whole;

    whole->open_parts--;
    if (part->status < 0 && whole->state == DV_NODE_BLOCKED) {
        whole->doomed = true;
        whole->failure = part->status;
    }
    dvk_node_unref(whole);
}

static void finish(struct dvk_node *node, int32_t status, bool visible)
{
    struct dvk_graph *graph = node->graph;
    struct dvk_graph_queue *queue = node->queue;

    node->status = status;
    node->state = DV_NODE_DONE;
    if (!visible)
        make_visible(node, status);
    if (status < 0 && !node->is_part)
        graph->backend->failed(node, status);
    if (node->event) {
        struct dvk_event_entry *entry = event_entry(graph, node->event);
        if (entry && entry->node == node)
            *entry = (struct dvk_event_entry){.status = status};
    }
    if (queue && !node->detached) {
        TAILQ_REMOVE(&queue->active, node, in_active);
        if (queue->barrier == node)
            queue->barrier = NULL;
        if (!queue->in_order) {
            struct dvk_node *oldest = TAILQ_FIRST(&queue->active);
            atomic_fetch_sub(&graph->attention, 1);
            publish_queue(queue, oldest ? oldest->number - 1 : queue->last_number);
        }
        atomic_fetch_add(&graph->shm->commands, 1);
    }
    if (queue && node->detached)
        queue->detached--;
    graph->backend->finished(node); /* before the gate asks whether the device is free */
    fire_edges(node, true);
    if (node->passed_gate)
        leave_gate(node);
    if (node->is_part)
        leave_whole(node);
    dvk_node_unref(node);
}

static void block(struct dvk_node *node)
{
    TAILQ_INSERT_TAIL(&node->graph->blocked, node, in_blocked);
    node->in_blocked_list = true;
    atomic_fetch_add(&node->graph->attention, 1);
}

/* Ends a node that will not run. In an in-order queue it keeps its place: earlier commands must
 * complete first, because completion of a queue is reported by number. */
static void end_without_running(struct dvk_node *node, int32_t status)
{
    struct dvk_node *before = NULL;

    if (node->queue && node->queue->in_order && !node->detached)
        before = TAILQ_PREV(node, dv_node_list, in_active);
    node->doomed = true;
    node->failure = status;
    if (before) {
        node->runs_on = DV_RUNS_NOWHERE;
        node->state = DV_NODE_BLOCKED;
        add_edge(before, node, false, false);
        if (node->blocked_by) {
            block(node);
            return;
        }
    }
    finish(node, status, false);
}

/* The vendor cannot even mark the end of its commands: those that will not be reported fail. */
static void fail_unreported(struct dvk_stream *stream, int32_t status)
{
    struct dvk_node *node;

    while ((node = TAILQ_LAST(&stream->flight, dv_node_list)) && !node->reports) {
        TAILQ_REMOVE(&stream->flight, node, in_flight);
        end_without_running(node, status);
    }
}

static void submit(struct dvk_node *node)
{
    struct dvk_graph *graph = node->graph;

    node->state = DV_NODE_SUBMITTED;
    if (node->queue->gate) {
        struct dvk_gate *gate = node->queue->gate;
        node->passed_gate = true;
        node->cost_ns = graph->backend->cost(node);
        node->submitted_ns = node->fence ? dv_now() : gate->now_ns;
        if (gate->flight.count++ == 0)
            gate->flight.stream = node->stream;
        if (gate->flight.stream == node->stream) {
            gate->flight.last = node;
        } else {
            gate->flight.stream = NULL; /* until all of them are complete */
            gate->flight.last = NULL;
        }
        gate->flight.ns += node->cost_ns;
        if (gate->flight.ends_ns < node->submitted_ns)
            gate->flight.ends_ns = node->submitted_ns;
        gate->flight.ends_ns += node->cost_ns;
    }
    node->reports = must_report(node);
    node->stream->unreported = node->reports ? 0 : node->stream->unreported + 1;
    node->stream->unreported_ns = node->reports ? 0 : node->stream->unreported_ns + node->cost_ns;
    TAILQ_INSERT_TAIL(&node->stream->flight, node, in_flight);
    int32_t status = graph->backend->submit(node);
    drop_deps(node); /* a chain of commands must not keep its whole history */
    if (status < 0) {
        TAILQ_REMOVE(&node->stream->flight, node, in_flight);
        if (node->fence) {
            fail_unreported(node->stream, status);
            node->number = 0; /* it stands for nothing now */
        }
        end_without_running(node, status);
        return;
    }
    fire_edges(node, false);
}

/* Whether a ready node may go on to the vendor now. */
static bool passes_gate(struct dvk_node *node)
{
    struct dvk_gate *gate = node->queue->gate;

    /* fences and transfers of host commands belong to commands that passed already */
    if (!gate || node->fence)
        return true;
    return (TAILQ_EMPTY(&gate->waiting) || node->graph->paused) && node->graph->backend->admit(gate, node);
}

static void wait_at_gate(struct dvk_node *node)
{
    TAILQ_INSERT_TAIL(&node->queue->gate->waiting, node, in_ready);
    atomic_fetch_add(&node->graph->attention, 1);
}

/* The first command at the gate goes on in parts: pump() lets more of them through. */
static void note_cutting(struct dvk_graph *graph, struct dvk_gate *gate)
{
    if (gate->cutting)
        return;
    gate->cutting = true;
    SLIST_INSERT_HEAD(&graph->cutting, gate, in_cutting);
}

/* The node has ended: if that closes the gate, the first thread to notice gives the device back. */
static void close_after(struct dvk_gate *gate, struct dvk_node *node)
{
    struct dvk_node *closes = node;

    if (atomic_compare_exchange_strong(&gate->flight.closing, &closes, DV_GATE_CLOSED))
        node->graph->backend->closed(gate);
}

void dvk_gate_close(struct dvk_gate *gate)
{
    struct dvk_node *last = gate->flight.last;

    if (gate->flight.closes || !last || !last->reports)
        return;
    gate->flight.closes = last;
    atomic_store(&gate->flight.closing, last);
    if (atomic_load(&last->ended)) /* its report is on its way */
        close_after(gate, last);
}

bool dvk_gate_reopen(struct dvk_gate *gate)
{
    struct dvk_node *closes = gate->flight.closes;

    if (!closes)
        return true;
    if (!atomic_compare_exchange_strong(&gate->flight.closing, &closes, NULL))
        return false;
    gate->flight.closes = NULL;
    return true;
}

void dvk_gate_init(struct dvk_gate *gate, uint32_t device)
{
    *gate = (struct dvk_gate){.device = device};
    TAILQ_INIT(&gate->waiting);
}

/* Submits the next part of a command that goes to the vendor in parts. Returns false when the rest is to go at once. */
static bool submit_part(struct dvk_node *node)
{
    struct dvk_graph *graph = node->graph;
    struct dvk_node *part = node->queue->gate && !node->fence && graph->backend->cut ? graph->backend->cut(node) : NULL;

    if (!part)
        return false;
    part->graph = graph;
    part->queue = node->queue;
    part->stream = node->stream;
    part->runs_on = DV_RUNS_ON_DEVICE;
    part->number = node->number;
    part->detached = true;
    part->refs = 1;
    part->is_part = true;
    part->whole = node;
    part->deps = node->deps; /* later parts follow the first one in the stream */
    part->dep_count = node->dep_count;
    node->deps = NULL;
    node->dep_count = 0;
    node->refs++;
    node->is_cut = true;
    node->open_parts++;
    node->queue->detached++;
    submit(part);
    return true;
}

static void end_doomed(struct dvk_node *node)
{
    end_without_running(node, node->failure ? node->failure : DV_STATUS_DEPENDENCY_FAILED);
}

/* Whether it belongs to commands that have started: their fence, or a transfer of the client for one of them. */
static bool belongs_to_started(const struct dvk_node *node)
{
    return node->fence || node->detached || node->is_cut || atomic_load(&node->ready_told);
}

static void take_ready(struct dvk_graph *graph)
{
    struct dvk_node *node;

    while ((node = TAILQ_FIRST(&graph->ready))) {
        TAILQ_REMOVE(&graph->ready, node, in_ready);
        if (node->doomed) {
            end_doomed(node);
        } else if (graph->paused && node->runs_on != DV_RUNS_NOWHERE && !belongs_to_started(node)) {
            TAILQ_INSERT_TAIL(&graph->held, node, in_ready);
        } else if (node->runs_on == DV_RUNS_ON_DEVICE) {
            if (!passes_gate(node)) {
                wait_at_gate(node);
            } else if (submit_part(node)) {
                wait_at_gate(node);
                note_cutting(graph, node->queue->gate);
            } else {
                submit(node);
            }
        } else if (node->runs_on == DV_RUNS_ON_HOST) {
            node->state = DV_NODE_SUBMITTED;
            if (!atomic_load(&node->ready_told))
                graph->backend->ready(node);
            fire_edges(node, false);
            if (node->ended_early)
                finish(node, node->status, false);
        } else {
            finish(node, 0, false);
        }
    }
}

/* Whether the first node at the gate leaves it now. */
static bool leaves_gate(struct dvk_graph *graph, struct dvk_gate *gate, struct dvk_node *node)
{
    /* A command of which a part failed keeps its place until its other parts are done. */
    return node->doomed ? node->open_parts == 0 : graph->backend->admit(gate, node);
}

/* The command at the gate that is to leave it first, or NULL. */
static struct dvk_node *next_at_gate(const struct dvk_graph *graph, const struct dvk_gate *gate)
{
    struct dvk_node *node = TAILQ_FIRST(&gate->waiting);

    while (graph->paused && node && !node->doomed && !belongs_to_started(node))
        node = TAILQ_NEXT(node, in_ready);
    return node;
}

static void let_through(struct dvk_graph *graph, struct dvk_gate *gate)
{
    struct dvk_node *node;

    while ((node = next_at_gate(graph, gate)) && leaves_gate(graph, gate, node)) {
        if (!node->doomed && submit_part(node))
            continue;
        TAILQ_REMOVE(&gate->waiting, node, in_ready);
        atomic_fetch_sub(&graph->attention, 1);
        if (node->doomed)
            end_doomed(node);
        else
            submit(node);
        take_ready(graph);
    }
}

/* The one point through which every command goes to the vendor or to the client. */
static void pump(struct dvk_graph *graph)
{
    struct dvk_gate *gate;

    take_ready(graph);
    while ((gate = SLIST_FIRST(&graph->cutting))) {
        SLIST_REMOVE_HEAD(&graph->cutting, in_cutting);
        gate->cutting = false;
        let_through(graph, gate);
    }
}

void dvk_graph_open_gate(struct dvk_graph *graph, struct dvk_gate *gate)
{
    let_through(graph, gate);
    pump(graph);
}

void dvk_graph_add(struct dvk_graph *graph, struct dvk_node *node, const uint32_t *waits, uint32_t wait_count)
{
    struct dvk_graph_queue *queue = node->queue;

    node->graph = graph;
    node->refs = 1;
    node->state = DV_NODE_BLOCKED;
    node->arrival = ++graph->arrivals;
    for (uint32_t i = 0; i < wait_count; i++) {
        struct dvk_event_entry *entry = event_entry(graph, waits[i]);
        if (!entry)
            node->doomed = true;
        else if (entry->node)
            depend(node, entry->node, true);
        else if (entry->status < 0)
            node->doomed = true;
    }
    if (node->detached) {
        queue->detached++;
    } else {
        struct dvk_node *last = TAILQ_LAST(&queue->active, dv_node_list);
        if (queue->in_order) {
            bool first_reason = node->blocked_by == 0;
            if (last)
                depend(node, last, false);
            if (last && first_reason)
                arrange_early_start(node, last);
        } else if (node->everything) {
            struct dvk_node *earlier;
            TAILQ_FOREACH (earlier, &queue->active, in_active)
                depend(node, earlier, false);
        } else if (queue->barrier) {
            depend(node, queue->barrier, false);
        }
        TAILQ_INSERT_TAIL(&queue->active, node, in_active);
        queue->last_number = node->number;
        if (node->barrier && !queue->in_order)
            queue->barrier = node;
        if (!queue->in_order)
            atomic_fetch_add(&graph->attention, 1);
    }
    if (node->event) {
        struct dvk_event_entry *entry = event_entry(graph, node->event);
        if (entry)
            *entry = (struct dvk_event_entry){.node = node};
        else
            node->event = 0;
    }
    if (node->blocked_by == 0) {
        TAILQ_INSERT_TAIL(&graph->ready, node, in_ready);
        pump(graph);
    } else {
        block(node);
    }
}

int dvk_graph_add_user_event(struct dvk_graph *graph, struct dvk_node *node)
{
    struct dvk_event_entry *entry = event_entry(graph, node->event);

    if (!entry)
        return -EINVAL;
    node->graph = graph;
    node->refs = 1;
    node->runs_on = DV_RUNS_NOWHERE;
    node->state = DV_NODE_SUBMITTED;
    *entry = (struct dvk_event_entry){.node = node};
    return 0;
}

bool dvk_graph_is_ready(const struct dvk_node *node)
{
    return node->runs_on == DV_RUNS_ON_HOST && !node->ended_early &&
           (node->state == DV_NODE_SUBMITTED || (node->state == DV_NODE_BLOCKED && atomic_load(&node->ready_told)));
}

void dvk_graph_finish(struct dvk_graph *graph, struct dvk_node *node, int32_t status)
{
    if (node->state == DV_NODE_BLOCKED) { /* we have not noticed the end of the one before it */
        node->ended_early = true;
        node->status = status;
        return;
    }
    finish(node, status, false);
    pump(graph);
}

struct dvk_node *dvk_graph_find(struct dvk_graph_queue *queue, uint64_t number)
{
    struct dvk_node *node;

    TAILQ_FOREACH (node, &queue->active, in_active)
        if (node->number == number)
            return node;
    return NULL;
}

void dvk_graph_report(struct dvk_node *node, int32_t status)
{
    struct dvk_graph *graph = node->graph;

    if (node->is_part && status < 0)
        atomic_store(&node->whole->failure, status);
    if (node->is_cut && status >= 0 && atomic_load(&node->failure))
        status = atomic_load(&node->failure);
    node->status = status;
    if (node->passed_gate) {
        struct dvk_gate *gate = node->queue->gate;
        node->reported_ns = dv_now();
        atomic_store(&node->ended, true);
        close_after(gate, node);
    }
    make_visible(node, status);
    struct dvk_node *next = atomic_exchange(&node->next_ready, DV_READY_REPORTED);
    if (next) { /* before the main thread can know of our end, and start those behind it */
        atomic_store(&next->ready_told, true);
        graph->backend->ready(next);
    }
    struct dvk_node *head = atomic_load(&graph->done);
    do
        node->done_next = head;
    while (!atomic_compare_exchange_weak(&graph->done, &head, node));
    if (atomic_load(&graph->attention) && atomic_exchange(&graph->asleep, false)) {
        atomic_store(&graph->shm->worker_asleep, 0);
        dv_futex_wake(&graph->shm->worker_asleep, 1);
    }
}

/* Divides the time of commands that were reported together by their expected costs: a long kernel does
 * not make the small copies behind it seem long. */
static void measure(struct dvk_node *reported)
{
    struct dvk_stream *stream = reported->stream;
    struct dvk_node *node;
    uint64_t first_ns = 0, expected_ns = 0;

    TAILQ_FOREACH (node, &stream->flight, in_flight) {
        if (first_ns == 0)
            first_ns = node->submitted_ns;
        expected_ns += node->cost_ns;
        if (node == reported)
            break;
    }
    if (first_ns < stream->reported_ns)
        first_ns = stream->reported_ns;
    stream->reported_ns = reported->reported_ns;
    uint64_t took = reported->reported_ns > first_ns ? reported->reported_ns - first_ns : 0;
    double factor = expected_ns ? (double)took / (double)expected_ns : 0;
    TAILQ_FOREACH (node, &stream->flight, in_flight) {
        uint64_t part_ns = (uint64_t)((double)node->cost_ns * factor);
        reported->graph->backend->measured(node, first_ns, part_ns);
        first_ns += part_ns;
        if (node == reported)
            break;
    }
    reported->graph->backend->all_measured(reported->queue->gate);
}

/* The vendor runs a stream in order: all commands before a finished one are finished. */
static void finish_in_stream(struct dvk_node *reported)
{
    struct dvk_stream *stream = reported->stream;
    struct dvk_node *node, *next;

    if (reported->passed_gate)
        measure(reported);

    for (node = TAILQ_FIRST(&stream->flight); node; node = next) {
        next = TAILQ_NEXT(node, in_flight);
        if (node == reported || !node->reports) {
            int32_t status = node == reported ? node->status : 0;
            bool last = node == reported;
            TAILQ_REMOVE(&stream->flight, node, in_flight);
            finish(node, status, last);
            if (last)
                return;
        }
    }
}

void dvk_graph_reap(struct dvk_graph *graph)
{
    struct dvk_node *node = atomic_exchange(&graph->done, NULL);
    struct dvk_node *ordered = NULL;

    while (node) { /* the stack has the newest first */
        struct dvk_node *next = node->done_next;
        node->done_next = ordered;
        ordered = node;
        node = next;
    }
    while (ordered) {
        node = ordered;
        ordered = node->done_next;
        finish_in_stream(node);
    }
    pump(graph);
}

static bool fence_stream(struct dvk_graph *graph, struct dvk_graph_queue *queue, struct dvk_stream *stream)
{
    struct dvk_node *last = TAILQ_LAST(&stream->flight, dv_node_list);

    if (!last || last->reports)
        return false;
    struct dvk_node *node = graph->backend->fence(queue, stream);
    if (!node)
        return false;
    node->queue = queue;
    node->stream = stream;
    node->runs_on = DV_RUNS_ON_DEVICE;
    node->number = last->number;
    node->detached = true;
    node->fence = true;
    dvk_graph_add(graph, node, NULL, 0);
    return true;
}

void dvk_graph_fence(struct dvk_graph *graph)
{
    bool any;

    do { /* a fence that the vendor refuses ends commands, and so releases others */
        any = false;
        for (uint32_t i = 0; i < graph->queue_count; i++)
            any |= fence_stream(graph, graph->queues[i], &graph->queues[i]->main);
    } while (any);
}

uint64_t dvk_graph_oldest_blocked(const struct dvk_graph *graph)
{
    const struct dvk_node *node = TAILQ_FIRST(&graph->blocked);
    return node ? node->arrival : UINT64_MAX;
}

/* ---- pausing ---- */

void dvk_graph_pause(struct dvk_graph *graph, bool paused)
{
    if (graph->paused == paused)
        return;
    graph->paused = paused;
    if (paused) {
        atomic_fetch_add(&graph->attention, 1); /* each end can be the last */
        return;
    }
    atomic_fetch_sub(&graph->attention, 1);
    TAILQ_CONCAT(&graph->ready, &graph->held, in_ready);
    pump(graph);
}

static bool has_started(const struct dvk_node *node)
{
    return node->state == DV_NODE_SUBMITTED || node->is_cut || atomic_load(&node->ready_told);
}

bool dvk_graph_is_quiet(const struct dvk_graph *graph)
{
    const struct dvk_node *node;

    if (atomic_load(&graph->done) || !TAILQ_EMPTY(&graph->ready))
        return false;
    for (uint32_t i = 0; i < graph->queue_count; i++) {
        const struct dvk_graph_queue *queue = graph->queues[i];
        if (queue->detached || !TAILQ_EMPTY(&queue->main.flight) || !TAILQ_EMPTY(&queue->lane.flight))
            return false;
        TAILQ_FOREACH (node, &queue->active, in_active)
            if (has_started(node))
                return false;
    }
    return true;
}

static int by_arrival(const void *a, const void *b)
{
    const struct dvk_node *first = *(struct dvk_node *const *)a, *second = *(struct dvk_node *const *)b;

    return first->arrival < second->arrival ? -1 : 1;
}

int64_t dvk_graph_list(const struct dvk_graph *graph, struct dvk_node ***list)
{
    struct dvk_node *node;
    size_t count = 0, at = 0;

    for (uint32_t i = 0; i < graph->queue_count; i++)
        TAILQ_FOREACH (node, &graph->queues[i]->active, in_active)
            count++;
    *list = malloc((count + 1) * sizeof(struct dvk_node *));
    if (!*list)
        return -ENOMEM;
    for (uint32_t i = 0; i < graph->queue_count; i++)
        TAILQ_FOREACH (node, &graph->queues[i]->active, in_active)
            (*list)[at++] = node;
    qsort(*list, count, sizeof(struct dvk_node *), by_arrival);
    return (int64_t)count;
}

void dvk_graph_note_failed(struct dvk_graph *graph, uint32_t event, int32_t status)
{
    struct dvk_event_entry *entry = event_entry(graph, event);

    if (entry && !entry->node && status < 0)
        entry->status = status;
}
