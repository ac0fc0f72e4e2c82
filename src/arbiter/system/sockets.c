/* Listening sockets (see sockets.h). */
#include "src/arbiter/system/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/base/rundir.h"

#define ACCEPT_PAUSE_US (100 * DV_MS)

int dvd_socket_open(const char *directory, const char *name, int type, unsigned mode)
{
    struct sockaddr_un address;
    int error = dv_rundir_address(&address, directory, name);

    if (error < 0)
        return error;
    /* Only the holder of the directory's lock comes here, so a file that is there is stale. */
    unlink(address.sun_path);
    DV_AUTO_CLOSE int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    mode_t mask = umask(0777); /* no user gets in before the mode is right */
    int status = bind(fd, (struct sockaddr *)&address, sizeof address);
    error = -errno;
    umask(mask);
    if (status < 0)
        return error;
    if (chmod(address.sun_path, mode) < 0 || listen(fd, SOMAXCONN) < 0) {
        error = -errno;
        unlink(address.sun_path);
        return error;
    }
    return dv_take_fd(&fd);
}

int dvd_socket_open_loopback(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1;
    DV_AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return dv_take_fd(&fd);
}

bool dvd_socket_is_local(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;

    return getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 && address.ss_family == AF_UNIX;
}

void dvd_socket_let_in(const char *path, gid_t group, mode_t mode)
{
    if (lchown(path, (uid_t)-1, group) < 0 || chmod(path, mode) < 0)
        dv_warning("cannot set the permissions of %s: %s", path, strerror(errno));
}

int dvd_socket_accept(sd_event_source *source, int fd)
{
    int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (accepted >= 0) {
        sd_event_source_set_ratelimit(source, 0, 0);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        dv_warning("cannot accept a connection for now: %s", strerror(errno));
        sd_event_source_set_ratelimit(source, ACCEPT_PAUSE_US, 1);
    }
    return accepted;
}
