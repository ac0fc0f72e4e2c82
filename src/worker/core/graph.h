/* The command graph of a session: which command may run when. The vendor only ever sees commands
 * whose dependencies are complete or already handed to it; user events, host commands and queue
 * order are kept here. Knows nothing of any API: a backend submits.
 *
 * One thread at a time owns the graph: the session's main thread, or right after a grant, while that sleeps,
 * the lease's thread. The vendor's threads may call dvk_graph_report only. */
#ifndef DV_WORKER_CORE_GRAPH_H
#define DV_WORKER_CORE_GRAPH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "src/wire/session/shm.h"

/* A command whose awaited event failed ends with this status (OpenCL's number for it). */
#define DV_STATUS_DEPENDENCY_FAILED (-14)

enum dvk_runs_on {
    DV_RUNS_ON_DEVICE, /* the vendor runs it */
    DV_RUNS_ON_HOST,   /* the client runs it when told to */
    DV_RUNS_NOWHERE,   /* nothing to run: done when its dependencies are */
};

enum dvk_node_state { DV_NODE_BLOCKED, DV_NODE_SUBMITTED, DV_NODE_DONE };

struct dvk_node;
struct dvk_graph;

TAILQ_HEAD(dv_node_list, dvk_node);

/* Even while more commands keep coming, one in this many is reported, so that the client sees
 * progress and finished commands do not pile up. */
#define DV_MAX_UNREPORTED 64

/* The commands of a gate that are with the vendor. Only graph.c changes it. */
struct dvk_gate_flight {
    uint32_t count;            /* submitted, not known to be complete */
    uint64_t ns;               /* how long those take in all, as expected */
    uint64_t ends_ns;          /* when they are expected to be complete */
    struct dvk_stream *stream; /* of all of them; NULL: of several */
    struct dvk_node *last;     /* the one submitted last, whose end is the end of all; NULL: none is */
    /* The node whose report means that nothing is in flight, and no command may follow under this grant;
     * NULL: none. The thread that submits sets it. The thread that reports the node changes it to
     * DV_GATE_CLOSED and gives the device back. The thread that submits clears it before it lets another
     * command through, unless the other thread was first. */
    struct dvk_node *_Atomic closing;
    struct dvk_node *closes; /* the same, for the thread that submits alone */
};

/* The gate between ready commands and one device: while it is closed they wait here, in the order in
 * which they became ready. Only gate.c changes it, but for the flight and the list. */
struct dvk_gate {
    uint32_t device;
    struct dv_node_list waiting; /* graph.c's */
    struct dvk_gate_flight flight;
    uint64_t now_ns;               /* when a command was last let through; may be a little late */
    uint64_t since_clock_ns;       /* the work let through since the clock was read for it */
    uint64_t look_ns;              /* when the next one may be let through; 0: not before something ends */
    _Atomic bool closes_with_more; /* commands still wait when it closes */
    uint64_t fenced;               /* serial of the grant at whose end a fence was asked for */
    bool bringing;                 /* memory for the next command is on its way: the slice does not run */
    bool full;                     /* enough is with the vendor; more follows when half of it is done */
    bool held_up;                  /* the first command waits for something that takes long, and not for the device */
    bool hurried;                  /* another session waits for the device: notice the last end at once */
    uint64_t serial;               /* of the grant under which the last one was submitted */
    bool cutting;                  /* in the graph's list of gates whose first command goes on in parts */
    SLIST_ENTRY(dvk_gate) in_cutting;
};

/* A queue of the vendor that runs commands in the order submitted. */
struct dvk_stream {
    struct dv_node_list flight; /* submitted, not known to be complete */
    uint32_t unreported;        /* submitted since the last one that reports */
    uint64_t unreported_ns;     /* how long those are expected to take */
    uint64_t reported_ns;       /* when the last report came */
};

struct dvk_graph_queue {
    bool in_order;
    struct dvk_gate *gate; /* NULL: the device is not gated */
    struct dv_shm_queue *slot;
    struct dv_node_list active; /* not done, in the order enqueued */
    uint32_t detached;          /* not done, beside the queue's order */
    struct dvk_node *barrier;   /* the last one of an out-of-order queue, or NULL */
    uint64_t last_number;
    struct dvk_stream main;
    struct dvk_stream lane; /* beside the queue's order, for host commands' own transfers */
};

struct dvk_edge;

struct dvk_node {
    union {
        TAILQ_ENTRY(dvk_node) in_active;
        struct dvk_node *whole; /* of a part: the command */
    };
    TAILQ_ENTRY(dvk_node) in_flight;
    TAILQ_ENTRY(dvk_node) in_ready;
    TAILQ_ENTRY(dvk_node) in_blocked;
    struct dvk_node *done_next;
    struct dvk_graph *graph;
    struct dvk_graph_queue *queue; /* NULL for user events */
    struct dvk_stream *stream;     /* DV_RUNS_ON_DEVICE only */
    struct dvk_edge *successors;
    struct dvk_node **deps; /* submitted before it, to be awaited by the vendor */
    uint32_t dep_count;
    uint64_t number;       /* within the queue */
    uint64_t arrival;      /* within the session */
    uint64_t cost_ns;      /* expected; gated nodes only */
    uint64_t submitted_ns; /* gated nodes only */
    uint64_t reported_ns;  /* when the vendor finished it, if it reports */
    uint32_t event;        /* slot + 1, or 0 */
    uint32_t refs;
    uint32_t blocked_by;
    enum dvk_runs_on runs_on : 8; /* caches hold more commands that are small */
    enum dvk_node_state state : 8;
    bool detached;   /* not part of the queue's order */
    bool fence;      /* stands for all that was submitted to its stream before */
    bool everything; /* waits for all earlier commands of an out-of-order queue */
    bool barrier;    /* later commands of an out-of-order queue wait for it */
    bool by_helper;  /* host command of the client's helper, which keeps their order */
    bool reports;    /* its completion will be reported by dvk_graph_report */
    bool doomed;     /* it will not run: an awaited event failed, or `failure` says why */
    bool in_blocked_list;
    bool passed_gate;   /* counted among its gate's in flight */
    _Atomic bool ended; /* the vendor has finished it; what it printed may still be on its way */
    /* A host command that the client was told to run when the one before it was reported, ahead of the
     * main thread. Its end, too, can be known before the main thread has reaped that one. */
    _Atomic bool ready_told;
    bool ended_early;
    /* A command can go to the vendor in parts, each a node of its own; the last part is the command itself. */
    bool is_part;
    bool is_cut;         /* parts of it were submitted before the last one */
    uint32_t open_parts; /* of those: not done */
    /* The helper's host command that waits only for this one: the thread that reports this one starts it
     * at once. DV_READY_REPORTED: too late for that. */
    struct dvk_node *_Atomic next_ready;
    _Atomic int32_t failure; /* status of a doomed node, or of a part that failed; 0: DV_STATUS_DEPENDENCY_FAILED */
    int32_t status;
};

struct dvk_graph_backend {
    /* The next part of a command that goes to the vendor in parts, or NULL: the rest goes at once. Called when the
     * command has passed its gate. */
    struct dvk_node *(*cut)(struct dvk_node *node);
    /* Hands a node to the vendor. If node->reports, dvk_graph_report must follow some time.
     * Returns 0 or the error the command ends with. */
    int32_t (*submit)(struct dvk_node *node);
    /* Makes the vendor report all that was submitted to the stream so far: returns a node that was
     * submitted for it (reports set), or NULL. */
    struct dvk_node *(*fence)(struct dvk_graph_queue *queue, struct dvk_stream *stream);
    /* Tells the client to run a host command; for the helper's commands from any thread. */
    void (*ready)(struct dvk_node *node);
    /* From any thread, before completion becomes visible. */
    void (*before_visible)(struct dvk_node *node);
    /* An event with `notify` set changed; from any thread. */
    void (*notify)(struct dvk_graph *graph, uint32_t slot);
    /* A command failed after it was accepted. */
    void (*failed)(struct dvk_node *node, int32_t status);
    /* It is over, whether it ran or not: its resources are free. Others may still refer to the node. */
    void (*finished)(struct dvk_node *node);
    /* The last reference to the node is gone. */
    void (*destroy)(struct dvk_node *node);
    /* Whether the next command of the same queue is already waiting to be read: then the present
     * one need not be reported by itself. */
    bool (*more_coming)(const struct dvk_node *node);
    /* How long a command will keep the device busy, as far as known. */
    uint64_t (*cost)(const struct dvk_node *node);
    /* It began then and took this long (its part of the time reported together). */
    void (*measured)(struct dvk_node *node, uint64_t began_ns, uint64_t took_ns);
    /* All that were reported together have been measured. */
    void (*all_measured)(struct dvk_gate *gate);
    /* Whether the gate lets the node through now; if not, arranges for dvk_graph_open_gate. */
    bool (*admit)(struct dvk_gate *gate, struct dvk_node *node);
    /* Nothing of the gate is in flight any more. */
    void (*drained)(struct dvk_gate *gate);
    /* The same, on the thread that reports, where gate->closing said so: sooner than the main thread
     * could notice. `drained` follows. */
    void (*closed)(struct dvk_gate *gate);
};

struct dvk_event_entry {
    struct dvk_node *node; /* while the event is not complete */
    int32_t status;
};

struct dvk_graph {
    const struct dvk_graph_backend *backend;
    void *owner;
    struct dv_shm_header *shm;
    struct dvk_event_entry *events;
    uint32_t event_capacity;
    uint64_t arrivals;
    struct dv_node_list ready;
    struct dv_node_list blocked; /* in the order of arrival */
    SLIST_HEAD(, dvk_gate) cutting;
    uint32_t queue_capacity;
    struct dvk_graph_queue **queues; /* all, for fencing before sleep */
    uint32_t queue_count;
    _Atomic(struct dvk_node *) done; /* reported, not yet reaped: a stack */
    _Atomic uint32_t attention;      /* above 0: work waits for the main thread to reap */
    _Atomic bool asleep;             /* the main thread sleeps, or is about to */
    bool paused;
    struct dv_node_list held; /* ready, and not to start while it is paused */
};

int dvk_graph_init(struct dvk_graph *graph, const struct dvk_graph_backend *backend, void *owner, void *shm);
void dvk_graph_fini(struct dvk_graph *graph);

int dvk_graph_queue_init(struct dvk_graph *graph, struct dvk_graph_queue *queue, uint32_t slot, bool in_order);
/* The queue must have no active node. */
void dvk_graph_queue_fini(struct dvk_graph *graph, struct dvk_graph_queue *queue);

/* Adds a command; it may be submitted at once. waits: event slots + 1. */
void dvk_graph_add(struct dvk_graph *graph, struct dvk_node *node, const uint32_t *waits, uint32_t wait_count);
/* A user event: a node that completes by dvk_graph_finish only. */
int dvk_graph_add_user_event(struct dvk_graph *graph, struct dvk_node *node);

/* Completes a host command or user event, from the main thread. */
void dvk_graph_finish(struct dvk_graph *graph, struct dvk_node *node, int32_t status);
struct dvk_node *dvk_graph_find(struct dvk_graph_queue *queue, uint64_t number);
/* Whether it is a host command that the client may end now. */
bool dvk_graph_is_ready(const struct dvk_node *node);
struct dvk_node *dvk_graph_event_node(struct dvk_graph *graph, uint32_t event);

/* From any thread: the vendor finished the node (reports was set). */
void dvk_graph_report(struct dvk_node *node, int32_t status);

/* Takes in reports and submits commands that became ready. */
void dvk_graph_reap(struct dvk_graph *graph);
#define DV_GATE_CLOSED ((struct dvk_node *)1)
#define DV_READY_REPORTED ((struct dvk_node *)1)
/* False: the end of the last command has been reported, and nothing may follow. */
bool dvk_gate_reopen(struct dvk_gate *gate);
/* No command may follow under the present grant: the end of the last one calls `closed`, if it will be
 * reported and is the end of all. */
void dvk_gate_close(struct dvk_gate *gate);
void dvk_gate_init(struct dvk_gate *gate, uint32_t device);
/* Lets through the commands that may go now. */
void dvk_graph_open_gate(struct dvk_graph *graph, struct dvk_gate *gate);
/* Before the main thread sleeps: everything in flight will be reported. */
void dvk_graph_fence(struct dvk_graph *graph);
/* While it is paused no command starts. Those that have started go on, with what they need for it. */
void dvk_graph_pause(struct dvk_graph *graph, bool paused);
/* Whether no command has started that has not ended, so far as is known. */
bool dvk_graph_is_quiet(const struct dvk_graph *graph);
/* An event of an earlier worker has failed: commands that wait for it fail, too. */
void dvk_graph_note_failed(struct dvk_graph *graph, uint32_t event, int32_t status);
/* All commands of queues that have not ended, in the order in which they came. Returns how many, and the list, to be
 * freed; or -ENOMEM. */
int64_t dvk_graph_list(const struct dvk_graph *graph, struct dvk_node ***list);
/* The oldest blocked node's arrival, or UINT64_MAX. */
uint64_t dvk_graph_oldest_blocked(const struct dvk_graph *graph);

void dvk_node_unref(struct dvk_node *node);

#endif
