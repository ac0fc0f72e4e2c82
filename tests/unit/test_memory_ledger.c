/* The memory ledger at random: divvyd itself (tests/fuzz/stage.h), and sessions of three tenants that
 * place, evict, release and die in any order, answer late, and say that they keep something long after
 * they have found so. After each step the ledger is compared with what the sessions have; no question
 * that waits in line is refused; and when all of them do what they have to, none waits any more. */
#include <assert.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/session/session.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/base/clock.h"
#include "src/wire/lease/lease.h"
#include "tests/fuzz/stage.h"
#include "tests/unit/unit.h"

#define MIB (UINT64_C(1) << 20)
#define CAPACITY (64 * MIB) /* as stage_know_devices says */
#define TENANTS 3
#define PEERS 7
#define QUEUE 256
#define SEEDS 4
#define STEPS 250000 /* of each seed */
#define STEPS_LONG 2500000
#define DRAIN_NS (30 * DV_NS_PER_S)

enum { IDLE, WAITING, GRANTED, RECALLED };

/* One message of divvyd's that the peer has not read. */
struct word {
    bool is_lease;
    union {
        struct dv_lease_message lease;
        struct dv_memory_message memory;
    };
};

static struct peer {
    int fd; /* -1: not connected */
    uint64_t session;
    struct word queue[QUEUE];
    unsigned first, count;
    uint64_t sleeps_until; /* a step */
    /* the lease */
    int state;
    uint64_t serial;
    bool work, busy, ended; /* a command waits; is with the vendor; has ended, unnoticed */
    /* memory */
    uint64_t need;                              /* of the command */
    uint64_t room, on;                          /* granted; of that, what its objects take */
    uint64_t due, name;                         /* asked to give up; by the newest question */
    uint64_t kept, kept_name;                   /* found that it keeps so much, and has not said so */
    uint64_t epoch;                             /* rises whenever what it has found before is old */
    uint64_t kept_epoch, said_epoch, said_name; /* when it found that; of the last that it said */
    uint64_t question;
    bool asked, answered, refused, in_line, ahead;
} peers[PEERS];

static struct {
    int fd;
    pid_t pid;
} tenants[TENANTS];

static struct random dice;
static uint64_t step;
static bool quiet; /* no new work */
static struct {
    uint64_t granted, evicted, kept, stale, in_line, ran, ahead, made_ahead, died;
} seen;

static uint64_t below(uint64_t n)
{
    return random_next(&dice) % n;
}

static bool one_in(unsigned n)
{
    return below(n) == 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- tenants: processes that connect ---- */

static void send_descriptor(int to, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(to, &m, 0) < 0)
        _exit(1);
}

static int receive_descriptor(int from)
{
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)];
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};

    assert_true(recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1);
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    assert_non_null(c);
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void be_tenant(int fd)
{
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(fd, &byte, 1) == 1) {
        int session = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
        if (session < 0)
            _exit(1);
        send_descriptor(fd, session);
        close(session);
    }
    _exit(0);
}

static int start(void **state)
{
    (void)state;
    stage_start();
    for (int i = 0; i < TENANTS; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        tenants[i].pid = fork();
        assert_true(tenants[i].pid >= 0);
        if (tenants[i].pid == 0) {
            for (int j = 0; j < i; j++)
                close(tenants[j].fd);
            close(ends[0]);
            be_tenant(ends[1]);
        }
        close(ends[1]);
        tenants[i].fd = ends[0];
    }
    for (int i = 0; i < PEERS; i++)
        peers[i].fd = -1;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < TENANTS; i++) {
        close(tenants[i].fd);
        waitpid(tenants[i].pid, NULL, 0);
    }
    return 0;
}

/* ---- what is said ---- */

static void say(struct peer *p, const void *message, size_t bytes)
{
    assert_int_equal(send(p->fd, message, bytes, MSG_NOSIGNAL), bytes);
}

static void say_lease(struct peer *p, enum dv_lease_type type, uint32_t flags)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .flags = flags,
                                 .serial = p->serial};
    say(p, &m, sizeof m);
}

static void say_memory(struct peer *p, enum dv_memory_type type, uint64_t id, uint64_t bytes, uint32_t flags)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = (uint16_t)type,
                                  .flags = flags,
                                  .id = id,
                                  .bytes = bytes};
    say(p, &m, sizeof m);
}

static void unplace(struct peer *p, uint64_t id, uint64_t bytes)
{
    p->room -= bytes;
    say_memory(p, DV_MEMORY_UNPLACE, id, bytes, 0);
}

/* What divvyd has said is put aside, to be heard later. */
static void collect(struct peer *p)
{
    while (p->fd >= 0) {
        union {
            struct dv_lease_message lease;
            struct dv_memory_message memory;
            char bytes[1024];
        } m;
        ssize_t bytes = recv(p->fd, &m, sizeof m, MSG_DONTWAIT);
        if (bytes <= 0)
            break;
        struct word *word = &p->queue[(p->first + p->count) % QUEUE];
        assert_true(p->count < QUEUE); /* nobody is told without end */
        word->is_lease = bytes == sizeof m.lease;
        if (word->is_lease)
            word->lease = m.lease;
        else if (bytes == sizeof m.memory)
            word->memory = m.memory;
        else
            continue;
        p->count++;
    }
}

static void turn(void)
{
    stage_run(64);
    for (int i = 0; i < PEERS; i++)
        collect(&peers[i]);
}

/* ---- the peer's life ---- */

static void join(struct peer *p)
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION_OLDEST,
                             .api = DV_API_LEASE};
    struct dv_welcome welcome;
    int tenant = tenants[(p - peers) % TENANTS].fd;

    *p = (struct peer){.fd = -1};
    assert_int_equal(write(tenant, "", 1), 1);
    p->fd = receive_descriptor(tenant);
    say(p, &hello, sizeof hello);
    ssize_t bytes = -1;
    for (int i = 0; i < 10000 && bytes < 0; i++) {
        stage_run(64);
        bytes = recv(p->fd, &welcome, sizeof welcome, MSG_DONTWAIT);
    }
    assert_int_equal(bytes, sizeof welcome);
    assert_int_equal(welcome.status, DV_WELCOME_OK);
    p->session = welcome.session;
}

static void stop_bringing(struct peer *p)
{
    p->asked = p->answered = p->refused = p->in_line = p->ahead = false;
}

static void give_back(struct peer *p)
{
    p->epoch++;
    say_lease(p, DV_LEASE_RELEASE, p->work ? DV_LEASE_AGAIN : 0);
    p->state = p->work ? WAITING : IDLE;
}

static bool holds(const struct peer *p)
{
    return p->state == GRANTED || p->state == RECALLED;
}

static void hear_lease(struct peer *p, const struct dv_lease_message *m)
{
    if (m->type == DV_LEASE_GRANT) {
        assert_int_equal(p->state, WAITING);
        p->serial = m->serial;
        p->state = GRANTED;
        stop_bringing(p);
    } else if (m->type == DV_LEASE_RECALL && m->serial == p->serial && p->state == GRANTED) {
        p->state = RECALLED;
    }
}

static void hear_memory(struct peer *p, const struct dv_memory_message *m)
{
    switch (m->type) {
    case DV_MEMORY_PLACED:
        seen.granted++;
        p->room += m->bytes;
        p->answered |= m->id == p->question;
        break;
    case DV_MEMORY_NO_ROOM:
        if (m->id != p->question) {
            seen.stale++;
            break;
        }
        p->answered = p->refused = true;
        break;
    case DV_MEMORY_EVICT:
        assert_true(m->id > p->name);
        p->due += m->bytes;
        p->name = m->id;
        break;
    default:
        break;
    }
}

static bool hear(struct peer *p)
{
    struct word *word = &p->queue[p->first];

    if (p->count == 0)
        return false;
    p->first = (p->first + 1) % QUEUE;
    p->count--;
    if (word->is_lease)
        hear_lease(p, &word->lease);
    else
        hear_memory(p, &word->memory);
    return true;
}

static bool find_work(struct peer *p)
{
    if (p->work || quiet)
        return false;
    p->work = true;
    /* three kinds of programs: small, half, and nearly all */
    p->need = (one_in(3) ? 1 + below(8) : one_in(2) ? 24 + below(12) : 48 + below(16)) * MIB;
    if (p->state == IDLE && !p->busy) {
        p->state = WAITING;
        say_lease(p, DV_LEASE_WANT, 0);
    }
    return true;
}

/* What leaves is said at once; that nothing more can, in a later step. */
static bool make_room(struct peer *p)
{
    bool bound = p->busy || (p->asked && !p->ahead && holds(p));

    if (p->due == 0 || p->kept)
        return false;
    if (!bound && p->room - p->on < p->due) { /* an object of any size */
        uint64_t wanted = p->due - (p->room - p->on);
        p->on -= smaller(p->on, quiet || one_in(2) ? wanted : (1 + below(8)) * MIB);
    }
    uint64_t back = smaller(p->room - p->on, p->due);
    p->due -= back;
    if (back) {
        seen.evicted++;
        unplace(p, p->name, back);
    }
    if (p->due && (bound || p->on == 0) && !(p->busy && !holds(p))) {
        p->kept = p->due;
        p->kept_name = p->name;
        p->kept_epoch = p->epoch;
        p->due = 0;
    }
    return true;
}

static bool say_kept(struct peer *p)
{
    if (!p->kept)
        return false;
    seen.kept++;
    say_memory(p, DV_MEMORY_KEEPS, p->kept_name, p->kept, 0);
    p->kept = 0;
    p->said_name = p->kept_name;
    p->said_epoch = p->kept_epoch;
    return true;
}

static void ask(struct peer *p, uint32_t flags)
{
    p->answered = p->refused = false;
    p->in_line = flags & DV_MEMORY_WAITS;
    p->ahead = flags & DV_MEMORY_AHEAD;
    p->asked = true;
    p->epoch++;
    uint64_t bytes = p->need - p->room;
    if (!p->in_line && !p->ahead && one_in(2)) /* the rest later: it brings in what it gets meanwhile */
        bytes = 1 + below(bytes);
    say_memory(p, DV_MEMORY_PLACE, ++p->question, bytes, flags);
}

static bool bring_in(struct peer *p)
{
    if (!p->work || p->busy || p->kept || p->state != GRANTED)
        return false;
    if (p->room >= p->need) {
        p->on = p->on > p->need ? p->on : p->need;
        if (p->asked)
            say_memory(p, DV_MEMORY_IN_PLACE, 0, 1000, 0);
        stop_bringing(p);
        p->busy = true;
        p->work = false;
        seen.ran++;
        return true;
    }
    if (p->asked && !p->answered)
        return false;
    if (p->refused && p->in_line)
        fail_msg("step %llu: refused %llu MiB although others have room to give", (unsigned long long)step,
                 (unsigned long long)((p->need - p->room) / MIB));
    seen.in_line += p->refused;
    ask(p, p->refused || p->in_line ? DV_MEMORY_WAITS : 0);
    return true;
}

static bool bring_ahead(struct peer *p)
{
    if (!p->work || p->busy || p->kept || p->state != WAITING || p->asked || p->room >= p->need)
        return false;
    seen.ahead++;
    ask(p, DV_MEMORY_AHEAD);
    return true;
}

/* On a thread of the vendor's: the main thread knows of it later. */
static bool end_command(struct peer *p)
{
    if (!p->busy || p->ended)
        return false;
    p->ended = true;
    if (holds(p) && p->work)
        give_back(p);
    return true;
}

static bool notice_end(struct peer *p)
{
    if (!p->ended || p->kept)
        return false;
    p->busy = p->ended = false;
    if (holds(p) && (p->state == RECALLED || one_in(2))) {
        give_back(p);
    } else if (p->work && p->state == IDLE) {
        p->state = WAITING;
        say_lease(p, DV_LEASE_WANT, 0);
    }
    return true;
}

static bool obey(struct peer *p)
{
    if (p->kept || p->busy || !holds(p) || (p->state == GRANTED && p->work))
        return false;
    stop_bringing(p);
    give_back(p);
    return true;
}

/* The program releases some of its objects. */
static bool free_some(struct peer *p)
{
    if (p->busy || p->kept || (p->asked && !p->ahead) || p->room == 0)
        return false;
    p->on -= p->on ? below(p->on + 1) : 0;
    uint64_t spare = p->room - p->on;
    if (spare)
        unplace(p, 0, spare);
    return true;
}

/* It does nothing for long. */
static bool pause_long(struct peer *p)
{
    const struct dvd_session *session = dvd_session_find(&stage.sessions, DVD_SESSION_ID(p->session));

    if (p->state != IDLE)
        return false;
    session->lessee.leases[0]->changed_at -= 10 * DV_NS_PER_S;
    return true;
}

static bool die(struct peer *p)
{
    seen.died++;
    close(p->fd);
    p->fd = -1;
    join(p);
    return true;
}

static bool try_to_act(struct peer *p)
{
    switch (below(16)) {
    case 0 ... 3:
        return hear(p);
    case 4:
        return find_work(p);
    case 5 ... 6:
        return make_room(p);
    case 7:
        return say_kept(p);
    case 8 ... 9:
        return bring_in(p);
    case 10:
        return end_command(p);
    case 11:
        return notice_end(p);
    case 12:
        return obey(p);
    case 13:
        return bring_ahead(p);
    case 14:
        return one_in(16) ? free_some(p) : one_in(4) && pause_long(p);
    default:
        if (one_in(16))
            say_memory(p, DV_MEMORY_MOVES, p->name, below(16) * MIB, 0);
        if (one_in(2000))
            p->sleeps_until = step + below(2000);
        return one_in(2000) && die(p);
    }
}

static void act(struct peer *p)
{
    enum { TRIES = 16 }; /* what it would do next is possible or not */

    for (int i = 0; i < TRIES && step >= p->sleeps_until && !try_to_act(p); i++)
        ;
}

/* ---- what has to hold ---- */

static uint64_t on_its_way(const struct peer *p)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < p->count; i++) {
        const struct word *word = &p->queue[(p->first + i) % QUEUE];
        if (!word->is_lease && word->memory.type == DV_MEMORY_PLACED)
            bytes += word->memory.bytes;
    }
    return bytes;
}

static uint64_t newest_eviction(const struct peer *p)
{
    uint64_t newest = p->name;

    for (unsigned i = 0; i < p->count; i++) {
        const struct word *word = &p->queue[(p->first + i) % QUEUE];
        if (!word->is_lease && word->memory.type == DV_MEMORY_EVICT)
            newest = word->memory.id;
    }
    return newest;
}

/* That it keeps what it has is believed only as long as it is so. */
static void check_kept(const struct peer *p, const struct dvd_lease *lease)
{
    if (!lease->memory.keeps)
        return;
    assert_int_equal(p->said_epoch, p->epoch);
    assert_int_equal(p->said_name, newest_eviction(p));
}

/* A session is in line only when there is really none that could be asked. */
static void check_line(const struct dvd_device *device, const struct dvd_lease *asking)
{
    const struct dvd_tenant_memory *tenant = &asking->tenant->memory;
    bool own = tenant->placed + asking->memory.place_asked > tenant->quota;
    const struct dvd_lease *lease;

    if (!asking->memory.is_queued)
        return;
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there)
        assert_true(lease == asking || lease->policy.holding || lease->memory.keeps || lease->memory.is_silent ||
                    lease->memory.placed == 0 || (own && lease->tenant != asking->tenant));
}

/* Ahead of a turn one session waits, and only as long as others are about to give something up. */
static void check_ahead(void)
{
    const struct dvd_device_memory *device = &stage.ledger.devices[0].memory;
    const struct dvd_lease *lease;
    bool coming = false;

    if (!device->ahead)
        return;
    assert_int_equal(device->askers, 0);
    DL_FOREACH2 (device->sessions, lease, memory.next_there)
        coming |= lease->memory.evicting && !lease->memory.is_silent;
    assert_true(coming);
    seen.made_ahead++;
}

static void check(void)
{
    const struct dvd_device *device = &stage.ledger.devices[0];
    const struct dvd_lease *lease;
    uint64_t placed = 0;
    unsigned askers = 0, in_line = 0, holders = 0;

    for (int i = 0; i < PEERS; i++) {
        const struct peer *p = &peers[i];
        const struct dvd_session *session = dvd_session_find(&stage.sessions, DVD_SESSION_ID(p->session));
        assert_non_null(session);
        lease = session->lessee.leases[0];
        assert_int_equal(lease->memory.placed, p->room + on_its_way(p));
        assert_true(lease->memory.evicting <= lease->memory.placed);
        assert_true(p->on <= p->room);
        check_kept(p, lease);
        const struct dvd_tenant_memory *tenant = &lease->tenant->memory;
        uint64_t of_tenant = 0;
        const struct dvd_lease *member;
        DL_FOREACH2 (tenant->members, member, memory.next)
            of_tenant += member->memory.placed;
        assert_int_equal(tenant->placed, of_tenant);
        assert_true(tenant->placed <= tenant->quota);
    }
    DL_FOREACH2 (device->memory.sessions, lease, memory.next_there) {
        placed += lease->memory.placed;
        askers += lease->memory.place_asked != 0;
        in_line += lease->memory.is_queued;
        check_line(device, lease);
        holders += lease->policy.holding;
        assert_true(!lease->memory.place_asked || lease->policy.holding);
    }
    assert_int_equal(device->memory.placed, placed);
    assert_true(placed <= CAPACITY);
    assert_int_equal(device->memory.askers, askers);
    assert_int_equal(device->memory.queued, in_line);
    assert_true(holders <= device->policy.slots);
    check_ahead();
}

static bool is_done(const struct peer *p)
{
    return p->state == IDLE && !p->work && !p->busy && p->due == 0 && p->kept == 0 && p->count == 0;
}

/* All of them do at once what they have to: then none waits for ever. */
static void drain(void)
{
    dv_ns until = dv_now() + DRAIN_NS;
    bool done = false;

    quiet = true;
    while (!done && dv_now() < until) {
        done = true;
        for (int i = 0; i < PEERS; i++) {
            struct peer *p = &peers[i];
            p->sleeps_until = 0;
            while (p->count)
                hear(p);
            say_kept(p);
            end_command(p);
            notice_end(p);
            make_room(p);
            say_kept(p);
            bring_in(p);
            obey(p);
            done &= is_done(p);
        }
        turn();
        check();
        for (int i = 0; i < PEERS; i++)
            done &= peers[i].count == 0;
    }
    for (int i = 0; i < PEERS && !done; i++)
        print_message("peer %d: state %d work %d busy %d need %llu room %llu due %llu asked %d "
                      "answered %d in_line %d\n",
                      i, peers[i].state, peers[i].work, peers[i].busy, (unsigned long long)(peers[i].need / MIB),
                      (unsigned long long)(peers[i].room / MIB), (unsigned long long)(peers[i].due / MIB),
                      peers[i].asked, peers[i].answered, peers[i].in_line);
    assert_true(done);
    const struct dvd_lease *lease;
    DL_FOREACH2 (stage.ledger.devices[0].memory.sessions, lease, memory.next_there) {
        assert_int_equal(lease->memory.evicting, 0);
        assert_int_equal(lease->memory.place_asked, 0);
    }
    quiet = false;
}

static void run_seed(uint64_t seed, uint64_t steps, uint32_t slots, uint32_t copy_engines)
{
    enum { DRAIN_EVERY = 25000 };

    dice.state = seed;
    print_message("seed %llu, %llu steps, %u slots, %u copy engines\n", (unsigned long long)seed,
                  (unsigned long long)steps, slots, copy_engines);
    stage.devices.reports[0].copy_engines = copy_engines;
    dvd_arbiter_devices_changed(&stage);
    for (int i = 0; i < PEERS; i++)
        join(&peers[i]);
    struct dv_policy *policy = &stage.ledger.devices[0].policy;
    policy->fixed_slice_ns = 50 * DV_NS_PER_US; /* turns end in the middle of everything */
    policy->slots = policy->free_slots = slots;
    for (step = 0; step < steps; step++) {
        act(&peers[below(PEERS)]);
        turn();
        check();
        if (step % DRAIN_EVERY == DRAIN_EVERY - 1)
            drain();
    }
    drain();
    for (int i = 0; i < PEERS; i++) {
        close(peers[i].fd);
        peers[i].fd = -1;
    }
    stage_run(1000);
    assert_null(stage.sessions.all);
    assert_int_equal(stage.ledger.devices[0].memory.placed, 0);
}

static void random_steps(void **state)
{
    uint64_t seed = random_seed();
    const char *text = getenv("DIVVY_TEST_STEPS");
    uint64_t steps = text ? strtoull(text, NULL, 0) : getenv("DIVVY_LONG") ? STEPS_LONG : STEPS;

    (void)state;
    for (int i = 0; i < SEEDS; i++)
        run_seed(seed + i, steps, 1 + i % 2, i / 2);
    print_message("%llu grants of room, %llu evictions, %llu kept, %llu late answers, %llu questions in "
                  "line, %llu ahead, %llu steps with evictions for one ahead, %llu commands, %llu deaths\n",
                  (unsigned long long)seen.granted, (unsigned long long)seen.evicted, (unsigned long long)seen.kept,
                  (unsigned long long)seen.stale, (unsigned long long)seen.in_line, (unsigned long long)seen.ahead,
                  (unsigned long long)seen.made_ahead, (unsigned long long)seen.ran, (unsigned long long)seen.died);
    /* otherwise it tries less than it says */
    assert_true(seen.granted && seen.evicted && seen.kept && seen.stale && seen.in_line && seen.ahead &&
                seen.made_ahead && seen.ran > steps / 1000 && (seen.died || steps < 10000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps)};
    return cmocka_run_group_tests(tests, start, stop);
}
