/* Timers on a clock that the owner chooses: the monotonic clock in divvyd, virtual time in tests and in
 * divvy-sim. */
#ifndef DV_BASE_TIMERS_H
#define DV_BASE_TIMERS_H

#include "src/base/clock.h"

struct dv_timer {
    void (*fired)(void *owner); /* the timer is off when this is called */
    void *owner;
    void *source; /* of the implementation; NULL: the timer was never set */
};

struct dv_timers {
    dv_ns (*now)(struct dv_timers *timers);
    /* Fires once at `when`, or as soon as possible; 0 switches the timer off. Returns 0 or a negative errno. */
    int (*set)(struct dv_timers *timers, struct dv_timer *timer, dv_ns when);
    /* Switches it off and frees what the implementation has for it. */
    void (*drop)(struct dv_timers *timers, struct dv_timer *timer);
};

#endif
