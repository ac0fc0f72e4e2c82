/* Devices and sub-devices, as the client asks for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/worker/opencl/executor.h"

int32_t dvk_on_list_devices(struct dvk_worker *w, const struct dvw_list_devices *m, const uint8_t *tail,
                            size_t tail_bytes, struct dvk_reply *reply)
{
    struct dv_wire_device list[DV_MAX_DEVICES];

    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < w->device_count; i++) {
        struct dvk_device *device = w->devices[i];
        cl_ulong max_alloc = 0;
        cl_uint align_bits = 0;
        clGetDeviceInfo(device->vendor, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof max_alloc, &max_alloc, NULL);
        uint64_t quota = w->runtime->start->devices[i].memory_bytes;
        if (quota && max_alloc > quota)
            max_alloc = quota;
        clGetDeviceInfo(device->vendor, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits, NULL);
        list[i] = (struct dv_wire_device){.id = i + 1,
                                          .platform = device->platform_index,
                                          .type = device->type,
                                          .unified = device->unified,
                                          .number = w->runtime->start->devices[i].number,
                                          .max_alloc_bytes = max_alloc,
                                          .base_align = align_bits / 8};
        snprintf(list[i].name, sizeof list[i].name, "%s", device->name);
        clGetPlatformInfo(device->platform, CL_PLATFORM_NAME, sizeof list[i].platform_name - 1, list[i].platform_name,
                          NULL);
    }
    dvk_reply_put(reply, list, w->device_count * sizeof list[0]);
    return CL_SUCCESS;
}

int32_t dvk_on_create_sub_devices(struct dvk_worker *w, const struct dvw_create_sub_devices *m, const uint8_t *tail,
                                  size_t tail_bytes, struct dvk_reply *reply)
{
    enum { MOST = 64 };
    struct dvk_device *device = dvk_find_device(w, m->device);
    cl_device_partition_property properties[MOST];
    cl_device_id made[MOST];
    cl_uint count = 0;

    if (!device)
        return CL_INVALID_DEVICE;
    if (m->property_count == 0 || m->property_count > MOST || m->id_count > MOST ||
        tail_bytes < 8ull * m->property_count + 4ull * m->id_count)
        return CL_INVALID_VALUE;
    for (uint32_t i = 0; i < m->property_count; i++) {
        uint64_t value;
        memcpy(&value, tail + 8 * i, 8);
        properties[i] = (cl_device_partition_property)value;
    }
    if (properties[m->property_count - 1] != 0)
        return CL_INVALID_VALUE;
    cl_int error = clCreateSubDevices(device->vendor, properties, 0, NULL, &count);
    if (error == CL_SUCCESS && count > MOST)
        error = CL_OUT_OF_RESOURCES;
    if (error != CL_SUCCESS || m->id_count == 0) {
        dvk_reply_put(reply, &count, sizeof count);
        return error;
    }
    if (m->id_count < count)
        return CL_INVALID_VALUE;
    error = clCreateSubDevices(device->vendor, properties, count, made, &count);
    if (error != CL_SUCCESS)
        return error;
    struct dvk_origin *origin = dvk_origin_of_new(w, &m->head.record, device->origin);
    for (cl_uint i = 0; i < count; i++) {
        struct dvk_device *sub = calloc(1, sizeof *sub);
        struct dv_object_id id;
        memcpy(&id, tail + 8 * m->property_count + 4 * i, sizeof id);
        if (sub) {
            *sub = *device;
            sub->vendor = made[i];
            sub->is_sub = true;
            sub->origin = origin;
        }
        if (!sub || dvk_put(w, DV_KIND_DEVICE, id, sub) != CL_SUCCESS) {
            free(sub);
            return CL_OUT_OF_HOST_MEMORY;
        }
    }
    dvk_reply_put(reply, &count, sizeof count);
    return CL_SUCCESS;
}
