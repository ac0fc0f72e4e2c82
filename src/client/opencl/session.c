/* The session: connecting to divvyd, the shared memory, sending messages and waiting for answers.
 * Once connected no descriptor is kept. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/client/opencl/objects.h"
#include "src/hello/hello.h"

#define START_PATIENCE_NS (60 * DV_NS_PER_S)
#define RETRY_PAUSE_US 20000
#define SPIN_NS (20 * DV_NS_PER_US)

static struct {
    pthread_mutex_t lock;
    struct dvc_session *session;
    struct dvc_session *newest; /* of all sessions of this process */
    bool fork_handled;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct dvc_session_events *events;

void dvc_session_set_events(const struct dvc_session_events *given)
{
    events = given;
}

_Thread_local bool dvc_is_helper;

/* ---- life and death ---- */

bool dvc_session_check(struct dvc_session *s)
{
    if (atomic_load(&s->dead))
        return false;
    if (!(atomic_load(&s->header->worker_life) & DV_LIFE_DIED))
        return true;
    atomic_store(&s->dead, true);
    /* other threads sleep on words that the worker will not change any more */
    dv_futex_wake(&s->header->worker_life, INT_MAX);
    dv_futex_wake(&s->header->ring_waiting, INT_MAX);
    return false;
}

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* The kernel's layout of one entry of futex_waitv(2); older headers lack it. */
struct wait_entry {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};
#define WAIT_32_BITS 2u

/* The helper can wait for a kernel that needs room for its output, so the helper takes output while it waits. */
#define OUTPUT_PAUSE_NS (20 * DV_NS_PER_MS)
#define OUTPUT_LOOK_US 500

void dvc_session_wait(struct dvc_session *s, _Atomic uint32_t *word, uint32_t seen)
{
    static _Atomic bool no_waitv;
    uint32_t life = atomic_load(&s->header->worker_life);
    bool takes_output = dvc_is_helper && word != &s->header->client_asleep;
    struct timespec until = {0};

    if (life & DV_LIFE_DIED) {
        dvc_session_check(s);
        return;
    }
    if (!atomic_load_explicit(&no_waitv, memory_order_relaxed)) {
        struct wait_entry both[2] = {
            {.value = seen, .address = (uintptr_t)word, .flags = WAIT_32_BITS},
            {.value = life, .address = (uintptr_t)&s->header->worker_life, .flags = WAIT_32_BITS}};
        if (takes_output)
            until = dv_timespec(dv_now() + OUTPUT_PAUSE_NS);
        if (syscall(SYS_futex_waitv, both, 2, 0, takes_output ? &until : NULL, CLOCK_MONOTONIC) < 0 &&
            errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT) /* an old kernel, or a system call filter */
            atomic_store(&no_waitv, true);
        else
            goto woken;
    }
    dv_futex_wait(word, seen, 100 * DV_NS_PER_MS);
woken:
    if (dvc_session_check(s) && takes_output)
        dvc_flush_output(s);
}

/* ---- connecting ---- */

static uint32_t wanted_presentation(void)
{
    const char *as = secure_getenv("DIVVY_PRESENT_AS");

    if (!as)
        return DV_PRESENT_AS_IS;
    if (strcmp(as, "gpu") == 0)
        return DV_PRESENT_AS_GPU;
    if (strcmp(as, "cpu") == 0)
        return DV_PRESENT_AS_CPU;
    if (strcmp(as, "accelerator") == 0)
        return DV_PRESENT_AS_ACCELERATOR;
    return DV_PRESENT_AS_IS;
}

/* Handles of devices outlive a session, so its successor must have the same devices. */
static void wish_for_devices(struct dv_hello *hello)
{
    const char *named = secure_getenv("DIVVY_DEVICES");

    if (events->known_devices(hello->devices, sizeof hello->devices))
        hello->flags |= DV_HELLO_SAME_DEVICES;
    else if (named)
        snprintf(hello->devices, sizeof hello->devices, "%s", named);
}

static int shake_hands(int fd, struct dv_welcome *welcome, int *shm_fd)
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION,
                             .api = DV_API_OPENCL,
                             .present_as = wanted_presentation()};
    int received = 0;

    wish_for_devices(&hello);
    int error = dv_fd_send(fd, &hello, dv_hello_wish(&hello), NULL, 0);
    if (error < 0)
        return error;
    ssize_t bytes = dv_fd_receive(fd, welcome, sizeof *welcome, shm_fd, 1, &received, 0);
    if (bytes <= 0)
        return bytes < 0 ? (int)bytes : -ECONNRESET;
    if (bytes != sizeof *welcome || welcome->magic != DV_WIRE_MAGIC || welcome->status != DV_WELCOME_OK ||
        received != 1 || welcome->version != DV_WIRE_VERSION || welcome->shm_bytes < DV_SHM_BYTES_MIN ||
        welcome->shm_bytes > DV_SHM_BYTES_MAX)
        return -EPROTO;
    struct stat facts;
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW; /* no process can remove mapped pages */
    if (fstat(*shm_fd, &facts) < 0 || (uint64_t)facts.st_size != welcome->shm_bytes ||
        (fcntl(*shm_fd, F_GET_SEALS) & sealed) != sealed)
        return -EPROTO;
    return 0;
}

/* A restarting divvyd drops sessions that it has not welcomed, and its successor listens on the same socket. */
static int join_somewhere(struct dv_welcome *welcome, int *fd, int *shm_fd)
{
    dv_ns start = dv_now();

    for (;;) {
        *fd = dv_hello_connect(NULL, 0);
        int error = *fd < 0 ? *fd : shake_hands(*fd, welcome, shm_fd);
        if ((error != -ECONNRESET && error != -EPIPE) || dv_now() - start > START_PATIENCE_NS)
            return error;
        dv_close_fd(fd);
        dv_close_fd(shm_fd);
        usleep(RETRY_PAUSE_US);
    }
}

/* Returns false when the worker will not start. Without a daemon, worker_life still tells if it died. */
static bool hear_daemon(int *fd)
{
    struct pollfd poller = {.fd = *fd, .events = POLLIN};
    struct dv_welcome second;
    int shm_fd = -1, received = 0;

    if (*fd < 0 || poll(&poller, 1, 0) <= 0)
        return true;
    ssize_t bytes = dv_fd_receive(*fd, &second, sizeof second, &shm_fd, 1, &received, MSG_DONTWAIT);
    if (received > 0)
        close(shm_fd);
    if (bytes <= 0)
        dv_close_fd(fd);
    /* a restarted daemon sends its welcome again */
    return bytes <= 0 || (bytes == sizeof second && second.status == DV_WELCOME_OK);
}

/* The daemon's socket tells if the worker ends before it is ready. */
static int wait_until_ready(struct dvc_session *s, int *fd)
{
    dv_ns start = dv_now();

    for (;;) {
        uint32_t state = atomic_load(&s->header->worker_state);
        if (state == DV_WORKER_READY)
            return 0;
        if (state == DV_WORKER_FAILED || dv_now() - start > START_PATIENCE_NS)
            return -EIO;
        if (!hear_daemon(fd) || (atomic_load(&s->header->worker_life) & DV_LIFE_DIED))
            return -EIO;
        dv_futex_wait(&s->header->worker_state, state, 50 * DV_NS_PER_MS);
    }
}

static void make_locks(struct dvc_session *s)
{
    pthread_mutex_init(&s->ring_lock, NULL);
    pthread_mutex_init(&s->host_lock, NULL);
    pthread_mutex_init(&s->output_lock, NULL);
    pthread_mutex_init(&s->staging_lock, NULL);
    pthread_mutex_init(&s->arena.lock, NULL);
}

static void after_fork_in_child(void)
{
    /* The child does not inherit the shared memory. Objects of the old session return errors from here on, and a new
     * context gets a new session. */
    pthread_mutex_init(&process.lock, NULL);
    for (struct dvc_session *s = process.newest; s; s = s->earlier) {
        atomic_store(&s->dead, true);
        atomic_store(&s->forked, true);
        make_locks(s); /* threads that the child lacks may have held them */
    }
    process.session = NULL;
    dvc_object_after_fork();
    events->forked();
}

static const char *words_for(int error)
{
    switch (error) {
    case -ENOENT:
    case -ECONNREFUSED:
        return "this program cannot reach a divvyd";
    case -EPERM:
        return "ignored a daemon: neither root nor this user owns it, or others can write to its directory";
    case -EACCES:
        return "divvyd does not let this user open sessions";
    case -EPROTO:
        return "cannot understand divvyd's answer; is it from another release?";
    default:
        return strerrordesc_np(-error);
    }
}

/* The library prints no messages, and OpenCL has only codes: the reason goes to the log, if there is one. */
static void log_refusal(int error, const struct dv_welcome *welcome)
{
    if (!dvc_log_enabled())
        return;
    if (error == -EPROTO && welcome->magic == DV_WIRE_MAGIC && welcome->status != DV_WELCOME_OK)
        dvc_log_call("divvy: no session: %.*s", (int)sizeof welcome->text, welcome->text);
    else
        dvc_log_call("divvy: no session: %s", words_for(error));
}

/* For the operator's list of sessions. */
static void write_command_line(struct dv_shm_header *header)
{
    DV_AUTO_CLOSE int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const char *name = secure_getenv("DIVVY_NAME");

    if (fd >= 0 && read(fd, header->command_line, sizeof header->command_line - 1) < 0)
        header->command_line[0] = '\0';
    if (name)
        snprintf(header->name, sizeof header->name, "%s", name);
}

static struct dvc_session *open_session(void)
{
    DV_AUTO_CLOSE int fd = -1;
    DV_AUTO_CLOSE int shm_fd = -1;
    struct dv_welcome welcome = {0};

    int error = join_somewhere(&welcome, &fd, &shm_fd);
    if (error < 0) {
        log_refusal(error, &welcome);
        return NULL;
    }
    struct dvc_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->shm = mmap(NULL, welcome.shm_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, shm_fd, 0);
    if (s->shm == MAP_FAILED) {
        free(s);
        return NULL;
    }
    madvise(s->shm, welcome.shm_bytes, MADV_DONTFORK);
    madvise(s->shm, welcome.shm_bytes, MADV_DONTDUMP);
    write_command_line((struct dv_shm_header *)s->shm);
    s->header = (struct dv_shm_header *)s->shm;
    s->shm_bytes = welcome.shm_bytes;
    s->id = welcome.session;
    s->host_jobs_end = &s->host_jobs;
    dv_ring_writer_init(&s->ring, s->shm);
    dvc_arena_init(&s->arena, s->shm, s->shm_bytes);
    make_locks(s);
    if (wait_until_ready(s, &fd) < 0 || events->opened(s) != CL_SUCCESS) {
        dvc_arena_end(&s->arena);
        munmap(s->shm, s->shm_bytes);
        free(s);
        return NULL;
    }
    return s;
}

struct dvc_session *dvc_session_get(void)
{
    pthread_mutex_lock(&process.lock);
    if (!process.fork_handled)
        process.fork_handled = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
    if (process.session && !dvc_session_check(process.session))
        process.session = NULL; /* its objects still point to it: never freed */
    if (!process.session && process.fork_handled) {
        process.session = open_session();
        if (process.session) {
            process.session->earlier = process.newest;
            process.newest = process.session;
        }
    }
    struct dvc_session *s = process.session;
    pthread_mutex_unlock(&process.lock);
    return s;
}

/* ---- sending ---- */

/* Needs ring_lock, and unlocks it while it waits: the helper may need it, and other threads wait for the helper. */
void *dvc_ring_room(struct dvc_session *s, size_t bytes)
{
    for (;;) {
        void *room = dv_ring_reserve(&s->ring, bytes);
        if (room)
            return room;
        atomic_store(&s->header->ring_waiting, 1);
        s->ring.head_seen = atomic_load(&s->header->ring_head);
        room = dv_ring_reserve(&s->ring, bytes);
        if (room)
            return room;
        pthread_mutex_unlock(&s->ring_lock);
        dvc_session_wait(s, &s->header->ring_waiting, 1);
        pthread_mutex_lock(&s->ring_lock);
        if (!dvc_session_alive(s))
            return NULL;
    }
}

cl_int dvc_send(struct dvc_session *s, uint16_t op, struct dv_record *message, size_t bytes, const void *tail,
                size_t tail_bytes)
{
    uint64_t total = dv_record_align(bytes + tail_bytes);

    if (total > DV_MAX_RECORD_BYTES)
        return CL_OUT_OF_RESOURCES;
    message->bytes = (uint32_t)total;
    message->op = op;
    pthread_mutex_lock(&s->ring_lock);
    uint8_t *room = dvc_session_alive(s) ? dvc_ring_room(s, total) : NULL;
    if (room) {
        memcpy(room, message, bytes);
        if (tail_bytes)
            memcpy(room + bytes, tail, tail_bytes);
        dv_ring_publish(&s->ring, total);
    }
    pthread_mutex_unlock(&s->ring_lock);
    return room ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

cl_int dvc_wait_reply(struct dvc_session *s, struct dv_reply *reply)
{
    dv_ns start = 0;

    for (unsigned round = 0;; round++) {
        if (atomic_load_explicit(&reply->state, memory_order_acquire) == DV_REPLY_DONE)
            return CL_SUCCESS;
        dv_cpu_relax();
        if (round % 64 == 63) {
            dv_ns now = dv_now();
            if (!start)
                start = now;
            else if (now - start > SPIN_NS)
                break;
        }
    }
    for (;;) {
        uint32_t state = DV_REPLY_PENDING;
        if (!atomic_compare_exchange_strong(&reply->state, &state, DV_REPLY_SLEEPING) && state == DV_REPLY_DONE)
            return CL_SUCCESS;
        if (!dvc_session_alive(s))
            return CL_OUT_OF_RESOURCES;
        dvc_session_wait(s, &reply->state, DV_REPLY_SLEEPING);
    }
}

cl_int dvc_call(struct dvc_session *s, uint16_t op, struct dv_call_head *message, size_t bytes, const void *tail,
                size_t tail_bytes, void *answer, size_t capacity, size_t *answer_bytes)
{
    if (!dvc_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    uint64_t offset = dvc_arena_alloc(&s->arena, sizeof(struct dv_reply) + capacity);
    if (!offset)
        return CL_OUT_OF_HOST_MEMORY;
    struct dv_reply *reply = dvc_arena_pointer(s, offset);
    atomic_store(&reply->state, DV_REPLY_PENDING);
    reply->bytes = 0;
    message->reply = offset;
    message->reply_bytes = (uint32_t)capacity;
    cl_int error = dvc_send(s, op, &message->record, bytes, tail, tail_bytes);
    if (error == CL_SUCCESS)
        error = dvc_wait_reply(s, reply);
    if (error != CL_SUCCESS)
        return error; /* the worker may still write there: the block is lost with the session */
    error = reply->status;
    uint64_t got = reply->bytes;
    if (answer)
        memcpy(answer, reply + 1, got < capacity ? got : capacity);
    if (answer_bytes)
        *answer_bytes = got;
    dvc_arena_free(&s->arena, offset);
    dvc_flush_output(s);
    return error;
}

/* ---- the output of kernels ---- */

void dvc_flush_output(struct dvc_session *s)
{
    struct dv_shm_header *header = s->header;
    const uint8_t *ring = s->shm + DV_SHM_OUTPUT_OFFSET;
    uint64_t made = atomic_load_explicit(&header->output_made, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&header->output_head, memory_order_relaxed);

    if (made - taken > DV_OUTPUT_AHEAD_MAX) /* invalid, or all output is taken */
        made = taken;
    if (atomic_load_explicit(&header->output_tail, memory_order_acquire) == taken && made == taken)
        return;
    pthread_mutex_lock(&s->output_lock);
    for (;;) {
        uint64_t head = atomic_load(&header->output_head);
        uint64_t tail = atomic_load(&header->output_tail);
        uint64_t at = head & (DV_SHM_OUTPUT_BYTES - 1);
        uint64_t part = tail - head;
        if (part == 0 && head < made && dvc_session_check(s)) { /* the worker still has some */
            usleep(OUTPUT_LOOK_US);
            continue;
        }
        if (part == 0 || part > DV_SHM_OUTPUT_BYTES)
            break;
        if (part > DV_SHM_OUTPUT_BYTES - at)
            part = DV_SHM_OUTPUT_BYTES - at;
        ssize_t written = write(STDOUT_FILENO, ring + at, part);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            written = (ssize_t)part; /* it has no reader: drop it, as when the vendor's own write fails */
        atomic_store(&header->output_head, head + (uint64_t)written);
    }
    pthread_mutex_unlock(&s->output_lock);
}
