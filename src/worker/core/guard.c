/* The objects' view of the shared memory (see guard.h). */
#include "src/worker/core/guard.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/wire/session/shm.h"

/* On both sides of the view nothing can be accessed, as far as a 32-bit index of 8-byte elements
 * reaches: our other view and the heap are further away. */
#define FENCE_BYTES (UINT64_C(32) << 30)

/* The count of a page that stays open: small objects share it, which come and go too often for a system
 * call each, or it lies in a piece that was opened whole, or it has more objects than can be counted. */
#define FOR_GOOD UINT16_MAX

static uint64_t all_bytes(const struct dvk_guard *guard)
{
    return guard->pages * DV_PAGE + 2 * FENCE_BYTES;
}

int dvk_guard_init(struct dvk_guard *guard, int fd, uint64_t bytes)
{
    *guard = (struct dvk_guard){.pages = (bytes + DV_PAGE - 1) / DV_PAGE};
    /* with pages larger than the arena's, ends of objects cannot be told apart */
    bool guarded = sysconf(_SC_PAGESIZE) == DV_PAGE;

    uint8_t *all = mmap(NULL, all_bytes(guard), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return -errno;
    guard->view = all + FENCE_BYTES;
    if (mmap(guard->view, bytes, guarded ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             fd, 0) == MAP_FAILED) {
        int error = errno;
        munmap(all, all_bytes(guard));
        return -error;
    }
    madvise(guard->view, bytes, MADV_DONTDUMP);
    if (guarded) {
        void *counts = mmap(NULL, guard->pages * sizeof *guard->counts, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (counts == MAP_FAILED) {
            munmap(all, all_bytes(guard));
            return -ENOMEM;
        }
        guard->counts = counts;
    }
    guard->piece = (guard->pages + DV_GUARD_PIECES_MAX - 1) / DV_GUARD_PIECES_MAX;
    if (guard->piece < DV_GUARD_PIECE_MIN)
        guard->piece = DV_GUARD_PIECE_MIN;
    pthread_mutex_init(&guard->lock, NULL);
    return 0;
}

void dvk_guard_fini(struct dvk_guard *guard)
{
    if (guard->counts)
        munmap(guard->counts, guard->pages * sizeof *guard->counts);
    munmap(guard->view - FENCE_BYTES, all_bytes(guard));
}

static int protect(const struct dvk_guard *guard, uint64_t first, uint64_t end, int access)
{
    return mprotect(guard->view + first * DV_PAGE, (end - first) * DV_PAGE, access) < 0 ? -errno : 0;
}

/* How many ranges of open pages a run of pages touches. */
static int neighbours(const struct dvk_guard *guard, uint64_t first, uint64_t end)
{
    return (first > 0 && guard->counts[first - 1]) + (end < guard->pages && guard->counts[end]);
}

static void count_out(struct dvk_guard *guard, uint64_t first, uint64_t end)
{
    for (uint64_t page = first; page < end;) {
        if (guard->counts[page] != 1) {
            if (guard->counts[page] && guard->counts[page] != FOR_GOOD)
                guard->counts[page]--;
            page++;
            continue;
        }
        uint64_t start = page;
        while (page < end && guard->counts[page] == 1)
            guard->counts[page++] = 0;
        /* If the kernel refuses, as for a client with too many overlapping objects, they stay open. */
        protect(guard, start, page, PROT_NONE);
        guard->ranges += neighbours(guard, start, page) - 1;
    }
}

static int count_in(struct dvk_guard *guard, uint64_t first, uint64_t end, bool for_good)
{
    for (uint64_t page = first; page < end;) {
        if (guard->counts[page]) {
            if (for_good)
                guard->counts[page] = FOR_GOOD;
            else if (guard->counts[page] != FOR_GOOD)
                guard->counts[page]++; /* at FOR_GOOD it stays */
            page++;
            continue;
        }
        uint64_t start = page;
        while (page < end && !guard->counts[page])
            guard->counts[page++] = for_good ? FOR_GOOD : 1;
        int error = protect(guard, start, page, PROT_READ | PROT_WRITE);
        if (error < 0) {
            for (uint64_t i = start; i < page; i++)
                guard->counts[i] = 0;
            if (!for_good)
                count_out(guard, first, start);
            return error;
        }
        guard->ranges += 1 - neighbours(guard, start, page);
    }
    return 0;
}

/* With the lock held. */
static void close_oldest(struct dvk_guard *guard)
{
    uint32_t at = guard->oldest;

    guard->oldest = (at + 1) % DV_GUARD_LINGERING;
    guard->lingering_count--;
    count_out(guard, guard->lingering[at].first, guard->lingering[at].end);
}

void *dvk_guard_open(struct dvk_guard *guard, uint64_t offset, uint64_t bytes)
{
    uint64_t first = offset / DV_PAGE, end = (offset + (bytes ? bytes : 1) - 1) / DV_PAGE + 1;
    bool for_good = bytes <= DV_ARENA_SMALL_MAX;
    int error = 0;

    if (end > guard->pages)
        return NULL;
    if (!guard->counts)
        return guard->view + offset;
    pthread_mutex_lock(&guard->lock);
    while (guard->ranges >= DV_GUARD_RANGES_MAX && guard->lingering_count)
        close_oldest(guard);
    if (guard->ranges >= DV_GUARD_RANGES_MAX) {
        first = first / guard->piece * guard->piece;
        end = (end + guard->piece - 1) / guard->piece * guard->piece;
        if (first * DV_PAGE < DV_SHM_ARENA_OFFSET)
            first = DV_SHM_ARENA_OFFSET / DV_PAGE; /* kernels must not reach the rings */
        if (end > guard->pages)
            end = guard->pages;
        for_good = true;
    }
    error = count_in(guard, first, end, for_good);
    pthread_mutex_unlock(&guard->lock);
    return error < 0 ? NULL : guard->view + offset;
}

void dvk_guard_close(struct dvk_guard *guard, uint64_t offset, uint64_t bytes)
{
    uint64_t first = offset / DV_PAGE, end = (offset + (bytes ? bytes : 1) - 1) / DV_PAGE + 1;

    if (!guard->counts || end > guard->pages || bytes <= DV_ARENA_SMALL_MAX)
        return;
    pthread_mutex_lock(&guard->lock);
    if (guard->lingering_count == DV_GUARD_LINGERING)
        close_oldest(guard);
    uint32_t at = (guard->oldest + guard->lingering_count++) % DV_GUARD_LINGERING;
    guard->lingering[at].first = first;
    guard->lingering[at].end = end;
    pthread_mutex_unlock(&guard->lock);
}

void dvk_guard_settle(struct dvk_guard *guard)
{
    pthread_mutex_lock(&guard->lock);
    while (guard->lingering_count)
        close_oldest(guard);
    pthread_mutex_unlock(&guard->lock);
}
