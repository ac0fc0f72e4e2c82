/* divvyd in the fuzzer's process (see stage.h). */
#include "tests/fuzz/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct dvd_arbiter stage;
struct stage_zygote stage_zygote;

/* ---- in place of the zygote ---- */

void dvd_zygote_init(struct dvd_zygote *zygote)
{
    zygote->fd = -1;
    dvd_worker_log_init(&zygote->log, "zygote", NULL);
}

int dvd_zygote_prepare(struct dvd_zygote *zygote)
{
    zygote->launcher.fd = -1;
    return 0;
}

int dvd_zygote_start(struct dvd_zygote *zygote)
{
    zygote->fd = eventfd(0, EFD_CLOEXEC);
    return 0;
}

uint64_t dvd_zygote_identity(const struct dvd_zygote *zygote)
{
    (void)zygote;
    return 1;
}

int dvd_zygote_adopt(struct dvd_zygote *zygote, pid_t pid, int *pidfd, int *socket_fd, int *log_fd)
{
    (void)pid;
    (void)pidfd;
    (void)socket_fd;
    (void)log_fd;
    return dvd_zygote_start(zygote);
}

void dvd_zygote_stop(struct dvd_zygote *zygote)
{
    (void)zygote;
}

void dvd_zygote_fini(struct dvd_zygote *zygote)
{
    close(zygote->fd);
}

int dvd_zygote_request_fork(struct dvd_zygote *zygote, struct dvd_session_id session, uid_t uid)
{
    (void)zygote;
    (void)uid;
    stage_zygote.forks++;
    stage_zygote.last_session = session;
    return stage_zygote.fork_error;
}

void dvd_zygote_request_trim(struct dvd_zygote *zygote)
{
    (void)zygote;
}

int dvd_zygote_request_probe(struct dvd_zygote *zygote)
{
    (void)zygote;
    return 0;
}

bool dvd_zygote_is_ready(const struct dvd_zygote *zygote)
{
    return !stage_zygote.is_unready && zygote->devices->known;
}

void dvd_zygote_refresh_devices(struct dvd_zygote *zygote)
{
    (void)zygote;
}

void stage_know_devices(void)
{
    static struct dv_zygote_answer answer = {.device_count = 2};

    for (uint32_t i = 0; i < answer.device_count; i++) {
        answer.devices[i] = (struct dv_device_report){.device = i, .memory_bytes = 64 << 20};
        snprintf(answer.devices[i].name, sizeof answer.devices[i].name, "device %u", i);
    }
    dvd_devices_take(&stage.devices, &answer, 1);
    dvd_devices_add_lease_only(&stage.devices, &stage.config);
    dvd_arbiter_devices_changed(&stage);
}

void stage_start(void)
{
    static char directory[DV_RUNDIR_BYTES], cache[DV_RUNDIR_BYTES + 8], config[32];
    const char *place = getenv("TMPDIR"); /* tests/fuzz/run removes it afterwards */
    struct dvd_options options = {.user = true,
                                  .directory = directory,
                                  .config_path = config,
                                  .worker_path = "/bin/true",
                                  .ready_fd = -1,
                                  .log_level = DV_LOG_ERROR};
    int config_fd = memfd_create("divvy.yaml", MFD_CLOEXEC);

    snprintf(directory, sizeof directory, "%s/divvy-fuzz-%d", place ? place : "/tmp", (int)getpid());
    snprintf(cache, sizeof cache, "%s-cache", directory);
    setenv("DIVVY_CACHE", cache, 1);
    snprintf(config, sizeof config, "/proc/self/fd/%d", config_fd);
    if (dprintf(config_fd, "devices:\n  - name: %s\n    lease-only: yes\n    capacity: 64MiB\n", STAGE_LEASE_ONLY) < 0)
        abort();
    dv_log_set_level(DV_LOG_ERROR);
    if (dvd_arbiter_init(&stage, &options) < 0)
        abort();
    stage_know_devices();
}

int stage_connect(const char *socket_name, int type)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || dv_rundir_address(&address, stage.directory.path, socket_name) < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

void stage_run(int turns)
{
    while (turns-- > 0 && sd_event_run(stage.event, 0) > 0)
        ;
}

uint8_t take_byte(struct input *input)
{
    uint8_t byte = 0;

    take_bytes(input, &byte, 1);
    return byte;
}

void take_bytes(struct input *input, void *into, size_t bytes)
{
    size_t there = bytes < input->bytes ? bytes : input->bytes;

    memset(into, 0, bytes);
    memcpy(into, input->data, there);
    input->data += there;
    input->bytes -= there;
}
