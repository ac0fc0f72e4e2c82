/* Timers on the event loop (see timers.h). */
#include "src/arbiter/system/timers.h"

static dv_ns now(struct dv_timers *timers)
{
    (void)timers;
    return dv_now();
}

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_timer *timer = userdata;

    (void)source;
    (void)usec;
    timer->fired(timer->owner);
    return 0;
}

static int set(struct dv_timers *timers, struct dv_timer *timer, dv_ns when)
{
    sd_event *event = ((struct dvd_event_timers *)timers)->event;
    sd_event_source *source = timer->source;
    uint64_t usec = when / DV_NS_PER_US + 1;

    if (when == 0)
        return source ? sd_event_source_set_enabled(source, SD_EVENT_OFF) : 0;
    int error = source ? sd_event_source_set_time(source, usec)
                       : sd_event_add_time(event, &source, CLOCK_MONOTONIC, usec, 1, on_time, timer);
    timer->source = source;
    return error < 0 ? error : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void drop(struct dv_timers *timers, struct dv_timer *timer)
{
    (void)timers;
    timer->source = sd_event_source_disable_unref(timer->source);
}

void dvd_event_timers_init(struct dvd_event_timers *timers, sd_event *event)
{
    *timers = (struct dvd_event_timers){.timers = {.now = now, .set = set, .drop = drop}, .event = event};
}
