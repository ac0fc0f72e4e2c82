/* The command ring: one writer (the client, under a lock of its own) and one reader (the worker).
 * Positions count bytes ever written; the ring's size is a power of two. */
#ifndef DV_WIRE_SESSION_RING_H
#define DV_WIRE_SESSION_RING_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/futex.h"
#include "src/wire/session/record.h"
#include "src/wire/session/shm.h"

#define DV_RING_MASK (DV_SHM_RING_BYTES - 1)

static inline uint64_t dv_record_align(uint64_t bytes)
{
    return (bytes + DV_RECORD_ALIGN - 1) & ~(uint64_t)(DV_RECORD_ALIGN - 1);
}

/* ---- the client's end ---- */

struct dv_ring_writer {
    struct dv_shm_header *header;
    uint8_t *data;
    uint64_t tail;      /* ours; published in the header */
    uint64_t head_seen; /* the reader's position when last looked at */
};

static inline void dv_ring_writer_init(struct dv_ring_writer *w, void *shm)
{
    w->header = shm;
    w->data = (uint8_t *)shm + DV_SHM_RING_OFFSET;
    w->tail = atomic_load(&w->header->ring_tail);
    w->head_seen = atomic_load(&w->header->ring_head);
}

/* Room for one record of `bytes` (a multiple of 8, at most DV_MAX_RECORD_BYTES), or NULL when the
 * ring is full. The record becomes visible with dv_ring_publish. */
static inline void *dv_ring_reserve(struct dv_ring_writer *w, uint64_t bytes)
{
    uint64_t at = w->tail & DV_RING_MASK;
    uint64_t to_end = DV_SHM_RING_BYTES - at;
    uint64_t need = bytes <= to_end ? bytes : bytes + to_end;

    if (DV_SHM_RING_BYTES - (w->tail - w->head_seen) < need) {
        w->head_seen = atomic_load_explicit(&w->header->ring_head, memory_order_acquire);
        if (w->tail - w->head_seen > DV_SHM_RING_BYTES)
            w->head_seen = w->tail - DV_SHM_RING_BYTES; /* invalid: treat the ring as full */
        if (DV_SHM_RING_BYTES - (w->tail - w->head_seen) < need)
            return NULL;
    }
    if (bytes > to_end) {
        struct dv_record pad = {.bytes = (uint32_t)to_end, .op = 0};
        memcpy(w->data + at, &pad, sizeof pad);
        w->tail += to_end;
        at = 0;
    }
    return w->data + at;
}

static inline void dv_ring_publish(struct dv_ring_writer *w, uint64_t bytes)
{
    w->tail += bytes;
    atomic_store_explicit(&w->header->ring_tail, w->tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&w->header->worker_asleep, memory_order_relaxed) &&
        atomic_exchange(&w->header->worker_asleep, 0))
        dv_futex_wake(&w->header->worker_asleep, 1);
}

/* ---- the worker's end ---- */

struct dv_ring_reader {
    struct dv_shm_header *header;
    const uint8_t *data;
    uint64_t head;      /* ours; published in the header */
    uint64_t tail_seen; /* the writer's position when last looked at */
};

static inline void dv_ring_reader_init(struct dv_ring_reader *r, void *shm)
{
    r->header = shm;
    r->data = (const uint8_t *)shm + DV_SHM_RING_OFFSET;
    r->head = 0;
    r->tail_seen = 0;
}

static inline bool dv_ring_look(struct dv_ring_reader *r)
{
    if (r->tail_seen == r->head)
        r->tail_seen = atomic_load_explicit(&r->header->ring_tail, memory_order_acquire);
    return r->tail_seen != r->head;
}

/* The next record's head (a private copy), or -EAGAIN when the ring is empty, or -EPROTO when the
 * writer broke the format: the session cannot go on then. */
static inline int dv_ring_peek(struct dv_ring_reader *r, struct dv_record *record)
{
    for (;;) {
        if (!dv_ring_look(r))
            return -EAGAIN;
        uint64_t available = r->tail_seen - r->head;
        uint64_t at = r->head & DV_RING_MASK;
        if (available > DV_SHM_RING_BYTES || available < sizeof *record || r->head % DV_RECORD_ALIGN)
            return -EPROTO;
        memcpy(record, r->data + at, sizeof *record);
        if (record->bytes < sizeof *record || record->bytes % DV_RECORD_ALIGN || record->bytes > available ||
            record->bytes > DV_SHM_RING_BYTES - at)
            return -EPROTO;
        if (record->op != 0)
            return record->bytes <= DV_MAX_RECORD_BYTES ? 0 : -EPROTO;
        r->head += record->bytes;
    }
}

/* Copies out the record just peeked (its length is the peeked one, whatever the writer does
 * meanwhile) and gives its room back. */
static inline void dv_ring_take(struct dv_ring_reader *r, const struct dv_record *record, void *into)
{
    memcpy(into, r->data + (r->head & DV_RING_MASK), record->bytes);
    memcpy(into, record, sizeof *record);
    r->head += record->bytes;
    atomic_store_explicit(&r->header->ring_head, r->head, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&r->header->ring_waiting, memory_order_relaxed) &&
        atomic_exchange(&r->header->ring_waiting, 0))
        dv_futex_wake(&r->header->ring_waiting, INT_MAX);
}

#endif
