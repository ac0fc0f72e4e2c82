/* The files of the journal of used device time (see journal_file.h). */
#include "src/arbiter/session/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/usage_journal.h"

#define NAME_BYTES 32

/* usage.log, usage.log.1 and so on. */
static const char *name_of(int number, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, number ? DV_USAGE_FILE ".%d" : DV_USAGE_FILE, number);
    return name;
}

static void give_to_readers(int fd, const char *name, gid_t readers)
{
    if (fchown(fd, (uid_t)-1, readers) < 0)
        dv_debug("%s keeps its group: %s", name, strerror(errno));
}

/* A power failure, or a full disk, can have left a part of a line: the next line must not continue it. */
static int end_last_line(struct dvd_journal_file *file)
{
    char last = '\n';

    if (file->bytes > 0 && pread(file->fd, &last, 1, (off_t)file->bytes - 1) < 0)
        return -errno;
    if (last == '\n')
        return 0;
    if (write(file->fd, "\n", 1) != 1)
        return -EIO;
    file->bytes++;
    return 0;
}

static int open_newest(struct dvd_journal_file *file)
{
    struct stat info;

    file->fd = openat(file->directory_fd, DV_USAGE_FILE, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (file->fd < 0)
        return -errno;
    int error = fstat(file->fd, &info) < 0 ? -errno : 0;
    if (error == 0) {
        file->bytes = (uint64_t)info.st_size;
        error = end_last_line(file);
    }
    if (error < 0)
        dv_close_fd(&file->fd);
    else
        give_to_readers(file->fd, DV_USAGE_FILE, file->readers);
    return error;
}

/* usage.log becomes usage.log.1, and so on. */
static void rotate(struct dvd_journal_file *file)
{
    char from[NAME_BYTES], to[NAME_BYTES];

    dv_close_fd(&file->fd);
    for (int i = DV_USAGE_FILES - 1; i > 0; i--)
        renameat(file->directory_fd, name_of(i - 1, from), file->directory_fd, name_of(i, to));
    open_newest(file); /* if that fails, the next line tries again */
}

int dvd_journal_file_open(struct dvd_journal_file *file, const char *directory, gid_t readers)
{
    *file = (struct dvd_journal_file){.directory_fd = -1, .fd = -1, .readers = readers};
    if (!directory)
        return 0;
    mkdir(directory, 0750);
    file->directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (file->directory_fd < 0)
        return -errno;
    give_to_readers(file->directory_fd, directory, readers);
    int error = open_newest(file);
    if (error < 0)
        dvd_journal_file_close(file);
    return error;
}

void dvd_journal_file_close(struct dvd_journal_file *file)
{
    dv_close_fd(&file->fd);
    dv_close_fd(&file->directory_fd);
}

static int append(struct dvd_journal_file *file, const char *line, size_t bytes)
{
    int error = file->fd < 0 ? open_newest(file) : 0;

    if (error < 0)
        return error;
    ssize_t written = write(file->fd, line, bytes);
    if (written == (ssize_t)bytes)
        return 0;
    error = written < 0 ? -errno : -ENOSPC;
    if (written > 0 && ftruncate(file->fd, (off_t)file->bytes) < 0)
        dv_close_fd(&file->fd); /* when it is opened again, the part of a line gets its end */
    return error;
}

bool dvd_journal_file_append(struct dvd_journal_file *file, const char *line, size_t bytes)
{
    if (file->directory_fd < 0)
        return false;
    int error = append(file, line, bytes);
    if (error < 0 && !file->fails)
        dv_error("the journal of used device time cannot be written: %s; `divvy usage` misses what is used meanwhile",
                 strerror(-error));
    file->fails = error < 0;
    if (error < 0)
        return false;
    file->bytes += bytes;
    if (file->bytes >= DV_USAGE_FILE_BYTES_MAX)
        rotate(file);
    return true;
}

void dvd_journal_file_set_readers(struct dvd_journal_file *file, gid_t readers)
{
    char name[NAME_BYTES];

    if (file->directory_fd < 0 || file->readers == readers)
        return;
    file->readers = readers;
    give_to_readers(file->directory_fd, "the directory of the journal", readers);
    for (int i = 0; i < DV_USAGE_FILES; i++) {
        DV_AUTO_CLOSE int fd =
            openat(file->directory_fd, name_of(i, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0)
            give_to_readers(fd, name, readers);
    }
}
