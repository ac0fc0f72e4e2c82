/* bench-sched: a crowd of lease-only sessions in one process, to load divvyd alone, without workers
 * and without a vendor; and the yardstick for it. The Python side starts several, asks each with
 * one line on standard input and reads one JSON line for each.
 *
 *   bench-sched crowd SOCKET SESSIONS NUMBER FIRST_UID UIDS CLOCKS
 *       opens SESSIONS sessions at divvyd's SOCKET, as users FIRST_UID and on in turn (UIDS 0: as
 *       oneself), and serves until end of file:
 *         run ACTIVE FIRST_DEVICE DEVICES HOLD_US MS
 *             the next ACTIVE sessions want a device each, hold it for HOLD_US once granted, want
 *             it again at once, and so on for MS (0: until the next line comes); then each of them
 *             must be granted once more before the answer is given
 *       NUMBER tells the crowds apart; CLOCKS is a file that all of them share.
 *   bench-sched pingpong
 *       a message and its answer of the same size over a bare SEQPACKET socket pair to another
 *       process:
 *         run MS
 *
 * It speaks the lease protocol as a front end inside a tenant's process would. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "bench/programs/bench.h"
#include "src/wire/lease/lease.h"
#include "src/wire/session/handshake.h"

#define NS_PER_MS UINT64_C(1000000)
/* A session that has waited this long after all others stopped asking is stuck. */
#define STUCK_NS (20000 * NS_PER_MS)

/* How soon a run notices that its time is over, if nothing happens. */
#define GLANCE_NS (100 * NS_PER_MS)
#define INPUT UINT32_MAX /* in place of a session's number: standard input */

enum { MAX_SAMPLES = 2000, EVENTS_AT_ONCE = 64 };

struct session {
    int fd;
    uint32_t device;
    bool waiting;
};

/* When each device was last given back by whichever process held it; 0: taken since. */
struct clocks {
    _Atomic uint64_t released_at[DV_MAX_DEVICES];
};

struct hold {
    struct session *session; /* NULL: this process does not hold the device */
    uint64_t serial, until;
};

struct crowd {
    struct session *sessions;
    uint32_t count, number, next_active;
    int epoll_fd;
    struct clocks *clocks;
    struct hold holds[DV_MAX_DEVICES];
    /* of the present run */
    uint32_t waiting;
    uint64_t hold_ns;
    bool again;
    uint64_t grants, recalls;
    uint64_t last_grant, longest_gap; /* without a grant to any session */
    uint64_t longest_handover;
    uint64_t handovers; /* seen; every `step`-th is kept */
    uint64_t step;
    uint32_t sample_count;
    uint32_t samples[MAX_SAMPLES];
};

/* Unbuffered: epoll must see whether another line has come. False at the end of the file. */
static bool read_line(char *line, size_t bytes)
{
    for (size_t used = 0; used < bytes; used++) {
        if (read(STDIN_FILENO, &line[used], 1) != 1)
            return false;
        if (line[used] == '\n') {
            line[used] = '\0';
            return true;
        }
    }
    fail("a line is too long");
}

/* ---- opening sessions ---- */

static void raise_descriptor_limit(uint32_t wanted)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < wanted + 64)
        fail("%u sessions need more descriptors than a process may have here", wanted);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_session(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION_OLDEST,
                             .api = DV_API_LEASE};
    struct dv_welcome welcome;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("%s: %s", path, strerror(errno));
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        fail("hello: %s", strerror(errno));
    ssize_t bytes = recv(fd, &welcome, sizeof welcome, 0);
    if (bytes != (ssize_t)sizeof welcome)
        fail("no welcome: %s", bytes < 0 ? strerror(errno) : "divvyd closed the connection");
    if (welcome.status != DV_WELCOME_OK)
        fail("refused: %.*s", DV_MAX_MESSAGE_TEXT, welcome.text);
    return fd;
}

/* Whose session it is the kernel tells divvyd, as of the moment of connecting. */
static int open_session_as(const char *path, uid_t uid)
{
    if (seteuid(uid) != 0)
        fail("cannot act as user %u: %s", (unsigned)uid, strerror(errno));
    int fd = open_session(path);
    if (seteuid(0) != 0)
        fail("cannot be root again: %s", strerror(errno));
    return fd;
}

static void watch(int epoll_fd, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll: %s", strerror(errno));
}

static void open_crowd(struct crowd *crowd, const char *path, uid_t first_uid, uint32_t uids)
{
    raise_descriptor_limit(crowd->count);
    crowd->sessions = calloc(crowd->count, sizeof *crowd->sessions);
    crowd->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!crowd->sessions || crowd->epoll_fd < 0)
        fail("cannot hold %u sessions", crowd->count);
    for (uint32_t i = 0; i < crowd->count; i++) {
        struct session *session = &crowd->sessions[i];
        session->fd = uids ? open_session_as(path, first_uid + i % uids) : open_session(path);
        watch(crowd->epoll_fd, session->fd, i);
    }
    watch(crowd->epoll_fd, STDIN_FILENO, INPUT);
}

static struct clocks *map_clocks(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, sizeof(struct clocks)) != 0)
        fail("%s: %s", path, strerror(errno));
    void *at = mmap(NULL, sizeof(struct clocks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        fail("%s: %s", path, strerror(errno));
    close(fd);
    return at;
}

/* ---- holds ---- */

static void say(const struct session *session, enum dv_lease_type type, uint32_t flags, uint64_t serial)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = session->device,
                                 .flags = flags,
                                 .serial = serial};

    if (send(session->fd, &m, sizeof m, MSG_NOSIGNAL) != (ssize_t)sizeof m)
        fail("lease channel: %s", strerror(errno));
}

static void start_waiting(struct crowd *crowd, struct session *session)
{
    session->waiting = true;
    crowd->waiting++;
}

static void give_back(struct crowd *crowd, struct session *session, uint64_t serial)
{
    if (crowd->again)
        start_waiting(crowd, session);
    atomic_store(&crowd->clocks->released_at[session->device], now_ns());
    say(session, DV_LEASE_RELEASE, crowd->again ? DV_LEASE_AGAIN : 0, serial);
}

/* Keeps an even selection of all handovers, however many come: when the room is full every other
 * one goes, and from then on half as many are taken. */
static void keep_sample(struct crowd *crowd, uint64_t ns)
{
    if (ns > crowd->longest_handover)
        crowd->longest_handover = ns;
    if (crowd->handovers++ % crowd->step)
        return;
    if (crowd->sample_count == MAX_SAMPLES) {
        for (uint32_t i = 0; i < MAX_SAMPLES / 2; i++)
            crowd->samples[i] = crowd->samples[2 * i];
        crowd->sample_count = MAX_SAMPLES / 2;
        crowd->step *= 2;
    }
    crowd->samples[crowd->sample_count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static void note_gap(struct crowd *crowd, uint64_t now)
{
    if (now - crowd->last_grant > crowd->longest_gap)
        crowd->longest_gap = now - crowd->last_grant;
    crowd->last_grant = now;
}

static void take_grant(struct crowd *crowd, struct session *session, const struct dv_lease_message *m)
{
    uint64_t now = now_ns();
    uint64_t released = atomic_exchange(&crowd->clocks->released_at[session->device], 0);

    if (!session->waiting || m->device != session->device)
        fail("a grant without a request");
    session->waiting = false;
    crowd->waiting--;
    if (crowd->again) {
        crowd->grants++;
        note_gap(crowd, now);
        if (released)
            keep_sample(crowd, now - released);
    }
    if (crowd->hold_ns == 0) {
        give_back(crowd, session, m->serial);
        return;
    }
    struct hold *hold = &crowd->holds[session->device];
    if (hold->session)
        fail("device %u was granted twice at the same time", session->device);
    *hold = (struct hold){.session = session, .serial = m->serial, .until = now + crowd->hold_ns};
}

static void take_messages(struct crowd *crowd, struct session *session)
{
    struct dv_lease_message m;
    ssize_t bytes = recv(session->fd, &m, sizeof m, MSG_DONTWAIT);

    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes != (ssize_t)sizeof m || m.magic != DV_LEASE_MAGIC)
        fail("lease channel: %s", bytes < 0 ? strerror(errno) : "divvyd closed it");
    if (m.type == DV_LEASE_GRANT)
        take_grant(crowd, session, &m);
    else if (m.type == DV_LEASE_RECALL)
        crowd->recalls++; /* the hold ends soon by itself */
    else
        fail("lease channel: message of type %u", m.type);
}

/* Gives back what was held for long enough. Returns when the next hold ends, or the limit. */
static uint64_t end_holds(struct crowd *crowd, uint64_t limit)
{
    uint64_t now = now_ns();

    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct hold *hold = &crowd->holds[i];
        if (!hold->session)
            continue;
        if (hold->until <= now) {
            struct session *session = hold->session;
            hold->session = NULL;
            give_back(crowd, session, hold->serial);
        } else if (hold->until < limit) {
            limit = hold->until;
        }
    }
    return limit;
}

static bool holds_any(const struct crowd *crowd)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        if (crowd->holds[i].session)
            return true;
    return false;
}

/* Serves the lease channels until `limit` at most. Returns true when a line has come. */
static bool serve_once(struct crowd *crowd, uint64_t limit)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    uint64_t wake = end_holds(crowd, limit), now = now_ns();
    uint64_t wait = wake > now ? wake - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
    bool line = false;

    int count = epoll_pwait2(crowd->epoll_fd, events, EVENTS_AT_ONCE, &timeout, NULL);
    if (count < 0 && errno != EINTR)
        fail("epoll: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 == INPUT)
            line = true;
        else
            take_messages(crowd, &crowd->sessions[events[i].data.u32]);
    }
    return line;
}

static void print_run(const struct crowd *crowd, uint64_t ns, uint64_t drain_ns)
{
    printf("{\"grants\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"recalls\": %" PRIu64 ", \"gap_ns\": %" PRIu64
           ", \"drain_ns\": %" PRIu64 ", \"stuck\": %u, \"longest_handover_ns\": %" PRIu64 ", \"handover_ns\": [",
           crowd->grants, ns, crowd->recalls, crowd->longest_gap, drain_ns, crowd->waiting, crowd->longest_handover);
    for (uint32_t i = 0; i < crowd->sample_count; i++)
        printf("%s%u", i ? "," : "", crowd->samples[i]);
    puts("]}");
    fflush(stdout);
}

struct run {
    uint32_t active, first_device, devices;
    uint64_t hold_us, ms;
};

/* Neighbouring sessions are of different users and on different devices; the crowd's number shifts
 * them against each other, so that every device sees every user. */
static void run(struct crowd *crowd, const struct run *r)
{
    uint64_t start = now_ns(), end = r->ms ? start + r->ms * NS_PER_MS : UINT64_MAX;

    crowd->hold_ns = r->hold_us * 1000;
    crowd->again = true;
    crowd->grants = crowd->recalls = crowd->handovers = crowd->longest_gap = 0;
    crowd->longest_handover = 0;
    crowd->last_grant = start;
    crowd->sample_count = 0;
    crowd->step = 1;
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) /* what was given back at the end of another run */
        atomic_store(&crowd->clocks->released_at[i], 0);
    for (uint32_t i = 0; i < r->active; i++) {
        struct session *session = &crowd->sessions[crowd->next_active];
        session->device = r->first_device + (crowd->next_active + crowd->number) % r->devices;
        crowd->next_active = (crowd->next_active + 1) % crowd->count;
        start_waiting(crowd, session);
        say(session, DV_LEASE_WANT, 0, 0);
    }
    for (uint64_t now = start; now < end; now = now_ns()) {
        bool line = serve_once(crowd, end - now < GLANCE_NS ? end : now + GLANCE_NS);
        if (line && r->ms == 0) {
            char stop[16];
            read_line(stop, sizeof stop);
            break;
        }
    }
    uint64_t stopped = now_ns(), deadline = stopped + STUCK_NS;
    note_gap(crowd, stopped);
    crowd->again = false;
    crowd->hold_ns = 0;
    while ((crowd->waiting || holds_any(crowd)) && now_ns() < deadline)
        serve_once(crowd, deadline);
    print_run(crowd, stopped - start, now_ns() - stopped);
}

static int serve_crowd(char **argv)
{
    struct crowd crowd = {.count = (uint32_t)atoi(argv[1]), .number = (uint32_t)atoi(argv[2])};
    uint64_t start = now_ns();
    char line[128];

    crowd.clocks = map_clocks(argv[5]);
    open_crowd(&crowd, argv[0], (uid_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
    printf("{\"sessions\": %u, \"ns\": %" PRIu64 "}\n", crowd.count, now_ns() - start);
    fflush(stdout);
    while (read_line(line, sizeof line)) {
        struct run r;
        if (sscanf(line, "run %u %u %u %" SCNu64 " %" SCNu64, &r.active, &r.first_device, &r.devices, &r.hold_us,
                   &r.ms) != 5 ||
            r.active > crowd.count || r.devices < 1 || r.first_device + r.devices > DV_MAX_DEVICES)
            fail("not understood: %s", line);
        run(&crowd, &r);
    }
    return 0;
}

/* ---- the yardstick ---- */

static _Noreturn void answer_pings(int fd)
{
    struct dv_lease_message m;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (recv(fd, &m, sizeof m, 0) == (ssize_t)sizeof m)
        if (send(fd, &m, sizeof m, MSG_NOSIGNAL) != (ssize_t)sizeof m)
            break;
    _exit(0);
}

static int serve_pingpong(void)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION};
    char line[128];
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        fail("socketpair: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        fail("fork: %s", strerror(errno));
    if (child == 0) {
        close(pair[0]);
        answer_pings(pair[1]);
    }
    close(pair[1]);
    puts("{\"ready\": true}");
    fflush(stdout);
    while (read_line(line, sizeof line)) {
        uint64_t ms, count = 0;
        if (sscanf(line, "run %" SCNu64, &ms) != 1)
            fail("not understood: %s", line);
        uint64_t start = now_ns(), now;
        do {
            if (send(pair[0], &m, sizeof m, MSG_NOSIGNAL) != (ssize_t)sizeof m ||
                recv(pair[0], &m, sizeof m, 0) != (ssize_t)sizeof m)
                fail("pingpong: %s", strerror(errno));
            count++;
            now = now_ns();
        } while (now < start + ms * NS_PER_MS);
        printf("{\"round_trips\": %" PRIu64 ", \"ns\": %" PRIu64 "}\n", count, now - start);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";

    if (strcmp(mode, "crowd") == 0 && argc == 8)
        return serve_crowd(argv + 2);
    if (strcmp(mode, "pingpong") == 0)
        return serve_pingpong();
    fprintf(stderr, "usage: bench-sched crowd SOCKET SESSIONS NUMBER FIRST_UID UIDS CLOCKS\n"
                    "       bench-sched pingpong\n");
    return 2;
}
