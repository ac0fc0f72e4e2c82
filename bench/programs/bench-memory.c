/* bench-memory: an ordinary OpenCL application that works on more or less memory in a known way.
 *
 *   bench-memory calibrate BYTES           how long a pass over a buffer takes and how much the host's
 *                                          own work does in a millisecond, as JSON
 *   bench-memory phases OPTIONS            works in phases: on the device over all of its buffers,
 *                                          then on the host, and again
 *     --set BYTES --buffers N   its memory, in so many buffers
 *     --passes N                passes over one buffer in a device phase, one buffer after the other
 *     --host N                  units of work in a host phase
 *     --sleep MICROSECONDS      sleeps so long in a host phase: work on a core that no other has
 *     --rounds N                how often both
 *   bench-memory small COUNT BYTES         many small buffers; waits for a line, uses each of them
 *   bench-memory copy BYTES                memcpy of so much into fresh memory and into warm, as JSON
 *
 * `phases` and `small` get ready, print a line, and begin when they read one. What the kernels have
 * computed is checked in the end. It knows nothing of divvy. */
#include <CL/cl.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/programs/bench.h"

#define MULTIPLIER 1664525u
#define INCREMENT 1013904223u
#define CHECKED 4096u
#define LOOPS 8u
#define NS_PER_S 1000000000u

/* Every word goes through a few steps that depend on each other, so that a pass takes longer than
 * reading and writing the memory alone. */
static const char *const KERNEL_SOURCE =
    "kernel void pass(global uint *words) {\n"
    "    uint x = words[get_global_id(0)];\n"
    "    for (int i = 0; i < 8; i++) x = x * 1664525u + 1013904223u;\n"
    "    words[get_global_id(0)] = x;\n"
    "}\n"
    "kernel void start(global uint *words) { words[get_global_id(0)] = get_global_id(0); }\n";

static cl_context context;
static cl_command_queue queue;
static cl_kernel pass, start;

static void get_ready(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;

    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    check(error, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &error);
    check(error, "clCreateCommandQueue");
    cl_program program =
        clCreateProgramWithSource(context, 1, (const char **)&KERNEL_SOURCE, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    pass = clCreateKernel(program, "pass", &error);
    check(error, "clCreateKernel");
    start = clCreateKernel(program, "start", &error);
    check(error, "clCreateKernel");
}

static cl_mem new_buffer(size_t bytes)
{
    cl_int error;
    cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &error);

    check(error, "clCreateBuffer");
    return mem;
}

static void run(cl_kernel kernel, cl_mem mem, size_t bytes)
{
    size_t words = bytes / 4, local = 64;

    check(clSetKernelArg(kernel, 0, sizeof mem, &mem), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &words, &local, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
}

static void finish(void)
{
    check(clFinish(queue), "clFinish");
}

/* Work of the application's own. */
static uint32_t host_work(uint64_t units)
{
    volatile uint32_t x = 1;

    for (uint64_t i = 0; i < units * 1000; i++)
        x = x * MULTIPLIER + INCREMENT;
    return x;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

static void check_buffer(cl_mem mem, size_t bytes, uint64_t passes)
{
    uint32_t words[CHECKED];
    size_t count = bytes / 4 < CHECKED ? bytes / 4 : CHECKED;
    size_t from = (bytes / 4 - count) / 2;

    check(clEnqueueReadBuffer(queue, mem, CL_TRUE, from * 4, count * 4, words, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    for (size_t i = 0; i < count; i += 97) {
        uint32_t x = (uint32_t)(from + i);
        for (uint64_t step = 0; step < passes * LOOPS; step++)
            x = x * MULTIPLIER + INCREMENT;
        if (words[i] != x)
            fail("word %zu is %" PRIu32 ", not %" PRIu32, from + i, words[i], x);
    }
}

static void wait_for_line(void)
{
    char line[16];

    printf("{\"ready\": true}\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(0);
}

static int calibrate(size_t bytes)
{
    enum { TIMES = 20 };
    cl_mem mem = new_buffer(bytes);

    run(start, mem, bytes);
    run(pass, mem, bytes);
    finish();
    uint64_t began = now_ns();
    for (int i = 0; i < TIMES; i++)
        run(pass, mem, bytes);
    finish();
    uint64_t passes = now_ns() - began;
    began = now_ns();
    host_work(20000);
    uint64_t host = now_ns() - began;
    printf("{\"pass_ns\": %" PRIu64 ", \"unit_ns\": %" PRIu64 "}\n", passes / TIMES, host / 20000);
    return 0;
}

static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (*end || !*text)
        fail("'%s' is no number", text);
    return value;
}

static int work_in_phases(int argc, char **argv)
{
    static const struct option options[] = {{"set", required_argument, NULL, 's'},
                                            {"buffers", required_argument, NULL, 'b'},
                                            {"passes", required_argument, NULL, 'p'},
                                            {"host", required_argument, NULL, 'h'},
                                            {"sleep", required_argument, NULL, 'z'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    uint64_t set = 0, buffers = 1, passes = 1, host = 0, sleep_us = 0, rounds = 1;
    uint64_t device_ns = 0, host_ns = 0;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint64_t *into = option == 's'   ? &set
                         : option == 'b' ? &buffers
                         : option == 'p' ? &passes
                         : option == 'h' ? &host
                         : option == 'z' ? &sleep_us
                         : option == 'r' ? &rounds
                                         : NULL;
        if (!into)
            fail("unknown option");
        *into = number(optarg);
    }
    size_t bytes = set / buffers / 4096 * 4096;
    cl_mem *list = calloc(buffers, sizeof *list);
    uint64_t *done = calloc(buffers, sizeof *done);
    if (!list || !done || bytes == 0)
        fail("no memory, or nothing to work on");
    for (uint64_t i = 0; i < buffers; i++)
        list[i] = new_buffer(bytes);
    wait_for_line();
    uint64_t began = now_ns(), at = 0;
    for (uint64_t i = 0; i < buffers; i++)
        run(start, list[i], bytes);
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t phase = now_ns();
        for (uint64_t i = 0; i < passes; i++, at = (at + 1) % buffers) {
            run(pass, list[at], bytes);
            done[at]++;
        }
        finish();
        device_ns += now_ns() - phase;
        phase = now_ns();
        host_work(host);
        sleep_ns(sleep_us * 1000);
        host_ns += now_ns() - phase;
    }
    uint64_t wall = now_ns() - began;
    for (uint64_t i = 0; i < buffers; i++)
        check_buffer(list[i], bytes, done[i]);
    printf("{\"wall_ns\": %" PRIu64 ", \"device_ns\": %" PRIu64 ", \"host_ns\": %" PRIu64
           ", \"ended_ns\": %" PRIu64 "}\n",
           wall, device_ns, host_ns, began + wall);
    return 0;
}

static int use_many(uint64_t count, size_t bytes)
{
    cl_mem *list = calloc(count, sizeof *list);
    char line[16];

    if (!list)
        fail("no memory");
    uint64_t began = now_ns();
    for (uint64_t i = 0; i < count; i++)
        list[i] = new_buffer(bytes);
    uint64_t made = now_ns() - began;
    uint64_t times = 0;
    do { /* a line each: all of them are used once more */
        if (times == 0)
            wait_for_line();
        began = now_ns();
        for (uint64_t i = 0; i < count; i++)
            run(times == 0 ? start : pass, list[i], bytes);
        finish();
        printf("{\"made_ns\": %" PRIu64 ", \"used_ns\": %" PRIu64 "}\n", made, now_ns() - began);
        fflush(stdout);
        times++;
    } while (fgets(line, sizeof line, stdin));
    for (uint64_t i = 0; i < count; i += 101)
        check_buffer(list[i], bytes, times - 1);
    return 0;
}

static uint8_t *fresh(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        fail("no memory");
    return memory;
}

static int copy(size_t bytes)
{
    uint8_t *from = fresh(bytes), *into = fresh(bytes);

    memset(from, 1, bytes);
    uint64_t began = now_ns();
    memcpy(into, from, bytes);
    uint64_t cold = now_ns() - began;
    began = now_ns();
    memcpy(into, from, bytes);
    uint64_t warm = now_ns() - began;
    printf("{\"fresh_ns\": %" PRIu64 ", \"warm_ns\": %" PRIu64 ", \"last\": %u}\n", cold, warm,
           into[bytes - 1]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "copy") == 0)
        return copy(number(argv[2]));
    if (argc < 2)
        fail("what to do? See the head of bench-memory.c");
    get_ready();
    if (argc == 3 && strcmp(argv[1], "calibrate") == 0)
        return calibrate(number(argv[2]));
    if (argc == 4 && strcmp(argv[1], "small") == 0)
        return use_many(number(argv[2]), number(argv[3]));
    if (strcmp(argv[1], "phases") == 0)
        return work_in_phases(argc - 1, argv + 1);
    fail("what to do? See the head of bench-memory.c");
}
