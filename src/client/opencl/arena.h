/* Allocation of the session's arena: offsets in the shared memory. The client allocates; the worker
 * only checks bounds. Thread-safe. */
#ifndef DV_CLIENT_OPENCL_ARENA_H
#define DV_CLIENT_OPENCL_ARENA_H

#include <bsd/sys/tree.h>
#include <pthread.h>
#include <stdint.h>

struct dv_extent;
struct dv_slab;
RB_HEAD(dv_offset_tree, dv_extent);
RB_HEAD(dv_size_tree, dv_extent);

struct dv_arena {
    pthread_mutex_t lock;
    uint8_t *shm;
    uint64_t end;       /* of the shared memory */
    uint64_t unused;    /* nothing was ever allocated from here on */
    uint64_t warm_bytes; /* free but still backed by memory */
    uint64_t largest;    /* of the blocks so far */
    struct dv_offset_tree by_offset; /* all extents */
    struct dv_size_tree by_size;   /* the free ones */
    struct dv_extent *small_free[4];
    struct dv_slab *slabs;
};

int dv_arena_init(struct dv_arena *arena, uint8_t *shm, uint64_t bytes);
/* Forgets all blocks; the shared memory is the caller's. */
void dv_arena_end(struct dv_arena *arena);
/* An offset aligned to 256 bytes, or 0 when the arena is full or the process has no memory. */
uint64_t dv_arena_alloc(struct dv_arena *arena, uint64_t bytes);
void dv_arena_free(struct dv_arena *arena, uint64_t offset);

#endif
