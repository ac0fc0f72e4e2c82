/* The state file of an earlier daemon, and what sessions then say of themselves: a file with what the
 * input makes of its header and records is adopted, with descriptors for the sessions that it names. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/arbiter/restart/restore_all.h"
#include "src/arbiter/session/session.h"
#include "src/base/cleanup.h"
#include "src/wire/lease/sync.h"
#include "src/wire/session/shm.h"
#include "tests/fuzz/stage.h"

#define SESSIONS 4

static int peers[SESSIONS];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    stage_start();
    dvd_restore_note_devices(&stage.state, stage.devices.reports, stage.devices.count, stage.devices.found);
    return 0;
}

/* A record as a daemon would write it, then changed as the input likes. */
static void change(struct input *input, void *record, size_t bytes)
{
    for (uint8_t count = take_byte(input) & 7; count > 0; count--) {
        uint8_t at = take_byte(input);
        ((uint8_t *)record)[4 + at % (bytes - 4)] = take_byte(input);
    }
}

static void write_tenants(struct input *input, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct dv_state_tenant *tenant = dvd_state_add(&stage.state.tenants);
        snprintf(tenant->name, sizeof tenant->name, "tenant %u", i);
        tenant->share = (struct dv_state_share){.limit_ppm = DV_PPM, .weight = 1, .class = 1};
        tenant->may_weight = 1;
        change(input, tenant, sizeof *tenant);
        dvd_state_commit(tenant);
        struct dv_state_tenant_device *place = dvd_state_add(&stage.state.tenant_devices);
        place->tenant = i;
        place->device = take_byte(input) & 3;
        place->share = tenant->share;
        place->quota = 16 << 20;
        take_bytes(input, &place->used_ns, take_byte(input) % 56);
        change(input, place, sizeof *place);
        dvd_state_commit(place);
    }
}

/* What the keeper would have. */
static void find_descriptors(uint64_t id, int number, uint8_t lacks)
{
    struct dvd_kept *kept = calloc(1, sizeof *kept);
    int pair[2], pipe_ends[2];

    kept->id = id;
    if (dvd_keeper_found(&stage.keeper, id) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
        pipe2(pipe_ends, O_CLOEXEC) < 0)
        abort();
    close(pipe_ends[1]);
    peers[number] = pair[1];
    kept->fds[DV_KEPT_TENANT] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    kept->fds[DV_KEPT_WORKER] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    kept->fds[DV_KEPT_SHM] = memfd_create("fuzz", MFD_CLOEXEC);
    kept->fds[DV_KEPT_CHANNEL] = pair[0];
    kept->fds[DV_KEPT_LOG] = pipe_ends[0];
    kept->fds[DV_KEPT_CLIENT] = -1;
    for (int i = 0; i < DV_KEPT_KINDS; i++)
        if (lacks >> i & 1)
            dv_close_fd(&kept->fds[i]);
    HASH_ADD(hh, stage.keeper.found, id, sizeof kept->id, kept);
}

static void write_sessions(struct input *input, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint8_t how = take_byte(input);
        struct dv_state_session *session = dvd_state_add(&stage.state.sessions);
        session->api = how & 1 ? DV_API_LEASE : DV_API_OPENCL;
        session->id = i + 1;
        session->tenant_pid = getpid();
        session->worker_pid = how & 1 ? 0 : getpid();
        session->tenant = how >> 1 & 1;
        session->version = DV_WIRE_VERSION;
        session->device_count = 2;
        session->devices[1] = 1;
        session->shm_bytes = DV_SHM_BYTES_MIN;
        snprintf(session->command, sizeof session->command, "program");
        find_descriptors(session->id, (int)i, how & 128 ? take_byte(input) : 0);
        change(input, session, sizeof *session);
        dvd_state_commit(session);
        for (uint32_t j = 0; j < 2; j++) {
            struct dv_state_lease *lease = dvd_state_add(&stage.state.leases);
            lease->session = i;
            lease->index = j;
            lease->serial = how >> 2 & 1;
            lease->reserved = lease->placed = (uint64_t)(how >> 3 & 3) << 20;
            change(input, lease, sizeof *lease);
            dvd_state_commit(lease);
        }
    }
}

/* What each session was asked, and what it says then. */
static void answer(struct input *input, int fd)
{
    struct dv_sync_message asked = {0}, m;
    union {
        struct dv_sync_message sync;
        char bytes[4096];
    } read;

    while (fd >= 0) {
        ssize_t bytes = recv(fd, &read, sizeof read, MSG_DONTWAIT);
        if (bytes <= 0)
            break;
        if (bytes == sizeof read.sync && read.sync.magic == DV_SYNC_MAGIC)
            asked = read.sync;
    }
    m = asked;
    m.type = DV_SYNC_STATE;
    m.device = take_byte(input) & 3;
    m.flags = take_byte(input) & 15;
    m.serial = take_byte(input) & 1;
    m.reserved = (uint64_t)take_byte(input) << 16;
    m.placed = (uint64_t)take_byte(input) << 16;
    m.asked_id = take_byte(input);
    m.asked = (uint64_t)take_byte(input) << 18;
    m.place_bytes = (uint64_t)take_byte(input) << 18;
    change(input, &m, sizeof m);
    if (fd >= 0)
        (void)!send(fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The file as the next daemon finds it: its header and which records count are changed too. */
static void open_again(struct input *input)
{
    static struct dv_state_header as_written;

    as_written = *stage.state.header;
    change(input, stage.state.header, 80);
    for (uint8_t count = take_byte(input) & 3; count > 0; count--)
        change(input, &stage.state.header->reports[take_byte(input) % DV_MAX_DEVICES],
               sizeof stage.state.header->reports[0]);
    struct dvd_state_table *tables[] = {&stage.state.tenants, &stage.state.tenant_devices, &stage.state.sessions,
                                        &stage.state.leases};
    for (uint8_t count = take_byte(input) & 3; count > 0; count--) {
        struct dvd_state_table *table = tables[take_byte(input) & 3];
        uint32_t used = take_byte(input) & 3;
        memcpy(table->records + (size_t)(take_byte(input) & 15) * table->record_bytes, &used, sizeof used);
    }
    dvd_state_close(&stage.state);
    if (dvd_state_open(&stage.state, stage.directory.path, &stage.is_restart) < 0)
        abort();
    (void)dvd_arbiter_restore_zygote(&stage);
    memcpy(stage.state.header->boot, as_written.boot, sizeof as_written.boot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    uint8_t how = take_byte(&input);
    unsigned tenants = how & 3, sessions = take_byte(&input) % (SESSIONS + 1);

    for (int i = 0; i < SESSIONS; i++)
        peers[i] = -1;
    stage.is_restart = true;
    stage.sessions.last_id = SESSIONS;
    change(&input, stage.state.header->devices, sizeof stage.state.header->devices);
    write_tenants(&input, tenants);
    write_sessions(&input, sessions);
    if (how & 128)
        open_again(&input);
    dvd_arbiter_restore(&stage);
    dvd_keeper_drop_found(&stage.keeper);
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < SESSIONS; i++)
            answer(&input, peers[i]);
        stage_run(16);
    }
    for (int i = 0; i < SESSIONS; i++)
        dv_close_fd(&peers[i]);
    stage_run(100);
    dvd_sessions_forget(&stage.sessions);
    dvd_tenants_forget_gone(&stage.ledger, true);
    assert(!stage.ledger.tenants && !stage.sessions.processes.table);
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        const struct dvd_device *device = &stage.ledger.devices[i];
        assert(!device->started || (!device->policy.waiting_tenants && !device->policy.holders.first &&
                                    device->policy.free_slots == device->policy.slots));
    }
    for (uint32_t i = 0; i < stage.state.sessions.touched; i++)
        assert(!dvd_state_at(&stage.state.sessions, i));
    dvd_state_clear(&stage.state);
    memset(stage.state.header->devices, 0, sizeof stage.state.header->devices);
    stage.state.header->magic = DV_STATE_MAGIC;
    stage.state.header->version = DV_STATE_VERSION;
    stage_know_devices();
    dvd_restore_note_devices(&stage.state, stage.devices.reports, stage.devices.count, stage.devices.found);
    return 0;
}
