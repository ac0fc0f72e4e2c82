/* turns ROUNDS SECONDS [PAUSE]: says "ready", waits for a line, then keeps the device busy with kernels of
 * one length for that long, and says how many were finished by then. With PAUSE, it waits for each kernel and then
 * pauses for so many milliseconds. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const source = "kernel void turns(global uint *out, uint rounds) {\n"
                                  "    uint x = get_global_id(0) + 1;\n"
                                  "    for (uint i = 0; i < rounds; i++)\n"
                                  "        x = x * 1664525u + 1013904223u;\n"
                                  "    out[get_global_id(0)] = x;\n"
                                  "}\n";

enum { DEPTH = 8 };

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    cl_uint rounds = (cl_uint)strtoul(argv[1], NULL, 0);
    double seconds = strtod(argv[2], NULL);
    unsigned pause_ms = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 0;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    REQUIRE_CL(clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    REQUIRE_CL(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    REQUIRE_CL(error);
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "turns", &error);
    REQUIRE_CL(error);
    cl_mem buffer = clCreateBuffer(context, 0, 64 * 4, NULL, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    REQUIRE_CL(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    size_t global = 64, local = 1;
    REQUIRE_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    REQUIRE_CL(clFinish(queue));

    char line[16];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin) && ferror(stdin))
        return 1;
    cl_event events[DEPTH] = {NULL};
    unsigned long count = 0, finished = 0;
    double end = dv_test_now_s() + seconds;
    while (dv_test_now_s() < end) {
        cl_event *event = &events[count % DEPTH];
        if (*event) {
            REQUIRE_CL(clWaitForEvents(1, event));
            REQUIRE_CL(clReleaseEvent(*event));
            finished++;
        }
        REQUIRE_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, event));
        count++;
        if (pause_ms) {
            REQUIRE_CL(clFinish(queue));
            dv_test_sleep_ms(pause_ms);
        }
    }
    printf("%lu\n", finished);
    return 0;
}
