/* The state file (src/wire/restart/state.h): divvyd keeps in it, while it runs, what its successor must
 * know. A session or tenant that cannot be recorded, because there is no file or no room in it, is served
 * but forgotten when the daemon restarts: its record is NULL, and writing to it does nothing. */
#ifndef DVD_RESTART_STATE_H
#define DVD_RESTART_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/policy/policy.h"
#include "src/wire/restart/state.h"

/* One kind of records. The first `touched` may be in use; those that were given back are listed. */
struct dvd_state_table {
    uint8_t *records;
    uint32_t record_bytes, capacity, touched;
    uint32_t *free; /* indices */
    uint32_t free_count, free_capacity;
};

struct dvd_state {
    struct dv_state_header *header; /* NULL: there is no file */
    struct dvd_state_table tenants, tenant_devices, sessions, leases;
};

/* Maps the file in the directory, or makes it. *inherited: it is the file of an earlier daemon since the
 * machine was started, with the records that it left. Returns 0 or a negative errno. */
int dvd_state_open(struct dvd_state *state, const char *directory, bool *inherited);
/* Forgets all records. */
void dvd_state_clear(struct dvd_state *state);
void dvd_state_close(struct dvd_state *state);
void dvd_state_remove(const char *directory);

/* A new record, all zero, to be filled; NULL: it cannot be kept. It counts after dvd_state_commit. */
void *dvd_state_add(struct dvd_state_table *table);
void dvd_state_commit(void *record);
/* The record may be NULL. */
void dvd_state_drop(struct dvd_state_table *table, void *record);

uint32_t dvd_state_index(const struct dvd_state_table *table, const void *record);
/* The record at an index that comes from a file: NULL when there is none in use. */
void *dvd_state_at(const struct dvd_state_table *table, uint32_t index);

struct dv_state_share dvd_state_share_of(const struct dv_share *share);
/* Returns false when it makes no sense. */
bool dvd_state_share_to(const struct dv_state_share *record, struct dv_share *share);

#endif
