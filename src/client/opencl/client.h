/* libdivvy-opencl.so: the OpenCL client inside a tenant's process. It is a guest there: it never
 * exits, prints, touches signals or leaves descriptors; after the handshake it needs none.
 *
 * Handles given to the application are pointers to these records. Everything OpenCL must answer at
 * once is checked here; the worker checks all of it again. */
#ifndef DV_CLIENT_OPENCL_CLIENT_H
#define DV_CLIENT_OPENCL_CLIENT_H

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opencl_client.h"
#include "src/base/clock.h"
#include "src/client/opencl/arena.h"
#include "src/client/opencl/staging.h"
#include "src/wire/session/handshake.h"
#include "src/wire/session/opencl_replies.h"
#include "src/wire/session/ring.h"

#define DV_PLATFORM_EXTENSIONS "cl_khr_icd"
extern const cl_name_version dv_platform_extensions[];
extern const size_t dv_platform_extensions_bytes;

struct dv_session;

/* Work for the callback thread: part of what it is about, so that nothing that must be told of needs
 * memory when it happens. */
struct dv_job {
    struct dv_job *next;
    void (*run)(struct dv_job *);
};

/* ---- objects (object.c) ---- */

struct dv_object {
    const struct _cl_icd_dispatch *dispatch; /* first, as the loader expects */
    _Atomic uint32_t kind;                   /* enum dv_object_kind; DV_KIND_NONE: not alive */
    uint32_t id;                             /* the worker knows it by this */
    _Atomic uint64_t count;                  /* low half: the application's references; high half:
                                              * other objects' */
    struct dv_session *session;
    struct dv_object *next_free;
    void *record; /* the message that made it, to make it again */
    uint32_t record_bytes;
};

#define DV_COUNT_USE (UINT64_C(1) << 32)

void *dv_object_create(enum dv_object_kind kind, struct dv_session *session);
/* Gives the memory of a dead object back; its handle is invalid from here on. */
void dv_object_free(struct dv_object *object);
/* The live object behind a handle of the kind, or NULL: any pointer may be asked about. */
void *dv_object_find(enum dv_object_kind kind, const void *handle);
void *dv_object_by_id(enum dv_object_kind kind, uint32_t id);
/* No object of the kind has had a larger one. */
uint32_t dv_object_most_id(enum dv_object_kind kind);
void dv_object_keep_record(struct dv_object *object, const void *record, size_t bytes);
void dv_object_after_fork(void);

static inline cl_uint dv_object_refs(struct dv_object *object)
{
    return (cl_uint)atomic_load(&object->count);
}
static inline void dv_object_use(struct dv_object *object)
{
    atomic_fetch_add(&object->count, DV_COUNT_USE);
}
/* The same for one that was found by its number: false when it is just being destroyed. */
static inline bool dv_object_try_use(struct dv_object *object)
{
    uint64_t count = atomic_load(&object->count);

    while (count && !atomic_compare_exchange_weak(&object->count, &count, count + DV_COUNT_USE))
        ;
    return count != 0;
}
#define dv_handle(o) ((void *)(o))

struct dv_platform {
    struct dv_object object;
    uint32_t index;
    char name[64];
    char version[96];
};

struct dv_device_answer {
    struct dv_device_answer *next;
    cl_device_info param;
    size_t bytes;
    unsigned char value[];
};

struct dv_device {
    struct dv_object object;
    struct dv_platform *platform;
    struct dv_device *parent;
    cl_device_partition_property *partition;
    size_t partition_count;
    cl_device_type type;
    bool unified;
    uint32_t index; /* in the session's list; of a sub-device, its parent's */
    uint32_t number; /* as `divvy devices` shows it */
    cl_ulong max_alloc_bytes;
    cl_uint base_align; /* bytes */
    size_t max_group, max_items[16];
    bool non_uniform; /* takes global sizes that local ones do not divide */
    char name[128];
    pthread_mutex_t lock;
    struct dv_device_answer *answers;
};

struct dv_context_callback {
    struct dv_context_callback *next;
    void(CL_CALLBACK *function)(cl_context, void *);
    void *user;
};

/* News for the function that a context was created with. */
struct dv_context_error {
    struct dv_job job; /* first */
    struct dv_context *context;
    cl_int code;
    char text[640];
};

struct dv_context {
    struct dv_object object;
    cl_uint device_count;
    struct dv_device **devices;
    cl_device_id *device_handles;
    cl_context_properties *properties;
    size_t property_count;
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *notify_user;
    struct dv_context_error *_Atomic spare_error; /* told of when there is no memory for another */
    struct dv_context_callback *_Atomic destructors;
    struct dv_job finishing;
    bool unified;       /* all its devices compute in host memory */
    cl_ulong max_alloc_bytes;
    cl_uint base_align;
};

struct dv_queue {
    struct dv_object object;
    struct dv_context *context;
    struct dv_device *device;
    cl_command_queue_properties properties;
    cl_queue_properties *property_list;
    size_t property_count;
    struct dv_shm_queue *slot;
    pthread_mutex_t lock;
    _Atomic uint64_t enqueued; /* number of the last command; changes with the lock held */
    uint64_t gated_until; /* the last command with a wait list that was not complete */
    uint64_t clock_offset_ns;
    bool in_order;
    _Atomic uint64_t last_write; /* number of the last command when a write was last enqueued */
    uint32_t writes_in_a_row;
};

struct dv_mem_callback {
    struct dv_mem_callback *next;
    void(CL_CALLBACK *function)(cl_mem, void *);
    void *user;
};

struct dv_map {
    struct dv_map *next;
    void *pointer;
    cl_map_flags flags;
    struct dv_region *region;
    uint64_t arena; /* block of its own, or 0 */
};

struct dv_mem {
    struct dv_object object;
    struct dv_context *context;
    struct dv_mem *parent;
    cl_mem_object_type type;
    cl_mem_flags flags;
    size_t size;
    size_t origin; /* in the parent */
    void *host_ptr;
    uint64_t arena;       /* where its bytes are, or 0 when only the device has them */
    uint64_t arena_block; /* the block that holds them, to be freed; 0 in sub-buffers */
    cl_mem_properties *properties;
    size_t property_count;
    cl_image_format format;
    cl_image_desc desc;
    size_t element_bytes, row_pitch, slice_pitch;
    pthread_mutex_t lock;
    struct dv_map *maps;
    struct dv_mem_callback *destructors;
    _Atomic bool releasing; /* the worker has been told to let it go, and has not yet said that it has */
    struct dv_job finishing;
};

struct dv_sampler {
    struct dv_object object;
    struct dv_context *context;
    cl_bool normalized;
    cl_addressing_mode addressing;
    cl_filter_mode filter;
    cl_sampler_properties *properties;
    size_t property_count;
};

struct dv_program_device {
    char *options;
    bool tried;
};

struct dv_program {
    struct dv_object object;
    struct dv_context *context;
    cl_uint device_count;
    struct dv_device **devices;
    char *source;
    void *il;
    size_t il_bytes;
    struct dv_program_device *builds;
    char *kernel_names;
    size_t kernel_count;
    bool built;
    bool expanded; /* the worker has its source with included files in it */
    bool linked; /* from programs compiled apart: their options decide, not its own */
    _Atomic uint32_t kernels; /* attached kernel objects */
    void *build_record;
    bool told_sizes; /* of its binaries: */
    size_t binary_bytes[DV_MAX_DEVICES];
};

/* The source with the files that it includes from the options' directories put in (include_expander.c), or
 * NULL: it includes none. headers: names that are known to the compiler, or NULL. */
cl_int dv_source_with_includes(const char *source, const char *options, const char *const *headers,
                               size_t header_count, char **expanded);

struct dv_kernel {
    struct dv_object object;
    struct dv_program *program;
    char *name;
    char *attributes;
    cl_uint argument_count;
    bool has_info;
    struct dv_wire_argument *arguments;
    bool *is_set;
    size_t required_local[3]; /* zeros: any */
    pthread_mutex_t lock;
};

struct dv_event_callback {
    struct dv_job job; /* first */
    struct dv_event_callback *next;
    struct dv_event *event;
    cl_int when, status;
    void(CL_CALLBACK *function)(cl_event, cl_int, void *);
    void *user;
};

struct dv_event {
    struct dv_object object;
    struct dv_context *context;
    struct dv_queue *queue; /* NULL: a user event */
    struct dv_shm_event *slot;
    cl_command_type command;
    uint64_t number; /* of its command in the queue; 0: was complete when made */
    bool user_set;
    pthread_mutex_t lock;
    struct dv_event_callback *callbacks;
};

#define DV_DEFINE_OF(name, kind_)                                                                  \
    static inline struct dv_##name *dv_##name##_of(const void *handle)                             \
    {                                                                                              \
        return dv_object_find(kind_, handle);                                                      \
    }
DV_DEFINE_OF(platform, DV_KIND_PLATFORM)
DV_DEFINE_OF(device, DV_KIND_DEVICE)
DV_DEFINE_OF(context, DV_KIND_CONTEXT)
DV_DEFINE_OF(queue, DV_KIND_QUEUE)
DV_DEFINE_OF(mem, DV_KIND_MEM)
DV_DEFINE_OF(sampler, DV_KIND_SAMPLER)
DV_DEFINE_OF(program, DV_KIND_PROGRAM)
DV_DEFINE_OF(kernel, DV_KIND_KERNEL)
DV_DEFINE_OF(event, DV_KIND_EVENT)

static inline struct dv_mem *dv_buffer_of(const void *handle)
{
    struct dv_mem *mem = dv_mem_of(handle);
    return mem && mem->type == CL_MEM_OBJECT_BUFFER ? mem : NULL;
}
static inline struct dv_mem *dv_image_of(const void *handle)
{
    struct dv_mem *mem = dv_mem_of(handle);
    return mem && mem->type != CL_MEM_OBJECT_BUFFER ? mem : NULL;
}

#define DV_DECLARE_REFERENCES(name)                                                                \
    cl_int dv_##name##_retain(struct dv_##name *o);                                                \
    cl_int dv_##name##_release(struct dv_##name *o);                                               \
    void dv_##name##_unuse(struct dv_##name *o);
DV_DECLARE_REFERENCES(device)
DV_DECLARE_REFERENCES(context)
DV_DECLARE_REFERENCES(queue)
DV_DECLARE_REFERENCES(mem)
DV_DECLARE_REFERENCES(sampler)
DV_DECLARE_REFERENCES(program)
DV_DECLARE_REFERENCES(kernel)
DV_DECLARE_REFERENCES(event)

/* ---- session (session.c) ---- */

struct dv_host_job;

struct dv_session {
    struct dv_session *earlier; /* whose worker is gone; what the program still has points to it */
    uint8_t *shm;
    uint64_t shm_bytes;
    struct dv_shm_header *header;
    uint64_t id;
    _Atomic bool dead;   /* the worker is gone, or we are a forked child */
    _Atomic bool forked; /* we are a forked child: the shared memory is not there */
    pthread_mutex_t ring_lock;
    struct dv_ring_writer ring;
    struct dv_arena arena;
    pthread_mutex_t host_lock;
    struct dv_host_job *host_jobs; /* for the helper, in the order enqueued */
    struct dv_host_job **host_jobs_end;
    struct {
        uint32_t queue_id; /* 0: none */
        uint64_t first, last;
        size_t bytes;
    } done; /* host commands finished, not yet told; the helper's own */
    bool helper_started; /* with host_lock */
    pthread_mutex_t output_lock;
    _Atomic uint64_t releasing_bytes; /* of released buffers that the worker has not let go yet */
    _Atomic uint32_t gone;            /* futex: counts buffers let go */
    pthread_mutex_t staging_lock;
    struct dv_staging staging;
};

/* The process's session, connecting if need be; NULL when no daemon serves us. */
struct dv_session *dv_session_get(void);
/* The present one without connecting, or NULL. */
struct dv_session *dv_session_current(void);
const struct _cl_icd_dispatch *dv_dispatch(void);

static inline bool dv_session_alive(struct dv_session *s)
{
    return s && !atomic_load_explicit(&s->dead, memory_order_relaxed);
}
/* Looks whether the worker still lives; marks the session dead if not. */
bool dv_session_check(struct dv_session *s);

/* Sleeps until *word differs from seen or the worker is dead; may return early. */
void dv_session_wait(struct dv_session *s, _Atomic uint32_t *word, uint32_t seen);

/* How a message goes out. Lengths in bytes; the records must fit DV_MAX_RECORD_BYTES. */
cl_int dv_send(struct dv_session *s, uint16_t op, struct dv_record *message, size_t bytes,
               const void *tail, size_t tail_bytes);
cl_int dv_call(struct dv_session *s, uint16_t op, struct dv_call_head *message, size_t bytes,
               const void *tail, size_t tail_bytes, void *answer, size_t capacity,
               size_t *answer_bytes);
/* The part of a send that needs the ring's lock held: room for a record, or NULL when dead. */
void *dv_ring_room(struct dv_session *s, size_t bytes);
cl_int dv_wait_reply(struct dv_session *s, struct dv_reply *reply);
void dv_flush_output(struct dv_session *s);

static inline void *dv_arena_pointer(struct dv_session *s, uint64_t offset)
{
    return s->shm + offset;
}

/* Device times on the queue's clock. */
static inline cl_ulong dv_queue_time(const struct dv_queue *queue)
{
    return dv_now() + queue->clock_offset_ns;
}

/* ---- helper and callbacks (helper.c) ---- */

/* Starts the thread that serves upcalls, unless it runs. */
bool dv_helper_start(struct dv_session *s);
/* Starts the callback thread, unless it runs: for all that may have something to post later. */
bool dv_callbacks_start(void);
/* Runs a job on the callback thread, so that application code never holds up the helper. */
void dv_callback_post(struct dv_job *job, void (*run)(struct dv_job *));
extern _Thread_local bool dv_is_helper; /* this thread */
void dv_helper_after_fork(void);

/* ---- information (info.c) ---- */
cl_int dv_info_bytes(const void *value, size_t bytes, size_t room, void *into, size_t *bytes_ret);
cl_int dv_info_text(const char *text, size_t room, void *into, size_t *bytes_ret);
/* Asks the vendor through the worker. */
cl_int dv_query(struct dv_session *s, uint32_t function, uint32_t object, uint32_t device,
                cl_uint param, const void *input, size_t input_bytes, size_t room, void *into,
                size_t *bytes_ret);
void dv_log_open(void);
bool dv_log_enabled(void);
void dv_log_call(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- platform.c ---- */
cl_int dv_platforms_init(struct dv_session *s);
/* The numbers of the devices that the program knows, in its order. False: it knows none so far. */
bool dv_platforms_list(char *list, size_t bytes);

/* ---- memory.c ---- */
void *dv_mem_reported_host_ptr(const struct dv_mem *mem);
cl_uint dv_mem_map_count(struct dv_mem *mem);
uint32_t *dv_ids_of_mem(cl_uint count, const cl_mem *list);
/* The worker has let the object go, if it was told to. */
void dv_mem_gone(struct dv_mem *mem);

/* ---- program.c ---- */
/* Whether the application itself asked for argument information when it built the program. */
bool dv_program_tells_arguments(const struct dv_program *program);

/* ---- event.c ---- */
struct dv_event *dv_event_create(struct dv_context *context, struct dv_queue *queue,
                                 cl_command_type command);
cl_int dv_event_status(struct dv_event *event);
cl_int dv_event_check_profiling(struct dv_event *event);
/* Waits for the event; returns its final status. */
cl_int dv_event_wait(struct dv_event *event);
/* A command that the client itself has finished at once. */
void dv_event_complete_here(struct dv_event *event, cl_ulong start_ns);
void dv_event_fire_callbacks(struct dv_event *event);
cl_int dv_check_waits(struct dv_context *context, cl_uint count, const cl_event *list);

/* ---- enqueue.c ---- */
cl_int dv_enqueue(struct dv_queue *queue, uint16_t op, struct dv_queue_head *message, size_t bytes,
                  const void *tail, size_t tail_bytes, cl_command_type command, cl_uint wait_count,
                  const cl_event *waits, cl_event *event);
/* The same with the queue's lock held; tells the command's number. The event, if wanted, was made
 * by the caller. */
cl_int dv_enqueue_locked(struct dv_queue *queue, uint16_t op, struct dv_queue_head *message,
                         size_t bytes, const void *tail, size_t tail_bytes, cl_uint wait_count,
                         const cl_event *waits, struct dv_event *event);
bool dv_queue_idle(struct dv_queue *queue);
void dv_queue_wait(struct dv_queue *queue, uint64_t number);
/* Whether any event of the list is not yet complete. */
bool dv_waits_pending(cl_uint count, const cl_event *list);

cl_int dv_check_ndrange(struct dv_queue *queue, struct dv_kernel *kernel, cl_uint dims,
                        const size_t *offset, const size_t *global, const size_t *local);
cl_int dv_check_copy_buffer(struct dv_queue *queue, struct dv_mem *src, struct dv_mem *dst,
                            size_t src_offset, size_t dst_offset, size_t size);
cl_int dv_check_copy_buffer_rect(struct dv_queue *queue, struct dv_mem *src, struct dv_mem *dst,
                                 const size_t *src_origin, const size_t *dst_origin,
                                 const size_t *region, size_t src_row_pitch, size_t src_slice_pitch,
                                 size_t dst_row_pitch, size_t dst_slice_pitch);
cl_int dv_check_copy_image(struct dv_queue *queue, struct dv_mem *src, struct dv_mem *dst,
                           const size_t *src_origin, const size_t *dst_origin,
                           const size_t *region);
cl_int dv_check_copy_image_to_buffer(struct dv_queue *queue, struct dv_mem *image,
                                     struct dv_mem *buffer, const size_t *origin,
                                     const size_t *region, size_t offset);
cl_int dv_check_copy_buffer_to_image(struct dv_queue *queue, struct dv_mem *buffer,
                                     struct dv_mem *image, size_t offset, const size_t *origin,
                                     const size_t *region);
cl_int dv_check_fill_buffer(struct dv_queue *queue, struct dv_mem *buffer, const void *pattern,
                            size_t pattern_size, size_t offset, size_t size);
cl_int dv_check_fill_image(struct dv_queue *queue, struct dv_mem *image, const void *color,
                           const size_t *origin, const size_t *region);
cl_int dv_check_migrate(struct dv_queue *queue, cl_uint count, const cl_mem *list,
                        cl_mem_migration_flags flags);

/* ---- geometry (region.c) ---- */

/* A box of bytes (buffers) or pixels (images) and where it lies in the application's memory. */
struct dv_region {
    enum dv_shape shape;
    size_t origin[3], size[3];
    size_t row_pitch, slice_pitch;           /* of the buffer, DV_SHAPE_RECT only */
    size_t host_offset;                      /* of the box's first byte */
    size_t host_row_pitch, host_slice_pitch; /* of the application's memory */
    size_t row_bytes;                        /* of one packed row */
    size_t bytes;                            /* of the packed box */
};

cl_int dv_region_linear(struct dv_region *r, struct dv_mem *mem, size_t offset, size_t size);
cl_int dv_region_rect(struct dv_region *r, struct dv_mem *mem, const size_t *buffer_origin,
                      const size_t *host_origin, const size_t *region, size_t row_pitch,
                      size_t slice_pitch, size_t host_row_pitch, size_t host_slice_pitch);
cl_int dv_region_image(struct dv_region *r, struct dv_mem *mem, const size_t *origin,
                       const size_t *region, size_t host_row_pitch, size_t host_slice_pitch);
cl_int dv_check_image_box(const struct dv_mem *mem, const size_t *origin, const size_t *region);
/* The bytes of application memory from the box's first to its last. */
size_t dv_region_host_span(const struct dv_region *r);
/* Between packed memory and the application's. */
void dv_region_pack(const struct dv_region *r, void *packed, const void *host);
void dv_region_unpack(const struct dv_region *r, const void *packed, void *host);
/* Between a buffer's own storage and the application's memory. */
void dv_region_to_storage(const struct dv_region *r, uint8_t *storage, const void *host);
void dv_region_from_storage(const struct dv_region *r, const uint8_t *storage, void *host);

/* ---- transfer.c ---- */
/* It is a host command's turn, or it will never run (from the helper). */
void dv_host_ready(struct dv_session *s, uint32_t queue_id, uint64_t number, bool cancelled);
/* None of them will have its turn: the worker is gone. */
void dv_host_give_up(struct dv_session *s);
/* Tells the worker of what dv_host_ready has done since. */
void dv_host_flush(struct dv_session *s);

#endif
