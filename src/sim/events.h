/* Pending events of a simulation, in the order of time. */
#ifndef DV_SIM_EVENTS_H
#define DV_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/clock.h"

enum dv_event_type {
    DV_EVENT_JOIN,
    DV_EVENT_LEAVE,
    DV_EVENT_ARRIVAL,
    DV_EVENT_START,
    DV_EVENT_TOLD,   /* the daemon has sent a session a message */
    DV_EVENT_COPIED, /* a piece of its set is copied */
    DV_EVENT_KERNEL_END,
    DV_EVENT_LINGER_END,
    DV_EVENT_RELEASED,
    DV_EVENT_TIMER
};

struct dv_event {
    dv_ns at;
    uint64_t order; /* of events at one time, the older first: the same seed gives the same run */
    enum dv_event_type type;
    void *subject;
    uint64_t generation; /* stale when the session has moved on */
};

struct dv_event_queue {
    struct dv_event *heap;
    size_t count, capacity;
    uint64_t order;
    bool out_of_memory; /* an event was lost */
};

void dv_events_push(struct dv_event_queue *queue, dv_ns at, enum dv_event_type type, void *subject,
                    uint64_t generation);
/* The queue must not be empty. */
struct dv_event dv_events_pop(struct dv_event_queue *queue);
void dv_events_fini(struct dv_event_queue *queue);

#endif
