/* Executing OpenCL for one session: objects by the client's ids, vendor handles behind them.
 * Everything here belongs to the session's main thread unless said otherwise. */
#ifndef DV_WORKER_OPENCL_EXECUTOR_H
#define DV_WORKER_OPENCL_EXECUTOR_H

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdalign.h>
#include <sys/queue.h>

#include "src/wire/session/opencl_replies.h"
#include "src/worker/core/history.h"
#include "src/worker/core/runtime.h"
#include "src/worker/opencl/cut_size.h"
#include "src/worker/opencl/cut_verdict.h"
#include "src/worker/opencl/correction.h"

enum dvk_style { DVK_STYLE_SEND, DVK_STYLE_CALL, DVK_STYLE_QUEUE };

/* Where a call's answer goes. */
struct dvk_reply {
    struct dv_reply *block; /* in shared memory */
    uint8_t *data;          /* behind it */
    size_t capacity;
    size_t bytes;
};

#include "opencl_worker.h"

struct dvk_device {
    cl_device_id vendor;
    cl_platform_id platform;
    uint32_t platform_index;
    uint32_t index; /* in the session's list */
    bool unified;
    bool scrubbed; /* fresh memory is filled with zeros */
    bool is_sub;
    struct dvk_origin *origin; /* of a sub-device; its siblings have the same */
    uint32_t units;            /* compute units; 0: not asked yet */
    uint64_t type;
    char name[DV_MAX_DEVICE_NAME];
};

struct dvk_context {
    struct dvk_context *next_idle;
    uint32_t refs; /* the table's, queues', memory objects' */
    struct dvk_origin *origin;
    cl_context vendor;
    struct dvk_worker *worker;
    struct dv_object_id id;
    uint32_t device_count;
    struct dvk_device *devices[DV_MAX_DEVICES];
    cl_command_queue mover;                 /* for residency; NULL: not needed yet */
    uint64_t counted_bytes[DV_MAX_DEVICES]; /* on each: what the vendor itself is assumed to need */
};

struct dvk_queue {
    struct dvk_graph_queue graph;
    cl_command_queue vendor;
    cl_command_queue lane; /* made when first needed */
    struct dv_object_id id;
    struct dvk_origin *origin;
    struct dvk_context *context;
    struct dvk_device *device;
    bool profiling;
    uint64_t clock_offset_ns; /* with profiling: see dvk_clock_offset */
    bool unflushed;
    bool prints; /* a command that may print was submitted since the last one that reports */
    struct dvk_queue *next_released;
};

/* How to make the vendor's object, which can happen many times. */
struct dvk_recipe {
    struct dvk_context *context;
    cl_mem_flags flags;
    size_t origin, size; /* of a sub-buffer */
    cl_image_format format;
    cl_image_desc desc;
};

/* Where a managed object is (dvk_set_residence). */
enum dvk_residence {
    DVK_AWAY,     /* it takes no device memory */
    DVK_ARRIVING, /* it exists on the device; some bytes may still be missing */
    DVK_RESIDENT, /* all of it is on the device; `moved` bytes may have been copied out */
    DVK_STUCK,    /* resident, but eviction failed; not tried again until it was used */
};

/* Where the newest bytes of a managed object are. */
enum dvk_content {
    DVK_NO_CONTENT,        /* no command has written it */
    DVK_CONTENT_ON_HOST,   /* in the backing; a resident object has the same bytes */
    DVK_CONTENT_ON_DEVICE, /* only there */
};

struct dvk_mem {
    uint32_t refs;       /* of this record: the table's, kernels' arguments', commands' */
    uint32_t pins;       /* commands not yet handed to the vendor; they keep its object */
    bool released;       /* by the application */
    bool told_by_vendor; /* its end; otherwise the worker reports it at release */
    bool is_image;
    cl_mem vendor; /* NULL: creation failed */
    cl_int error;  /* the reason */
    struct dv_object_id id;
    struct dvk_origin *origin;
    uint64_t bytes;
    uint64_t element_bytes;
    uint32_t device; /* whose memory it is counted against; an index of the session's list */
    bool counted;
    uint64_t lent;   /* where in the arena its bytes are; 0: with the vendor */
    uint64_t stored; /* where in the session's store its backing is; 0: not there */
    bool is_part;    /* of another object, whose bytes it has */
    struct dvk_worker *worker;

    /* Managed objects only (residency.h): the vendor's object comes and goes. */
    struct dvk_mem *root;   /* NULL: not managed */
    struct dvk_mem *parent; /* of which it is a part or a view */
    LIST_ENTRY(dvk_mem) of_root;
    struct dvk_recipe make;
    uint64_t made; /* number of this instance of the vendor's object */
    /* roots only */
    LIST_HEAD(, dvk_mem) children;
    TAILQ_ENTRY(dvk_mem) in_resident; /* least recently used first */
    uint8_t *backing;                 /* its bytes in host memory, or NULL */
    uint64_t backing_bytes;
    cl_mem pinned;    /* buffer that the backing is mapped from, or NULL: ordinary memory */
    uint64_t moved;   /* bytes of a move under way */
    size_t region[3]; /* of an image */
    uint32_t in_use;  /* commands admitted and not complete */
    enum dvk_residence residence;
    enum dvk_content content;
    bool wanted; /* by commands whose objects are being brought in */
};

struct dvk_list {
    struct dvk_mem **roots;
    uint32_t count, capacity;
};

/* Which objects a session brings in. When there is no room, the next phase follows. */
enum dvk_phase {
    DVK_BRINGS_NOTHING,
    DVK_BRINGS_AHEAD,  /* the device is not granted yet: as much as there is room for */
    DVK_BRINGS_SET,    /* objects of the command at the gate, and of those behind it */
    DVK_BRINGS_HEAD,   /* of the command at the gate only, evicting the session's other objects */
    DVK_BRINGS_QUEUED, /* the same, with nothing left to evict: it waits until other sessions have evicted */
};

/* Whether divvyd was asked for room. */
enum dvk_question {
    DVK_NOT_ASKED,
    DVK_ASKED,
    DVK_ASKED_BEFORE_EVICTING, /* and less room is needed since */
    DVK_NOTHING_ASKED,         /* divvyd was told of the copies; there is room */
};

/* A session on a device: its room there, and its moves. */
struct dvk_room {
    bool managed;
    uint64_t capacity;             /* of the device, for all sessions */
    uint32_t pinned;               /* enum dv_pinned: of evicted objects' host memory; AUTO: not tried yet */
    uint64_t pinned_bytes;         /* pinned bytes of that memory */
    struct dvk_list wanted, set;   /* objects being brought in: all, and those not resident */
    struct dvk_list wanted_before; /* the old list while a new one is built */
    struct dvk_mem *partly_there;  /* object whose move in was interrupted; NULL: none */
    TAILQ_HEAD(, dvk_mem) resident;
    uint64_t room;                /* granted by divvyd */
    uint64_t placed;              /* taken by objects */
    struct dvk_command *bringing; /* whose objects are being brought in, or NULL */
    uint64_t started_ns;          /* when it started; 0: divvyd was not told */
    enum dvk_phase phase;
    enum dvk_question question;
    uint64_t place_id; /* of the newest question */
    uint64_t evict_due;
    uint64_t evict_id; /* newest request in evict_due */
    /* divvyd's messages, set on the lease's thread */
    _Atomic uint64_t granted_in, evict_in;
    _Atomic uint64_t evict_in_id;             /* not newer than the newest request in evict_in */
    _Atomic uint64_t answered_id, no_room_id; /* newest question answered, and newest one refused */
};

/* An object that a command uses. */
struct dvk_use {
    struct dvk_mem *mem, *root;
    bool writes;
};

struct dvk_sampler {
    uint32_t refs;
    struct dv_object_id id;
    struct dvk_origin *origin;
    cl_sampler vendor;
};

struct dvk_program {
    cl_program vendor;
    struct dvk_origin *origin;
    struct dvk_correction *correction; /* NULL: it is not built from source */
    struct dvk_context *context;
    struct dvk_verdict verdict;
    bool may_print;
};

struct dvk_argument {
    uint32_t form; /* enum dv_argument_form, 0: not set */
    uint64_t size;
    uint64_t version;
    struct dvk_mem *mem;
    struct dvk_sampler *sampler;
    void *value;
};

/* A kernel's arguments at one moment; copied on change while a command still needs them. */
struct dvk_arguments {
    uint32_t refs;
    uint32_t count;
    struct dvk_argument list[];
};

/* The measured time of a kernel. It outlives the kernel while commands refer to it. */
struct dvk_timing {
    uint32_t refs;
    uint64_t cost_ns;          /* 0: not known yet */
    double items;              /* work items of the measured runs */
    size_t local_sizes[16][4]; /* of recent launches, with their form: the first run with a new one can compile */
    uint32_t local_count;
    struct dvk_pace pace;
    struct dvk_verdict verdict; /* of the kernel, for traces */
    uint64_t values[8]; /* hashes of the arguments given by value, of recent launches: they can make it long or short */
    uint32_t value_count;
    char name[DV_MAX_TRACED_NAME]; /* of the kernel, for traces */
};

/* Forms of a kernel that a driver may compile for each local size: bits. */
#define DVK_FORM_OFFSET UINT32_C(1) /* some global offset is not 0 */
#define DVK_FORM_WIDE UINT32_C(2)   /* the range is wide in some dimension */
#define DVK_FORM_CORRECTED UINT32_C(4)

/* An argument in a kernel's signature. */
struct dvk_parameter {
    uint32_t form;   /* enum dv_argument_form; 0: not known */
    bool only_reads; /* the memory it points to */
};

/* A kernel of the vendor's, and the arguments that it has. */
struct dvk_vendor_kernel {
    cl_kernel kernel;
    uint64_t *applied;      /* version of each argument */
    uint64_t *applied_made; /* and the instance of a memory object */
};

struct dvk_kernel {
    struct dvk_origin *origin;
    struct dvk_timing *timing;
    cl_kernel vendor;                          /* the same as as_is.kernel */
    struct dvk_vendor_kernel as_is, corrected; /* the latter's kernel is NULL until it is needed */
    struct dvk_correction *correction;         /* of its program, or NULL */
    struct dvk_verdict verdict;
    struct dv_shm_kernel *listed; /* NULL: there were too many before it */
    uint32_t refs;
    bool may_print;
    struct dvk_arguments *arguments;
    uint64_t versions;
    struct dvk_parameter *parameters; /* one for each argument */
};

struct dvk_cut;

#define DVK_KEPT 4

/* A command: node of the graph, vendor event, and a private copy of its record. */
struct dvk_command {
    struct dvk_node node;
    struct dvk_worker *worker;
    struct dvk_queue *queue;
    const struct dvk_message_info *info;
    cl_event event;
    cl_event *waits;
    struct dvk_mem *mems[DVK_KEPT];
    struct dvk_mem **listed; /* those of a command that takes a list */
    cl_uint wait_count;
    uint32_t writes; /* of mems: a bit for each that the command writes */
    uint32_t listed_count;
    cl_int refused; /* the objects cannot all be resident: the error it fails with */
    struct dvk_kernel *kernel;
    struct dvk_arguments *arguments;
    struct dvk_timing *timing; /* kernels on leased devices */
    double items;              /* work items; of a part: its own */
    struct dvk_cut *cut;       /* of a launch that goes to the device in parts; NULL: it does not, so far */
    struct dvk_use *uses;      /* managed objects */
    uint32_t use_count, use_capacity;
    bool stays_whole;   /* it cannot go in parts */
    bool is_new;        /* no launch with its arguments was measured */
    bool event_is_kept; /* by the launch of which this is a part */
    bool compiles;      /* perhaps: then its time does not predict the next run */
    bool may_print;
    bool holds;             /* its objects stay on the device for it */
    uint64_t free_after;    /* arena offset to report as free, or 0 */
    _Atomic uint32_t *flag; /* in the arena, to clear when done, or NULL */
    alignas(8) uint8_t record[];
};

/* The vendor's queue that runs it. */
static inline cl_command_queue dvk_command_queue(const struct dvk_command *c)
{
    return c->node.stream == &c->queue->graph.lane ? c->queue->lane : c->queue->vendor;
}

/* Where the vendor is to put its event; NULL: none is needed. */
static inline cl_event *dvk_command_event(struct dvk_command *c)
{
    return c->node.reports ? &c->event : NULL;
}

/* With the record of a small transfer it fits 512 bytes: a busy queue has thousands of them, and caches are small. */
static_assert(sizeof(struct dvk_command) <= 392, "commands that take more of the caches");

struct dvk_table {
    void **slots;
    uint32_t capacity;
};

struct dvk_worker {
    struct dv_lease_work ran; /* the measurement in progress */
    double cut_credit_ns;     /* time that may go into finding out how long kernels are */
    uint64_t other_cost_ns;   /* recent cost of commands other than kernels; 0: not known */
    struct dvk_runtime *runtime;
    const struct dvk_message_info *messages; /* by op: the generated table */
    struct dvk_table tables[DV_KIND_COUNT];
    struct dvk_history history;
    struct dvk_context *idle_contexts; /* released, to be used again */
    struct dvk_queue *released_queues; /* waiting for their last command */
    struct dvk_room rooms[DV_MAX_DEVICES];
    uint64_t made;            /* counts the vendor's objects made for managed objects */
    _Atomic uint32_t leaving; /* memory objects that were released, and whose end the vendor will report */
    uint32_t kernels_listed;
    uint32_t failures; /* commands that failed after they were accepted, as far as logged */
    uint8_t *scratch;
    size_t scratch_bytes;
    bool follows;                  /* it takes in what another worker has left, */
    const uint8_t *following_data; /* with the data of the present message */
    uint64_t following_bytes;
    struct dvk_device *devices[DV_MAX_DEVICES];
    uint32_t device_count;
};

/* Of a command with an event. */
static inline struct dv_shm_event *dvk_command_event_slot(const struct dvk_command *c)
{
    return (struct dv_shm_event *)(c->worker->runtime->shm + DV_SHM_EVENT_OFFSET) + c->node.event - 1;
}

/* Shows the application that the vendor has a command with an event. */
static inline void dvk_command_is_submitted(const struct dvk_command *c)
{
    atomic_store(&dvk_command_event_slot(c)->status, CL_SUBMITTED);
}

static inline struct dvk_worker *dvk_worker_of(struct dvk_runtime *runtime)
{
    return runtime->api;
}

/* ---- reply.c ---- */
/* The reply that a message names, with room for this many bytes behind it. An invalid reply ends the worker. */
struct dv_reply *dvk_find_reply(struct dvk_worker *w, uint64_t offset, uint64_t bytes);
void dvk_send_reply(struct dv_reply *block, int32_t status);
/* Puts data behind the reply. Excess data is cut off; the full length is reported. */
void dvk_reply_put(struct dvk_reply *reply, const void *data, size_t bytes);

/* ---- table.c ---- */
void *dvk_find(struct dvk_worker *w, enum dv_object_kind kind, struct dv_object_id id);
int dvk_put(struct dvk_worker *w, enum dv_object_kind kind, struct dv_object_id id, void *object);
void *dvk_take(struct dvk_worker *w, enum dv_object_kind kind, struct dv_object_id id);

static inline struct dvk_device *dvk_find_device(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_DEVICE, id);
}
static inline struct dvk_context *dvk_find_context(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_CONTEXT, id);
}
static inline struct dvk_queue *dvk_find_queue(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_QUEUE, id);
}
static inline struct dvk_mem *dvk_find_mem(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_MEM, id);
}
static inline struct dvk_sampler *dvk_find_sampler(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_SAMPLER, id);
}
static inline struct dvk_program *dvk_find_program(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_PROGRAM, id);
}
static inline struct dvk_kernel *dvk_find_kernel(struct dvk_worker *w, struct dv_object_id id)
{
    return dvk_find(w, DV_KIND_KERNEL, id);
}

/* ---- origins.c ---- */
/* The origin of the object that this message has made from another, or NULL. */
struct dvk_origin *dvk_origin_of_new(struct dvk_worker *w, const struct dv_record *message, struct dvk_origin *from);
/* A message has made the object, from another object. */
void dvk_mem_set_origin(struct dvk_mem *mem, const struct dv_record *message, struct dvk_origin *from);
/* The origin of a kernel that is a copy of another. */
struct dvk_origin *dvk_origin_of_clone(struct dvk_worker *w, const struct dvk_kernel *source, struct dv_object_id id);
/* The application releases an object. Its record can stay for commands that need it. */
void dvk_origin_note_release(struct dvk_worker *w, enum dv_object_kind kind, void *object,
                             const struct dv_record *message);

/* ---- contexts.c ---- */
void dvk_context_unref(struct dvk_context *context);
bool dvk_queue_is_idle(const struct dvk_queue *queue);
void dvk_queue_close(struct dvk_worker *w, struct dvk_queue *queue);
void dvk_close_released_queues(struct dvk_worker *w);

/* ---- streams.c ---- */
void dvk_flush(struct dvk_worker *w);
/* Waits for all work handed to the vendor. */
void dvk_finish(struct dvk_worker *w);

/* ---- mem_record.c ---- */
struct dvk_mem *dvk_mem_new(struct dvk_worker *w, struct dv_object_id id);
/* Sets how the object is made. The context stays as long as the object's record. */
void dvk_mem_set_recipe(struct dvk_mem *mem, struct dvk_recipe recipe);
void dvk_mem_forget_origin(struct dvk_mem *mem);
void dvk_mem_free(struct dvk_mem *mem);
/* It was made, and its root, whose memory it shares, is not released. Clients release the root last. */
bool dvk_mem_is_usable(const struct dvk_mem *mem);
void dvk_mem_unref(struct dvk_mem *mem);
/* Objects are counted against the first device of their context. */
uint32_t dvk_mem_home(const struct dvk_context *context);
/* Counts its bytes for the tenant. Returns false when the quota is exhausted. */
bool dvk_mem_count(struct dvk_mem *mem, const struct dvk_context *context, bool claimed);
void dvk_mem_uncount(struct dvk_mem *mem);

/* ---- memory.c ---- */
/* The application has released it, or a command that kept the vendor's object is done with it. */
void dvk_mem_release(struct dvk_mem *mem);
void dvk_mem_unpin(struct dvk_mem *mem);

/* ---- arguments.c ---- */
void dvk_sampler_unref(struct dvk_sampler *sampler);
void dvk_kernel_unref(struct dvk_kernel *kernel);
/* Takes the vendor's kernel over, also if it fails. */
bool dvk_vendor_kernel_hold(struct dvk_vendor_kernel *held, cl_kernel vendor, cl_uint count);
/* These two return NULL when memory is short. */
struct dvk_arguments *dvk_arguments_new(uint32_t count);
struct dvk_arguments *dvk_arguments_copy(const struct dvk_arguments *from);
void dvk_argument_clear(struct dvk_argument *argument);
void dvk_arguments_unref(struct dvk_arguments *arguments);
void dvk_arguments_pin(struct dvk_arguments *arguments);
void dvk_arguments_unpin(struct dvk_arguments *arguments);
cl_int dvk_arguments_apply(struct dvk_vendor_kernel *kernel, const struct dvk_arguments *arguments);

/* ---- commands.c ---- */
bool dvk_command_keep_mem(struct dvk_worker *w, struct dvk_command *c, int at, struct dv_object_id id);
static inline bool dvk_command_keep_buffer(struct dvk_worker *w, struct dvk_command *c, int at, struct dv_object_id id)
{
    return dvk_command_keep_mem(w, c, at, id) && !c->mems[at]->is_image;
}
static inline bool dvk_command_keep_image(struct dvk_worker *w, struct dvk_command *c, int at, struct dv_object_id id)
{
    return dvk_command_keep_mem(w, c, at, id) && c->mems[at]->is_image;
}
bool dvk_command_keep_mem_list(struct dvk_worker *w, struct dvk_command *c, const struct dv_object_id *ids,
                               uint32_t count);
/* The vendor's handles of the list kept, to be freed; NULL when memory is short. */
cl_mem *dvk_command_mem_list(const struct dvk_command *c);
static inline cl_mem dvk_command_mem(struct dvk_command *c, int at)
{
    return c->mems[at]->vendor;
}
#define dvk_command_buffer dvk_command_mem
#define dvk_command_image dvk_command_mem

size_t dvk_command_tail_bytes(const struct dvk_command *c, size_t fixed);
void dvk_command_handle(struct dvk_worker *w, const struct dv_record *record, const struct dvk_message_info *info);
/* A command that an earlier worker had taken out of the ring. */
void dvk_command_take_again(struct dvk_worker *w, const uint8_t *message, const struct dvk_message_info *info);
extern const struct dvk_graph_backend dvk_backend;

/* ---- programs.c ---- */
void dvk_program_free(struct dvk_program *program);

/* ---- correction.c ---- */
/* Makes the kernel's corrected form, once its program has one. Begins to build that if need be. */
enum dvk_correction_state dvk_kernel_correct(struct dvk_kernel *kernel);

/* ---- timing.c ---- */
/* Of a kernel of the vendor's. Returns NULL when memory is short. */
struct dvk_timing *dvk_timing_new(cl_kernel kernel);
void dvk_timing_unref(struct dvk_timing *timing);
/* Whether none of the recent launches had these values as arguments. */
bool dvk_timing_is_new_value(struct dvk_timing *timing, const struct dvk_arguments *arguments);
/* The form of a launch over this range, without DVK_FORM_CORRECTED. */
uint32_t dvk_timing_form(const size_t offset[3], const size_t global[3]);
/* Whether the kernel has run with this local size in this form before. Otherwise it may have to be compiled. */
bool dvk_timing_knows(const struct dvk_timing *timing, const size_t local[3], uint32_t form);
/* The same, and from now on it has. */
bool dvk_timing_is_new(struct dvk_timing *timing, const size_t local[3], uint32_t form);

/* ---- cutting.c ---- */
/* The worker may find out how long kernels are. */
void dvk_cut_start(struct dvk_worker *w);
/* Decides how a launch at the gate goes on: as a whole, or with which part. Returns false when it has to wait until the
 * parts before have been measured. */
bool dvk_cut_plan(struct dvk_command *c);
/* The next part as a command of its own, or NULL: the rest goes at once. */
struct dvk_node *dvk_cut_next(struct dvk_node *node);
/* Whether parts of a launch were handed to the vendor. Otherwise it goes as the program enqueued it. */
bool dvk_cut_is_begun(struct dvk_command *c);
/* Hands the rest of such a launch to the vendor. */
cl_int dvk_cut_submit_rest(struct dvk_command *c);
/* Commands took so long on the device: a part of it may go into finding out how long kernels are. */
void dvk_cut_earn(struct dvk_worker *w, uint32_t device, uint64_t took_ns);
/* A part has been measured, or the rest. */
void dvk_cut_measured(struct dvk_command *c, uint64_t took_ns);
/* How long the next part of a launch in parts will take, as far as known; 0: not known. */
uint64_t dvk_cut_expects(const struct dvk_command *c);
/* When a command that is complete was handed over and began, from its vendor events. */
void dvk_cut_began(const struct dvk_command *c, cl_ulong *submit, cl_ulong *start);
void dvk_cut_free(struct dvk_cut *cut);

/* ---- queries.c ---- */
int32_t dvk_query_by_hand(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input, size_t capacity,
                          void *value, size_t *bytes);
/* ---- vendor.c: the first two as in struct dvk_runtime_api ---- */
int dvk_preload(void);
int dvk_probe(struct dv_device_report *reports, int capacity, uint32_t *found, char *text, size_t text_bytes);
int dvk_vendor_devices(struct dv_device_report *reports, cl_device_id *devices, cl_platform_id *platforms, int capacity,
                       uint32_t *found_count, char *text, size_t text_bytes);
/* The vendor's clock minus CLOCK_MONOTONIC, modulo 2^64. */
uint64_t dvk_clock_offset(cl_command_queue profiling_queue);

#endif
