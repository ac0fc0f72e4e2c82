/* Bells (see bells.h). The helper process has a thread for each group of words; the kernel lets a thread wait for 128
 * words. */
#include "src/arbiter/system/bells.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/futex.h"
#include "src/base/log.h"

enum bell_op { BELL_WATCH = 1, BELL_FORGET = 2, BELL_RANG = 3 };

struct bell_message {
    uint32_t op; /* enum bell_op */
    uint32_t reserved;
    uint64_t id;
    uint64_t offset; /* BELL_WATCH, with the file's descriptor */
};

/* ---- the helper process ---- */

#define GROUP_BELLS 127 /* and a word of its own, by which its thread is told of changes */
#define PAGE_BYTES 4096
#define LOOK_NS (5 * DV_NS_PER_MS) /* where the kernel cannot wait for several words */

struct bell {
    uint64_t id;
    uint8_t *page;
    _Atomic uint32_t *word;
};

struct group {
    struct group *next;
    pthread_mutex_t lock;
    _Atomic uint32_t changes;
    struct bell bells[GROUP_BELLS];
    uint32_t count;
    int socket;
};

/* The kernel's layout of one entry of futex_waitv(2); older headers lack it. */
struct wait_entry {
    uint64_t value, address;
    uint32_t flags, reserved;
};
#define WAIT_32_BITS 2u
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* With the lock held. */
static void drop(struct group *group, uint32_t at)
{
    munmap(group->bells[at].page, PAGE_BYTES);
    group->bells[at] = group->bells[--group->count];
}

static void tell(const struct group *group, uint64_t id)
{
    struct bell_message m = {.op = BELL_RANG, .id = id};

    if (dv_fd_send(group->socket, &m, sizeof m, NULL, 0) < 0)
        _exit(0);
}

/* With the lock held: tells of all that have rung. */
static void look(struct group *group)
{
    for (uint32_t i = 0; i < group->count;) {
        if (atomic_load(group->bells[i].word) == 1) {
            i++;
            continue;
        }
        tell(group, group->bells[i].id);
        drop(group, i);
    }
}

/* Pages that are dropped meanwhile stay mapped for the kernel's wait, or the wait fails; both end in another look. */
static void await_ring(struct group *group, uint32_t seen, const struct wait_entry *entries, uint32_t count)
{
    if (syscall(SYS_futex_waitv, entries, count, 0, NULL, CLOCK_MONOTONIC) < 0 && errno != EAGAIN && errno != EINTR)
        dv_futex_wait(&group->changes, seen, LOOK_NS);
}

static void *watch_group(void *argument)
{
    struct group *group = argument;
    struct wait_entry entries[GROUP_BELLS + 1];

    for (;;) {
        uint32_t seen = atomic_load(&group->changes), count = 0;
        pthread_mutex_lock(&group->lock);
        look(group);
        entries[count++] =
            (struct wait_entry){.value = seen, .address = (uintptr_t)&group->changes, .flags = WAIT_32_BITS};
        for (uint32_t i = 0; i < group->count; i++)
            entries[count++] =
                (struct wait_entry){.value = 1, .address = (uintptr_t)group->bells[i].word, .flags = WAIT_32_BITS};
        pthread_mutex_unlock(&group->lock);
        await_ring(group, seen, entries, count);
    }
    return NULL;
}

static struct group *group_with_room(struct group **groups, int socket)
{
    struct group *group;
    pthread_t thread;

    for (group = *groups; group; group = group->next)
        if (group->count < GROUP_BELLS)
            return group;
    group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    pthread_mutex_init(&group->lock, NULL);
    group->socket = socket;
    if (pthread_create(&thread, NULL, watch_group, group) != 0) {
        free(group);
        return NULL;
    }
    group->next = *groups;
    *groups = group;
    return group;
}

static void wake(struct group *group)
{
    atomic_fetch_add(&group->changes, 1);
    dv_futex_wake(&group->changes, 1);
}

/* Returns false when it cannot be watched. */
static bool add(struct group **groups, int socket, const struct bell_message *m, int file)
{
    struct group *group = group_with_room(groups, socket);
    uint64_t page = m->offset / PAGE_BYTES * PAGE_BYTES;
    uint8_t *memory = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)page);

    if (memory == MAP_FAILED)
        return false;
    if (!group) {
        munmap(memory, PAGE_BYTES);
        return false;
    }
    pthread_mutex_lock(&group->lock);
    group->bells[group->count++] =
        (struct bell){.id = m->id, .page = memory, .word = (_Atomic uint32_t *)(memory + (m->offset - page))};
    pthread_mutex_unlock(&group->lock);
    wake(group);
    return true;
}

static void forget(struct group *groups, uint64_t id)
{
    for (struct group *group = groups; group; group = group->next) {
        pthread_mutex_lock(&group->lock);
        for (uint32_t i = 0; i < group->count; i++)
            if (group->bells[i].id == id) {
                drop(group, i);
                break;
            }
        pthread_mutex_unlock(&group->lock);
        wake(group);
    }
}

/* Ends with divvyd. A bell that cannot be watched counts as rung: its session then goes on. */
static _Noreturn void serve(int socket)
{
    struct group *groups = NULL;

    for (;;) {
        struct bell_message m;
        int file = -1, count = 0;
        ssize_t bytes = dv_fd_receive(socket, &m, sizeof m, &file, 1, &count, 0);
        if (bytes != sizeof m)
            _exit(0);
        if (m.op == BELL_FORGET)
            forget(groups, m.id);
        else if (m.op == BELL_WATCH && !add(&groups, socket, &m, file))
            tell(&(struct group){.socket = socket}, m.id);
        dv_close_fd(&file);
    }
}

static _Noreturn void run(int socket)
{
    sigset_t none;

    prctl(PR_SET_NAME, "divvy-bells");
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    signal(SIGINT, SIG_IGN); /* for divvyd, which ends it */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    socket = dup2(socket, STDERR_FILENO + 1);
    syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0);
    serve(socket);
}

/* ---- in divvyd ---- */

static void end(struct dvd_bells *bells)
{
    bells->io = sd_event_source_disable_unref(bells->io);
    dv_close_fd(&bells->fd);
}

static int on_bell(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_bells *bells = userdata;
    struct bell_message m;

    (void)source;
    (void)events;
    for (int i = 0; i < DV_MAX_BATCH; i++) {
        ssize_t bytes = recv(fd, &m, sizeof m, MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (bytes != sizeof m) {
            end(bells);
            dv_warning("the process that watches for programs of parked sessions has ended; it is started again");
            bells->lost(bells->owner);
            return 0;
        }
        bells->rang(bells->owner, DVD_SESSION_ID(m.id));
    }
    return 0;
}

/* The child of a child: it is never divvyd's to reap. */
static int start(struct dvd_bells *bells)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0)
            run(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    bells->fd = pair[0];
    int error = pid < 0 ? -errno : sd_event_add_io(bells->event, &bells->io, bells->fd, EPOLLIN, on_bell, bells);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    if (error < 0)
        end(bells);
    return error < 0 ? error : 0;
}

int dvd_bells_watch(struct dvd_bells *bells, struct dvd_session_id id, int file, uint64_t offset)
{
    struct bell_message m = {.op = BELL_WATCH, .id = id.value, .offset = offset};
    int error = bells->fd < 0 ? start(bells) : 0;

    return error < 0 ? error : dv_fd_send(bells->fd, &m, sizeof m, &file, 1);
}

void dvd_bells_forget(struct dvd_bells *bells, struct dvd_session_id id)
{
    struct bell_message m = {.op = BELL_FORGET, .id = id.value};

    if (bells->fd >= 0)
        dv_fd_send(bells->fd, &m, sizeof m, NULL, 0);
}

void dvd_bells_fini(struct dvd_bells *bells)
{
    end(bells);
}
