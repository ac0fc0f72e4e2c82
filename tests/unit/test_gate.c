/* A leased device in the worker: which thread submits after a grant, and which one gives back. The test
 * is divvyd and the vendor; the worker's main thread runs in dvk_runtime_take_long. */
#include <unistd.h>

#include "src/worker/core/runtime.h"
#include "tests/unit/lease_peer.h"

#define COMMANDS 12
#define ROUNDS 9                     /* the main thread may be late to fall asleep in some of them */
#define BRIDGE_NS (1 * DV_NS_PER_MS) /* a longer gap is a pause */

struct command {
    struct dvk_node node; /* first */
    int number;
    bool quick;
};

static struct dvk_worker_start start;
static struct dvk_runtime runtime;
static struct dvk_graph_queue queue;
static struct command *commands[COMMANDS]; /* each until it is reported */
static _Atomic pid_t submitted_by[COMMANDS];
static int divvyd;
static uint64_t serial;
static atomic_int held_up_from = COMMANDS; /* commands from this number on are not ready */

/* ---- an API that does nothing ---- */

static int32_t submit(struct dvk_node *node)
{
    atomic_store(&submitted_by[((struct command *)node)->number], gettid());
    return 0;
}

static uint64_t cost(const struct dvk_node *node)
{
    (void)node;
    return DV_NS_PER_US;
}

static bool admit(struct dvk_gate *gate, struct dvk_node *node)
{
    bool ready = ((struct command *)node)->number < atomic_load(&held_up_from);

    dvk_gate_hold_up(gate, !ready);
    if (!ready)
        return false;
    if (!dvk_gate_admit(&runtime, gate, cost(node), ((struct command *)node)->quick))
        return false;
    dvk_gate_passed(&runtime, gate);
    return true;
}

static void drained(struct dvk_gate *gate)
{
    dvk_gate_drained(&runtime, gate);
}

static void closed(struct dvk_gate *gate)
{
    dvk_gate_closed(&runtime, gate);
}

static void measured(struct dvk_node *node, uint64_t began_ns, uint64_t took_ns)
{
    (void)node;
    (void)began_ns;
    (void)took_ns;
}

static void all_measured(struct dvk_gate *gate)
{
    (void)gate;
}

static void nothing(struct dvk_node *node)
{
    (void)node;
}

static void destroy(struct dvk_node *node)
{
    free(node);
}

static const struct dvk_graph_backend backend = {.submit = submit,
                                                 .cost = cost,
                                                 .admit = admit,
                                                 .drained = drained,
                                                 .closed = closed,
                                                 .measured = measured,
                                                 .all_measured = all_measured,
                                                 .before_visible = nothing,
                                                 .finished = nothing,
                                                 .destroy = destroy};

static void before_sleep(struct dvk_runtime *r)
{
    (void)r;
}

static bool work(struct dvk_runtime *r)
{
    (void)r;
    return false;
}

static const struct dvk_runtime_api api = {.backend = &backend, .before_sleep = before_sleep, .work = work};

static int set_up(void **state)
{
    int ends[2];
    uint8_t *shm = sparse_memory(DV_SHM_ARENA_OFFSET);

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    divvyd = ends[0];
    start = (struct dvk_worker_start){.control_fd = ends[1], .device_count = 1, .devices = {{.leased = 1}}};
    runtime = (struct dvk_runtime){.start = &start,
                                   .shm = shm,
                                   .header = (struct dv_shm_header *)shm,
                                   .ops = &api,
                                   .upcall_lock = PTHREAD_MUTEX_INITIALIZER,
                                   .submitting = PTHREAD_MUTEX_INITIALIZER};
    pthread_mutex_lock(&runtime.submitting);
    assert_int_equal(dvk_graph_init(&runtime.graph, &backend, &runtime, shm), 0);
    assert_int_equal(dvk_graph_queue_init(&runtime.graph, &queue, 0, false), 0);
    queue.gate = &runtime.gates[0];
    return dvk_gates_start(&runtime);
}

static int tear_down(void **state)
{
    (void)state;
    dv_lease_destroy(runtime.lease);
    close(divvyd);
    dvk_graph_queue_fini(&runtime.graph, &queue);
    dvk_graph_fini(&runtime.graph);
    pthread_mutex_unlock(&runtime.submitting);
    return munmap(runtime.shm, DV_SHM_ARENA_OFFSET);
}

/* ---- divvyd and the vendor, on a thread of their own ---- */

static void wait_a_moment(int *waited_ms)
{
    assert_true((*waited_ms)++ < PEER_LIMIT_MS);
    usleep(1000);
}

static void await_sleep(void)
{
    int waited_ms = 0;

    do
        wait_a_moment(&waited_ms);
    while (!atomic_load(&runtime.graph.asleep));
}

static void await_submission(int number)
{
    int waited_ms = 0;

    while (!atomic_load(&submitted_by[number]))
        wait_a_moment(&waited_ms);
}

static void grant_when_asked(void)
{
    assert_int_equal(peer_hear(divvyd), DV_LEASE_WANT);
    await_sleep();
    peer_grant(divvyd, ++serial, DV_LEASE_CONTENDED, BRIDGE_NS);
}

/* ---- tests ---- */

/* On the worker's main thread. */
static void enqueue(int count, bool quick)
{
    for (int i = 0; i < count; i++) {
        atomic_store(&submitted_by[i], 0);
        commands[i] = calloc(1, sizeof *commands[i]);
        commands[i]->number = i;
        commands[i]->quick = quick;
        commands[i]->node.queue = &queue;
        commands[i]->node.stream = &queue.main;
        commands[i]->node.runs_on = DV_RUNS_ON_DEVICE;
    }
    for (int i = 0; i < count; i++)
        dvk_graph_add(&runtime.graph, &commands[i]->node, NULL, 0);
}

/* The main thread until divvyd and the vendor have played their parts, and all is reaped. */
static void play(void (*parts)(void *argument), void *argument)
{
    dvk_runtime_take_long(&runtime, parts, argument);
    dvk_graph_reap(&runtime.graph);
}

struct submitters {
    pid_t main;
    int count;       /* of commands */
    int first, last; /* how often the lease's thread submitted the first, and the last command */
};

static void run_commands(void *argument)
{
    struct submitters *by = argument;

    grant_when_asked();
    for (int i = 0; i < by->count; i++) {
        await_submission(i);
        dvk_graph_report(&commands[i]->node, 0);
    }
    assert_int_equal(peer_hear(divvyd), DV_LEASE_RELEASE);
    by->first += atomic_load(&submitted_by[0]) != by->main;
    by->last += atomic_load(&submitted_by[by->count - 1]) != by->main;
}

static struct submitters submitters_of(int count, bool quick)
{
    struct submitters by = {.main = gettid(), .count = count};

    for (int i = 0; i < ROUNDS; i++) {
        enqueue(count, quick);
        play(run_commands, &by);
    }
    return by;
}

static void after_a_grant_the_lease_thread_submits(void **state)
{
    struct submitters by = submitters_of(1, true);

    assert_in_range(by.first, ROUNDS / 2 + 1, ROUNDS);
}

static void but_it_leaves_many_commands_to_the_main_thread(void **state)
{
    struct submitters by = submitters_of(COMMANDS, true);

    assert_in_range(by.first, ROUNDS / 2 + 1, ROUNDS);
    assert_int_equal(by.last, 0);
}

static void and_what_must_be_compiled(void **state)
{
    struct submitters by = submitters_of(1, false);

    assert_int_equal(by.first, 0);
}

static void run_and_pause(void *argument)
{
    int *given_back = argument;

    grant_when_asked();
    await_submission(0);
    for (int ms = 0; ms < 100 && !atomic_load(&runtime.gates[0].flight.closing); ms++)
        usleep(1000);
    dvk_graph_report(&commands[0]->node, 0);
    *given_back += !dv_lease_held(runtime.lease, 0); /* by this thread, before any other woke */
    assert_int_equal(peer_hear(divvyd), DV_LEASE_RELEASE);
    usleep(2 * BRIDGE_NS / 1000);
}

static void the_vendors_thread_gives_back_where_the_program_pauses(void **state)
{
    int given_back = 0;

    for (int i = 0; i < 2 * ROUNDS; i++) {
        if (i == ROUNDS)
            given_back = 0;
        enqueue(1, true);
        play(run_and_pause, &given_back);
    }
    assert_in_range(given_back, ROUNDS / 2 + 1, ROUNDS);
}

static void run_one(void *number)
{
    int i = *(int *)number;

    grant_when_asked();
    await_submission(i);
    dvk_graph_report(&commands[i]->node, 0);
    assert_int_equal(peer_hear(divvyd), DV_LEASE_RELEASE);
}

/* Others have the device while a command that waits cannot run; it asks for it again. */
static void a_command_that_is_held_up_keeps_no_device(void **state)
{
    int first = 0, second = 1;

    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&held_up_from, second);
        enqueue(2, true);
        play(run_one, &first);
        assert_int_equal(atomic_load(&submitted_by[second]), 0);
        atomic_store(&held_up_from, COMMANDS);
        dvk_graph_open_gate(&runtime.graph, &runtime.gates[0]);
        play(run_one, &second);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(after_a_grant_the_lease_thread_submits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(but_it_leaves_many_commands_to_the_main_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(and_what_must_be_compiled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_vendors_thread_gives_back_where_the_program_pauses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_command_that_is_held_up_keeps_no_device, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
