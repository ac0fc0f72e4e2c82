/* Removing old compiled kernels (see cache_trim.h). Directories are entered and files removed by descriptor,
 * because the tenant can replace any name with a link to elsewhere at any time. No directory is read as a
 * whole, because it can be as large as the tenant likes. */
#include "src/worker/core/cache_trim.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"

/* More files and directories than this are not sorted: those found later go first. */
#define FILES_MOST 100000
#define DIRECTORIES_MOST 25000
/* Directories at this depth are moved to the top, where the next trim finds them. */
#define DEPTH_MOST 32
/* A younger directory is left alone: a worker may be about to write in it. */
#define EMPTY_FOR_S 60
/* Maximum number of passes, where each moves directories to the top. */
#define ROUNDS_MOST 1000

struct found {
    char *path;
    uint64_t bytes;
    time_t changed;
};

struct list {
    struct found *found;
    size_t count, capacity, most;
};

struct trim {
    int top_fd;
    dev_t device;
    struct list files, directories; /* a directory comes before those in it */
    uint64_t bytes;                 /* of all that is left */
    bool lifted;                    /* a directory was moved to the top */
    char path[PATH_MAX];            /* of the directory that is read, from the top, with a slash at its end */
    size_t path_length;
};

static uint64_t bytes_of(const struct stat *info)
{
    return (uint64_t)info->st_blocks * 512;
}

static bool note(struct trim *trim, struct list *list, const char *name, const struct stat *info)
{
    char *path = NULL;

    if (list->count == list->most)
        return false;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 256;
        struct found *grown = realloc(list->found, capacity * sizeof *grown);
        if (!grown)
            return false;
        list->found = grown;
        list->capacity = capacity;
    }
    if (asprintf(&path, "%.*s%s", (int)trim->path_length, trim->path, name) < 0)
        return false;
    list->found[list->count++] = (struct found){.path = path, .bytes = bytes_of(info), .changed = info->st_mtime};
    trim->bytes += bytes_of(info);
    return true;
}

static int older_first(const void *a, const void *b)
{
    const struct found *one = a, *other = b;
    return (one->changed > other->changed) - (one->changed < other->changed);
}

static void lift(struct trim *trim, int parent_fd, const char *name)
{
    char new_name[64];

    /* a name that the tenant cannot have taken in advance */
    snprintf(new_name, sizeof new_name, "deep-%" PRIx64, dv_now());
    if (renameat(parent_fd, name, trim->top_fd, new_name) == 0)
        trim->lifted = true;
}

static void walk(struct trim *trim, int fd, int depth, bool doomed);

static void enter(struct trim *trim, int parent_fd, const char *name, const struct stat *info, int depth, bool doomed)
{
    size_t length = trim->path_length, more = strlen(name);

    if ((info->st_mode & S_IRWXU) != S_IRWXU && fchmodat(parent_fd, name, S_IRWXU, 0) < 0)
        return; /* closed by another user */
    if (depth == DEPTH_MOST || length + more + 1 > sizeof trim->path) {
        lift(trim, parent_fd, name);
        return;
    }
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    doomed = doomed || !note(trim, &trim->directories, name, info);
    memcpy(trim->path + length, name, more);
    trim->path[length + more] = '/';
    trim->path_length = length + more + 1;
    size_t mine = trim->directories.count - 1; /* unless doomed */
    walk(trim, fd, depth + 1, doomed);
    trim->path_length = length;
    if ((doomed || time(NULL) - info->st_mtime > EMPTY_FOR_S) && unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 &&
        !doomed) { /* fails when it is not empty */
        trim->bytes -= trim->directories.found[mine].bytes;
        trim->directories.found[mine].bytes = 0;
    }
}

/* Takes the descriptor over. With `doomed` it removes all that it finds. */
static void walk(struct trim *trim, int fd, int depth, bool doomed)
{
    DIR *directory = fdopendir(fd);
    struct stat info;

    if (!directory)
        close(fd);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
            info.st_dev != trim->device)
            continue;
        if (S_ISDIR(info.st_mode))
            enter(trim, fd, name, &info, depth, doomed);
        else if (doomed || !note(trim, &trim->files, name, &info))
            unlinkat(fd, name, 0);
    }
    if (directory)
        closedir(directory);
}

static void remove_found(struct trim *trim, struct found *found, int flags)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    char *slash = strrchr(found->path, '/');
    DV_AUTO_CLOSE int parent_fd = -1;

    if (slash) {
        *slash = '\0';
        parent_fd = (int)syscall(SYS_openat2, trim->top_fd, found->path, &how, sizeof how);
        if (parent_fd < 0)
            return;
    }
    if (unlinkat(slash ? parent_fd : trim->top_fd, slash ? slash + 1 : found->path, flags) == 0)
        trim->bytes -= found->bytes;
}

static void remove_down_to(struct trim *trim, uint64_t bytes)
{
    qsort(trim->files.found, trim->files.count, sizeof *trim->files.found, older_first);
    for (size_t i = 0; i < trim->files.count && trim->bytes > bytes; i++)
        remove_found(trim, &trim->files.found[i], 0);
    /* then directories: empty ones, from the innermost */
    for (size_t i = trim->directories.count; i > 0 && trim->bytes > bytes; i--)
        remove_found(trim, &trim->directories.found[i - 1], AT_REMOVEDIR);
}

static void forget(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->found[i].path);
    free(list->found);
}

/* Opens the top for reading. Its owner may have closed it, too. */
static int begin(struct trim *trim, int directory_fd)
{
    struct stat info;

    if (fstat(directory_fd, &info) == 0 && (info.st_mode & S_IRWXU) != S_IRWXU)
        fchmod(directory_fd, S_IRWXU);
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) < 0) {
        dv_close_fd(&fd);
        return -1;
    }
    trim->top_fd = directory_fd;
    trim->device = info.st_dev;
    trim->bytes = bytes_of(&info);
    return fd;
}

uint64_t dvk_cache_trim(int directory_fd, uint64_t bytes_most)
{
    struct trim trim = {.files.most = FILES_MOST, .directories.most = DIRECTORIES_MOST};
    int fd = begin(&trim, directory_fd);

    if (fd < 0)
        return 0;
    walk(&trim, fd, 0, false);
    if (trim.bytes > bytes_most)
        remove_down_to(&trim, bytes_most / 4 * 3);
    forget(&trim.files);
    forget(&trim.directories);
    return trim.bytes;
}

void dvk_cache_empty(int directory_fd)
{
    for (int i = 0; i < ROUNDS_MOST; i++) {
        struct trim trim = {0};
        int fd = begin(&trim, directory_fd);
        if (fd >= 0)
            walk(&trim, fd, 0, true);
        if (!trim.lifted)
            return;
    }
}
