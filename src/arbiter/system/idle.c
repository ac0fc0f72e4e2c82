/* The end of an idle daemon (see idle.h). */
#include "src/arbiter/system/idle.h"

#include <string.h>

#include "src/arbiter/limits.h"
#include "src/base/log.h"

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_idle *idle = userdata;

    (void)source;
    (void)usec;
    idle->on_idle(idle->owner);
    return 0;
}

static void start_timer(struct dvd_idle *idle)
{
    if (idle->after_s == 0 || idle->timer)
        return;
    int error = sd_event_add_time_relative(idle->event, &idle->timer, CLOCK_MONOTONIC, idle->after_s * DV_S, 10 * DV_MS,
                                           on_time, idle);
    if (error < 0) /* the next release tries again */
        dv_error("cannot set the idle timer: %s", strerror(-error));
}

void dvd_idle_init(struct dvd_idle *idle, sd_event *event, unsigned after_s, void (*on_idle)(void *owner), void *owner)
{
    *idle = (struct dvd_idle){.event = event, .after_s = after_s, .on_idle = on_idle, .owner = owner};
    start_timer(idle);
}

void dvd_idle_fini(struct dvd_idle *idle)
{
    idle->timer = sd_event_source_disable_unref(idle->timer);
    idle->after_s = 0;
}

void dvd_idle_hold(struct dvd_idle *idle)
{
    idle->holds++;
    idle->timer = sd_event_source_disable_unref(idle->timer);
}

void dvd_idle_release(struct dvd_idle *idle)
{
    if (--idle->holds == 0)
        start_timer(idle);
}
