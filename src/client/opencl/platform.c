/* Platforms and devices. Each vendor platform that the session may use becomes one divvy platform. The vendor answers
 * for a device's capabilities, divvy for its name and the features offered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/objects.h"

/* Extensions that need no functions beyond the core, or whose functions divvy has. */
static const char *const offered_extensions[] = {
    "cl_khr_byte_addressable_store",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_3d_image_writes",
    "cl_khr_fp64",
    "cl_khr_fp16",
    "cl_khr_spir",
    "cl_khr_il_program",
    "cl_khr_depth_images",
    "cl_khr_select_fprounding_mode",
    "cl_khr_expect_assume",
    "cl_khr_extended_bit_ops",
    "cl_khr_integer_dot_product",
    "cl_khr_subgroups",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_non_uniform_vote",
    "cl_khr_subgroup_rotate",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_image2d_from_buffer",
};

const cl_name_version dvc_platform_extensions[] = {{CL_MAKE_VERSION(1, 0, 0), "cl_khr_icd"}};
const size_t dvc_platform_extensions_bytes = sizeof dvc_platform_extensions;

#define MAX_PLATFORMS DV_MAX_DEVICES

/* A session that failed to start can leave entries beyond the counts. The next one reuses them, because the worker
 * numbers devices from 1. */
static struct {
    struct dvc_platform *platforms[MAX_PLATFORMS];
    cl_uint platform_count;
    struct dvc_device *devices[DV_MAX_DEVICES];
    cl_uint device_count;
} known;

static struct dvc_platform *platform_for(struct dvc_session *s, const struct dv_wire_device *wire)
{
    for (cl_uint i = 0; i < known.platform_count; i++)
        if (known.platforms[i]->index == wire->platform)
            return known.platforms[i];
    struct dvc_platform *platform = known.platforms[known.platform_count];
    if (!platform)
        platform = dvc_object_create(DV_KIND_PLATFORM, s);
    if (!platform)
        return NULL;
    platform->index = wire->platform;
    if (known.platform_count == 0)
        snprintf(platform->name, sizeof platform->name, "divvy");
    else
        snprintf(platform->name, sizeof platform->name, "divvy (%.40s)", wire->platform_name);
    snprintf(platform->version, sizeof platform->version, "OpenCL 3.0 divvy " DIVVY_VERSION);
    known.platforms[known.platform_count++] = platform;
    return platform;
}

/* Returns false when memory is short. Limits that the vendor does not report stay 0. */
static bool learn_limits(struct dvc_session *s, struct dvc_device *device)
{
    cl_bool non_uniform = CL_FALSE;
    const struct {
        cl_device_info param;
        size_t bytes;
        void *into;
    } limits[] = {
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof device->max_group, &device->max_group},
        {CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof device->max_items, device->max_items},
        {CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, sizeof non_uniform, &non_uniform},
    };

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (dvc_query(s, DVW_QUERY_clGetDeviceInfo, device->object.id, DV_OBJECT_ID(0), limits[i].param, NULL, 0,
                      limits[i].bytes, limits[i].into, NULL) == CL_OUT_OF_HOST_MEMORY)
            return false;
    device->non_uniform = non_uniform;
    return true;
}

static cl_int know_device(struct dvc_session *s, cl_uint index, const struct dv_wire_device *wire)
{
    struct dvc_platform *platform = platform_for(s, wire);
    struct dvc_device *device = known.devices[index];
    if (platform && !device)
        device = known.devices[index] = dvc_object_create(DV_KIND_DEVICE, s);
    if (!platform || !device)
        return CL_OUT_OF_HOST_MEMORY;
    device->platform = platform;
    device->type = wire->type;
    device->unified = wire->unified;
    device->index = index;
    device->number = wire->number;
    device->max_alloc_bytes = wire->max_alloc_bytes;
    device->base_align = wire->base_align;
    memcpy(device->name, wire->name, sizeof device->name);
    device->name[sizeof device->name - 1] = '\0';
    pthread_mutex_init(&device->lock, NULL);
    if (!learn_limits(s, device))
        return CL_OUT_OF_HOST_MEMORY;
    known.device_count++;
    return CL_SUCCESS;
}

bool dvc_platforms_list(char *list, size_t bytes)
{
    size_t used = 0;

    list[0] = '\0';
    for (cl_uint i = 0; i < known.device_count && used < bytes; i++)
        used += (size_t)snprintf(list + used, bytes - used, "%s%u", i ? "," : "", known.devices[i]->number);
    return known.device_count > 0;
}

cl_int dvc_platforms_init(struct dvc_session *s)
{
    const size_t most = DV_MAX_DEVICES * sizeof(struct dv_wire_device);
    DV_AUTO_FREE struct dv_wire_device *list = malloc(most); /* the application's stack may be small */
    struct dvw_list_devices message = {0};
    size_t bytes = 0;

    if (!list)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = dvc_call(s, DVW_OP_LIST_DEVICES, &message.head, sizeof message, NULL, 0, list, most, &bytes);
    if (error != CL_SUCCESS)
        return error;
    size_t count = bytes / sizeof list[0];
    if (count > DV_MAX_DEVICES)
        return CL_OUT_OF_RESOURCES;
    const cl_uint devices = known.device_count, platforms = known.platform_count;
    for (cl_uint i = devices; i < count && error == CL_SUCCESS; i++) {
        list[i].platform_name[sizeof list[i].platform_name - 1] = '\0';
        error = know_device(s, i, &list[i]);
    }
    if (error != CL_SUCCESS) {
        known.device_count = devices;
        known.platform_count = platforms;
        return error;
    }
    /* After a session is lost, the new one numbers its devices the same way, so handles stay valid. */
    for (cl_uint i = 0; i < count; i++)
        known.devices[i]->object.session = s;
    return CL_SUCCESS;
}

void dvc_platforms_after_fork(void)
{
    for (uint32_t id = 1; dvc_object_by_id(DV_KIND_DEVICE, DV_OBJECT_ID(id)); id++)
        pthread_mutex_init(&((struct dvc_device *)dvc_object_by_id(DV_KIND_DEVICE, DV_OBJECT_ID(id)))->lock, NULL);
}

/* ---- platforms ---- */

cl_int CL_API_CALL dvc_clGetPlatformIDs(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms)
{
    if ((num_entries == 0 && platforms) || (!platforms && !num_platforms))
        return CL_INVALID_VALUE;
    if (!dvc_session_get() && known.platform_count == 0)
        return CL_PLATFORM_NOT_FOUND_KHR;
    for (cl_uint i = 0; platforms && i < num_entries && i < known.platform_count; i++)
        platforms[i] = (cl_platform_id)known.platforms[i];
    if (num_platforms)
        *num_platforms = known.platform_count;
    return CL_SUCCESS;
}

cl_int CL_API_CALL dvc_clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type, cl_uint num_entries,
                                      cl_device_id *devices, cl_uint *num_devices)
{
    const cl_device_type all = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                               CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
    struct dvc_platform *p = platform ? dvc_platform_of(platform) : known.platform_count ? known.platforms[0] : NULL;
    cl_uint found = 0;

    if (!p)
        return CL_INVALID_PLATFORM;
    if (device_type != CL_DEVICE_TYPE_ALL && (device_type == 0 || device_type & ~all))
        return CL_INVALID_DEVICE_TYPE;
    if ((num_entries == 0 && devices) || (!devices && !num_devices))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < known.device_count; i++) {
        struct dvc_device *device = known.devices[i];
        bool first = device->platform == p && found == 0;
        if (device->platform != p)
            continue;
        if (!(device->type & device_type) && !(first && device_type & CL_DEVICE_TYPE_DEFAULT))
            continue;
        if (device_type == CL_DEVICE_TYPE_DEFAULT && found)
            continue;
        if (devices && found < num_entries)
            devices[found] = (cl_device_id)device;
        found++;
    }
    if (found == 0)
        return CL_DEVICE_NOT_FOUND;
    if (num_devices)
        *num_devices = found;
    return CL_SUCCESS;
}

/* ---- device information ---- */

static bool is_offered(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof offered_extensions / sizeof offered_extensions[0]; i++)
        if (strlen(offered_extensions[i]) == length && memcmp(offered_extensions[i], name, length) == 0)
            return true;
    return false;
}

/* Removes extensions that divvy does not have from the vendor's list, in place. */
static size_t filter_extensions(char *list, size_t bytes)
{
    size_t out = 0;

    for (size_t at = 0; at < bytes && list[at];) {
        size_t length = strcspn(list + at, " ");
        if (length && is_offered(list + at, length)) {
            if (out)
                list[out++] = ' ';
            memmove(list + out, list + at, length);
            out += length;
        }
        at += length;
        at += list[at] == ' ';
    }
    list[out] = '\0';
    return out + 1;
}

static size_t filter_versions(cl_name_version *list, size_t bytes)
{
    size_t out = 0;

    for (size_t i = 0; i < bytes / sizeof *list; i++)
        if (is_offered(list[i].name, strnlen(list[i].name, sizeof list[i].name)))
            list[out++] = list[i];
    return out * sizeof *list;
}

static void adjust(struct dvc_device *device, struct dvc_device_answer *answer)
{
    switch (answer->param) {
    case CL_DEVICE_EXTENSIONS:
        answer->bytes = filter_extensions((char *)answer->value, answer->bytes);
        break;
    case CL_DEVICE_EXTENSIONS_WITH_VERSION:
        answer->bytes = filter_versions((cl_name_version *)answer->value, answer->bytes);
        break;
    case CL_DEVICE_AVAILABLE:
    default:
        break;
    }
}

/* The vendor's answer, cached after the first query. */
static struct dvc_device_answer *vendor_answer(struct dvc_device *device, cl_device_info param, cl_int *error)
{
    struct dvc_device_answer *answer;
    size_t bytes = 0;

    pthread_mutex_lock(&device->lock);
    for (answer = device->answers; answer; answer = answer->next)
        if (answer->param == param)
            break;
    pthread_mutex_unlock(&device->lock);
    if (answer)
        return answer;
    struct dvc_session *s = device->object.session;
    answer = malloc(sizeof *answer + 4096 + 1);
    if (!answer) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    *error = dvc_query(s, DVW_QUERY_clGetDeviceInfo, device->object.id, DV_OBJECT_ID(0), param, NULL, 0, 4096,
                       answer->value, &bytes);
    if (*error == CL_INVALID_VALUE &&
        dvc_query(s, DVW_QUERY_clGetDeviceInfo, device->object.id, DV_OBJECT_ID(0), param, NULL, 0, 0, NULL, &bytes) ==
            CL_SUCCESS &&
        bytes > 4096 && bytes < (1 << 20)) { /* longer than expected */
        struct dvc_device_answer *larger = realloc(answer, sizeof *answer + bytes + 1);
        *error = CL_OUT_OF_HOST_MEMORY;
        if (larger) {
            answer = larger;
            *error = dvc_query(s, DVW_QUERY_clGetDeviceInfo, device->object.id, DV_OBJECT_ID(0), param, NULL, 0, bytes,
                               answer->value, &bytes);
        }
    }
    if (*error != CL_SUCCESS) {
        free(answer);
        return NULL;
    }
    answer->value[bytes] = '\0';
    answer->param = param;
    answer->bytes = bytes;
    adjust(device, answer);
    pthread_mutex_lock(&device->lock);
    answer->next = device->answers;
    device->answers = answer;
    pthread_mutex_unlock(&device->lock);
    return answer;
}

#define ANSWER(type_, value_)                                                                                          \
    do {                                                                                                               \
        type_ own = (value_);                                                                                          \
        return dvc_info_bytes(&own, sizeof own, param_value_size, param_value, param_value_size_ret);                  \
    } while (0)

cl_int CL_API_CALL dvc_clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                                       void *param_value, size_t *param_value_size_ret)
{
    struct dvc_device *d = dvc_device_of(device);
    cl_int error = CL_SUCCESS;

    if (!d)
        return CL_INVALID_DEVICE;
    switch (param_name) {
    case CL_DEVICE_TYPE:
        ANSWER(cl_device_type, d->type);
    case CL_DEVICE_PLATFORM:
        ANSWER(cl_platform_id, (cl_platform_id)d->platform);
    case CL_DEVICE_PARENT_DEVICE:
        ANSWER(cl_device_id, (cl_device_id)d->parent);
    case CL_DEVICE_REFERENCE_COUNT:
        ANSWER(cl_uint, d->parent ? dvc_object_refs(&d->object) : 1);
    case CL_DEVICE_PARTITION_TYPE:
        return dvc_info_bytes(d->partition, d->partition_count * sizeof *d->partition, param_value_size, param_value,
                              param_value_size_ret);
    case CL_DEVICE_NAME:
        if (d->name[0])
            return dvc_info_text(d->name, param_value_size, param_value, param_value_size_ret);
        break;
    case CL_DEVICE_EXECUTION_CAPABILITIES:
        ANSWER(cl_device_exec_capabilities, CL_EXEC_KERNEL);
    case CL_DEVICE_SVM_CAPABILITIES:
        ANSWER(cl_device_svm_capabilities, 0);
    case CL_DEVICE_QUEUE_ON_HOST_PROPERTIES: /* divvy implements out-of-order queues */
        ANSWER(cl_command_queue_properties, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE);
    case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES:
        ANSWER(cl_command_queue_properties, 0);
    case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
    case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE:
    case CL_DEVICE_MAX_ON_DEVICE_QUEUES:
    case CL_DEVICE_MAX_ON_DEVICE_EVENTS:
    case CL_DEVICE_MAX_PIPE_ARGS:
    case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS:
    case CL_DEVICE_PIPE_MAX_PACKET_SIZE:
        ANSWER(cl_uint, 0);
    case CL_DEVICE_PIPE_SUPPORT:
        ANSWER(cl_bool, CL_FALSE);
    case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES:
        ANSWER(cl_device_device_enqueue_capabilities, 0);
    default:
        break;
    }
    struct dvc_device_answer *answer = vendor_answer(d, param_name, &error);
    if (!answer)
        return error;
    return dvc_info_bytes(answer->value, answer->bytes, param_value_size, param_value, param_value_size_ret);
}

/* ---- sub-devices ---- */

cl_int dvc_device_retain(struct dvc_device *device)
{
    if (device->parent)
        atomic_fetch_add(&device->object.count, 1);
    return CL_SUCCESS;
}

static void device_destroy(struct dvc_device *device)
{
    struct dvc_device *parent = device->parent;
    struct dvw_release message = {.kind = DV_KIND_DEVICE, .id = device->object.id};

    dvc_send(device->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0);
    while (device->answers) {
        struct dvc_device_answer *next = device->answers->next;
        free(device->answers);
        device->answers = next;
    }
    free(device->partition);
    dvc_object_free(&device->object);
    dvc_device_unuse(parent);
}

void dvc_device_unuse(struct dvc_device *device)
{
    if (device->parent && atomic_fetch_sub(&device->object.count, DV_COUNT_USE) == DV_COUNT_USE)
        device_destroy(device);
}

cl_int dvc_device_release(struct dvc_device *device)
{
    if (!device->parent)
        return CL_SUCCESS; /* root devices are not counted */
    if (dvc_object_refs(&device->object) == 0)
        return CL_INVALID_DEVICE;
    if (atomic_fetch_sub(&device->object.count, 1) == 1)
        device_destroy(device);
    return CL_SUCCESS;
}

/* Maximum properties in a list with its terminator, and maximum sub-devices that it makes. */
#define PROPERTIES_MAX 64
#define SUB_DEVICES_MAX 64

/* How a device is divided, as sent to the worker. */
struct partition {
    size_t count; /* of properties, with the terminator */
    struct {
        uint64_t properties[PROPERTIES_MAX];
        struct dv_object_id ids[SUB_DEVICES_MAX]; /* follow the properties directly, see send_partition */
    } wire;
};

/* Returns the number of properties with the terminator; 0: too many. */
static size_t count_properties(const cl_device_partition_property *properties)
{
    bool by_counts = properties[0] == CL_DEVICE_PARTITION_BY_COUNTS;
    size_t count = 1;

    if (properties[0] == 0)
        return 1;
    /* a list by counts has its own terminator, which is zero as well */
    while (properties[count] != (by_counts ? CL_DEVICE_PARTITION_BY_COUNTS_LIST_END : 0))
        if (++count + 2 > PROPERTIES_MAX)
            return 0;
    return count + (by_counts ? 2 : 1);
}

/* Asks the worker for the number of sub-devices or, with ids for them, to make them. */
static cl_int send_partition(struct dvc_device *device, const struct partition *partition, cl_uint id_count,
                             struct dvw_create_sub_devices *message, cl_uint *answered)
{
    size_t properties_bytes = partition->count * sizeof partition->wire.properties[0];
    size_t ids_bytes = id_count * sizeof partition->wire.ids[0];
    uint8_t tail[sizeof partition->wire];

    *message = (struct dvw_create_sub_devices){
        .device = device->object.id, .property_count = (uint32_t)partition->count, .id_count = id_count};
    memcpy(tail, partition->wire.properties, properties_bytes);
    memcpy(tail + properties_bytes, partition->wire.ids, ids_bytes);
    return dvc_call(device->object.session, DVW_OP_CREATE_SUB_DEVICES, &message->head, sizeof *message, tail,
                    properties_bytes + ids_bytes, answered, sizeof *answered, NULL);
}

/* The record of a sub-device, which the worker does not know yet. */
static struct dvc_device *new_sub_device(struct dvc_device *parent, const cl_device_partition_property *properties,
                                         size_t count)
{
    struct dvc_device *device = dvc_object_create(DV_KIND_DEVICE, parent->object.session);

    if (!device)
        return NULL;
    device->partition = malloc(count * sizeof *properties);
    if (!device->partition) {
        dvc_object_free(&device->object);
        return NULL;
    }
    memcpy(device->partition, properties, count * sizeof *properties);
    device->partition_count = count;
    device->platform = parent->platform;
    device->type = parent->type;
    device->unified = parent->unified;
    device->index = parent->index;
    device->max_alloc_bytes = parent->max_alloc_bytes;
    device->base_align = parent->base_align;
    device->max_group = parent->max_group;
    memcpy(device->max_items, parent->max_items, sizeof parent->max_items);
    device->non_uniform = parent->non_uniform;
    memcpy(device->name, parent->name, sizeof parent->name);
    pthread_mutex_init(&device->lock, NULL);
    return device;
}

static cl_int make_sub_devices(struct dvc_device *parent, const cl_device_partition_property *properties,
                               struct partition *partition, cl_uint count, cl_device_id *out)
{
    struct dvc_device *made[SUB_DEVICES_MAX] = {NULL};
    struct dvw_create_sub_devices message;
    cl_int error = CL_SUCCESS;
    cl_uint answered = 0, i;

    for (i = 0; i < count && error == CL_SUCCESS; i++) {
        made[i] = new_sub_device(parent, properties, partition->count);
        if (made[i])
            partition->wire.ids[i] = made[i]->object.id;
        else
            error = CL_OUT_OF_HOST_MEMORY;
    }
    if (error == CL_SUCCESS)
        error = send_partition(parent, partition, count, &message, &answered);
    if (error == CL_SUCCESS && answered != count) /* not the number that it reported before */
        error = CL_OUT_OF_RESOURCES;
    for (i = 0; i < count && made[i]; i++) {
        if (error != CL_SUCCESS) {
            free(made[i]->partition);
            dvc_object_free(&made[i]->object);
            continue;
        }
        made[i]->parent = parent;
        if (parent->parent)
            dvc_object_use(&parent->object);
        out[i] = (cl_device_id)made[i];
    }
    return error;
}

cl_int CL_API_CALL dvc_clCreateSubDevices(cl_device_id in_device, const cl_device_partition_property *properties,
                                          cl_uint num_devices, cl_device_id *out_devices, cl_uint *num_devices_ret)
{
    struct dvc_device *device = dvc_device_of(in_device);
    struct dvw_create_sub_devices message;
    struct partition partition;
    cl_uint count = 0;

    if (!device)
        return CL_INVALID_DEVICE;
    if (!properties || (num_devices == 0 && out_devices))
        return CL_INVALID_VALUE;
    partition.count = count_properties(properties);
    if (partition.count < 2)
        return CL_INVALID_VALUE;
    for (size_t i = 0; i < partition.count; i++)
        partition.wire.properties[i] = i == partition.count - 1 ? 0 : (uint64_t)properties[i];
    cl_int error = send_partition(device, &partition, 0, &message, &count);
    if (error != CL_SUCCESS)
        return error;
    if (num_devices_ret)
        *num_devices_ret = count;
    if (!out_devices)
        return CL_SUCCESS;
    if (num_devices < count)
        return CL_INVALID_VALUE;
    if (count > SUB_DEVICES_MAX)
        return CL_OUT_OF_RESOURCES;
    return make_sub_devices(device, properties, &partition, count, out_devices);
}

/* ---- timers, extension functions ---- */

cl_int CL_API_CALL dvc_clGetDeviceAndHostTimer(cl_device_id device, cl_ulong *device_timestamp,
                                               cl_ulong *host_timestamp)
{
    if (!dvc_device_of(device))
        return CL_INVALID_DEVICE;
    if (!device_timestamp || !host_timestamp)
        return CL_INVALID_VALUE;
    return CL_INVALID_OPERATION; /* the platform's host timer resolution is 0: not supported */
}

cl_int CL_API_CALL dvc_clGetHostTimer(cl_device_id device, cl_ulong *host_timestamp)
{
    if (!dvc_device_of(device))
        return CL_INVALID_DEVICE;
    return host_timestamp ? CL_INVALID_OPERATION : CL_INVALID_VALUE;
}

cl_int CL_API_CALL dvc_clUnloadCompiler(void)
{
    return CL_SUCCESS;
}

cl_int CL_API_CALL dvc_clUnloadPlatformCompiler(cl_platform_id platform)
{
    return dvc_platform_of(platform) ? CL_SUCCESS : CL_INVALID_PLATFORM;
}
