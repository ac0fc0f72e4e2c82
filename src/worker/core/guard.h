/* The objects' view of the shared memory: the part of the arena that kernels reach. The worker maps the shared
 * memory twice. One view is for its own reading and writing; this one is what the vendor gets for
 * memory objects. In it only the pages of objects that exist can be accessed, so a kernel that runs
 * past its buffer faults, as it would without divvy, and neither changes other buffers nor
 * allocates unreserved memory. Any thread. */
#ifndef DV_WORKER_CORE_GUARD_H
#define DV_WORKER_CORE_GUARD_H

#include <pthread.h>
#include <stdint.h>

/* Ranges of open pages are mappings of the kernel's, and a process may have 65530 of those by default
 * (vm.max_map_count). With more ranges than this whole pieces are opened, without guards in them. */
#define DV_GUARD_RANGES_MAX 16384
/* No view has more such pieces, and none is smaller than DV_GUARD_PIECE_MIN pages. */
#define DV_GUARD_PIECES_MAX 4096
#define DV_GUARD_PIECE_MIN 16384

/* This many released objects keep their pages open until others follow them: a program that creates
 * and releases one buffer after the other comes back to the same pages, and needs no system call. */
#define DV_GUARD_LINGERING 8192

struct dvk_guard {
    pthread_mutex_t lock;
    uint8_t *view;
    uint64_t pages;
    uint64_t piece;   /* pages of one */
    uint16_t *counts; /* objects on each page; NULL: nothing is guarded */
    int64_t ranges;   /* of open pages */
    struct {
        uint64_t first, end;         /* pages */
    } lingering[DV_GUARD_LINGERING]; /* still counted; a ring */
    uint32_t oldest, lingering_count;
};

/* Maps the view. Returns 0 or a negative errno. */
int dvk_guard_init(struct dvk_guard *guard, int fd, uint64_t bytes);
void dvk_guard_fini(struct dvk_guard *guard);
/* Opens the pages of an object; the client may claim several in one place. The range must lie within
 * the shared memory. Returns where it is, or NULL when the kernel refuses. */
void *dvk_guard_open(struct dvk_guard *guard, uint64_t offset, uint64_t bytes);
/* The object is gone: pages that no other object has are closed later. */
void dvk_guard_close(struct dvk_guard *guard, uint64_t offset, uint64_t bytes);
/* Closes them now. */
void dvk_guard_settle(struct dvk_guard *guard);

#endif
