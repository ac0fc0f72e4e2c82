/* Host memory for evicted objects (see backing.h). */
#include "src/worker/opencl/backing.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Smaller backing memory comes from malloc. */
#define MAP_FROM (UINT64_C(128) << 10)
/* A worker pins no more than this: the host cannot use pinned memory for anything else. */
#define PINNED_MAX (UINT64_C(256) << 20)
/* The test whether pinned memory is at least a fifth faster: bytes of a copy, and number of copies. */
#define TRIED_BYTES (UINT64_C(2) << 20)
#define TRIES 3
#define GAINS_FROM_PERCENT 80

static struct dvk_room *room_of(const struct dvk_mem *root)
{
    return &root->worker->rooms[root->device];
}

static void *map(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); /* a first copy spends most of its time in page faults */
    return memory;
}

/* Pinned memory in OpenCL: a buffer that the vendor allocates on the host, mapped permanently. */
static void *pin(const struct dvk_context *context, cl_command_queue queue, uint64_t bytes, cl_mem *pinned)
{
    cl_int error;

    *pinned = clCreateBuffer(context->vendor, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL, &error);
    if (error != CL_SUCCESS) {
        *pinned = NULL;
        return NULL;
    }
    void *memory =
        clEnqueueMapBuffer(queue, *pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &error);
    if (error == CL_SUCCESS)
        return memory;
    clReleaseMemObject(*pinned);
    *pinned = NULL;
    return NULL;
}

static void unpin(cl_command_queue queue, cl_mem pinned, void *memory)
{
    clEnqueueUnmapMemObject(queue, pinned, memory, 0, NULL, NULL);
    clReleaseMemObject(pinned);
}

/* The best time of several copies, after one that touches the memory; 0: the copy fails. */
static uint64_t copying_ns(const struct dvk_mem *root, cl_command_queue queue, void *memory)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i <= TRIES; i++) {
        uint64_t began = dv_now();
        if (clEnqueueReadBuffer(queue, root->vendor, CL_TRUE, 0, TRIED_BYTES, memory, 0, NULL, NULL) != CL_SUCCESS)
            return 0;
        uint64_t took = dv_now() - began;
        if (i > 0 && took < best)
            best = took;
    }
    return best;
}

static bool pinning_gains(const struct dvk_mem *root, cl_command_queue queue)
{
    cl_mem pinned;
    void *ordinary = map(TRIED_BYTES), *fast = pin(root->make.context, queue, TRIED_BYTES, &pinned);
    uint64_t ordinary_ns = ordinary ? copying_ns(root, queue, ordinary) : 0;
    uint64_t fast_ns = fast ? copying_ns(root, queue, fast) : 0;

    if (ordinary)
        munmap(ordinary, TRIED_BYTES);
    if (fast)
        unpin(queue, pinned, fast);
    return ordinary_ns && fast_ns && fast_ns * 100 <= ordinary_ns * GAINS_FROM_PERCENT;
}

/* Tested once for each device, with the first resident object that is large enough. */
static bool should_pin(const struct dvk_mem *root, cl_command_queue queue)
{
    struct dvk_room *room = room_of(root);

    if (!queue || room->pinned == DV_PINNED_NO || root->backing_bytes < MAP_FROM ||
        root->backing_bytes > PINNED_MAX - room->pinned_bytes)
        return false;
    if (room->pinned == DV_PINNED_AUTO && root->residence >= DVK_RESIDENT && !root->is_image &&
        root->bytes >= TRIED_BYTES)
        room->pinned = pinning_gains(root, queue) ? DV_PINNED_YES : DV_PINNED_NO;
    return room->pinned == DV_PINNED_YES;
}

/* Where a worker that follows finds it. */
static void *store(struct dvk_mem *root)
{
    struct dvk_store *store = &root->worker->runtime->store;

    root->stored = root->backing_bytes >= DVK_STORED_FROM ? dvk_store_take(store, root->backing_bytes) : 0;
    return root->stored ? store->base + root->stored : NULL;
}

bool dvk_backing_need(struct dvk_mem *root, cl_command_queue queue)
{
    if (root->backing)
        return true;
    if (root->worker->runtime->store.base && (root->backing = store(root)))
        return true;
    if (should_pin(root, queue))
        root->backing = pin(root->make.context, queue, root->backing_bytes, &root->pinned);
    if (root->backing)
        room_of(root)->pinned_bytes += root->backing_bytes;
    else
        root->backing = root->backing_bytes < MAP_FROM ? malloc(root->backing_bytes) : map(root->backing_bytes);
    return root->backing != NULL;
}

void dvk_backing_free(struct dvk_mem *root)
{
    if (root->stored) {
        dvk_store_give(&root->worker->runtime->store, root->stored);
        root->stored = 0;
    } else if (root->pinned) {
        unpin(root->make.context->mover, root->pinned, root->backing);
        room_of(root)->pinned_bytes -= root->backing_bytes;
    } else if (root->backing && root->backing_bytes < MAP_FROM) {
        free(root->backing);
    } else if (root->backing) {
        munmap(root->backing, root->backing_bytes);
    }
    root->pinned = NULL;
    root->backing = NULL;
    root->content = DVK_NO_CONTENT;
}
