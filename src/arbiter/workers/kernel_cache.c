/* Directories of compiled kernels (see kernel_cache.h).
 *
 * Compiled kernels are machine code, so tenants never share them: each has a directory of its own, which belongs to
 * the user that its workers run as. That user is one of a range that no other program uses, and the directory's
 * name, NUMBER-TENANT, is where the choice is remembered. When directories or numbers become too many, the least
 * recently used directory without sessions is removed, and its number is free again once it is gone. */
#include "src/arbiter/workers/kernel_cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/log.h"

#define CACHE_SYSTEM "/var/cache/divvy"

enum trim_list { NO_TRIM, TRIM_SOON, TRIM_LATER, TRIMMED_NOW, TRIM_LISTS };

struct dvd_kernel_cache {
    char name[DVD_CACHE_NAME_BYTES];
    uid_t uid;
    struct dvd_cache_owner *owner; /* NULL: none, as it is removed, or is the probe's */
    unsigned sessions;             /* whose workers may write there */
    bool used;                     /* since it was last trimmed */
    bool leaving;                  /* it is not found any more, and is removed */
    bool numbered;                 /* the number is given back with it */
    time_t used_at;                /* as learned from the directory */
    uint64_t bytes;
    uint64_t trim;       /* number of the request that it is part of */
    uint64_t trimmed_us; /* 0: it need not wait */
    enum trim_list list;
    struct dvd_kernel_cache *prev, *next;                   /* among those to be trimmed */
    struct dvd_kernel_cache *prev_idle, *next_idle;         /* among all without sessions */
    struct dvd_kernel_cache *prev_of_owner, *next_of_owner; /* and among its owner's */
    UT_hash_handle hh;
};

/* A user of programs, and the directories of the tenants that it is a member of. */
struct dvd_cache_owner {
    uid_t uid;
    unsigned count;
    struct dvd_kernel_cache *idle;
    UT_hash_handle hh;
};

/* ---- the directories ---- */

/* Where all tenants' directories are. */
static bool name_caches(const struct dvd_kernel_caches *caches, char *path, size_t bytes)
{
    const char *given = getenv("DIVVY_CACHE"), *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length;

    if (given && given[0] == '/')
        length = snprintf(path, bytes, "%s", given);
    else if (!caches->config->of_user)
        length = snprintf(path, bytes, CACHE_SYSTEM);
    else if (base && base[0] == '/')
        length = snprintf(path, bytes, "%s/divvy", base);
    else if (home && home[0] == '/')
        length = snprintf(path, bytes, "%s/.cache/divvy", home);
    else
        return false;
    return length > 0 && (size_t)length < bytes;
}

static int make_directories(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755); /* the last one reports errors */
        *slash = '/';
    }
    return mkdir(path, 0711) < 0 && errno != EEXIST ? -errno : 0;
}

/* ---- lists ---- */

static struct dvd_kernel_cache **list_of(struct dvd_kernel_caches *caches, enum trim_list list)
{
    struct dvd_kernel_cache **const lists[TRIM_LISTS] = {
        [TRIM_SOON] = &caches->trim_soon, [TRIM_LATER] = &caches->trim_later, [TRIMMED_NOW] = &caches->trimmed_now};
    return lists[list];
}

static void move_to(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache, enum trim_list list, bool first)
{
    struct dvd_kernel_cache **from = list_of(caches, cache->list), **to = list_of(caches, list);

    if (from)
        DL_DELETE(*from, cache);
    cache->list = list;
    if (to && first)
        DL_PREPEND(*to, cache);
    else if (to)
        DL_APPEND(*to, cache);
}

static void be_idle(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache)
{
    if (!cache->owner)
        return;
    DL_APPEND2(caches->idle, cache, prev_idle, next_idle);
    DL_APPEND2(cache->owner->idle, cache, prev_of_owner, next_of_owner);
}

static void be_busy(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache)
{
    if (!cache->owner)
        return;
    DL_DELETE2(caches->idle, cache, prev_idle, next_idle);
    DL_DELETE2(cache->owner->idle, cache, prev_of_owner, next_of_owner);
}

static struct dvd_cache_owner *find_owner(struct dvd_kernel_caches *caches, uid_t uid)
{
    struct dvd_cache_owner *owner;

    HASH_FIND(hh, caches->owners, &uid, sizeof uid, owner);
    if (owner || !(owner = calloc(1, sizeof *owner)))
        return owner;
    owner->uid = uid;
    HASH_ADD(hh, caches->owners, uid, sizeof owner->uid, owner);
    return owner;
}

static void drop_owner(struct dvd_kernel_caches *caches, struct dvd_cache_owner *owner)
{
    if (owner && owner->count == 0) {
        HASH_DEL(caches->owners, owner);
        free(owner);
    }
}

/* ---- known directories ---- */

/* Its user's number is at the end of its name (see sandbox.c). */
static struct dvd_cache_owner *owner_of(struct dvd_kernel_caches *caches, const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? find_owner(caches, (uid_t)strtoul(dot + 1, NULL, 10)) : NULL;
}

static struct dvd_kernel_cache *remember(struct dvd_kernel_caches *caches, const char *name, uid_t uid)
{
    struct dvd_kernel_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return NULL;
    snprintf(cache->name, sizeof cache->name, "%s", name);
    cache->uid = uid;
    cache->owner = owner_of(caches, name);
    if (cache->owner)
        cache->owner->count++;
    HASH_ADD_STR(caches->table, name, cache);
    be_idle(caches, cache);
    return cache;
}

/* Takes a directory out of the table: its tenant gets another one. Its number stays taken until the
 * directory is removed. */
static void let_go(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache)
{
    HASH_DEL(caches->table, cache);
    be_busy(caches, cache);
    caches->bytes -= cache->bytes;
    cache->bytes = 0;
    cache->leaving = true;
    cache->trimmed_us = 0;
    if (cache->list != TRIMMED_NOW)
        move_to(caches, cache, TRIM_SOON, true);
}

static void forget(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache)
{
    move_to(caches, cache, NO_TRIM, false);
    if (cache->numbered)
        dvd_worker_users_give_back(&caches->users, cache->uid);
    if (cache->owner) {
        cache->owner->count--;
        drop_owner(caches, cache->owner);
    }
    free(cache);
}

static bool may_be(const struct dvd_kernel_caches *caches, uid_t uid)
{
    return caches->has_users ? uid >= caches->config->worker_uid_first && uid <= caches->config->worker_uid_last
                             : uid == caches->config->owner;
}

static int used_before(const struct dvd_kernel_cache *one, const struct dvd_kernel_cache *other)
{
    return (one->used_at > other->used_at) - (one->used_at < other->used_at);
}

/* Learns of a directory on disk. If two have one name, or one number, the second is removed: an earlier
 * daemon ended before it could remove it. */
static void learn_cache(struct dvd_kernel_caches *caches, const char *name, uid_t uid, time_t used_at)
{
    struct dvd_kernel_cache *known, *cache;
    bool numbered = caches->has_users && dvd_worker_users_take_this(&caches->users, uid);

    HASH_FIND_STR(caches->table, name, known);
    if (known && known->uid == uid)
        return;
    if (known) /* the table has one of each name */
        HASH_DEL(caches->table, known);
    cache = remember(caches, name, uid);
    if (cache) {
        cache->numbered = numbered;
        cache->used_at = used_at;
        move_to(caches, cache, TRIM_LATER, false);
        if (known || (caches->has_users && !numbered))
            let_go(caches, cache);
    }
    if (known)
        HASH_ADD_STR(caches->table, name, known);
}

/* Learns which tenant has which number from the names of the directories, and when it was used last from
 * the kernel's time of their last change, which their owner cannot set. */
static void learn_caches(struct dvd_kernel_caches *caches)
{
    DIR *directory = fdopendir(dup(caches->fd));

    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *rest;
        unsigned long number = strtoul(entry->d_name, &rest, 10);
        struct stat info;
        if (!isdigit((unsigned char)entry->d_name[0]) || *rest != '-' || !rest[1] ||
            strlen(rest + 1) >= DVD_CACHE_NAME_BYTES || number >= UINT32_MAX || !may_be(caches, (uid_t)number) ||
            fstatat(caches->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        learn_cache(caches, rest + 1, (uid_t)number, info.st_ctime);
    }
    if (directory)
        closedir(directory);
    HASH_SORT(caches->table, used_before);
    struct dvd_kernel_cache *cache, *next;
    HASH_ITER (hh, caches->table, cache, next) /* into the lists again, the least recently used first */
    {
        be_busy(caches, cache);
        be_idle(caches, cache);
    }
}

/* The last of the range is for processes without a number, such as a probe. */
static void number_users(struct dvd_kernel_caches *caches)
{
    const struct dvd_config *config = caches->config;
    struct dvd_kernel_cache *cache;

    if (!caches->has_users || (caches->users.taken && caches->users.first == config->worker_uid_first &&
                               caches->users_last == config->worker_uid_last))
        return;
    if (dvd_worker_users_init(&caches->users, config->worker_uid_first, config->worker_uid_last - 1) < 0)
        dv_error("no memory for the numbers of worker users: no worker is started");
    caches->users_last = config->worker_uid_last;
    for (cache = caches->table; cache; cache = cache->hh.next)
        cache->numbered = dvd_worker_users_take_this(&caches->users, cache->uid);
    for (enum trim_list list = TRIM_SOON; list < TRIM_LISTS; list++)
        DL_FOREACH (*list_of(caches, list), cache)
            if (cache->leaving)
                cache->numbered = dvd_worker_users_take_this(&caches->users, cache->uid);
}

static void open_caches(struct dvd_kernel_caches *caches)
{
    char path[DV_MAX_PATH];

    if (!name_caches(caches, path, sizeof path)) {
        dv_warning("no place for compiled kernels (neither XDG_CACHE_HOME nor HOME is set): every "
                   "program is compiled anew");
        return;
    }
    int status = make_directories(path);
    caches->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (caches->fd < 0) {
        dv_warning("cannot keep compiled kernels in %s: %s; every program is compiled anew", path,
                   strerror(status < 0 ? -status : errno));
        return;
    }
    learn_caches(caches);
}

/* ---- one tenant's directory ---- */

static unsigned owners_most(const struct dvd_kernel_caches *caches)
{
    return caches->config->sessions_per_user > DV_MAX_WORKER_USERS_PER_UID ? caches->config->sessions_per_user
                                                                           : DV_MAX_WORKER_USERS_PER_UID;
}

/* Adds one that has no directory yet. Returns NULL when there is no number for it. */
static struct dvd_kernel_cache *make_cache(struct dvd_kernel_caches *caches, const char *name)
{
    uid_t uid = caches->config->owner;

    if (caches->has_users) {
        struct dvd_cache_owner *owner = owner_of(caches, name);
        bool many = owner && owner->count >= owners_most(caches);
        bool found = !many && dvd_worker_users_take(&caches->users, &uid);
        if (!found) {
            drop_owner(caches, owner);
            return NULL;
        }
    }
    struct dvd_kernel_cache *cache = remember(caches, name, uid);
    if (cache)
        cache->numbered = caches->has_users;
    else if (caches->has_users)
        dvd_worker_users_give_back(&caches->users, uid);
    return cache;
}

struct dvd_kernel_cache *dvd_kernel_cache_find(struct dvd_kernel_caches *caches, const char *name)
{
    struct dvd_kernel_cache *cache;

    HASH_FIND_STR(caches->table, name, cache);
    return cache ? cache : make_cache(caches, name);
}

int dvd_kernel_cache_open(struct dvd_kernel_caches *caches, const struct dvd_kernel_cache *cache)
{
    char name[DVD_CACHE_NAME_BYTES + 16];
    int directory = caches->fd;
    struct stat info;

    if (directory < 0)
        return -1;
    snprintf(name, sizeof name, "%u-%s", (unsigned)cache->uid, cache->name);
    if (!cache->leaving)
        mkdirat(directory, name, 0700);
    DV_AUTO_CLOSE int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    /* also one that a killed divvyd has made and not given away */
    if (fd >= 0 && caches->has_users && fstat(fd, &info) == 0 && info.st_uid == caches->config->owner &&
        fchown(fd, cache->uid, cache->uid) < 0)
        return -1;
    if (fd < 0 || fstat(fd, &info) < 0 || info.st_uid != cache->uid) {
        dv_warning("cannot use %s for compiled kernels: %s", name,
                   fd < 0 ? strerror(errno) : "it belongs to another user");
        return -1;
    }
    return dv_take_fd(&fd);
}

void dvd_kernel_cache_enter(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache)
{
    if (cache->sessions++ == 0)
        be_busy(caches, cache);
    cache->used = true;
    if (cache->list == NO_TRIM || cache->list == TRIM_LATER)
        move_to(caches, cache, TRIM_SOON, cache->trimmed_us == 0);
}

void dvd_kernel_cache_leave(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache)
{
    if (--cache->sessions == 0)
        be_idle(caches, cache);
}

void dvd_kernel_cache_fill_user(const struct dvd_kernel_caches *caches, const struct dvd_kernel_cache *cache,
                                struct dv_sandbox_settings *sandbox)
{
    sandbox->uid = sandbox->gid = DV_SANDBOX_SAME_USER;
    if (caches->has_users) /* without a directory: as a user that has nothing */
        sandbox->uid = sandbox->gid = cache ? cache->uid : caches->config->worker_uid_last;
    sandbox->file_bytes = caches->config->cache_bytes;
}

/* ---- keeping kernels within their limit ---- */

/* The limit of all directories together. */
static uint64_t bytes_most(const struct dvd_kernel_caches *caches)
{
    struct statvfs info;
    uint64_t most = DV_CACHES_BYTES_USUAL;

    if (caches->config->caches_bytes)
        return caches->config->caches_bytes;
    if (fstatvfs(caches->fd, &info) == 0 && info.f_frsize * info.f_blocks / 10 < most)
        most = info.f_frsize * info.f_blocks / 10;
    return most > caches->config->cache_bytes ? most : caches->config->cache_bytes;
}

/* The limit of one directory: lower than usual while all together are over their limit. */
static uint64_t bytes_most_of_one(const struct dvd_kernel_caches *caches)
{
    uint64_t most = bytes_most(caches), usual = caches->config->cache_bytes;
    unsigned count = HASH_COUNT(caches->table);

    return caches->bytes <= most || most / count > usual ? usual : most / count;
}

static bool is_due(const struct dvd_kernel_cache *cache, uint64_t now_us)
{
    return cache && (cache->trimmed_us == 0 || now_us - cache->trimmed_us >= DV_TRIM_PAUSE_US);
}

static struct dvd_kernel_cache *next_due(const struct dvd_kernel_caches *caches, uint64_t now_us)
{
    return is_due(caches->trim_soon, now_us) ? caches->trim_soon : caches->trim_later;
}

/* Handles the result of a trim. */
static void take_trimmed(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache, int status, uint64_t bytes)
{
    bool again = cache->leaving && cache->trimmed_us == 0; /* its removal was decided during the trim */

    if (cache->leaving && !again && (status == 0 || status == -ENOENT || status == -ESTALE)) {
        forget(caches, cache);
        return;
    }
    if (!cache->leaving) {
        caches->bytes += bytes - cache->bytes;
        cache->bytes = bytes;
    }
    bool more = cache->leaving || cache->used;
    move_to(caches, cache, more ? TRIM_SOON : NO_TRIM, again);
}

/* Returns a descriptor or a negative errno. */
static int open_leaving(const struct dvd_kernel_caches *caches, const char *name)
{
    if (caches->fd < 0) /* it has never had a directory */
        return -ENOENT;
    int fd = openat(caches->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

/* A trim without an answer was killed: with the zygote, or because it took too long. */
static void find_lost(struct dvd_kernel_caches *caches, uint64_t now_us)
{
    struct dvd_kernel_cache *cache, *next;

    DL_FOREACH_SAFE (caches->trimmed_now, cache, next) {
        if (now_us - cache->trimmed_us >= DV_TRIM_LOST_US)
            move_to(caches, cache, TRIM_SOON, false);
    }
}

/* Removals go on without a pause; other trims wait for the timer. */
static void ask_trimmer(struct dvd_kernel_caches *caches, bool removals_only)
{
    uint64_t now_us = dv_now() / DV_NS_PER_US;
    const struct dvd_kernel_cache *cache;
    int asked;

    DL_COUNT(caches->trimmed_now, cache, asked);
    for (; asked < DV_TRIMS_AT_ONCE && (cache = next_due(caches, now_us)); asked++) {
        if (removals_only && !cache->leaving)
            return;
        caches->request_trim(caches->owner);
    }
}

/* Removes least recently used directories while too many numbers or bytes are in use. */
static void make_room(struct dvd_kernel_caches *caches)
{
    const struct dvd_worker_users *users = &caches->users;
    const struct dvd_kernel_cache *cache;
    uint32_t plenty = users->count - users->count / 4 - 1; /* in a small range one stays free, too */
    uint32_t leaving = 0;

    DL_FOREACH (caches->trimmed_now, cache)
        leaving += cache->leaving;
    DL_FOREACH (caches->trim_soon, cache) { /* removals come first in it, except after failures */
        if (!cache->leaving || ++leaving >= DV_TRIMS_AT_ONCE)
            break;
    }
    for (; caches->idle && leaving < DV_TRIMS_AT_ONCE &&
           (caches->bytes > bytes_most(caches) || (users->count && users->used > plenty + leaving));
         leaving++)
        let_go(caches, caches->idle);
    ask_trimmer(caches, true);
}

int dvd_kernel_cache_next_trim(struct dvd_kernel_caches *caches, struct dv_zygote_request *request)
{
    uint64_t now_us = dv_now() / DV_NS_PER_US;
    struct dvd_kernel_cache *cache = next_due(caches, now_us);

    if (!cache)
        return -1;
    cache->trimmed_us = now_us;
    cache->used = cache->sessions > 0;
    cache->trim = ++caches->last_trim;
    move_to(caches, cache, TRIMMED_NOW, false);
    request->session = cache->trim;
    dvd_kernel_cache_fill_user(caches, cache, &request->sandbox);
    request->sandbox.file_bytes = bytes_most_of_one(caches);
    snprintf(request->sandbox.root, sizeof request->sandbox.root, "/");
    if (cache->leaving) {
        request->op = DV_ZYGOTE_REMOVE;
        snprintf(request->sandbox.paths, sizeof request->sandbox.paths, "%u-%s", (unsigned)cache->uid, cache->name);
    }
    int fd = cache->leaving ? open_leaving(caches, request->sandbox.paths) : dvd_kernel_cache_open(caches, cache);
    if (fd < 0) /* tried again later; a directory to be removed may be gone */
        take_trimmed(caches, cache, fd, cache->bytes);
    return fd;
}

void dvd_kernel_cache_trimmed(struct dvd_kernel_caches *caches, uint64_t number, int status, uint64_t bytes)
{
    struct dvd_kernel_cache *cache;

    DL_SEARCH_SCALAR(caches->trimmed_now, cache, trim, number);
    if (!cache)
        return;
    take_trimmed(caches, cache, status, bytes);
    make_room(caches);
}

static int on_trim(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_kernel_caches *caches = userdata;

    (void)usec;
    find_lost(caches, dv_now() / DV_NS_PER_US);
    make_room(caches);
    ask_trimmer(caches, false);
    sd_event_source_set_time_relative(source, DV_TRIM_LOOK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- admission ---- */

struct dvd_kernel_cache *dvd_kernel_cache_admit(struct dvd_kernel_caches *caches, const char *name, uid_t uid,
                                                const char *user, char *text, size_t bytes)
{
    struct dvd_kernel_cache *cache = dvd_kernel_cache_find(caches, name);
    struct dvd_cache_owner *owner = find_owner(caches, uid);
    unsigned most = owners_most(caches);

    if (cache)
        dvd_kernel_cache_enter(caches, cache);
    if (owner && owner->idle && owner->count > most / 2)
        let_go(caches, owner->idle);
    if (!cache && owner && owner->count >= most)
        snprintf(text, bytes,
                 "user %s has programs in %u tenants already, the maximum; wait until one ends, or ask the operator to "
                 "raise sessions-per-user",
                 user, owner->count);
    else if (!cache)
        snprintf(text, bytes,
                 "no worker can be started: all user numbers for workers are in use; ask the operator for a larger "
                 "range (worker-users)");
    drop_owner(caches, owner);
    make_room(caches);
    return cache;
}

/* ---- life ---- */

void dvd_kernel_caches_apply_config(struct dvd_kernel_caches *caches)
{
    number_users(caches);
}

void dvd_kernel_caches_open(struct dvd_kernel_caches *caches)
{
    if (caches->fd < 0)
        open_caches(caches);
    if (!caches->trim_timer && sd_event_add_time_relative(caches->event, &caches->trim_timer, CLOCK_MONOTONIC,
                                                          DV_TRIM_LOOK_US, DV_S, on_trim, caches) < 0)
        dv_warning("cannot set the trim timer: cache-size is not enforced");
}

void dvd_kernel_caches_fini(struct dvd_kernel_caches *caches)
{
    struct dvd_kernel_cache *cache, *next;

    HASH_ITER (hh, caches->table, cache, next) {
        HASH_DEL(caches->table, cache);
        forget(caches, cache);
    }
    for (enum trim_list list = TRIM_SOON; list < TRIM_LISTS; list++)
        DL_FOREACH_SAFE (*list_of(caches, list), cache, next)
            forget(caches, cache);
    caches->idle = NULL;
    dvd_worker_users_fini(&caches->users);
    caches->trim_timer = sd_event_source_disable_unref(caches->trim_timer);
    dv_close_fd(&caches->fd);
}
