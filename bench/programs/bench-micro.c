/* bench-micro: takes one small OpenCL measurement at a time and prints the raw numbers as a JSON
 * line. The Python side keeps several instances alive (on the bare vendor, through divvy) and asks
 * them in turn, so that all of them see the same moment of a noisy machine.
 *
 *   bench-micro serve            read measurements from stdin, one a line, until end of file
 *   bench-micro futex [CORE]     the same, but only the futex round trip between two processes, the
 *                                second one pinned to CORE if given
 *   bench-micro startup          time from the first platform query to a usable queue, then exit
 *   bench-micro idle queue|kernel  get ready (a queue; or one finished kernel too), then wait for
 *                                end of file on stdin
 *
 * It is an ordinary OpenCL application and knows nothing of divvy. */
#include <CL/cl.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench/programs/bench.h"

#define MAX_SAMPLES 4096
#define MAX_SIZES 8
#define MAX_POOL 6
#define POOL_MAX_BYTES (16 << 20)
#define BUSY_BYTES (64u << 20)
#define BUSY_MAX_WRITES 512
#define BUSY_INNER 3

static const char *const KERNEL_SOURCE =
    "kernel void empty(void) {}\n"
    "kernel void trivial(global uint *out) { out[get_global_id(0)] = get_global_id(0); }\n"
    "kernel void spin(global uint *out, uint rounds) {\n"
    "    uint x = get_global_id(0) + 1;\n"
    "    for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u;\n"
    "    out[get_global_id(0)] = x;\n"
    "}\n";

enum { TRIVIAL_ITEMS = 65536, TRIVIAL_LOCAL = 256, SPIN_ITEMS = 1024, SPIN_LOCAL = 1 };

struct sized_buffer {
    size_t bytes;
    cl_mem mem;
    unsigned char *host;
};

/* Where in the processor's caches a buffer comes to lie is chance and stays with it, and makes up
 * to a fifth at sizes that just fit: so there are several of a size, used in turn. */
struct pool {
    size_t bytes;
    int count, next;
    struct sized_buffer buffers[MAX_POOL];
};

struct bench {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_kernel empty, trivial, spin;
    cl_mem out;
    cl_mem busy_mem;
    unsigned char *busy_host, *busy_copy;
    struct pool pools[MAX_SIZES];
    int pool_count;
};

static void sleep_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    nanosleep(&t, NULL);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *samples, long count)
{
    qsort(samples, (size_t)count, sizeof *samples, compare_u64);
    return samples[count / 2];
}

static long clamp_count(long count)
{
    return count < 1 ? 1 : count > MAX_SAMPLES ? MAX_SAMPLES : count;
}

/* ---- getting ready ---- */

static void open_queue(struct bench *b)
{
    cl_int error;

    check(clGetPlatformIDs(1, &b->platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(b->platform, CL_DEVICE_TYPE_ALL, 1, &b->device, NULL), "clGetDeviceIDs");
    b->context = clCreateContext(NULL, 1, &b->device, NULL, NULL, &error);
    check(error, "clCreateContext");
    b->queue = clCreateCommandQueue(b->context, b->device, 0, &error);
    check(error, "clCreateCommandQueue");
}

static void build_kernels(struct bench *b)
{
    const char *source = KERNEL_SOURCE;
    cl_int error;

    b->program = clCreateProgramWithSource(b->context, 1, &source, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(b->program, 1, &b->device, "", NULL, NULL), "clBuildProgram");
    b->empty = clCreateKernel(b->program, "empty", &error);
    check(error, "clCreateKernel empty");
    b->trivial = clCreateKernel(b->program, "trivial", &error);
    check(error, "clCreateKernel trivial");
    b->spin = clCreateKernel(b->program, "spin", &error);
    check(error, "clCreateKernel spin");
    b->out = clCreateBuffer(b->context, CL_MEM_READ_WRITE, TRIVIAL_ITEMS * sizeof(cl_uint), NULL, &error);
    check(error, "clCreateBuffer");
    check(clSetKernelArg(b->trivial, 0, sizeof b->out, &b->out), "clSetKernelArg");
    check(clSetKernelArg(b->spin, 0, sizeof b->out, &b->out), "clSetKernelArg");
}

static void enqueue(struct bench *b, cl_kernel kernel, size_t items, size_t local)
{
    check(clEnqueueNDRangeKernel(b->queue, kernel, 1, NULL, &items, &local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
}

static void enqueue_spin(struct bench *b, cl_uint rounds)
{
    check(clSetKernelArg(b->spin, 1, sizeof rounds, &rounds), "clSetKernelArg");
    enqueue(b, b->spin, SPIN_ITEMS, SPIN_LOCAL);
}

static void finish(struct bench *b)
{
    check(clFinish(b->queue), "clFinish");
}

/* The vendor compiles inside the first launch of each local size; no measurement shall see that.
 * The result is checked: a device that computes nothing would be very fast. */
static void launch_all_once(struct bench *b)
{
    cl_uint last = 0;
    const cl_uint expected = TRIVIAL_ITEMS - 1;

    enqueue(b, b->empty, 1, 1);
    enqueue_spin(b, 1);
    enqueue(b, b->trivial, TRIVIAL_ITEMS, TRIVIAL_LOCAL);
    check(clEnqueueReadBuffer(b->queue, b->out, CL_TRUE, expected * sizeof last, sizeof last, &last, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    if (last != expected)
        fail("kernel wrote %u where %u was expected", last, expected);
}

static void *host_memory(size_t bytes, unsigned seed)
{
    uint32_t *host = malloc(bytes);

    if (!host)
        fail("no memory for %zu bytes", bytes);
    for (size_t i = 0; i < bytes / sizeof *host; i++)
        host[i] = (uint32_t)i * 2654435761u + seed;
    return host;
}

/* Writes and reads back once: pages are touched, and a transfer that loses data is found out. */
static void prove_transfers(struct bench *b, struct sized_buffer *s)
{
    unsigned char *copy = malloc(s->bytes);

    if (!copy)
        fail("no memory for %zu bytes", s->bytes);
    check(clEnqueueWriteBuffer(b->queue, s->mem, CL_TRUE, 0, s->bytes, s->host, 0, NULL, NULL), "clEnqueueWriteBuffer");
    check(clEnqueueReadBuffer(b->queue, s->mem, CL_TRUE, 0, s->bytes, copy, 0, NULL, NULL), "clEnqueueReadBuffer");
    if (memcmp(copy, s->host, s->bytes) != 0)
        fail("buffer of %zu bytes reads back other than written", s->bytes);
    free(copy);
}

static void fill_pool(struct bench *b, struct pool *pool, size_t bytes)
{
    pool->bytes = bytes;
    pool->count = bytes <= POOL_MAX_BYTES ? MAX_POOL : 1;
    for (int i = 0; i < pool->count; i++) {
        struct sized_buffer *s = &pool->buffers[i];
        cl_int error;

        s->bytes = bytes;
        s->mem = clCreateBuffer(b->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
        check(error, "clCreateBuffer");
        s->host = host_memory(bytes, 7);
        prove_transfers(b, s);
    }
}

/* The next buffer of that size. */
static struct sized_buffer *buffer_of(struct bench *b, long bytes)
{
    struct pool *pool = b->pools;

    while (pool < b->pools + b->pool_count && pool->bytes != (size_t)bytes)
        pool++;
    if (pool == b->pools + b->pool_count) {
        if (bytes < 4 || bytes % 4 != 0 || b->pool_count == MAX_SIZES)
            fail("cannot make buffers of %ld bytes", bytes);
        b->pool_count++;
        fill_pool(b, pool, (size_t)bytes);
    }
    pool->next = (pool->next + 1) % pool->count;
    return &pool->buffers[pool->next];
}

/* ---- measurements; each is one repetition ---- */

static void measure_many(struct bench *b, long count, cl_kernel kernel, size_t items, size_t local)
{
    uint64_t start, enqueued, done;

    start = now_ns();
    for (long i = 0; i < count; i++)
        enqueue(b, kernel, items, local);
    enqueued = now_ns() - start;
    finish(b);
    done = now_ns() - start;
    printf("{\"enqueue_ns\": %.1f, \"per_second\": %.1f}\n", (double)enqueued / (double)count,
           (double)count * 1e9 / (double)done);
}

/* burst COUNT: empty kernels, then finish. */
static void measure_burst(struct bench *b, long count, long unused)
{
    (void)unused;
    measure_many(b, count, b->empty, 1, 1);
}

/* wide COUNT: kernels of 65,536 items, then finish. */
static void measure_wide(struct bench *b, long count, long unused)
{
    (void)unused;
    measure_many(b, count, b->trivial, TRIVIAL_ITEMS, TRIVIAL_LOCAL);
}

/* single COUNT: one enqueue on a queue that has been idle for a while. */
static void measure_single(struct bench *b, long count, long unused)
{
    uint64_t samples[MAX_SAMPLES];

    (void)unused;
    count = clamp_count(count);
    for (long i = 0; i < count; i++) {
        sleep_us(1000);
        uint64_t start = now_ns();
        enqueue(b, b->empty, 1, 1);
        samples[i] = now_ns() - start;
        finish(b);
    }
    printf("{\"ns\": %" PRIu64 "}\n", median(samples, count));
}

/* latency COUNT: enqueue and finish, over and over. */
static void measure_latency(struct bench *b, long count, long unused)
{
    uint64_t samples[MAX_SAMPLES];

    (void)unused;
    count = clamp_count(count);
    for (long i = 0; i < count; i++) {
        uint64_t start = now_ns();
        enqueue(b, b->empty, 1, 1);
        finish(b);
        samples[i] = now_ns() - start;
    }
    printf("{\"ns\": %" PRIu64 "}\n", median(samples, count));
}

/* write BYTES COUNT, read BYTES COUNT: blocking transfers on an idle queue. Between them, untimed,
 * the application makes what it sends and looks at what it received, as programs do: so the bytes
 * begin or end in the caches of the application's core, on every side of a comparison. */
static void make_bytes(struct sized_buffer *s, long i)
{
    memset(s->host, (int)i, s->bytes);
}

static void look_at_bytes(const struct sized_buffer *s)
{
    static volatile uint64_t seen;
    uint64_t sum = 0;

    for (size_t at = 0; at + sizeof sum <= s->bytes; at += 64) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)s->host + at, sizeof word);
        sum += word;
    }
    seen = sum;
    (void)seen;
}

static void measure_write(struct bench *b, long bytes, long count)
{
    struct sized_buffer *s = buffer_of(b, bytes);
    uint64_t samples[MAX_SAMPLES];

    count = clamp_count(count);
    for (long i = 0; i < count; i++) {
        make_bytes(s, i);
        uint64_t start = now_ns();
        check(clEnqueueWriteBuffer(b->queue, s->mem, CL_TRUE, 0, s->bytes, s->host, 0, NULL, NULL),
              "clEnqueueWriteBuffer");
        samples[i] = now_ns() - start;
    }
    printf("{\"ns\": %" PRIu64 "}\n", median(samples, count));
}

static void measure_read(struct bench *b, long bytes, long count)
{
    struct sized_buffer *s = buffer_of(b, bytes);
    uint64_t samples[MAX_SAMPLES];

    count = clamp_count(count);
    for (long i = 0; i < count; i++) {
        uint64_t start = now_ns();
        check(clEnqueueReadBuffer(b->queue, s->mem, CL_TRUE, 0, s->bytes, s->host, 0, NULL, NULL),
              "clEnqueueReadBuffer");
        samples[i] = now_ns() - start;
        look_at_bytes(s);
    }
    printf("{\"ns\": %" PRIu64 "}\n", median(samples, count));
}

/* map BYTES COUNT: map for reading and writing, unmap, finish. */
static void measure_map(struct bench *b, long bytes, long count)
{
    struct sized_buffer *s = buffer_of(b, bytes);
    uint64_t samples[MAX_SAMPLES];

    count = clamp_count(count);
    for (long i = 0; i < count; i++) {
        cl_int error;
        uint64_t start = now_ns();
        void *mapped = clEnqueueMapBuffer(b->queue, s->mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, s->bytes, 0, NULL,
                                          NULL, &error);
        check(error, "clEnqueueMapBuffer");
        check(clEnqueueUnmapMemObject(b->queue, s->mem, mapped, 0, NULL, NULL), "clEnqueueUnmapMemObject");
        finish(b);
        samples[i] = now_ns() - start;
    }
    printf("{\"ns\": %" PRIu64 "}\n", median(samples, count));
}

/* spin ROUNDS: how long the kernel takes that keeps the queue busy. */
static void measure_spin(struct bench *b, long rounds, long unused)
{
    uint64_t start = now_ns();

    (void)unused;
    enqueue_spin(b, (cl_uint)rounds);
    finish(b);
    printf("{\"ns\": %" PRIu64 "}\n", now_ns() - start);
}

static void check_busy_writes(struct bench *b, size_t bytes)
{
    check(clEnqueueReadBuffer(b->queue, b->busy_mem, CL_TRUE, 0, bytes, b->busy_copy, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    if (memcmp(b->busy_copy, b->busy_host, bytes) != 0)
        fail("non-blocking writes of %zu bytes in all did not arrive", bytes);
}

static void prepare_busy(struct bench *b)
{
    cl_int error;

    if (b->busy_mem)
        return;
    b->busy_mem = clCreateBuffer(b->context, CL_MEM_READ_WRITE, BUSY_BYTES, NULL, &error);
    check(error, "clCreateBuffer");
    b->busy_host = host_memory(BUSY_BYTES, 3);
    b->busy_copy = host_memory(BUSY_BYTES, 4);
    check(clEnqueueWriteBuffer(b->queue, b->busy_mem, CL_TRUE, 0, BUSY_BYTES, b->busy_host, 0, NULL, NULL),
          "clEnqueueWriteBuffer");
}

/* One kernel of some milliseconds, behind it 'count' non-blocking writes to different places. */
static uint64_t time_busy(struct bench *b, size_t bytes, long count, long rounds)
{
    uint64_t start = now_ns();

    enqueue_spin(b, (cl_uint)rounds);
    check(clFlush(b->queue), "clFlush");
    for (long i = 0; i < count; i++) {
        size_t at = (size_t)i * bytes;
        check(clEnqueueWriteBuffer(b->queue, b->busy_mem, CL_FALSE, at, bytes, b->busy_host + at, 0, NULL, NULL),
              "clEnqueueWriteBuffer");
    }
    finish(b);
    return now_ns() - start;
}

/* busy BYTES ROUNDS: writes into a busy queue, and the same kernel alone, so that what the writes
 * add can be told. The data changes every time and is checked, outside of the measured interval. */
static void measure_busy(struct bench *b, long bytes, long rounds)
{
    uint64_t alone[BUSY_INNER], with_writes[BUSY_INNER];
    long count;
    size_t all;

    if (bytes < 1 || bytes > (long)BUSY_BYTES)
        fail("a write of %ld bytes does not fit", bytes);
    prepare_busy(b);
    count = (long)BUSY_BYTES / bytes;
    if (count > BUSY_MAX_WRITES)
        count = BUSY_MAX_WRITES;
    all = (size_t)(count * bytes);
    for (int round = 0; round < BUSY_INNER; round++) {
        for (long i = 0; i < count; i++)
            b->busy_host[i * bytes]++;
        alone[round] = time_busy(b, 0, 0, rounds);
        with_writes[round] = time_busy(b, (size_t)bytes, count, rounds);
    }
    check_busy_writes(b, all);
    printf("{\"alone_ns\": %" PRIu64 ", \"total_ns\": %" PRIu64 ", \"bytes\": %zu}\n", median(alone, BUSY_INNER),
           median(with_writes, BUSY_INNER), all);
}

static const struct measurement {
    const char *name;
    void (*take)(struct bench *b, long first, long second);
} MEASUREMENTS[] = {
    {"burst", measure_burst},     {"wide", measure_wide},   {"single", measure_single},
    {"latency", measure_latency}, {"write", measure_write}, {"read", measure_read},
    {"map", measure_map},         {"spin", measure_spin},   {"busy", measure_busy},
};

static void serve_line(struct bench *b, const char *line)
{
    char name[32];
    long first = 0, second = 0;

    if (sscanf(line, "%31s %ld %ld", name, &first, &second) < 1)
        return;
    for (size_t i = 0; i < sizeof MEASUREMENTS / sizeof MEASUREMENTS[0]; i++) {
        if (strcmp(name, MEASUREMENTS[i].name) == 0) {
            MEASUREMENTS[i].take(b, first, second);
            fflush(stdout);
            return;
        }
    }
    fail("unknown measurement '%s'", name);
}

static int serve(void)
{
    struct bench b = {0};
    char line[128];

    open_queue(&b);
    build_kernels(&b);
    launch_all_once(&b);
    puts("{\"ready\": true}");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        serve_line(&b, line);
    return 0;
}

/* ---- the yardstick: a futex round trip between two processes ---- */

struct pingpong {
    _Alignas(64) _Atomic uint32_t ping;
    _Alignas(64) _Atomic uint32_t pong;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void futex_post(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await_value(_Atomic uint32_t *word, uint32_t wanted)
{
    uint32_t seen;

    while ((seen = atomic_load(word)) != wanted)
        futex_wait(word, seen);
}

static void answer_pings(struct pingpong *p, const char *core)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (core) {
        cpu_set_t cores;

        CPU_ZERO(&cores);
        CPU_SET(atoi(core), &cores);
        if (sched_setaffinity(0, sizeof cores, &cores) != 0)
            fail("core %s: %s", core, strerror(errno));
    }
    for (uint32_t round = 1;; round++) {
        await_value(&p->ping, round);
        futex_post(&p->pong, round);
    }
}

static int serve_futex(const char *core)
{
    struct pingpong *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t samples[MAX_SAMPLES];
    uint32_t round = 0;
    char line[128];
    pid_t child;

    if (p == MAP_FAILED)
        fail("mmap: %s", strerror(errno));
    child = fork();
    if (child < 0)
        fail("fork: %s", strerror(errno));
    if (child == 0)
        answer_pings(p, core);
    puts("{\"ready\": true}");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long count = 0;

        sscanf(line, "%*s %ld", &count);
        count = clamp_count(count);
        for (long i = 0; i < count; i++) {
            uint64_t start = now_ns();
            futex_post(&p->ping, ++round);
            await_value(&p->pong, round);
            samples[i] = now_ns() - start;
        }
        printf("{\"ns\": %" PRIu64 "}\n", median(samples, count));
        fflush(stdout);
    }
    return 0;
}

/* ---- one-shot modes ---- */

static int startup(void)
{
    struct bench b = {0};
    uint64_t start, queue, kernel;

    start = now_ns();
    open_queue(&b);
    queue = now_ns() - start;
    build_kernels(&b);
    enqueue(&b, b.empty, 1, 1);
    finish(&b);
    kernel = now_ns() - start;
    printf("{\"queue_ns\": %" PRIu64 ", \"kernel_ns\": %" PRIu64 "}\n", queue, kernel);
    return 0;
}

static int idle(const char *until)
{
    struct bench b = {0};

    open_queue(&b);
    if (strcmp(until, "kernel") == 0) {
        build_kernels(&b);
        enqueue(&b, b.empty, 1, 1);
        finish(&b);
    }
    puts("{\"ready\": true}");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";

    if (strcmp(mode, "serve") == 0)
        return serve();
    if (strcmp(mode, "futex") == 0)
        return serve_futex(argc > 2 ? argv[2] : NULL);
    if (strcmp(mode, "startup") == 0)
        return startup();
    if (strcmp(mode, "idle") == 0 && argc > 2)
        return idle(argv[2]);
    fprintf(stderr, "usage: bench-micro serve | futex [CORE] | startup | idle queue|kernel\n");
    return 2;
}
