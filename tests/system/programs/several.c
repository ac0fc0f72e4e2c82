/* A tenant on a machine with several devices.
 *
 *     several CONTEXT QUEUE [SECONDS]
 *
 * CONTEXT is the number of the device, as OpenCL lists them, that a context is made for, or "all";
 * QUEUE the number of the one on which it computes, within the context. Prints "devices N", then what
 * the context's function is told as "told TEXT", then "refused CALL ERROR" if a call fails, or "ready"
 * when it has computed; computes on for that many seconds. Exit code 0: all right; 3: refused. */
#include "check.h"

#include <unistd.h>

static void CL_CALLBACK tell(const char *text, const void *bytes, size_t count, void *user)
{
    (void)bytes;
    (void)count;
    (void)user;
    printf("told %s\n", text);
}

static void need(cl_int error, const char *call)
{
    if (error == CL_SUCCESS)
        return;
    printf("refused %s %s\n", call, dv_test_error_name(error));
    fflush(stdout);
    _exit(3);
}

int main(int argc, char **argv)
{
    static const char *const source = "kernel void add(global uint *data) { data[get_global_id(0)] += 7; }\n";
    enum { MOST = 128, WORDS = 1024 };
    static cl_uint words[WORDS];
    cl_platform_id platform;
    cl_device_id devices[MOST];
    cl_uint count = 0;
    cl_int error;

    if (argc < 3)
        return 2;
    need(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST, devices, &count), "clGetDeviceIDs");
    printf("devices %u\n", count);
    bool all = strcmp(argv[1], "all") == 0;
    cl_uint of_context = all ? 0 : (cl_uint)atoi(argv[1]), of_queue = (cl_uint)atoi(argv[2]);
    if (of_context >= count || of_context + of_queue >= count)
        return 2;
    cl_context context = clCreateContext(NULL, all ? count : 1, devices + of_context, tell, NULL, &error);
    need(error, "clCreateContext");
    cl_device_id device = devices[of_context + of_queue];
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    need(error, "clCreateCommandQueue");
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    need(error, "clCreateProgramWithSource");
    need(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "add", &error);
    need(error, "clCreateKernel");
    cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof words, words, &error);
    need(error, "clCreateBuffer");
    need(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
    double end = dv_test_now_s() + (argc > 3 ? strtod(argv[3], NULL) : 0);
    cl_uint rounds = 0;
    do {
        const size_t global = WORDS;
        need(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
        need(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL), "clEnqueueReadBuffer");
        if (words[0] != 7 * ++rounds || words[WORDS - 1] != 7 * rounds)
            return 1;
        if (rounds == 1) {
            printf("ready\n");
            fflush(stdout);
        }
        usleep(1000);
    } while (dv_test_now_s() < end);
    return 0;
}
