/* Events of leases, as GET /v1/trace sends them, with the names of the sessions that they are about. For `divvy trace`
 * and `divvy record`. */
#ifndef DV_CLI_LEASE_EVENTS_H
#define DV_CLI_LEASE_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

struct dv_lease_event {
    uint64_t ns, session, value;
    uint64_t end_ns; /* of a command; 0: it is an event of a lease */
    unsigned device, count;
    bool more;
    bool is_part; /* of a launch that is sliced */
    char what[12];
    char verdict[12];    /* of a kernel: whether it can be sliced */
    char *name;          /* of a command; NULL: none */
    char *whole_because; /* of a kernel that cannot be sliced; NULL: no reason */
};

struct dv_named_session {
    uint64_t id;
    bool is_known; /* otherwise it came and went unseen, as one does that only tries whether there is a daemon */
    char tenant[128], command[256];
    UT_hash_handle hh;
};

struct dv_lease_events {
    struct dv_lease_event *all;
    size_t count, capacity;
    uint64_t lost;
    uint64_t began_ns, ended_ns; /* of listening, on CLOCK_MONOTONIC */
    struct dv_named_session *sessions;
    unsigned unnamed;  /* new sessions in the events since names were last asked for */
    uint64_t named_ns; /* when that was */
    json_t *devices;   /* at the beginning, or at the end if there are more then */
    json_t *tenants;   /* see dv_lease_events_share */
};

/* Listens for this long, or until the process is interrupted; also for commands of sessions, if they are wanted.
 * Returns an exit code other than 0 after a message. */
int dv_lease_events_listen(struct dv_lease_events *events, const char *wanted_directory, double seconds,
                           bool has_commands);
/* The session of an event; one that is not known has its number in place of its tenant. */
const struct dv_named_session *dv_lease_events_session(struct dv_lease_events *events, uint64_t id);
/* What a tenant could have of a device when it was first seen there; NULL: it was not. */
const json_t *dv_lease_events_share(const struct dv_lease_events *events, const char *tenant, uint64_t device);
void dv_lease_events_fini(struct dv_lease_events *events);

#endif
