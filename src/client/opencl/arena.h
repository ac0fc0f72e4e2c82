/* Allocation of the session's arena: offsets in the shared memory. The client allocates; the worker
 * only checks bounds. Thread-safe. */
#ifndef DV_CLIENT_OPENCL_ARENA_H
#define DV_CLIENT_OPENCL_ARENA_H

#include <bsd/sys/tree.h>
#include <pthread.h>
#include <stdint.h>

struct dvc_extent;
struct dvc_slab;
RB_HEAD(dvc_offset_tree, dvc_extent);
RB_HEAD(dvc_size_tree, dvc_extent);

struct dvc_arena {
    pthread_mutex_t lock;
    uint8_t *shm;
    uint64_t end;                     /* of the shared memory */
    uint64_t unused;                  /* nothing was ever allocated at or above this */
    uint64_t warm_bytes;              /* free but still backed by memory */
    uint64_t largest;                 /* largest block so far */
    struct dvc_offset_tree by_offset; /* all extents */
    struct dvc_size_tree by_size;     /* the free ones */
    struct dvc_extent *small_free[4];
    struct dvc_slab *slabs;
};

int dvc_arena_init(struct dvc_arena *arena, uint8_t *shm, uint64_t bytes);
/* Forgets all blocks; the shared memory is the caller's. */
void dvc_arena_end(struct dvc_arena *arena);
/* An offset aligned to 256 bytes, or 0 when the arena is full or the process has no memory. */
uint64_t dvc_arena_alloc(struct dvc_arena *arena, uint64_t bytes);
void dvc_arena_free(struct dvc_arena *arena, uint64_t offset);

#endif
