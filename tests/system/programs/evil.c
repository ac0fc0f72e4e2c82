/* A tenant whose kernels are native code that does as it likes inside the worker: they make system calls
 * by themselves (which OpenCL C does not forbid a compiler to accept, and PoCL's does).
 *
 *     evil lie SEED SECONDS     floods every socket of the worker with what divvyd might believe
 *     evil wild                 writes over all memory that the worker can write to
 *     evil hoard SECONDS        never gives the device back, in one kernel
 *     evil breed COUNT          starts this many processes, which stay
 *     evil jam WRITES           writes to its log this often, and keeps it locked
 *     evil group SIGNAL         slows its process group down and sends it the signal
 *
 * Prints "ready" when its kernel is compiled, and "lied" when its first lie went out. Its own results are
 * not checked: exit code 0 when all calls went well, 3 when one failed. */
#include "check.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static const char *const source =
    "static long call(long n, long a, long b, long c, long d, long e, long f) {\n"
    "    long r;\n"
    "    __asm__ volatile(\"mov %5, %%r10\\n\\tmov %6, %%r8\\n\\tmov %7, %%r9\\n\\tsyscall\"\n"
    "        : \"=a\"(r) : \"0\"(n), \"D\"(a), \"S\"(b), \"d\"(c), \"m\"(d), \"m\"(e), \"m\"(f)\n"
    "        : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "    return r;\n"
    "}\n"
    "static ulong next(ulong *x) {\n"
    "    *x ^= *x << 13; *x ^= *x >> 7; *x ^= *x << 17;\n"
    "    return *x;\n"
    "}\n"
    /* numbers that are likely to matter, or any */
    "static ulong number(ulong *x) {\n"
    "    ulong r = next(x);\n"
    "    return r % 4 == 0 ? r >> 8 & 15 : r % 4 == 1 ? 1ul << (r >> 8 & 63)\n"
    "         : r % 4 == 2 ? -(r >> 8 & 15) : next(x);\n"
    "}\n"
    /* lease, memory and resynchronisation messages, and none of these */
    "kernel void lie(ulong seed, uint count, global ulong *sent) {\n"
    "    ulong x = seed * 2654435761ul + 88172645463325252ul, m[20];\n"
    "    for (uint i = 0; i < count; i++) {\n"
    "        for (int j = 0; j < 20; j++) m[j] = number(&x);\n"
    "        uint kind = next(&x) % 4, bytes = kind == 0 ? 80 : kind == 1 ? 32 : kind == 2 ? 72\n"
    "                                                    : next(&x) % 160;\n"
    "        ulong magic = kind == 0 ? 0x6573616c : kind == 1 ? 0x6f6d656d : 0x636e7973;\n"
    "        if (kind < 3) {\n"
    "            m[0] = magic | 1ul << 32 | (next(&x) % 24) << 48;\n"
    "            m[1] = (next(&x) % 3) | (next(&x) & 15) << 32;\n"
    "        }\n"
    "        for (long fd = 3; fd < 32; fd++)\n"
    "            *sent += call(44, fd, (long)m, bytes, 0x4040, 0, 0) > 0;\n"
    "    }\n"
    "}\n"
    /* reads /proc/self/maps and writes into each mapping that can be written to, the stack last */
    "kernel void wild(global char *text, uint bytes, global ulong *sent) {\n"
    "    char path[] = \"/proc/self/maps\";\n"
    "    long fd = call(2, (long)path, 0, 0, 0, 0, 0), used = 0, got;\n"
    "    while ((got = call(0, fd, (long)(text + used), bytes - 1 - used, 0, 0, 0)) > 0) used += got;\n"
    "    *sent = used;\n"
    "    for (int pass = 0; pass < 2; pass++)\n"
    "        for (long at = 0; at < used; at++) {\n"
    "            ulong from = 0, to = 0;\n"
    "            for (; at < used && text[at] != '-'; at++)\n"
    "                from = from * 16 + (text[at] <= '9' ? text[at] - '0' : text[at] - 'a' + 10);\n"
    "            for (at++; at < used && text[at] != ' '; at++)\n"
    "                to = to * 16 + (text[at] <= '9' ? text[at] - '0' : text[at] - 'a' + 10);\n"
    "            int writable = text[at + 2] == 'w', shared = text[at + 4] == 's';\n"
    "            for (; at < used && text[at] != '\\n'; at++)\n"
    "                ;\n"
    "            ulong here = (ulong)path, mine = (ulong)text;\n"
    "            if (!writable || shared == pass || (here >= from && here < to) ||\n"
    "                (mine >= from && mine < to))\n"
    "                continue;\n"
    "            for (ulong p = from; p < to && p < from + (64ul << 20); p += 64)\n"
    "                *(volatile ulong *)p = 0x6576696c6576696cul;\n"
    "        }\n"
    "}\n"
    "kernel void hoard(uint seconds, global ulong *sent) {\n"
    "    long now[2], end;\n"
    "    call(228, 1, (long)now, 0, 0, 0, 0);\n"
    "    end = now[0] + seconds;\n"
    "    while (now[0] < end) call(228, 1, (long)now, 0, 0, 0, 0);\n"
    "    *sent = 1;\n"
    "}\n"
    "kernel void breed(uint count, global ulong *sent) {\n"
    "    long day[2] = {86400, 0};\n"
    "    for (uint i = 0; i < count; i++) {\n"
    "        long pid = call(57, 0, 0, 0, 0, 0, 0);\n"
    "        while (pid == 0) call(35, (long)day, 0, 0, 0, 0, 0);\n"
    "        *sent += pid > 0;\n"
    "    }\n"
    "}\n"
    /* fills its log a little, and has sendfile wait for a socket without a sender, with the log locked */
    "kernel void jam(uint writes, global ulong *sent) {\n"
    "    int pair[2];\n"
    "    char text[512];\n"
    "    for (int i = 0; i < 512; i++) text[i] = i % 64 == 63 ? '\\n' : 'x';\n"
    "    call(53, 1, 1, 0, (long)pair, 0, 0);\n"
    "    for (uint i = 0; i < writes; i++) *sent += call(1, 2, (long)text, 512, 0, 0, 0) > 0;\n"
    "    call(40, 2, pair[0], 0, 4096, 0, 0);\n"
    "}\n"
    "kernel void group(uint number, global ulong *sent) {\n"
    "    *sent = call(141, 1, 0, 19, 0, 0, 0) == 0;\n"
    "    *sent += call(62, 0, number, 0, 0, 0, 0) == 0;\n"
    "}\n";

static void need(cl_int error, const char *call)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "opencl error %s in %s\n", dv_test_error_name(error), call);
    _exit(3);
}

struct evil {
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_mem sent;
};

static struct evil begin(void)
{
    struct evil e;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    const char *text = source;

    need(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    e.context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    need(error, "clCreateContext");
    e.queue = clCreateCommandQueue(e.context, device, 0, &error);
    need(error, "clCreateCommandQueue");
    e.program = clCreateProgramWithSource(e.context, 1, &text, NULL, &error);
    need(error, "clCreateProgramWithSource");
    need(clBuildProgram(e.program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_ulong zero = 0;
    e.sent = clCreateBuffer(e.context, CL_MEM_COPY_HOST_PTR, sizeof zero, &zero, &error);
    need(error, "clCreateBuffer");
    return e;
}

static void run(struct evil *e, cl_kernel kernel)
{
    size_t one = 1;

    need(clEnqueueNDRangeKernel(e->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    need(clFinish(e->queue), "clFinish");
}

static cl_ulong sent_so_far(struct evil *e)
{
    cl_ulong sent = 0;

    need(clEnqueueReadBuffer(e->queue, e->sent, CL_TRUE, 0, sizeof sent, &sent, 0, NULL, NULL), "clEnqueueReadBuffer");
    return sent;
}

/* One lie first: after many of them its own session may have come to grief before it can tell. */
static void lie(struct evil *e, cl_ulong seed, double seconds)
{
    cl_int error;
    cl_kernel kernel = clCreateKernel(e->program, "lie", &error);
    cl_uint count = 1;
    time_t end = time(NULL) + (time_t)seconds;

    need(error, "clCreateKernel");
    need(clSetKernelArg(kernel, 2, sizeof e->sent, &e->sent), "clSetKernelArg");
    while (time(NULL) < end) {
        seed++;
        need(clSetKernelArg(kernel, 0, sizeof seed, &seed), "clSetKernelArg");
        need(clSetKernelArg(kernel, 1, sizeof count, &count), "clSetKernelArg");
        run(e, kernel);
        if (count == 1 && sent_so_far(e) > 0) {
            puts("lied");
            fflush(stdout);
        }
        count = 200;
    }
}

static void wild(struct evil *e)
{
    cl_int error;
    cl_kernel kernel = clCreateKernel(e->program, "wild", &error);
    cl_uint bytes = 1 << 20;
    cl_mem text = clCreateBuffer(e->context, 0, bytes, NULL, &error);

    need(clSetKernelArg(kernel, 0, sizeof text, &text), "clSetKernelArg");
    need(clSetKernelArg(kernel, 1, sizeof bytes, &bytes), "clSetKernelArg");
    need(clSetKernelArg(kernel, 2, sizeof e->sent, &e->sent), "clSetKernelArg");
    run(e, kernel);
}

/* Seconds for which to hoard, how many to breed, or which signal to send. */
static void so_much(struct evil *e, const char *what, const char *number)
{
    cl_int error;
    cl_kernel kernel = clCreateKernel(e->program, what, &error);
    cl_uint much = (cl_uint)strtoul(number, NULL, 0);

    need(clSetKernelArg(kernel, 0, sizeof much, &much), "clSetKernelArg");
    need(clSetKernelArg(kernel, 1, sizeof e->sent, &e->sent), "clSetKernelArg");
    run(e, kernel);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    struct evil e = begin();
    puts("ready");
    fflush(stdout);
    if (strcmp(argv[1], "lie") == 0 && argc > 3)
        lie(&e, strtoull(argv[2], NULL, 0), strtod(argv[3], NULL));
    else if (strcmp(argv[1], "wild") == 0)
        wild(&e);
    else if ((strcmp(argv[1], "hoard") == 0 || strcmp(argv[1], "breed") == 0 || strcmp(argv[1], "group") == 0 ||
              strcmp(argv[1], "jam") == 0) &&
             argc > 2)
        so_much(&e, argv[1], argv[2]);
    else
        return 2;
    printf("sent %llu\n", (unsigned long long)sent_so_far(&e));
    fflush(stdout);
    return 0;
}
