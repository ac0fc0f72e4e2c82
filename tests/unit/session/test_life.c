/* The life of a session: divvyd itself in the test's process (tests/fuzz/stage.h), programs that are scripted, and
 * workers that are processes which do nothing. The test is the zygote. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/arbiter/session/private.h"
#include "src/arbiter/session/traced.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/futex.h"
#include "src/wire/session/shm.h"
#include "tests/fuzz/stage.h"
#include "tests/unit/unit.h"

static char heard[DV_MAX_MESSAGE_TEXT]; /* the text of the last welcome */

static const struct dvd_zygote_events *zygote(void)
{
    return stage.zygote.events;
}

/* ---- programs ---- */

static struct dv_hello hello_of(uint32_t api)
{
    return (struct dv_hello){
        .magic = DV_WIRE_MAGIC, .version = DV_WIRE_VERSION, .version_oldest = DV_WIRE_VERSION_OLDEST, .api = api};
}

static int connect_with(const struct dv_hello *hello, size_t bytes)
{
    int fd = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);

    assert_true(fd >= 0);
    assert_int_equal(send(fd, hello, bytes, MSG_NOSIGNAL), bytes);
    stage_run(20);
    return fd;
}

static int connect_as(uint32_t api)
{
    struct dv_hello hello = hello_of(api);
    return connect_with(&hello, sizeof hello);
}

/* The next welcome on a socket; -1: there is none. shm_fd may be NULL. */
static int welcome(int fd, int *shm_fd)
{
    struct dv_welcome m = {0};
    int got = -1, count = 0;
    ssize_t bytes = dv_fd_receive(fd, &m, sizeof m, &got, 1, &count, MSG_DONTWAIT);

    if (bytes != (ssize_t)sizeof m)
        return -1;
    assert_int_equal(m.magic, DV_WIRE_MAGIC);
    snprintf(heard, sizeof heard, "%s", m.text);
    if (shm_fd)
        *shm_fd = count ? got : -1;
    else if (count)
        close(got);
    return m.status;
}

static struct dvd_session *only_session(void)
{
    assert_non_null(stage.sessions.all);
    assert_null(stage.sessions.all->hh.next);
    return stage.sessions.all;
}

/* A session is refused with these words. */
static void refused(const struct dv_hello *hello, int status, const char *words)
{
    int fd = connect_with(hello, sizeof *hello);

    assert_int_equal(welcome(fd, NULL), status);
    if (!strstr(heard, words))
        fail_msg("'%s' does not say '%s'", heard, words);
    close(fd);
    stage_run(20);
    assert_null(stage.sessions.all);
}

/* ---- workers ---- */

static pid_t start_worker(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL); /* divvyd takes signals from its event loop */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return pid;
}

static int worker_channel = -1; /* of the last worker, if a test wants it: its end */
static bool keeps_channel;

/* The zygote has forked the worker that was asked for last. */
static pid_t fork_worker(void)
{
    struct dv_zygote_request request = {0};
    int fds[DV_ZYGOTE_FDS];
    pid_t pid = start_worker();
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    assert_true(zygote()->fill_fork(stage.zygote.owner, stage_zygote.last_session, &request, fds));
    dv_close_fd(&fds[4]);
    assert_int_equal(request.session, stage_zygote.last_session.value);
    assert_true(request.device_count == 2 && request.devices[0].leased);
    assert_true(fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0 && fds[3] >= 0);
    if (keeps_channel) {
        dv_close_fd(&worker_channel);
        worker_channel = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
    }
    zygote()->fork_sent(stage.zygote.owner, stage_zygote.last_session);
    zygote()->forked(stage.zygote.owner, stage_zygote.last_session, pid, &pidfd);
    assert_int_equal(pidfd, -1); /* it is the session's */
    return pid;
}

static void end_worker(pid_t pid, int number)
{
    kill(pid, number);
    waitpid(pid, NULL, 0);
    stage_run(20);
}

/* A session with a worker, whose client has been welcomed. */
static int serve(pid_t *worker)
{
    int fd = connect_as(DV_API_OPENCL), shm_fd;

    *worker = fork_worker();
    assert_int_equal(welcome(fd, &shm_fd), DV_WELCOME_OK);
    assert_true(shm_fd >= 0);
    close(shm_fd);
    return fd;
}

static void wait_ms(int ms)
{
    for (int i = 0; i < ms; i += 5) {
        poll(NULL, 0, 5);
        stage_run(20);
    }
}

static void fire_timer(struct dvd_session *session)
{
    assert_non_null(session->timer);
    sd_event_source_set_time(session->timer, 0);
    stage_run(20);
}

static int start(void **state)
{
    (void)state;
    stage_start();
    return 0;
}

static int end(void **state)
{
    (void)state;
    dvd_arbiter_fini(&stage);
    return 0;
}

static int reset(void **state)
{
    (void)state;
    stage_zygote = (struct stage_zygote){0};
    stage_know_devices();
    dvd_sessions_forget(&stage.sessions);
    dvd_sessions_forget_unread(&stage.sessions);
    assert_null(stage.sessions.processes.table);
    return 0;
}

/* ---- without a worker ---- */

static void a_session_without_a_worker_lives_with_its_socket(void **state)
{
    struct dv_lease_message want = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_WANT}, grant;

    (void)state;
    int fd = connect_as(DV_API_LEASE);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    const struct dvd_session *session = only_session();
    assert_int_equal(session->state, DV_SESSION_SERVED);
    assert_int_equal(session->tenant_pid, getpid());
    assert_int_equal(send(fd, &want, sizeof want, 0), sizeof want);
    stage_run(20);
    assert_int_equal(recv(fd, &grant, sizeof grant, MSG_DONTWAIT), sizeof grant);
    assert_int_equal(grant.type, DV_LEASE_GRANT);
    close(fd);
    stage_run(20);
    assert_null(stage.sessions.all);
}

static void sessions_without_a_worker_may_be_forbidden(void **state)
{
    struct dv_hello hello = hello_of(DV_API_LEASE);

    (void)state;
    stage.config.lease_sessions = DV_LEASE_SESSIONS_NONE;
    refused(&hello, DV_WELCOME_NO_LEASE, "lease-sessions");
    stage.config.lease_sessions = DV_LEASE_SESSIONS_OF_GROUP;
    stage.config.lease_group = getegid();
    int fd = connect_with(&hello, sizeof hello);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    close(fd);
    stage_run(20);
    stage.config.lease_sessions = DV_LEASE_SESSIONS_ALL;
}

/* ---- a lease-only device ---- */

static struct dv_hello lease_only_hello(const char *name)
{
    struct dv_hello hello = hello_of(DV_API_LEASE);

    hello.flags = DV_HELLO_LEASE_ONLY;
    snprintf(hello.devices, sizeof hello.devices, "%s", name);
    return hello;
}

static void a_lease_only_device_is_number_0_of_its_session(void **state)
{
    struct dv_lease_message want = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_WANT}, grant;
    struct dv_hello hello = lease_only_hello(STAGE_LEASE_ONLY);
    struct dvd_session_figures figures;

    (void)state;
    stage.config.lease_sessions = DV_LEASE_SESSIONS_NONE; /* which is about devices with a driver */
    stage_zygote.is_unready = true;
    int fd = connect_with(&hello, DV_HELLO_BYTES_2);
    stage_zygote.is_unready = false;
    stage.config.lease_sessions = DV_LEASE_SESSIONS_ALL;
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    const struct dvd_session *session = only_session();
    assert_int_equal(session->lessee.device_count, 1);
    assert_int_equal(session->lessee.devices[0].number, 2);
    assert_int_equal(session->lessee.leased_mask, 1);
    dvd_session_read_figures(session, &figures);
    assert_true(figures.is_ready);
    assert_int_equal(send(fd, &want, sizeof want, 0), sizeof want);
    want.device = 1; /* it has no other */
    assert_int_equal(send(fd, &want, sizeof want, 0), sizeof want);
    stage_run(20);
    assert_int_equal(recv(fd, &grant, sizeof grant, MSG_DONTWAIT), sizeof grant);
    assert_int_equal(grant.type, DV_LEASE_GRANT);
    assert_true(recv(fd, &grant, sizeof grant, MSG_DONTWAIT) < 0);
    assert_non_null(stage.ledger.devices[2].policy.holders.first);
    close(fd);
    stage_run(20);
    assert_null(stage.sessions.all);
}

static void only_a_lease_only_device_is_leased_only(void **state)
{
    struct dv_hello hello = lease_only_hello("device 0");

    (void)state;
    refused(&hello, DV_WELCOME_REFUSED, "no lease-only device");
    hello = lease_only_hello("*");
    refused(&hello, DV_WELCOME_REFUSED, "no lease-only device");
    hello = lease_only_hello("");
    refused(&hello, DV_WELCOME_REFUSED, "does not know");
    hello = lease_only_hello(STAGE_LEASE_ONLY);
    hello.api = DV_API_OPENCL;
    refused(&hello, DV_WELCOME_REFUSED, "does not know");
    hello = lease_only_hello(STAGE_LEASE_ONLY);
    hello.flags = DV_HELLO_LEASE_ONLY | DV_HELLO_SAME_DEVICES;
    refused(&hello, DV_WELCOME_REFUSED, "does not know");
    hello = hello_of(DV_API_LEASE);
    snprintf(hello.devices, sizeof hello.devices, STAGE_LEASE_ONLY);
    refused(&hello, DV_WELCOME_REFUSED, "names no offered device");
}

/* Its process is the tenant's own: divvyd ends the session, and no process. */
static void beyond_its_deadline_it_loses_its_session(void **state)
{
    struct dv_hello hello = lease_only_hello(STAGE_LEASE_ONLY);
    char byte;

    (void)state;
    int fd = connect_with(&hello, sizeof hello);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    struct dvd_session_id id = only_session()->lessee.id;
    dvd_session_overdue(&only_session()->lessee, DV_NS_PER_S, "a device");
    stage_run(20);
    assert_null(stage.sessions.all);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    const struct dvd_end_record *end = dvd_ends_find(&stage.sessions.ends, id);
    assert_non_null(end);
    assert_non_null(strstr(end->why, "it kept a device for 1.0 s"));
    close(fd);
}

/* ---- with a worker ---- */

static void a_session_ends_with_its_worker(void **state)
{
    pid_t worker;
    struct dvd_session_figures figures;

    (void)state;
    int fd = serve(&worker);
    struct dvd_session *session = only_session();
    dvd_session_read_figures(session, &figures);
    assert_string_equal(figures.state, "starting");
    assert_string_equal(dvd_session_device_name(session, 0), "device 0");
    end_worker(worker, SIGTERM);
    assert_true(session->worker_gone);                                       /* and the zygote will say how */
    zygote()->exited(stage.zygote.owner, session->lessee.id, worker + 1, 0); /* of another */
    assert_non_null(stage.sessions.all);
    zygote()->exited(stage.zygote.owner, session->lessee.id, worker, SIGTERM);
    assert_null(stage.sessions.all);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_GONE);
    assert_non_null(strstr(heard, "signal 15 (SIGTERM)"));
    close(fd);
}

static void a_session_ends_without_the_zygotes_word(void **state)
{
    pid_t worker;

    (void)state;
    int fd = serve(&worker);
    end_worker(worker, SIGKILL);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    close(fd);
    fd = serve(&worker); /* or as soon as there is no zygote */
    end_worker(worker, SIGKILL);
    zygote()->lost(stage.zygote.owner);
    assert_null(stage.sessions.all);
    close(fd);
    fd = serve(&worker); /* or at once, if it was another's */
    only_session()->zygote_generation = stage.zygote.generation + 1;
    end_worker(worker, SIGKILL);
    assert_null(stage.sessions.all);
    close(fd);
}

static void a_fork_can_fail(void **state)
{
    (void)state;
    int fd = connect_as(DV_API_OPENCL);
    zygote()->fork_failed(stage.zygote.owner, stage_zygote.last_session, -ENOMEM, "");
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_NO_WORKER);
    assert_non_null(strstr(heard, "Cannot allocate memory"));
    close(fd);
    fd = connect_as(DV_API_OPENCL);
    zygote()->fork_failed(stage.zygote.owner, stage_zygote.last_session, 0, "no room");
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_NO_WORKER);
    assert_non_null(strstr(heard, "no room"));
    zygote()->fork_failed(stage.zygote.owner, stage_zygote.last_session, 0, "twice"); /* it is gone */
    close(fd);
    stage_zygote.fork_error = -ENOMEM;
    struct dv_hello hello = hello_of(DV_API_OPENCL);
    refused(&hello, DV_WELCOME_NO_WORKER, "could not be made");
}

static void a_lost_zygote_refuses_the_workers_it_was_asked_for(void **state)
{
    struct dv_zygote_request request = {0};
    int fds[DV_ZYGOTE_FDS];

    (void)state;
    int sent = connect_as(DV_API_OPENCL);
    assert_true(zygote()->fill_fork(stage.zygote.owner, stage_zygote.last_session, &request, fds));
    dv_close_fd(&fds[4]);
    zygote()->fork_sent(stage.zygote.owner, stage_zygote.last_session);
    assert_false(zygote()->fill_fork(stage.zygote.owner, stage_zygote.last_session, &request, fds)); /* once */
    int unsent = connect_as(DV_API_OPENCL);
    zygote()->lost(stage.zygote.owner);
    assert_int_equal(welcome(sent, NULL), DV_WELCOME_NO_WORKER);
    assert_int_equal(welcome(unsent, NULL), -1); /* its request is for the next zygote */
    close(sent);
    close(unsent);
    stage_run(20);
    assert_null(stage.sessions.all);
}

static void a_client_that_leaves_early_has_no_session(void **state)
{
    pid_t worker = start_worker();
    int pidfd = (int)syscall(SYS_pidfd_open, worker, 0);

    (void)state;
    int fd = connect_as(DV_API_OPENCL);
    close(fd);
    stage_run(20);
    assert_null(stage.sessions.all);
    zygote()->forked(stage.zygote.owner, stage_zygote.last_session, worker, &pidfd);
    assert_true(pidfd >= 0); /* the zygote's side ends it */
    close(pidfd);
    end_worker(worker, SIGKILL);
}

static void a_second_worker_is_killed(void **state)
{
    pid_t worker, second = start_worker();
    int pidfd = (int)syscall(SYS_pidfd_open, second, 0), status;

    (void)state;
    int fd = serve(&worker);
    dv_log_set_level(DV_LOG_ERROR);
    zygote()->forked(stage.zygote.owner, only_session()->lessee.id, second, &pidfd);
    waitpid(second, &status, 0);
    assert_true(WIFSIGNALED(status));
    close(fd);
    end_worker(worker, SIGKILL);
}

/* ---- refusals ---- */

static void hellos_are_checked(void **state)
{
    struct dv_hello hello = hello_of(DV_API_OPENCL);

    (void)state;
    hello.magic = 0;
    refused(&hello, DV_WELCOME_REFUSED, "not a divvy hello");
    hello = hello_of(99);
    refused(&hello, DV_WELCOME_REFUSED, "api 99");
    hello = hello_of(DV_API_OPENCL);
    hello.version = hello.version_oldest = DV_WIRE_VERSION + 1;
    refused(&hello, DV_WELCOME_VERSION, "protocol versions");
    hello = hello_of(DV_API_OPENCL);
    hello.version_oldest = hello.version + 1;
    refused(&hello, DV_WELCOME_VERSION, "protocol versions");
    hello = hello_of(DV_API_OPENCL);
    hello.request = DV_PPM + 2;
    refused(&hello, DV_WELCOME_REFUSED, "does not know");
    hello = hello_of(DV_API_OPENCL);
    hello.flags = DV_HELLO_SAME_DEVICES; /* of none */
    refused(&hello, DV_WELCOME_REFUSED, "does not know");
    hello = hello_of(DV_API_OPENCL);
    snprintf(hello.devices, sizeof hello.devices, "nothing");
    refused(&hello, DV_WELCOME_REFUSED, "'nothing' names no offered device");
    hello.flags = DV_HELLO_SAME_DEVICES;
    refused(&hello, DV_WELCOME_REFUSED, "no longer offers the devices");
    hello = hello_of(DV_API_OPENCL);
    hello.limit = 2; /* a millionth */
    refused(&hello, DV_WELCOME_REFUSED, "a limit is from 1%");
    int fd = connect_with(&hello, 8);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_REFUSED);
    close(fd);
    fd = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
    stage_run(20);
    close(fd); /* without a word */
    stage_run(20);
    assert_int_equal(stage.listener.pending_count, 0);
}

static void devices_are_chosen_by_the_program(void **state)
{
    struct dv_hello hello = hello_of(DV_API_LEASE);

    (void)state;
    snprintf(hello.devices, sizeof hello.devices, "1");
    int fd = connect_with(&hello, sizeof hello);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    assert_int_equal(only_session()->lessee.leased_mask, 2); /* numbered as listed */
    close(fd);
    stage_run(20);
    hello = hello_of(DV_API_OPENCL);
    snprintf(hello.devices, sizeof hello.devices, "1,0");
    hello.flags = DV_HELLO_SAME_DEVICES;
    fd = connect_with(&hello, sizeof hello);
    assert_int_equal(only_session()->lessee.devices[0].number, 1);
    close(fd);
    stage_run(20);
    struct dv_hello old = hello_of(DV_API_OPENCL); /* of version 1, which knows no choice */
    old.version = old.version_oldest = 1;
    fd = connect_with(&old, DV_HELLO_BYTES_1);
    assert_int_equal(only_session()->version, 1);
    close(fd);
}

static void there_is_room_for_so_many(void **state)
{
    struct dv_hello hello = hello_of(DV_API_LEASE);
    uint64_t descriptors = stage.sessions.descriptors_free;
    unsigned per_user = stage.config.sessions_per_user;

    (void)state;
    stage.config.sessions_per_user = 0;
    refused(&hello, DV_WELCOME_REFUSED, "sessions-per-user");
    stage.config.sessions_per_user = per_user;
    stage.sessions.descriptors_free = DV_PROCESS_DESCRIPTORS;
    refused(&hello, DV_WELCOME_REFUSED, "its maximum");
    stage.sessions.descriptors_free = 0;
    refused(&hello, DV_WELCOME_REFUSED, "cannot be identified");
    stage.sessions.descriptors_free = descriptors;
    stage.sessions.channels.costly[0].uid = getuid();
    stage.sessions.channels.costly[0].until = dv_now() + DV_NS_PER_S;
    refused(&hello, DV_WELCOME_REFUSED, "took divvyd too long");
    stage.sessions.channels.costly[0].until = 0;
    assert_int_equal(stage.sessions.descriptors_free, descriptors);
}

static void a_machine_without_devices_refuses(void **state)
{
    struct dv_hello hello = hello_of(DV_API_OPENCL);

    (void)state;
    stage.devices.count = stage.devices.vendor_count = 0;
    snprintf(stage.devices.text, sizeof stage.devices.text, "no driver");
    refused(&hello, DV_WELCOME_NO_WORKER, "no driver");
}

/* ---- waiting ---- */

static void sessions_wait_for_devices_one_after_the_other(void **state)
{
    (void)state;
    stage_zygote.is_unready = true;
    int first = connect_as(DV_API_LEASE), second = connect_as(DV_API_LEASE), gone = connect_as(DV_API_LEASE);
    assert_int_equal(welcome(first, NULL), -1);
    assert_int_equal(HASH_COUNT(stage.sessions.all), 3);
    dvd_sessions_advance(&stage.sessions);
    stage_run(20);
    assert_int_equal(welcome(first, NULL), -1);
    close(gone);
    stage_run(20);
    assert_int_equal(HASH_COUNT(stage.sessions.all), 2);
    stage_zygote.is_unready = false;
    zygote()->look_again(stage.zygote.owner);
    stage_run(20);
    assert_int_equal(welcome(first, NULL), DV_WELCOME_OK);
    assert_int_equal(welcome(second, NULL), DV_WELCOME_OK);
    close(first);
    close(second);
    stage_run(20);
}

static void a_session_does_not_wait_for_ever(void **state)
{
    int zygote_fd = stage.zygote.fd;

    (void)state;
    int fd = connect_as(DV_API_OPENCL);
    fire_timer(only_session());
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_NO_WORKER);
    assert_non_null(strstr(heard, "no worker could be started in time"));
    close(fd);
    stage_zygote.is_unready = true;
    fd = connect_as(DV_API_OPENCL);
    fire_timer(only_session());
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_NO_WORKER);
    assert_non_null(strstr(heard, "devices did not answer in time"));
    close(fd);
    fd = connect_as(DV_API_OPENCL);
    stage.zygote.fd = -1;
    fire_timer(only_session());
    stage.zygote.fd = zygote_fd;
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_NO_WORKER);
    assert_non_null(strstr(heard, "is not running"));
    close(fd);
}

/* ---- ended by divvyd ---- */

static void a_worker_is_ended_and_its_program_told_why(void **state)
{
    pid_t worker;
    int status;

    (void)state;
    int fd = connect_as(DV_API_OPENCL), shm_fd;
    worker = fork_worker();
    assert_int_equal(welcome(fd, &shm_fd), DV_WELCOME_OK);
    struct dvd_session *session = only_session();
    struct dvd_session_id id = session->lessee.id;
    dvd_session_overdue(&session->lessee, DV_NS_PER_S, "a device");
    dvd_session_end_for(session, "twice"); /* only the first reason counts */
    wait_ms(100);
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct dv_shm_header header;
    assert_int_equal(pread(shm_fd, &header, sizeof header, 0), sizeof header);
    assert_non_null(strstr(header.text, "it kept a device for 1.0 s"));
    stage_run(20);
    zygote()->exited(stage.zygote.owner, id, worker, SIGKILL);
    const struct dvd_end_record *end = dvd_ends_find(&stage.sessions.ends, id);
    assert_non_null(end);
    assert_non_null(strstr(end->why, "it kept a device"));
    assert_null(dvd_ends_find(&stage.sessions.ends, DVD_SESSION_ID(id.value + 1)));
    close(shm_fd);
    close(fd);
}

static void a_program_without_a_worker_is_not_divvyds_to_end(void **state)
{
    (void)state;
    int fd = connect_as(DV_API_LEASE);
    struct dvd_session *session = only_session();
    dvd_session_overdue(&session->lessee, DV_NS_PER_S, "a device");
    stage_run(20);
    assert_non_null(stage.sessions.all);
    assert_false(dvd_session_is_stopped(&session->lessee));
    dvd_session_unanswered(&session->lessee, &stage.ledger.devices[0], 11 * DV_NS_PER_S, 0);
    dvd_session_unanswered(&session->lessee, &stage.ledger.devices[0], 11 * DV_NS_PER_S, DV_NS_PER_S);
    close(fd);
    stage_run(20);
}

/* ---- the program's end ---- */

/* A process that opens a session, and what divvyd says to it. */
static pid_t start_program(uint32_t api)
{
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct dv_hello hello = hello_of(api);
        int fd = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
        if (fd < 0 || send(fd, &hello, sizeof hello, 0) < 0 || write(ready[1], "1", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    stage_run(20);
    return pid;
}

static void a_worker_does_not_outlive_its_program_for_long(void **state)
{
    int status;

    (void)state;
    pid_t program = start_program(DV_API_OPENCL);
    pid_t worker = fork_worker();
    struct dvd_session_id id = only_session()->lessee.id;
    end_worker(program, SIGKILL);
    assert_true(only_session()->tenant_gone);
    fire_timer(only_session());
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_true(WIFSIGNALED(status));
    stage_run(20);
    zygote()->exited(stage.zygote.owner, id, worker, SIGKILL);
    assert_null(stage.sessions.all);
}

static void a_session_without_a_worker_ends_with_its_program(void **state)
{
    (void)state;
    pid_t program = start_program(DV_API_LEASE);
    assert_non_null(stage.sessions.all);
    end_worker(program, SIGKILL);
    assert_null(stage.sessions.all);
    assert_null(stage.sessions.processes.table);
}

static void a_welcome_that_is_not_read_still_counts(void **state)
{
    (void)state;
    int fd = connect_as(DV_API_OPENCL);
    pid_t worker = fork_worker(); /* the welcome carries a descriptor, and is not read */
    end_worker(worker, SIGKILL);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    assert_non_null(stage.sessions.unread);
    assert_int_equal(dvd_sessions_of_user(&stage.sessions, getuid()), 1);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    while (welcome(fd, NULL) >= 0)
        ;
    stage_run(20);
    assert_null(stage.sessions.unread);
    assert_int_equal(dvd_sessions_of_user(&stage.sessions, getuid()), 0);
    close(fd);
}

/* ---- shared memory ---- */

static void shared_memory_holds_no_more_than_was_reserved(void **state)
{
    pid_t worker;

    (void)state;
    int fd = connect_as(DV_API_OPENCL), shm_fd;
    worker = fork_worker();
    assert_int_equal(welcome(fd, &shm_fd), DV_WELCOME_OK);
    struct dvd_session *session = only_session();
    assert_true(session->shm_bytes >= DV_SHM_BYTES_MIN);
    sd_event_source *timer = stage.sessions.arenas.timer;
    for (int i = 0; i < DV_ARENA_LOOKS + 1; i++) {
        sd_event_source_set_time(timer, 0);
        stage_run(20);
    }
    assert_int_equal(session->arena_over, 0);
    assert_int_equal(fallocate(shm_fd, 0, 0, (off_t)session->shm_bytes - 4096), 0);
    for (int i = 0; i < DV_ARENA_LOOKS + 1; i++) {
        sd_event_source_set_time(timer, 0);
        stage_run(20);
    }
    assert_non_null(strstr(session->ended_because, "shares with its program"));
    close(shm_fd);
    close(fd);
    wait_ms(50);
    end_worker(worker, SIGKILL);
}

/* ---- what parts below a session report ---- */

/* The program reads the reason in its shared memory, and the answer comes after that is written. */
static void a_refused_device_is_explained_first(void **state)
{
    const struct dv_lease_message answer = {
        .magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_TURNED_AWAY};
    struct dv_lease_message got;
    pid_t worker;

    (void)state;
    int fd = serve(&worker);
    struct dvd_session *session = only_session();
    int channel[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, channel), 0);
    dvd_channel_leave(&session->channel);
    dv_close_fd(&session->channel.fd);
    session->channel.fd = channel[0];
    assert_int_equal(dvd_channel_enter(&stage.sessions.channels, &session->channel), 0);
    assert_true(dvd_session_turned_away(&session->lessee, "60% of it is promised already", &answer));
    assert_false(dvd_session_turned_away(&session->lessee, "it is full", &answer)); /* one at a time */
    assert_string_equal(session->turned_away, "it is full");
    for (int i = 0; i < 100 && recv(channel[1], &got, sizeof got, MSG_DONTWAIT) < 0; i++)
        wait_ms(10);
    assert_int_equal(got.type, DV_LEASE_TURNED_AWAY);
    const struct dv_shm_header *header = mmap(NULL, sizeof *header, PROT_READ, MAP_SHARED, session->shm_fd, 0);
    assert_ptr_not_equal(header, MAP_FAILED);
    assert_string_equal(header->text, "60% of it is promised already");
    munmap((void *)header, sizeof *header);
    end_worker(worker, SIGKILL);
    fire_timer(only_session());
    close(channel[1]);
    close(fd);
}

static void costly_messages_end_a_session(void **state)
{
    const struct dvd_channel_events *events = stage.sessions.channels.events;
    pid_t worker;
    int status;

    (void)state;
    int fd = serve(&worker);
    events->writable(&only_session()->channel); /* nothing is asked of it */
    struct dvd_session_id id = only_session()->lessee.id;
    events->costly(&only_session()->channel, 6 * DV_NS_PER_MS);
    pid_t ended = 0;
    for (int i = 0; i < 100 && ended == 0; i++) { /* its program is told first */
        wait_ms(50);
        ended = waitpid(worker, &status, WNOHANG);
    }
    assert_int_equal(ended, worker);
    stage_run(20);
    zygote()->exited(stage.zygote.owner, id, worker, SIGKILL);
    assert_non_null(strstr(dvd_ends_find(&stage.sessions.ends, id)->why, "too many watches"));
    close(fd);
    fd = connect_as(DV_API_LEASE);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    dvd_session_unanswered(&only_session()->lessee, &stage.ledger.devices[0], DV_NS_PER_S, DV_NS_PER_S);
    events->costly(&only_session()->channel, 6 * DV_NS_PER_MS);
    stage_run(20);
    assert_null(stage.sessions.all);
    close(fd);
}

/* ---- traces ---- */

static void write_traced(uint64_t number, struct dv_shm_traced record)
{
    record.number = number;
    off_t at = (off_t)(DV_SHM_TRACE_OFFSET + (number - 1) % DV_SHM_TRACE_COUNT * sizeof record);
    assert_int_equal(pwrite(only_session()->shm_fd, &record, sizeof record, at), sizeof record);
}

static unsigned read_traced(dv_ns since, struct dvd_traced found[DVD_TRACED_BATCH], uint64_t *lost)
{
    unsigned valid;

    dvd_session_read_traced(only_session(), since, found, &valid, lost);
    return valid;
}

/* A tenant can write what it wants: only what makes sense is shown, and each place is read once. */
static void traced_commands_are_checked(void **state)
{
    dv_ns now = dv_now();
    const struct dv_shm_traced kernel = {
        .begin_ns = now - 2000, .end_ns = now - 1000, .count = 1, .kind = DV_TRACED_KERNEL, .name = "k\n\xff"};
    struct dvd_traced found[DVD_TRACED_BATCH];
    struct dv_shm_traced wrong;
    uint64_t lost;
    pid_t worker;

    (void)state;
    int fd = serve(&worker);
    assert_int_equal(read_traced(now - 5000, found, &lost), 0); /* nothing was written */
    write_traced(1, kernel);
    for (uint64_t number = 2; number <= 7; number++) {
        wrong = kernel;
        wrong.kind = number == 2 ? 0 : number == 3 ? DV_TRACED_KINDS : DV_TRACED_KERNEL;
        wrong.device = number == 4 ? DV_MAX_DEVICES : 0;
        wrong.begin_ns = number == 5 ? wrong.end_ns + 1 : wrong.begin_ns;
        wrong.end_ns = number == 6 ? UINT64_MAX : number == 7 ? now - 5000 : wrong.end_ns;
        wrong.begin_ns = number == 7 ? now - 6000 : wrong.begin_ns;
        write_traced(number, wrong);
    }
    assert_int_equal(read_traced(now - 5000, found, &lost), 1);
    assert_string_equal(found[0].name, "k??");
    assert_int_equal(found[0].end_ns - found[0].begin_ns, 1000);
    assert_int_equal(lost, 0);
    assert_int_equal(read_traced(now - 5000, found, &lost), 0); /* not again */
    write_traced(8 + DV_SHM_TRACE_COUNT, kernel);               /* it was overwritten before it was read */
    assert_int_equal(read_traced(now - 5000, found, &lost), 1);
    assert_int_equal(lost, DV_SHM_TRACE_COUNT);
    wrong = kernel;
    memset(wrong.name, 'x', sizeof wrong.name);
    write_traced(9 + DV_SHM_TRACE_COUNT, wrong);
    assert_int_equal(read_traced(now - 5000, found, &lost), 1);
    assert_int_equal(strlen(found[0].name), DV_MAX_TRACED_NAME - 1);
    dvd_session_trace(only_session(), now);
    assert_true(only_session()->traced_until > now);
    dvd_session_end_trace(only_session());
    assert_int_equal(only_session()->traced_until, 0);
    close(fd);
    stage_run(20);
    kill(worker, SIGKILL);
    waitpid(worker, NULL, 0);
}

/* ---- parked ---- */

static struct dv_shm_header *map_header(const struct dvd_session *session)
{
    struct dv_shm_header *header = mmap(NULL, sizeof *header, PROT_READ | PROT_WRITE, MAP_SHARED, session->shm_fd, 0);

    assert_true(header != MAP_FAILED);
    return header;
}

/* The next message to the worker about parking; *store: the descriptor with it, or -1. */
static struct dv_lease_message hear_park(int *store)
{
    struct dv_lease_message m = {0};
    int count = 0;

    *store = -1;
    assert_int_equal(dv_fd_receive(worker_channel, &m, sizeof m, store, 1, &count, MSG_DONTWAIT), sizeof m);
    assert_int_equal(m.type, DV_LEASE_PARK);
    return m;
}

static void answer_park(uint16_t type, uint32_t reason)
{
    struct dv_lease_message m = {
        .magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = type, .flags = reason, .slice_ns = 8192};

    assert_int_equal(send(worker_channel, &m, sizeof m, 0), sizeof m);
    stage_run(20);
}

static int serve_parkable(pid_t *worker)
{
    keeps_channel = true;
    int fd = serve(worker);
    keeps_channel = false;
    return fd;
}

/* Its worker does what it is asked for, and its program sleeps. */
static struct dvd_session *park(pid_t worker)
{
    struct dvd_session *session = only_session();
    struct dv_shm_header *header = map_header(session);
    char text[DV_MAX_MESSAGE_TEXT];
    int store;

    assert_int_equal(dvd_session_park(session, text, sizeof text), 0);
    assert_int_equal(dvd_session_park(session, text, sizeof text), 0); /* it is asked once */
    struct dv_lease_message m = hear_park(&store);
    assert_true(store >= 0 && m.slice_ns == session->shm_bytes);
    assert_int_equal(lseek(store, 0, SEEK_END), session->shm_bytes);
    close(store);
    header->worker_asleep = 1;
    answer_park(DV_LEASE_PARKED, 0);
    waitpid(worker, NULL, 0); /* divvyd has ended it */
    stage_run(20);
    assert_int_equal(session->state, DV_SESSION_PARKED);
    assert_int_equal(session->worker_pid, 0);
    munmap(header, sizeof *header);
    return session;
}

static void await_state(const struct dvd_session *session, enum dvd_session_state state)
{
    for (int i = 0; i < 200 && session->state != state; i++)
        wait_ms(5);
    assert_int_equal(session->state, state);
}

/* Whether the program has been told that its worker will not come. */
static bool has_ended(const struct dv_shm_header *header)
{
    for (int i = 0; i < 200 && !(header->worker_life & DV_LIFE_DIED); i++)
        wait_ms(5);
    return header->worker_life & DV_LIFE_DIED;
}

static void a_parked_session_gets_a_worker_when_its_program_wants_one(void **state)
{
    struct dv_zygote_request request = {0};
    struct dvd_session_figures figures;
    int fds[DV_ZYGOTE_FDS];
    pid_t worker;

    (void)state;
    int fd = serve_parkable(&worker);
    for (int i = 0; i < 2; i++) {
        struct dvd_session *session = park(worker);
        dvd_session_read_figures(session, &figures);
        assert_string_equal(figures.state, "parked");
        wait_ms(20);
        assert_int_equal(session->state, DV_SESSION_PARKED);
        struct dv_shm_header *header = map_header(session);
        header->worker_asleep = 0;
        dv_futex_wake(&header->worker_asleep, 1);
        munmap(header, sizeof *header);
        await_state(session, DV_SESSION_FORKING);
        assert_true(zygote()->fill_fork(stage.zygote.owner, stage_zygote.last_session, &request, fds));
        dv_close_fd(&fds[4]);
        assert_int_equal(request.store_bytes, session->shm_bytes);
        assert_true(fds[5] >= 0);
        keeps_channel = true;
        worker = fork_worker();
        keeps_channel = false;
        assert_int_equal(session->state, DV_SESSION_SERVED);
        assert_int_equal(welcome(fd, NULL), -1); /* it has been welcomed */
    }
    end_worker(worker, SIGKILL);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    close(fd);
}

static void a_worker_that_cannot_park_goes_on(void **state)
{
    char text[DV_MAX_MESSAGE_TEXT];
    pid_t worker;
    int store;

    (void)state;
    dv_log_set_level(DV_LOG_ERROR);
    int fd = serve_parkable(&worker);
    struct dvd_session *session = only_session();
    answer_park(DV_LEASE_PARKED, 0); /* it was not asked */
    assert_int_equal(session->parking, DVD_PARK_NOT);
    for (uint32_t reason = DV_PARK_DONE; reason <= DV_PARK_REASONS; reason++) {
        assert_int_equal(dvd_session_park(session, text, sizeof text), 0);
        hear_park(&store);
        close(store);
        answer_park(DV_LEASE_NOT_PARKED, reason);
        assert_int_equal(session->parking, DVD_PARK_NOT);
    }
    assert_int_equal(dvd_session_park(session, text, sizeof text), 0);
    hear_park(&store);
    close(store);
    fire_timer(session); /* its commands do not end */
    hear_park(&store);
    assert_int_equal(store, -1);
    assert_int_equal(session->parking, DVD_PARK_NOT);
    assert_int_equal(session->state, DV_SESSION_SERVED);
    end_worker(worker, SIGKILL);
    fire_timer(session);
    close(fd);
    fd = connect_as(DV_API_LEASE);
    assert_int_equal(welcome(fd, NULL), DV_WELCOME_OK);
    assert_true(dvd_session_park(only_session(), text, sizeof text) < 0);
    assert_non_null(strstr(text, "no worker"));
    close(fd);
}

static void a_worker_that_ends_by_itself_may_have_left_all(void **state)
{
    char text[DV_MAX_MESSAGE_TEXT];
    pid_t worker;
    int store;

    (void)state;
    int fd = serve_parkable(&worker);
    struct dvd_session *session = only_session();
    struct dv_shm_header *header = map_header(session);
    assert_int_equal(dvd_session_park(session, text, sizeof text), 0);
    hear_park(&store);
    close(store);
    header->worker_state = DV_WORKER_PARKED;
    header->worker_asleep = 1;
    end_worker(worker, SIGKILL); /* before its message was read, as another daemon may find it */
    assert_int_equal(session->state, DV_SESSION_PARKED);
    munmap(header, sizeof *header);
    close(fd);
}

static void a_worker_that_follows_and_crashes_is_not_followed(void **state)
{
    pid_t worker;

    (void)state;
    dv_log_set_level(DV_LOG_ERROR);
    int fd = serve_parkable(&worker);
    struct dvd_session *session = park(worker);
    struct dv_shm_header *header = map_header(session);
    dvd_session_resume(session);
    worker = fork_worker();
    header->worker_state = DV_WORKER_PARKED; /* it has not said that it is ready, or its client wrote this */
    end_worker(worker, SIGKILL);
    assert_int_equal(session->state, DV_SESSION_SERVED);
    assert_true(session->worker_gone);
    fire_timer(session);
    assert_null(stage.sessions.all);
    munmap(header, sizeof *header);
    close(fd);
}

static void a_worker_cannot_outlive_its_program_by_its_answers(void **state)
{
    pid_t worker;

    (void)state;
    dv_log_set_level(DV_LOG_ERROR);
    int fd = serve_parkable(&worker);
    struct dvd_session *session = park(worker);
    dvd_session_resume(session);
    keeps_channel = true;
    worker = fork_worker();
    keeps_channel = false;
    dvd_session_tenant_gone(session);
    answer_park(DV_LEASE_NOT_PARKED, DV_PARK_NO_ROOM);
    answer_park(DV_LEASE_PARKED, 0);
    assert_int_equal(session->parking, DVD_PARK_NOT);
    fire_timer(session); /* kills it */
    waitpid(worker, NULL, 0);
    stage_run(20);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    close(fd);
}

static void a_parked_session_waits_for_a_worker_that_cannot_come(void **state)
{
    pid_t worker;

    (void)state;
    dv_log_set_level(DV_LOG_ERROR);
    int fd = serve_parkable(&worker);
    struct dvd_session *session = park(worker);
    stage_zygote.is_unready = true;
    dvd_session_resume(session);
    assert_int_equal(session->state, DV_SESSION_PARKED);
    stage_zygote.is_unready = false;
    stage_zygote.fork_error = -ENOMEM;
    fire_timer(session);
    assert_int_equal(session->state, DV_SESSION_PARKED);
    stage_zygote.fork_error = 0;
    fire_timer(session);
    assert_int_equal(session->state, DV_SESSION_FORKING);
    dvd_session_resume(session); /* it is on its way */
    zygote()->fork_failed(stage.zygote.owner, session->lessee.id, -ENOMEM, "");
    assert_int_equal(session->state, DV_SESSION_PARKED);
    fire_timer(session);
    worker = fork_worker();
    assert_int_equal(session->state, DV_SESSION_SERVED);
    end_worker(worker, SIGKILL);
    fire_timer(session);
    close(fd);
}

static void the_program_of_a_parked_session_is_told_of_its_end(void **state)
{
    pid_t worker;

    (void)state;
    dv_log_set_level(DV_LOG_ERROR);
    int fd = serve_parkable(&worker);
    struct dvd_session *session = park(worker);
    struct dv_shm_header *header = map_header(session);
    dvd_session_end_for(session, "for a test");
    assert_null(stage.sessions.all);
    assert_true(has_ended(header));
    munmap(header, sizeof *header);
    close(fd);
}

static void bells_are_watched_again_when_their_process_has_ended(void **state)
{
    pid_t worker;

    (void)state;
    int fd = serve_parkable(&worker);
    struct dvd_session *session = park(worker);
    dvd_bells_fini(&stage.sessions.bells);
    dvd_sessions_bells_lost(&stage.sessions);
    struct dv_shm_header *header = map_header(session);
    header->worker_asleep = 0;
    dv_futex_wake(&header->worker_asleep, 1);
    await_state(session, DV_SESSION_FORKING);
    munmap(header, sizeof *header);
    close(fd);
}

/* ---- of an earlier daemon ---- */

/* What a keeper and the state file have of a session. */
struct earlier {
    struct dv_state_session *record;
    struct dvd_tenant *tenant;
    struct dvd_kept kept;
    int channel; /* the other end */
    pid_t worker;
};

static int watch_process(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static struct earlier leave_behind(uint32_t api, const char *name)
{
    struct dvd_tenant_terms terms = {.share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD}};
    static const struct dvd_share_change none;
    struct dv_state_tenant *tenant = dvd_state_add(&stage.state.tenants);
    struct earlier e = {.record = dvd_state_add(&stage.state.sessions), .kept = {.fds = {-1, -1, -1, -1, -1, -1, -1}}};
    int channel[2], log[2];

    assert_true(tenant && e.record);
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    dvd_state_commit(tenant);
    *e.record = (struct dv_state_session){.api = api,
                                          .id = 4711,
                                          .uid = getuid(),
                                          .gid = getgid(),
                                          .tenant_pid = getpid(),
                                          .version = DV_WIRE_VERSION,
                                          .welcomed = 1,
                                          .device_count = 2,
                                          .devices = {0, 1},
                                          .shm_bytes = 1 << 20,
                                          .leased_mask = 3,
                                          .command = "train"};
    dvd_state_commit(e.record);
    e.tenant = dvd_tenant_restore(&stage.ledger, tenant, &terms, &none, false);
    assert_non_null(e.tenant);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, channel), 0);
    e.channel = channel[1];
    e.kept.fds[DV_KEPT_CHANNEL] = channel[0];
    e.kept.fds[DV_KEPT_TENANT] = watch_process(getpid());
    if (api != DV_API_OPENCL)
        return e;
    e.worker = start_worker();
    e.record->worker_pid = e.worker;
    e.kept.fds[DV_KEPT_WORKER] = watch_process(e.worker);
    e.kept.fds[DV_KEPT_SHM] = memfd_create("shm", MFD_CLOEXEC);
    assert_int_equal(ftruncate(e.kept.fds[DV_KEPT_SHM], 1 << 20), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, log), 0);
    e.kept.fds[DV_KEPT_LOG] = log[0];
    close(log[1]);
    return e;
}

static int go_on(struct earlier *e)
{
    struct dv_state_lease *leases[DV_MAX_DEVICES] = {NULL};
    int error = dvd_session_restore(&stage.sessions, e->record, leases, e->tenant, &e->kept);

    stage_run(20);
    return error;
}

static void answer_sync(int channel, uint32_t devices)
{
    struct dv_sync_message ask;

    assert_int_equal(recv(channel, &ask, sizeof ask, MSG_DONTWAIT), sizeof ask);
    assert_int_equal(ask.type, DV_SYNC_ASK);
    for (uint32_t i = 0; i < devices; i++) {
        struct dv_sync_message m = {
            .magic = DV_SYNC_MAGIC, .version = DV_SYNC_VERSION, .type = DV_SYNC_STATE, .device = i, .id = ask.id};
        assert_int_equal(send(channel, &m, sizeof m, 0), sizeof m);
    }
    stage_run(20);
}

static void a_session_of_an_earlier_daemon_goes_on(void **state)
{
    struct dv_lease_message want = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_WANT}, grant;

    (void)state;
    struct earlier e = leave_behind(DV_API_OPENCL, "pid:1:train");
    assert_int_equal(go_on(&e), 0);
    struct dvd_session *session = only_session();
    assert_int_equal(session->state, DV_SESSION_SERVED);
    assert_int_equal(session->worker_pid, e.worker);
    assert_string_equal(session->command, "train");
    assert_int_equal(send(e.channel, &want, sizeof want, 0), sizeof want); /* too early: it was for that daemon */
    answer_sync(e.channel, 2);
    assert_true(recv(e.channel, &grant, sizeof grant, MSG_DONTWAIT) < 0);
    assert_int_equal(send(e.channel, &want, sizeof want, 0), sizeof want);
    stage_run(20);
    assert_int_equal(recv(e.channel, &grant, sizeof grant, MSG_DONTWAIT), sizeof grant);
    assert_int_equal(grant.type, DV_LEASE_GRANT);
    end_worker(e.worker, SIGKILL);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    close(e.channel);
}

static void a_session_that_was_parked_stays_parked(void **state)
{
    (void)state;
    struct earlier e = leave_behind(DV_API_OPENCL, "pid:9:train");
    end_worker(e.worker, SIGKILL);
    dv_close_fd(&e.kept.fds[DV_KEPT_WORKER]);
    dv_close_fd(&e.kept.fds[DV_KEPT_CHANNEL]);
    dv_close_fd(&e.kept.fds[DV_KEPT_LOG]);
    e.record->worker_pid = 0;
    e.kept.fds[DV_KEPT_STORE] = memfd_create("store", MFD_CLOEXEC);
    const uint32_t asleep = 1;
    assert_int_equal(
        pwrite(e.kept.fds[DV_KEPT_SHM], &asleep, sizeof asleep, offsetof(struct dv_shm_header, worker_asleep)),
        sizeof asleep);
    assert_int_equal(go_on(&e), 0);
    struct dvd_session *session = only_session();
    assert_int_equal(session->state, DV_SESSION_PARKED);
    wait_ms(20);
    assert_int_equal(session->state, DV_SESSION_PARKED);
    dvd_session_resume(session);
    assert_int_equal(session->state, DV_SESSION_FORKING);
    close(e.channel);
}

static void its_client_may_still_wait_for_the_welcome(void **state)
{
    int client[2], shm_fd;

    (void)state;
    struct earlier e = leave_behind(DV_API_OPENCL, "pid:2:train");
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, client), 0);
    e.kept.fds[DV_KEPT_CLIENT] = client[0];
    e.record->welcomed = 0;
    assert_int_equal(go_on(&e), 0);
    assert_int_equal(welcome(client[1], &shm_fd), DV_WELCOME_OK);
    assert_true(shm_fd >= 0);
    close(shm_fd);
    close(client[1]);
    end_worker(e.worker, SIGKILL);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    close(e.channel);
}

static void a_session_without_a_worker_goes_on_too(void **state)
{
    (void)state;
    struct earlier e = leave_behind(DV_API_LEASE, "pid:3:train");
    assert_int_equal(go_on(&e), 0);
    answer_sync(e.channel, 2);
    close(e.channel);
    stage_run(20);
    assert_null(stage.sessions.all);
}

/* Without a driver at first, a lease-only device is number 0: it is in the list of sessions that lease others. */
static void only_what_it_leases_says_what_it_is(void **state)
{
    (void)state;
    struct earlier e = leave_behind(DV_API_LEASE, "pid:5:train");
    e.record->devices[0] = 2;
    e.record->leased_mask = 2;
    assert_int_equal(go_on(&e), 0);
    dvd_session_overdue(&only_session()->lessee, DV_NS_PER_S, "a device");
    stage_run(20);
    assert_non_null(stage.sessions.all); /* it is not divvyd's to end */
    close(e.channel);
    stage_run(20);
    e = leave_behind(DV_API_LEASE, "pid:6:encode");
    e.record->devices[0] = 2;
    e.record->device_count = e.record->leased_mask = 1;
    assert_int_equal(go_on(&e), 0);
    dvd_session_overdue(&only_session()->lessee, DV_NS_PER_S, "a device");
    stage_run(20);
    assert_null(stage.sessions.all);
    close(e.channel);
}

static void a_session_that_cannot_go_on_is_ended(void **state)
{
    int status;

    (void)state;
    struct earlier e = leave_behind(DV_API_OPENCL, "pid:4:train");
    close(e.kept.fds[DV_KEPT_CHANNEL]);
    e.kept.fds[DV_KEPT_CHANNEL] = -1; /* the keeper did not have it */
    assert_true(go_on(&e) < 0);
    assert_null(stage.sessions.all);
    assert_int_equal(waitpid(e.worker, &status, 0), e.worker); /* no daemon would know of it any more */
    assert_int_equal(WTERMSIG(status), SIGKILL);
    close(e.channel);
}

/* ---- the end of all ---- */

static void a_daemon_that_ends_takes_its_sessions_along(void **state)
{
    pid_t worker;
    int status;

    (void)state;
    int served = serve(&worker), forking = connect_as(DV_API_OPENCL), leased = connect_as(DV_API_LEASE);
    dvd_sessions_stop(&stage.sessions, SIGTERM);
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_int_equal(welcome(forking, NULL), DV_WELCOME_REFUSED);
    assert_non_null(strstr(heard, "divvyd is ending"));
    stage_run(20);
    fire_timer(only_session());
    assert_null(stage.sessions.all);
    close(served);
    close(forking);
    close(leased);
}

/* The holder of a device that divvyd cannot end still uses it for a moment. */
static void a_daemon_that_ends_grants_nothing(void **state)
{
    struct dv_lease_message want = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_WANT}, m;
    struct dv_hello hello = lease_only_hello(STAGE_LEASE_ONLY);
    int fds[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        fds[i] = connect_with(&hello, DV_HELLO_BYTES_2);
        assert_int_equal(welcome(fds[i], NULL), DV_WELCOME_OK);
        assert_int_equal(send(fds[i], &want, sizeof want, 0), sizeof want);
        stage_run(20);
    }
    assert_int_equal(recv(fds[0], &m, sizeof m, MSG_DONTWAIT), sizeof m);
    assert_int_equal(m.type, DV_LEASE_GRANT);
    dvd_sessions_stop(&stage.sessions, SIGTERM);
    assert_null(stage.sessions.all);
    assert_int_equal(recv(fds[1], &m, sizeof m, MSG_DONTWAIT), 0);
    close(fds[0]);
    close(fds[1]);
}

static void a_daemon_that_ends_tells_programs_without_a_worker(void **state)
{
    pid_t worker;

    (void)state;
    dv_log_set_level(DV_LOG_ERROR);
    int fd = serve_parkable(&worker);
    struct dv_shm_header *header = map_header(park(worker));
    dvd_sessions_stop(&stage.sessions, SIGTERM);
    assert_null(stage.sessions.all);
    assert_true(has_ended(header));
    munmap(header, sizeof *header);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_session_without_a_worker_lives_with_its_socket, reset),
        cmocka_unit_test_setup(sessions_without_a_worker_may_be_forbidden, reset),
        cmocka_unit_test_setup(a_lease_only_device_is_number_0_of_its_session, reset),
        cmocka_unit_test_setup(only_a_lease_only_device_is_leased_only, reset),
        cmocka_unit_test_setup(beyond_its_deadline_it_loses_its_session, reset),
        cmocka_unit_test_setup(a_session_ends_with_its_worker, reset),
        cmocka_unit_test_setup(a_session_ends_without_the_zygotes_word, reset),
        cmocka_unit_test_setup(a_fork_can_fail, reset),
        cmocka_unit_test_setup(a_lost_zygote_refuses_the_workers_it_was_asked_for, reset),
        cmocka_unit_test_setup(a_client_that_leaves_early_has_no_session, reset),
        cmocka_unit_test_setup(a_second_worker_is_killed, reset),
        cmocka_unit_test_setup(hellos_are_checked, reset),
        cmocka_unit_test_setup(devices_are_chosen_by_the_program, reset),
        cmocka_unit_test_setup(there_is_room_for_so_many, reset),
        cmocka_unit_test_setup(a_machine_without_devices_refuses, reset),
        cmocka_unit_test_setup(sessions_wait_for_devices_one_after_the_other, reset),
        cmocka_unit_test_setup(a_session_does_not_wait_for_ever, reset),
        cmocka_unit_test_setup(a_worker_is_ended_and_its_program_told_why, reset),
        cmocka_unit_test_setup(a_program_without_a_worker_is_not_divvyds_to_end, reset),
        cmocka_unit_test_setup(a_worker_does_not_outlive_its_program_for_long, reset),
        cmocka_unit_test_setup(a_session_without_a_worker_ends_with_its_program, reset),
        cmocka_unit_test_setup(a_welcome_that_is_not_read_still_counts, reset),
        cmocka_unit_test_setup(shared_memory_holds_no_more_than_was_reserved, reset),
        cmocka_unit_test_setup(a_refused_device_is_explained_first, reset),
        cmocka_unit_test_setup(costly_messages_end_a_session, reset),
        cmocka_unit_test_setup(traced_commands_are_checked, reset),
        cmocka_unit_test_setup(a_parked_session_gets_a_worker_when_its_program_wants_one, reset),
        cmocka_unit_test_setup(a_worker_that_cannot_park_goes_on, reset),
        cmocka_unit_test_setup(a_worker_that_ends_by_itself_may_have_left_all, reset),
        cmocka_unit_test_setup(a_worker_that_follows_and_crashes_is_not_followed, reset),
        cmocka_unit_test_setup(a_worker_cannot_outlive_its_program_by_its_answers, reset),
        cmocka_unit_test_setup(a_parked_session_waits_for_a_worker_that_cannot_come, reset),
        cmocka_unit_test_setup(the_program_of_a_parked_session_is_told_of_its_end, reset),
        cmocka_unit_test_setup(bells_are_watched_again_when_their_process_has_ended, reset),
        cmocka_unit_test_setup(a_session_of_an_earlier_daemon_goes_on, reset),
        cmocka_unit_test_setup(a_session_that_was_parked_stays_parked, reset),
        cmocka_unit_test_setup(its_client_may_still_wait_for_the_welcome, reset),
        cmocka_unit_test_setup(a_session_without_a_worker_goes_on_too, reset),
        cmocka_unit_test_setup(only_what_it_leases_says_what_it_is, reset),
        cmocka_unit_test_setup(a_session_that_cannot_go_on_is_ended, reset),
        cmocka_unit_test_setup(a_daemon_that_ends_takes_its_sessions_along, reset),
        cmocka_unit_test_setup(a_daemon_that_ends_grants_nothing, reset),
        cmocka_unit_test_setup(a_daemon_that_ends_tells_programs_without_a_worker, reset),
    };

    return cmocka_run_group_tests(tests, start, end);
}
