/* bench-share: a tenant that keeps an OpenCL device busy in a known way and writes down when each
 * of its kernels ran. From these files the Python side computes who had the device when.
 *
 *   bench-share calibrate        prints how long one round of the kernel's loop takes, as JSON
 *   bench-share tenant OPTIONS   gets ready, prints a line, reads the time to start at (nanoseconds
 *                                of CLOCK_MONOTONIC) from stdin, works, prints what it did
 *
 *   --rounds N      length of a kernel, in rounds of its loop
 *   --vary PERCENT  kernels are up to so much longer or shorter (default 0)
 *   --groups N      of so many work-groups of one item, which share the rounds (default 1)
 *   --depth N       how many kernels are kept in the queue (default 16)
 *   --from MS, --until MS   when it begins and ends, after the start
 *   --burst N       submits N kernels and waits for them, ...
 *   --pause US      ... then pauses so long
 *   --jitter PERCENT  the pause is up to so much longer or shorter (default 0)
 *   --steady MS     from this time after the start on it pauses no more and keeps the queue filled
 *   --rate R        kernels arrive by themselves, R a second on average, at random
 *   --seed N        of the random numbers and the values in the kernels
 *   --log FILE      struct entry for each kernel
 *
 * Without --burst and --rate the queue is never empty. Every kernel computes a value that is
 * checked at the end. It is an ordinary OpenCL application and knows nothing of divvy. */
#include <CL/cl.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/programs/bench.h"

#define NS_PER_MS 1000000u
#define NS_PER_S 1000000000u
#define MAX_KERNELS (1u << 20)
#define WARM_UPS 3
#define CALIBRATION_ROUNDS 400000u
#define CALIBRATION_KERNELS 40
#define MULTIPLIER 1664525u
#define INCREMENT 1013904223u

/* One step depends on the one before, so that no compiler and no vector unit shortens it. */
static const char *const KERNEL_SOURCE =
    "kernel void work(global uint *out, uint index, uint value, uint rounds) {\n"
    "    for (uint i = 0; i < rounds; i++) value = value * 1664525u + 1013904223u;\n"
    "    out[index + get_global_id(0)] = value;\n"
    "}\n";

/* One kernel, times in nanoseconds of CLOCK_MONOTONIC: asked for (its arrival; otherwise when it
 * was submitted), on the device from `begun` to `ended`, completion seen by the application. */
struct entry {
    uint64_t asked, begun, ended, seen;
};

struct options {
    uint32_t rounds, groups, vary, depth, burst, jitter, seed;
    uint64_t from_ns, until_ns, pause_ns;
    uint64_t steady_ns; /* 0: never */
    double rate;
    const char *log;
};

struct tenant {
    struct options options;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_kernel kernel;
    cl_mem out;
    bool clock_known; /* the device reads clock_id; otherwise clock_offset_ns is what is known */
    clockid_t clock_id;
    int64_t clock_offset_ns; /* from the device's clock to CLOCK_MONOTONIC */
    uint64_t random;
    /* Between the thread that submits and the one that collects. */
    uint32_t submitted;
    sem_t pending; /* events to collect, and one more at the end */
    sem_t room;    /* places in the queue */
    sem_t collected;
    _Atomic bool all_submitted;
    cl_event *events;
    struct entry *entries;
};

static void sleep_until(uint64_t when_ns)
{
    struct timespec t = {.tv_sec = (time_t)(when_ns / NS_PER_S), .tv_nsec = (long)(when_ns % NS_PER_S)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0 && errno == EINTR)
        continue;
}

/* splitmix64: good enough, and the same everywhere. */
static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Above 0, up to 1. */
static double random_part(struct tenant *t)
{
    t->random = scramble(t->random);
    return (double)((t->random >> 11) + 1) / 9007199254740992.0;
}

/* ---- kernels ---- */

static uint32_t rounds_of(const struct tenant *t, uint32_t index)
{
    uint32_t span = (uint32_t)((uint64_t)t->options.rounds * t->options.vary / 100);

    if (span == 0)
        return t->options.rounds;
    return t->options.rounds - span + (uint32_t)(scramble(t->options.seed * 0x10001u + index) % (2ull * span + 1));
}

static uint32_t value_of(const struct tenant *t, uint32_t index)
{
    return (uint32_t)scramble(((uint64_t)t->options.seed << 32) + index);
}

/* What `rounds` steps make of a value, by repeated squaring of the step. */
static uint32_t expected(uint32_t value, uint32_t rounds)
{
    uint32_t factor = MULTIPLIER, addend = INCREMENT;

    for (; rounds; rounds >>= 1) {
        if (rounds & 1)
            value = value * factor + addend;
        addend = addend * factor + addend;
        factor *= factor;
    }
    return value;
}

static cl_event enqueue(struct tenant *t, uint32_t index, uint32_t rounds)
{
    const size_t groups = t->options.groups, one = 1;
    uint32_t value = value_of(t, index);
    cl_event event;

    rounds /= t->options.groups;
    index *= t->options.groups;
    check(clSetKernelArg(t->kernel, 1, sizeof index, &index), "clSetKernelArg");
    check(clSetKernelArg(t->kernel, 2, sizeof value, &value), "clSetKernelArg");
    check(clSetKernelArg(t->kernel, 3, sizeof rounds, &rounds), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(t->queue, t->kernel, 1, NULL, &groups, &one, 0, NULL, &event),
          "clEnqueueNDRangeKernel");
    check(clFlush(t->queue), "clFlush");
    return event;
}

static uint64_t device_time(cl_event event, cl_profiling_info what)
{
    cl_ulong ns;

    check(clGetEventProfilingInfo(event, what, sizeof ns, &ns, NULL), "clGetEventProfilingInfo");
    return ns;
}

static uint64_t time_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Waits, and returns how long the kernel took. */
static uint64_t take_event(struct tenant *t, cl_event event, struct entry *entry)
{
    check(clWaitForEvents(1, &event), "clWaitForEvents");
    entry->seen = now_ns();
    if (t->clock_known) /* read anew for each kernel, for the clocks drift apart */
        t->clock_offset_ns = (int64_t)(entry->seen - time_of(t->clock_id));
    entry->begun = device_time(event, CL_PROFILING_COMMAND_START) + (uint64_t)t->clock_offset_ns;
    entry->ended = device_time(event, CL_PROFILING_COMMAND_END) + (uint64_t)t->clock_offset_ns;
    check(clReleaseEvent(event), "clReleaseEvent");
    return entry->ended - entry->begun;
}

/* ---- getting ready ---- */

static void open_device(struct tenant *t)
{
    cl_platform_id platform;
    cl_int error;

    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &t->device, NULL), "clGetDeviceIDs");
    t->context = clCreateContext(NULL, 1, &t->device, NULL, NULL, &error);
    check(error, "clCreateContext");
    t->queue = clCreateCommandQueue(t->context, t->device, CL_QUEUE_PROFILING_ENABLE, &error);
    check(error, "clCreateCommandQueue");
    t->program = clCreateProgramWithSource(t->context, 1, (const char **)&KERNEL_SOURCE, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(t->program, 1, &t->device, "", NULL, NULL), "clBuildProgram");
    t->kernel = clCreateKernel(t->program, "work", &error);
    check(error, "clCreateKernel");
    t->out = clCreateBuffer(t->context, CL_MEM_READ_WRITE, MAX_KERNELS * sizeof(cl_uint), NULL, &error);
    check(error, "clCreateBuffer");
    check(clSetKernelArg(t->kernel, 0, sizeof t->out, &t->out), "clSetKernelArg");
}

/* Whether the device's times of a kernel are those of a clock of this machine: it was enqueued and
 * waited for between two readings. */
static bool reads_clock(struct tenant *t, clockid_t clock)
{
    struct entry entry;

    for (int i = 0; i < WARM_UPS; i++) {
        uint64_t before = time_of(clock);
        t->clock_offset_ns = 0;
        take_event(t, enqueue(t, 0, 1000), &entry);
        if (entry.begun < before || entry.ended > time_of(clock))
            return false;
    }
    return true;
}

/* The device's clock need not be ours. If it is no other clock of this machine either: a kernel that
 * was waited for ended before now, and hardly earlier, so a larger difference is one of the clocks. */
static void warm_up(struct tenant *t)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW};
    struct entry entry;

    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++)
        if (reads_clock(t, clocks[i])) {
            t->clock_id = clocks[i];
            t->clock_known = true;
            t->clock_offset_ns = (int64_t)(now_ns() - time_of(t->clock_id));
            return;
        }
    take_event(t, enqueue(t, 0, 1000), &entry);
    t->clock_offset_ns = (int64_t)(entry.seen - entry.ended);
}

/* ---- collecting, on a thread of its own ---- */

static void *collect(void *argument)
{
    struct tenant *t = argument;

    for (uint32_t i = 0;; i++) {
        wait_for(&t->pending);
        if (atomic_load(&t->all_submitted) && i == t->submitted)
            return NULL;
        take_event(t, t->events[i], &t->entries[i]);
        sem_post(&t->room);
        sem_post(&t->collected);
    }
}

/* ---- submitting ---- */

static void submit(struct tenant *t, uint64_t asked_ns)
{
    uint32_t index = t->submitted;

    if (index == MAX_KERNELS / t->options.groups)
        fail("more than %u kernels", MAX_KERNELS / t->options.groups);
    t->entries[index].asked = asked_ns ? asked_ns : now_ns();
    t->events[index] = enqueue(t, index, rounds_of(t, index));
    t->submitted++;
    sem_post(&t->pending);
}

static void submit_always(struct tenant *t, uint64_t end_ns)
{
    for (;;) {
        wait_for(&t->room);
        if (now_ns() >= end_ns)
            return;
        submit(t, 0);
    }
}

static void submit_bursts(struct tenant *t, uint64_t end_ns)
{
    while (now_ns() < end_ns) {
        for (uint32_t i = 0; i < t->options.burst; i++)
            submit(t, 0);
        for (uint32_t i = 0; i < t->options.burst; i++) {
            wait_for(&t->collected);
            wait_for(&t->room); /* bursts take no place in the queue, so they leave none */
        }
        if (t->options.pause_ns) {
            double part = 1 + (2 * random_part(t) - 1) * t->options.jitter / 100;
            sleep_until(now_ns() + (uint64_t)((double)t->options.pause_ns * part));
        }
    }
}

/* Arrivals do not wait for each other: who is served late still has its own time of arrival. */
static void submit_arrivals(struct tenant *t, uint64_t begin_ns, uint64_t end_ns)
{
    double next = (double)begin_ns;

    for (;;) {
        next += -log(random_part(t)) / t->options.rate * NS_PER_S;
        if (next >= (double)end_ns)
            return;
        sleep_until((uint64_t)next);
        submit(t, (uint64_t)next);
    }
}

static void work(struct tenant *t, uint64_t start_ns)
{
    uint64_t begin_ns = start_ns + t->options.from_ns, end_ns = start_ns + t->options.until_ns;
    pthread_t collector;

    if (pthread_create(&collector, NULL, collect, t))
        fail("no thread");
    sleep_until(begin_ns);
    if (t->options.rate > 0)
        submit_arrivals(t, begin_ns, end_ns);
    else if (t->options.burst)
        submit_bursts(t, t->options.steady_ns ? start_ns + t->options.steady_ns : end_ns);
    if (!(t->options.rate > 0))
        submit_always(t, end_ns); /* returns at once after bursts that went on to the end */
    atomic_store(&t->all_submitted, true);
    sem_post(&t->pending);
    pthread_join(collector, NULL);
}

/* ---- results ---- */

static uint32_t count_wrong(struct tenant *t)
{
    uint32_t groups = t->options.groups, count = t->submitted * groups, wrong = 0;
    cl_uint *values = calloc(count + 1, sizeof *values);

    if (!values)
        fail("out of memory");
    if (t->submitted)
        check(clEnqueueReadBuffer(t->queue, t->out, CL_TRUE, 0, count * sizeof *values, values, 0, NULL, NULL),
              "clEnqueueReadBuffer");
    for (uint32_t i = 0; i < t->submitted; i++) {
        uint32_t right = expected(value_of(t, i), rounds_of(t, i) / groups);
        for (uint32_t group = 0; group < groups; group++)
            wrong += values[i * groups + group] != right;
    }
    free(values);
    return wrong;
}

static void write_log(const struct tenant *t)
{
    FILE *file = fopen(t->options.log, "wb");

    if (!file || fwrite(t->entries, sizeof t->entries[0], t->submitted, file) != t->submitted || fclose(file))
        fail("%s: %s", t->options.log, strerror(errno));
}

static int run_tenant(struct tenant *t)
{
    uint64_t start_ns;

    t->events = calloc(MAX_KERNELS, sizeof t->events[0]);
    t->entries = calloc(MAX_KERNELS, sizeof t->entries[0]);
    if (!t->events || !t->entries || sem_init(&t->pending, 0, 0) || sem_init(&t->room, 0, t->options.depth) ||
        sem_init(&t->collected, 0, 0))
        fail("out of memory");
    t->random = t->options.seed;
    open_device(t);
    warm_up(t);
    printf("{\"ready\": true, \"clock_offset_ns\": %" PRId64 "}\n", t->clock_offset_ns);
    fflush(stdout);
    if (scanf("%" SCNu64, &start_ns) != 1)
        return 0; /* called off */
    work(t, start_ns);
    uint32_t wrong = count_wrong(t);
    if (t->options.log)
        write_log(t);
    printf("{\"kernels\": %u, \"wrong\": %u}\n", t->submitted, wrong);
    return wrong ? 1 : 0;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int calibrate(struct tenant *t)
{
    uint64_t took[CALIBRATION_KERNELS];
    struct entry entry;

    open_device(t);
    warm_up(t);
    for (int i = 0; i < CALIBRATION_KERNELS; i++)
        took[i] = take_event(t, enqueue(t, 0, CALIBRATION_ROUNDS), &entry);
    qsort(took, CALIBRATION_KERNELS, sizeof took[0], compare_u64);
    printf("{\"round_ns\": %.6f, \"fastest_round_ns\": %.6f}\n",
           (double)took[CALIBRATION_KERNELS / 2] / CALIBRATION_ROUNDS, (double)took[0] / CALIBRATION_ROUNDS);
    return 0;
}

/* ---- command line ---- */

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (end == text || *end)
        fail("not a number: %s", text);
    return value;
}

static void read_options(struct options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"rounds", required_argument, NULL, 'r'}, {"vary", required_argument, NULL, 'v'},
        {"groups", required_argument, NULL, 'g'}, {"depth", required_argument, NULL, 'd'},
        {"from", required_argument, NULL, 'f'},   {"until", required_argument, NULL, 'u'},
        {"burst", required_argument, NULL, 'b'},  {"pause", required_argument, NULL, 'p'},
        {"rate", required_argument, NULL, 'a'},   {"seed", required_argument, NULL, 's'},
        {"log", required_argument, NULL, 'l'},    {"jitter", required_argument, NULL, 'j'},
        {"steady", required_argument, NULL, 't'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (option) {
        case 'r':
            o->rounds = (uint32_t)number(optarg);
            break;
        case 'v':
            o->vary = (uint32_t)number(optarg);
            break;
        case 'g':
            o->groups = (uint32_t)number(optarg);
            break;
        case 'd':
            o->depth = (uint32_t)number(optarg);
            break;
        case 'f':
            o->from_ns = number(optarg) * NS_PER_MS;
            break;
        case 'u':
            o->until_ns = number(optarg) * NS_PER_MS;
            break;
        case 'b':
            o->burst = (uint32_t)number(optarg);
            break;
        case 'p':
            o->pause_ns = number(optarg) * 1000;
            break;
        case 'j':
            o->jitter = (uint32_t)number(optarg);
            break;
        case 't':
            o->steady_ns = number(optarg) * NS_PER_MS;
            break;
        case 'a':
            o->rate = strtod(optarg, NULL);
            break;
        case 's':
            o->seed = (uint32_t)number(optarg);
            break;
        case 'l':
            o->log = optarg;
            break;
        default:
            exit(2);
        }
    if (!o->rounds || !o->groups || o->groups > MAX_KERNELS || !o->depth || o->vary > 100 || o->jitter > 100 ||
        o->until_ns <= o->from_ns)
        fail("--rounds, --depth and --until after --from are needed; percentages are at most 100");
}

int main(int argc, char **argv)
{
    struct tenant t = {.options = {.groups = 1, .depth = 16, .seed = 1}};

    if (argc > 1 && strcmp(argv[1], "calibrate") == 0)
        return calibrate(&t);
    if (argc > 1 && strcmp(argv[1], "tenant") == 0) {
        read_options(&t.options, argc - 1, argv + 1);
        return run_tenant(&t);
    }
    fprintf(stderr, "usage: bench-share calibrate | tenant OPTIONS\n");
    return 2;
}
