/* Saved shares (see saved.h). The file is JSON: divvyd writes it, people read it. */
#include "src/arbiter/config/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/wire/lease/memory.h"

#define FILE_NAME "saved.json"
#define DRAFT_NAME "saved.json.new"       /* whole, perhaps not on the disk yet */
#define UNFINISHED_NAME "saved.json.part" /* becomes the draft */

struct dvd_saved_share {
    char tenant[DV_MAX_TENANT_NAME];
    struct dvd_share_change change;
    UT_hash_handle hh;
};

static bool makes_sense(const struct dvd_share_change *change)
{
    return (!change->has_limit || change->limit_ppm >= DV_PPM / 100) && (!change->has_weight || change->weight >= 1) &&
           (!change->has_request || !change->has_limit || change->request_ppm <= change->limit_ppm);
}

/* ---- reading ---- */

static bool read_number(const json_t *object, const char *key, uint64_t most, bool *given, uint64_t *number)
{
    const json_t *value = json_object_get(object, key);
    json_int_t integer = json_integer_value(value);

    *given |= value != NULL;
    *number = (uint64_t)integer;
    return !value || (json_is_integer(value) && integer >= 0 && (uint64_t)integer <= most);
}

static bool read_size(const json_t *object, const char *bytes_key, const char *ppm_key, bool *given,
                      struct dvd_memory_size *size)
{
    uint64_t ppm;

    if (!read_number(object, bytes_key, DV_MEMORY_BYTES_MAX, given, &size->bytes) ||
        !read_number(object, ppm_key, DV_PPM, given, &ppm))
        return false;
    size->ppm = (uint32_t)ppm;
    return true;
}

static bool read_change(const json_t *object, struct dvd_share_change *change)
{
    const char *class = json_string_value(json_object_get(object, "class"));
    uint64_t request, limit, weight;

    *change = (struct dvd_share_change){.has_class = class != NULL};
    if (!json_is_object(object) || (class && !dv_class_by_word(class, &change->class)) ||
        !read_number(object, "request_ppm", DV_PPM, &change->has_request, &request) ||
        !read_number(object, "limit_ppm", DV_PPM, &change->has_limit, &limit) ||
        !read_number(object, "weight", DV_WEIGHT_MAX, &change->has_weight, &weight) ||
        !read_size(object, "memory_bytes", "memory_ppm", &change->has_memory, &change->memory) ||
        !read_size(object, "memory_request_bytes", "memory_request_ppm", &change->has_memory_request,
                   &change->memory_request))
        return false;
    change->request_ppm = (uint32_t)request;
    change->limit_ppm = (uint32_t)limit;
    change->weight = (uint32_t)weight;
    return makes_sense(change);
}

/* Returns 0, or -EINVAL: nothing of the file counts. */
static int read_all(struct dvd_saved *saved, const json_t *document)
{
    json_t *tenants = json_object_get(document, "tenants"), *object;
    struct dvd_share_change change;
    const char *name;

    if (!json_is_object(tenants))
        return -EINVAL;
    json_object_foreach(tenants, name, object)
    {
        if (!read_change(object, &change) || dvd_saved_put(saved, name, &change) < 0)
            return -EINVAL;
    }
    return 0;
}

/* Returns 1 if the shares of a file count, 0 if there is no file, -EBADMSG if it is no JSON, or -EINVAL; with the
 * reason in the error. */
static int read_file(struct dvd_saved *saved, const char *name, json_error_t *error)
{
    DV_AUTO_CLOSE int fd = openat(saved->directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0) {
        snprintf(error->text, sizeof error->text, "%s", errno == ELOOP ? "it is a symbolic link" : strerror(errno));
        return -EINVAL;
    }
    json_t *document = json_loadfd(fd, JSON_REJECT_DUPLICATES, error);
    if (!document)
        return -EBADMSG;
    int status = read_all(saved, document);
    json_decref(document);
    if (status < 0)
        snprintf(error->text, sizeof error->text, "it has a value that divvyd does not write");
    return status < 0 ? status : 1;
}

static void forget_all(struct dvd_saved *saved)
{
    struct dvd_saved_share *share, *next;

    HASH_ITER (hh, saved->all, share, next) {
        HASH_DEL(saved->all, share);
        free(share);
    }
}

/* An earlier divvyd that was killed, or whose disk was slow, has left its last draft. If the machine went down, it may
 * be torn: then the file before it counts. */
void dvd_saved_open(struct dvd_saved *saved, const char *directory)
{
    const char *name = DRAFT_NAME;
    json_error_t error;

    *saved = (struct dvd_saved){.directory_fd = -1};
    if (!directory)
        return;
    saved->directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (saved->directory_fd < 0)
        return;
    int status = read_file(saved, name, &error);
    saved->is_drafted = status > 0;
    if (status == -EBADMSG)
        dv_warning("%s/" DRAFT_NAME " is torn, and the last change to saved shares is lost: %s", directory, error.text);
    if (status == 0 || status == -EBADMSG)
        status = read_file(saved, name = FILE_NAME, &error);
    if (status < 0) {
        dv_error("%s/%s is ignored: %s. Correct it, or remove it, and restart divvyd", directory, name, error.text);
        dvd_saved_close(saved); /* what the operator may want back is not overwritten */
        saved->is_broken = true;
    }
}

void dvd_saved_close(struct dvd_saved *saved)
{
    if (saved->is_drafted)
        dvd_saved_commit(saved);
    forget_all(saved);
    dv_close_fd(&saved->directory_fd);
}

/* ---- changes ---- */

const struct dvd_share_change *dvd_saved_find(const struct dvd_saved *saved, const char *tenant)
{
    const struct dvd_saved_share *share;

    HASH_FIND_STR(saved->all, tenant, share);
    return share ? &share->change : NULL;
}

static void merge(struct dvd_share_change *into, const struct dvd_share_change *change)
{
    dvd_share_change_merge(into, change);
    if (change->has_memory)
        into->memory = change->memory;
    if (change->has_memory_request)
        into->memory_request = change->memory_request;
    into->has_memory |= change->has_memory;
    into->has_memory_request |= change->has_memory_request;
}

static struct dvd_saved_share *find(const struct dvd_saved *saved, const char *tenant)
{
    struct dvd_saved_share *share;

    HASH_FIND_STR(saved->all, tenant, share);
    return share;
}

/* Whether a tenant can have it. It comes from a caller, and goes into the log and the file. */
static bool is_name(const char *name)
{
    char clean[DV_MAX_TENANT_NAME];

    dv_text_copy(clean, sizeof clean, name);
    return name[0] && strcmp(clean, name) == 0; /* not, if it is too long */
}

int dvd_saved_check(const struct dvd_saved *saved, const char *tenant, const struct dvd_share_change *change)
{
    const struct dvd_saved_share *share = find(saved, tenant);
    struct dvd_share_change merged = share ? share->change : (struct dvd_share_change){0};

    if (!is_name(tenant))
        return -EINVAL;
    if (!share && HASH_COUNT(saved->all) >= DV_MAX_TENANT_RULES)
        return -ENOSPC;
    merge(&merged, change);
    return makes_sense(&merged) ? 0 : -ERANGE;
}

int dvd_saved_put(struct dvd_saved *saved, const char *tenant, const struct dvd_share_change *change)
{
    struct dvd_saved_share *share = find(saved, tenant);

    if (!change) {
        if (share)
            HASH_DEL(saved->all, share);
        free(share);
        return share ? 0 : -ENOENT;
    }
    int status = dvd_saved_check(saved, tenant, change);
    if (status < 0)
        return status;
    if (!share) {
        share = calloc(1, sizeof *share);
        if (!share)
            return -ENOMEM;
        snprintf(share->tenant, sizeof share->tenant, "%s", tenant);
        HASH_ADD_STR(saved->all, tenant, share);
    }
    merge(&share->change, change);
    return 0;
}

/* ---- writing ---- */

/* These return 0 or -1. jansson accepts NULL for a value that there was no memory for, and refuses it. */

static int set_number(json_t *object, bool given, const char *key, uint64_t number)
{
    return given ? json_object_set_new(object, key, json_integer((json_int_t)number)) : 0;
}

static int set_size(json_t *object, bool given, const char *bytes_key, const char *ppm_key,
                    const struct dvd_memory_size *size)
{
    return set_number(object, given && !size->ppm, bytes_key, size->bytes) |
           set_number(object, given && size->ppm, ppm_key, size->ppm);
}

static int write_change(json_t *object, const struct dvd_share_change *change)
{
    int error = set_number(object, change->has_request, "request_ppm", change->request_ppm) |
                set_number(object, change->has_limit, "limit_ppm", change->limit_ppm) |
                set_number(object, change->has_weight, "weight", change->weight);

    if (change->has_class)
        error |= json_object_set_new(object, "class", json_string(dv_class_word(change->class)));
    return error | set_size(object, change->has_memory, "memory_bytes", "memory_ppm", &change->memory) |
           set_size(object, change->has_memory_request, "memory_request_bytes", "memory_request_ppm",
                    &change->memory_request);
}

/* Returns NULL when memory is short: a part of it must not take the place of all. */
static json_t *write_all(const struct dvd_saved *saved)
{
    json_t *document = json_object(), *tenants = json_object();
    int error = json_object_set_new(document, "tenants", tenants);

    for (const struct dvd_saved_share *share = saved->all; share && error == 0; share = share->hh.next) {
        json_t *object = json_object();
        error = json_object_set_new(tenants, share->tenant, object);
        if (error == 0)
            error = write_change(object, &share->change);
    }
    if (error < 0)
        json_decref(document);
    return error < 0 ? NULL : document;
}

int dvd_saved_write(struct dvd_saved *saved)
{
    if (saved->directory_fd < 0)
        return -ENOTDIR;
    json_t *document = write_all(saved);
    if (!document)
        return -ENOMEM;
    int fd = openat(saved->directory_fd, UNFINISHED_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    int status = fd < 0 ? -errno : json_dumpfd(document, fd, JSON_INDENT(2)) < 0 ? -EIO : 0;
    json_decref(document);
    if (fd < 0)
        return status;
    if (status == 0 && renameat(saved->directory_fd, UNFINISHED_NAME, saved->directory_fd, DRAFT_NAME) < 0)
        status = -errno;
    if (status < 0) {
        close(fd);
        unlinkat(saved->directory_fd, UNFINISHED_NAME, 0);
        return status;
    }
    saved->is_drafted = true;
    saved->draft++;
    return fd;
}

void dvd_saved_commit(struct dvd_saved *saved)
{
    saved->is_drafted = false;
    if (renameat(saved->directory_fd, DRAFT_NAME, saved->directory_fd, FILE_NAME) < 0)
        dv_error("cannot save shares: %s", strerror(errno));
}
