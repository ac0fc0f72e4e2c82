/* Shares an encoder of your own through divvyd. It stands for any device whose licence allows N sessions at a time:
 * here the licences are N files, and a session locks one of them while it encodes. docs/lease.md says how to run it.
 *
 *   cc encoder.c $(pkg-config --cflags --libs divvy-lease) -o encoder */
#include <divvy/lease.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ending;

static void on_signal(int number)
{
    (void)number;
    ending = 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The device's own fence: a program that still encodes has its licence, whatever divvyd thinks. */
static int take_licence(char **files)
{
    for (; *files; files++) {
        int fd = open(*files, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* The encoder: a checksum of a frame. */
static void encode(uint32_t *sum, const unsigned char *frame, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *sum = (*sum ^ frame[i]) * 16777619u;
}

int main(int argc, char **argv)
{
    static unsigned char frame[256 * 1024];
    unsigned long frames = 0, turned_away = 0;
    uint32_t sum = 2166136261u;
    char reason[256] = "wrong arguments";
    struct dv_lease_options options;

    memset(&options, 0, sizeof options);
    options.device = argc > 2 ? argv[1] : NULL;
    options.reason = reason;
    options.reason_bytes = sizeof reason;
    struct dv_lease *lease = dv_lease_connect(&options, NULL);
    if (!lease) {
        fprintf(stderr, "usage: encoder DEVICE LICENCE...\nno lease: %s\n", reason);
        return 1;
    }
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    while (!ending) {
        if (dv_lease_wait(lease, DV_LEASE_DEVICE, 100 * 1000000) < 0)
            continue; /* another tenant's turn, or no divvyd */
        int licence = take_licence(argv + 2);
        if (licence < 0) { /* a program uses the device without a grant */
            turned_away++;
            dv_lease_yield(lease, DV_LEASE_DEVICE);
            continue;
        }
        while (!ending && dv_lease_open(lease, DV_LEASE_DEVICE)) {
            uint64_t began = now_ns();
            encode(&sum, frame, sizeof frame);
            uint64_t took = now_ns() - began;
            struct dv_lease_work work = {took, 0, took};
            dv_lease_ran(lease, DV_LEASE_DEVICE, &work);
            frames++;
        }
        close(licence); /* all work is complete: before the device is given back */
        dv_lease_drained(lease, DV_LEASE_DEVICE, !ending);
    }
    dv_lease_destroy(lease);
    printf("%lu frames, checksum %08x, turned away %lu times\n", frames, (unsigned)sum, turned_away);
    return 0;
}
