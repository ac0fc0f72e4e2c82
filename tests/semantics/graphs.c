/* Random command graphs over several buffers and queues, compared byte for byte with a host
 * simulation.
 *
 * Commands are simulated in the order in which they are enqueued. That is one legal order of the
 * real execution, and the only possible outcome, because every pair of commands that touch the same
 * bytes (of a buffer or of the host memory of a transfer) is ordered: by the queue, by barriers, by
 * the host having waited, or else by an event put into the wait list for that purpose.
 *
 *     graphs [FIRST_SEED [COUNT [THREADS]]]
 *
 * A failure names the seed: graphs SEED 1 repeats that graph alone. With several threads each runs
 * its own graphs, all in one context.
 */
#include "check.h"

#include <pthread.h>

#define SMALLEST_BYTES ((size_t)16384)
#define MAX_BUFFERS 5
#define MAX_HOSTS 4
#define MAX_QUEUES 4
#define MAX_COMMANDS 96
#define MAX_WAITS 24
#define MAX_GATES 16
#define MAX_MAPS 6
#define MAX_THREADS 16
#define SET_WORDS ((MAX_COMMANDS + 63) / 64)

/* Objects that commands touch: the buffers, then the host memories of transfers. */
#define OBJECT_HOST(index) (MAX_BUFFERS + (index))
#define MAX_OBJECTS (MAX_BUFFERS + MAX_HOSTS)

static const char *const source =
    "kernel void blend(global uint *target, global const uint *other, uint factor) {\n"
    "    size_t i = get_global_id(0);\n"
    "    target[i] = target[i] * factor + other[i];\n"
    "}\n"
    "kernel void stir(global uint *target, uint factor) {\n"
    "    size_t i = get_global_id(0);\n"
    "    target[i] = (target[i] ^ factor) * 2654435761u + (uint)i;\n"
    "}\n"
    "kernel void turn(global uint *target, global const uint *other, local uint *shared) {\n"
    "    size_t l = get_local_id(0), n = get_local_size(0);\n"
    "    shared[l] = other[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    target[get_global_id(0)] = shared[n - 1 - l];\n"
    "}\n";

struct set {
    uint64_t bits[SET_WORDS];
};

/* A range of bytes of one object. Rectangles are covered by the range they span. */
struct access {
    int object;
    size_t start, end;
    bool writes;
};

struct command {
    struct set before; /* commands known to be complete when this one starts */
    struct access accesses[3];
    int access_count;
    int queue;
    cl_event event;
    char text[160];
};

struct open_map {
    void *pointer;
    int buffer;
    size_t start, size;
    bool writes, invalidates;
    int command;
};

struct graph {
    const struct dv_test *test;
    uint64_t seed, random;
    int buffer_count, host_count, queue_count;
    size_t bytes, words; /* of every buffer and every host memory */

    cl_command_queue queues[MAX_QUEUES];
    bool in_order[MAX_QUEUES];
    int last_in_queue[MAX_QUEUES];    /* for in-order queues, or -1 */
    int barrier_of_queue[MAX_QUEUES]; /* for out-of-order queues, or -1 */
    struct set in_queue[MAX_QUEUES];

    cl_mem buffers[MAX_BUFFERS];
    unsigned char *backing[MAX_BUFFERS]; /* memory of CL_MEM_USE_HOST_PTR buffers, or NULL */
    unsigned char *expected[MAX_OBJECTS];
    unsigned char *hosts[MAX_HOSTS];

    struct command commands[MAX_COMMANDS];
    int command_count;
    struct set done; /* commands the host has waited for */

    cl_event gates[MAX_GATES];
    int gate_count, gates_open;

    struct open_map maps[MAX_MAPS];
    int map_count;

    bool failed;
};

static cl_program program;

static void set_add(struct set *set, int member)
{
    set->bits[member / 64] |= 1ull << (member % 64);
}

static bool set_has(const struct set *set, int member)
{
    return set->bits[member / 64] >> (member % 64) & 1;
}

static void set_unite(struct set *set, const struct set *other)
{
    for (int i = 0; i < SET_WORDS; i++)
        set->bits[i] |= other->bits[i];
}

static uint64_t pick(struct graph *graph, uint64_t below)
{
    return dv_test_random(&graph->random) % below;
}

static void fail(struct graph *graph, const char *what)
{
    if (!graph->failed) {
        fprintf(stderr, "graph of seed %llu:\n", (unsigned long long)graph->seed);
        for (int q = 0; q < graph->queue_count; q++)
            fprintf(stderr, "  queue %d is %s\n", q, graph->in_order[q] ? "in order" : "out of order");
        for (int i = 0; i < graph->command_count; i++)
            fprintf(stderr, "  %3d %s\n", i, graph->commands[i].text);
    }
    graph->failed = true;
    CHECK(!"graph result differs");
    dv_test_detail("seed %llu: %s", (unsigned long long)graph->seed, what);
}

static void expect_cl(struct graph *graph, cl_int error, const char *what)
{
    if (error != CL_SUCCESS) {
        char text[200];
        snprintf(text, sizeof text, "%s: %s", what, dv_test_error_name(error));
        fail(graph, text);
    } else {
        CHECK_CL(error);
    }
}

static void compare(struct graph *graph, const void *got, const void *expected, size_t size, const char *what)
{
    const unsigned char *a = got, *b = expected;
    if (memcmp(a, b, size) == 0) {
        CHECK(true);
        return;
    }
    size_t first = 0, wrong = 0;
    for (size_t i = size; i-- > 0;)
        if (a[i] != b[i]) {
            first = i;
            wrong++;
        }
    char text[200];
    snprintf(text, sizeof text, "%s: %zu of %zu bytes wrong, first at %zu: 0x%02x, expected 0x%02x", what, wrong, size,
             first, a[first], b[first]);
    fail(graph, text);
}

/* ------------------------------------------------------------------------ blocking of the host */

static void open_gates(struct graph *graph, int up_to)
{
    for (; graph->gates_open < up_to; graph->gates_open++)
        expect_cl(graph, clSetUserEventStatus(graph->gates[graph->gates_open], CL_COMPLETE), "clSetUserEventStatus");
}

/* Before the host waits, nothing it waits for may depend on a later action of the host. */
static void prepare_to_block(struct graph *graph)
{
    open_gates(graph, graph->gate_count);
    for (int q = 0; q < graph->queue_count; q++)
        expect_cl(graph, clFlush(graph->queues[q]), "clFlush");
}

static void mark_done(struct graph *graph, int command)
{
    set_unite(&graph->done, &graph->commands[command].before);
    set_add(&graph->done, command);
}

static bool conflict(const struct access *a, const struct access *b)
{
    return a->object == b->object && a->start < b->end && b->start < a->end && (a->writes || b->writes);
}

/* ------------------------------------------------------------------------------- one command */

struct draft {
    struct command *command;
    int index;
    cl_event waits[MAX_WAITS];
    cl_uint wait_count;
};

static void close_map(struct graph *graph, int which);

/* Starts a command on a random queue. Its accesses follow, then settle() computes the wait list. */
static struct draft begin(struct graph *graph)
{
    struct draft draft = {0};
    draft.index = graph->command_count;
    draft.command = &graph->commands[draft.index];
    memset(draft.command, 0, sizeof *draft.command);
    draft.command->queue = (int)pick(graph, (uint64_t)graph->queue_count);
    return draft;
}

static void touch(struct draft *draft, int object, size_t start, size_t size, bool writes)
{
    struct command *command = draft->command;
    REQUIRE(command->access_count < (int)COUNT_OF(command->accesses));
    command->accesses[command->access_count++] = (struct access){object, start, start + size, writes};
}

static bool touches_map(const struct command *command, const struct open_map *map)
{
    struct access of_map = {map->buffer, map->start, map->start + map->size, map->writes};
    for (int i = 0; i < command->access_count; i++)
        if (conflict(&command->accesses[i], &of_map))
            return true;
    return false;
}

static void wait_for_command(struct graph *graph, struct draft *draft, int other)
{
    set_unite(&draft->command->before, &graph->commands[other].before);
    set_add(&draft->command->before, other);
    draft->waits[draft->wait_count++] = graph->commands[other].event;
}

/* What the queue alone guarantees for a command about to be enqueued. */
static void order_by_queue(struct graph *graph, struct draft *draft)
{
    struct command *command = draft->command;
    int q = command->queue;
    int previous = graph->in_order[q] ? graph->last_in_queue[q] : graph->barrier_of_queue[q];
    set_unite(&command->before, &graph->done);
    if (previous >= 0) {
        set_unite(&command->before, &graph->commands[previous].before);
        set_add(&command->before, previous);
    }
}

/* Orders the command after every earlier one it conflicts with. Latest first, so that one wait
 * covers many. Returns false when it would need too long a wait list. */
static bool settle(struct graph *graph, struct draft *draft)
{
    struct command *command = draft->command;
    order_by_queue(graph, draft);
    for (int other = draft->index - 1; other >= 0; other--) {
        if (set_has(&command->before, other))
            continue;
        bool needed = false;
        for (int i = 0; i < command->access_count && !needed; i++)
            for (int j = 0; j < graph->commands[other].access_count && !needed; j++)
                needed = conflict(&command->accesses[i], &graph->commands[other].accesses[j]);
        /* Some more edges than needed. */
        if (needed || pick(graph, 24) == 0) {
            if (draft->wait_count >= MAX_WAITS - 1)
                return false;
            wait_for_command(graph, draft, other);
        }
    }
    if (pick(graph, 8) == 0 && graph->gate_count < MAX_GATES) {
        cl_int error;
        cl_event gate = clCreateUserEvent(graph->test->context, &error);
        REQUIRE_CL(error);
        graph->gates[graph->gate_count++] = gate;
        draft->waits[draft->wait_count++] = gate;
    }
    return true;
}

static const cl_event *wait_list(const struct draft *draft)
{
    return draft->wait_count ? draft->waits : NULL;
}

static void finish_command(struct graph *graph, struct draft *draft, cl_int error, const char *name,
                           const char *details)
{
    struct command *command = draft->command;
    size_t length =
        (size_t)snprintf(command->text, sizeof command->text, "q%d %s%s after", command->queue, name, details);
    for (int i = 0; i < draft->index && length < sizeof command->text - 8; i++)
        for (cl_uint j = 0; j < draft->wait_count; j++)
            if (graph->commands[i].event == draft->waits[j])
                length += (size_t)snprintf(command->text + length, sizeof command->text - length, " %d", i);
    graph->command_count++;
    set_add(&graph->in_queue[command->queue], draft->index);
    graph->last_in_queue[command->queue] = draft->index;
    expect_cl(graph, error, name);
    if (error != CL_SUCCESS)
        dv_test_give_up(__FILE__, __LINE__, "a command was refused");
}

/* A range that is sometimes small, sometimes odd, sometimes everything. */
static void pick_range(struct graph *graph, size_t limit, size_t *start, size_t *size)
{
    switch (pick(graph, 4)) {
    case 0:
        *start = 0;
        *size = limit;
        break;
    case 1:
        *start = pick(graph, limit);
        *size = 1 + pick(graph, limit - *start < 16 ? limit - *start : 16);
        break;
    default:
        *start = pick(graph, limit);
        *size = 1 + pick(graph, limit - *start);
        break;
    }
}

/* Maps in the way of a command are closed first. Called before begin(), for the unmap takes the
 * next place in the list. */
static void close_maps_touching(struct graph *graph, const struct access *accesses, int count)
{
    struct command probe = {0};
    memcpy(probe.accesses, accesses, (size_t)count * sizeof *accesses);
    probe.access_count = count;
    for (int i = graph->map_count - 1; i >= 0; i--)
        if (touches_map(&probe, &graph->maps[i]))
            close_map(graph, i);
}

static void drop_gate_if_blocking(struct graph *graph, bool blocking)
{
    if (blocking)
        prepare_to_block(graph);
}

static cl_uint *words_of(struct graph *graph, int buffer)
{
    return (cl_uint *)graph->expected[buffer];
}

static void add_kernel(struct graph *graph)
{
    const size_t globals[] = {64, 256, 1024, graph->words};
    int target = (int)pick(graph, (uint64_t)graph->buffer_count);
    int other = (int)pick(graph, (uint64_t)graph->buffer_count);
    if (other == target)
        other = (target + 1) % graph->buffer_count;
    int which = (int)pick(graph, 3);
    size_t global = globals[pick(graph, COUNT_OF(globals))];
    size_t offset = 64 * pick(graph, (graph->words - global) / 64 + 1);
    size_t local = pick(graph, 2) ? 16 : 64;
    cl_uint factor = (cl_uint)pick(graph, 1u << 31) | 1;
    struct access accesses[2] = {{target, offset * 4, (offset + global) * 4, true},
                                 {other, offset * 4, (offset + global) * 4, false}};
    int access_count = which == 1 ? 1 : 2;
    close_maps_touching(graph, accesses, access_count);

    struct draft draft = begin(graph);
    for (int i = 0; i < access_count; i++)
        touch(&draft, accesses[i].object, accesses[i].start, accesses[i].end - accesses[i].start, accesses[i].writes);
    if (!settle(graph, &draft))
        return;

    /* Half of the kernels work on a sub-buffer that is released at once. */
    cl_int error;
    cl_mem target_mem = graph->buffers[target];
    size_t launch_offset = offset;
    cl_mem sub = NULL, sub_other = NULL;
    if (pick(graph, 2)) {
        cl_buffer_region region = {offset * 4, global * 4};
        sub = clCreateSubBuffer(target_mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
        expect_cl(graph, error, "clCreateSubBuffer");
        sub_other = clCreateSubBuffer(graph->buffers[other], 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
        expect_cl(graph, error, "clCreateSubBuffer");
        launch_offset = 0;
    }
    cl_mem target_arg = sub ? sub : target_mem;
    cl_mem other_arg = sub ? sub_other : graph->buffers[other];
    static const char *const names[] = {"blend", "stir", "turn"};
    cl_kernel kernel = clCreateKernel(program, names[which], &error);
    expect_cl(graph, error, "clCreateKernel");
    expect_cl(graph, clSetKernelArg(kernel, 0, sizeof target_arg, &target_arg), "clSetKernelArg");
    if (which == 1) {
        expect_cl(graph, clSetKernelArg(kernel, 1, sizeof factor, &factor), "clSetKernelArg");
    } else {
        expect_cl(graph, clSetKernelArg(kernel, 1, sizeof other_arg, &other_arg), "clSetKernelArg");
        expect_cl(graph,
                  which == 0 ? clSetKernelArg(kernel, 2, sizeof factor, &factor)
                             : clSetKernelArg(kernel, 2, local * 4, NULL),
                  "clSetKernelArg");
    }
    error = clEnqueueNDRangeKernel(graph->queues[draft.command->queue], kernel, 1, &launch_offset, &global, &local,
                                   draft.wait_count, wait_list(&draft), &draft.command->event);
    char details[100];
    snprintf(details, sizeof details, "(b%d, b%d) words %zu+%zu local %zu%s", target, other, offset, global, local,
             sub ? " sub" : "");
    finish_command(graph, &draft, error, names[which], details);
    /* What the command uses was fixed when it was enqueued. */
    if (which != 2) {
        cl_uint nonsense = 12345;
        expect_cl(graph, clSetKernelArg(kernel, which == 0 ? 2 : 1, sizeof nonsense, &nonsense), "clSetKernelArg");
    }
    expect_cl(graph, clReleaseKernel(kernel), "clReleaseKernel");
    if (sub) {
        expect_cl(graph, clReleaseMemObject(sub), "clReleaseMemObject");
        expect_cl(graph, clReleaseMemObject(sub_other), "clReleaseMemObject");
    }

    cl_uint *t = words_of(graph, target), *o = words_of(graph, other);
    for (size_t i = offset; i < offset + global; i++) {
        if (which == 0)
            t[i] = t[i] * factor + o[i];
        else if (which == 1)
            t[i] = (t[i] ^ factor) * 2654435761u + (cl_uint)(i - offset + launch_offset);
        else {
            size_t group = (i - offset) / local, l = (i - offset) % local;
            t[i] = o[offset + group * local + (local - 1 - l)];
        }
    }
}

static void add_copy(struct graph *graph)
{
    int from = (int)pick(graph, (uint64_t)graph->buffer_count);
    int to = (int)pick(graph, (uint64_t)graph->buffer_count);
    size_t from_start, to_start, size;
    if (from == to) {
        /* Both halves of one buffer: no overlap. */
        size = 1 + pick(graph, graph->bytes / 2);
        from_start = pick(graph, graph->bytes / 2 - size + 1);
        to_start = graph->bytes / 2 + pick(graph, graph->bytes / 2 - size + 1);
    } else {
        pick_range(graph, graph->bytes, &from_start, &size);
        to_start = pick(graph, graph->bytes - size + 1);
    }
    struct access accesses[2] = {{from, from_start, from_start + size, false}, {to, to_start, to_start + size, true}};
    close_maps_touching(graph, accesses, 2);
    struct draft draft = begin(graph);
    touch(&draft, from, from_start, size, false);
    touch(&draft, to, to_start, size, true);
    if (!settle(graph, &draft))
        return;
    cl_int error =
        clEnqueueCopyBuffer(graph->queues[draft.command->queue], graph->buffers[from], graph->buffers[to], from_start,
                            to_start, size, draft.wait_count, wait_list(&draft), &draft.command->event);
    char details[100];
    snprintf(details, sizeof details, "(b%d+%zu to b%d+%zu, %zu bytes)", from, from_start, to, to_start, size);
    finish_command(graph, &draft, error, "copy", details);
    memmove(graph->expected[to] + to_start, graph->expected[from] + from_start, size);
}

static void add_fill(struct graph *graph)
{
    size_t pattern_size = (size_t)1 << pick(graph, 8);
    unsigned char pattern[128];
    dv_test_random_fill(&graph->random, pattern, pattern_size);
    size_t units = graph->bytes / pattern_size;
    size_t start = pick(graph, units), count = 1 + pick(graph, units - start);
    int to = (int)pick(graph, (uint64_t)graph->buffer_count);
    struct access access = {to, start * pattern_size, (start + count) * pattern_size, true};
    close_maps_touching(graph, &access, 1);
    struct draft draft = begin(graph);
    touch(&draft, to, access.start, access.end - access.start, true);
    if (!settle(graph, &draft))
        return;
    cl_int error = clEnqueueFillBuffer(graph->queues[draft.command->queue], graph->buffers[to], pattern, pattern_size,
                                       access.start, access.end - access.start, draft.wait_count, wait_list(&draft),
                                       &draft.command->event);
    char details[100];
    snprintf(details, sizeof details, "(b%d+%zu, %zu bytes of %zu)", to, access.start, access.end - access.start,
             pattern_size);
    finish_command(graph, &draft, error, "fill", details);
    for (size_t i = 0; i < count; i++)
        memcpy(graph->expected[to] + access.start + i * pattern_size, pattern, pattern_size);
    memset(pattern, 0xcc, sizeof pattern);
}

static void add_transfer(struct graph *graph)
{
    bool reading = pick(graph, 2), blocking = pick(graph, 10) == 0;
    int buffer = (int)pick(graph, (uint64_t)graph->buffer_count);
    int host = (int)pick(graph, (uint64_t)graph->host_count);
    size_t start, size;
    pick_range(graph, graph->bytes, &start, &size);
    size_t host_start = pick(graph, graph->bytes - size + 1);
    struct access accesses[2] = {{buffer, start, start + size, !reading},
                                 {OBJECT_HOST(host), host_start, host_start + size, reading}};
    close_maps_touching(graph, accesses, 2);
    struct draft draft = begin(graph);
    touch(&draft, buffer, start, size, !reading);
    touch(&draft, OBJECT_HOST(host), host_start, size, reading);
    if (!settle(graph, &draft))
        return;
    drop_gate_if_blocking(graph, blocking);
    cl_command_queue queue = graph->queues[draft.command->queue];
    cl_int error = reading ? clEnqueueReadBuffer(queue, graph->buffers[buffer], blocking, start, size,
                                                 graph->hosts[host] + host_start, draft.wait_count, wait_list(&draft),
                                                 &draft.command->event)
                           : clEnqueueWriteBuffer(queue, graph->buffers[buffer], blocking, start, size,
                                                  graph->hosts[host] + host_start, draft.wait_count, wait_list(&draft),
                                                  &draft.command->event);
    char details[100];
    snprintf(details, sizeof details, "%s (b%d+%zu, host%d+%zu, %zu bytes)", blocking ? " blocking" : "", buffer, start,
             host, host_start, size);
    finish_command(graph, &draft, error, reading ? "read" : "write", details);
    unsigned char *device_bytes = graph->expected[buffer] + start;
    unsigned char *host_bytes = graph->expected[OBJECT_HOST(host)] + host_start;
    memcpy(reading ? host_bytes : device_bytes, reading ? device_bytes : host_bytes, size);
    if (blocking) {
        mark_done(graph, draft.index);
        if (reading)
            compare(graph, graph->hosts[host] + host_start, host_bytes, size, "blocking read");
    }
}

struct rect {
    size_t origin[3], region[3], row_pitch, slice_pitch;
};

static size_t rect_offset(const struct rect *rect, size_t y, size_t z)
{
    return rect->origin[0] + (rect->origin[1] + y) * rect->row_pitch + (rect->origin[2] + z) * rect->slice_pitch;
}

static size_t rect_end(const struct rect *rect)
{
    return rect_offset(rect, rect->region[1] - 1, rect->region[2] - 1) + rect->region[0];
}

/* Rectangles have up to 16 rows and 4 slices; this leaves room for wide pitches. */
static size_t rect_widest(const struct graph *graph)
{
    return 64 * (graph->bytes / SMALLEST_BYTES);
}

static void pick_rect(struct graph *graph, struct rect *rect, const size_t *region)
{
    memcpy(rect->region, region, sizeof rect->region);
    size_t widest = rect_widest(graph);
    rect->row_pitch = widest + pick(graph, widest / 2);
    rect->slice_pitch = rect->row_pitch * (16 + pick(graph, 4));
    rect->origin[0] = pick(graph, widest - region[0] + 1);
    rect->origin[1] = pick(graph, 16 - region[1] + 1);
    rect->origin[2] = pick(graph, 4 - region[2] + 1);
}

static void add_rect(struct graph *graph)
{
    enum { RECT_COPY, RECT_READ, RECT_WRITE } kind = (int)pick(graph, 3);
    size_t region[3] = {1 + pick(graph, rect_widest(graph)), 1 + pick(graph, 16), 1 + pick(graph, 4)};
    struct rect a, b;
    pick_rect(graph, &a, region);
    pick_rect(graph, &b, region);
    int buffer = (int)pick(graph, (uint64_t)graph->buffer_count);
    int other = kind == RECT_COPY ? (buffer + 1) % graph->buffer_count
                                  : OBJECT_HOST((int)pick(graph, (uint64_t)graph->host_count));
    bool a_written = kind == RECT_WRITE;
    struct access accesses[2] = {{buffer, rect_offset(&a, 0, 0), rect_end(&a), a_written},
                                 {other, rect_offset(&b, 0, 0), rect_end(&b), !a_written}};
    close_maps_touching(graph, accesses, 2);
    struct draft draft = begin(graph);
    for (int i = 0; i < 2; i++)
        touch(&draft, accesses[i].object, accesses[i].start, accesses[i].end - accesses[i].start, accesses[i].writes);
    if (!settle(graph, &draft))
        return;
    cl_command_queue queue = graph->queues[draft.command->queue];
    cl_int error;
    if (kind == RECT_COPY)
        error = clEnqueueCopyBufferRect(queue, graph->buffers[buffer], graph->buffers[other], a.origin, b.origin,
                                        region, a.row_pitch, a.slice_pitch, b.row_pitch, b.slice_pitch,
                                        draft.wait_count, wait_list(&draft), &draft.command->event);
    else if (kind == RECT_READ)
        error =
            clEnqueueReadBufferRect(queue, graph->buffers[buffer], CL_FALSE, a.origin, b.origin, region, a.row_pitch,
                                    a.slice_pitch, b.row_pitch, b.slice_pitch, graph->hosts[other - MAX_BUFFERS],
                                    draft.wait_count, wait_list(&draft), &draft.command->event);
    else
        error =
            clEnqueueWriteBufferRect(queue, graph->buffers[buffer], CL_FALSE, a.origin, b.origin, region, a.row_pitch,
                                     a.slice_pitch, b.row_pitch, b.slice_pitch, graph->hosts[other - MAX_BUFFERS],
                                     draft.wait_count, wait_list(&draft), &draft.command->event);
    static const char *const names[] = {"copy rect", "read rect", "write rect"};
    char details[100];
    snprintf(details, sizeof details, "(b%d, %s%d, %zux%zux%zu)", buffer, kind == RECT_COPY ? "b" : "host",
             kind == RECT_COPY ? other : other - MAX_BUFFERS, region[0], region[1], region[2]);
    finish_command(graph, &draft, error, names[kind], details);
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++) {
            unsigned char *in_a = graph->expected[buffer] + rect_offset(&a, y, z);
            unsigned char *in_b = graph->expected[other] + rect_offset(&b, y, z);
            memcpy(a_written ? in_a : in_b, a_written ? in_b : in_a, region[0]);
        }
}

static void add_sync(struct graph *graph)
{
    bool barrier = pick(graph, 2);
    struct draft draft = begin(graph);
    struct command *command = draft.command;
    int q = command->queue;
    if (pick(graph, 2)) {
        /* An empty wait list: everything earlier in this queue. */
        order_by_queue(graph, &draft);
        for (int i = 0; i < draft.index; i++)
            if (set_has(&graph->in_queue[q], i)) {
                set_unite(&command->before, &graph->commands[i].before);
                set_add(&command->before, i);
            }
    } else {
        if (!settle(graph, &draft) || draft.wait_count == 0)
            return;
    }
    cl_int error =
        barrier ? clEnqueueBarrierWithWaitList(graph->queues[q], draft.wait_count, wait_list(&draft), &command->event)
                : clEnqueueMarkerWithWaitList(graph->queues[q], draft.wait_count, wait_list(&draft), &command->event);
    finish_command(graph, &draft, error, barrier ? "barrier" : "marker", "");
    if (barrier)
        graph->barrier_of_queue[q] = draft.index;
}

static void add_migrate(struct graph *graph)
{
    int buffer = (int)pick(graph, (uint64_t)graph->buffer_count);
    struct access access = {buffer, 0, graph->bytes, true};
    close_maps_touching(graph, &access, 1);
    struct draft draft = begin(graph);
    touch(&draft, buffer, 0, graph->bytes, true);
    if (!settle(graph, &draft))
        return;
    cl_int error = clEnqueueMigrateMemObjects(graph->queues[draft.command->queue], 1, &graph->buffers[buffer],
                                              pick(graph, 2) ? CL_MIGRATE_MEM_OBJECT_HOST : 0, draft.wait_count,
                                              wait_list(&draft), &draft.command->event);
    finish_command(graph, &draft, error, "migrate", "");
}

static void add_map(struct graph *graph)
{
    if (graph->map_count == MAX_MAPS)
        return;
    bool blocking = pick(graph, 2);
    bool writes = pick(graph, 2), invalidates = writes && pick(graph, 2);
    int buffer = (int)pick(graph, (uint64_t)graph->buffer_count);
    size_t start, size;
    pick_range(graph, graph->bytes, &start, &size);
    struct access access = {buffer, start, start + size, writes};
    close_maps_touching(graph, &access, 1);
    struct draft draft = begin(graph);
    touch(&draft, buffer, start, size, writes);
    if (!settle(graph, &draft))
        return;
    prepare_to_block(graph);
    cl_map_flags flags = invalidates ? CL_MAP_WRITE_INVALIDATE_REGION
                         : writes    ? CL_MAP_WRITE | (pick(graph, 2) ? CL_MAP_READ : 0)
                                     : CL_MAP_READ;
    cl_int error;
    unsigned char *pointer =
        clEnqueueMapBuffer(graph->queues[draft.command->queue], graph->buffers[buffer], blocking, flags, start, size,
                           draft.wait_count, wait_list(&draft), &draft.command->event, &error);
    char details[100];
    snprintf(details, sizeof details, "%s (b%d+%zu, %zu bytes, flags %u)", blocking ? " blocking" : "", buffer, start,
             size, (unsigned)flags);
    finish_command(graph, &draft, error, "map", details);
    if (!blocking)
        expect_cl(graph, clWaitForEvents(1, &draft.command->event), "clWaitForEvents");
    mark_done(graph, draft.index);
    if (graph->backing[buffer] && pointer != graph->backing[buffer] + start)
        fail(graph, "map of a CL_MEM_USE_HOST_PTR buffer is not in the application's memory");
    if (!invalidates)
        compare(graph, pointer, graph->expected[buffer] + start, size, "mapped bytes");
    graph->maps[graph->map_count++] = (struct open_map){pointer, buffer, start, size, writes, invalidates, draft.index};
}

/* Writes through the pointer if the map allows it, and unmaps. */
static void close_map(struct graph *graph, int which)
{
    struct open_map map = graph->maps[which];
    graph->maps[which] = graph->maps[--graph->map_count];
    unsigned char *expected = graph->expected[map.buffer] + map.start;
    if (map.writes) {
        /* After an invalidating map every byte has to be written, after another one any. */
        size_t first = map.invalidates ? 0 : pick(graph, map.size);
        size_t count = map.invalidates ? map.size : 1 + pick(graph, map.size - first);
        dv_test_random_fill(&graph->random, expected + first, count);
        memcpy((unsigned char *)map.pointer + first, expected + first, count);
    } else {
        compare(graph, map.pointer, expected, map.size, "mapped bytes before unmap");
    }
    struct draft draft = begin(graph);
    touch(&draft, map.buffer, map.start, map.size, map.writes);
    REQUIRE(settle(graph, &draft));
    cl_int error = clEnqueueUnmapMemObject(graph->queues[draft.command->queue], graph->buffers[map.buffer], map.pointer,
                                           draft.wait_count, wait_list(&draft), &draft.command->event);
    char details[100];
    snprintf(details, sizeof details, "(map %d)", map.command);
    finish_command(graph, &draft, error, "unmap", details);
}

/* The host waits for everything that uses a host memory, compares it and fills it anew. */
static void touch_host(struct graph *graph)
{
    int host = (int)pick(graph, (uint64_t)graph->host_count);
    struct access access = {OBJECT_HOST(host), 0, graph->bytes, true};
    cl_event waits[MAX_COMMANDS];
    int waited_for[MAX_COMMANDS];
    cl_uint count = 0;
    for (int i = 0; i < graph->command_count; i++)
        for (int j = 0; j < graph->commands[i].access_count; j++)
            if (conflict(&access, &graph->commands[i].accesses[j])) {
                waited_for[count] = i;
                waits[count++] = graph->commands[i].event;
                break;
            }
    if (count == 0)
        return;
    prepare_to_block(graph);
    expect_cl(graph, clWaitForEvents(count, waits), "clWaitForEvents");
    for (cl_uint i = 0; i < count; i++)
        mark_done(graph, waited_for[i]);
    unsigned char *expected = graph->expected[OBJECT_HOST(host)];
    compare(graph, graph->hosts[host], expected, graph->bytes, "host memory");
    dv_test_random_fill(&graph->random, expected, graph->bytes);
    memcpy(graph->hosts[host], expected, graph->bytes);
}

static void create_buffer(struct graph *graph, int index)
{
    unsigned char *expected = graph->expected[index];
    dv_test_random_fill(&graph->random, expected, graph->bytes);
    cl_mem_flags flags;
    void *host = expected;
    switch (pick(graph, 4)) {
    case 0:
        REQUIRE(posix_memalign((void **)&graph->backing[index], 4096, graph->bytes) == 0);
        memcpy(graph->backing[index], expected, graph->bytes);
        host = graph->backing[index];
        flags = CL_MEM_USE_HOST_PTR;
        break;
    case 1:
        flags = CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;
        break;
    case 2:
        flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
        break;
    default:
        flags = CL_MEM_COPY_HOST_PTR;
        break;
    }
    graph->buffers[index] = dv_test_buffer(graph->test, flags, graph->bytes, host);
}

static void run_graph(const struct dv_test *test, uint64_t seed)
{
    struct graph *graph = calloc(1, sizeof *graph);
    REQUIRE(graph);
    graph->test = test;
    graph->seed = seed;
    graph->random = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 4; i++)
        dv_test_random(&graph->random);
    graph->buffer_count = 2 + (int)pick(graph, MAX_BUFFERS - 1);
    graph->host_count = 1 + (int)pick(graph, MAX_HOSTS);
    graph->queue_count = 1 + (int)pick(graph, MAX_QUEUES);
    /* Mostly small and many; some so big that an implementation has to cut transfers into pieces.
     */
    uint64_t kind = pick(graph, 16);
    graph->bytes = SMALLEST_BYTES * (kind == 0 ? 160 : kind < 4 ? 12 : 1);
    graph->words = graph->bytes / 4;
    for (int i = 0; i < MAX_OBJECTS; i++)
        REQUIRE((graph->expected[i] = malloc(graph->bytes)));
    for (int i = 0; i < graph->buffer_count; i++)
        create_buffer(graph, i);
    for (int i = 0; i < graph->host_count; i++) {
        REQUIRE((graph->hosts[i] = malloc(graph->bytes)));
        dv_test_random_fill(&graph->random, graph->hosts[i], graph->bytes);
        memcpy(graph->expected[OBJECT_HOST(i)], graph->hosts[i], graph->bytes);
    }
    for (int i = 0; i < graph->queue_count; i++) {
        cl_int error;
        graph->in_order[i] = pick(graph, 2);
        graph->last_in_queue[i] = graph->barrier_of_queue[i] = -1;
        graph->queues[i] = clCreateCommandQueue(
            test->context, test->device, graph->in_order[i] ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
        REQUIRE_CL(error);
    }

    /* Room is left for the unmaps that a command may bring with it. */
    int target = 10 + (int)pick(graph, MAX_COMMANDS - 10 - 2 * MAX_MAPS);
    for (int step = 0; step < 3 * target && graph->command_count < target; step++) {
        switch (pick(graph, 16)) {
        case 0:
        case 1:
        case 2:
        case 3:
            add_kernel(graph);
            break;
        case 4:
        case 5:
            add_copy(graph);
            break;
        case 6:
            add_fill(graph);
            break;
        case 7:
        case 8:
        case 9:
            add_transfer(graph);
            break;
        case 10:
        case 11:
            add_rect(graph);
            break;
        case 12:
            add_sync(graph);
            break;
        case 13:
            add_map(graph);
            break;
        case 14:
            pick(graph, 2) ? add_migrate(graph) : touch_host(graph);
            break;
        default:
            if (graph->map_count)
                close_map(graph, (int)pick(graph, (uint64_t)graph->map_count));
            else if (graph->gates_open < graph->gate_count)
                open_gates(graph, graph->gates_open + 1);
            break;
        }
    }
    while (graph->map_count)
        close_map(graph, graph->map_count - 1);
    prepare_to_block(graph);
    for (int i = 0; i < graph->queue_count; i++)
        expect_cl(graph, clFinish(graph->queues[i]), "clFinish");

    for (int i = 0; i < graph->command_count; i++) {
        cl_int status = dv_test_event_status(graph->commands[i].event);
        if (status != CL_COMPLETE) {
            char text[100];
            snprintf(text, sizeof text, "command %d has status %d", i, status);
            fail(graph, text);
        }
        CHECK_CL(clReleaseEvent(graph->commands[i].event));
    }
    unsigned char *back = malloc(graph->bytes);
    REQUIRE(back);
    for (int i = 0; i < graph->buffer_count; i++) {
        memset(back, 0, graph->bytes);
        expect_cl(
            graph,
            clEnqueueReadBuffer(graph->queues[0], graph->buffers[i], CL_TRUE, 0, graph->bytes, back, 0, NULL, NULL),
            "final read");
        char text[40];
        snprintf(text, sizeof text, "buffer %d at the end", i);
        compare(graph, back, graph->expected[i], graph->bytes, text);
    }
    for (int i = 0; i < graph->host_count; i++) {
        char text[40];
        snprintf(text, sizeof text, "host memory %d at the end", i);
        compare(graph, graph->hosts[i], graph->expected[OBJECT_HOST(i)], graph->bytes, text);
    }

    free(back);
    for (int i = 0; i < graph->gate_count; i++)
        CHECK_CL(clReleaseEvent(graph->gates[i]));
    for (int i = 0; i < graph->queue_count; i++)
        CHECK_CL(clReleaseCommandQueue(graph->queues[i]));
    for (int i = 0; i < graph->buffer_count; i++) {
        CHECK_CL(clReleaseMemObject(graph->buffers[i]));
        free(graph->backing[i]);
    }
    for (int i = 0; i < graph->host_count; i++)
        free(graph->hosts[i]);
    for (int i = 0; i < MAX_OBJECTS; i++)
        free(graph->expected[i]);
    free(graph);
}

struct runner {
    const struct dv_test *test;
    uint64_t first, count, step;
};

static void *run_graphs(void *data)
{
    const struct runner *runner = data;
    for (uint64_t i = 0; i < runner->count; i += runner->step)
        run_graph(runner->test, runner->first + i);
    return NULL;
}

static void run_in_threads(const struct dv_test *test, uint64_t first, uint64_t count, int threads)
{
    pthread_t ids[MAX_THREADS];
    struct runner runners[MAX_THREADS];
    for (int i = 0; i < threads; i++) {
        runners[i] = (struct runner){test, first + (uint64_t)i, count, (uint64_t)threads};
        REQUIRE(pthread_create(&ids[i], NULL, run_graphs, &runners[i]) == 0);
    }
    for (int i = 0; i < threads; i++)
        REQUIRE(pthread_join(ids[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 300;
    int threads = argc > 3 ? atoi(argv[3]) : 0;
    REQUIRE(threads <= MAX_THREADS);
    struct dv_test test = dv_test_setup();
    program = dv_test_build(&test, source, "");
    if (threads < 2) {
        dv_test_section("graphs");
        run_graphs(&(struct runner){&test, first, count, 1});
    }
    /* Without arguments some more, several at once. */
    if (argc <= 2 || threads > 1) {
        dv_test_section("graphs in threads");
        run_in_threads(&test, first + count, count / 2, threads > 1 ? threads : 4);
    }
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("graphs");
}
