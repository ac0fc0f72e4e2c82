/* The tree behind `divvy top` (see model.h). */
#include "src/cli/top/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/text.h"
#include "src/cli/http.h"
#include "src/cli/session_name.h"

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static double part_of(const json_t *object, const char *key)
{
    const json_t *ppm = json_object_get(object, key);

    return json_is_number(ppm) ? json_number_value(ppm) / 1e6 : -1;
}

const char *dv_top_sort_word(enum dv_top_sort sort)
{
    static const char *const words[] = {[DV_TOP_BY_SHARE] = "share",
                                        [DV_TOP_BY_MEMORY] = "memory",
                                        [DV_TOP_BY_USED] = "used",
                                        [DV_TOP_BY_NAME] = "name"};
    return words[sort];
}

/* ---- history ---- */

static struct dv_top_history *find_history(struct dv_top_model *model, const char *key)
{
    struct dv_top_history *history;

    HASH_FIND_STR(model->histories, key, history);
    if (history)
        return history;
    history = calloc(1, sizeof *history);
    if (!history)
        return NULL;
    snprintf(history->key, sizeof history->key, "%s", key);
    for (int i = 0; i < DV_TOP_MINUTE; i++)
        history->parts[i] = -1;
    HASH_ADD_STR(model->histories, key, history);
    return history;
}

/* Answers can come more or less often than once a second. One that comes in the same second as the last replaces it.
 * Seconds begin between answers, so that of answers that come each second none is early or late. */
static const struct dv_top_history *remember(struct dv_top_model *model, const char *key, double part)
{
    struct dv_top_history *history = find_history(model, key);

    if (!history)
        return NULL;
    history->is_fresh = true;
    if (history->second == 0)
        history->second = model->time_s - 0.5;
    double since = model->time_s - history->second;
    int passed = since < 0 ? 0 : since > DV_TOP_MINUTE ? DV_TOP_MINUTE : (int)since;
    memmove(history->parts, history->parts + passed, (size_t)(DV_TOP_MINUTE - passed) * sizeof history->parts[0]);
    for (int i = DV_TOP_MINUTE - (passed ? passed : 1); i < DV_TOP_MINUTE; i++)
        history->parts[i] = part;
    history->second = since > DV_TOP_MINUTE ? model->time_s - 0.5 : history->second + passed;
    return history;
}

static void forget_old(struct dv_top_model *model)
{
    struct dv_top_history *history, *next;

    HASH_ITER (hh, model->histories, history, next) {
        if (!history->is_fresh) {
            HASH_DEL(model->histories, history);
            free(history);
            continue;
        }
        history->is_fresh = false;
    }
}

/* ---- nodes ---- */

static struct dv_top_node *add_node(struct dv_top_model *model, enum dv_top_kind kind)
{
    if (model->count == model->capacity) {
        size_t capacity = model->capacity ? 2 * model->capacity : 64;
        struct dv_top_node *longer = realloc(model->nodes, capacity * sizeof *longer);
        if (!longer)
            return NULL;
        model->nodes = longer;
        model->capacity = capacity;
    }
    struct dv_top_node *node = &model->nodes[model->count++];
    *node = (struct dv_top_node){.kind = kind, .part = -1};
    return node;
}

static bool is_wanted(const struct dv_top_model *model, const char *a, const char *b)
{
    return !model->filter[0] || strcasestr(a, model->filter) || strcasestr(b, model->filter);
}

static uint64_t beyond(double whole, double part)
{
    return whole > part ? (uint64_t)(whole - part) : 0;
}

static void add_session(struct dv_top_model *model, const json_t *device, const json_t *session, const json_t *there)
{
    bool swaps = json_is_true(json_object_get(device, "swap"));
    double memory = number_of(session, "memory_bytes");
    char key[192], name[256];

    dv_session_describe(name, sizeof name, session);
    if (!is_wanted(model, name, dv_http_text(session, "tenant", "")))
        return;
    struct dv_top_node *node = add_node(model, DV_TOP_SESSION);
    if (!node)
        return;
    node->id = (uint64_t)number_of(session, "id");
    node->device = (unsigned)number_of(device, "index");
    dv_text_copy(node->name, sizeof node->name, name);
    snprintf(node->tenant, sizeof node->tenant, "%s", dv_http_text(session, "tenant", "?"));
    snprintf(node->user, sizeof node->user, "%s", dv_http_text(session, "user", "?"));
    snprintf(node->state, sizeof node->state, "%s", dv_http_text(there, "state", dv_http_text(session, "state", "?")));
    node->state_s = number_of(json_object_get(there, "state_s") ? there : session, "state_s");
    node->part = part_of(there, "share_1s_ppm");
    node->used_s = number_of(there, "used_s");
    node->memory_bytes = (uint64_t)memory;
    node->knows_swapped = json_array_size(json_object_get(session, "devices")) <= 1;
    node->swapped_bytes = swaps ? beyond(memory, number_of(there, "placed_bytes")) : 0;
    node->resident_bytes = node->memory_bytes - node->swapped_bytes;
    dv_text_copy(node->because, sizeof node->because, dv_http_text(there, "because", ""));
    snprintf(key, sizeof key, "s%llu.%u", (unsigned long long)node->id, node->device);
    node->history = remember(model, key, node->part);
}

/* The session's part on this device, or NULL. */
static const json_t *on_device(const json_t *session, unsigned device)
{
    size_t index;
    json_t *there;

    json_array_foreach(json_object_get(session, "devices"), index, there)
    {
        if ((unsigned)number_of(there, "index") == device)
            return there;
    }
    return NULL;
}

static void add_tenant(struct dv_top_model *model, const json_t *device, const char *name, const json_t *there)
{
    bool swaps = json_is_true(json_object_get(device, "swap"));
    struct dv_top_node *node = add_node(model, DV_TOP_TENANT);
    char key[192];

    if (!node)
        return;
    node->device = (unsigned)number_of(device, "index");
    dv_text_copy(node->name, sizeof node->name, name);
    node->part = part_of(there, "share_1s_ppm");
    node->request = number_of(there, "request_ppm") / 1e6;
    node->limit = number_of(there, "limit_ppm") / 1e6;
    node->used_s = number_of(there, "used_s");
    node->sessions = (unsigned)number_of(there, "sessions");
    node->waiting = (unsigned)number_of(there, "waiting");
    node->at_limit = json_is_true(json_object_get(there, "at_limit"));
    node->memory_bytes = (uint64_t)number_of(there, "memory_reserved_bytes");
    node->knows_swapped = true;
    node->swapped_bytes = swaps ? beyond((double)node->memory_bytes, number_of(there, "memory_placed_bytes")) : 0;
    node->resident_bytes = node->memory_bytes - node->swapped_bytes;
    snprintf(node->state, sizeof node->state, "%s",
             node->at_limit                    ? "at its limit"
             : number_of(there, "holding") > 0 ? "computing"
             : node->waiting                   ? "waiting"
                                               : "idle");
    snprintf(key, sizeof key, "t%u.%s", node->device, name);
    node->history = remember(model, key, node->part);
}

static void add_device(struct dv_top_model *model, const json_t *device)
{
    struct dv_top_node *node = add_node(model, DV_TOP_DEVICE);
    char key[32];

    if (!node)
        return;
    node->id = node->device = (unsigned)number_of(device, "index");
    snprintf(node->name, sizeof node->name, "%s", dv_http_text(device, "name", "?"));
    node->part = part_of(device, "busy_1s_ppm");
    node->sessions = (unsigned)number_of(device, "sessions");
    node->waiting = (unsigned)number_of(device, "waiting");
    node->memory_bytes = (uint64_t)number_of(device, "memory_used_bytes");
    node->capacity_bytes = (uint64_t)number_of(device, "memory_bytes");
    snprintf(key, sizeof key, "d%u", node->device);
    node->history = remember(model, key, node->part);
}

/* ---- order ---- */

/* Shares change by a little all the time, and rows must not jump: they are compared in steps. */
static double key_of(const struct dv_top_node *node, enum dv_top_sort sort)
{
    switch (sort) {
    case DV_TOP_BY_SHARE:
        return (double)(int)(node->part * 20 + 0.5);
    case DV_TOP_BY_MEMORY:
        return (double)node->memory_bytes;
    case DV_TOP_BY_USED:
        return node->used_s;
    default:
        return 0;
    }
}

static int compare(const void *left, const void *right, void *argument)
{
    const struct dv_top_node *a = left, *b = right;
    enum dv_top_sort sort = *(const enum dv_top_sort *)argument;
    double more = key_of(b, sort) - key_of(a, sort);

    if (more != 0)
        return more > 0 ? 1 : -1;
    int by_name = strverscmp(a->name, b->name);
    return by_name ? by_name : (a->id > b->id) - (a->id < b->id);
}

static void sort_from(struct dv_top_model *model, size_t first)
{
    if (model->count > first)
        qsort_r(model->nodes + first, model->count - first, sizeof *model->nodes, compare, &model->sort);
}

/* ---- an answer ---- */

static bool is_shown(const json_t *devices, unsigned number)
{
    size_t index;
    json_t *device;

    json_array_foreach(devices, index, device)
    {
        if ((unsigned)number_of(device, "index") == number)
            return !json_is_true(json_object_get(device, "hidden"));
    }
    return false;
}

/* Devices count their sessions, also those of others. What counts more than once is taken away. */
static void count_sessions(struct dv_top_model *model, const json_t *answer)
{
    const json_t *devices = json_object_get(answer, "devices");
    double sessions = 0, waiting = 0;
    size_t index, at;
    json_t *device, *session, *there;

    json_array_foreach(devices, index, device)
    {
        if (json_is_true(json_object_get(device, "hidden")))
            continue;
        sessions += number_of(device, "sessions");
        waiting += number_of(device, "waiting");
    }
    json_array_foreach(json_object_get(answer, "sessions"), index, session)
    {
        unsigned uses = 0, waits = 0;
        json_array_foreach(json_object_get(session, "devices"), at, there)
        {
            if (!is_shown(devices, (unsigned)number_of(there, "index")))
                continue;
            uses++;
            waits += strncmp(dv_http_text(there, "state", ""), "waiting", 7) == 0;
        }
        sessions -= uses > 1 ? uses - 1 : 0;
        waiting -= waits > 1 ? waits - 1 : 0;
    }
    model->sessions = sessions > 0 ? (unsigned)sessions : 0;
    model->waiting = waiting > 0 ? (unsigned)waiting : 0;
}

static void add_sessions(struct dv_top_model *model, const json_t *device, const json_t *sessions, const char *tenant)
{
    size_t first = model->count, index;
    json_t *session;

    json_array_foreach(sessions, index, session)
    {
        const json_t *there = on_device(session, (unsigned)number_of(device, "index"));
        if (there && strcmp(dv_http_text(session, "tenant", ""), tenant) == 0)
            add_session(model, device, session, there);
    }
    sort_from(model, first);
}

/* Tenants are sorted first, and their sessions put below them then. */
static void add_tenants(struct dv_top_model *model, const json_t *device, const json_t *answer)
{
    const json_t *sessions = json_object_get(answer, "sessions");
    unsigned number = (unsigned)number_of(device, "index");
    struct dv_top_model found = {.time_s = model->time_s, .sort = model->sort, .histories = model->histories};
    size_t index, at;
    json_t *tenant, *there;

    json_array_foreach(json_object_get(answer, "tenants"), index, tenant)
    {
        json_array_foreach(json_object_get(tenant, "devices"), at, there)
        {
            if ((unsigned)number_of(there, "index") == number && number_of(there, "sessions") > 0)
                add_tenant(&found, device, dv_http_text(tenant, "name", "?"), there);
        }
    }
    model->histories = found.histories;
    sort_from(&found, 0);
    for (size_t i = 0; i < found.count; i++) {
        struct dv_top_node *node = add_node(model, DV_TOP_TENANT);
        if (!node)
            break;
        *node = found.nodes[i];
        size_t place = model->count;
        if (!model->hides_sessions)
            add_sessions(model, device, sessions, found.nodes[i].name);
        if (model->count == place && !is_wanted(model, found.nodes[i].name, ""))
            model->count--;
    }
    free(found.nodes);
}

bool dv_top_model_take(struct dv_top_model *model, const json_t *answer)
{
    const json_t *devices = json_object_get(answer, "devices");
    size_t index;
    json_t *device;

    if (!json_is_array(devices))
        return false;
    model->count = 0;
    model->time_s = number_of(answer, "time_s");
    json_array_foreach(devices, index, device)
    {
        if (json_is_true(json_object_get(device, "hidden")))
            continue;
        add_device(model, device);
        add_tenants(model, device, answer);
    }
    count_sessions(model, answer);
    forget_old(model);
    return true;
}

void dv_top_model_fini(struct dv_top_model *model)
{
    struct dv_top_history *history, *next;

    HASH_ITER (hh, model->histories, history, next) {
        HASH_DEL(model->histories, history);
        free(history);
    }
    free(model->nodes);
    *model = (struct dv_top_model){0};
}
