/* The store of a session: memory that outlives the worker. Contents of memory objects are put into pages of their own,
 * so that what is not needed any more costs nothing. */
#ifndef DV_WORKER_CORE_STORE_H
#define DV_WORKER_CORE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct dvk_stored {
    TAILQ_ENTRY(dvk_stored) in_store;
    uint64_t at, bytes; /* whole pages */
};

struct dvk_store {
    uint8_t *base; /* NULL: there is none */
    uint64_t bytes;
    TAILQ_HEAD(, dvk_stored) taken; /* in the order of their places */
};

/* Maps a store. The first page is never given out. Returns 0 or a negative errno. The descriptor stays the caller's. */
int dvk_store_open(struct dvk_store *store, int fd, uint64_t bytes);
void dvk_store_close(struct dvk_store *store);
/* Room for so many bytes, at an offset above 0; 0: there is none. */
uint64_t dvk_store_take(struct dvk_store *store, uint64_t bytes);
/* Takes the room at this place, if it is free. Returns false: it is not, or not within the store. */
bool dvk_store_take_at(struct dvk_store *store, uint64_t at, uint64_t bytes);
/* Gives room back, and its memory. */
void dvk_store_give(struct dvk_store *store, uint64_t at);

#endif
