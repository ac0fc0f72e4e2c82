/* A tenant that computes on parts of a device, or on several devices of one context, at once.
 *
 *     parts parts|devices SECONDS
 *
 * Makes a queue for each sub-device of one compute unit, or for each device, keeps all of them busy for that
 * many seconds, and prints "ready" when it begins and "kernels N" at its end. */
#include "check.h"

#include <time.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static const char *const source = "kernel void burn(global uint *data) { uint x = data[get_global_id(0)];\n"
                                      "  for (uint i = 0; i < 300000; i++) x = x * 1664525 + 1013904223;\n"
                                      "  data[get_global_id(0)] = x; }\n";
    enum { MOST = 16, WORDS = 64 };
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_platform_id platform;
    cl_device_id devices[MOST];
    cl_command_queue queues[MOST];
    cl_kernel kernels[MOST];
    cl_uint count = 0, queue_count;
    cl_int error;
    const size_t words = WORDS;

    if (argc < 3)
        return 2;
    REQUIRE_CL(clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST, devices, &count));
    if (strcmp(argv[1], "parts") == 0) {
        cl_device_id whole = devices[0];
        REQUIRE_CL(clCreateSubDevices(whole, equally, MOST, devices, &count));
    }
    queue_count = count;
    cl_context context = clCreateContext(NULL, count, devices, NULL, NULL, &error);
    REQUIRE_CL(error);
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    for (cl_uint i = 0; i < queue_count; i++) {
        queues[i] = clCreateCommandQueue(context, devices[i], 0, &error);
        REQUIRE_CL(error);
        kernels[i] = clCreateKernel(program, "burn", &error);
        REQUIRE_CL(error);
        cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, WORDS * 4, NULL, &error);
        REQUIRE_CL(error);
        REQUIRE_CL(clSetKernelArg(kernels[i], 0, sizeof buffer, &buffer));
    }
    printf("ready\n");
    fflush(stdout);
    unsigned launched = 0;
    for (double end = now() + atof(argv[2]); now() < end;) {
        for (cl_uint i = 0; i < queue_count; i++, launched++) {
            REQUIRE_CL(clEnqueueNDRangeKernel(queues[i], kernels[i], 1, NULL, &words, NULL, 0, NULL, NULL));
            REQUIRE_CL(clFlush(queues[i]));
        }
        for (cl_uint i = 0; i < queue_count; i++)
            REQUIRE_CL(clFinish(queues[i]));
    }
    printf("kernels %u\n", launched);
    return 0;
}
