/* The runtime directory (see run_directory.h). */
#include "src/arbiter/system/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/wire/restart/keeper.h"

#define LOCK_TRIES 30 /* an earlier daemon may be about to end */
#define LOCK_PAUSE_US 100000

static int choose(struct dvd_run_directory *directory, const char *given, bool of_user)
{
    int length;

    if (!given && of_user)
        return dv_rundir_user(directory->path, sizeof directory->path);
    const char *wanted = given ? given : DV_RUNDIR_SYSTEM;
    if (wanted[0] == '/') {
        length = snprintf(directory->path, sizeof directory->path, "%s", wanted);
    } else { /* absolute: it goes into the workers' environment */
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here))
            return -errno;
        length = snprintf(directory->path, sizeof directory->path, "%s/%s", here, wanted);
    }
    if (length < 0 || (size_t)length + sizeof "/" DV_RUNDIR_CONTROL_SOCKET > DV_RUNDIR_BYTES)
        return -ENAMETOOLONG;
    return 0;
}

static int make(struct dvd_run_directory *directory, const char *given, bool of_user)
{
    int status = choose(directory, given, of_user);
    if (status < 0) {
        dv_error("cannot use the directory %s: its name is too long for sockets (at most %zu "
                 "characters); choose a shorter one with --dir",
                 given ? given : "", DV_RUNDIR_BYTES - sizeof "/" DV_RUNDIR_CONTROL_SOCKET);
        return status;
    }
    status = dv_rundir_make(directory->path, of_user ? 0700 : 0755);
    if (status == -EPERM)
        dv_error("cannot use %s: it belongs to another user; choose another one with --dir", directory->path);
    else if (status == -EACCES)
        dv_error("cannot use %s: other users can write to it, or you cannot; remove their permission "
                 "(chmod go-w) or choose another one with --dir",
                 directory->path);
    else if (status < 0)
        dv_error("cannot make %s: %s; choose another one with --dir", directory->path, strerror(-status));
    return status < 0 ? status : 0;
}

/* The file may be removed by the daemon that held it, so the lock counts only while the name still
 * leads to the file that is locked. */
static int try_lock(const char *path)
{
    DV_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat ours, named;

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    if (fstat(fd, &ours) < 0 || stat(path, &named) < 0 || ours.st_ino != named.st_ino)
        return -EWOULDBLOCK;
    return dv_take_fd(&fd);
}

static int lock(struct dvd_run_directory *directory)
{
    char path[DV_RUNDIR_BYTES + 16];
    int fd = -EWOULDBLOCK;

    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LOCK, directory->path);
    for (int i = 0; i < LOCK_TRIES && fd == -EWOULDBLOCK; i++) {
        if (i > 0)
            usleep(LOCK_PAUSE_US);
        fd = try_lock(path);
    }
    if (fd == -EWOULDBLOCK)
        dv_error("another divvyd runs in %s; stop that one first or choose another directory with "
                 "--dir",
                 directory->path);
    else if (fd < 0)
        dv_error("cannot lock %s: %s", path, strerror(-fd));
    directory->lock_fd = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

int dvd_run_directory_open(struct dvd_run_directory *directory, const char *given, bool of_user)
{
    int error = make(directory, given, of_user);

    return error < 0 ? error : lock(directory);
}

void dvd_run_directory_close(struct dvd_run_directory *directory, bool keep_files)
{
    char path[DV_RUNDIR_BYTES + 16];
    struct sockaddr_un keeper;

    if (directory->lock_fd < 0)
        return; /* it is another daemon's */
    if (!keep_files) {
        if (dv_rundir_address(&keeper, directory->path, DV_KEEPER_SOCKET) == 0)
            unlink(keeper.sun_path);
        snprintf(path, sizeof path, "%s/" DV_RUNDIR_CONTROL, directory->path);
        rmdir(path);
        snprintf(path, sizeof path, "%s/" DV_RUNDIR_LOCK, directory->path);
        unlink(path);
        rmdir(directory->path); /* stays if others keep files in it */
    }
    dv_close_fd(&directory->lock_fd);
}
