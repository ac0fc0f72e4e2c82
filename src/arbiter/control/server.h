/* The control socket: HTTP with JSON answers, for operators and for tenants who ask about
 * themselves. */
#ifndef DVD_CONTROL_SERVER_H
#define DVD_CONTROL_SERVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/system/budget.h"
#include "src/arbiter/control/rate_limit.h"
#include "src/arbiter/control/listings.h"

struct dv_arbiter;
struct MHD_Daemon;
struct dv_hold;
struct dv_session;
struct dvd_tenant_device;
struct json_t;

struct dv_control {
    struct MHD_Daemon *http;
    int fd;
    bool activated; /* handed over by the service manager, who keeps the file */
    sd_event_source *listening;
    sd_event_source *io;
    sd_event_source *timer;
    struct dv_budget budget;
    struct dv_callers callers;
    struct dv_listings listings;
    struct dv_hold *holds; /* processes for whose sake the daemon does not end when idle */
    unsigned hold_count;
};

/* Who asks, as the kernel says. */
struct dv_control_peer {
    uid_t uid;
    bool is_operator;
};

/* Makes the socket (or takes the given one, unless it is -1). Returns 0 or a negative errno. */
int dv_control_init(struct dv_arbiter *arbiter, int activated_fd);
void dv_control_fini(struct dv_arbiter *arbiter);

/* After a reload: the socket's mode and group follow the configuration. */
void dv_control_apply_config(struct dv_arbiter *arbiter);

/* A document; NULL when memory is short. The caller frees the text. */
char *dv_control_version(const struct dv_arbiter *arbiter);
/* The rows of listings; NULL when memory is short. sessions: how many work on the device. The warnings,
 * which are for all devices the same, stay the caller's. */
struct json_t *dv_control_session(struct dv_arbiter *arbiter, const struct dv_session *session);
struct json_t *dv_control_device(struct dv_arbiter *arbiter, uint32_t index, unsigned sessions,
                                 struct json_t *warnings);
struct json_t *dv_control_warnings(const struct dv_arbiter *arbiter);
/* A tenant's share of a device, and how it fares there. */
struct json_t *dv_control_place(struct dv_arbiter *arbiter, const struct dvd_tenant_device *place,
                                uint32_t index);

/* What operators and tenants ask and change while everything runs (live.c). Arguments come from the
 * request's query; a missing one is NULL. Return the HTTP status; *body is the answer or the error
 * as JSON, NULL when memory is short. */
struct dv_live_arguments {
    const char *device, *request, *limit, *weight, *class, *name, *slice_ns, *memory, *memory_request;
};
unsigned dv_live_set_share(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                           const char *tenant_or_session, bool is_session,
                           const struct dv_live_arguments *arguments, char **body);
unsigned dv_live_set_policy(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                            const char *device, const struct dv_live_arguments *arguments,
                            char **body);
unsigned dv_live_explain(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                         const char *session, char **body);
/* The ledger of device memory against the truth. */
char *dv_control_check(struct dv_arbiter *arbiter);
/* A document as text with a newline; takes over the document, which may be NULL. */
char *dv_control_render(struct json_t *document);

#endif
