/* What `divvy top` knows: the last answer of the daemon, as a tree of devices, tenants and sessions, and the last
 * minute of each. */
#ifndef DV_CLI_TOP_MODEL_H
#define DV_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#define DV_TOP_MINUTE 60

enum dv_top_kind { DV_TOP_DEVICE, DV_TOP_TENANT, DV_TOP_SESSION };

/* Parts of the time by second, the newest last; -1: not known. */
struct dv_top_history {
    char key[192];
    double parts[DV_TOP_MINUTE];
    double second; /* when the newest began */
    bool is_fresh; /* it is in the last answer */
    UT_hash_handle hh;
};

struct dv_top_node {
    enum dv_top_kind kind;
    char name[192];   /* of the device or tenant; the command of a session */
    char tenant[128]; /* of a session */
    char user[64];
    char state[64];
    char because[384]; /* of a session that waits; empty: it does not, or an older daemon does not say */
    uint64_t id;       /* number of the device or session */
    unsigned device;   /* number of its device */
    double part;       /* of the last second; -1: not known */
    double request, limit;
    double used_s, state_s;
    uint64_t memory_bytes;                  /* allocated; of a device: in use */
    uint64_t resident_bytes, swapped_bytes; /* of that: on the device, and not */
    uint64_t capacity_bytes;
    unsigned sessions, waiting;
    bool at_limit;
    bool knows_swapped; /* of a session on several devices divvyd does not say for which of them the rest is */
    const struct dv_top_history *history;
};

enum dv_top_sort { DV_TOP_BY_SHARE, DV_TOP_BY_MEMORY, DV_TOP_BY_USED, DV_TOP_BY_NAME, DV_TOP_SORTS };

struct dv_top_model {
    struct dv_top_node *nodes; /* each device, its tenants below it, their sessions below those */
    size_t count, capacity;
    struct dv_top_history *histories;
    double time_s;              /* of the daemon, when it answered */
    unsigned sessions, waiting; /* of all devices; one on several devices counts once, if it may be seen */
    enum dv_top_sort sort;
    char filter[64]; /* only tenants and sessions with this text in their name; empty: all */
    bool hides_sessions;
};

/* Takes over an answer: a line of GET /v1/watch. Returns false when it is none. */
bool dv_top_model_take(struct dv_top_model *model, const json_t *answer);
void dv_top_model_fini(struct dv_top_model *model);
const char *dv_top_sort_word(enum dv_top_sort sort);

#endif
