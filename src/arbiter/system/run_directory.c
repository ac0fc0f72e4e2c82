/* The runtime directory (see run_directory.h). */
#include "src/arbiter/system/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
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
    char path[DV_RUNDIR_BYTES + 16];
    int error = make(directory, given, of_user);

    if (error == 0)
        error = lock(directory);
    if (error < 0)
        return error;
    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LEFT, directory->path);
    unlink(path);
    return 0;
}

/* A container keeps the directory that was mounted when it started: the directory stays, its socket is replaced. */
static int link_for_containers(const struct dvd_run_directory *directory)
{
    char containers[DV_RUNDIR_BYTES + 16], socket[DV_RUNDIR_BYTES + 16], name[DV_RUNDIR_BYTES + 32],
        draft[DV_RUNDIR_BYTES + 32];

    snprintf(containers, sizeof containers, "%s/" DV_RUNDIR_CONTAINERS, directory->path);
    snprintf(socket, sizeof socket, "%s/" DV_RUNDIR_SESSION_SOCKET, directory->path);
    snprintf(name, sizeof name, "%s/" DV_RUNDIR_SESSION_SOCKET, containers);
    snprintf(draft, sizeof draft, "%s/new", containers);
    int status = dv_rundir_make(containers, 0755);
    if (status < 0)
        return status;
    unlink(draft);
    if (link(socket, draft) < 0)
        return -errno;
    status = rename(draft, name) < 0 ? -errno : 0;
    unlink(draft); /* rename leaves it there if both names led to the same socket */
    return status;
}

void dvd_run_directory_offer_containers(const struct dvd_run_directory *directory)
{
    int status = link_for_containers(directory);

    if (status < 0)
        dv_warning("cannot put the session socket into %s/" DV_RUNDIR_CONTAINERS ": %s; containers will not find it",
                   directory->path, strerror(-status));
}

/* If the service manager keeps the session socket, containers keep it, too. */
static void withdraw_from_containers(const struct dvd_run_directory *directory)
{
    char path[DV_RUNDIR_BYTES + 32];
    struct stat info;

    snprintf(path, sizeof path, "%s/" DV_RUNDIR_CONTAINERS "/" DV_RUNDIR_SESSION_SOCKET, directory->path);
    if (lstat(path, &info) == 0 && info.st_nlink > 1)
        return;
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

void dvd_run_directory_note_left(const struct dvd_run_directory *directory, unsigned sessions, unsigned wait_s)
{
    char path[DV_RUNDIR_BYTES + 16];

    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LEFT, directory->path);
    DV_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0)
        dprintf(fd, "%lld %u %u\n", (long long)time(NULL), sessions, wait_s);
}

void dvd_run_directory_close(struct dvd_run_directory *directory, bool keep_files)
{
    char path[DV_RUNDIR_BYTES + 16];
    struct sockaddr_un keeper;

    if (directory->lock_fd < 0)
        return; /* it is another daemon's */
    if (!keep_files) {
        withdraw_from_containers(directory);
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
