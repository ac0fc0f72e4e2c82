/* divvyd in the fuzzer's process (see stage.h). */
#include "tests/fuzz/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct dv_arbiter stage;

/* ---- in place of the zygote ---- */

void dv_zygote_init(struct dv_zygote *zygote)
{
    *zygote = (struct dv_zygote){.fd = -1};
    dv_worker_log_init(&zygote->log, "zygote", NULL);
}

int dv_zygote_prepare(struct dv_arbiter *arbiter)
{
    (void)arbiter;
    return 0;
}

int dv_zygote_start(struct dv_arbiter *arbiter)
{
    arbiter->zygote.fd = eventfd(0, EFD_CLOEXEC);
    return 0;
}

uint64_t dv_zygote_identity(const struct dv_arbiter *arbiter)
{
    (void)arbiter;
    return 1;
}

int dv_zygote_adopt(struct dv_arbiter *arbiter, pid_t pid, int *pidfd, int *socket_fd, int *log_fd)
{
    (void)pid;
    (void)pidfd;
    (void)socket_fd;
    (void)log_fd;
    return dv_zygote_start(arbiter);
}

void dv_zygote_stop(struct dv_arbiter *arbiter)
{
    (void)arbiter;
}

void dv_zygote_fini(struct dv_arbiter *arbiter)
{
    close(arbiter->zygote.fd);
}

int dv_zygote_request_fork(struct dv_arbiter *arbiter, uint64_t session, uid_t uid)
{
    (void)arbiter;
    (void)session;
    (void)uid;
    return 0;
}

void dv_zygote_request_sweep(struct dv_arbiter *arbiter)
{
    (void)arbiter;
}

void dv_zygote_renew(struct dv_arbiter *arbiter)
{
    (void)arbiter;
}

int dv_zygote_request_probe(struct dv_arbiter *arbiter)
{
    (void)arbiter;
    return 0;
}

/* ---- the stage ---- */

void stage_know_devices(void)
{
    static struct dv_zygote_answer answer = {.device_count = 2};

    for (uint32_t i = 0; i < answer.device_count; i++) {
        answer.devices[i] = (struct dv_device_report){.device = i, .memory_bytes = 64 << 20};
        snprintf(answer.devices[i].name, sizeof answer.devices[i].name, "device %u", i);
    }
    dv_devices_take(&stage.devices, &answer, 1);
    dv_arbiter_devices_changed(&stage);
}

void stage_start(void)
{
    static char directory[DV_RUNDIR_BYTES], cache[DV_RUNDIR_BYTES + 8];
    const char *place = getenv("TMPDIR"); /* tests/fuzz/run removes it afterwards */
    struct dv_options options = {.user = true,
                                 .directory = directory,
                                 .worker_path = "/bin/true",
                                 .ready_fd = -1,
                                 .log_level = DV_LOG_ERROR};

    snprintf(directory, sizeof directory, "%s/divvy-fuzz-%d", place ? place : "/tmp", (int)getpid());
    snprintf(cache, sizeof cache, "%s-cache", directory);
    setenv("DIVVY_CACHE", cache, 1);
    dv_log_set_level(DV_LOG_ERROR);
    if (dv_arbiter_init(&stage, &options) < 0)
        abort();
    stage_know_devices();
}

int stage_connect(const char *socket_name, int type)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || dv_rundir_address(&address, stage.directory, socket_name) < 0 ||
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
