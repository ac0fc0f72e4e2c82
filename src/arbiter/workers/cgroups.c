/* Bounds by cgroups (see cgroups.h). */
#include "src/arbiter/workers/cgroups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "src/base/cleanup.h"

#define PATH_BYTES 4096
#define FILE_BYTES 4096 /* read of a control file at most */
#define WORKERS "divvy-workers"
#define DAEMON "divvy-daemon"

const struct dvd_cgroups_sources dvd_cgroups_kernel = {.mounts = "/proc/self/mounts", .own = "/proc/self/cgroup"};

static const struct {
    const char *key, *controller;
    const char *file_v1, *file_v2;
    const char *none_v1; /* written for no bound; in version 2 always "max" */
} kinds[DV_BOUND_COUNT] = {
    [DV_BOUND_MEMORY] = {"worker-memory", "memory", "memory.limit_in_bytes", "memory.max", "-1"},
    [DV_BOUND_PROCESSES] = {"worker-processes", "pids", "pids.max", "pids.max", "max"},
};

/* ---- control files ---- */

static int write_to(int directory, const char *file, const char *text)
{
    DV_AUTO_CLOSE int fd = openat(directory, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int write_number(int directory, const char *file, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, number);
    return write_to(directory, file, text);
}

static bool read_from(int directory, const char *file, char text[FILE_BYTES])
{
    DV_AUTO_CLOSE int fd = openat(directory, file, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, FILE_BYTES - 1);

    text[length < 0 ? 0 : length] = '\0';
    return length >= 0;
}

/* Whether a list of words, between any of the separators, has this one. */
static bool has_word(const char *list, const char *separators, const char *word)
{
    size_t length = strlen(word);

    for (list += strspn(list, separators); *list; list += strspn(list, separators)) {
        size_t next = strcspn(list, separators);
        if (next == length && strncmp(list, word, length) == 0)
            return true;
        list += next;
    }
    return false;
}

/* Opens the directory of this name, or makes it. */
static int enter(int directory, const char *name)
{
    if (mkdirat(directory, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

/* ---- where they are ---- */

static bool lists_controller(const char *mount, const char *controller)
{
    DV_AUTO_CLOSE int fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char text[FILE_BYTES];

    return fd >= 0 && read_from(fd, "cgroup.controllers", text) && has_word(text, " \n", controller);
}

/* Where the controller's hierarchy is mounted. */
static bool find_mount(const struct dvd_cgroups_sources *sources, const char *controller, char mount[PATH_BYTES],
                       bool *v2)
{
    FILE *mounts = setmntent(sources->mounts, "re");
    bool found = false;

    for (struct mntent *entry; mounts && !found && (entry = getmntent(mounts));) {
        *v2 = strcmp(entry->mnt_type, "cgroup2") == 0;
        found = *v2 ? lists_controller(entry->mnt_dir, controller)
                    : strcmp(entry->mnt_type, "cgroup") == 0 && hasmntopt(entry, controller);
        if (found)
            snprintf(mount, PATH_BYTES, "%s", entry->mnt_dir);
    }
    if (mounts)
        endmntent(mounts);
    return found;
}

/* divvyd's own cgroup in that hierarchy: lines are NUMBER:CONTROLLERS:PATH, of version 2 without
 * controllers. */
static bool find_own(const struct dvd_cgroups_sources *sources, const char *controller, bool v2, char path[PATH_BYTES])
{
    FILE *file = fopen(sources->own, "re");
    char line[PATH_BYTES];
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        char *rest = line;
        const char *number = strsep(&rest, ":"), *list = strsep(&rest, ":");
        if (!rest)
            continue;
        rest[strcspn(rest, "\n")] = '\0';
        found = v2 ? strcmp(number, "0") == 0 && !*list : has_word(list, ",", controller);
        if (found)
            snprintf(path, PATH_BYTES, "%s", rest);
    }
    if (file)
        fclose(file);
    return found;
}

/* Where version 2 is mounted. */
static bool find_unified(const struct dvd_cgroups_sources *sources, char mount[PATH_BYTES])
{
    FILE *mounts = setmntent(sources->mounts, "re");
    bool found = false;

    for (struct mntent *entry; mounts && !found && (entry = getmntent(mounts));)
        if ((found = strcmp(entry->mnt_type, "cgroup2") == 0))
            snprintf(mount, PATH_BYTES, "%s", entry->mnt_dir);
    if (mounts)
        endmntent(mounts);
    return found;
}

static int open_below(const char *mount, const char *cgroup)
{
    char path[2 * PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", mount, cgroup);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Lets cgroups below this one have the controller. */
static int pass_on(int directory, const char *controller)
{
    char text[32];

    snprintf(text, sizeof text, "+%s", controller);
    return write_to(directory, "cgroup.subtree_control", text);
}

/* Moves the processes that are in one cgroup into another. Returns how many there were. */
static unsigned move_all(int from, int to)
{
    int fd = openat(from, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *list = fd < 0 ? NULL : fdopen(fd, "r");
    unsigned count = 0;
    char line[32];

    if (!list) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (; fgets(line, sizeof line, list); count++) {
        line[strcspn(line, "\n")] = '\0';
        (void)write_to(to, "cgroup.procs", line); /* one that has just ended cannot move, and need not */
    }
    fclose(list);
    return count;
}

/* Version 2 gives controllers only to cgroups below one without processes: divvyd and its helpers, also
 * those of an earlier daemon, move into one of their own. */
static void step_aside(int own, pid_t member)
{
    enum { ROUNDS = 4 }; /* one may fork meanwhile */
    DV_AUTO_CLOSE int fd = enter(own, DAEMON);

    if (fd >= 0 && member > 0)
        (void)write_number(fd, "cgroup.procs", (uint64_t)member);
    for (int i = 0; fd >= 0 && i < ROUNDS && move_all(own, fd) > 0; i++)
        ;
}

/* Whether the service manager has delegated this cgroup to divvyd. systemd marks it so. */
static bool is_delegated(int directory)
{
    char yes = 0;

    return (fgetxattr(directory, "trusted.delegate", &yes, 1) == 1 ||
            fgetxattr(directory, "user.delegate", &yes, 1) == 1) &&
           yes == '1';
}

/* If divvyd has moved into DAEMON already, its own cgroup is the parent, which was checked then. */
static bool leave_aside(char path[PATH_BYTES])
{
    char *last = strrchr(path, '/');

    if (!last || strcmp(last + 1, DAEMON) != 0)
        return false;
    *last = '\0';
    return true;
}

static int open_bound(const struct dvd_cgroups_sources *sources, const char *controller,
                      const struct dvd_cgroups_wish *wish, bool if_possible, bool *v2)
{
    char mount[PATH_BYTES], own[PATH_BYTES];

    if (!find_mount(sources, controller, mount, v2) || (!wish->cgroup && !find_own(sources, controller, *v2, own)))
        return -ENOENT;
    bool aside = !wish->cgroup && *v2 && leave_aside(own);
    DV_AUTO_CLOSE int base = open_below(mount, wish->cgroup ? wish->cgroup : own);
    if (base < 0 || !*v2)
        return base < 0 ? base : enter(base, WORKERS);
    if (!wish->cgroup && if_possible && !aside && !is_delegated(base))
        return -EPERM;                   /* divvyd must not change it */
    if (wish->cgroup && !wish->member) { /* the operator who named it may have left that to us */
        DV_AUTO_CLOSE int above = openat(base, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)pass_on(above, controller);
    } else {
        step_aside(base, wish->member);
    }
    int error = pass_on(base, controller);
    if (error < 0)
        return error;
    DV_AUTO_CLOSE int workers = enter(base, WORKERS);
    error = workers < 0 ? workers : pass_on(workers, controller);
    return error < 0 ? error : dv_take_fd(&workers);
}

/* ---- a kind of workers ---- */

static int set_bound(int directory, bool v2, enum dvd_bound bound, uint64_t most)
{
    const char *file = v2 ? kinds[bound].file_v2 : kinds[bound].file_v1;

    if (most == 0)
        return write_to(directory, file, v2 ? "max" : kinds[bound].none_v1);
    return write_number(directory, file, most);
}

bool dvd_cgroups_wanted(const struct dvd_cgroups *cgroups)
{
    return cgroups->bounds[DV_BOUND_MEMORY].most || cgroups->bounds[DV_BOUND_PROCESSES].most;
}

/* Another daemon that keeps its workers in the same place may just have removed it as empty. */
static bool was_removed(int error)
{
    return error == -ENODEV || error == -ENOENT;
}

static int join_once(const struct dvd_cgroups_bound *bound, enum dvd_bound number, const char *kind, pid_t worker)
{
    DV_AUTO_CLOSE int fd = enter(bound->directory, kind);
    int error = fd < 0 ? fd : set_bound(fd, bound->v2, number, bound->most);

    return error < 0 ? error : write_number(fd, "cgroup.procs", (uint64_t)worker);
}

int dvd_cgroups_join(const struct dvd_cgroups *cgroups, const char *kind, pid_t worker)
{
    for (int i = 0; i < DV_BOUND_COUNT; i++) {
        if (!cgroups->bounds[i].most)
            continue;
        if (!cgroups->bounds[i].kept)
            return -ENOENT;
        int error = join_once(&cgroups->bounds[i], (enum dvd_bound)i, kind, worker);
        if (was_removed(error))
            error = join_once(&cgroups->bounds[i], (enum dvd_bound)i, kind, worker);
        if (error < 0)
            return error;
    }
    return 0;
}

/* ---- the cgroups of its program ---- */

/* The cgroup of one line of /proc/PID/cgroup: NUMBER:CONTROLLERS:PATH. Returns a descriptor or a negative
 * errno; -ENODEV: the hierarchy is not mounted here, or bounds nothing. */
static int open_programs(const struct dvd_cgroups_sources *sources, char *line)
{
    char mount[PATH_BYTES], path[2 * PATH_BYTES];
    char *rest = line;
    const char *number = strsep(&rest, ":"), *list = strsep(&rest, ":");
    bool v2;

    if (!rest)
        return -EINVAL;
    if (strncmp(list, "name=", 5) == 0)
        return -ENODEV;
    bool unified = strcmp(number, "0") == 0 && !*list;
    char *first = unified ? NULL : strndup(list, strcspn(list, ","));
    bool found = unified ? find_unified(sources, mount) : first && find_mount(sources, first, mount, &v2) && !v2;
    free(first);
    if (!found)
        return -ENODEV;
    if (strstr(rest, "/..")) /* outside of what divvyd sees */
        return -EXDEV;
    snprintf(path, sizeof path, "%s%s", mount, rest);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int dvd_cgroups_follow(const struct dvd_cgroups_sources *sources, const char *program, pid_t worker, char *text,
                       size_t bytes)
{
    DV_AUTO_FREE char *lines = strdup(program);
    char *rest = lines;
    int joined = 0;

    for (char *line; (line = strsep(&rest, "\n"));) {
        char words[256];
        snprintf(words, sizeof words, "%s", line);
        DV_AUTO_CLOSE int fd = *line ? open_programs(sources, line) : -ENODEV;
        int error = fd < 0 ? fd : write_number(fd, "cgroup.procs", (uint64_t)worker);
        if (error == -ENODEV && fd < 0)
            continue;
        joined++;
        if (error < 0) {
            snprintf(text, bytes,
                     "the worker cannot be put into the cgroup of its program (%s): %s; "
                     "see worker-cgroup in divvy.yaml(5)",
                     words, strerror(-error));
            return error;
        }
    }
    if (!joined)
        snprintf(text, bytes, "the program is in no cgroup that divvyd sees, so its worker cannot join it");
    return joined ? 0 : -ENOENT;
}

void dvd_cgroups_tidy(const struct dvd_cgroups *cgroups, const char *kind)
{
    for (int i = 0; i < DV_BOUND_COUNT; i++)
        if (cgroups->bounds[i].kept)
            unlinkat(cgroups->bounds[i].directory, kind, AT_REMOVEDIR); /* fails while a process is there */
}

uint64_t dvd_cgroups_starved(const struct dvd_cgroups *cgroups, const char *kind)
{
    int directory = cgroups->bounds[DV_BOUND_MEMORY].directory;
    char path[PATH_BYTES], text[FILE_BYTES];

    snprintf(path, sizeof path, "%s/%s", kind,
             cgroups->bounds[DV_BOUND_MEMORY].v2 ? "memory.events" : "memory.oom_control");
    if (!cgroups->bounds[DV_BOUND_MEMORY].kept || !read_from(directory, path, text))
        return 0;
    const char *line = strstr(text, "oom_kill ");
    return line ? strtoull(line + strlen("oom_kill "), NULL, 10) : 0;
}

/* ---- all of them ---- */

/* Removes empty cgroups, and applies the current bound to the others. */
static void settle(int directory, bool v2, enum dvd_bound bound, uint64_t most)
{
    DV_AUTO_CLOSE int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);

    if (!list)
        return;
    again = -1; /* owned by the list now */
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.' || unlinkat(directory, entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        DV_AUTO_CLOSE int kind = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (kind >= 0) /* the kernel may refuse a bound below their use: the old one stays */
            (void)set_bound(kind, v2, bound, most);
    }
    closedir(list);
}

static bool same_place(int one, int other)
{
    struct stat a, b;

    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool keep_bound(struct dvd_cgroups *cgroups, enum dvd_bound bound, const struct dvd_cgroups_sources *sources,
                       const struct dvd_cgroups_wish *wish)
{
    bool if_possible = bound == DV_BOUND_MEMORY ? wish->memory_if_possible : wish->processes_if_possible;
    char *text = if_possible ? cgroups->unbounded : cgroups->why_not;
    struct dvd_cgroups_bound *kept = &cgroups->bounds[bound];
    int fd = open_bound(sources, kinds[bound].controller, wish, if_possible, &kept->v2);

    if (fd < 0)
        snprintf(text, sizeof cgroups->why_not,
                 "%s needs a cgroup with the controller '%s' that divvyd can write to (%s): name one "
                 "with worker-cgroup, or let the service manager delegate one",
                 kinds[bound].key, kinds[bound].controller, strerror(-fd));
    if (fd < 0 && if_possible)
        kept->most = 0;
    kept->directory = fd;
    return fd >= 0;
}

bool dvd_cgroups_unified(const struct dvd_cgroups_sources *sources)
{
    char mount[PATH_BYTES];
    bool v2;

    return find_mount(sources, kinds[DV_BOUND_MEMORY].controller, mount, &v2) && v2;
}

bool dvd_cgroups_open(struct dvd_cgroups *cgroups, const struct dvd_cgroups_sources *sources,
                      const struct dvd_cgroups_wish *wish)
{
    const uint64_t most[DV_BOUND_COUNT] = {[DV_BOUND_MEMORY] = wish->memory, [DV_BOUND_PROCESSES] = wish->processes};
    bool elsewhere = false;

    cgroups->why_not[0] = cgroups->unbounded[0] = '\0';
    for (int i = 0; i < DV_BOUND_COUNT; i++) {
        struct dvd_cgroups_bound *bound = &cgroups->bounds[i], before = *bound;
        bound->most = most[i];
        if (most[i]) /* otherwise an earlier directory stays, so that it is cleaned up */
            bound->kept = keep_bound(cgroups, (enum dvd_bound)i, sources, wish);
        bool stays = before.kept && bound->kept && same_place(before.directory, bound->directory);
        if (bound->kept)
            settle(bound->directory, bound->v2, (enum dvd_bound)i, most[i]);
        if (before.kept && !stays)
            settle(before.directory, before.v2, (enum dvd_bound)i, most[i]);
        if (before.kept && most[i])
            dv_close_fd(&before.directory);
        elsewhere |= bound->most && bound->kept && !(stays && before.most);
    }
    return elsewhere;
}

void dvd_cgroups_close(struct dvd_cgroups *cgroups)
{
    for (int i = 0; i < DV_BOUND_COUNT; i++) {
        struct dvd_cgroups_bound *bound = &cgroups->bounds[i];
        if (!bound->kept)
            continue;
        settle(bound->directory, bound->v2, (enum dvd_bound)i, bound->most); /* with unchanged bounds */
        dv_close_fd(&bound->directory);
        bound->kept = false;
    }
}
