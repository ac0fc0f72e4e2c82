/*
 * The objects of the scripted OpenCL platform and what its files share. The library built from
 * this directory is a vendor for tests: it does what a script says, including what a real driver
 * does only on a bad day. It uses nothing of divvy, as a real vendor would not.
 */
#ifndef DIVVY_TESTS_VENDOR_H
#define DIVVY_TESTS_VENDOR_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#endif
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define DV_MAX_DEVICES 80
#define DV_MAX_KERNEL_ARGS 32
#define DV_MAX_WORK_GROUP_SIZE 1024
#define DV_MEM_ALIGN_BYTES 128
#define DV_MAX_IMAGE_EXTENT 8192
#define DV_MAX_FILL_PATTERN 128
#define DV_EXPORT __attribute__((visibility("default")))

/* ---- objects ---------------------------------------------------------------------------- */

enum dv_kind {
    DV_KIND_PLATFORM = 0x44560001,
    DV_KIND_DEVICE,
    DV_KIND_CONTEXT,
    DV_KIND_QUEUE,
    DV_KIND_MEM,
    DV_KIND_SAMPLER,
    DV_KIND_PROGRAM,
    DV_KIND_KERNEL,
    DV_KIND_EVENT,
};

/*
 * The head of every handle. The ICD protocol wants the dispatch table first. The application's
 * references are counted apart from all references, so that a command in flight can keep an
 * object alive without showing in its reference count.
 */
struct dv_object {
    const cl_icd_dispatch *dispatch;
    enum dv_kind kind;
    atomic_uint api_refs;
    atomic_uint refs;
    void (*destroy)(struct dv_object *object);
};

struct _cl_platform_id {
    struct dv_object base;
};

struct _cl_device_id {
    struct dv_object base;
    unsigned index;
    char name[64];
};

extern const cl_icd_dispatch dv_dispatch;
extern struct _cl_platform_id dv_platform;
extern struct _cl_device_id dv_devices[DV_MAX_DEVICES];

struct dv_context_callback {
    void(CL_CALLBACK *notify)(cl_context, void *);
    void *user_data;
    struct dv_context_callback *next;
};

/*
 * The lock of a context guards its queues' command lists and its events' status; `changed` is
 * signalled at each change of either. There is deliberately no lock wider than this: a wider one
 * would order the caller's threads and so hide the caller's own races from ThreadSanitizer.
 */
struct _cl_context {
    struct dv_object base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    cl_uint num_devices;
    cl_device_id devices[DV_MAX_DEVICES];
    cl_context_properties *properties;
    size_t num_properties; /* with the final zero; 0 when none were given */
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *notify_data;
    atomic_bool loss_told;
    struct dv_context_callback *destructors;
};

struct dv_command;
TAILQ_HEAD(dv_command_list, dv_command);

struct _cl_command_queue {
    struct dv_object base;
    cl_context context;
    cl_device_id device;
    cl_command_queue_properties properties;
    cl_queue_properties *property_list;
    size_t num_property_list;
    /* guarded by the context's lock */
    struct dv_command_list commands;
    uint64_t last_sequence;
    uint64_t flushed_sequence;
    bool closing;
};

struct dv_event_callback {
    cl_int type;
    void(CL_CALLBACK *notify)(cl_event, cl_int, void *);
    void *user_data;
    struct dv_event_callback *next;
};

struct _cl_event {
    struct dv_object base;
    cl_context context;
    cl_command_queue queue; /* NULL for a user event */
    cl_command_type type;
    /* guarded by the context's lock */
    cl_int status;
    bool user_status_set;
    cl_ulong queued_ns, submit_ns, start_ns, end_ns;
    struct dv_event_callback *callbacks;
};

struct dv_mem_callback {
    void(CL_CALLBACK *notify)(cl_mem, void *);
    void *user_data;
    struct dv_mem_callback *next;
};

/* One outstanding map. `staging` is set only when the script asks for maps that are copies. */
struct dv_mapping {
    char *pointer;
    char *staging;
    char *storage;
    size_t row_bytes, height, depth;
    size_t storage_row_pitch, storage_slice_pitch;
    size_t pointer_row_pitch, pointer_slice_pitch;
    cl_map_flags flags;
    struct dv_mapping *next;
};

struct _cl_mem {
    struct dv_object base;
    cl_context context;
    cl_mem_object_type type;
    cl_mem_flags flags;
    char *data; /* the storage; fixed for the object's life */
    size_t size;
    char *owned; /* what to free, NULL when the storage belongs to another */
    size_t charged_bytes;
    void *host_ptr;
    cl_mem parent; /* of a sub-buffer, or the buffer under an image */
    size_t offset; /* in the parent */
    cl_mem_properties *property_list;
    size_t num_property_list;
    /* images */
    cl_image_format format;
    cl_image_desc desc;
    size_t element_bytes;
    size_t row_pitch, slice_pitch;
    /* guarded by `lock` */
    pthread_mutex_t lock;
    struct dv_mapping *mappings;
    struct dv_mem_callback *destructors;
};

struct _cl_sampler {
    struct dv_object base;
    cl_context context;
    cl_bool normalized;
    cl_addressing_mode addressing;
    cl_filter_mode filter;
    cl_sampler_properties *property_list;
    size_t num_property_list;
};

enum dv_arg_class { DV_ARG_VALUE, DV_ARG_BUFFER, DV_ARG_LOCAL, DV_ARG_IMAGE, DV_ARG_SAMPLER };

struct dv_arg_signature {
    enum dv_arg_class class;
    cl_kernel_arg_address_qualifier address;
    cl_kernel_arg_access_qualifier access;
    cl_kernel_arg_type_qualifier type_qualifier;
    char type_name[64];
    char name[64];
    size_t value_bytes; /* 0: unknown type, any size is taken */
};

struct dv_behaviour;

struct dv_signature {
    char name[96];
    char attributes[128];
    size_t required_group[3];
    cl_uint num_args;
    struct dv_arg_signature args[DV_MAX_KERNEL_ARGS];
    const struct dv_behaviour *behaviour;
};

struct _cl_program {
    struct dv_object base;
    cl_context context;
    cl_uint num_devices;
    cl_device_id devices[DV_MAX_DEVICES];
    bool from_binary;
    char *source;
    /* guarded by `lock` */
    pthread_mutex_t lock;
    char *options;
    char *log;
    cl_build_status status[DV_MAX_DEVICES];
    cl_program_binary_type binary_type;
    bool has_arg_info;
    struct dv_signature *signatures; /* unchanged while kernels are attached */
    cl_uint num_signatures;
    cl_uint attached_kernels;
};

struct dv_arg {
    bool set;
    size_t size;
    void *value; /* a copy of the bytes given; NULL for local memory */
};

struct _cl_kernel {
    struct dv_object base;
    cl_program program;
    const struct dv_signature *signature;
    struct dv_arg args[DV_MAX_KERNEL_ARGS];
};

/* ---- objects.c: references and answers to queries ---------------------------------------- */

void dv_object_init(struct dv_object *object, enum dv_kind kind, void (*destroy)(struct dv_object *object));
void dv_object_ref(void *object);
void dv_object_unref(void *object);
/* False when the application holds no reference that could be retained or released. */
bool dv_object_api_retain(void *object);
bool dv_object_api_release(void *object);
/* True for a handle of this kind. NULL-safe. */
bool dv_object_is(const void *object, enum dv_kind kind);
cl_uint dv_object_count(const void *object);

cl_int dv_answer(const void *value, size_t value_size, size_t param_value_size, void *param_value,
                 size_t *param_value_size_ret);
cl_int dv_answer_string(const char *text, size_t param_value_size, void *param_value, size_t *param_value_size_ret);
/* For the info functions, whose last three parameters always have the same names. */
#define DV_STRING(text) dv_answer_string(text, param_value_size, param_value, param_value_size_ret)
#define DV_BYTES(bytes, size) dv_answer(bytes, size, param_value_size, param_value, param_value_size_ret)
#define DV_VALUE(type, ...) DV_BYTES((&(type){__VA_ARGS__}), sizeof(type))
#define DV_ARRAY(array) DV_BYTES(array, sizeof array)
#define DV_NOTHING DV_BYTES(NULL, 0)

/* Stores the error where the application wants it and returns NULL. */
void *dv_fail(cl_int *errcode_ret, cl_int error);
/* A copy of a zero-terminated property list, its length with the zero in *count. */
void *dv_properties_copy(const intptr_t *list, size_t *count);
cl_ulong dv_now_ns(void);
bool dv_context_has_device(cl_context context, cl_device_id device);
/* Calls the context's error callback, if it has one. */
void dv_context_notify(cl_context context, const char *message);

/* ---- script.c ----------------------------------------------------------------------------- */

/* Which extension tells a device's place on the PCI bus; Khronos's tells its UUID, too. */
enum dv_addresses { DV_ADDRESSES_NONE, DV_ADDRESSES_KHR, DV_ADDRESSES_NV, DV_ADDRESSES_AMD };

struct dv_settings {
    unsigned devices;
    cl_device_type device_type;
    uint64_t memory_bytes;
    bool memory_enforced;
    bool unified;
    bool alike; /* all devices have one name */
    enum dv_addresses addresses;
    bool newest_first;
    bool flush_required;
    bool maps_copied;
    bool unknown_kernels_are_nop;
};

/* Read-only after the first call into the library. */
const struct dv_settings *dv_settings_get(void);
/* False when the script has an error: then the library shows no platform. */
bool dv_script_is_valid(void);
/* Counts a call and does what the script says of it; an error to return, or CL_SUCCESS. */
cl_int dv_script_enter(const char *function);
/* The same for the completion of a command that `function` enqueued. */
cl_int dv_script_complete(const char *function);
/* Adds the rules of a running program's source; an error message in `message` if it is wrong. */
bool dv_script_add_rule(const char *line, char *message, size_t message_size);
/* Writes a line into the log of calls, if there is one. */
void dv_script_log(const char *what, const char *detail, long number);
/* Tries what a worker must not do (intrude.c). */
void dv_intrude(void);
bool dv_device_is_lost(void);
/* Counts a command that starts; false when the device is lost before it. */
bool dv_device_start_command(void);

#define DV_ENTER()                                                                                                     \
    do {                                                                                                               \
        cl_int scripted_error_ = dv_script_enter(__func__);                                                            \
        if (scripted_error_ != CL_SUCCESS) {                                                                           \
            return scripted_error_;                                                                                    \
        }                                                                                                              \
    } while (0)

#define DV_ENTER_CREATE(errcode_ret)                                                                                   \
    do {                                                                                                               \
        cl_int scripted_error_ = dv_script_enter(__func__);                                                            \
        if (scripted_error_ != CL_SUCCESS) {                                                                           \
            return dv_fail((errcode_ret), scripted_error_);                                                            \
        }                                                                                                              \
    } while (0)

/* ---- queue.c: commands, queues, events ---------------------------------------------------- */

/* A rectangle of bytes in memory; everything but a kernel is one or two of these. */
struct dv_rect {
    char *base;
    size_t row_pitch, slice_pitch;
};

struct dv_launch {
    const struct dv_signature *signature;
    size_t offset[3];
    size_t global[3];
    struct dv_arg args[DV_MAX_KERNEL_ARGS];
};

enum dv_operation { DV_OP_NONE, DV_OP_COPY, DV_OP_FILL, DV_OP_KERNEL, DV_OP_UNMAP };

#define DV_COMMAND_MAX_OBJECTS (DV_MAX_KERNEL_ARGS + 4)

struct dv_command {
    TAILQ_ENTRY(dv_command) link;
    const char *function; /* the call that enqueued it */
    cl_command_queue queue;
    cl_event event;
    uint64_t sequence;
    cl_uint num_waits;
    cl_event *waits;
    bool after_all_before; /* barrier or marker without a wait list */
    bool before_all_after; /* barrier */
    bool started;

    enum dv_operation operation;
    struct dv_rect dst, src;
    size_t row_bytes, height, depth;
    unsigned char pattern[DV_MAX_FILL_PATTERN];
    size_t pattern_bytes;
    struct dv_launch launch;
    struct dv_mapping *mapping; /* of an unmap, to be freed */

    unsigned num_objects;
    void *objects[DV_COMMAND_MAX_OBJECTS]; /* kept alive until the command is done */
    cl_mem *more_objects;                  /* the same, for lists of any length */
    unsigned num_more_objects;
};

/* Checks queue and wait list and makes an empty command; NULL with *error set if they are bad. */
struct dv_command *dv_command_create(const char *function, cl_command_queue queue, cl_command_type type,
                                     cl_uint num_waits, const cl_event *waits, cl_int *error);
void dv_command_keep(struct dv_command *command, void *object);
/* Frees a command that was not enqueued. */
void dv_command_destroy(struct dv_command *command);
/* Hands the command to its queue; gives the application its event; waits if blocking. */
cl_int dv_command_enqueue(struct dv_command *command, cl_bool blocking, cl_event *event_ret);

/* ---- kernels.c: what kernels do ------------------------------------------------------------ */

/* The behaviour a kernel's name asks for, or NULL with a message. */
const struct dv_behaviour *dv_behaviour_find(const struct dv_signature *signature, char *message, size_t message_size);
/* Runs a launch; CL_COMPLETE or the negative status of its event. */
cl_int dv_behaviour_run(const struct dv_launch *launch);
void dv_rect_copy(struct dv_rect dst, struct dv_rect src, size_t row_bytes, size_t height, size_t depth);

/* ---- parse.c: finding kernels in source text ----------------------------------------------- */

/* All kernels of a source, or false with a message. The array is malloced. */
bool dv_source_parse(const char *source, struct dv_signature **signatures, cl_uint *count, char *message,
                     size_t message_size);
/* Adds the rules that a source brings along for the process that builds it. */
bool dv_source_take_rules(const char *source, char *message, size_t message_size);

/* ---- memory.c -------------------------------------------------------------------------------*/

bool dv_mem_is_image(cl_mem mem);
/* Width, height and depth in elements, layers counted as the last dimension. */
void dv_image_extent(cl_mem image, size_t extent[3]);
/* The image's bytes from `origin` on. */
struct dv_rect dv_image_rect(cl_mem image, const size_t origin[3]);

/* ---- the entry point the loader asks for ---------------------------------------------------- */

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms);

#endif
