/* The arena's allocator (see arena.h). Extents are kept outside the shared memory, where the worker cannot corrupt
 * them. Small blocks come from power-of-two classes. Large ones are whole pages, found best-fit and joined with free
 * neighbours. A guard page follows whole pages, including slabs of small blocks: the worker lets kernels access only
 * the pages of objects. */
#include "src/client/opencl/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "src/wire/session/shm.h"

#define SMALLEST_SHIFT 8 /* 256 bytes */
#define SMALL_CLASSES 4  /* up to 2 KiB */
static_assert(DV_ARENA_SMALL_MAX == UINT64_C(1) << (SMALLEST_SHIFT + SMALL_CLASSES - 1), "classes");
#define SLAB_BYTES (UINT64_C(1) << 20)

struct dvc_extent {
    RB_ENTRY(dvc_extent) by_offset;
    RB_ENTRY(dvc_extent) size;
    struct dvc_extent *next; /* in a small class's free list */
    uint64_t offset, bytes;
    uint64_t warm;   /* if free: about how many bytes are still backed by memory */
    int small_class; /* -1: whole pages */
    bool is_free;
};

static int compare_offset(const struct dvc_extent *a, const struct dvc_extent *b)
{
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int compare_size(const struct dvc_extent *a, const struct dvc_extent *b)
{
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return compare_offset(a, b);
}

#define STATIC __attribute__((unused)) static /* not every operation is used */
RB_GENERATE_INTERNAL(dvc_offset_tree, dvc_extent, by_offset, compare_offset, STATIC)
RB_GENERATE_INTERNAL(dvc_size_tree, dvc_extent, size, compare_size, STATIC)

int dvc_arena_init(struct dvc_arena *arena, uint8_t *shm, uint64_t bytes)
{
    *arena = (struct dvc_arena){.shm = shm, .end = bytes, .unused = DV_SHM_ARENA_OFFSET};
    pthread_mutex_init(&arena->lock, NULL);
    RB_INIT(&arena->by_offset);
    RB_INIT(&arena->by_size);
    return 0;
}

static struct dvc_extent *new_extent(struct dvc_arena *arena, uint64_t offset, uint64_t bytes)
{
    struct dvc_extent *extent = calloc(1, sizeof *extent);
    if (!extent)
        return NULL;
    extent->offset = offset;
    extent->bytes = bytes;
    extent->small_class = -1;
    RB_INSERT(dvc_offset_tree, &arena->by_offset, extent);
    return extent;
}

static struct dvc_extent *take_pages(struct dvc_arena *arena, uint64_t bytes)
{
    struct dvc_extent wanted = {.bytes = bytes, .offset = 0};
    struct dvc_extent *extent = RB_NFIND(dvc_size_tree, &arena->by_size, &wanted);

    if (!extent) {
        if (arena->end - arena->unused < bytes)
            return NULL;
        extent = new_extent(arena, arena->unused, bytes);
        if (extent)
            arena->unused += bytes;
        return extent;
    }
    RB_REMOVE(dvc_size_tree, &arena->by_size, extent);
    extent->is_free = false;
    arena->warm_bytes -= extent->warm;
    if (extent->bytes > bytes) {
        uint64_t whole = extent->bytes;
        extent->bytes = bytes;
        struct dvc_extent *rest = new_extent(arena, extent->offset + bytes, whole - bytes);
        if (rest) {
            rest->is_free = true;
            rest->warm = (uint64_t)((unsigned __int128)extent->warm * rest->bytes / whole);
            arena->warm_bytes += rest->warm;
            RB_INSERT(dvc_size_tree, &arena->by_size, rest);
        } else {
            extent->bytes = whole;
        }
    }
    extent->warm = 0;
    return extent;
}

static struct dvc_extent *join(struct dvc_arena *arena, struct dvc_extent *a, struct dvc_extent *b)
{
    if (!a || !b || !a->is_free || !b->is_free || a->small_class >= 0 || b->small_class >= 0 ||
        a->offset + a->bytes != b->offset)
        return NULL;
    RB_REMOVE(dvc_size_tree, &arena->by_size, a);
    RB_REMOVE(dvc_size_tree, &arena->by_size, b);
    RB_REMOVE(dvc_offset_tree, &arena->by_offset, b);
    a->bytes += b->bytes;
    a->warm += b->warm;
    free(b);
    RB_INSERT(dvc_size_tree, &arena->by_size, a);
    return a;
}

static void put_pages(struct dvc_arena *arena, struct dvc_extent *extent)
{
    uint64_t most = arena->largest < DV_ARENA_WARM_MIN   ? DV_ARENA_WARM_MIN
                    : arena->largest > DV_ARENA_WARM_MAX ? DV_ARENA_WARM_MAX
                                                         : arena->largest;

    extent->is_free = true;
    if (arena->warm_bytes + extent->bytes > most)
        madvise(arena->shm + extent->offset, extent->bytes, MADV_REMOVE);
    else
        arena->warm_bytes += extent->warm = extent->bytes;
    RB_INSERT(dvc_size_tree, &arena->by_size, extent);
    struct dvc_extent *joined = join(arena, RB_PREV(dvc_offset_tree, &arena->by_offset, extent), extent);
    extent = joined ? joined : extent;
    join(arena, extent, RB_NEXT(dvc_offset_tree, &arena->by_offset, extent));
}

/* Small blocks are made a slab at a time and stay small blocks. */
struct dvc_slab {
    struct dvc_slab *next;
    struct dvc_extent blocks[];
};

static bool refill_class(struct dvc_arena *arena, int size_class)
{
    uint64_t block = UINT64_C(1) << (SMALLEST_SHIFT + size_class);
    struct dvc_extent *pages = take_pages(arena, SLAB_BYTES + DV_ARENA_GUARD_BYTES);

    if (!pages)
        return false;
    uint64_t base = pages->offset, count = SLAB_BYTES / block;
    struct dvc_slab *slab = NULL;
    if (pages->bytes == SLAB_BYTES + DV_ARENA_GUARD_BYTES) /* else: no memory to split a larger extent */
        slab = calloc(1, sizeof *slab + count * sizeof slab->blocks[0]);
    if (!slab) {
        put_pages(arena, pages);
        return false;
    }
    RB_REMOVE(dvc_offset_tree, &arena->by_offset, pages);
    free(pages);
    slab->next = arena->slabs;
    arena->slabs = slab;
    for (uint64_t i = count; i-- > 0;) {
        struct dvc_extent *extent = &slab->blocks[i];
        *extent = (struct dvc_extent){.next = arena->small_free[size_class],
                                      .offset = base + i * block,
                                      .bytes = block,
                                      .small_class = size_class,
                                      .is_free = true};
        RB_INSERT(dvc_offset_tree, &arena->by_offset, extent);
        arena->small_free[size_class] = extent;
    }
    return true;
}

uint64_t dvc_arena_alloc(struct dvc_arena *arena, uint64_t bytes)
{
    struct dvc_extent *extent = NULL;

    if (bytes == 0)
        bytes = 1;
    if (bytes > arena->end)
        return 0;
    pthread_mutex_lock(&arena->lock);
    if (bytes <= DV_ARENA_SMALL_MAX) {
        int size_class = 0;
        while ((UINT64_C(1) << (SMALLEST_SHIFT + size_class)) < bytes)
            size_class++;
        if (arena->small_free[size_class] || refill_class(arena, size_class)) {
            extent = arena->small_free[size_class];
            arena->small_free[size_class] = extent->next;
            extent->is_free = false;
        }
    } else {
        extent = take_pages(arena, ((bytes + DV_PAGE - 1) & ~(uint64_t)(DV_PAGE - 1)) + DV_ARENA_GUARD_BYTES);
        if (extent && extent->bytes > arena->largest)
            arena->largest = extent->bytes;
    }
    pthread_mutex_unlock(&arena->lock);
    return extent ? extent->offset : 0;
}

void dvc_arena_free(struct dvc_arena *arena, uint64_t offset)
{
    struct dvc_extent wanted = {.offset = offset};

    pthread_mutex_lock(&arena->lock);
    struct dvc_extent *extent = RB_FIND(dvc_offset_tree, &arena->by_offset, &wanted);
    if (!extent || extent->is_free) {
        pthread_mutex_unlock(&arena->lock); /* the worker named an offset that is no allocated block */
        return;
    }
    if (extent->small_class >= 0) {
        extent->is_free = true;
        extent->next = arena->small_free[extent->small_class];
        arena->small_free[extent->small_class] = extent;
    } else {
        put_pages(arena, extent);
    }
    pthread_mutex_unlock(&arena->lock);
}

void dvc_arena_end(struct dvc_arena *arena)
{
    struct dvc_extent *extent;

    while ((extent = RB_ROOT(&arena->by_offset))) {
        RB_REMOVE(dvc_offset_tree, &arena->by_offset, extent);
        if (extent->small_class < 0)
            free(extent);
    }
    while (arena->slabs) {
        struct dvc_slab *next = arena->slabs->next;
        free(arena->slabs);
        arena->slabs = next;
    }
}
