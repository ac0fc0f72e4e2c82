/* What each worker's cage looks like (see cages.h).
 *
 * Compiled kernels are machine code, so tenants never share them: each has a directory of its own,
 * which belongs to the user its workers run as. That user is one of a range that nobody else uses,
 * and the directory's name, NUMBER-TENANT, is where the choice is remembered. */
#include "src/arbiter/cages.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/bounds.h"
#include "src/arbiter/session.h"
#include "src/arbiter/vendors.h"
#include "src/base/cleanup.h"

#define CACHE_SYSTEM "/var/cache/divvy"
#define PROBE_NAME "probe"
#define NAME_BYTES 224 /* of a directory without its number */

struct dv_kernel_cache {
    char name[NAME_BYTES];
    uid_t uid;
    unsigned sessions; /* whose workers may write there */
    bool used;         /* since it was last swept */
    uint64_t swept_us;
    UT_hash_handle hh;
};

static bool privileged(const struct dv_arbiter *arbiter)
{
    return arbiter->owner == 0 && !arbiter->cages.only_one_user;
}

static bool wanted(const struct dv_arbiter *arbiter)
{
    return arbiter->config.cage != DV_CAGE_NO;
}

/* Whether workers are other users than divvyd's without a cage, too. One that is not uses what that
 * user has, and serves nobody else. */
static bool always_drops(const struct dv_arbiter *arbiter)
{
    return privileged(arbiter) && !arbiter->options.user;
}

static bool has_caches(const struct dv_arbiter *arbiter)
{
    return always_drops(arbiter) || (wanted(arbiter) && !arbiter->cages.off);
}

/* ---- the directories ---- */

/* Where all tenants' directories are. */
static bool name_caches(const struct dv_arbiter *arbiter, char *path, size_t bytes)
{
    const char *given = getenv("DIVVY_CACHE"), *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length;

    if (given && given[0] == '/')
        length = snprintf(path, bytes, "%s", given);
    else if (!arbiter->options.user)
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
        mkdir(path, 0755); /* the last one tells whether it went well */
        *slash = '/';
    }
    return mkdir(path, 0711) < 0 && errno != EEXIST ? -errno : 0;
}

static struct dv_kernel_cache *remember(struct dv_cages *cages, const char *name, uid_t uid)
{
    struct dv_kernel_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return NULL;
    snprintf(cache->name, sizeof cache->name, "%s", name);
    cache->uid = uid;
    HASH_ADD_STR(cages->caches, name, cache);
    return cache;
}

static bool may_be(const struct dv_arbiter *arbiter, uid_t uid)
{
    return privileged(arbiter) ? uid >= arbiter->config.worker_uid_first &&
                                     uid <= arbiter->config.worker_uid_last
                               : uid == arbiter->owner;
}

/* Learns which tenant has which number from the names of the directories. */
static void learn_caches(struct dv_arbiter *arbiter)
{
    DIR *directory = fdopendir(dup(arbiter->cages.caches_fd));

    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *rest;
        unsigned long number = strtoul(entry->d_name, &rest, 10);
        struct dv_kernel_cache *known;
        if (!isdigit((unsigned char)entry->d_name[0]) || *rest != '-' || !rest[1] ||
            strlen(rest + 1) >= NAME_BYTES || number >= UINT32_MAX ||
            !may_be(arbiter, (uid_t)number))
            continue;
        HASH_FIND_STR(arbiter->cages.caches, rest + 1, known);
        if (!known)
            remember(&arbiter->cages, rest + 1, (uid_t)number);
    }
    if (directory)
        closedir(directory);
}

static void open_caches(struct dv_arbiter *arbiter)
{
    char path[DV_LIMIT_PATH];

    if (!name_caches(arbiter, path, sizeof path)) {
        dv_warning("no place for compiled kernels (neither XDG_CACHE_HOME nor HOME is set): every "
                   "program is compiled anew");
        return;
    }
    int status = make_directories(path);
    arbiter->cages.caches_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (arbiter->cages.caches_fd < 0) {
        dv_warning("cannot keep compiled kernels in %s: %s; every program is compiled anew", path,
                   strerror(status < 0 ? -status : errno));
        return;
    }
    learn_caches(arbiter);
}

/* ---- one tenant's directory ---- */

/* A name that is safe as a file's, and no other tenant's. */
static bool escape(char *into, size_t bytes, const char *name)
{
    size_t used = 0;

    for (; *name; name++) {
        bool plain = isalnum((unsigned char)*name) || strchr("._@+-", *name);
        int more = snprintf(into + used, bytes - used, plain ? "%c" : "%%%02x",
                            plain ? *name : (unsigned char)*name);
        if (more < 0 || (size_t)more >= bytes - used)
            return false;
        used += (size_t)more;
    }
    return true;
}

/* Strangers may be members of one tenant, so its users are kept apart, too. */
static bool name_cache(const struct dv_session *session, char name[NAME_BYTES])
{
    char tenant[NAME_BYTES - 16];

    if (!session)
        return snprintf(name, NAME_BYTES, PROBE_NAME) > 0;
    if (dv_tenant_is_program(session->tenant))
        return snprintf(name, NAME_BYTES, "user.%u", (unsigned)session->uid) > 0;
    if (!escape(tenant, sizeof tenant, session->tenant->name))
        return false;
    return snprintf(name, NAME_BYTES, "%s.%u", tenant, (unsigned)session->uid) > 0;
}

static bool is_taken(const struct dv_cages *cages, uid_t uid)
{
    for (const struct dv_kernel_cache *cache = cages->caches; cache; cache = cache->hh.next)
        if (cache->uid == uid)
            return true;
    return false;
}

static bool choose_uid(const struct dv_arbiter *arbiter, uid_t *uid)
{
    const struct dv_config *config = &arbiter->config;
    unsigned known = HASH_COUNT(arbiter->cages.caches);

    if (!privileged(arbiter)) {
        *uid = arbiter->owner;
        return true;
    }
    /* usually the next one is free; the last is for those who get no directory */
    uint64_t numbers = config->worker_uid_last - config->worker_uid_first;
    for (uint64_t i = 0; i < numbers; i++) {
        *uid = config->worker_uid_first + (uid_t)((known + i) % numbers);
        if (!is_taken(&arbiter->cages, *uid))
            return true;
    }
    return false;
}

static struct dv_kernel_cache *find_cache(struct dv_arbiter *arbiter, const char *name)
{
    struct dv_kernel_cache *cache;
    uid_t uid;

    HASH_FIND_STR(arbiter->cages.caches, name, cache);
    if (cache)
        return cache;
    return choose_uid(arbiter, &uid) ? remember(&arbiter->cages, name, uid) : NULL;
}

static int open_cache(struct dv_arbiter *arbiter, const struct dv_kernel_cache *cache)
{
    char name[NAME_BYTES + 16];
    int directory = arbiter->cages.caches_fd;
    struct stat info;

    if (directory < 0)
        return -1;
    snprintf(name, sizeof name, "%u-%s", (unsigned)cache->uid, cache->name);
    mkdirat(directory, name, 0700);
    DV_AUTO_CLOSE int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    /* also one that a divvyd that was killed has made and not given away */
    if (fd >= 0 && privileged(arbiter) && fstat(fd, &info) == 0 && info.st_uid == arbiter->owner &&
        fchown(fd, cache->uid, cache->uid) < 0)
        return -1;
    if (fd < 0 || fstat(fd, &info) < 0 || info.st_uid != cache->uid) {
        dv_warning("cannot use %s for compiled kernels: %s", name,
                   fd < 0 ? strerror(errno) : "it belongs to somebody else");
        return -1;
    }
    return dv_take_fd(&fd);
}

/* ---- the cage ---- */

static void append(char *list, size_t bytes, size_t *used, const char *word)
{
    size_t length = strlen(word) + 1;

    if (*used + length + 1 > bytes) {
        dv_warning("too many paths or calls for the cage of a worker: '%s' is left out", word);
        return;
    }
    memcpy(list + *used, word, length);
    *used += length;
}

static void add_ioctl(struct dv_cage *cage, struct dv_cage_ioctl request)
{
    for (uint32_t i = 0; i < cage->ioctl_count; i++)
        if (cage->ioctls[i].mask == request.mask && cage->ioctls[i].bits == request.bits)
            return;
    if (cage->ioctl_count == DV_CAGE_IOCTLS_MOST)
        dv_warning("too many ioctls for the cage of a worker: those with the bits 0x%x are left out",
                   request.bits);
    else
        cage->ioctls[cage->ioctl_count++] = request;
}

/* The drivers are one for all devices of a worker, so what any of them needs all workers get. */
static void add_needs(struct dv_arbiter *arbiter, struct dv_cage *cage)
{
    const struct dv_config_file *file = arbiter->config.file;
    size_t paths = dv_vendors_list_libraries(arbiter->vendors_directory, cage->paths,
                                             sizeof cage->paths);
    size_t calls = 0;

    for (uint64_t i = 0; file && i < file->devices_count; i++) {
        const struct dv_cage_rule *rule = file->devices[i].cage;
        if (!rule)
            continue;
        for (uint64_t j = 0; j < rule->paths_count; j++)
            append(cage->paths, sizeof cage->paths, &paths, rule->paths[j]);
        for (uint64_t j = 0; j < rule->calls_count; j++)
            append(cage->calls, sizeof cage->calls, &calls, rule->calls[j]);
        for (uint32_t j = 0; j < rule->request_count; j++)
            add_ioctl(cage, rule->requests[j]);
        for (uint64_t j = 0; j < rule->groups_count && cage->group_count < DV_CAGE_GROUPS_MOST; j++)
            cage->groups[cage->group_count++] = rule->gids[j];
    }
}

static void put_session(struct dv_session *session, struct dv_kernel_cache *cache)
{
    if (!session || !cache || session->cache)
        return;
    session->cache = cache;
    cache->sessions++;
    cache->used = true;
}

/* Workers that are bounded together. */
static void name_kind(const struct dv_session *session, char kind[NAME_BYTES])
{
    if (!name_cache(session, kind))
        snprintf(kind, NAME_BYTES, "others");
}

/* ---- bounds ---- */

/* The kernel's word for it: the number that the zygote names could be anybody's. */
static pid_t pid_of(int pidfd)
{
    char path[64], line[128];
    int pid = -1;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    FILE *file = fopen(path, "re");
    while (file && pid < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "Pid: %d", &pid) != 1)
            pid = -1;
    if (file)
        fclose(file);
    return pid;
}

int dv_cages_bound(struct dv_session *session)
{
    const struct dv_cgroups *cgroups = &session->arbiter->cages.cgroups;
    char kind[NAME_BYTES];

    if (!dv_cgroups_wanted(cgroups))
        return 0;
    name_kind(session, kind);
    session->bounded = true;
    session->starved_before = dv_cgroups_starved(cgroups, kind);
    pid_t pid = pid_of(session->worker_pidfd);
    return pid <= 0 ? -ESRCH : dv_cgroups_join(cgroups, kind, pid);
}

/* Of a worker that runs already: it goes on, bounded or not. */
static void bound_again(struct dv_session *session)
{
    int error = session->worker_pidfd < 0 || session->worker_gone ? 0 : dv_cages_bound(session);

    if (error < 0 && error != -ESRCH)
        dv_warning("session %llu: worker %d is not bounded: %s", (unsigned long long)session->id,
                   session->worker_pid, strerror(-error));
}

void dv_cages_rejoin(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    char name[NAME_BYTES];

    if (has_caches(arbiter) && name_cache(session, name))
        put_session(session, find_cache(arbiter, name));
    bound_again(session); /* the daemon before may have had other bounds, or none */
}

bool dv_cages_starved(const struct dv_session *session)
{
    char kind[NAME_BYTES];

    if (!session->bounded)
        return false;
    name_kind(session, kind);
    return dv_cgroups_starved(&session->arbiter->cages.cgroups, kind) > session->starved_before;
}

static pid_t keeper_pid(const struct dv_arbiter *arbiter)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof peer;

    if (arbiter->keeper.fd >= 0)
        getsockopt(arbiter->keeper.fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
    return peer.pid;
}

static void open_cgroups(struct dv_arbiter *arbiter)
{
    const struct dv_config_file *file = arbiter->config.file;
    struct dv_cgroups *cgroups = &arbiter->cages.cgroups;
    const struct dv_cgroups_wish wish = {
        .memory = arbiter->config.worker_memory_bytes,
        .processes = file && file->worker_processes ? *file->worker_processes : 0,
        .place = file ? file->worker_cgroup : NULL};
    const pid_t daemons[] = {getpid(), keeper_pid(arbiter), arbiter->zygote.pid};

    bool elsewhere = dv_cgroups_open(cgroups, &dv_cgroups_kernel, &wish, daemons,
                                     sizeof daemons / sizeof daemons[0]);
    if (cgroups->why_not[0])
        dv_error("no worker is started: %s", cgroups->why_not);
    for (struct dv_session *session = arbiter->sessions; elsewhere && session; session = session->hh.next)
        bound_again(session);
}

void dv_cages_leave(struct dv_session *session)
{
    char kind[NAME_BYTES];

    if (session->bounded) {
        name_kind(session, kind);
        dv_cgroups_tidy(&session->arbiter->cages.cgroups, kind);
    }
    if (session->cache)
        session->cache->sessions--;
    session->cache = NULL;
}

static void be_user(const struct dv_arbiter *arbiter, const struct dv_kernel_cache *cache,
                    struct dv_cage *cage)
{
    cage->uid = cage->gid = DV_CAGE_SAME_USER;
    if (privileged(arbiter)) /* without a directory: as somebody who has nothing */
        cage->uid = cage->gid = cache ? cache->uid : arbiter->config.worker_uid_last;
    cage->file_bytes = arbiter->config.cache_bytes;
}

int dv_cages_fill(struct dv_arbiter *arbiter, struct dv_session *session, struct dv_cage *cage)
{
    char name[NAME_BYTES];

    *cage = arbiter->cages.usual;
    /* each probe looks again whether the kernel makes cages */
    cage->on = wanted(arbiter) && !(session ? arbiter->cages.off : arbiter->cages.probe_uncaged);
    if (!cage->on && !always_drops(arbiter)) {
        cage->uid = cage->gid = DV_CAGE_SAME_USER;
        return -1;
    }
    struct dv_kernel_cache *cache = name_cache(session, name) ? find_cache(arbiter, name) : NULL;
    be_user(arbiter, cache, cage);
    put_session(session, cache);
    return cache ? open_cache(arbiter, cache) : -1;
}

static void warn_of_none(const struct dv_arbiter *arbiter, const char *why)
{
    if (always_drops(arbiter))
        dv_warning("workers run WITHOUT a cage, so programs can reach other processes, networks and "
                   "files as any user of this machine can: %s",
                   why);
    else
        dv_warning("workers run WITHOUT a cage, so programs can reach all that user %u can: %s",
                   (unsigned)arbiter->owner, why);
}

bool dv_cages_may_be_off(const struct dv_arbiter *arbiter, const struct dv_config *config, char *error,
                         size_t error_bytes)
{
    bool may = arbiter->options.user || (config->file && config->file->allow_uncaged) ||
               (config->cage != DV_CAGE_NO && config->cage != DV_CAGE_IF_POSSIBLE);

    if (!may)
        snprintf(error, error_bytes,
                 "%s: with `cage: %s` programs can run native code on this machine that nothing but "
                 "file permissions holds back; leave out `cage`, or say that you accept this with "
                 "`allow-uncaged-workers: yes`",
                 arbiter->config_path, config->cage == DV_CAGE_NO ? "no" : "if-possible");
    return may;
}

bool dv_cages_impossible(struct dv_arbiter *arbiter, const char *why)
{
    if (arbiter->config.cage == DV_CAGE_YES) {
        dv_error("workers cannot be caged: %s", why);
        return false;
    }
    if (!arbiter->cages.off)
        warn_of_none(arbiter, why);
    arbiter->cages.off = arbiter->cages.probe_uncaged = true;
    return true;
}

void dv_cages_probed(struct dv_arbiter *arbiter, bool found_devices)
{
    struct dv_cages *cages = &arbiter->cages;

    if (cages->off && found_devices && !cages->probe_uncaged && wanted(arbiter)) {
        dv_info("workers are caged again");
        cages->off = false;
    }
    cages->probe_uncaged = false;
}

/* ---- keeping kernels within their limit ---- */

static bool is_due(const struct dv_kernel_cache *cache, uint64_t now_us)
{
    return cache->used && now_us - cache->swept_us >= DV_SWEEP_PAUSE_US;
}

int dv_cages_next_sweep(struct dv_arbiter *arbiter, struct dv_cage *cage)
{
    uint64_t now_us = dv_arbiter_now(arbiter);
    struct dv_kernel_cache *cache = arbiter->cages.caches;

    while (cache && !is_due(cache, now_us))
        cache = cache->hh.next;
    if (!cache)
        return -1;
    cache->swept_us = now_us;
    cache->used = cache->sessions > 0;
    *cage = (struct dv_cage){0};
    be_user(arbiter, cache, cage);
    snprintf(cage->root, sizeof cage->root, "/");
    return open_cache(arbiter, cache);
}

static int on_sweep(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;
    uint64_t now_us = dv_arbiter_now(arbiter);
    int asked = 0;

    (void)usec;
    for (const struct dv_kernel_cache *cache = arbiter->cages.caches;
         cache && asked < DV_SWEEPS_AT_ONCE; cache = cache->hh.next)
        if (is_due(cache, now_us)) {
            dv_zygote_request_sweep(arbiter);
            asked++;
        }
    sd_event_source_set_time_relative(source, DV_SWEEP_LOOK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- life ---- */

void dv_cages_apply_config(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;

    if (arbiter->config.cage == DV_CAGE_BY_MODE)
        arbiter->config.cage = arbiter->options.user ? DV_CAGE_IF_POSSIBLE : DV_CAGE_YES;
    if (arbiter->config.cage == DV_CAGE_YES) /* also where they were found to be impossible */
        cages->off = false;
    open_cgroups(arbiter);
    if (!wanted(arbiter))
        warn_of_none(arbiter, "the configuration says `cage: no`");
    cages->usual = (struct dv_cage){0};
    snprintf(cages->usual.root, sizeof cages->usual.root, "%s", cages->root);
    add_needs(arbiter, &cages->usual);
    if (!has_caches(arbiter))
        return;
    if (cages->caches_fd < 0)
        open_caches(arbiter);
    if (!cages->sweep_timer &&
        sd_event_add_time_relative(arbiter->event, &cages->sweep_timer, CLOCK_MONOTONIC,
                                   DV_SWEEP_LOOK_US, DV_S, on_sweep, arbiter) < 0)
        dv_warning("compiled kernels will not be kept within cache-size: no timer");
}

/* Whether the numbers that workers would run as exist in divvyd's user namespace. */
static bool has_users(const struct dv_arbiter *arbiter)
{
    unsigned long first, outside, count;
    bool found = false;
    FILE *map = fopen("/proc/self/uid_map", "re");

    while (map && !found && fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3)
        found = arbiter->config.worker_uid_first >= first &&
                arbiter->config.worker_uid_last - first < count;
    if (map)
        fclose(map);
    return found;
}

void dv_cages_init(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;

    cages->only_one_user = arbiter->options.user && !has_users(arbiter);
    snprintf(cages->root, sizeof cages->root, "%s/cage", arbiter->directory);
    if (mkdir(cages->root, 0755) < 0 && errno != EEXIST)
        dv_error("cannot make %s: %s", cages->root, strerror(errno));
    dv_cages_apply_config(arbiter);
}

void dv_cages_fini(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;
    struct dv_kernel_cache *cache, *next;

    HASH_ITER(hh, cages->caches, cache, next)
    {
        HASH_DEL(cages->caches, cache);
        free(cache);
    }
    cages->sweep_timer = sd_event_source_disable_unref(cages->sweep_timer);
    dv_cgroups_close(&cages->cgroups);
    if (cages->root[0])
        rmdir(cages->root);
    if (cages->caches_fd >= 0)
        close(cages->caches_fd);
    cages->caches_fd = -1;
}
