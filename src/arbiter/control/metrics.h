/* Metrics in the text format of Prometheus. There can be many lines, so they are made one at a time. */
#ifndef DVD_CONTROL_METRICS_H
#define DVD_CONTROL_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dvd_control;
struct dvd_tenant;

/* The next line. All zero: the first. */
struct dvd_metrics_place {
    size_t family;
    bool has_head; /* the family's description has been written */
    uint32_t account, device;

    /* the sum over the tenants of the account */
    bool in_account, has_present;    /* it is begun, and one of them has a session on the device */
    const struct dvd_tenant *tenant; /* the next one */
    uint64_t sum;
};

/* Writes the next line or lines, perhaps none yet, and moves on. Returns false at the end. */
bool dvd_metrics_next(const struct dvd_control *control, struct dvd_metrics_place *place, char *text, size_t bytes);
/* It is about to be freed. */
void dvd_metrics_tenant_goes(struct dvd_metrics_place *place, const struct dvd_tenant *tenant);

#endif
