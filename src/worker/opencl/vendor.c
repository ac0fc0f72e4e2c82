/* The vendor's side: loading without initialising, finding devices, its clock. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/worker/opencl/executor.h"

static void preload_icd(const char *folder, const char *file)
{
    char path[4096], library[4096];

    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return;
    FILE *stream = fopen(path, "re");
    if (!stream)
        return;
    if (fgets(library, sizeof library, stream)) {
        library[strcspn(library, " \t\r\n")] = '\0';
        if (library[0] && !dlopen(library, RTLD_NOW | RTLD_LOCAL))
            dv_warning("vendor library %s (from %s) does not load: %s", library, path, dlerror());
    }
    fclose(stream);
}

int dvk_preload(void)
{
    const char *folder = getenv("OCL_ICD_VENDORS");
    DIR *dir = folder ? opendir(folder) : NULL;

    if (!dir)
        return 0; /* the loader uses its default directory */
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && strcmp(entry->d_name + length - 4, ".icd") == 0)
            preload_icd(folder, entry->d_name);
    }
    closedir(dir);
    return 0;
}

static void device_text(cl_device_id device, cl_device_info what, char *into, size_t bytes)
{
    DV_AUTO_FREE char *text = NULL;
    size_t length = 0;

    into[0] = '\0';
    if (clGetDeviceInfo(device, what, 0, NULL, &length) != CL_SUCCESS || !(text = malloc(length + 1)))
        return;
    if (clGetDeviceInfo(device, what, length, text, NULL) == CL_SUCCESS) {
        text[length] = '\0';
        snprintf(into, bytes, "%s", text);
    }
}

static bool has_extension(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void report_uuid(struct dv_device_report *report, cl_device_id device)
{
    static const cl_uchar none[CL_UUID_SIZE_KHR];
    cl_uchar uuid[CL_UUID_SIZE_KHR];
    char *at = report->uuid;

    if (clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, sizeof uuid, uuid, NULL) != CL_SUCCESS ||
        memcmp(uuid, none, sizeof uuid) == 0)
        return;
    for (int i = 0; i < CL_UUID_SIZE_KHR; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

/* Vendors' own extensions, from before Khronos had one for PCI addresses; headers rarely define them. */
#define NV_PCI_BUS_ID 0x4008
#define NV_PCI_SLOT_ID 0x4009
#define NV_PCI_DOMAIN_ID 0x400A
#define NV_ASYNC_ENGINE_COUNT 0x4007
#define AMD_TOPOLOGY 0x4037
#define AMD_TOPOLOGY_PCIE 1

static bool find_pci(cl_device_id device, const char *extensions, cl_uint address[4])
{
    struct {
        cl_uint type;
        cl_uchar unused[17], bus, device, function;
    } amd;
    cl_uint slot = 0;

    memset(address, 0, 4 * sizeof address[0]);
    if (has_extension(extensions, "cl_khr_pci_bus_info"))
        return clGetDeviceInfo(device, CL_DEVICE_PCI_BUS_INFO_KHR, 4 * sizeof address[0], address, NULL) == CL_SUCCESS;
    if (has_extension(extensions, "cl_nv_device_attribute_query") &&
        clGetDeviceInfo(device, NV_PCI_BUS_ID, sizeof address[1], &address[1], NULL) == CL_SUCCESS &&
        clGetDeviceInfo(device, NV_PCI_SLOT_ID, sizeof slot, &slot, NULL) == CL_SUCCESS) {
        /* older drivers have no domains */
        clGetDeviceInfo(device, NV_PCI_DOMAIN_ID, sizeof address[0], &address[0], NULL);
        address[2] = slot >> 3;
        address[3] = slot & 7;
        return true;
    }
    if (has_extension(extensions, "cl_amd_device_attribute_query") &&
        clGetDeviceInfo(device, AMD_TOPOLOGY, sizeof amd, &amd, NULL) == CL_SUCCESS && amd.type == AMD_TOPOLOGY_PCIE) {
        address[1] = amd.bus;
        address[2] = amd.device;
        address[3] = amd.function;
        return true;
    }
    return false;
}

/* Only one vendor reports it. */
static cl_uint count_copy_engines(cl_device_id device, const char *extensions)
{
    cl_uint count = 0;

    if (has_extension(extensions, "cl_nv_device_attribute_query"))
        clGetDeviceInfo(device, NV_ASYNC_ENGINE_COUNT, sizeof count, &count, NULL);
    return count;
}

/* Cards of one model have the same name. The identity tells them apart, and survives a reboot. */
static void report_identity(struct dv_device_report *report, cl_device_id device)
{
    DV_AUTO_FREE char *extensions = NULL;
    size_t length = 0;
    cl_uint address[4];

    if (clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &length) != CL_SUCCESS ||
        !(extensions = calloc(1, length + 1)) ||
        clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, length, extensions, NULL) != CL_SUCCESS)
        return;
    if (has_extension(extensions, "cl_khr_device_uuid"))
        report_uuid(report, device);
    if (find_pci(device, extensions, address))
        snprintf(report->pci, sizeof report->pci, DV_PCI_FORMAT, address[0], address[1] & 0xff, address[2] & 0xff,
                 address[3] & 7);
    report->copy_engines = count_copy_engines(device, extensions);
}

static void report_device(struct dv_device_report *report, cl_platform_id platform, cl_device_id device,
                          uint32_t platform_index, uint32_t device_index)
{
    cl_device_type type = 0;
    cl_ulong memory = 0;
    cl_uint units = 0;
    cl_bool unified = CL_FALSE;

    memset(report, 0, sizeof *report);
    clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
    clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    clGetDeviceInfo(device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL);
    report->platform = platform_index;
    report->device = device_index;
    report->type = type;
    report->memory_bytes = memory;
    report->compute_units = units;
    /* Only a CPU is known to compute in any host memory it is given, without copies of its own. */
    report->host_unified = unified && (type & CL_DEVICE_TYPE_CPU);
    device_text(device, CL_DEVICE_NAME, report->name, sizeof report->name);
    device_text(device, CL_DEVICE_VENDOR, report->vendor, sizeof report->vendor);
    device_text(device, CL_DEVICE_VERSION, report->version, sizeof report->version);
    device_text(device, CL_DRIVER_VERSION, report->driver, sizeof report->driver);
    report_identity(report, device);
    char name[DV_MAX_DEVICE_NAME] = "";
    if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL) == CL_SUCCESS)
        snprintf(report->platform_name, sizeof report->platform_name, "%s", name);
}

int dvk_vendor_devices(struct dv_device_report *reports, cl_device_id *devices, cl_platform_id *platforms, int capacity,
                       uint32_t *found_count, char *text, size_t text_bytes)
{
    cl_platform_id found[DV_MAX_DEVICES];
    cl_uint platform_count = 0;
    int count = 0;

    *found_count = 0;
    cl_int error = clGetPlatformIDs(DV_MAX_DEVICES, found, &platform_count);
    if (error != CL_SUCCESS || platform_count == 0) {
        snprintf(text, text_bytes,
                 "the vendors' OpenCL offers no platform (error %d): is a vendor's .icd file in the "
                 "vendor directory and its library installed?",
                 error);
        return -ENODEV;
    }
    for (cl_uint p = 0; p < platform_count && p < DV_MAX_DEVICES; p++) {
        cl_device_id list[DV_MAX_DEVICES];
        cl_uint device_count = 0;
        if (clGetDeviceIDs(found[p], CL_DEVICE_TYPE_ALL, DV_MAX_DEVICES, list, &device_count) != CL_SUCCESS)
            continue;
        *found_count += device_count;
        for (cl_uint d = 0; d < device_count && d < DV_MAX_DEVICES && count < capacity; d++) {
            report_device(&reports[count], found[p], list[d], p, d);
            if (devices)
                devices[count] = list[d];
            if (platforms)
                platforms[count] = found[p];
            count++;
        }
    }
    if (count == 0)
        snprintf(text, text_bytes, "the vendors' OpenCL platforms offer no device");
    return count ? count : -ENODEV;
}

int dvk_probe(struct dv_device_report *reports, int capacity, uint32_t *found, char *text, size_t text_bytes)
{
    return dvk_vendor_devices(reports, NULL, NULL, capacity, found, text, text_bytes);
}

/* A clock minus CLOCK_MONOTONIC, modulo 2^64: the best of several readings. */
static uint64_t offset_of(clockid_t clock)
{
    uint64_t best = UINT64_MAX, offset = 0;

    for (int i = 0; i < 8; i++) {
        uint64_t before = dv_now(), now = dv_clock_read(clock), after = dv_now();
        if (after - before < best) {
            best = after - before;
            offset = now - before - best / 2;
        }
    }
    return offset;
}

/* Profiling times are on a clock of the vendor's choosing: finds which of the system's clocks that is. The offset of
 * each clock is read once, so that the times of several queues can be compared. */
uint64_t dvk_clock_offset(cl_command_queue queue)
{
    static struct {
        clockid_t clock;
        bool is_read;
        uint64_t offset;
    } clocks[] = {{.clock = CLOCK_MONOTONIC, .is_read = true},
                  {.clock = CLOCK_MONOTONIC_RAW},
                  {.clock = CLOCK_BOOTTIME},
                  {.clock = CLOCK_REALTIME}};
    cl_event event;
    cl_ulong stamp = 0;
    uint64_t best = UINT64_MAX;
    size_t found = 0;

    if (clEnqueueMarkerWithWaitList(queue, 0, NULL, &event) != CL_SUCCESS)
        return 0;
    clWaitForEvents(1, &event);
    clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof stamp, &stamp, NULL);
    clReleaseEvent(event);
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        uint64_t now = dv_clock_read(clocks[i].clock);
        uint64_t distance = now > stamp ? now - stamp : stamp - now;
        if (distance < best) {
            best = distance;
            found = i;
        }
    }
    if (!clocks[found].is_read) {
        clocks[found].offset = offset_of(clocks[found].clock);
        clocks[found].is_read = true;
    }
    return clocks[found].offset;
}
