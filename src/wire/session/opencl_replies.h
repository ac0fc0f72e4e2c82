/* The worker's replies to OpenCL calls, and the choices that messages name by number. */
#ifndef DV_WIRE_SESSION_OPENCL_REPLIES_H
#define DV_WIRE_SESSION_OPENCL_REPLIES_H

#include <assert.h>
#include <stdint.h>

enum dv_program_form {
    DV_PROGRAM_SOURCE = 1,
    DV_PROGRAM_BINARY = 2, /* data: for each device u64 length, then the binary, padded to 8 */
    DV_PROGRAM_IL = 3,
    DV_PROGRAM_BUILT_IN = 4,
};

enum dv_build_action { DV_BUILD = 1, DV_COMPILE = 2, DV_LINK = 3 };

enum dv_argument_form {
    DV_ARGUMENT_VALUE = 1,   /* bytes in the tail */
    DV_ARGUMENT_LOCAL = 2,   /* local memory of `size` bytes */
    DV_ARGUMENT_MEM = 3,     /* object: memory object, or 0 for NULL */
    DV_ARGUMENT_SAMPLER = 4, /* object: sampler */
};

enum dv_direction { DV_TO_DEVICE = 1, DV_FROM_DEVICE = 2 };
enum dv_shape { DV_SHAPE_LINEAR = 1, DV_SHAPE_RECT = 2, DV_SHAPE_IMAGE = 3 };

enum dv_object_kind {
    DV_KIND_NONE = 0,
    DV_KIND_PLATFORM,
    DV_KIND_DEVICE,
    DV_KIND_CONTEXT,
    DV_KIND_QUEUE,
    DV_KIND_MEM,
    DV_KIND_SAMPLER,
    DV_KIND_PROGRAM,
    DV_KIND_KERNEL,
    DV_KIND_EVENT,
    DV_KIND_COUNT,
};

#define DV_MAX_OBJECT_ID (16u << 20) /* ids are below this, per kind */
#define DV_MAX_ARGUMENTS 1024u
#define DV_MAX_ARGUMENT_BYTES 65536u
#define DV_MAX_PROGRAM_BYTES (UINT64_C(1) << 30)
#define DV_MAX_TEXT 256u

/* One device of the session, as list_devices answers. */
struct dv_wire_device {
    uint32_t id;
    uint32_t platform; /* devices with equal numbers share a platform */
    uint64_t type;     /* as presented */
    uint32_t unified;  /* 1: buffers live in the arena */
    uint32_t number;   /* as `divvy devices` shows it */
    uint64_t max_alloc_bytes;
    uint64_t clock_offset_ns; /* unused */
    uint32_t base_align;      /* bytes */
    uint32_t out_of_order;    /* unused */
    char name[128];           /* empty: the vendor's */
    char platform_name[128];
};
static_assert(sizeof(struct dv_wire_device) == 304, "wire");

/* Reply to build_program: then the kernels' names, separated by ';'. */
struct dv_wire_build {
    int32_t build_status; /* the vendor's error code of the build */
    uint32_t kernel_count;
    uint32_t names_bytes;
    uint32_t reserved;
};
static_assert(sizeof(struct dv_wire_build) == 16, "wire");

#define DV_ARGUMENT_UNKNOWN 0xffffffffu

/* One argument in the reply to create_kernel. */
struct dv_wire_argument {
    uint32_t address; /* DV_ARGUMENT_UNKNOWN when the vendor does not say */
    uint32_t access;
    uint64_t type_qualifier;
    char type_name[128];
    char name[128];
};
static_assert(sizeof(struct dv_wire_argument) == 272, "wire");

/* Reply to create_kernel: then argument_count times struct dv_wire_argument. */
struct dv_wire_kernel {
    uint32_t argument_count;
    uint32_t has_info; /* 0: signature unknown (program binaries) */
    char attributes[256];
};
static_assert(sizeof(struct dv_wire_kernel) == 264, "wire");

#endif
