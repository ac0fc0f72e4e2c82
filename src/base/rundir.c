/* Runtime directories and their sockets (see rundir.h). */
#include "src/base/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNNAMED_UID 65534u /* the kernel shows it for users that a namespace does not know */

int dv_rundir_check(const char *path)
{
    struct stat info;

    if (lstat(path, &info) < 0)
        return -errno;
    if (!S_ISDIR(info.st_mode))
        return -ENOTDIR;
    if (info.st_uid != geteuid())
        return -EPERM;
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return -EACCES;
    return 0;
}

int dv_rundir_user(char *path, size_t bytes)
{
    const char *base = secure_getenv("XDG_RUNTIME_DIR");
    int length;

    /* After su or sudo the variable may still name the directory of the previous user. */
    if (base && base[0] == '/' && dv_rundir_check(base) == 0)
        length = snprintf(path, bytes, "%s/divvy", base);
    else
        length = snprintf(path, bytes, "/tmp/divvy-%u", (unsigned)geteuid());
    return length < 0 || (size_t)length >= bytes ? -ENAMETOOLONG : 0;
}

int dv_rundir_make(const char *path, mode_t mode)
{
    int made = 0;

    if (mkdir(path, mode) == 0) {
        made = 1;
        if (chmod(path, mode) < 0) /* whatever the umask was */
            return -errno;
    } else if (errno != EEXIST) {
        return -errno;
    }
    int error = dv_rundir_check(path);
    return error < 0 ? error : made;
}

int dv_rundir_address(struct sockaddr_un *address, const char *directory, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path, sizeof address->sun_path, "%s/%s", directory, name);
    return length < 0 || (size_t)length >= sizeof address->sun_path ? -ENAMETOOLONG : 0;
}

bool dv_rundir_is_served(const char *directory)
{
    char path[DV_RUNDIR_BYTES + sizeof "/" DV_RUNDIR_LOCK];

    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LOCK, directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno != ENOENT;
    bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0;
    close(fd);
    return locked;
}

/* The owner of the directory, if the caller may use a daemon of that user. In a user namespace root may have
 * no number. Only root makes a directory in /run, so the owner without a number is accepted there. */
static int find_owner(const char *directory, uid_t *owner)
{
    struct stat info;

    if (lstat(directory, &info) < 0)
        return -errno;
    if (!S_ISDIR(info.st_mode))
        return -ENOTDIR;
    if (info.st_uid != 0 && info.st_uid != geteuid() &&
        !(info.st_uid == UNNAMED_UID && strcmp(directory, DV_RUNDIR_SYSTEM) == 0))
        return -EPERM;
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return -EPERM;
    *owner = info.st_uid;
    return 0;
}

static int check_server(int fd, uid_t owner)
{
    struct ucred server;
    socklen_t bytes = sizeof server;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &bytes) < 0)
        return -errno;
    return server.uid == owner ? 0 : -EPERM;
}

int dv_rundir_connect(const char *directory, const char *name, int type)
{
    struct sockaddr_un address;
    uid_t owner = 0;
    int error = dv_rundir_address(&address, directory, name);

    if (error == 0)
        error = find_owner(directory, &owner);
    if (error < 0)
        return error;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        error = -errno;
    else
        error = check_server(fd, owner);
    if (error < 0) {
        close(fd);
        return error;
    }
    return fd;
}
