/*
 * Buffers, images and samplers. All storage is host memory; CL_MEM_USE_HOST_PTR is used in place.
 */
#include "vendor.h"

#include <stdlib.h>
#include <string.h>

/* Fresh storage is filled up to here with what no program writes: its contents are undefined. */
#define POISON_BYTES (1u << 20)
#define POISON_VALUE 0xc5

static atomic_uint_fast64_t charged_total;

static bool charge(size_t bytes)
{
    const struct dv_settings *settings = dv_settings_get();
    uint64_t before = atomic_fetch_add(&charged_total, bytes);
    if (settings->memory_enforced && before + bytes > settings->memory_bytes) {
        atomic_fetch_sub(&charged_total, bytes);
        return false;
    }
    return true;
}

static cl_int check_flags(cl_mem_flags flags, const void *host_ptr)
{
    const cl_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
    const cl_mem_flags host_access = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
    const cl_mem_flags storage = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;
    if ((flags & ~(access | host_access | storage | CL_MEM_KERNEL_READ_AND_WRITE)) != 0 ||
        __builtin_popcountll(flags & access) > 1 || __builtin_popcountll(flags & host_access) > 1 ||
        ((flags & CL_MEM_USE_HOST_PTR) != 0 && (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0)) {
        return CL_INVALID_VALUE;
    }
    bool wants_pointer = (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0;
    return wants_pointer == (host_ptr != NULL) ? CL_SUCCESS : CL_INVALID_HOST_PTR;
}

static void destroy_mem(struct dv_object *object)
{
    cl_mem mem = (cl_mem)object;
    while (mem->destructors != NULL) {
        struct dv_mem_callback *callback = mem->destructors;
        mem->destructors = callback->next;
        callback->notify(mem, callback->user_data);
        free(callback);
    }
    while (mem->mappings != NULL) {
        struct dv_mapping *mapping = mem->mappings;
        mem->mappings = mapping->next;
        free(mapping->staging);
        free(mapping);
    }
    atomic_fetch_sub(&charged_total, mem->charged_bytes);
    pthread_mutex_destroy(&mem->lock);
    free(mem->owned);
    free(mem->property_list);
    if (mem->parent != NULL) {
        dv_object_unref(mem->parent);
    }
    dv_object_unref(mem->context);
    free(mem);
}

static cl_mem create_mem(cl_context context, cl_mem_object_type type, cl_mem_flags flags)
{
    cl_mem mem = calloc(1, sizeof *mem);
    if (mem == NULL) {
        return NULL;
    }
    dv_object_init(&mem->base, DV_KIND_MEM, destroy_mem);
    pthread_mutex_init(&mem->lock, NULL);
    dv_object_ref(context);
    mem->context = context;
    mem->type = type;
    bool access_given = (flags & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY)) != 0;
    mem->flags = access_given ? flags : flags | CL_MEM_READ_WRITE;
    return mem;
}

/* Gives a new object its storage: the application's memory, or new memory. */
static cl_int give_storage(cl_mem mem, size_t size, void *host_ptr)
{
    mem->size = size;
    if ((mem->flags & CL_MEM_USE_HOST_PTR) != 0) {
        mem->host_ptr = host_ptr;
        mem->data = host_ptr;
        return CL_SUCCESS;
    }
    if (!charge(size)) {
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    mem->charged_bytes = size;
    if (posix_memalign((void **)&mem->owned, 4096, size) != 0) {
        mem->owned = NULL;
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    mem->data = mem->owned;
    memset(mem->data, POISON_VALUE, size < POISON_BYTES ? size : POISON_BYTES);
    return CL_SUCCESS;
}

/* ---- buffers --------------------------------------------------------------------------------*/

static cl_mem create_buffer(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size,
                            void *host_ptr, cl_int *errcode_ret)
{
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if (properties != NULL && properties[0] != 0) {
        return dv_fail(errcode_ret, CL_INVALID_PROPERTY);
    }
    cl_int error = check_flags(flags, host_ptr);
    if (error != CL_SUCCESS) {
        return dv_fail(errcode_ret, error);
    }
    if (size == 0 || size > dv_settings_get()->memory_bytes / 2) {
        return dv_fail(errcode_ret, CL_INVALID_BUFFER_SIZE);
    }
    if (dv_device_is_lost()) {
        return dv_fail(errcode_ret, CL_OUT_OF_RESOURCES);
    }
    cl_mem mem = create_mem(context, CL_MEM_OBJECT_BUFFER, flags);
    if (mem == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    error = give_storage(mem, size, host_ptr);
    if (error != CL_SUCCESS) {
        dv_object_unref(mem);
        return dv_fail(errcode_ret, error);
    }
    if ((flags & CL_MEM_COPY_HOST_PTR) != 0) {
        memcpy(mem->data, host_ptr, size);
    }
    mem->property_list = dv_properties_copy((const intptr_t *)properties, &mem->num_property_list);
    dv_fail(errcode_ret, CL_SUCCESS);
    return mem;
}

cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr,
                                  cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    return create_buffer(context, NULL, flags, size, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL clCreateBufferWithProperties(cl_context context, const cl_mem_properties *properties,
                                                cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    return create_buffer(context, properties, flags, size, host_ptr, errcode_ret);
}

/* A sub-buffer takes from its parent whatever kind of flag it does not set itself. */
static cl_mem_flags inherit_flags(cl_mem_flags flags, cl_mem_flags parent)
{
    const cl_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
    const cl_mem_flags host_access = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
    const cl_mem_flags storage = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;
    return flags | (parent & storage) | ((flags & access) == 0 ? parent & access : 0) |
           ((flags & host_access) == 0 ? parent & host_access : 0);
}

cl_mem CL_API_CALL clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type create_type,
                                     const void *create_info, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(buffer, DV_KIND_MEM) || buffer->type != CL_MEM_OBJECT_BUFFER || buffer->parent != NULL) {
        return dv_fail(errcode_ret, CL_INVALID_MEM_OBJECT);
    }
    const cl_buffer_region *region = create_info;
    if (create_type != CL_BUFFER_CREATE_TYPE_REGION || region == NULL ||
        (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0 ||
        check_flags(flags, NULL) != CL_SUCCESS || region->origin > buffer->size ||
        region->size > buffer->size - region->origin) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    if (region->size == 0) {
        return dv_fail(errcode_ret, CL_INVALID_BUFFER_SIZE);
    }
    if (region->origin % DV_MEM_ALIGN_BYTES != 0) {
        return dv_fail(errcode_ret, CL_MISALIGNED_SUB_BUFFER_OFFSET);
    }
    cl_mem mem = create_mem(buffer->context, CL_MEM_OBJECT_BUFFER, inherit_flags(flags, buffer->flags));
    if (mem == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    dv_object_ref(buffer);
    mem->parent = buffer;
    mem->offset = region->origin;
    mem->size = region->size;
    mem->data = buffer->data + region->origin;
    mem->host_ptr = buffer->host_ptr != NULL ? (char *)buffer->host_ptr + region->origin : NULL;
    dv_fail(errcode_ret, CL_SUCCESS);
    return mem;
}

/* ---- images ---------------------------------------------------------------------------------*/

static const cl_channel_order orders[] = {CL_R, CL_RG, CL_RGBA};
static const cl_channel_type types[] = {
    CL_SNORM_INT8,   CL_SNORM_INT16,   CL_UNORM_INT8,     CL_UNORM_INT16,    CL_SIGNED_INT8, CL_SIGNED_INT16,
    CL_SIGNED_INT32, CL_UNSIGNED_INT8, CL_UNSIGNED_INT16, CL_UNSIGNED_INT32, CL_HALF_FLOAT,  CL_FLOAT,
};
#define NUM_ORDERS (sizeof orders / sizeof orders[0])
#define NUM_TYPES (sizeof types / sizeof types[0])
#define NUM_FORMATS (NUM_ORDERS * NUM_TYPES + 1) /* and BGRA of bytes */

static cl_image_format format_at(size_t index)
{
    if (index == NUM_FORMATS - 1) {
        return (cl_image_format){CL_BGRA, CL_UNORM_INT8};
    }
    return (cl_image_format){orders[index / NUM_TYPES], types[index % NUM_TYPES]};
}

/* 0 for a format that is not supported. */
static size_t element_bytes(const cl_image_format *format)
{
    bool known = false;
    for (size_t i = 0; i < NUM_FORMATS; i++) {
        cl_image_format supported = format_at(i);
        known |= supported.image_channel_order == format->image_channel_order &&
                 supported.image_channel_data_type == format->image_channel_data_type;
    }
    if (!known) {
        return 0;
    }
    size_t channels = format->image_channel_order == CL_R ? 1 : format->image_channel_order == CL_RG ? 2 : 4;
    switch (format->image_channel_data_type) {
    case CL_SNORM_INT8:
    case CL_UNORM_INT8:
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
        return channels;
    case CL_SIGNED_INT32:
    case CL_UNSIGNED_INT32:
    case CL_FLOAT:
        return channels * 4;
    default:
        return channels * 2;
    }
}

bool dv_mem_is_image(cl_mem mem)
{
    return mem->type != CL_MEM_OBJECT_BUFFER;
}

void dv_image_extent(cl_mem image, size_t extent[3])
{
    const cl_image_desc *desc = &image->desc;
    extent[0] = desc->image_width;
    extent[1] = extent[2] = 1;
    switch (image->type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        extent[1] = desc->image_array_size;
        break;
    case CL_MEM_OBJECT_IMAGE2D:
        extent[1] = desc->image_height;
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        extent[1] = desc->image_height;
        extent[2] = desc->image_array_size;
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        extent[1] = desc->image_height;
        extent[2] = desc->image_depth;
        break;
    default:
        break;
    }
}

struct dv_rect dv_image_rect(cl_mem image, const size_t origin[3])
{
    /* the layers of a 1D array are its second dimension, one slice pitch apart */
    size_t second = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? image->slice_pitch : image->row_pitch;
    return (struct dv_rect){
        .base = image->data + origin[0] * image->element_bytes + origin[1] * second + origin[2] * image->slice_pitch,
        .row_pitch = second,
        .slice_pitch = image->slice_pitch,
    };
}

static bool type_is_image(cl_mem_object_type type)
{
    return type == CL_MEM_OBJECT_IMAGE1D || type == CL_MEM_OBJECT_IMAGE1D_ARRAY ||
           type == CL_MEM_OBJECT_IMAGE1D_BUFFER || type == CL_MEM_OBJECT_IMAGE2D ||
           type == CL_MEM_OBJECT_IMAGE2D_ARRAY || type == CL_MEM_OBJECT_IMAGE3D;
}

static bool has_slices(cl_mem_object_type type)
{
    return type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY || type == CL_MEM_OBJECT_IMAGE3D;
}

static cl_int check_extent(const size_t extent[3], cl_mem_object_type type)
{
    for (int i = 0; i < 3; i++) {
        size_t limit = type == CL_MEM_OBJECT_IMAGE1D_BUFFER ? 65536 : DV_MAX_IMAGE_EXTENT;
        if (extent[i] == 0) {
            return CL_INVALID_IMAGE_DESCRIPTOR;
        }
        if (extent[i] > limit) {
            return CL_INVALID_IMAGE_SIZE;
        }
    }
    return CL_SUCCESS;
}

/* Pitches of the memory the application gives; tight ones where it says nothing. */
static cl_int host_pitches(cl_mem image, const size_t extent[3], size_t *row, size_t *slice)
{
    size_t tight_row = extent[0] * image->element_bytes;
    *row = image->desc.image_row_pitch != 0 ? image->desc.image_row_pitch : tight_row;
    if (*row < tight_row || *row % image->element_bytes != 0) {
        return CL_INVALID_IMAGE_DESCRIPTOR;
    }
    size_t rows = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : extent[1];
    *slice =
        image->desc.image_slice_pitch != 0 && has_slices(image->type) ? image->desc.image_slice_pitch : *row * rows;
    return *slice < *row * rows ? CL_INVALID_IMAGE_DESCRIPTOR : CL_SUCCESS;
}

static cl_int place_image_on_buffer(cl_mem image, cl_mem buffer, const size_t extent[3])
{
    if (buffer->context != image->context || buffer->type != CL_MEM_OBJECT_BUFFER ||
        (image->type != CL_MEM_OBJECT_IMAGE1D_BUFFER && image->type != CL_MEM_OBJECT_IMAGE2D)) {
        return CL_INVALID_IMAGE_DESCRIPTOR;
    }
    cl_int error = host_pitches(image, extent, &image->row_pitch, &image->slice_pitch);
    if (error != CL_SUCCESS) {
        return error;
    }
    if (image->row_pitch * extent[1] > buffer->size) {
        return CL_INVALID_IMAGE_SIZE;
    }
    dv_object_ref(buffer);
    image->parent = buffer;
    image->data = buffer->data;
    image->size = image->row_pitch * extent[1];
    return CL_SUCCESS;
}

static cl_int place_image(cl_mem image, void *host_ptr)
{
    size_t extent[3];
    dv_image_extent(image, extent);
    cl_int error = check_extent(extent, image->type);
    if (error != CL_SUCCESS) {
        return error;
    }
    if (image->desc.mem_object != NULL) {
        return place_image_on_buffer(image, image->desc.mem_object, extent);
    }
    if (image->type == CL_MEM_OBJECT_IMAGE1D_BUFFER ||
        (host_ptr == NULL && (image->desc.image_row_pitch != 0 || image->desc.image_slice_pitch != 0))) {
        return CL_INVALID_IMAGE_DESCRIPTOR;
    }
    size_t row, slice;
    error = host_pitches(image, extent, &row, &slice);
    if (error != CL_SUCCESS) {
        return error;
    }
    bool in_place = (image->flags & CL_MEM_USE_HOST_PTR) != 0;
    size_t rows = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : extent[1];
    size_t slices = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? extent[1] : extent[2];
    image->row_pitch = in_place ? row : extent[0] * image->element_bytes;
    image->slice_pitch = in_place ? slice : image->row_pitch * rows;
    if (image->slice_pitch > dv_settings_get()->memory_bytes / 2 / slices) {
        return CL_INVALID_IMAGE_SIZE;
    }
    error = give_storage(image, image->slice_pitch * slices, host_ptr);
    if (error == CL_SUCCESS && (image->flags & CL_MEM_COPY_HOST_PTR) != 0) {
        size_t second = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : row;
        dv_rect_copy(dv_image_rect(image, (size_t[3]){0, 0, 0}), (struct dv_rect){host_ptr, second, slice},
                     extent[0] * image->element_bytes, extent[1], extent[2]);
    }
    return error;
}

static cl_mem create_image(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags,
                           const cl_image_format *format, const cl_image_desc *desc, void *host_ptr,
                           cl_int *errcode_ret)
{
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if (properties != NULL && properties[0] != 0) {
        return dv_fail(errcode_ret, CL_INVALID_PROPERTY);
    }
    if (format == NULL) {
        return dv_fail(errcode_ret, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    }
    if (desc == NULL || !type_is_image(desc->image_type) || desc->num_mip_levels != 0 || desc->num_samples != 0 ||
        (desc->mem_object != NULL && !dv_object_is(desc->mem_object, DV_KIND_MEM))) {
        return dv_fail(errcode_ret, CL_INVALID_IMAGE_DESCRIPTOR);
    }
    cl_int error = check_flags(flags, host_ptr);
    if (error != CL_SUCCESS) {
        return dv_fail(errcode_ret, error);
    }
    if (element_bytes(format) == 0) {
        return dv_fail(errcode_ret, CL_IMAGE_FORMAT_NOT_SUPPORTED);
    }
    if (dv_device_is_lost()) {
        return dv_fail(errcode_ret, CL_OUT_OF_RESOURCES);
    }
    cl_mem image = create_mem(context, desc->image_type, flags);
    if (image == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    image->format = *format;
    image->desc = *desc;
    image->element_bytes = element_bytes(format);
    error = place_image(image, host_ptr);
    if (error != CL_SUCCESS) {
        dv_object_unref(image);
        return dv_fail(errcode_ret, error);
    }
    image->property_list = dv_properties_copy((const intptr_t *)properties, &image->num_property_list);
    dv_fail(errcode_ret, CL_SUCCESS);
    return image;
}

cl_mem CL_API_CALL clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                                 const cl_image_desc *desc, void *host_ptr, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    return create_image(context, NULL, flags, format, desc, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL clCreateImageWithProperties(cl_context context, const cl_mem_properties *properties,
                                               cl_mem_flags flags, const cl_image_format *format,
                                               const cl_image_desc *desc, void *host_ptr, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    return create_image(context, properties, flags, format, desc, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL clCreateImage2D(cl_context context, cl_mem_flags flags, const cl_image_format *format, size_t width,
                                   size_t height, size_t row_pitch, void *host_ptr, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                          .image_width = width,
                          .image_height = height,
                          .image_row_pitch = row_pitch};
    return create_image(context, NULL, flags, format, &desc, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *format, size_t width,
                                   size_t height, size_t depth, size_t row_pitch, size_t slice_pitch, void *host_ptr,
                                   cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D,
                          .image_width = width,
                          .image_height = height,
                          .image_depth = depth,
                          .image_row_pitch = row_pitch,
                          .image_slice_pitch = slice_pitch};
    return create_image(context, NULL, flags, format, &desc, host_ptr, errcode_ret);
}

cl_int CL_API_CALL clGetSupportedImageFormats(cl_context context, cl_mem_flags flags, cl_mem_object_type image_type,
                                              cl_uint num_entries, cl_image_format *formats, cl_uint *num_formats)
{
    DV_ENTER();
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return CL_INVALID_CONTEXT;
    }
    if (!type_is_image(image_type) || (num_entries == 0 && formats != NULL)) {
        return CL_INVALID_VALUE;
    }
    for (size_t i = 0; formats != NULL && i < NUM_FORMATS && i < num_entries; i++) {
        formats[i] = format_at(i);
    }
    if (num_formats != NULL) {
        *num_formats = NUM_FORMATS;
    }
    return CL_SUCCESS;
}

cl_int CL_API_CALL clGetImageInfo(cl_mem image, cl_image_info param_name, size_t param_value_size, void *param_value,
                                  size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(image, DV_KIND_MEM) || !dv_mem_is_image(image)) {
        return CL_INVALID_MEM_OBJECT;
    }
    bool flat = image->type == CL_MEM_OBJECT_IMAGE1D || image->type == CL_MEM_OBJECT_IMAGE1D_BUFFER ||
                image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    bool array = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY || image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
    switch (param_name) {
    case CL_IMAGE_FORMAT:
        return DV_VALUE(cl_image_format, image->format.image_channel_order, image->format.image_channel_data_type);
    case CL_IMAGE_ELEMENT_SIZE:
        return DV_VALUE(size_t, image->element_bytes);
    case CL_IMAGE_ROW_PITCH:
        return DV_VALUE(size_t, image->row_pitch);
    case CL_IMAGE_SLICE_PITCH:
        return DV_VALUE(size_t, has_slices(image->type) ? image->slice_pitch : 0);
    case CL_IMAGE_WIDTH:
        return DV_VALUE(size_t, image->desc.image_width);
    case CL_IMAGE_HEIGHT:
        return DV_VALUE(size_t, flat ? 0 : image->desc.image_height);
    case CL_IMAGE_DEPTH:
        return DV_VALUE(size_t, image->type == CL_MEM_OBJECT_IMAGE3D ? image->desc.image_depth : 0);
    case CL_IMAGE_ARRAY_SIZE:
        return DV_VALUE(size_t, array ? image->desc.image_array_size : 0);
    case CL_IMAGE_BUFFER:
        return DV_VALUE(cl_mem, image->parent);
    case CL_IMAGE_NUM_MIP_LEVELS:
    case CL_IMAGE_NUM_SAMPLES:
        return DV_VALUE(cl_uint, 0);
    default:
        return CL_INVALID_VALUE;
    }
}

/* ---- all memory objects ---------------------------------------------------------------------*/

cl_int CL_API_CALL clRetainMemObject(cl_mem mem)
{
    DV_ENTER();
    return dv_object_is(mem, DV_KIND_MEM) && dv_object_api_retain(mem) ? CL_SUCCESS : CL_INVALID_MEM_OBJECT;
}

cl_int CL_API_CALL clReleaseMemObject(cl_mem mem)
{
    DV_ENTER();
    return dv_object_is(mem, DV_KIND_MEM) && dv_object_api_release(mem) ? CL_SUCCESS : CL_INVALID_MEM_OBJECT;
}

static cl_uint count_mappings(cl_mem mem)
{
    cl_uint count = 0;
    pthread_mutex_lock(&mem->lock);
    for (struct dv_mapping *mapping = mem->mappings; mapping != NULL; mapping = mapping->next) {
        count++;
    }
    pthread_mutex_unlock(&mem->lock);
    return count;
}

cl_int CL_API_CALL clGetMemObjectInfo(cl_mem mem, cl_mem_info param_name, size_t param_value_size, void *param_value,
                                      size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(mem, DV_KIND_MEM)) {
        return CL_INVALID_MEM_OBJECT;
    }
    switch (param_name) {
    case CL_MEM_TYPE:
        return DV_VALUE(cl_mem_object_type, mem->type);
    case CL_MEM_FLAGS:
        return DV_VALUE(cl_mem_flags, mem->flags);
    case CL_MEM_SIZE:
        return DV_VALUE(size_t, mem->size);
    case CL_MEM_HOST_PTR:
        return DV_VALUE(void *, mem->host_ptr);
    case CL_MEM_MAP_COUNT:
        return DV_VALUE(cl_uint, count_mappings(mem));
    case CL_MEM_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(mem));
    case CL_MEM_CONTEXT:
        return DV_VALUE(cl_context, mem->context);
    case CL_MEM_ASSOCIATED_MEMOBJECT:
        return DV_VALUE(cl_mem, mem->parent);
    case CL_MEM_OFFSET:
        return DV_VALUE(size_t, mem->offset);
    case CL_MEM_USES_SVM_POINTER:
        return DV_VALUE(cl_bool, CL_FALSE);
    case CL_MEM_PROPERTIES:
        return DV_BYTES(mem->property_list, mem->num_property_list * sizeof(cl_mem_properties));
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clSetMemObjectDestructorCallback(cl_mem mem, void(CL_CALLBACK *pfn_notify)(cl_mem, void *),
                                                    void *user_data)
{
    DV_ENTER();
    if (!dv_object_is(mem, DV_KIND_MEM)) {
        return CL_INVALID_MEM_OBJECT;
    }
    if (pfn_notify == NULL) {
        return CL_INVALID_VALUE;
    }
    struct dv_mem_callback *callback = malloc(sizeof *callback);
    if (callback == NULL) {
        return CL_OUT_OF_HOST_MEMORY;
    }
    callback->notify = pfn_notify;
    callback->user_data = user_data;
    pthread_mutex_lock(&mem->lock);
    callback->next = mem->destructors;
    mem->destructors = callback;
    pthread_mutex_unlock(&mem->lock);
    return CL_SUCCESS;
}

/* ---- samplers -------------------------------------------------------------------------------*/

static void destroy_sampler(struct dv_object *object)
{
    cl_sampler sampler = (cl_sampler)object;
    dv_object_unref(sampler->context);
    free(sampler->property_list);
    free(sampler);
}

static cl_sampler create_sampler(cl_context context, cl_bool normalized, cl_addressing_mode addressing,
                                 cl_filter_mode filter, cl_int *errcode_ret)
{
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if (addressing < CL_ADDRESS_NONE || addressing > CL_ADDRESS_MIRRORED_REPEAT ||
        (filter != CL_FILTER_NEAREST && filter != CL_FILTER_LINEAR) || normalized > CL_TRUE) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    cl_sampler sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    dv_object_init(&sampler->base, DV_KIND_SAMPLER, destroy_sampler);
    dv_object_ref(context);
    sampler->context = context;
    sampler->normalized = normalized;
    sampler->addressing = addressing;
    sampler->filter = filter;
    dv_fail(errcode_ret, CL_SUCCESS);
    return sampler;
}

cl_sampler CL_API_CALL clCreateSampler(cl_context context, cl_bool normalized, cl_addressing_mode addressing,
                                       cl_filter_mode filter, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    return create_sampler(context, normalized, addressing, filter, errcode_ret);
}

cl_sampler CL_API_CALL clCreateSamplerWithProperties(cl_context context, const cl_sampler_properties *properties,
                                                     cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    cl_bool normalized = CL_TRUE;
    cl_addressing_mode addressing = CL_ADDRESS_CLAMP;
    cl_filter_mode filter = CL_FILTER_NEAREST;
    for (size_t i = 0; properties != NULL && properties[i] != 0; i += 2) {
        switch (properties[i]) {
        case CL_SAMPLER_NORMALIZED_COORDS:
            normalized = (cl_bool)properties[i + 1];
            break;
        case CL_SAMPLER_ADDRESSING_MODE:
            addressing = (cl_addressing_mode)properties[i + 1];
            break;
        case CL_SAMPLER_FILTER_MODE:
            filter = (cl_filter_mode)properties[i + 1];
            break;
        default:
            return dv_fail(errcode_ret, CL_INVALID_VALUE);
        }
    }
    cl_sampler sampler = create_sampler(context, normalized, addressing, filter, errcode_ret);
    if (sampler != NULL) {
        sampler->property_list = dv_properties_copy((const intptr_t *)properties, &sampler->num_property_list);
    }
    return sampler;
}

cl_int CL_API_CALL clRetainSampler(cl_sampler sampler)
{
    DV_ENTER();
    return dv_object_is(sampler, DV_KIND_SAMPLER) && dv_object_api_retain(sampler) ? CL_SUCCESS : CL_INVALID_SAMPLER;
}

cl_int CL_API_CALL clReleaseSampler(cl_sampler sampler)
{
    DV_ENTER();
    return dv_object_is(sampler, DV_KIND_SAMPLER) && dv_object_api_release(sampler) ? CL_SUCCESS : CL_INVALID_SAMPLER;
}

cl_int CL_API_CALL clGetSamplerInfo(cl_sampler sampler, cl_sampler_info param_name, size_t param_value_size,
                                    void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(sampler, DV_KIND_SAMPLER)) {
        return CL_INVALID_SAMPLER;
    }
    switch (param_name) {
    case CL_SAMPLER_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(sampler));
    case CL_SAMPLER_CONTEXT:
        return DV_VALUE(cl_context, sampler->context);
    case CL_SAMPLER_NORMALIZED_COORDS:
        return DV_VALUE(cl_bool, sampler->normalized);
    case CL_SAMPLER_ADDRESSING_MODE:
        return DV_VALUE(cl_addressing_mode, sampler->addressing);
    case CL_SAMPLER_FILTER_MODE:
        return DV_VALUE(cl_filter_mode, sampler->filter);
    case CL_SAMPLER_PROPERTIES:
        return DV_BYTES(sampler->property_list, sampler->num_property_list * sizeof(cl_sampler_properties));
    default:
        return CL_INVALID_VALUE;
    }
}
