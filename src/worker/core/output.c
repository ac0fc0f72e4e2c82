/* What kernels print. The vendor writes to the worker's standard output, which is a pipe to the
 * worker itself; from there bytes go into the session's output ring, and the client writes them to
 * the tenant's standard output before it lets the application see the kernel's completion. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "src/worker/core/runtime.h"

#define PIPE_BYTES (1 << 20)

static struct {
    int read_fd;
    pthread_mutex_t lock;
    uint64_t tail;
} output = {.read_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static void append(struct dv_runtime *runtime, const uint8_t *data, size_t bytes)
{
    uint8_t *ring = runtime->shm + DV_SHM_OUTPUT_OFFSET;

    while (bytes > 0) {
        uint64_t used = output.tail - atomic_load(&runtime->header->output_head);
        if (used >= DV_SHM_OUTPUT_BYTES) { /* full: the client's helper must write first */
            dv_runtime_wake_client(runtime);
            usleep(200);
            continue;
        }
        uint64_t at = output.tail & (DV_SHM_OUTPUT_BYTES - 1);
        size_t part = DV_SHM_OUTPUT_BYTES - used;
        if (part > DV_SHM_OUTPUT_BYTES - at)
            part = DV_SHM_OUTPUT_BYTES - at;
        if (part > bytes)
            part = bytes;
        memcpy(ring + at, data, part);
        output.tail += part;
        atomic_store(&runtime->header->output_tail, output.tail);
        data += part;
        bytes -= part;
    }
}

void dv_output_drain(struct dv_runtime *runtime)
{
    uint8_t data[16384];
    ssize_t bytes;
    bool any = false;

    pthread_mutex_lock(&output.lock);
    while ((bytes = read(output.read_fd, data, sizeof data)) > 0) {
        append(runtime, data, (size_t)bytes);
        any = true;
    }
    pthread_mutex_unlock(&output.lock);
    if (any)
        dv_runtime_wake_client(runtime);
}

/* A kernel that prints more than the pipe holds would wait for ever without a reader. */
static void *keep_draining(void *argument)
{
    struct pollfd poller = {.fd = output.read_fd, .events = POLLIN};

    for (;;)
        if (poll(&poller, 1, -1) > 0)
            dv_output_drain(argument);
    return NULL;
}

int dv_output_start(struct dv_runtime *runtime)
{
    int ends[2];
    pthread_t reader;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    output.read_fd = ends[0];
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    return -pthread_create(&reader, NULL, keep_draining, runtime);
}
