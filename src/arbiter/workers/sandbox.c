/* What each worker's cage looks like (see cages.h).
 *
 * Compiled kernels are machine code, so tenants never share them: each has a directory of its own,
 * which belongs to the user its workers run as. That user is one of a range that nobody else uses,
 * and the directory's name, NUMBER-TENANT, is where the choice is remembered. When directories or numbers
 * become too many, the least recently used directory without sessions is removed, and its number is free
 * again once it is gone. */
#include "src/arbiter/workers/sandbox.h"

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

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/workers/scope.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/cleanup.h"

#define CACHE_SYSTEM "/var/cache/divvy"
#define PROBE_NAME "probe"
#define NAME_BYTES 224 /* of a directory without its number */

enum sweep_list { NO_SWEEP, SWEEP_SOON, SWEEP_LATER, SWEPT_NOW, SWEEP_LISTS };

struct dv_kernel_cache {
    char name[NAME_BYTES];
    uid_t uid;
    struct dv_cache_owner *owner; /* NULL: it is nobody's, and is removed or the probe's */
    unsigned sessions; /* whose workers may write there */
    bool used;         /* since it was last swept */
    bool leaving;      /* nobody finds it any more, and it is removed */
    bool numbered;     /* the number is given back with it */
    time_t used_at;    /* as learned from the directory */
    uint64_t bytes;
    uint64_t sweep;    /* number of the request that it is part of */
    uint64_t swept_us; /* 0: it need not wait */
    enum sweep_list list;
    struct dv_kernel_cache *prev, *next;                   /* among those to be swept */
    struct dv_kernel_cache *prev_idle, *next_idle;         /* among all without sessions */
    struct dv_kernel_cache *prev_of_owner, *next_of_owner; /* and among its owner's */
    UT_hash_handle hh;
};

/* A user of programs, and the directories of the tenants that it is a member of. */
struct dv_cache_owner {
    uid_t uid;
    unsigned count;
    struct dv_kernel_cache *idle;
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

/* ---- lists ---- */

static struct dv_kernel_cache **list_of(struct dv_cages *cages, enum sweep_list list)
{
    struct dv_kernel_cache **const lists[SWEEP_LISTS] = {[SWEEP_SOON] = &cages->sweep_soon,
                                                         [SWEEP_LATER] = &cages->sweep_later,
                                                         [SWEPT_NOW] = &cages->swept_now};
    return lists[list];
}

static void move_to(struct dv_cages *cages, struct dv_kernel_cache *cache, enum sweep_list list, bool first)
{
    struct dv_kernel_cache **from = list_of(cages, cache->list), **to = list_of(cages, list);

    if (from)
        DL_DELETE(*from, cache);
    cache->list = list;
    if (to && first)
        DL_PREPEND(*to, cache);
    else if (to)
        DL_APPEND(*to, cache);
}

static void be_idle(struct dv_cages *cages, struct dv_kernel_cache *cache)
{
    if (!cache->owner)
        return;
    DL_APPEND2(cages->idle, cache, prev_idle, next_idle);
    DL_APPEND2(cache->owner->idle, cache, prev_of_owner, next_of_owner);
}

static void be_busy(struct dv_cages *cages, struct dv_kernel_cache *cache)
{
    if (!cache->owner)
        return;
    DL_DELETE2(cages->idle, cache, prev_idle, next_idle);
    DL_DELETE2(cache->owner->idle, cache, prev_of_owner, next_of_owner);
}

static struct dv_cache_owner *find_owner(struct dv_cages *cages, uid_t uid)
{
    struct dv_cache_owner *owner;

    HASH_FIND(hh, cages->owners, &uid, sizeof uid, owner);
    if (owner || !(owner = calloc(1, sizeof *owner)))
        return owner;
    owner->uid = uid;
    HASH_ADD(hh, cages->owners, uid, sizeof owner->uid, owner);
    return owner;
}

static void drop_owner(struct dv_cages *cages, struct dv_cache_owner *owner)
{
    if (owner && owner->count == 0) {
        HASH_DEL(cages->owners, owner);
        free(owner);
    }
}

/* ---- what is known of the directories ---- */

/* Whose user's it is stands at the end of its name (see name_cache). */
static struct dv_cache_owner *owner_of(struct dv_cages *cages, const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? find_owner(cages, (uid_t)strtoul(dot + 1, NULL, 10)) : NULL;
}

static struct dv_kernel_cache *remember(struct dv_cages *cages, const char *name, uid_t uid)
{
    struct dv_kernel_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return NULL;
    snprintf(cache->name, sizeof cache->name, "%s", name);
    cache->uid = uid;
    cache->owner = owner_of(cages, name);
    if (cache->owner)
        cache->owner->count++;
    HASH_ADD_STR(cages->caches, name, cache);
    be_idle(cages, cache);
    return cache;
}

/* Takes a directory out of the table: its tenant gets another one. Its number stays taken until the
 * directory is removed. */
static void let_go(struct dv_cages *cages, struct dv_kernel_cache *cache)
{
    HASH_DEL(cages->caches, cache);
    be_busy(cages, cache);
    cages->bytes -= cache->bytes;
    cache->bytes = 0;
    cache->leaving = true;
    cache->swept_us = 0;
    if (cache->list != SWEPT_NOW)
        move_to(cages, cache, SWEEP_SOON, true);
}

static void forget(struct dv_cages *cages, struct dv_kernel_cache *cache)
{
    move_to(cages, cache, NO_SWEEP, false);
    if (cache->numbered)
        dv_worker_users_give_back(&cages->users, cache->uid);
    if (cache->owner) {
        cache->owner->count--;
        drop_owner(cages, cache->owner);
    }
    free(cache);
}

static bool may_be(const struct dv_arbiter *arbiter, uid_t uid)
{
    return privileged(arbiter) ? uid >= arbiter->config.worker_uid_first &&
                                     uid <= arbiter->config.worker_uid_last
                               : uid == arbiter->owner;
}

static int used_before(const struct dv_kernel_cache *one, const struct dv_kernel_cache *other)
{
    return (one->used_at > other->used_at) - (one->used_at < other->used_at);
}

/* What divvyd has found in its directory. Of two directories of one name, or of one number, the second goes:
 * a daemon that was about to remove it has ended. */
static void learn_cache(struct dv_arbiter *arbiter, const char *name, uid_t uid, time_t used_at)
{
    struct dv_cages *cages = &arbiter->cages;
    struct dv_kernel_cache *known, *cache;
    bool numbered = privileged(arbiter) && dv_worker_users_take_this(&cages->users, uid);

    HASH_FIND_STR(cages->caches, name, known);
    if (known && known->uid == uid)
        return;
    if (known) /* one of a name is in the table at a time */
        HASH_DEL(cages->caches, known);
    cache = remember(cages, name, uid);
    if (cache) {
        cache->numbered = numbered;
        cache->used_at = used_at;
        move_to(cages, cache, SWEEP_LATER, false);
        if (known || (privileged(arbiter) && !numbered))
            let_go(cages, cache);
    }
    if (known)
        HASH_ADD_STR(cages->caches, name, known);
}

/* Learns which tenant has which number from the names of the directories, and when it was used last from
 * the kernel's note of their last change, which their owner cannot set. */
static void learn_caches(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;
    DIR *directory = fdopendir(dup(cages->caches_fd));

    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *rest;
        unsigned long number = strtoul(entry->d_name, &rest, 10);
        struct stat info;
        if (!isdigit((unsigned char)entry->d_name[0]) || *rest != '-' || !rest[1] ||
            strlen(rest + 1) >= NAME_BYTES || number >= UINT32_MAX ||
            !may_be(arbiter, (uid_t)number) ||
            fstatat(cages->caches_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        learn_cache(arbiter, rest + 1, (uid_t)number, info.st_ctime);
    }
    if (directory)
        closedir(directory);
    HASH_SORT(cages->caches, used_before);
    struct dv_kernel_cache *cache, *next;
    HASH_ITER(hh, cages->caches, cache, next) /* into the lists again, the least recently used first */
    {
        be_busy(cages, cache);
        be_idle(cages, cache);
    }
}

/* The last of the range is for who gets no number, such as a probe. */
static void number_users(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;
    const struct dv_config *config = &arbiter->config;
    struct dv_kernel_cache *cache;

    if (!privileged(arbiter) || (cages->users.taken && cages->users.first == config->worker_uid_first &&
                                 cages->users_last == config->worker_uid_last))
        return;
    if (dv_worker_users_init(&cages->users, config->worker_uid_first, config->worker_uid_last - 1) < 0)
        dv_error("no memory for the numbers of worker users: no worker is started");
    cages->users_last = config->worker_uid_last;
    for (cache = cages->caches; cache; cache = cache->hh.next)
        cache->numbered = dv_worker_users_take_this(&cages->users, cache->uid);
    for (enum sweep_list list = SWEEP_SOON; list < SWEEP_LISTS; list++)
        DL_FOREACH (*list_of(cages, list), cache)
            if (cache->leaving)
                cache->numbered = dv_worker_users_take_this(&cages->users, cache->uid);
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
    if (dvd_tenant_is_program(session->lessee.tenant))
        return snprintf(name, NAME_BYTES, "user.%u", (unsigned)session->lessee.uid) > 0;
    if (!escape(tenant, sizeof tenant, session->lessee.tenant->name))
        return false;
    return snprintf(name, NAME_BYTES, "%s.%u", tenant, (unsigned)session->lessee.uid) > 0;
}

static unsigned owners_most(const struct dv_arbiter *arbiter)
{
    return arbiter->config.sessions_per_user > DV_LIMIT_WORKER_USERS_PER_UID
               ? arbiter->config.sessions_per_user
               : DV_LIMIT_WORKER_USERS_PER_UID;
}

/* Makes one known that has no directory yet. Returns NULL when there is no number for it. */
static struct dv_kernel_cache *make_cache(struct dv_arbiter *arbiter, const char *name)
{
    struct dv_cages *cages = &arbiter->cages;
    uid_t uid = arbiter->owner;

    if (privileged(arbiter)) {
        struct dv_cache_owner *owner = owner_of(cages, name);
        bool many = owner && owner->count >= owners_most(arbiter);
        bool found = !many && dv_worker_users_take(&cages->users, &uid);
        if (!found) {
            drop_owner(cages, owner);
            return NULL;
        }
    }
    struct dv_kernel_cache *cache = remember(cages, name, uid);
    if (cache)
        cache->numbered = privileged(arbiter);
    else if (privileged(arbiter))
        dv_worker_users_give_back(&cages->users, uid);
    return cache;
}

static struct dv_kernel_cache *find_cache(struct dv_arbiter *arbiter, const char *name)
{
    struct dv_kernel_cache *cache;

    HASH_FIND_STR(arbiter->cages.caches, name, cache);
    return cache ? cache : make_cache(arbiter, name);
}

static int open_cache(struct dv_arbiter *arbiter, const struct dv_kernel_cache *cache)
{
    char name[NAME_BYTES + 16];
    int directory = arbiter->cages.caches_fd;
    struct stat info;

    if (directory < 0)
        return -1;
    snprintf(name, sizeof name, "%u-%s", (unsigned)cache->uid, cache->name);
    if (!cache->leaving)
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
    if (cache->sessions++ == 0)
        be_busy(&session->arbiter->cages, cache);
    cache->used = true;
    if (cache->list == NO_SWEEP || cache->list == SWEEP_LATER)
        move_to(&session->arbiter->cages, cache, SWEEP_SOON, cache->swept_us == 0);
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

/* What the kernel says of a program, if that is still the program and not another of its number. */
static bool read_programs_cgroups(const struct dv_session *session, char *lines, size_t bytes)
{
    char path[64];
    size_t used = 0;

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)session->tenant_pid);
    DV_AUTO_CLOSE int fd = session->tenant_pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    for (ssize_t got; fd >= 0 && (got = read(fd, lines + used, bytes - 1 - used)) > 0;)
        used += (size_t)got;
    lines[used] = '\0';
    return used > 0 && used < bytes - 1 && pid_of(session->process->pidfd) == session->tenant_pid;
}

static int follow_program(const struct dv_session *session, char *text, size_t bytes)
{
    char lines[16384];
    pid_t pid = pid_of(session->worker_pidfd);

    if (pid <= 0)
        return -ESRCH;
    if (!read_programs_cgroups(session, lines, sizeof lines)) {
        snprintf(text, bytes, "the program's cgroup cannot be read, and its worker is to be in the same");
        return -ESRCH;
    }
    return dv_cgroups_follow(&dv_cgroups_kernel, lines, pid, text, bytes);
}

int dv_cages_bound(struct dv_session *session, char *text, size_t bytes)
{
    text[0] = '\0';
    if (session->arbiter->config.tenants_cgroup)
        return follow_program(session, text, bytes);
    const struct dv_cgroups *cgroups = &session->arbiter->cages.cgroups;
    char kind[NAME_BYTES];

    if (!dv_cgroups_wanted(cgroups))
        return 0;
    name_kind(session, kind);
    session->bounded = true;
    session->starved_before = dv_cgroups_starved(cgroups, kind);
    pid_t pid = pid_of(session->worker_pidfd);
    int error = pid <= 0 ? -ESRCH : dv_cgroups_join(cgroups, kind, pid);
    if (error < 0)
        snprintf(text, bytes, "the worker cannot be put into a cgroup: %s", strerror(-error));
    return error;
}

/* Of a worker that runs already: it goes on, bounded or not. */
static void bound_again(struct dv_session *session)
{
    char text[DV_MAX_MESSAGE_TEXT];
    int error = session->worker_pidfd < 0 || session->worker_gone ? 0 : dv_cages_bound(session, text, sizeof text);

    if (error < 0 && error != -ESRCH)
        dv_warning("session %llu: worker %d is not bounded: %s", (unsigned long long)session->lessee.id,
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

/* Where systemd rules cgroups of version 2 it is asked for one that outlives the daemon. */
static void open_scope(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;
    char name[64] = "divvy-workers";
    struct stat own;

    if (arbiter->options.user || !dv_cgroups_unified(&dv_cgroups_kernel))
        return;
    if (strcmp(arbiter->directory, DV_RUNDIR_SYSTEM) != 0 && stat(arbiter->directory, &own) == 0)
        snprintf(name, sizeof name, "divvy-workers-%jx", (uintmax_t)own.st_ino); /* not the machine's daemon */
    int error = dv_scope_open(name, arbiter->launcher.pid, cages->scope, sizeof cages->scope);
    if (error < 0)
        cages->scope[0] = '\0';
    if (error < 0 && error != -ENOENT)
        dv_warning("systemd gives divvyd no cgroup for workers: %s", strerror(-error));
}

static void open_cgroups(struct dv_arbiter *arbiter)
{
    const struct dv_config_file *file = arbiter->config.file;
    struct dv_cgroups *cgroups = &arbiter->cages.cgroups;
    bool memory = file && file->worker_memory, processes = file && file->worker_processes;
    /* by themselves in the system's daemon, whose tenants are strangers to each other */
    bool usual = !arbiter->options.user && !arbiter->config.tenants_cgroup;
    bool scoped = arbiter->cages.scope[0] && !(file && file->worker_cgroup);
    const struct dv_cgroups_wish wish = {
        .memory = memory || usual ? arbiter->config.worker_memory_bytes : 0,
        .processes = processes || usual ? arbiter->config.worker_processes : 0,
        .memory_if_possible = !memory,
        .processes_if_possible = !processes,
        .place = scoped ? arbiter->cages.scope : file ? file->worker_cgroup : NULL,
        .member = scoped ? arbiter->launcher.pid : 0};

    bool elsewhere = dv_cgroups_open(cgroups, &dv_cgroups_kernel, &wish);
    if (cgroups->why_not[0])
        dv_error("no worker is started: %s", cgroups->why_not);
    if (cgroups->unbounded[0])
        dv_warning("workers of a tenant can use up the machine's %s%s%s: %s",
                   cgroups->bounds[DV_BOUND_MEMORY].most ? "" : "memory",
                   cgroups->bounds[DV_BOUND_MEMORY].most || cgroups->bounds[DV_BOUND_PROCESSES].most ? "" : " and ",
                   cgroups->bounds[DV_BOUND_PROCESSES].most ? "" : "processes", cgroups->unbounded);
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
    if (session->cache && --session->cache->sessions == 0)
        be_idle(&session->arbiter->cages, session->cache);
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

/* What all directories may have together. */
static uint64_t bytes_most(const struct dv_arbiter *arbiter)
{
    struct statvfs info;
    uint64_t most = DV_CACHES_BYTES_USUAL;

    if (arbiter->config.caches_bytes)
        return arbiter->config.caches_bytes;
    if (fstatvfs(arbiter->cages.caches_fd, &info) == 0 && info.f_frsize * info.f_blocks / 10 < most)
        most = info.f_frsize * info.f_blocks / 10;
    return most > arbiter->config.cache_bytes ? most : arbiter->config.cache_bytes;
}

/* What one may keep: less than usual where those that are in use are too many to be within the whole. */
static uint64_t bytes_most_of_one(const struct dv_arbiter *arbiter)
{
    uint64_t most = bytes_most(arbiter), usual = arbiter->config.cache_bytes;
    unsigned caches = HASH_COUNT(arbiter->cages.caches);

    return arbiter->cages.bytes <= most || most / caches > usual ? usual : most / caches;
}

static bool is_due(const struct dv_kernel_cache *cache, uint64_t now_us)
{
    return cache && (cache->swept_us == 0 || now_us - cache->swept_us >= DV_SWEEP_PAUSE_US);
}

static struct dv_kernel_cache *next_due(const struct dv_cages *cages, uint64_t now_us)
{
    return is_due(cages->sweep_soon, now_us) ? cages->sweep_soon : cages->sweep_later;
}

/* What became of one that the sweeper was asked to look at. */
static void take_swept(struct dv_cages *cages, struct dv_kernel_cache *cache, int status, uint64_t bytes)
{
    bool again = cache->leaving && cache->swept_us == 0; /* it was let go while it was swept */

    if (cache->leaving && !again && (status == 0 || status == -ENOENT || status == -ESTALE)) {
        forget(cages, cache);
        return;
    }
    if (!cache->leaving) {
        cages->bytes += bytes - cache->bytes;
        cache->bytes = bytes;
    }
    bool more = cache->leaving || cache->used;
    move_to(cages, cache, more ? SWEEP_SOON : NO_SWEEP, again);
}

/* Returns a descriptor or a negative errno. */
static int open_leaving(const struct dv_cages *cages, const char *name)
{
    if (cages->caches_fd < 0) /* it has never had a directory */
        return -ENOENT;
    int fd = openat(cages->caches_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

int dv_cages_next_sweep(struct dv_arbiter *arbiter, struct dv_zygote_request *request)
{
    struct dv_cages *cages = &arbiter->cages;
    uint64_t now_us = dv_arbiter_now(arbiter);
    struct dv_kernel_cache *cache = next_due(cages, now_us);

    if (!cache)
        return -1;
    cache->swept_us = now_us;
    cache->used = cache->sessions > 0;
    cache->sweep = ++cages->last_sweep;
    move_to(cages, cache, SWEPT_NOW, false);
    request->session = cache->sweep;
    be_user(arbiter, cache, &request->cage);
    request->cage.file_bytes = bytes_most_of_one(arbiter);
    snprintf(request->cage.root, sizeof request->cage.root, "/");
    if (cache->leaving) {
        request->op = DV_ZYGOTE_REMOVE;
        snprintf(request->cage.paths, sizeof request->cage.paths, "%u-%s", (unsigned)cache->uid, cache->name);
    }
    int fd = cache->leaving ? open_leaving(cages, request->cage.paths) : open_cache(arbiter, cache);
    if (fd < 0) /* it is looked at again later; one that is to be removed may be gone */
        take_swept(cages, cache, fd, cache->bytes);
    return fd;
}

/* Who does not answer has been ended, with the zygote or for taking too long. */
static void find_lost(struct dv_cages *cages, uint64_t now_us)
{
    struct dv_kernel_cache *cache, *next;

    DL_FOREACH_SAFE(cages->swept_now, cache, next)
    {
        if (now_us - cache->swept_us >= DV_SWEEP_LOST_US)
            move_to(cages, cache, SWEEP_SOON, false);
    }
}

/* Removing goes on as fast as it goes; the rest waits for the timer. */
static void ask_sweeper(struct dv_arbiter *arbiter, bool removals_only)
{
    const struct dv_cages *cages = &arbiter->cages;
    uint64_t now_us = dv_arbiter_now(arbiter);
    const struct dv_kernel_cache *cache;
    int asked;

    DL_COUNT(cages->swept_now, cache, asked);
    for (; asked < DV_SWEEPS_AT_ONCE && (cache = next_due(cages, now_us)); asked++) {
        if (removals_only && !cache->leaving)
            return;
        dv_zygote_request_sweep(arbiter);
    }
}

/* Removes what was not used for longest while numbers or bytes are too many. */
static void make_room(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;
    const struct dv_worker_users *users = &cages->users;
    const struct dv_kernel_cache *cache;
    uint32_t plenty = users->count - users->count / 4 - 1; /* of a small range one stays free, too */
    uint32_t leaving = 0;

    DL_FOREACH (cages->swept_now, cache)
        leaving += cache->leaving;
    DL_FOREACH (cages->sweep_soon, cache) { /* they are at its beginning, unless something is wrong */
        if (!cache->leaving || ++leaving >= DV_SWEEPS_AT_ONCE)
            break;
    }
    for (; cages->idle && leaving < DV_SWEEPS_AT_ONCE &&
           (cages->bytes > bytes_most(arbiter) || (users->count && users->used > plenty + leaving));
         leaving++)
        let_go(cages, cages->idle);
    ask_sweeper(arbiter, true);
}

void dv_cages_swept(struct dv_arbiter *arbiter, uint64_t number, int status, uint64_t bytes)
{
    struct dv_cages *cages = &arbiter->cages;
    struct dv_kernel_cache *cache;

    DL_SEARCH_SCALAR(cages->swept_now, cache, sweep, number);
    if (!cache)
        return;
    take_swept(cages, cache, status, bytes);
    make_room(arbiter);
}

static int on_sweep(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;

    (void)usec;
    find_lost(&arbiter->cages, dv_arbiter_now(arbiter));
    make_room(arbiter);
    ask_sweeper(arbiter, false);
    sd_event_source_set_time_relative(source, DV_SWEEP_LOOK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- whom a worker runs as ---- */

int dv_cages_admit(struct dv_session *session, char *text, size_t bytes)
{
    struct dv_arbiter *arbiter = session->arbiter;
    struct dv_cages *cages = &arbiter->cages;
    char name[NAME_BYTES];

    if (!privileged(arbiter)) /* it runs as divvyd's own user, with a directory or without */
        return 0;
    if (!name_cache(session, name)) {
        snprintf(text, bytes, "the name of the tenant '%.64s' is too long for a worker: ask the operator for a "
                              "shorter one", session->lessee.tenant->name);
        return -ENAMETOOLONG;
    }
    struct dv_kernel_cache *cache = find_cache(arbiter, name);
    put_session(session, cache);
    struct dv_cache_owner *owner = find_owner(cages, session->lessee.uid);
    unsigned most = owners_most(arbiter);
    if (owner && owner->idle && owner->count > most / 2)
        let_go(cages, owner->idle);
    if (!cache && owner && owner->count >= most)
        snprintf(text, bytes, "user %s has programs in %u tenants already, the most that are allowed; wait until "
                              "one ends, or ask the operator to raise sessions-per-user",
                 session->user, owner->count);
    else if (!cache)
        snprintf(text, bytes, "no worker can be started: all numbers of users for workers are in use; ask the "
                              "operator for a larger range (worker-users)");
    drop_owner(cages, owner);
    make_room(arbiter);
    return cache ? 0 : -EUSERS;
}

/* ---- life ---- */

void dv_cages_apply_config(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;

    if (arbiter->config.cage == DV_CAGE_BY_MODE)
        arbiter->config.cage = arbiter->options.user ? DV_CAGE_IF_POSSIBLE : DV_CAGE_YES;
    if (arbiter->config.cage == DV_CAGE_YES) /* also where they were found to be impossible */
        cages->off = false;
    number_users(arbiter);
    open_cgroups(arbiter);
    if (!wanted(arbiter))
        warn_of_none(arbiter, "the configuration says `cage: no`");
    cages->usual = (struct dv_cage){.processes = arbiter->config.worker_processes};
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
    open_scope(arbiter);
    dv_cages_apply_config(arbiter);
}

void dv_cages_fini(struct dv_arbiter *arbiter)
{
    struct dv_cages *cages = &arbiter->cages;
    struct dv_kernel_cache *cache, *next;

    HASH_ITER(hh, cages->caches, cache, next)
    {
        HASH_DEL(cages->caches, cache);
        forget(cages, cache);
    }
    for (enum sweep_list list = SWEEP_SOON; list < SWEEP_LISTS; list++)
        DL_FOREACH_SAFE(*list_of(cages, list), cache, next)
        {
            forget(cages, cache);
        }
    cages->idle = NULL;
    dv_worker_users_fini(&cages->users);
    cages->sweep_timer = sd_event_source_disable_unref(cages->sweep_timer);
    dv_cgroups_close(&cages->cgroups);
    if (cages->root[0])
        rmdir(cages->root);
    if (cages->caches_fd >= 0)
        close(cages->caches_fd);
    cages->caches_fd = -1;
}
