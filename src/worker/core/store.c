/* The store of a session (see store.h). */
#include "src/worker/core/store.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "src/wire/session/shm.h"

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + DV_PAGE - 1) / DV_PAGE * DV_PAGE;
}

int dvk_store_open(struct dvk_store *store, int fd, uint64_t bytes)
{
    struct stat facts;

    *store = (struct dvk_store){.bytes = bytes};
    TAILQ_INIT(&store->taken);
    if (bytes < 2 * DV_PAGE || bytes % DV_PAGE || fstat(fd, &facts) < 0 || (uint64_t)facts.st_size < bytes)
        return -EINVAL;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, bytes, MADV_DONTDUMP);
    store->base = base;
    return 0;
}

void dvk_store_close(struct dvk_store *store)
{
    struct dvk_stored *stored;

    while ((stored = TAILQ_FIRST(&store->taken))) {
        TAILQ_REMOVE(&store->taken, stored, in_store);
        free(stored);
    }
    if (store->base)
        munmap(store->base, store->bytes);
    store->base = NULL;
}

/* Puts room behind another, or in front of all (NULL). */
static uint64_t note(struct dvk_store *store, struct dvk_stored *before, uint64_t at, uint64_t bytes)
{
    struct dvk_stored *stored = malloc(sizeof *stored);

    if (!stored)
        return 0;
    *stored = (struct dvk_stored){.at = at, .bytes = bytes};
    if (before)
        TAILQ_INSERT_AFTER(&store->taken, before, stored, in_store);
    else
        TAILQ_INSERT_HEAD(&store->taken, stored, in_store);
    return at;
}

uint64_t dvk_store_take(struct dvk_store *store, uint64_t bytes)
{
    struct dvk_stored *before = NULL, *stored;
    uint64_t at = DV_PAGE, pages = whole_pages(bytes);

    if (!store->base || bytes == 0 || bytes > store->bytes)
        return 0;
    TAILQ_FOREACH (stored, &store->taken, in_store) {
        if (stored->at - at >= pages)
            break;
        at = stored->at + stored->bytes;
        before = stored;
    }
    return pages <= store->bytes - at ? note(store, before, at, pages) : 0;
}

bool dvk_store_take_at(struct dvk_store *store, uint64_t at, uint64_t bytes)
{
    struct dvk_stored *before = NULL, *stored;
    uint64_t pages = whole_pages(bytes);

    if (!store->base || at < DV_PAGE || at % DV_PAGE || bytes == 0 || bytes > store->bytes || at > store->bytes - pages)
        return false;
    TAILQ_FOREACH (stored, &store->taken, in_store) {
        if (stored->at >= at)
            break;
        before = stored;
    }
    if ((before && before->at + before->bytes > at) || (stored && at + pages > stored->at))
        return false;
    return note(store, before, at, pages) != 0;
}

void dvk_store_give(struct dvk_store *store, uint64_t at)
{
    struct dvk_stored *stored;

    TAILQ_FOREACH (stored, &store->taken, in_store) {
        if (stored->at != at)
            continue;
        madvise(store->base + stored->at, stored->bytes, MADV_REMOVE);
        TAILQ_REMOVE(&store->taken, stored, in_store);
        free(stored);
        return;
    }
}
