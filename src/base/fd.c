/* Descriptors across sockets (see fd.h). */
#include "src/base/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

int dv_fd_send(int socket, const void *data, size_t bytes, const int *fds, int fd_count)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * DV_MAX_FDS_PER_MESSAGE)];
    } control;
    struct iovec iov = {.iov_base = (void *)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count < 0 || fd_count > DV_MAX_FDS_PER_MESSAGE)
        return -EINVAL;
    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * (size_t)fd_count);
    }
    for (;;) { /* workers may call only send */
        if ((fd_count > 0 ? sendmsg(socket, &message, MSG_NOSIGNAL) : send(socket, data, bytes, MSG_NOSIGNAL)) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

ssize_t dv_fd_receive(int socket, void *data, size_t bytes, int *fds, int fd_capacity, int *fd_count, int flags)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * DV_MAX_FDS_PER_MESSAGE)];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t length;

    *fd_count = 0;
    do
        length = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
            if (*fd_count < fd_capacity)
                fds[(*fd_count)++] = fd;
            else
                close(fd);
        }
    }
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        while (*fd_count > 0)
            close(fds[--*fd_count]);
        return -EMSGSIZE;
    }
    return length;
}

bool dv_fd_refuse(int socket)
{
    const int no = 0;

    return setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no) == 0;
}
