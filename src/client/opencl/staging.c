/* Staging of captured writes (see staging.h). */
#include "src/client/opencl/staging.h"

#include <stdatomic.h>

static void reclaim(struct dvc_staging *s, uint8_t *shm)
{
    while (s->count > 0) {
        uint64_t flag = s->blocks[s->first].flag;
        if (atomic_load_explicit((_Atomic uint32_t *)(shm + flag), memory_order_acquire))
            return;
        s->tail += s->blocks[s->first].bytes;
        s->first = (s->first + 1) % DV_STAGING_BLOCKS;
        s->count--;
    }
    s->head = s->tail = 0; /* empty: start again where the caches are warm */
}

uint64_t dvc_staging_take(struct dvc_staging *s, uint8_t *shm, uint64_t bytes)
{
    uint64_t need = DV_STAGING_FLAG_BYTES + ((bytes + 63) & ~UINT64_C(63));

    if (s->base == 0 || need > DV_STAGING_BYTES / 2)
        return 0;
    reclaim(s, shm);
    uint64_t at = s->head % DV_STAGING_BYTES;
    uint64_t skipped = at + need > DV_STAGING_BYTES ? DV_STAGING_BYTES - at : 0;
    if (s->count == DV_STAGING_BLOCKS || s->head + skipped + need - s->tail > DV_STAGING_BYTES)
        return 0;
    uint64_t flag = s->base + (skipped ? 0 : at);
    uint32_t block = (s->first + s->count++) % DV_STAGING_BLOCKS;
    s->blocks[block].flag = flag;
    s->blocks[block].bytes = skipped + need;
    s->head += skipped + need;
    atomic_store_explicit((_Atomic uint32_t *)(shm + flag), 1, memory_order_relaxed);
    return flag;
}
