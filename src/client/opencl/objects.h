/* The application's objects: its handles are pointers to these records. The client checks everything that OpenCL must
 * report immediately; the worker checks all of it again. */
#ifndef DV_CLIENT_OPENCL_OBJECTS_H
#define DV_CLIENT_OPENCL_OBJECTS_H

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include "src/client/opencl/session.h"

#define DV_PLATFORM_EXTENSIONS "cl_khr_icd"
extern const cl_name_version dvc_platform_extensions[];
extern const size_t dvc_platform_extensions_bytes;

/* ---- objects (object.c) ---- */

struct dvc_object {
    const struct _cl_icd_dispatch *dispatch; /* first, as the loader expects */
    _Atomic uint32_t kind;                   /* enum dv_object_kind; DV_KIND_NONE: not alive */
    struct dv_object_id id;                  /* in messages to the worker */
    _Atomic uint64_t count;                  /* low half: the application's references; high half:
                                              * other objects' */
    struct dvc_session *session;
    struct dvc_object *next_free;
};

#define DV_COUNT_USE (UINT64_C(1) << 32)

/* For all objects that are created from here on. */
void dvc_object_set_dispatch(const struct _cl_icd_dispatch *given);
void *dvc_object_create(enum dv_object_kind kind, struct dvc_session *session);
/* Gives the memory of a dead object back; its handle is invalid from here on. */
void dvc_object_free(struct dvc_object *object);
/* The live object of the kind behind a handle, or NULL. Any pointer may be passed. */
void *dvc_object_find(enum dv_object_kind kind, const void *handle);
void *dvc_object_by_id(enum dv_object_kind kind, struct dv_object_id id);
/* The largest id that an object of the kind has had. */
uint32_t dvc_object_most_id(enum dv_object_kind kind);
void dvc_object_after_fork(void);

static inline cl_uint dvc_object_refs(struct dvc_object *object)
{
    return (cl_uint)atomic_load(&object->count);
}
static inline void dvc_object_use(struct dvc_object *object)
{
    atomic_fetch_add(&object->count, DV_COUNT_USE);
}
/* The same for an object found by its number. Returns false if it is being destroyed. */
static inline bool dvc_object_try_use(struct dvc_object *object)
{
    uint64_t count = atomic_load(&object->count);

    while (count && !atomic_compare_exchange_weak(&object->count, &count, count + DV_COUNT_USE))
        ;
    return count != 0;
}
#define dvc_handle(o) ((void *)(o))

struct dvc_platform {
    struct dvc_object object;
    uint32_t index;
    char name[64];
    char version[96];
};

struct dvc_device_answer {
    struct dvc_device_answer *next;
    cl_device_info param;
    size_t bytes;
    unsigned char value[];
};

struct dvc_device {
    struct dvc_object object;
    struct dvc_platform *platform;
    struct dvc_device *parent;
    cl_device_partition_property *partition;
    size_t partition_count;
    cl_device_type type;
    bool unified;
    uint32_t index;  /* in the session's list; of a sub-device, its parent's */
    uint32_t number; /* as `divvy devices` shows it */
    cl_ulong max_alloc_bytes;
    cl_uint base_align; /* bytes */
    size_t max_group, max_items[16];
    bool non_uniform; /* accepts global sizes that are not multiples of local ones */
    char name[128];
    pthread_mutex_t lock;
    struct dvc_device_answer *answers;
};

struct dvc_context_callback {
    struct dvc_context_callback *next;
    void(CL_CALLBACK *function)(cl_context, void *);
    void *user;
};

/* An error report for a context's callback. */
struct dvc_context_error {
    struct dvc_job job; /* first */
    struct dvc_context *context;
    cl_int code;
    char text[640];
};

struct dvc_context {
    struct dvc_object object;
    cl_uint device_count;
    struct dvc_device **devices;
    cl_device_id *device_handles;
    cl_context_properties *properties;
    size_t property_count;
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *notify_user;
    struct dvc_context_error *_Atomic spare_error; /* used when there is no memory for another */
    struct dvc_context_callback *_Atomic destructors;
    struct dvc_job finishing;
    bool unified; /* all its devices compute in host memory */
    cl_ulong max_alloc_bytes;
    cl_uint base_align;
};

struct dvc_queue {
    struct dvc_object object;
    struct dvc_context *context;
    struct dvc_device *device;
    cl_command_queue_properties properties;
    cl_queue_properties *property_list;
    size_t property_count;
    struct dv_shm_queue *slot;
    pthread_mutex_t lock;
    _Atomic uint64_t enqueued; /* number of the last command; changes with the lock held */
    uint64_t gated_until;      /* the last command with a wait list that was not complete */
    bool in_order;
    _Atomic uint64_t last_write; /* number of the last command when a write was last enqueued */
    uint32_t writes_in_a_row;
};

struct dvc_mem_callback {
    struct dvc_mem_callback *next;
    void(CL_CALLBACK *function)(cl_mem, void *);
    void *user;
};

struct dvc_map {
    struct dvc_map *next;
    void *pointer;
    cl_map_flags flags;
    struct dvc_region *region;
    uint64_t arena; /* block of its own, or 0 */
};

struct dvc_mem {
    struct dvc_object object;
    struct dvc_context *context;
    struct dvc_mem *parent;
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
    struct dvc_map *maps;
    struct dvc_mem_callback *destructors;
    _Atomic bool releasing; /* the worker was told to release it and has not yet confirmed */
    struct dvc_job finishing;
};

struct dvc_sampler {
    struct dvc_object object;
    struct dvc_context *context;
    cl_bool normalized;
    cl_addressing_mode addressing;
    cl_filter_mode filter;
    cl_sampler_properties *properties;
    size_t property_count;
};

struct dvc_program_device {
    char *options;
    bool tried;
};

struct dvc_program {
    struct dvc_object object;
    struct dvc_context *context;
    cl_uint device_count;
    struct dvc_device **devices;
    char *source;
    void *il;
    size_t il_bytes;
    struct dvc_program_device *builds;
    char *kernel_names;
    size_t kernel_count;
    bool built;
    bool expanded;            /* the worker has the source with its includes expanded */
    bool linked;              /* from separately compiled programs: their options decide, not its own */
    _Atomic uint32_t kernels; /* attached kernel objects */
    bool told_sizes;          /* the application has asked for the sizes of its binaries: */
    size_t binary_bytes[DV_MAX_DEVICES];
};

struct dvc_kernel {
    struct dvc_object object;
    struct dvc_program *program;
    char *name;
    char *attributes;
    cl_uint argument_count;
    bool has_info;
    struct dv_wire_argument *arguments;
    bool *is_set;
    size_t required_local[3]; /* zeros: any */
    pthread_mutex_t lock;
};

struct dvc_event_callback {
    struct dvc_job job; /* first */
    struct dvc_event_callback *next;
    struct dvc_event *event;
    cl_int when, status;
    void(CL_CALLBACK *function)(cl_event, cl_int, void *);
    void *user;
};

struct dvc_event {
    struct dvc_object object;
    struct dvc_context *context;
    struct dvc_queue *queue; /* NULL: a user event */
    struct dv_shm_event *slot;
    cl_command_type command;
    uint64_t number; /* of its command in the queue; 0: complete at creation */
    bool user_set;
    pthread_mutex_t lock;
    struct dvc_event_callback *callbacks;
};

#define DV_DEFINE_OF(name, kind_)                                                                                      \
    static inline struct dvc_##name *dvc_##name##_of(const void *handle)                                               \
    {                                                                                                                  \
        return dvc_object_find(kind_, handle);                                                                         \
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

static inline struct dvc_mem *dvc_buffer_of(const void *handle)
{
    struct dvc_mem *mem = dvc_mem_of(handle);
    return mem && mem->type == CL_MEM_OBJECT_BUFFER ? mem : NULL;
}
static inline struct dvc_mem *dvc_image_of(const void *handle)
{
    struct dvc_mem *mem = dvc_mem_of(handle);
    return mem && mem->type != CL_MEM_OBJECT_BUFFER ? mem : NULL;
}

#define DV_DECLARE_REFERENCES(name)                                                                                    \
    cl_int dvc_##name##_retain(struct dvc_##name *o);                                                                  \
    cl_int dvc_##name##_release(struct dvc_##name *o);                                                                 \
    void dvc_##name##_unuse(struct dvc_##name *o);
DV_DECLARE_REFERENCES(device)
DV_DECLARE_REFERENCES(context)
DV_DECLARE_REFERENCES(queue)
DV_DECLARE_REFERENCES(mem)
DV_DECLARE_REFERENCES(sampler)
DV_DECLARE_REFERENCES(program)
DV_DECLARE_REFERENCES(kernel)
DV_DECLARE_REFERENCES(event)

/* ---- information (info.c) ---- */
cl_int dvc_info_bytes(const void *value, size_t bytes, size_t room, void *into, size_t *bytes_ret);
cl_int dvc_info_text(const char *text, size_t room, void *into, size_t *bytes_ret);
/* Asks the vendor through the worker. */
cl_int dvc_query(struct dvc_session *s, uint32_t function, struct dv_object_id object, struct dv_object_id device,
                 cl_uint param, const void *input, size_t input_bytes, size_t room, void *into, size_t *bytes_ret);
/* ---- platform.c ---- */
cl_int dvc_platforms_init(struct dvc_session *s);
/* Lists the numbers of the devices that the program knows, in its order. Returns false if it knows none yet. */
bool dvc_platforms_list(char *list, size_t bytes);
void dvc_platforms_after_fork(void);

/* ---- memory.c ---- */
void *dvc_mem_reported_host_ptr(const struct dvc_mem *mem);
cl_uint dvc_mem_map_count(struct dvc_mem *mem);
struct dv_object_id *dvc_ids_of_mem(cl_uint count, const cl_mem *list);
/* The worker has released the object, if it was told to. */
void dvc_mem_gone(struct dvc_mem *mem);

/* ---- program.c ---- */
/* Whether the application itself asked for argument information when it built the program. */
bool dvc_program_tells_arguments(const struct dvc_program *program);

/* Inserts the files that the source includes from the options' directories (include_expander.c). *expanded: NULL if it
 * includes none. headers: names that the compiler knows, or NULL. */
cl_int dvc_source_with_includes(const char *source, const char *options, const char *const *headers,
                                size_t header_count, char **expanded);

#endif
