/* Removing old compiled kernels (see sweep.h). Directories are entered and files removed by descriptor, for
 * the tenant can put a link to elsewhere in place of any name at any time; and no directory is read as a
 * whole, for it can be as large as the tenant likes. */
#include "src/worker/core/sweep.h"

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

/* More files than that are not sorted: those found later go first. */
#define FILES_MOST 100000
/* Directories below so many others come up to the top, where the next sweep finds them. */
#define DEPTH_MOST 32
/* A directory in which somebody may just be about to write is left alone. */
#define EMPTY_FOR_S 60

struct found {
    char *path;
    uint64_t bytes;
    time_t changed;
};

struct sweep {
    int top_fd;
    dev_t device;
    struct found *files;
    size_t count, capacity;
    uint64_t bytes; /* of those that are left */
    char path[PATH_MAX]; /* of the directory that is read, from the top, with a slash at its end */
    size_t path_length;
};

static bool note(struct sweep *sweep, const char *name, const struct stat *info)
{
    char *path = NULL;

    if (sweep->count == FILES_MOST)
        return false;
    if (sweep->count == sweep->capacity) {
        size_t capacity = sweep->capacity ? 2 * sweep->capacity : 256;
        struct found *grown = realloc(sweep->files, capacity * sizeof *grown);
        if (!grown)
            return false;
        sweep->files = grown;
        sweep->capacity = capacity;
    }
    if (asprintf(&path, "%.*s%s", (int)sweep->path_length, sweep->path, name) < 0)
        return false;
    sweep->files[sweep->count++] = (struct found){
        .path = path, .bytes = (uint64_t)info->st_blocks * 512, .changed = info->st_mtime};
    sweep->bytes += sweep->files[sweep->count - 1].bytes;
    return true;
}

static int older_first(const void *a, const void *b)
{
    const struct found *one = a, *other = b;
    return (one->changed > other->changed) - (one->changed < other->changed);
}

static void lift(const struct sweep *sweep, int parent_fd, const char *name)
{
    char place[64];

    /* a name that nobody has put there to be in the way */
    snprintf(place, sizeof place, "deep-%" PRIx64, dv_now());
    renameat(parent_fd, name, sweep->top_fd, place);
}

static void walk(struct sweep *sweep, int fd, int depth);

static void enter(struct sweep *sweep, int parent_fd, const char *name, const struct stat *info,
                  int depth)
{
    size_t length = sweep->path_length, more = strlen(name);

    if (depth == DEPTH_MOST || length + more + 1 > sizeof sweep->path) {
        lift(sweep, parent_fd, name);
        return;
    }
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    memcpy(sweep->path + length, name, more);
    sweep->path[length + more] = '/';
    sweep->path_length = length + more + 1;
    walk(sweep, fd, depth + 1);
    sweep->path_length = length;
    if (time(NULL) - info->st_mtime > EMPTY_FOR_S)
        unlinkat(parent_fd, name, AT_REMOVEDIR); /* fails when it is not empty */
}

/* Takes the descriptor over. */
static void walk(struct sweep *sweep, int fd, int depth)
{
    DIR *directory = fdopendir(fd);
    struct stat info;

    if (!directory)
        close(fd);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0 || info.st_dev != sweep->device)
            continue;
        if (S_ISDIR(info.st_mode))
            enter(sweep, fd, name, &info, depth);
        else if (!note(sweep, name, &info))
            unlinkat(fd, name, 0);
    }
    if (directory)
        closedir(directory);
}

static bool remove_found(const struct sweep *sweep, struct found *file)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    char *slash = strrchr(file->path, '/');

    if (!slash)
        return unlinkat(sweep->top_fd, file->path, 0) == 0;
    *slash = '\0';
    DV_AUTO_CLOSE int parent_fd =
        (int)syscall(SYS_openat2, sweep->top_fd, file->path, &how, sizeof how);
    return parent_fd >= 0 && unlinkat(parent_fd, slash + 1, 0) == 0;
}

void dv_sweep(int directory_fd, uint64_t bytes_most)
{
    struct sweep sweep = {.top_fd = directory_fd};
    struct stat info;
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) < 0) {
        dv_close_fd(&fd);
        return;
    }
    sweep.device = info.st_dev;
    walk(&sweep, fd, 0);
    if (sweep.bytes > bytes_most) {
        qsort(sweep.files, sweep.count, sizeof *sweep.files, older_first);
        for (size_t i = 0; i < sweep.count && sweep.bytes > bytes_most / 4 * 3; i++)
            if (remove_found(&sweep, &sweep.files[i]))
                sweep.bytes -= sweep.files[i].bytes;
    }
    for (size_t i = 0; i < sweep.count; i++)
        free(sweep.files[i].path);
    free(sweep.files);
}
