/* The command ring: records as a client might write them, executed by a worker's OpenCL part on the
 * scripted vendor. Some objects exist already, with small ids. */
#include <CL/cl.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A client that breaks the format ends its worker; here the next input begins. */
#define dvk_runtime_abandon really_abandon
#include "src/worker/core/session.c"
#undef dvk_runtime_abandon

#include "src/worker/opencl/api.h"
#include "src/worker/opencl/executor.h"
#include "src/wire/session/opencl_replies.h"

#define SHM_BYTES DV_SHM_BYTES_MIN
#define REPLY_AT (DV_SHM_ARENA_OFFSET + 4096)
#define DATA_AT (DV_SHM_ARENA_OFFSET + 65536)
#define REPLY_BYTES 16384

static struct dvk_runtime runtime;
static struct dvk_worker_start start;
static struct dv_ring_writer writer;
static jmp_buf next_input;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

_Noreturn void dvk_runtime_abandon(struct dvk_runtime *of, const char *reason);
_Noreturn void dvk_runtime_abandon(struct dvk_runtime *of, const char *reason)
{
    (void)of;
    (void)reason;
    longjmp(next_input, 1);
}

/* Where the kernel's signature is not known (the program came as native code, or was built without the
 * option that the client's library adds) only the vendor knows which bytes are an object's handle, and takes
 * the client's for one: that ends the worker. */
cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value)
{
    static cl_int (*real)(cl_kernel, cl_uint, size_t, const void *);
    cl_kernel_arg_address_qualifier address;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clSetKernelArg");
    if (bytes == sizeof(void *) && value &&
        clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL) !=
            CL_SUCCESS)
        dvk_runtime_abandon(&runtime, "gave bytes to a kernel that nobody knows");
    return real(kernel, index, bytes, value);
}

/* What the worker's main loop does, until the ring is empty. */
static void serve_all(void)
{
    const struct dvk_runtime_api *api = runtime.ops;
    struct dv_record record;
    int found;

    while ((found = dv_ring_peek(&runtime.ring, &record)) == 0) {
        api->handle(&runtime, &record);
        dvk_graph_reap(&runtime.graph);
        api->work(&runtime);
    }
    if (found == -EPROTO)
        dvk_runtime_abandon(&runtime, "wrote a malformed record");
    dvk_graph_fence(&runtime.graph);
    api->before_sleep(&runtime);
    dvk_graph_reap(&runtime.graph);
    /* the client's helper would have taken them */
    atomic_store(&runtime.header->upcall_head, atomic_load(&runtime.header->upcall_tail));
    atomic_store(&runtime.header->output_head, atomic_load(&runtime.header->output_tail));
}

static void write_record(uint16_t op, const void *body, size_t bytes)
{
    size_t whole = dv_record_align(sizeof(struct dv_record) + bytes);
    uint8_t *room = dv_ring_reserve(&writer, whole);
    struct dv_record record = {.bytes = (uint32_t)whole, .op = op};

    if (!room)
        return;
    memset(room, 0, whole);
    memcpy(room, &record, sizeof record);
    memcpy(room + sizeof record, body, bytes);
    dv_ring_publish(&writer, whole);
}

#define SEND(op, message)                                                                                              \
    write_record(op, (const char *)&(message) + sizeof(struct dv_record), sizeof(message) - sizeof(struct dv_record))

static bool lacks(enum dv_object_kind kind, uint32_t id)
{
    return !dvk_find(runtime.api, kind, DV_OBJECT_ID(id));
}

/* Those that are not there: not yet, or an earlier input has released them. */
static void make_objects(void)
{
    static const char source[] = "kernel void fill(global uint *data, uint value) {}";
    static const char options[] = "-cl-kernel-arg-info";
    const struct dv_call_head head = {.reply = REPLY_AT, .reply_bytes = REPLY_BYTES};
    struct {
        struct dvw_create_context message;
        uint32_t devices[2];
    } context = {{.head = head, .id = {1}, .device_count = 1}, {1, 0}};
    struct dvw_create_queue queue = {.head = head, .id = {1}, .context = {1}, .device = {1}};
    struct dvw_create_queue other = {
        .head = head, .id = {2}, .context = {1}, .device = {1}, .profiling = 1, .out_of_order = 1};
    struct dvw_create_buffer buffer = {.size = 4096, .arena = DATA_AT, .id = {1}, .context = {1}, .claimed = 0};
    struct dvw_create_program program = {.head = head,
                                         .data = DATA_AT + 8192,
                                         .data_bytes = sizeof source - 1,
                                         .id = {1},
                                         .context = {1},
                                         .form = DV_PROGRAM_SOURCE};
    struct {
        struct dvw_create_kernel message;
        char name[8];
    } kernel = {{.head = head, .id = {1}, .program = {1}, .name_bytes = 4}, "fill"};

    struct dvk_worker *worker = runtime.api;
    if (lacks(DV_KIND_DEVICE, 1) && dvk_put(worker, DV_KIND_DEVICE, DV_OBJECT_ID(1), worker->devices[0]) != CL_SUCCESS)
        abort();
    if (lacks(DV_KIND_CONTEXT, 1))
        SEND(DVW_OP_CREATE_CONTEXT, context);
    if (lacks(DV_KIND_QUEUE, 1))
        SEND(DVW_OP_CREATE_QUEUE, queue);
    if (lacks(DV_KIND_QUEUE, 2))
        SEND(DVW_OP_CREATE_QUEUE, other);
    for (uint32_t id = 1; id <= 3; id++) {
        buffer.id.value = id;
        buffer.arena = DATA_AT + id * 16384;
        if (lacks(DV_KIND_MEM, id))
            SEND(DVW_OP_CREATE_BUFFER, buffer);
    }
    struct {
        struct dvw_build_program message;
        uint32_t devices[2];
    } build = {{.head = head,
                .data = DATA_AT + 12288,
                .data_bytes = sizeof options - 1,
                .options_bytes = sizeof options - 1,
                .id = {1},
                .device_count = 1,
                .action = DV_BUILD,
                .context = {1}},
               {1, 0}};
    if (lacks(DV_KIND_PROGRAM, 1) || lacks(DV_KIND_KERNEL, 1)) {
        memcpy(runtime.shm + program.data, source, sizeof source);
        memcpy(runtime.shm + build.message.data, options, sizeof options);
        if (lacks(DV_KIND_PROGRAM, 1))
            SEND(DVW_OP_CREATE_PROGRAM, program);
        SEND(DVW_OP_BUILD_PROGRAM, build);
        SEND(DVW_OP_CREATE_KERNEL, kernel);
    }
    serve_all();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char text[512];

    (void)argc;
    (void)argv;
    setenv("OCL_ICD_VENDORS", VENDORS, 1);
    dv_log_set_level(DV_LOG_ERROR);
    start = (struct dvk_worker_start){.device_count = 1, .shm_bytes = SHM_BYTES};
    runtime.start = &start;
    runtime.ops = &dvk_opencl;
    runtime.shm_bytes = SHM_BYTES;
    runtime.shm = mmap(NULL, SHM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    runtime.guard = (struct dvk_guard){.view = runtime.shm, .pages = SHM_BYTES / DV_PAGE}; /* without guards */
    runtime.header = (struct dv_shm_header *)runtime.shm;
    pthread_mutex_init(&runtime.upcall_lock, NULL);
    dv_ring_reader_init(&runtime.ring, runtime.shm);
    dv_ring_writer_init(&writer, runtime.shm);
    dvk_graph_init(&runtime.graph, runtime.ops->backend, &runtime, runtime.shm);
    if (dvk_gates_start(&runtime) < 0)
        abort();
    dvk_accounts_start(&runtime);
    if (runtime.ops->init(&runtime, text, sizeof text) < 0) {
        fprintf(stderr, "%s\n", text);
        abort();
    }
    if (setjmp(next_input) == 0)
        make_objects();
    if (lacks(DV_KIND_QUEUE, 2) || lacks(DV_KIND_MEM, 3) || lacks(DV_KIND_KERNEL, 1))
        abort(); /* most of the worker would never be reached */
    return 0;
}

/* Writes where the client's next record would be, but not as one. */
static void write_raw(const uint8_t *body, size_t length)
{
    memcpy(runtime.shm + DV_SHM_RING_OFFSET + (writer.tail & DV_RING_MASK & ~UINT64_C(7)), body, 64);
    writer.tail += length;
    atomic_store(&runtime.header->ring_tail, writer.tail);
}

/* The head of a command that is the queue's next: nobody guesses its number. The first byte chooses queue,
 * event and number of events to wait for. */
static struct dv_queue_head next_command(uint8_t choice)
{
    struct dv_queue_head head = {.queue = {1 + (choice & 1)}, .event = choice >> 1 & 3, .wait_count = choice >> 3 & 3};
    const struct dvk_queue *queue = dvk_find(runtime.api, DV_KIND_QUEUE, head.queue);

    head.number = queue ? queue->graph.last_number + 1 : 1;
    return head;
}

/* A record that is long enough for its message; if it is a call it has room for its reply, if it is a
 * command it is the next one. */
static void write_message(uint8_t op, const uint8_t *given, size_t length)
{
    const struct dvk_message_info *info = &dvk_messages[op];
    uint8_t body[1024] = {0};
    size_t skipped = 0;

    if (op != 0 && info->style != DVK_STYLE_QUEUE && info->style != DVK_STYLE_SEND) {
        struct dv_call_head head = {.reply = REPLY_AT, .reply_bytes = REPLY_BYTES};
        skipped = sizeof head - sizeof head.record;
        memcpy(body, (const char *)&head + sizeof head.record, skipped);
    } else if (info->style == DVK_STYLE_QUEUE && length > 0) {
        struct dv_queue_head head = next_command(given[0]);
        skipped = sizeof head - sizeof head.record;
        memcpy(body, (const char *)&head + sizeof head.record, skipped);
        given++;
        length--;
    }
    memcpy(body + skipped, given, length);
    length += skipped;
    if (op != 0 && length + sizeof(struct dv_record) < info->bytes)
        length = info->bytes - sizeof(struct dv_record);
    write_record(op, body, length);
}

/* Input: records, each an operation, a length and so many bytes. */
static void write_and_serve(const uint8_t *data, size_t bytes)
{
    uint8_t body[256];

    while (bytes >= 2) {
        uint8_t op = data[0], length = data[1];
        data += 2;
        bytes -= 2;
        size_t there = length < bytes ? length : bytes;
        memset(body, 0, sizeof body);
        memcpy(body, data, there);
        data += there;
        bytes -= there;
        if (op >= 0xf0)
            write_raw(body, length);
        else if (op >= 0xe0)
            write_record(op & 15, body, length);
        else
            write_message(op % DVW_OP_COUNT, body, length);
        serve_all();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (setjmp(next_input) == 0) {
        make_objects();
        write_and_serve(data, bytes);
    } else { /* the worker would have ended: an empty ring again */
        runtime.ring.head = runtime.ring.tail_seen = writer.tail = dv_record_align(writer.tail);
        writer.head_seen = writer.tail;
        atomic_store(&runtime.header->ring_head, writer.tail);
        atomic_store(&runtime.header->ring_tail, writer.tail);
    }
    return 0;
}
