/* Descriptors across sockets: they arrive, the surplus is closed, nothing leaks. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fd.h"

struct pair {
    int ends[2];
    int files[DV_MAX_FDS_PER_MESSAGE + 4];
    int before; /* descriptors open after set-up */
};

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = -1; /* the folder's own */
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static int set_up(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->ends), 0);
    for (size_t i = 0; i < sizeof p->files / sizeof p->files[0]; i++)
        assert_true((p->files[i] = memfd_create("file", MFD_CLOEXEC)) >= 0);
    p->before = open_descriptors();
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *p = *state;
    assert_int_equal(open_descriptors(), p->before); /* every test leaves as many as it found */
    close(p->ends[0]);
    close(p->ends[1]);
    for (size_t i = 0; i < sizeof p->files / sizeof p->files[0]; i++)
        close(p->files[i]);
    free(p);
    return 0;
}

static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void a_message_without_descriptors(void **state)
{
    struct pair *p = *state;
    char text[16];
    int fds[2], count = 7;
    assert_int_equal(dv_fd_send(p->ends[0], "hello", 5, NULL, 0), 0);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, fds, 2, &count, 0), 5);
    assert_memory_equal(text, "hello", 5);
    assert_int_equal(count, 0);
}

static void descriptors_travel_in_order_and_close_on_exec(void **state)
{
    struct pair *p = *state;
    char text[16];
    int fds[DV_MAX_FDS_PER_MESSAGE], count;
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, p->files, DV_MAX_FDS_PER_MESSAGE), 0);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, fds, DV_MAX_FDS_PER_MESSAGE, &count, 0), 1);
    assert_int_equal(count, DV_MAX_FDS_PER_MESSAGE);
    for (int i = 0; i < count; i++) {
        assert_true(same_file(fds[i], p->files[i]));
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        close(fds[i]);
    }
}

static void too_many_descriptors_are_not_sent(void **state)
{
    struct pair *p = *state;
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, p->files, DV_MAX_FDS_PER_MESSAGE + 1), -EINVAL);
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, p->files, -1), -EINVAL);
    char text[4];
    int count;
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, NULL, 0, &count, MSG_DONTWAIT), -EAGAIN);
}

static void the_surplus_is_closed(void **state)
{
    struct pair *p = *state;
    char text[4];
    int fds[2], count;
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, p->files, 5), 0);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, fds, 2, &count, 0), 1);
    assert_int_equal(count, 2);
    assert_true(same_file(fds[0], p->files[0]) && same_file(fds[1], p->files[1]));
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, p->files, 3), 0);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, NULL, 0, &count, 0), 1);
    assert_int_equal(count, 0);
}

static void a_message_that_is_too_long_is_dropped_whole(void **state)
{
    struct pair *p = *state;
    char text[4];
    int fds[4], count;
    assert_int_equal(dv_fd_send(p->ends[0], "too long", 8, p->files, 3), 0);
    assert_int_equal(dv_fd_send(p->ends[0], "next", 4, p->files, 1), 0);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, fds, 4, &count, 0), -EMSGSIZE);
    assert_int_equal(count, 0);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, fds, 4, &count, 0), 4);
    assert_memory_equal(text, "next", 4);
    assert_int_equal(count, 1);
    close(fds[0]);
}

/* More descriptors than our own senders can give, as a stranger's message may carry. */
static void a_stranger_s_flood_of_descriptors_leaves_none(void **state)
{
    struct pair *p = *state;
    enum { MANY = DV_MAX_FDS_PER_MESSAGE + 4 };
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * MANY)];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * MANY);
    memcpy(CMSG_DATA(header), p->files, sizeof(int) * MANY);
    assert_int_equal(sendmsg(p->ends[0], &message, 0), 1);
    char text[4];
    int fds[DV_MAX_FDS_PER_MESSAGE], count;
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, fds, DV_MAX_FDS_PER_MESSAGE, &count, 0), -EMSGSIZE);
    assert_int_equal(count, 0);
}

static void ends_and_errors_are_told(void **state)
{
    struct pair *p = *state;
    char text[4];
    int count = 3;
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, NULL, 0, &count, MSG_DONTWAIT), -EAGAIN);
    assert_int_equal(count, 0);
    assert_int_equal(dv_fd_receive(-1, text, sizeof text, NULL, 0, &count, 0), -EBADF);
    assert_int_equal(dv_fd_send(-1, "x", 1, NULL, 0), -EBADF);
    int bad = 1 << 20;
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, &bad, 1), -EBADF);
    shutdown(p->ends[0], SHUT_WR);
    assert_int_equal(dv_fd_receive(p->ends[1], text, sizeof text, NULL, 0, &count, 0), 0);
    shutdown(p->ends[1], SHUT_RD);
    assert_int_equal(dv_fd_send(p->ends[0], "x", 1, NULL, 0), -EPIPE); /* and no SIGPIPE */
}

int main(void)
{
#define FD_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FD_TEST(a_message_without_descriptors),
        FD_TEST(descriptors_travel_in_order_and_close_on_exec),
        FD_TEST(too_many_descriptors_are_not_sent),
        FD_TEST(the_surplus_is_closed),
        FD_TEST(a_message_that_is_too_long_is_dropped_whole),
        FD_TEST(a_stranger_s_flood_of_descriptors_leaves_none),
        FD_TEST(ends_and_errors_are_told),
    };
    return cmocka_run_group_tests_name("fd", tests, NULL, NULL);
}
