/* Removing old compiled kernels (see sweep.h). */
#include "src/worker/core/sweep.h"

#include <fts.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* More files than that are not sorted: those found later go first. */
#define FILES_MOST 100000
/* A directory in which somebody may just be about to write is left alone. */
#define EMPTY_FOR_S 60

struct found {
    char *path;
    uint64_t bytes;
    time_t changed;
};

struct sweep {
    struct found *files;
    size_t count, capacity;
    uint64_t bytes; /* of those that are left */
};

static bool note(struct sweep *sweep, const FTSENT *entry)
{
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
    char *path = strdup(entry->fts_path);
    if (!path)
        return false;
    sweep->files[sweep->count++] =
        (struct found){.path = path,
                       .bytes = (uint64_t)entry->fts_statp->st_blocks * 512,
                       .changed = entry->fts_statp->st_mtime};
    sweep->bytes += sweep->files[sweep->count - 1].bytes;
    return true;
}

static int older_first(const void *a, const void *b)
{
    const struct found *one = a, *other = b;
    return (one->changed > other->changed) - (one->changed < other->changed);
}

static void look_at(struct sweep *sweep, FTSENT *entry)
{
    switch (entry->fts_info) {
    case FTS_D:
    case FTS_DOT:
        break;
    case FTS_DP:
        if (entry->fts_level > 0 && time(NULL) - entry->fts_statp->st_mtime > EMPTY_FOR_S)
            rmdir(entry->fts_path); /* fails when it is not empty */
        break;
    default:
        if (!note(sweep, entry))
            unlink(entry->fts_path);
    }
}

void dv_sweep(int directory_fd, uint64_t bytes_most)
{
    char here[] = ".";
    char *const roots[] = {here, NULL};
    struct sweep sweep = {0};

    if (fchdir(directory_fd) < 0)
        return;
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    for (FTSENT *entry; tree && (entry = fts_read(tree));)
        look_at(&sweep, entry);
    if (tree)
        fts_close(tree);
    if (sweep.bytes > bytes_most) {
        qsort(sweep.files, sweep.count, sizeof *sweep.files, older_first);
        for (size_t i = 0; i < sweep.count && sweep.bytes > bytes_most / 4 * 3; i++)
            if (unlink(sweep.files[i].path) == 0)
                sweep.bytes -= sweep.files[i].bytes;
    }
    for (size_t i = 0; i < sweep.count; i++)
        free(sweep.files[i].path);
    free(sweep.files);
}
