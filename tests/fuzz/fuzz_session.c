/* The session socket: handshakes, then lease and memory messages of several sessions at once. */
#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/arbiter/session/session.h"
#include "src/wire/lease/lease.h"
#include "src/wire/lease/memory.h"
#include "tests/fuzz/stage.h"

#define PEERS 4

static struct peer {
    int fd; /* -1: not connected */
    uint64_t serial;
    uint64_t number; /* of the last message about memory */
} peers[PEERS];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    stage_start();
    for (int i = 0; i < PEERS; i++)
        peers[i].fd = -1;
    return 0;
}

static void leave(struct peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
}

static void say(const struct peer *peer, const void *message, size_t bytes)
{
    if (peer->fd >= 0)
        (void)!send(peer->fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What divvyd says is read, so that its socket does not fill; grants tell their serial. */
static void listen_to(struct peer *peer)
{
    union {
        struct dv_lease_message lease;
        struct dv_memory_message memory;
        char bytes[4096];
    } m;

    while (peer->fd >= 0) {
        ssize_t bytes = recv(peer->fd, &m, sizeof m, MSG_DONTWAIT);
        if (bytes <= 0)
            break;
        if (bytes == sizeof m.lease && m.lease.magic == DV_LEASE_MAGIC)
            peer->serial = m.lease.serial;
        if (bytes == sizeof m.memory && m.memory.magic == DV_MEMORY_MAGIC)
            peer->number = m.memory.id;
    }
}

static void say_hello(struct peer *peer, struct input *input)
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION_OLDEST,
                             .api = DV_API_LEASE};
    uint8_t how = take_byte(input);

    leave(peer);
    peer->fd = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
    if (how & 1) /* its own idea of one */
        take_bytes(input, &hello, DV_HELLO_BYTES_1);
    else if (how & 2)
        take_bytes(input, &hello.request, 12);
    if (how & 4)
        hello.api = DV_API_OPENCL;
    if (how & 16)
        take_bytes(input, hello.devices, 16);
    if (how & 32)
        hello.flags = DV_HELLO_SAME_DEVICES;
    if (how & 64) {
        hello.flags = DV_HELLO_LEASE_ONLY;
        if (!(how & 16))
            strcpy(hello.devices, STAGE_LEASE_ONLY);
    }
    say(peer, &hello, how & 8 ? how % sizeof hello : sizeof hello);
}

static void say_lease(struct peer *peer, struct input *input)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION};

    m.type = take_byte(input) & 31;
    m.device = take_byte(input) % 3;
    m.flags = take_byte(input);
    m.serial = take_byte(input) & 1 ? peer->serial : take_byte(input);
    take_bytes(input, &m.kernel_ns, 8);
    take_bytes(input, &m.p90_ns, 8);
    say(peer, &m, sizeof m);
}

static void say_memory(struct peer *peer, struct input *input)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC, .version = DV_MEMORY_VERSION};
    uint8_t size = take_byte(input);

    m.type = take_byte(input) & 31;
    m.device = take_byte(input) % 3;
    m.flags = take_byte(input) & 7;
    m.id = take_byte(input);
    if (m.id & 128)
        m.id = peer->number;
    if (size & 128)
        take_bytes(input, &m.bytes, sizeof m.bytes);
    else
        m.bytes = (uint64_t)(size & 127) << 20;
    say(peer, &m, sizeof m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    uint8_t raw[256];

    while (input.bytes > 0) {
        uint8_t what = take_byte(&input);
        struct peer *peer = &peers[what >> 4 & (PEERS - 1)];
        switch (what & 7) {
        case 0:
            say_hello(peer, &input);
            break;
        case 1: {
            size_t length = take_byte(&input);
            take_bytes(&input, raw, length);
            say(peer, raw, length);
            break;
        }
        case 2:
            leave(peer);
            break;
        case 3:
        case 4:
            say_memory(peer, &input);
            break;
        default:
            say_lease(peer, &input);
        }
        stage_run(8);
        for (int i = 0; i < PEERS; i++)
            listen_to(&peers[i]);
    }
    for (int i = 0; i < PEERS; i++)
        leave(&peers[i]);
    stage_run(100);
    assert(!stage.sessions.all && stage.listener.pending_count == 0);
    dvd_tenants_forget_gone(&stage.ledger, true);
    for (uint32_t i = 0; i < stage.devices.count; i++) {
        const struct dvd_device *device = &stage.ledger.devices[i];
        assert(!device->started || (!device->policy.waiting_tenants && !device->policy.holders.first &&
                                    device->policy.free_slots == device->policy.slots));
    }
    return 0;
}
