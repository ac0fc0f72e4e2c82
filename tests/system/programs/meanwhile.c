/* meanwhile WHAT: hands a kernel to the device, and while that is under way does something else. Prints
 * "under way" in between and "done" at the end. For the scripted vendor.
 *
 *   release   lets go of a buffer while the two large ones that the kernel needs are brought in
 *   build     builds another program while the kernel runs
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const source = "kernel void sum(global uint *out, global const uint *in) {}\n"
                                  "kernel void sleep(uint us) {}\n";

static cl_context context;
static cl_device_id device;

static cl_program make_program(void)
{
    cl_int error;
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &error);

    REQUIRE_CL(error);
    REQUIRE_CL(clBuildProgram(program, 1, &device, "", NULL, NULL));
    return program;
}

static cl_mem make_buffer(size_t bytes)
{
    cl_int error;
    void *data = calloc(1, bytes);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, bytes, data, &error);

    REQUIRE_CL(error);
    free(data);
    return buffer;
}

static cl_kernel make_kernel(cl_program program, const char *name)
{
    cl_int error;
    cl_kernel kernel = clCreateKernel(program, name, &error);

    REQUIRE_CL(error);
    return kernel;
}

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

static void start(cl_command_queue queue, cl_kernel kernel)
{
    size_t one = 1;

    REQUIRE_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    REQUIRE_CL(clFlush(queue));
    say("under way");
}

static void release_meanwhile(cl_command_queue queue, cl_program program)
{
    cl_kernel sum = make_kernel(program, "sum");
    cl_mem out = make_buffer(64 << 20), in = make_buffer(128 << 20), other = make_buffer(4);

    REQUIRE_CL(clSetKernelArg(sum, 0, sizeof out, &out));
    REQUIRE_CL(clSetKernelArg(sum, 1, sizeof in, &in));
    start(queue, sum);
    usleep(300000); /* the first is there, the second not yet */
    REQUIRE_CL(clReleaseMemObject(other));
}

static void build_meanwhile(cl_command_queue queue, cl_program program)
{
    cl_kernel sleeps = make_kernel(program, "sleep");
    cl_uint us = 200000;

    REQUIRE_CL(clSetKernelArg(sleeps, 0, sizeof us, &us));
    start(queue, sleeps);
    make_program();
}

int main(int argc, char **argv)
{
    cl_platform_id platform;
    cl_int error;

    REQUIRE(argc == 2);
    REQUIRE_CL(clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    REQUIRE_CL(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    REQUIRE_CL(error);
    if (strcmp(argv[1], "release") == 0)
        release_meanwhile(queue, make_program());
    else
        build_meanwhile(queue, make_program());
    REQUIRE_CL(clFinish(queue));
    say("done");
    return 0;
}
