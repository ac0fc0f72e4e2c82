/* Sockets of untrusted programs (see incoming.h). */
#include "src/arbiter/system/incoming.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "src/arbiter/system/aside.h"
#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"

/* Whether the kernel refuses descriptors for us: on all sockets, as all have been prepared. */
static bool kernel_refuses;

void dvd_incoming_prepare(int fd)
{
    kernel_refuses = dv_fd_refuse(fd);
}

/* Whether the next message has descriptors. There is no buffer here to receive them. */
static ssize_t peek(int fd, bool *descriptors)
{
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = sizeof byte};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t length = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);

    *descriptors = length >= 0 && message.msg_flags & MSG_CTRUNC;
    return length;
}

ssize_t dvd_incoming_receive(int fd, void *data, size_t bytes, int flags)
{
    bool descriptors;

    if (!kernel_refuses) {
        ssize_t length = peek(fd, &descriptors);
        if (length < 0)
            return length;
        if (descriptors) {
            errno = EPERM;
            return -1;
        }
    }
    return recv(fd, data, bytes, flags | MSG_DONTWAIT);
}

/* Runs in a helper process. */
static void drain(int fd, const void *data)
{
    char byte;

    (void)data;
    while (recv(fd, &byte, sizeof byte, MSG_DONTWAIT) > 0)
        ;
}

/* Whether a message with descriptors is left; those before it are received. */
static bool has_descriptors(int fd)
{
    for (int i = 0; i < DV_MAX_UNREAD; i++) {
        bool descriptors;
        char byte;
        if (peek(fd, &descriptors) <= 0)
            return false;
        if (descriptors)
            return true;
        if (recv(fd, &byte, sizeof byte, MSG_DONTWAIT) <= 0)
            return false;
    }
    return true; /* unknown: assume one */
}

void dvd_incoming_close(struct dvd_asides *asides, int *fd)
{
    if (*fd >= 0 && !kernel_refuses) {
        shutdown(*fd, SHUT_RDWR); /* nothing comes after this */
        /* The helper process drains the queue. Until it has done so it holds a copy of the socket, so this close
         * and the keeper's are not the last. */
        if (has_descriptors(*fd) && !dvd_aside_start(asides, drain, *fd, NULL, NULL, DVD_SESSION_ID(0)))
            *fd = -1; /* leak it rather than wait */
    }
    dv_close_fd(fd);
}
