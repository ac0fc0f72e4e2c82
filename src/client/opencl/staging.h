/* Captured writes wait here: a part of the arena used as a ring, so that it stays in the caches. The worker clears a
 * block's flag when its bytes are taken; blocks are reclaimed in the order given out. The caller holds the session's
 * staging lock. */
#ifndef DV_CLIENT_OPENCL_STAGING_H
#define DV_CLIENT_OPENCL_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#define DV_STAGING_BYTES (UINT64_C(32) << 20)
#define DV_STAGING_BLOCKS 8192u
#define DV_STAGING_FLAG_BYTES 64 /* in front of each block, a cache line of its own */

struct dvc_staging {
    uint64_t base;         /* offset in the shared memory; 0: not made yet */
    uint64_t head, tail;   /* bytes ever given out and reclaimed */
    uint32_t first, count; /* blocks under way, a ring */
    struct {
        uint64_t flag;  /* offset of its flag */
        uint64_t bytes; /* with the flag and bytes skipped at the end */
    } blocks[DV_STAGING_BLOCKS];
};

/* Takes room for `bytes`. Returns the offset of the flag, with the data DV_STAGING_FLAG_BYTES behind it, or 0 when
 * there is no room now. */
uint64_t dvc_staging_take(struct dvc_staging *staging, uint8_t *shm, uint64_t bytes);

#endif
