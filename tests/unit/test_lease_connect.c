/* A lease that finds divvyd by itself, beside a scripted divvyd: refusals, other servers, none at all, and sessions
 * that are lost. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/divvy/lease.h"
#include "include/divvy/memory.h"
#include "src/base/cleanup.h"
#include "src/base/rundir.h"
#include "src/wire/lease/memory.h"
#include "src/wire/lease/sync.h"
#include "src/wire/session/handshake.h"
#include "tests/unit/lease_peer.h"

static char directory[] = "/tmp/divvy-lease-XXXXXX";
static char reason[256];
static int listening = -1;
static _Atomic unsigned grants, recalls, losses;
static struct dv_hello hello; /* the last one */

/* ---- a scripted divvyd ---- */

static void stop_listening(void)
{
    struct sockaddr_un address;

    dv_close_fd(&listening);
    assert_int_equal(dv_rundir_address(&address, directory, DV_RUNDIR_SESSION_SOCKET), 0);
    unlink(address.sun_path);
}

static void start_listening(void)
{
    struct sockaddr_un address;

    stop_listening();
    assert_int_equal(dv_rundir_address(&address, directory, DV_RUNDIR_SESSION_SOCKET), 0);
    listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listening, 8), 0);
}

/* Accepts a session, and answers its hello. */
static int serve(enum dv_welcome_status status, const char *text)
{
    struct pollfd fd = {.fd = listening, .events = POLLIN};
    struct dv_welcome welcome = {
        .magic = DV_WIRE_MAGIC, .version = DV_WIRE_VERSION, .status = (uint16_t)status, .session = 7};

    assert_int_equal(poll(&fd, 1, PEER_LIMIT_MS), 1);
    int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(socket >= 0);
    assert_true(recv(socket, &hello, sizeof hello, 0) >= DV_HELLO_BYTES_2);
    snprintf(welcome.text, sizeof welcome.text, "%s", text);
    assert_int_equal(send(socket, &welcome, sizeof welcome, MSG_NOSIGNAL), sizeof welcome);
    return socket;
}

/* ---- the program ---- */

static void granted(void *user, uint32_t device)
{
    (void)user;
    assert_int_equal(device, DV_LEASE_DEVICE);
    atomic_fetch_add(&grants, 1);
}

static void recalled(void *user, uint32_t device)
{
    (void)user;
    assert_int_equal(device, DV_LEASE_DEVICE);
    atomic_fetch_add(&recalls, 1);
}

static void lost(void *user)
{
    (void)user;
    atomic_fetch_add(&losses, 1);
}

static void await(const _Atomic unsigned *count, unsigned least)
{
    for (int i = 0; i < PEER_LIMIT_MS && atomic_load(count) < least; i++)
        usleep(1000);
    assert_true(atomic_load(count) >= least);
}

static struct dv_lease_options options_for(const char *device)
{
    reason[0] = '\0';
    return (struct dv_lease_options){
        .device = device, .directory = directory, .reason = reason, .reason_bytes = sizeof reason};
}

struct connecting {
    struct dv_lease_options options;
    struct dv_lease *lease;
    int error;
    pthread_t thread;
};

static void *connect_lease(void *argument)
{
    static const struct dv_lease_callbacks callbacks = {.granted = granted, .recalled = recalled, .lost = lost};
    struct connecting *connecting = argument;

    connecting->lease = dv_lease_connect(&connecting->options, &callbacks);
    connecting->error = errno;
    return NULL;
}

static void begin(struct connecting *connecting, const struct dv_lease_options *options)
{
    *connecting = (struct connecting){.options = *options};
    grants = recalls = losses = 0;
    assert_int_equal(pthread_create(&connecting->thread, NULL, connect_lease, connecting), 0);
}

static struct dv_lease *join(struct connecting *connecting)
{
    pthread_join(connecting->thread, NULL);
    return connecting->lease;
}

/* A lease and divvyd's end of its session. */
static struct dv_lease *connected(int *divvyd)
{
    struct dv_lease_options options = options_for("encoder");
    struct connecting connecting;

    begin(&connecting, &options);
    *divvyd = serve(DV_WELCOME_OK, "");
    assert_non_null(join(&connecting));
    return connecting.lease;
}

/* ---- connecting ---- */

static void options_that_make_no_sense_are_refused(void **state)
{
    char name[DV_MAX_DEVICE_NAME + 1], path[DV_RUNDIR_BYTES + 1];
    struct dv_lease_options options = options_for(NULL);

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    memset(path, '/', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_null(dv_lease_connect(NULL, NULL));
    assert_int_equal(errno, EINVAL);
    assert_null(dv_lease_connect(&options, NULL));
    options.device = "";
    assert_null(dv_lease_connect(&options, NULL));
    options.device = name;
    assert_null(dv_lease_connect(&options, NULL));
    options = options_for("encoder");
    options.directory = path;
    assert_null(dv_lease_connect(&options, NULL));
    options = options_for("encoder");
    options.without_divvyd = (enum dv_lease_without_divvyd)2;
    assert_null(dv_lease_connect(&options, NULL));
    assert_int_equal(errno, EINVAL);
    dv_lease_destroy(NULL);
}

static void the_hello_names_the_device_and_the_share(void **state)
{
    int divvyd;

    (void)state;
    start_listening();
    setenv("DIVVY_REQUEST", "600000", 1);
    setenv("DIVVY_DEADLINE", "2000000000", 1);
    struct dv_lease *lease = connected(&divvyd);
    unsetenv("DIVVY_REQUEST");
    unsetenv("DIVVY_DEADLINE");
    assert_int_equal(hello.magic, DV_WIRE_MAGIC);
    assert_int_equal(hello.api, DV_API_LEASE);
    assert_int_equal(hello.flags, DV_HELLO_LEASE_ONLY);
    assert_string_equal(hello.devices, "encoder");
    assert_int_equal(hello.request, 600001);
    assert_int_equal(hello.deadline_ns, 2 * DV_NS_PER_S);
    dv_lease_destroy(lease);
    close(divvyd);
}

static _Atomic unsigned alarms_seen;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&alarms_seen, 1);
}

static void *serve_late(void *socket)
{
    usleep(200000);
    *(int *)socket = serve(DV_WELCOME_OK, "");
    return NULL;
}

/* Programs with an interval timer, profilers say. */
static void signals_do_not_start_it_over(void **state)
{
    const struct sigaction action = {.sa_handler = on_signal};
    const struct itimerval often = {.it_interval = {.tv_usec = 5000}, .it_value = {.tv_usec = 5000}}, never = {0};
    struct dv_lease_options options = options_for("encoder");
    struct pollfd another = {.events = POLLIN};
    struct sigaction before;
    sigset_t alarms;
    pthread_t thread;
    int divvyd;

    (void)state;
    start_listening();
    sigaction(SIGALRM, &action, &before);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    pthread_create(&thread, NULL, serve_late, &divvyd);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    struct dv_lease *lease = dv_lease_connect(&options, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    pthread_join(thread, NULL);
    assert_non_null(lease);
    assert_true(atomic_load(&alarms_seen) >= 5);
    another.fd = listening;
    assert_int_equal(poll(&another, 1, 0), 0); /* it has said hello once */
    dv_lease_destroy(lease);
    close(divvyd);
}

static void a_refusal_has_a_reason(void **state)
{
    struct dv_lease_options options = options_for("toaster");
    struct connecting connecting;

    (void)state;
    start_listening();
    begin(&connecting, &options);
    close(serve(DV_WELCOME_REFUSED, "'toaster' is no lease-only device here"));
    assert_null(join(&connecting));
    assert_int_equal(connecting.error, EACCES);
    assert_string_equal(reason, "'toaster' is no lease-only device here");
    begin(&connecting, &options);
    close(serve(DV_WELCOME_VERSION, "install the same release of both"));
    assert_null(join(&connecting));
    assert_int_equal(connecting.error, EPROTO);
}

static void another_server_is_ignored(void **state)
{
    struct dv_lease_options options = options_for("encoder");

    (void)state;
    start_listening();
    assert_int_equal(chmod(directory, 0777), 0); /* any user could have put the socket there */
    assert_null(dv_lease_connect(&options, NULL));
    assert_int_equal(errno, EPERM);
    assert_non_null(strstr(reason, "ignored"));
    options.without_divvyd = DV_LEASE_GOES_ON; /* it is not a machine without divvyd */
    assert_null(dv_lease_connect(&options, NULL));
    assert_int_equal(chmod(directory, 0700), 0);
}

static void an_answer_that_is_none_is_not_believed(void **state)
{
    struct dv_lease_options options = options_for("encoder");
    struct connecting connecting;
    struct pollfd fd;

    (void)state;
    start_listening();
    begin(&connecting, &options);
    fd = (struct pollfd){.fd = listening, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PEER_LIMIT_MS), 1);
    int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(send(socket, "hello", 5, MSG_NOSIGNAL), 5);
    assert_null(join(&connecting));
    assert_int_equal(connecting.error, EPROTO);
    close(socket);
}

static void without_divvyd_there_is_no_lease(void **state)
{
    struct dv_lease_options options = options_for("encoder");

    (void)state;
    stop_listening();
    assert_null(dv_lease_connect(&options, NULL));
    assert_int_equal(errno, ENOENT);
    assert_string_equal(reason, "no divvyd answers");
}

static void a_daemon_that_goes_before_its_welcome_is_asked_again(void **state)
{
    struct dv_lease_options options = options_for("encoder");
    struct connecting connecting;
    struct pollfd fd;

    (void)state;
    start_listening();
    begin(&connecting, &options);
    fd = (struct pollfd){.fd = listening, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PEER_LIMIT_MS), 1);
    close(accept4(listening, NULL, NULL, SOCK_CLOEXEC));
    int divvyd = serve(DV_WELCOME_OK, "");
    assert_non_null(join(&connecting));
    dv_lease_destroy(connecting.lease);
    close(divvyd);
}

/* Of a file of /proc: the number behind a key, in hexadecimal digits. */
static unsigned long long read_hex(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    char line[256];
    unsigned long long value = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtoull(line + strlen(key), NULL, 16);
    fclose(file);
    return value;
}

static void its_thread_blocks_signals_and_no_program_inherits_it(void **state)
{
    struct dirent *entry;
    unsigned threads = 0, before = 0, after = 0;
    char path[300];
    int divvyd;

    (void)state;
    start_listening();
    for (int fd = 0; fd < 64; fd++)
        before += fcntl(fd, F_GETFD) >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    struct dv_lease *lease = connected(&divvyd);
    for (int fd = 0; fd < 64; fd++)
        after += fcntl(fd, F_GETFD) >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(after, before);
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while ((entry = readdir(tasks))) {
        if (atoi(entry->d_name) == 0 || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        const unsigned long long signals = 0x7fffffff & ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1));
        threads += (read_hex(path, "SigBlk:") & signals) == signals;
    }
    closedir(tasks);
    assert_true(threads >= 1); /* a sanitizer may have one more */
    dv_lease_destroy(lease);
    close(divvyd);
}

/* ---- waiting ---- */

static void a_program_waits_for_its_turn(void **state)
{
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    assert_int_equal(dv_lease_wait(lease, DV_LEASE_DEVICE, DV_NS_PER_MS), -ETIMEDOUT);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    peer_grant(divvyd, 1, DV_LEASE_CONTENDED, 0);
    assert_int_equal(dv_lease_wait(lease, DV_LEASE_DEVICE, UINT64_MAX), 0);
    assert_int_equal(dv_lease_serial(lease, DV_LEASE_DEVICE), 1);

    struct dv_lease_message recall = {
        .magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_RECALL, .serial = 1};
    assert_int_equal(send(divvyd, &recall, sizeof recall, 0), sizeof recall);
    await(&recalls, 1);
    assert_false(dv_lease_open(lease, DV_LEASE_DEVICE));
    assert_int_equal(dv_lease_wait(lease, DV_LEASE_DEVICE, DV_NS_PER_MS), -ETIMEDOUT); /* which gives it back */
    assert_int_equal(peer_hear(divvyd), DV_LEASE_RELEASE);
    peer_grant(divvyd, 2, DV_LEASE_CONTENDED, 0);
    assert_int_equal(dv_lease_wait(lease, DV_LEASE_DEVICE, UINT64_MAX), 0);
    dv_lease_destroy(lease);
    close(divvyd);
}

/* ---- a session is lost ---- */

static void what_was_held_is_recalled_and_asked_for_again(void **state)
{
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    assert_true(dv_lease_want(lease, DV_LEASE_DEVICE));
    peer_grant(divvyd, 1, 0, 0);
    await(&grants, 1);
    close(divvyd); /* divvyd has ended the session */
    await(&recalls, 1);
    assert_false(dv_lease_open(lease, DV_LEASE_DEVICE));
    assert_true(dv_lease_held(lease, DV_LEASE_DEVICE)); /* until it is drained */
    divvyd = serve(DV_WELCOME_OK, "");
    await(&losses, 1);
    usleep(50000); /* it is not asked for while work of the last session runs */
    assert_int_equal(recv(divvyd, &(char){0}, 1, MSG_DONTWAIT), -1);
    dv_lease_drained(lease, DV_LEASE_DEVICE, true);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    peer_grant(divvyd, 1, 0, 0); /* numbers may begin anew */
    await(&grants, 2);
    assert_true(dv_lease_open(lease, DV_LEASE_DEVICE));
    dv_lease_destroy(lease);
    close(divvyd);
}

static void who_waits_goes_on_waiting(void **state)
{
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    dv_lease_want(lease, DV_LEASE_DEVICE);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    stop_listening();
    close(divvyd);
    await(&losses, 1);
    usleep(200000); /* some attempts */
    start_listening();
    divvyd = serve(DV_WELCOME_OK, "");
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    assert_int_equal(atomic_load(&recalls), 0);
    assert_false(dv_lease_held(lease, DV_LEASE_DEVICE));
    dv_lease_destroy(lease);
    close(divvyd);
}

static void an_idle_holder_is_not_recalled(void **state)
{
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    dv_lease_want(lease, DV_LEASE_DEVICE);
    peer_grant(divvyd, 1, 0, 10 * DV_NS_PER_S);
    await(&grants, 1);
    dv_lease_drained(lease, DV_LEASE_DEVICE, false); /* it lingers */
    stop_listening();
    close(divvyd);
    await(&losses, 1);
    assert_int_equal(atomic_load(&recalls), 0);
    assert_false(dv_lease_held(lease, DV_LEASE_DEVICE));
    dv_lease_destroy(lease); /* which does not wait for a divvyd */
}

static void memory_ends_with_the_session(void **state)
{
    struct dv_memory_message m;
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    stop_listening();
    close(divvyd);
    await(&losses, 1);
    assert_int_equal(dv_memory_reserve(lease, DV_LEASE_DEVICE, 4096), -ENOMEM);
    start_listening();
    divvyd = serve(DV_WELCOME_OK, "");
    dv_lease_want(lease, DV_LEASE_DEVICE);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT); /* so there is another session */
    dv_memory_return(lease, DV_LEASE_DEVICE, 4096);     /* of the session before */
    assert_int_equal(recv(divvyd, &m, sizeof m, 0), sizeof m);
    assert_int_equal(m.type, DV_MEMORY_RETURN);
    assert_int_equal(m.bytes, 0);
    dv_lease_destroy(lease);
    close(divvyd);
}

static void it_goes_on_alone_only_if_told_to(void **state)
{
    struct dv_lease_options options = options_for("encoder");
    struct connecting connecting;

    (void)state;
    stop_listening();
    options.without_divvyd = DV_LEASE_GOES_ON;
    begin(&connecting, &options);
    struct dv_lease *lease = join(&connecting);
    assert_non_null(lease);
    assert_int_equal(dv_lease_wait(lease, DV_LEASE_DEVICE, DV_NS_PER_MS), -ETIMEDOUT); /* a divvyd may still come */
    assert_int_equal(dv_lease_wait(lease, DV_LEASE_DEVICE, 20 * DV_NS_PER_S), 0);
    assert_int_equal(dv_memory_reserve(lease, DV_LEASE_DEVICE, 4096), 0);
    start_listening(); /* it has come: the device is used under its rules again */
    int divvyd = serve(DV_WELCOME_OK, "");
    await(&recalls, 1);
    assert_false(dv_lease_open(lease, DV_LEASE_DEVICE));
    dv_lease_drained(lease, DV_LEASE_DEVICE, true);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    dv_lease_destroy(lease);
    close(divvyd);
}

static void a_program_that_changes_its_environment_keeps_its_daemon(void **state)
{
    struct dv_lease_options options = options_for("encoder");
    struct connecting connecting;

    (void)state;
    start_listening();
    options.directory = NULL;
    assert_int_equal(setenv("DIVVY_DIR", directory, 1), 0);
    begin(&connecting, &options);
    int divvyd = serve(DV_WELCOME_OK, "");
    struct dv_lease *lease = join(&connecting);
    assert_non_null(lease);
    assert_int_equal(setenv("DIVVY_DIR", "/nonexistent", 1), 0);
    close(divvyd);
    divvyd = serve(DV_WELCOME_OK, "");
    unsetenv("DIVVY_DIR");
    dv_lease_destroy(lease);
    close(divvyd);
}

/* ---- its end ---- */

static void it_ends_although_a_child_lives(void **state)
{
    struct pollfd ends = {.events = POLLIN};
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    pid_t child = fork(); /* it has a copy of the socket */
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    dv_lease_destroy(lease);
    ends.fd = divvyd;
    int count = poll(&ends, 1, PEER_LIMIT_MS);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(count, 1);
    assert_int_equal(recv(divvyd, &(char){0}, 1, 0), 0);
    close(divvyd);
}

/* A divvyd that starts answers late, and there were long pauses before. */
static void it_ends_at_once_while_it_waits_for_a_welcome(void **state)
{
    struct pollfd asks = {.events = POLLIN};
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    stop_listening();
    close(divvyd);
    await(&losses, 1);
    usleep(700000); /* some attempts: the next pause is of 1.28 s */
    start_listening();
    asks.fd = listening;
    assert_int_equal(poll(&asks, 1, PEER_LIMIT_MS), 1);
    divvyd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    uint64_t began = dv_now();
    dv_lease_destroy(lease);
    assert_true(dv_now() - began < DV_NS_PER_S);
    close(divvyd);
}

/* The next divvyd has the same socket, and asks. */
static void a_restart_goes_unnoticed(void **state)
{
    struct dv_sync_message ask = {.magic = DV_SYNC_MAGIC, .version = DV_SYNC_VERSION, .type = DV_SYNC_ASK, .id = 9},
                           answer;
    int divvyd;

    (void)state;
    start_listening();
    struct dv_lease *lease = connected(&divvyd);
    dv_lease_want(lease, DV_LEASE_DEVICE);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    peer_grant(divvyd, 5, 0, 0);
    await(&grants, 1);
    assert_int_equal(send(divvyd, &ask, sizeof ask, 0), sizeof ask);
    assert_int_equal(recv(divvyd, &answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(answer.id, 9);
    assert_int_equal(answer.serial, 5);
    assert_int_equal(answer.flags, DV_SYNC_HOLDS);
    assert_true(dv_lease_open(lease, DV_LEASE_DEVICE));
    assert_int_equal(atomic_load(&losses), 0);
    dv_lease_destroy(lease);
    close(divvyd);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    stop_listening();
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(the_hello_names_the_device_and_the_share),
        cmocka_unit_test(signals_do_not_start_it_over),
        cmocka_unit_test(a_refusal_has_a_reason),
        cmocka_unit_test(another_server_is_ignored),
        cmocka_unit_test(an_answer_that_is_none_is_not_believed),
        cmocka_unit_test(without_divvyd_there_is_no_lease),
        cmocka_unit_test(a_daemon_that_goes_before_its_welcome_is_asked_again),
        cmocka_unit_test(its_thread_blocks_signals_and_no_program_inherits_it),
        cmocka_unit_test(a_program_waits_for_its_turn),
        cmocka_unit_test(what_was_held_is_recalled_and_asked_for_again),
        cmocka_unit_test(who_waits_goes_on_waiting),
        cmocka_unit_test(an_idle_holder_is_not_recalled),
        cmocka_unit_test(memory_ends_with_the_session),
        cmocka_unit_test(it_goes_on_alone_only_if_told_to),
        cmocka_unit_test(a_program_that_changes_its_environment_keeps_its_daemon),
        cmocka_unit_test(it_ends_although_a_child_lives),
        cmocka_unit_test(it_ends_at_once_while_it_waits_for_a_welcome),
        cmocka_unit_test(a_restart_goes_unnoticed),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
