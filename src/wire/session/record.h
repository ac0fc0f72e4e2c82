/* Records of the command ring: the three heads that every message starts with, and replies. */
#ifndef DV_WIRE_SESSION_RECORD_H
#define DV_WIRE_SESSION_RECORD_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define DV_RECORD_ALIGN 8u

struct dv_record {
    uint32_t bytes; /* of the whole record, a multiple of DV_RECORD_ALIGN */
    uint16_t op;    /* which message; 0 is padding at the ring's end */
    uint16_t reserved;
};
static_assert(sizeof(struct dv_record) == 8, "wire");

/* A call: the worker fills the reply block at an arena offset of the client's choosing. */
struct dv_call_head {
    struct dv_record record;
    uint64_t reply;       /* offset in the shared memory of a struct dv_reply */
    uint32_t reply_bytes; /* room behind the struct dv_reply */
    uint32_t reserved;
};
static_assert(sizeof(struct dv_call_head) == 24, "wire");

/* An object of the client in messages: of one kind, numbered from 1; 0: none. */
struct dv_object_id {
    uint32_t value;
};
#define DV_OBJECT_ID(value_) ((struct dv_object_id){.value = (value_)})

/* A command of a queue. Its wait list, wait_count times u32, stands at the record's end, padded to
 * 8 bytes. Events are named by slot + 1; 0 means none. */
struct dv_queue_head {
    struct dv_record record;
    uint64_t number; /* counts the queue's commands from 1 */
    struct dv_object_id queue;
    uint32_t event;
    uint32_t wait_count;
    uint32_t reserved[3];
};
static_assert(sizeof(struct dv_queue_head) == 40, "wire");

#define DV_MAX_WAITS 65536u

/* The reply to a call. The client sets state to DV_REPLY_PENDING, or DV_REPLY_SLEEPING when it
 * sleeps on it; the worker writes the rest and then DV_REPLY_DONE. */
enum dv_reply_state { DV_REPLY_PENDING = 0, DV_REPLY_SLEEPING = 1, DV_REPLY_DONE = 2 };

struct dv_reply {
    _Atomic uint32_t state; /* futex; enum dv_reply_state */
    int32_t status;         /* the API's error code */
    uint64_t bytes;         /* of the data that follow; can exceed what fitted */
};
static_assert(sizeof(struct dv_reply) == 16, "wire");

#endif
