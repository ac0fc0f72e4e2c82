/* Output of kernels. The vendor writes to the worker's standard output, which is a pipe to the
 * worker itself; from there bytes go into the session's output ring, and the client writes them to
 * the tenant's standard output before it lets the application see the kernel's completion.
 *
 * A program that does not read its output must not keep the device by it: output that does not fit the
 * ring is kept here, and `output_made` tells the client how much is still to come. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "src/worker/core/runtime.h"

#define PIPE_BYTES (1 << 20)
/* The worker keeps up to DV_OUTPUT_KEPT_MAX that does not fit the ring. Beyond that kernels wait for the
 * reader, as they do without divvy, and only a deadline frees the device. */
#define KEPT_STEP ((size_t)1 << 20)
/* Pause between two looks at whether the client has made room in the ring. */
#define LOOK_US 1000

static struct {
    int read_fd;
    pthread_mutex_t lock;
    uint64_t tail;
    uint8_t *kept; /* from kept_at on */
    size_t kept_at, kept_end, kept_capacity;
} output = {.read_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns how many bytes the ring takes now. The client can write any head: a senseless one leaves no room. */
static size_t ring_room(const struct dvk_runtime *runtime)
{
    uint64_t used = output.tail - atomic_load(&runtime->header->output_head);

    return used < DV_SHM_OUTPUT_BYTES ? DV_SHM_OUTPUT_BYTES - used : 0;
}

/* Copies into the ring, as far as there is room. Returns how much. */
static size_t post(struct dvk_runtime *runtime, const uint8_t *data, size_t bytes)
{
    uint8_t *ring = runtime->shm + DV_SHM_OUTPUT_OFFSET;
    size_t posted = 0;

    while (posted < bytes) {
        uint64_t at = output.tail & (DV_SHM_OUTPUT_BYTES - 1);
        size_t part = ring_room(runtime);
        if (part == 0)
            break;
        if (part > DV_SHM_OUTPUT_BYTES - at)
            part = DV_SHM_OUTPUT_BYTES - at;
        if (part > bytes - posted)
            part = bytes - posted;
        memcpy(ring + at, data + posted, part);
        output.tail += part;
        posted += part;
        atomic_store(&runtime->header->output_tail, output.tail);
    }
    return posted;
}

static bool make_room(size_t bytes)
{
    size_t kept = output.kept_end - output.kept_at;

    if (kept + bytes > DV_OUTPUT_KEPT_MAX)
        return false;
    if (output.kept_end + bytes <= output.kept_capacity)
        return true;
    memmove(output.kept, output.kept + output.kept_at, kept);
    output.kept_at = 0;
    output.kept_end = kept;
    if (kept + bytes <= output.kept_capacity)
        return true;
    size_t capacity = (2 * kept + bytes + KEPT_STEP - 1) / KEPT_STEP * KEPT_STEP;
    uint8_t *larger = realloc(output.kept, capacity);
    if (!larger)
        return false;
    output.kept = larger;
    output.kept_capacity = capacity;
    return true;
}

/* Publishes how much there is, with the pipe: the client waits for it before it shows a completion. */
static void tell_how_much(struct dvk_runtime *runtime)
{
    int in_pipe = 0;

    if (ioctl(output.read_fd, FIONREAD, &in_pipe) < 0)
        in_pipe = 0;
    atomic_store_explicit(&runtime->header->output_made,
                          output.tail + (output.kept_end - output.kept_at) + (uint64_t)in_pipe, memory_order_release);
}

/* Moves kept output into the ring. */
static bool move_kept(struct dvk_runtime *runtime)
{
    size_t moved = post(runtime, output.kept + output.kept_at, output.kept_end - output.kept_at);

    output.kept_at += moved;
    if (output.kept_at == output.kept_end) {
        free(output.kept);
        output.kept = NULL;
        output.kept_at = output.kept_end = output.kept_capacity = 0;
    }
    return moved > 0;
}

/* Moves some output out of the pipe: as much as the ring takes, or more, which is kept. */
static bool take_some(struct dvk_runtime *runtime, bool may_keep)
{
    uint8_t data[16384];
    bool is_behind = output.kept_at < output.kept_end; /* the kept output comes first */
    size_t takes = is_behind ? 0 : ring_room(runtime);
    size_t most = may_keep || takes > sizeof data ? sizeof data : takes;

    ssize_t bytes = most && make_room(sizeof data) ? read(output.read_fd, data, most) : 0;
    if (bytes <= 0)
        return false;
    size_t posted = is_behind ? 0 : post(runtime, data, (size_t)bytes);
    memcpy(output.kept + output.kept_end, data + posted, (size_t)bytes - posted);
    output.kept_end += (size_t)bytes - posted;
    return true;
}

/* Never waits for the client. Other kernels may go on printing, so it takes no more than a pipe holds. */
static void drain(struct dvk_runtime *runtime, bool may_keep)
{
    enum { ROUNDS_MAX = PIPE_BYTES / 16384 };

    pthread_mutex_lock(&output.lock);
    bool any = output.kept_at < output.kept_end && move_kept(runtime);
    for (int i = 0; i < ROUNDS_MAX && take_some(runtime, may_keep); i++)
        any = true;
    tell_how_much(runtime);
    pthread_mutex_unlock(&output.lock);
    if (any)
        dvk_runtime_wake_client(runtime);
}

/* Only the reader's thread keeps output, since only that thread moves it later. Other threads leave excess
 * output in the pipe, which wakes the reader. */
void dvk_output_drain(struct dvk_runtime *runtime)
{
    drain(runtime, false);
}

bool dvk_output_is_posted(struct dvk_runtime *runtime)
{
    drain(runtime, true);
    pthread_mutex_lock(&output.lock);
    bool posted = atomic_load(&runtime->header->output_made) == output.tail;
    pthread_mutex_unlock(&output.lock);
    return posted;
}

static bool has_kept(void)
{
    pthread_mutex_lock(&output.lock);
    bool kept = output.kept_at < output.kept_end;
    pthread_mutex_unlock(&output.lock);
    return kept;
}

/* A kernel that prints more than the pipe holds would wait for ever without a reader. */
static void *keep_draining(void *argument)
{
    struct pollfd poller = {.fd = output.read_fd, .events = POLLIN};

    for (;;) {
        if (has_kept()) /* until the client has made room */
            usleep(LOOK_US);
        else if (poll(&poller, 1, -1) <= 0)
            continue;
        drain(argument, true);
    }
    return NULL;
}

int dvk_output_start(struct dvk_runtime *runtime)
{
    int ends[2];
    pthread_t reader;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    output.read_fd = ends[0];
    output.tail = atomic_load(&runtime->header->output_tail);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    return -pthread_create(&reader, NULL, keep_draining, runtime);
}
