/* divvyd in the fuzzer's own process: everything but the zygote, with two devices that it has been told
 * of and a lease-only one. Peers are sockets of this process. */
#ifndef DIVVY_TESTS_FUZZ_STAGE_H
#define DIVVY_TESTS_FUZZ_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/arbiter/arbiter.h"

#define STAGE_LEASE_ONLY "encoder" /* device 2 */

extern struct dvd_arbiter stage;

/* The zygote is the test's: this is what it does, and what it was asked for. */
extern struct stage_zygote {
    bool is_unready;
    int fork_error;
    unsigned forks;
    struct dvd_session_id last_session; /* for which a worker was asked */
} stage_zygote;

void stage_start(void);
/* Tells it (again) of its two devices. */
void stage_know_devices(void);
/* Connects to one of divvyd's sockets; -1 when it does not take more. */
int stage_connect(const char *socket_name, int type);
/* Lets divvyd do what is to be done now. */
void stage_run(int turns);

/* Reads the input piece by piece; zeros after its end. */
struct input {
    const uint8_t *data;
    size_t bytes;
};

uint8_t take_byte(struct input *input);
void take_bytes(struct input *input, void *into, size_t bytes);

#endif
