/* The settings of each worker's sandbox (see sandbox.h). */
#include "src/arbiter/workers/sandbox.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/arbiter/workers/scope.h"
#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/base/text.h"

#define PROBE_NAME "probe"

static bool is_wanted(const struct dvd_sandboxes *sandboxes)
{
    return sandboxes->config->sandbox != DV_SANDBOX_NO;
}

/* Whether workers run as other users than divvyd's without a sandbox, too. Otherwise a worker can use all that divvyd's
 * user has, and serves no other user. */
static bool always_drops(const struct dvd_sandboxes *sandboxes)
{
    return sandboxes->caches.has_users && !sandboxes->config->of_user;
}

static bool has_caches(const struct dvd_sandboxes *sandboxes)
{
    return always_drops(sandboxes) || (is_wanted(sandboxes) && !sandboxes->off);
}

/* ---- names ---- */

/* A safe file name that no other tenant has. */
static bool escape(char *into, size_t bytes, const char *name)
{
    size_t used = 0;

    for (; *name; name++) {
        bool plain = isalnum((unsigned char)*name) || strchr("._@+-", *name);
        int more = snprintf(into + used, bytes - used, plain ? "%c" : "%%%02x", plain ? *name : (unsigned char)*name);
        if (more < 0 || (size_t)more >= bytes - used)
            return false;
        used += (size_t)more;
    }
    return true;
}

/* Users of one tenant need not trust each other, so they are kept apart, too. */
void dvd_sandbox_init(struct dvd_sandbox *sandbox, const char *tenant, bool is_program, uid_t uid)
{
    char escaped[DVD_CACHE_NAME_BYTES - 16] = "user", name[DVD_CACHE_NAME_BYTES];

    *sandbox = (struct dvd_sandbox){.uid = uid};
    if (!is_program && !escape(escaped, sizeof escaped, tenant))
        return;
    snprintf(name, sizeof name, "%s.%u", escaped, (unsigned)uid);
    sandbox->name = strdup(name);
}

/* Workers that are bounded together. */
static const char *kind_of(const struct dvd_sandbox *sandbox)
{
    return sandbox->name ? sandbox->name : "others";
}

static void use_cache(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox, struct dvd_kernel_cache *cache)
{
    if (!cache || sandbox->cache)
        return;
    sandbox->cache = cache;
    dvd_kernel_cache_enter(&sandboxes->caches, cache);
}

int dvd_sandbox_admit(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox, const char *tenant,
                      const char *user, char *text, size_t bytes)
{
    if (sandboxes->cgroups.why_not[0]) {
        dv_text_copy(text, bytes, sandboxes->cgroups.why_not);
        return -ENOTSUP;
    }
    if (!sandboxes->caches.has_users) /* it runs as divvyd's own user, with a directory or without */
        return 0;
    if (!sandbox->name) {
        snprintf(text, bytes,
                 "the name of the tenant '%.64s' is too long for a worker: ask the operator for a shorter one", tenant);
        return -ENAMETOOLONG;
    }
    sandbox->cache = dvd_kernel_cache_admit(&sandboxes->caches, sandbox->name, sandbox->uid, user, text, bytes);
    return sandbox->cache ? 0 : -EUSERS;
}

/* ---- what it contains ---- */

static void append(char *list, size_t bytes, size_t *used, const char *word)
{
    size_t length = strlen(word) + 1;

    if (*used + length + 1 > bytes) {
        dv_warning("too many paths or calls for the sandbox of a worker: '%s' is left out", word);
        return;
    }
    memcpy(list + *used, word, length);
    *used += length;
}

static void add_ioctl(struct dv_sandbox_settings *settings, struct dv_sandbox_ioctl request)
{
    for (uint32_t i = 0; i < settings->ioctl_count; i++)
        if (settings->ioctls[i].mask == request.mask && settings->ioctls[i].bits == request.bits)
            return;
    if (settings->ioctl_count == DV_SANDBOX_IOCTLS_MAX)
        dv_warning("too many ioctls for the sandbox of a worker: those with the bits 0x%x are left out", request.bits);
    else
        settings->ioctls[settings->ioctl_count++] = request;
}

/* A worker has the same drivers for all devices, so every worker gets what any device needs. */
static void add_needs(struct dvd_sandboxes *sandboxes, struct dv_sandbox_settings *settings)
{
    const struct dvd_config_file *file = sandboxes->config->file;
    size_t paths = dvd_vendors_list_libraries(sandboxes->icd_directory, settings->paths, sizeof settings->paths);
    size_t calls = 0;

    for (uint64_t i = 0; file && i < file->devices_count; i++) {
        const struct dvd_sandbox_rule *rule = file->devices[i].sandbox;
        if (!rule)
            continue;
        for (uint64_t j = 0; j < rule->paths_count; j++)
            append(settings->paths, sizeof settings->paths, &paths, rule->paths[j]);
        for (uint64_t j = 0; j < rule->calls_count; j++)
            append(settings->calls, sizeof settings->calls, &calls, rule->calls[j]);
        for (uint32_t j = 0; j < rule->request_count; j++)
            add_ioctl(settings, rule->requests[j]);
        for (uint64_t j = 0; j < rule->groups_count && settings->group_count < DV_SANDBOX_GROUPS_MAX; j++)
            settings->groups[settings->group_count++] = rule->gids[j];
    }
}

int dvd_sandbox_fill(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox, struct dv_sandbox_settings *settings)
{
    *settings = sandboxes->usual;
    /* each probe checks again whether the kernel makes sandboxes */
    settings->on = is_wanted(sandboxes) && !(sandbox ? sandboxes->off : sandboxes->probe_unsandboxed);
    if (!settings->on && !always_drops(sandboxes)) {
        settings->uid = settings->gid = DV_SANDBOX_SAME_USER;
        return -1;
    }
    const char *name = sandbox ? sandbox->name : PROBE_NAME;
    struct dvd_kernel_cache *cache = name ? dvd_kernel_cache_find(&sandboxes->caches, name) : NULL;
    dvd_kernel_cache_fill_user(&sandboxes->caches, cache, settings);
    if (sandbox)
        use_cache(sandboxes, sandbox, cache);
    return cache ? dvd_kernel_cache_open(&sandboxes->caches, cache) : -1;
}

/* ---- bounds ---- */

/* Asks the kernel: the number that the zygote names could be any process. */
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

/* Reads a program's cgroups. Fails if its number belongs to another process by now. */
static bool read_programs_cgroups(const struct dvd_sandbox_processes *processes, char *lines, size_t bytes)
{
    char path[64];
    size_t used = 0;

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)processes->program);
    DV_AUTO_CLOSE int fd = processes->program > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    for (ssize_t got; fd >= 0 && (got = read(fd, lines + used, bytes - 1 - used)) > 0;)
        used += (size_t)got;
    lines[used] = '\0';
    return used > 0 && used < bytes - 1 && pid_of(processes->program_pidfd) == processes->program;
}

static int follow_program(const struct dvd_sandbox_processes *processes, char *text, size_t bytes)
{
    char lines[16384];
    pid_t pid = pid_of(processes->worker_pidfd);

    if (pid <= 0)
        return -ESRCH;
    if (!read_programs_cgroups(processes, lines, sizeof lines)) {
        snprintf(text, bytes, "the program's cgroup cannot be read, so its worker cannot join it");
        return -ESRCH;
    }
    return dvd_cgroups_follow(&dvd_cgroups_kernel, lines, pid, text, bytes);
}

int dvd_sandbox_bound(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                      const struct dvd_sandbox_processes *processes, char *text, size_t bytes)
{
    const struct dvd_cgroups *cgroups = &sandboxes->cgroups;

    text[0] = '\0';
    if (sandboxes->config->tenants_cgroup)
        return follow_program(processes, text, bytes);
    if (!dvd_cgroups_wanted(cgroups))
        return 0;
    sandbox->is_bounded = true;
    sandbox->starved_before = dvd_cgroups_starved(cgroups, kind_of(sandbox));
    pid_t pid = pid_of(processes->worker_pidfd);
    int error = pid <= 0 ? -ESRCH : dvd_cgroups_join(cgroups, kind_of(sandbox), pid);
    if (error < 0)
        snprintf(text, bytes, "the worker cannot be put into a cgroup: %s", strerror(-error));
    return error;
}

void dvd_sandbox_bound_again(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                             const struct dvd_sandbox_processes *processes)
{
    char text[DV_MAX_MESSAGE_TEXT];
    int error = processes->worker_pidfd < 0 ? 0 : dvd_sandbox_bound(sandboxes, sandbox, processes, text, sizeof text);

    if (error < 0 && error != -ESRCH)
        dv_warning("worker %d is not bounded: %s", (int)pid_of(processes->worker_pidfd), strerror(-error));
}

void dvd_sandbox_restore(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                         const struct dvd_sandbox_processes *processes)
{
    if (has_caches(sandboxes) && sandbox->name)
        use_cache(sandboxes, sandbox, dvd_kernel_cache_find(&sandboxes->caches, sandbox->name));
    dvd_sandbox_bound_again(sandboxes, sandbox, processes); /* the earlier daemon may have had other bounds, or none */
}

bool dvd_sandbox_starved(const struct dvd_sandboxes *sandboxes, const struct dvd_sandbox *sandbox)
{
    return sandbox->is_bounded && dvd_cgroups_starved(&sandboxes->cgroups, kind_of(sandbox)) > sandbox->starved_before;
}

void dvd_sandbox_leave(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox)
{
    if (sandbox->is_bounded)
        dvd_cgroups_tidy(&sandboxes->cgroups, kind_of(sandbox));
    if (sandbox->cache)
        dvd_kernel_cache_leave(&sandboxes->caches, sandbox->cache);
    sandbox->cache = NULL;
    free(sandbox->name);
    sandbox->name = NULL;
}

/* Where systemd manages cgroups of version 2, asks it for one that outlives the daemon. */
static void open_scope(struct dvd_sandboxes *sandboxes)
{
    char name[64] = "divvy-workers";
    struct stat own;

    if (sandboxes->config->of_user || !dvd_cgroups_unified(&dvd_cgroups_kernel))
        return;
    if (strcmp(sandboxes->directory, DV_RUNDIR_SYSTEM) != 0 && stat(sandboxes->directory, &own) == 0)
        snprintf(name, sizeof name, "divvy-workers-%jx", (uintmax_t)own.st_ino); /* not the machine's daemon */
    int error = dvd_scope_open(name, sandboxes->launcher_pid, sandboxes->scope, sizeof sandboxes->scope);
    if (error < 0)
        sandboxes->scope[0] = '\0';
    if (error < 0 && error != -ENOENT)
        dv_warning("systemd gives divvyd no cgroup for workers: %s", strerror(-error));
}

static void open_cgroups(struct dvd_sandboxes *sandboxes)
{
    const struct dvd_config_file *file = sandboxes->config->file;
    struct dvd_cgroups *cgroups = &sandboxes->cgroups;
    bool memory = file && file->worker_memory, processes = file && file->worker_processes;
    /* by default in the system's daemon, whose tenants do not trust each other */
    bool usual = !sandboxes->config->of_user && !sandboxes->config->tenants_cgroup;
    bool scoped = sandboxes->scope[0] && !(file && file->worker_cgroup);
    const struct dvd_cgroups_wish wish = {.memory = memory || usual ? sandboxes->config->worker_memory_bytes : 0,
                                          .processes = processes || usual ? sandboxes->config->worker_processes : 0,
                                          .memory_if_possible = !memory,
                                          .processes_if_possible = !processes,
                                          .cgroup = scoped ? sandboxes->scope
                                                    : file ? file->worker_cgroup
                                                           : NULL,
                                          .member = scoped ? sandboxes->launcher_pid : 0};

    bool elsewhere = dvd_cgroups_open(cgroups, &dvd_cgroups_kernel, &wish);
    if (cgroups->why_not[0])
        dv_error("no worker is started: %s", cgroups->why_not);
    if (cgroups->unbounded[0])
        dv_warning("workers of a tenant can use up the machine's %s%s%s: %s",
                   cgroups->bounds[DV_BOUND_MEMORY].most ? "" : "memory",
                   cgroups->bounds[DV_BOUND_MEMORY].most || cgroups->bounds[DV_BOUND_PROCESSES].most ? "" : " and ",
                   cgroups->bounds[DV_BOUND_PROCESSES].most ? "" : "processes", cgroups->unbounded);
    if (elsewhere)
        sandboxes->events->bounds_changed(sandboxes->owner);
}

/* ---- whether there are sandboxes ---- */

static void warn_of_none(const struct dvd_sandboxes *sandboxes, const char *why)
{
    if (always_drops(sandboxes))
        dv_warning("workers run WITHOUT a sandbox, so programs can reach other processes, networks and "
                   "files as any user of this machine can: %s",
                   why);
    else
        dv_warning("workers run WITHOUT a sandbox, so programs can reach all that user %u can: %s",
                   (unsigned)sandboxes->config->owner, why);
}

bool dvd_sandboxes_impossible(struct dvd_sandboxes *sandboxes, const char *why)
{
    if (sandboxes->config->sandbox == DV_SANDBOX_YES) {
        dv_error("workers cannot be sandboxed: %s", why);
        return false;
    }
    if (!sandboxes->off)
        warn_of_none(sandboxes, why);
    sandboxes->off = sandboxes->probe_unsandboxed = true;
    return true;
}

void dvd_sandboxes_probed(struct dvd_sandboxes *sandboxes, bool found_devices)
{
    if (sandboxes->off && found_devices && !sandboxes->probe_unsandboxed && is_wanted(sandboxes)) {
        dv_info("workers are sandboxed again");
        sandboxes->off = false;
    }
    sandboxes->probe_unsandboxed = false;
}

/* ---- life ---- */

void dvd_sandboxes_apply_config(struct dvd_sandboxes *sandboxes)
{
    if (sandboxes->config->sandbox == DV_SANDBOX_YES) /* also where they were found to be impossible */
        sandboxes->off = false;
    dvd_kernel_caches_apply_config(&sandboxes->caches);
    open_cgroups(sandboxes);
    if (!is_wanted(sandboxes))
        warn_of_none(sandboxes, "the configuration says `sandbox: no`");
    sandboxes->usual = (struct dv_sandbox_settings){.processes = sandboxes->config->worker_processes};
    snprintf(sandboxes->usual.root, sizeof sandboxes->usual.root, "%s", sandboxes->root);
    add_needs(sandboxes, &sandboxes->usual);
    if (has_caches(sandboxes))
        dvd_kernel_caches_open(&sandboxes->caches);
}

/* Whether the numbers that workers would run as exist in divvyd's user namespace. */
static bool has_users(const struct dvd_sandboxes *sandboxes)
{
    unsigned long first, outside, count;
    bool found = false;
    FILE *map = fopen("/proc/self/uid_map", "re");

    while (map && !found && fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3)
        found = sandboxes->config->worker_uid_first >= first && sandboxes->config->worker_uid_last - first < count;
    if (map)
        fclose(map);
    return found;
}

static void request_trim(void *owner)
{
    struct dvd_sandboxes *sandboxes = owner;

    sandboxes->events->trim_wanted(sandboxes->owner);
}

void dvd_sandboxes_init(struct dvd_sandboxes *sandboxes, sd_event *event)
{
    const struct dvd_config *config = sandboxes->config;
    /* "root" of a user namespace that knows no other user is a user's daemon */
    bool is_only_user = config->of_user && !has_users(sandboxes);

    sandboxes->caches = (struct dvd_kernel_caches){.event = event,
                                                   .config = config,
                                                   .has_users = config->owner == 0 && !is_only_user,
                                                   .request_trim = request_trim,
                                                   .owner = sandboxes,
                                                   .fd = -1};
    snprintf(sandboxes->root, sizeof sandboxes->root, "%s/sandbox", sandboxes->directory);
    if (mkdir(sandboxes->root, 0755) < 0 && errno != EEXIST)
        dv_error("cannot make %s: %s", sandboxes->root, strerror(errno));
    open_scope(sandboxes);
    dvd_sandboxes_apply_config(sandboxes);
}

void dvd_sandboxes_fini(struct dvd_sandboxes *sandboxes)
{
    if (!sandboxes->root[0])
        return; /* it was not set up */
    dvd_kernel_caches_fini(&sandboxes->caches);
    dvd_cgroups_close(&sandboxes->cgroups);
    rmdir(sandboxes->root);
}
