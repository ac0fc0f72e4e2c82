/* bench-memory: an ordinary OpenCL application that works on more or less memory in a known way.
 *
 *   bench-memory calibrate BYTES           how long a pass over a buffer takes and how much the
 * host's own work does in a millisecond, as JSON bench-memory phases OPTIONS            works in
 * phases: on the device over all of its buffers, then on the host, and again
 *     --set BYTES --buffers N   its memory, in so many buffers
 *     --passes N                passes over one buffer in a device phase, one buffer after the
 * other
 *     --host N                  units of work in a host phase
 *     --sleep MICROSECONDS      sleeps so long in a host phase: work on a core that no other has
 *     --rounds N                how often both; 0: until it reads another line
 *     --warm N                  so many rounds before it is ready, which do not count
 *   bench-memory serve OPTIONS             a service: requests arrive by themselves, at random
 * times
 *     --set BYTES --buffers N   its memory; a request changes a word of every cache line
 *     --every MICROSECONDS      between two arrivals, on average; half as long to half as long
 * again
 *     --requests N              how many
 *   bench-memory small COUNT BYTES         many small buffers; waits for a line, uses each of them
 *   bench-memory copy BYTES                memcpy of so much into fresh memory and into warm, as
 * JSON
 *
 * `phases`, `serve` and `small` get ready, print a line, and begin when they read one. What the
 * kernels have computed is checked in the end. It knows nothing of divvy. */
#include <CL/cl.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bench/programs/bench.h"

#define MULTIPLIER 1664525u
#define INCREMENT 1013904223u
#define CHECKED 4096u
#define LOOPS 32u
#define TOUCH_LOOPS 8u
#define TOUCHED_EVERY 16u /* words: one in a cache line */
#define NS_PER_S 1000000000u

/* Every word goes through steps that depend on each other, so that a pass takes much longer than
 * reading and writing the memory alone: what other machines do to the memory hardly changes it. */
static const char *const KERNEL_SOURCE =
    "kernel void pass(global uint *words) {\n"
    "    uint x = words[get_global_id(0)];\n"
    "    for (int i = 0; i < 32; i++) x = x * 1664525u + 1013904223u;\n"
    "    words[get_global_id(0)] = x;\n"
    "}\n"
    "kernel void touch(global uint *words) {\n"
    "    uint x = words[get_global_id(0) * 16];\n"
    "    for (int i = 0; i < 8; i++) x = x * 1664525u + 1013904223u;\n"
    "    words[get_global_id(0) * 16] = x;\n"
    "}\n"
    "kernel void start(global uint *words) { words[get_global_id(0)] = get_global_id(0); }\n";

static cl_context context;
static cl_command_queue queue;
static cl_kernel pass, start, touch;

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
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&KERNEL_SOURCE, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    pass = clCreateKernel(program, "pass", &error);
    check(error, "clCreateKernel");
    start = clCreateKernel(program, "start", &error);
    check(error, "clCreateKernel");
    touch = clCreateKernel(program, "touch", &error);
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
    size_t words = bytes / 4 / (kernel == touch ? TOUCHED_EVERY : 1), local = 64;

    check(clSetKernelArg(kernel, 0, sizeof mem, &mem), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &words, &local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
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

/* Every so many words have had so many passes, the others none. */
static void check_buffer(cl_mem mem, size_t bytes, uint64_t passes, uint32_t every)
{
    uint32_t words[CHECKED];
    size_t count = bytes / 4 < CHECKED ? bytes / 4 : CHECKED;
    size_t from = (bytes / 4 - count) / 2;

    check(clEnqueueReadBuffer(queue, mem, CL_TRUE, from * 4, count * 4, words, 0, NULL, NULL), "clEnqueueReadBuffer");
    for (size_t i = 0; i < count; i += 97) {
        uint32_t x = (uint32_t)(from + i);
        uint64_t steps = (from + i) % every ? 0 : passes * (every == 1 ? LOOPS : TOUCH_LOOPS);
        for (uint64_t step = 0; step < steps; step++)
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

/* Another line, or its end. */
static bool input_waits(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&input, 1, 0) > 0;
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

struct options {
    uint64_t set, buffers, passes, host, sleep_us, rounds, warm, every_us, requests;
};

static struct options read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"set", required_argument, NULL, 's'},      {"buffers", required_argument, NULL, 'b'},
        {"passes", required_argument, NULL, 'p'},   {"host", required_argument, NULL, 'h'},
        {"sleep", required_argument, NULL, 'z'},    {"rounds", required_argument, NULL, 'r'},
        {"warm", required_argument, NULL, 'w'},     {"every", required_argument, NULL, 'e'},
        {"requests", required_argument, NULL, 'n'}, {NULL, 0, NULL, 0}};
    struct options o = {.buffers = 1, .passes = 1, .rounds = 1, .requests = 1};
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        uint64_t *into = option == 's'   ? &o.set
                         : option == 'b' ? &o.buffers
                         : option == 'p' ? &o.passes
                         : option == 'h' ? &o.host
                         : option == 'z' ? &o.sleep_us
                         : option == 'r' ? &o.rounds
                         : option == 'w' ? &o.warm
                         : option == 'e' ? &o.every_us
                         : option == 'n' ? &o.requests
                                         : NULL;
        if (!into)
            fail("unknown option");
        *into = number(optarg);
    }
    return o;
}

/* The memory of a program, and how many passes each buffer has had. */
struct working_set {
    uint64_t buffers;
    size_t bytes; /* of each */
    cl_mem *list;
    uint64_t *done;
};

static struct working_set make_set(const struct options *o)
{
    struct working_set w = {.buffers = o->buffers,
                            .bytes = o->buffers ? o->set / o->buffers / 4096 * 4096 : 0,
                            .list = calloc(o->buffers, sizeof *w.list),
                            .done = calloc(o->buffers, sizeof *w.done)};

    if (!w.list || !w.done || w.bytes == 0)
        fail("no memory, or nothing to work on");
    for (uint64_t i = 0; i < w.buffers; i++)
        w.list[i] = new_buffer(w.bytes);
    return w;
}

static void start_all(struct working_set *w)
{
    for (uint64_t i = 0; i < w->buffers; i++)
        run(start, w->list[i], w->bytes);
}

static void pass_over(struct working_set *w, cl_kernel kernel, uint64_t index)
{
    run(kernel, w->list[index], w->bytes);
    w->done[index]++;
}

static void check_set(const struct working_set *w, uint32_t every)
{
    for (uint64_t i = 0; i < w->buffers; i++)
        check_buffer(w->list[i], w->bytes, w->done[i], every);
}

struct phases {
    uint64_t at; /* the buffer that is next */
    uint64_t device_ns, host_ns;
};

static void run_round(struct phases *p, struct working_set *w, const struct options *o)
{
    uint64_t began = now_ns();

    for (uint64_t i = 0; i < o->passes; i++, p->at = (p->at + 1) % w->buffers)
        pass_over(w, pass, p->at);
    finish();
    uint64_t ended = now_ns();
    p->device_ns += ended - began;
    host_work(o->host);
    sleep_ns(o->sleep_us * 1000);
    p->host_ns += now_ns() - ended;
}

static int work_in_phases(int argc, char **argv)
{
    struct options o = read_options(argc, argv);
    struct working_set w = make_set(&o);
    struct phases p = {0};
    bool started = o.warm > 0;

    if (started)
        start_all(&w);
    for (uint64_t i = 0; i < o.warm; i++)
        run_round(&p, &w, &o);
    p.device_ns = p.host_ns = 0;
    wait_for_line();
    uint64_t began = now_ns(), round = 0;
    if (!started)
        start_all(&w);
    for (; o.rounds ? round < o.rounds : !input_waits(); round++)
        run_round(&p, &w, &o);
    uint64_t wall = now_ns() - began;
    check_set(&w, 1);
    printf("{\"wall_ns\": %" PRIu64 ", \"device_ns\": %" PRIu64 ", \"host_ns\": %" PRIu64 ", \"ended_ns\": %" PRIu64
           ", \"rounds\": %" PRIu64 "}\n",
           wall, p.device_ns, p.host_ns, began + wall, round);
    return 0;
}

/* A request that arrives while another is served waits, and the wait counts. Prints how long each
 * took from its arrival, in the order of arrival. */
static int serve(int argc, char **argv)
{
    struct options o = read_options(argc, argv);
    struct working_set w = make_set(&o);
    uint64_t *took = calloc(o.requests, sizeof *took);
    uint32_t random = 1;

    if (!took)
        fail("no memory");
    start_all(&w);
    finish();
    wait_for_line();
    uint64_t arrival = now_ns();
    for (uint64_t i = 0; i < o.requests; i++) {
        random = random * MULTIPLIER + INCREMENT;
        arrival += o.every_us * 500 + o.every_us * 1000 * (random >> 16) / 65536;
        uint64_t now = now_ns();
        if (arrival > now)
            sleep_ns(arrival - now);
        for (uint64_t b = 0; b < w.buffers; b++)
            pass_over(&w, touch, b);
        finish();
        took[i] = now_ns() - arrival;
    }
    check_set(&w, TOUCHED_EVERY);
    printf("{\"took_ns\": [");
    for (uint64_t i = 0; i < o.requests; i++)
        printf("%s%" PRIu64, i ? ", " : "", took[i]);
    printf("]}\n");
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
        check_buffer(list[i], bytes, times - 1, 1);
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
    printf("{\"fresh_ns\": %" PRIu64 ", \"warm_ns\": %" PRIu64 ", \"last\": %u}\n", cold, warm, into[bytes - 1]);
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
    if (strcmp(argv[1], "serve") == 0)
        return serve(argc - 1, argv + 1);
    fail("what to do? See the head of bench-memory.c");
}
