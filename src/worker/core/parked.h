/* Writing and reading the entries that a worker leaves for the one that follows it (src/wire/session/parked.h). */
#ifndef DV_WORKER_CORE_PARKED_H
#define DV_WORKER_CORE_PARKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/wire/session/parked.h"
#include "src/wire/session/record.h"
#include "src/worker/core/store.h"

struct dvk_parked_writer {
    uint8_t *bytes;
    uint64_t used, capacity;
    uint64_t entries;
    bool is_broken; /* memory was short */
};

/* An entry with its two parts, either of which may be NULL. */
void dvk_parked_put(struct dvk_parked_writer *writer, const struct dv_parked_entry *entry,
                    const struct dv_record *message, const void *data);
/* Puts all entries into the store, with the head. Returns 0 or a negative errno. Frees the writer's memory. */
int dvk_parked_finish(struct dvk_parked_writer *writer, struct dvk_store *store);

struct dvk_parked_reader {
    const uint8_t *bytes; /* a copy: the store can still change */
    uint64_t size, at;
    uint64_t entries; /* left */
};

/* Takes the entries out of the store, and gives their room back. Returns 0, or -EPROTO: they are not sound. */
int dvk_parked_open(struct dvk_parked_reader *reader, struct dvk_store *store);
/* The next entry, with its parts behind it. Returns 1; 0: there is none; or -EPROTO. */
int dvk_parked_next(struct dvk_parked_reader *reader, struct dv_parked_entry *entry, const uint8_t **message,
                    const uint8_t **data);
void dvk_parked_close(struct dvk_parked_reader *reader);

#endif
