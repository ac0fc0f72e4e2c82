/* A command that waits for another of another queue, and needs the room of its objects.
 *
 *     follow MIB ROUNDS
 *
 * Two buffers of that size, of which the device has room for one: a kernel writes one of them on one
 * queue, and while it runs a kernel on another queue that waits for it is enqueued for the other. Exit code
 * 0: all right; 1: a wrong result; 3: an OpenCL call or a command failed. */
#include "check.h"

#include <unistd.h>

static const char *const source = "kernel void slow(global uint *data, uint value) {\n"
                                  "    uint x = value;\n"
                                  "    for (uint i = 0; i < 40u; i++) x = x * 1664525u + 1013904223u;\n"
                                  "    data[get_global_id(0)] = x;\n"
                                  "}\n";

static void need(cl_int error, const char *call)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "opencl error %s in %s\n", dv_test_error_name(error), call);
    _exit(3);
}

static cl_uint slow(cl_uint x)
{
    for (unsigned i = 0; i < 40; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    size_t bytes = (size_t)strtoull(argv[1], NULL, 0) << 20, words = bytes / 4;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    cl_command_queue queues[2];
    cl_mem buffers[2];
    cl_kernel kernels[2];
    const char *text = source;

    need(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    need(error, "clCreateContext");
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    need(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    for (int i = 0; i < 2; i++) {
        queues[i] = clCreateCommandQueue(context, device, 0, &error);
        need(error, "clCreateCommandQueue");
        buffers[i] = clCreateBuffer(context, 0, bytes, NULL, &error);
        need(error, "clCreateBuffer");
        kernels[i] = clCreateKernel(program, "slow", &error);
        need(error, "clCreateKernel");
        need(clSetKernelArg(kernels[i], 0, sizeof buffers[i], &buffers[i]), "clSetKernelArg");
    }
    for (cl_uint round = 0; round < strtoul(argv[2], NULL, 0); round++) {
        cl_event events[2];
        cl_uint value;
        for (int i = 0; i < 2; i++) {
            value = round * 2 + (cl_uint)i;
            need(clSetKernelArg(kernels[i], 1, sizeof value, &value), "clSetKernelArg");
            need(clEnqueueNDRangeKernel(queues[i], kernels[i], 1, NULL, &words, NULL, i, i ? &events[0] : NULL,
                                        &events[i]),
                 "clEnqueueNDRangeKernel");
            need(clFlush(queues[i]), "clFlush");
        }
        need(clWaitForEvents(1, &events[1]), "clWaitForEvents");
        for (int i = 0; i < 2; i++) {
            need(clEnqueueReadBuffer(queues[i], buffers[i], CL_TRUE, bytes - 4, 4, &value, 0, NULL, NULL),
                 "clEnqueueReadBuffer");
            if (value != slow(round * 2 + (cl_uint)i))
                return 1;
            clReleaseEvent(events[i]);
        }
    }
    return 0;
}
