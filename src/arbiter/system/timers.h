/* Timers on the event loop and the monotonic clock. */
#ifndef DVD_SYSTEM_TIMERS_H
#define DVD_SYSTEM_TIMERS_H

#include <systemd/sd-event.h>

#include "src/base/timers.h"

struct dvd_event_timers {
    struct dv_timers timers;
    sd_event *event;
};

void dvd_event_timers_init(struct dvd_event_timers *timers, sd_event *event);

#endif
