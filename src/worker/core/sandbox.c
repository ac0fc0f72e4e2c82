/* Entering the sandbox (see sandbox.h). */
#include "src/worker/core/sandbox.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/cleanup.h"

#define SCRATCH_OPTIONS "mode=0700,size=256m,nr_inodes=16k"
#define ROOT_OPTIONS "mode=0755,size=1m,nr_inodes=1k"
#define DESCRIPTORS_MOST 4096

#define CACHE_PLACE "/cache"
#define SCRATCH_PLACE "/tmp"

/* Files that every vendor's driver may see; those missing on a machine are left out. Programs and
 * libraries, because PoCL runs a linker when it compiles; the processors, to count them. */
static const char *const usual_paths[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/OpenCL",
    "/etc/localtime",
    "/sys/devices/system",
    "/sys/bus/pci/devices/0000:00:00.0/vendor",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    /* the only files of /proc about the machine: PoCL and hwloc read them */
    "/proc/cpuinfo",
    "/proc/meminfo",
};

/* The kernel's /proc cannot be limited to the worker's own processes and these few files. So it is mounted
 * one step below, and links lead there. The worker is number 1 in its pid namespace. */
#define PROCESSES_PLACE "/proc/own"
static const char *const proc_links[][2] = {{"/proc/self", "own/self"},
                                            {"/proc/thread-self", "own/thread-self"},
                                            {"/proc/1", "own/1"},
                                            {"/proc/mounts", "own/self/mounts"}};

/* A path on the way into the sandbox, and below the directory where its view is built. */
struct view {
    const char *root;
    char path[PATH_MAX];
    char *text; /* for a message about a failure */
    size_t text_bytes;
};

static int failed(const struct view *view, const char *what, const char *path)
{
    int error = errno ? errno : EIO;

    snprintf(view->text, view->text_bytes, "%s %s: %s", what, path, strerror(error));
    return -error;
}

/* ---- checks ---- */

static bool is_list(const char *list, size_t bytes)
{
    size_t at = 0;

    while (at < bytes && list[at]) {
        size_t length = strnlen(list + at, bytes - at);
        if (length == bytes - at)
            return false;
        at += length + 1;
    }
    return at < bytes;
}

bool dvk_sandbox_is_sound(const struct dv_sandbox_settings *sandbox)
{
    return sandbox->group_count <= DV_SANDBOX_GROUPS_MAX && sandbox->ioctl_count <= DV_SANDBOX_IOCTLS_MAX &&
           sandbox->root[0] == '/' && memchr(sandbox->root, '\0', sizeof sandbox->root) &&
           is_list(sandbox->paths, sizeof sandbox->paths) && is_list(sandbox->calls, sizeof sandbox->calls);
}

bool dvk_sandbox_is_refused(int error)
{
    return error == -EPERM || error == -ENOSYS || error == -EINVAL;
}

/* ---- namespaces ---- */

static int write_file(const char *path, const char *words)
{
    DV_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t length = strlen(words);

    if (fd < 0)
        return -errno;
    return write(fd, words, length) == (ssize_t)length ? 0 : -errno;
}

/* The kernel also returns ENOSPC where users may have no namespaces at all. */
static bool has_no_user_namespaces(void)
{
    DV_AUTO_CLOSE int fd = open("/proc/sys/user/max_user_namespaces", O_RDONLY | O_CLOEXEC);
    char digits[2] = "";

    return fd >= 0 && read(fd, digits, sizeof digits) > 0 && digits[0] == '0';
}

/* In a user namespace of its own a process has the rights that the rest needs. */
static int own_user_namespace(char *text, size_t bytes)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char map[64];

    if (unshare(CLONE_NEWUSER) < 0) {
        int error = errno == ENOSPC && has_no_user_namespaces() ? EPERM : errno;
        snprintf(text, bytes,
                 "this machine does not allow user namespaces (%s); allow them (kernel.unprivileged_"
                 "userns_clone, user.max_user_namespaces or the security module's rule), run divvyd "
                 "as root, or set sandbox: no",
                 strerror(error));
        return -error;
    }
    snprintf(map, sizeof map, "%u %u 1", (unsigned)uid, (unsigned)uid);
    int status = write_file("/proc/self/uid_map", map);
    if (status == 0)
        status = write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", (unsigned)gid, (unsigned)gid);
    if (status == 0)
        status = write_file("/proc/self/gid_map", map);
    if (status < 0)
        snprintf(text, bytes, "cannot set up a user namespace: %s", strerror(-status));
    return status;
}

int dvk_sandbox_leave_host(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes)
{
    int status = sandbox->uid == DV_SANDBOX_SAME_USER ? own_user_namespace(text, bytes) : 0;

    if (status < 0)
        return status;
    /* No others: no worker has a system call for System V memory, queues or the host's name (a configuration
     * cannot give it one), nor a file of cgroups. So the unit can forbid those namespaces to all of divvyd. */
    if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET) < 0) {
        status = -errno;
        snprintf(text, bytes,
                 "cannot make namespaces for a worker: %s; divvyd needs CAP_SYS_ADMIN "
                 "for that, or sandbox: no",
                 strerror(-status));
    }
    return status;
}

/* ---- files ---- */

static int make_parents(struct view *view)
{
    for (char *slash = strchr(view->path + strlen(view->root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int status = mkdir(view->path, 0755) < 0 && errno != EEXIST ? -errno : 0;
        *slash = '/';
        if (status < 0)
            return status;
    }
    return 0;
}

/* Also makes everything read-only that is mounted below the path. */
static int make_read_only(const char *path, bool is_device)
{
    struct mount_attr attributes = {.attr_set =
                                        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | (is_device ? MOUNT_ATTR_NOEXEC : 0)};

    if (syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes, sizeof attributes) == 0)
        return 0;
    if (errno != ENOSYS)
        return -errno;
    /* Linux before 5.12: the top one only; mounts below it have their own permissions */
    return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, NULL) < 0 ? -errno : 0;
}

static int set_place(struct view *view, const char *path)
{
    int length = snprintf(view->path, sizeof view->path, "%s%s", view->root, path);

    if (length < 0 || (size_t)length >= sizeof view->path) {
        errno = ENAMETOOLONG;
        return failed(view, "cannot show", path);
    }
    return make_parents(view) < 0 ? failed(view, "cannot make a place for", path) : 0;
}

/* Copies a symbolic link as it is. */
static int show_link(struct view *view, const char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);

    if (length < 0)
        return failed(view, "cannot read the link", path);
    target[length] = '\0';
    return symlink(target, view->path) < 0 && errno != EEXIST ? failed(view, "cannot show", path) : 0;
}

/* Shows a file, directory or device as it is, read-only. */
static int show(struct view *view, const char *path)
{
    struct stat info;

    if (lstat(path, &info) < 0)
        return errno == ENOENT || errno == EACCES ? 0 : failed(view, "cannot look at", path);
    int status = set_place(view, path);
    if (status < 0)
        return status;
    if (S_ISLNK(info.st_mode))
        return show_link(view, path);
    if (S_ISDIR(info.st_mode))
        status = mkdir(view->path, 0755) < 0 && errno != EEXIST ? -errno : 0;
    else
        status = mknod(view->path, S_IFREG | 0644, 0) < 0 && errno != EEXIST ? -errno : 0;
    if (status < 0 || mount(path, view->path, NULL, MS_BIND | MS_REC, NULL) < 0 ||
        make_read_only(view->path, S_ISCHR(info.st_mode)) < 0)
        return failed(view, "cannot show", path);
    return 0;
}

static int show_fresh(struct view *view, const char *path, const char *type, unsigned long flags, const char *options)
{
    int status = set_place(view, path);

    if (status < 0)
        return status;
    if ((mkdir(view->path, 0755) < 0 && errno != EEXIST) ||
        mount(type, view->path, type, flags | MS_NOSUID | MS_NODEV, options) < 0)
        return failed(view, "cannot mount a private", path);
    return 0;
}

/* The tenant's compiled kernels: the one place that outlives the worker. The descriptor comes from
 * another mount namespace, so it cannot be mounted itself; it gives the directory's name, and a check
 * that it is the right one. */
static int show_cache(struct view *view, int cache_fd)
{
    char link[64], source[PATH_MAX];
    struct stat wanted, found;
    int status = set_place(view, CACHE_PLACE);

    if (status < 0 || cache_fd < 0)
        return status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", cache_fd);
    ssize_t length = readlink(link, source, sizeof source - 1);
    source[length < 0 ? 0 : length] = '\0';
    if ((mkdir(view->path, 0755) < 0 && errno != EEXIST) || mount(source, view->path, NULL, MS_BIND, NULL) < 0 ||
        fstat(cache_fd, &wanted) < 0 || stat(view->path, &found) < 0)
        return failed(view, "cannot show", "the directory for compiled kernels");
    if (wanted.st_dev != found.st_dev || wanted.st_ino != found.st_ino) {
        errno = ESTALE;
        return failed(view, "cannot show", "the directory for compiled kernels");
    }
    if (mount(NULL, view->path, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, NULL) < 0)
        return failed(view, "cannot restrict", "the directory for compiled kernels");
    return 0;
}

static int show_processes(struct view *view)
{
    const unsigned long flags = MS_RDONLY | MS_NOEXEC;
    int status = show_fresh(view, PROCESSES_PLACE, "proc", flags, "subset=pid");

    if (status == -EINVAL) /* Linux before 5.8: all that the kernel shows to every process */
        status = show_fresh(view, PROCESSES_PLACE, "proc", flags, NULL);
    for (size_t i = 0; status == 0 && i < sizeof proc_links / sizeof proc_links[0]; i++) {
        status = set_place(view, proc_links[i][0]);
        if (status == 0 && symlink(proc_links[i][1], view->path) < 0)
            status = failed(view, "cannot show", proc_links[i][0]);
    }
    return status;
}

/* The scratch directory belongs to the worker's user. Programs can run from it only where compiled
 * kernels have no other place. */
static int give_scratch(struct view *view, const struct dv_sandbox_settings *sandbox, bool runs_programs)
{
    char options[128];

    if (sandbox->uid == DV_SANDBOX_SAME_USER)
        snprintf(options, sizeof options, SCRATCH_OPTIONS);
    else
        snprintf(options, sizeof options, SCRATCH_OPTIONS ",uid=%u,gid=%u", sandbox->uid, sandbox->gid);
    return show_fresh(view, SCRATCH_PLACE, "tmpfs", runs_programs ? 0 : MS_NOEXEC, options);
}

static int put_view_together(struct view *view, const struct dv_sandbox_settings *sandbox, int cache_fd)
{
    const char *vendors = getenv("OCL_ICD_VENDORS");
    int status = 0;

    if (mount("divvy", view->root, "tmpfs", MS_NOSUID | MS_NODEV, ROOT_OPTIONS) < 0)
        return failed(view, "cannot mount a view of the files on", view->root);
    for (size_t i = 0; status == 0 && i < sizeof usual_paths / sizeof usual_paths[0]; i++)
        status = show(view, usual_paths[i]);
    if (status == 0) /* before paths that may lie below it */
        status = give_scratch(view, sandbox, cache_fd < 0);
    if (status == 0 && vendors)
        status = show(view, vendors);
    for (const char *path = sandbox->paths; status == 0 && *path; path += strlen(path) + 1)
        status = show(view, path);
    if (status == 0)
        status = show_processes(view);
    if (status == 0)
        status = show_cache(view, cache_fd);
    return status;
}

static int change_view(struct view *view, const struct dv_sandbox_settings *sandbox, int cache_fd)
{
    /* Keep mounts made here from the machine, and the machine's later mounts from here: they would be
     * neither read-only nor without setuid programs. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return failed(view, "cannot separate from the machine's mounts at", "/");
    int status = put_view_together(view, sandbox, cache_fd);
    if (status < 0)
        return status;
    if (chdir(view->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0 || mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        return failed(view, "cannot change the root directory to", view->root);
    return 0;
}

static void name_places(const char *scratch, const char *cache)
{
    setenv("HOME", scratch, 1);
    setenv("TMPDIR", scratch, 1);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("POCL_CACHE_DIR", cache, 1);
    setenv("CUDA_CACHE_PATH", cache, 1);
}

/* ---- rights ---- */

static int limit(const struct view *view, __rlimit_resource_t resource, rlim_t most, const char *name)
{
    struct rlimit now;

    if (getrlimit(resource, &now) < 0)
        return failed(view, "cannot limit", name);
    if (now.rlim_max < most)
        most = now.rlim_max;
    now = (struct rlimit){.rlim_cur = most, .rlim_max = most};
    return setrlimit(resource, &now) < 0 ? failed(view, "cannot limit", name) : 0;
}

static int set_limits(const struct view *view, const struct dv_sandbox_settings *sandbox)
{
    int status = limit(view, RLIMIT_CORE, 0, "core files");

    if (status == 0)
        status = limit(view, RLIMIT_NOFILE, DESCRIPTORS_MOST, "descriptors");
    if (status == 0 && sandbox->file_bytes)
        status = limit(view, RLIMIT_FSIZE, sandbox->file_bytes, "the length of files");
    /* counted for each user; not limited where the worker runs as its tenant's user */
    if (status == 0 && sandbox->uid != DV_SANDBOX_SAME_USER && sandbox->processes)
        status = limit(view, RLIMIT_NPROC, sandbox->processes, "processes");
    return status;
}

static int drop_rights(const struct view *view, const struct dv_sandbox_settings *sandbox)
{
    gid_t groups[DV_SANDBOX_GROUPS_MAX];
    int error;

    for (uint32_t i = 0; i < sandbox->group_count; i++)
        groups[i] = sandbox->groups[i];
    capng_clear(CAPNG_SELECT_BOTH);
    if (sandbox->uid == DV_SANDBOX_SAME_USER) {
        error = capng_apply(CAPNG_SELECT_BOTH);
    } else {
        if (setgroups(sandbox->group_count, groups) < 0)
            return failed(view, "cannot set", "the worker's groups");
        if (setresgid(sandbox->gid, sandbox->gid, sandbox->gid) < 0)
            return failed(view, "cannot change to", "the worker's group (worker-users)");
        error = capng_change_id((int)sandbox->uid, (int)sandbox->gid, CAPNG_CLEAR_BOUNDING);
    }
    if (error) {
        errno = EPERM;
        return failed(view, "cannot give up", "the worker's rights");
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0) < 0)
        return failed(view, "cannot give up", "the worker's rights for good");
    return 0;
}

int dvk_sandbox_become_user(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes)
{
    return drop_rights(&(struct view){.root = sandbox->root, .text = text, .text_bytes = bytes}, sandbox);
}

static void end_by_signal(int number)
{
    _exit(DV_SANDBOX_SIGNAL_BASE + number);
}

/* The first process of a pid namespace does not get signals that it does not handle. */
static void die_as_others_do(void)
{
    static const int deadly[] = {SIGTERM, SIGABRT, SIGALRM, SIGINT, SIGXCPU};

    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        signal(deadly[i], end_by_signal);
}

/* With or without a sandbox. A failure here says nothing about sandboxes. */
static int become_worker(const struct view *view, const struct dv_sandbox_settings *sandbox)
{
    int status = set_limits(view, sandbox);

    if (status == 0)
        status = drop_rights(view, sandbox);
    return status < 0 ? -EIO : 0;
}

/* Tells a later daemon when the directory was used. Done here, because earlier workers of the tenant can keep
 * others waiting for the directory. */
static void note_use(int cache_fd)
{
    if (cache_fd >= 0)
        (void)futimens(cache_fd, NULL);
}

/* The path to the directory may be closed to the worker's user: it works from inside. */
static int enter_without_sandbox(const struct view *view, const struct dv_sandbox_settings *sandbox, int cache_fd)
{
    int status = 0;

    if (sandbox->uid == DV_SANDBOX_SAME_USER) { /* nothing to change for the same user */
        if (cache_fd >= 0)
            close(cache_fd);
        return 0;
    }
    if (cache_fd < 0) {
        errno = ENOENT;
        status = failed(
            view, "a worker without a sandbox has no place for compiled kernels, see divvyd's log:", "its directory");
    } else if (fchdir(cache_fd) < 0) {
        status = failed(view, "cannot change to", "the directory for compiled kernels");
    }
    name_places(".", "./unsandboxed");
    if (cache_fd >= 0)
        close(cache_fd);
    return status < 0 ? status : become_worker(view, sandbox);
}

int dvk_sandbox_enter(const struct dv_sandbox_settings *sandbox, int cache_fd, char *text, size_t bytes)
{
    struct view view = {.root = sandbox->root, .text = text, .text_bytes = bytes};

    note_use(cache_fd);
    if (!sandbox->on)
        return enter_without_sandbox(&view, sandbox, cache_fd);
    int status = change_view(&view, sandbox, cache_fd);
    name_places(SCRATCH_PLACE, cache_fd >= 0 ? CACHE_PLACE : SCRATCH_PLACE);
    if (cache_fd >= 0)
        close(cache_fd);
    if (status == 0)
        status = become_worker(&view, sandbox);
    die_as_others_do();
    if (status == 0)
        status = dvk_sandbox_restrict_calls(sandbox, text, bytes);
    return status;
}
