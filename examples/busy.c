/* busy SECONDS [MILLISECONDS [MEBIBYTES [PAUSE]]]: an ordinary OpenCL program, for docs/tutorial.md. It keeps the first
 * device busy for that long, with kernels of about this length (default 5 ms) that use a buffer of this size (default
 * 1 MiB), and checks the buffer in the end. With PAUSE, it pauses for so many milliseconds after each kernel.
 *
 *     cc -o busy busy.c -lOpenCL */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ITEMS 64
#define DEPTH 4 /* kernels in the queue */
#define TRIAL_ROUNDS 100000

static const char *source = "kernel void busy(global uint *counts, ulong rounds) {\n"
                            "    uint x = get_global_id(0);\n"
                            "    for (ulong i = 0; i < rounds; i++)\n"
                            "        x = x * 1664525u + 1013904223u;\n"
                            "    counts[get_global_id(0)] += x == 1 ? 2 : 1;\n"
                            "}\n";

static cl_command_queue queue;
static cl_kernel kernel;

static void require(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "busy: %s failed with error %d\n", what, error);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* the context's callback runs on a thread of its own */
    exit(1);
}

static void CL_CALLBACK on_context_error(const char *text, const void *data, size_t bytes, void *user)
{
    (void)data, (void)bytes, (void)user;
    fprintf(stderr, "busy: the context reports: %s\n", text);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static cl_mem set_up(size_t bytes)
{
    static const cl_uint zero;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;

    require(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    require(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, on_context_error, NULL, &error);
    require(error, "clCreateContext");
    queue = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &error);
    require(error, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    require(error, "clCreateProgramWithSource");
    require(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    kernel = clCreateKernel(program, "busy", &error);
    require(error, "clCreateKernel");
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    require(error, "clCreateBuffer");
    require(clEnqueueFillBuffer(queue, buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL), "clEnqueueFillBuffer");
    require(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
    return buffer;
}

static void launch(cl_ulong rounds, cl_event *event)
{
    size_t items = ITEMS;

    require(clSetKernelArg(kernel, 1, sizeof rounds, &rounds), "clSetKernelArg");
    require(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, event), "clEnqueueNDRangeKernel");
}

/* How many rounds take a millisecond. The first launch compiles, and does not count. */
static double measure(void)
{
    cl_ulong begin, end;
    cl_event event;

    launch(1, NULL);
    launch(TRIAL_ROUNDS, &event);
    require(clWaitForEvents(1, &event), "clWaitForEvents");
    require(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof begin, &begin, NULL), "profiling");
    require(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL), "profiling");
    clReleaseEvent(event);
    return TRIAL_ROUNDS / (1e-6 * (double)(end - begin));
}

static void check(cl_mem buffer, size_t bytes, cl_uint count)
{
    cl_uint *counts = malloc(bytes);

    if (!counts)
        exit(1);
    require(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, counts, 0, NULL, NULL), "clEnqueueReadBuffer");
    for (size_t i = 0; i < bytes / sizeof *counts; i++)
        if (i < ITEMS ? counts[i] < count : counts[i] != 0) {
            fprintf(stderr, "busy: the buffer is wrong at %zu\n", i);
            exit(1);
        }
    free(counts);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 0, ms = argc > 2 ? strtod(argv[2], NULL) : 5;
    double pause_ms = argc > 4 ? strtod(argv[4], NULL) : 0;
    size_t bytes = (argc > 3 ? strtoul(argv[3], NULL, 10) : 1) << 20;
    cl_event events[DEPTH] = {NULL};
    cl_uint count = 0;

    if (seconds <= 0 || ms <= 0 || bytes == 0) {
        fprintf(stderr, "usage: busy SECONDS [MILLISECONDS [MEBIBYTES [PAUSE]]]\n");
        return 2;
    }
    cl_mem buffer = set_up(bytes);
    cl_ulong rounds = (cl_ulong)(ms * measure()) + 1;
    for (double end = now() + seconds; now() < end; count++) {
        cl_event *event = &events[count % DEPTH];
        if (*event) {
            require(clWaitForEvents(1, event), "clWaitForEvents");
            clReleaseEvent(*event);
        }
        launch(rounds, event);
        if (pause_ms > 0) {
            require(clFinish(queue), "clFinish");
            nanosleep(&(struct timespec){.tv_nsec = (long)(pause_ms * 1e6)}, NULL);
        }
    }
    require(clFinish(queue), "clFinish");
    check(buffer, bytes, count);
    printf("%u kernels, and the buffer of %zu MiB is as it should be\n", count, bytes >> 20);
    return 0;
}
