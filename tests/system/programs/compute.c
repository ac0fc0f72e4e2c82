/* A tenant that computes and checks its own results until its time is over.
 *
 *     compute SEED SECONDS [MIB]
 *
 * SIGUSR1 ends it in good order before its time. Prints "ready" after the first correct round and
 * "done ROUNDS" at the end. Exit code 0: all right; 1: a wrong result; 3: an OpenCL call failed
 * (named on standard error). */
#include "check.h"

#include <signal.h>
#include <unistd.h>

static const char *const source = "kernel void advance(global uint *data, uint factor, uint add) {\n"
                                  "    size_t i = get_global_id(0);\n"
                                  "    data[i] = data[i] * factor + add;\n"
                                  "}\n";

static void need(cl_int error, const char *call)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "opencl error %s in %s\n", dv_test_error_name(error), call);
    _exit(3);
}

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    signal(SIGUSR1, stop);
    uint64_t random = strtoull(argv[1], NULL, 0) * 7919 + 1;
    double seconds = strtod(argv[2], NULL);
    size_t bytes = argc > 3 ? (size_t)strtoull(argv[3], NULL, 0) << 20 : (size_t)64 << 10;
    size_t words = bytes / 4;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    need(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    need(error, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    need(error, "clCreateCommandQueue");
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    need(error, "clCreateProgramWithSource");
    need(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "advance", &error);
    need(error, "clCreateKernel");
    cl_mem buffer = clCreateBuffer(context, 0, bytes, NULL, &error);
    need(error, "clCreateBuffer");
    cl_uint *data = malloc(bytes), *expected = malloc(bytes);
    REQUIRE(data && expected);
    dv_test_random_fill(&random, expected, bytes);
    memcpy(data, expected, bytes);

    double end = dv_test_now_s() + seconds;
    unsigned long rounds = 0;
    do {
        need(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, bytes, data, 0, NULL, NULL), "clEnqueueWriteBuffer");
        for (int step = 0; step < 4; step++) {
            cl_uint factor = (cl_uint)dv_test_random(&random) | 1;
            cl_uint add = (cl_uint)dv_test_random(&random);
            size_t local = 64;
            need(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
            need(clSetKernelArg(kernel, 1, sizeof factor, &factor), "clSetKernelArg");
            need(clSetKernelArg(kernel, 2, sizeof add, &add), "clSetKernelArg");
            need(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &words, &local, 0, NULL, NULL),
                 "clEnqueueNDRangeKernel");
            for (size_t i = 0; i < words; i++)
                expected[i] = expected[i] * factor + add;
        }
        /* By turns a read and a map. */
        if (rounds % 2 == 0) {
            need(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL), "clEnqueueReadBuffer");
        } else {
            void *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, bytes, 0, NULL, NULL, &error);
            need(error, "clEnqueueMapBuffer");
            memcpy(data, mapped, bytes);
            need(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL), "clEnqueueUnmapMemObject");
            need(clFinish(queue), "clFinish");
        }
        if (memcmp(data, expected, bytes) != 0) {
            fprintf(stderr, "wrong result in round %lu\n", rounds);
            return 1;
        }
        if (rounds++ == 0) {
            printf("ready\n");
            fflush(stdout);
        }
    } while (!stopped && dv_test_now_s() < end);
    printf("done %lu\n", rounds);
    need(clReleaseMemObject(buffer), "clReleaseMemObject");
    need(clReleaseKernel(kernel), "clReleaseKernel");
    need(clReleaseProgram(program), "clReleaseProgram");
    need(clReleaseCommandQueue(queue), "clReleaseCommandQueue");
    need(clReleaseContext(context), "clReleaseContext");
    free(data);
    free(expected);
    return 0;
}
