/* Commands that go to the vendor in parts, through a gate that the test opens. */
#include "unit.h"

#include "src/worker/core/graph.h"

#define MOST 16

struct command {
    struct dvk_node node; /* first */
    int name;
    int parts; /* that are still to be cut off it */
};

static struct dvk_graph graph;
static struct dvk_graph_queue queue;
static struct dvk_gate gate;
static int allowed;                     /* commands and parts that the gate lets through */
static struct command *submitted[MOST]; /* in order; the parts of a command have its name */
static int submissions, refused_at, alive;
static int32_t failures[MOST];
static int failure_count;

static int32_t submit(struct dvk_node *node)
{
    if (submissions == refused_at)
        return -5;
    submitted[submissions++] = (struct command *)node;
    return 0;
}

static struct command *new_command(int name, int parts)
{
    struct command *c = calloc(1, sizeof *c);

    assert_non_null(c);
    c->name = name;
    c->parts = parts;
    alive++;
    return c;
}

static struct dvk_node *cut(struct dvk_node *node)
{
    struct command *c = (struct command *)node;

    return c->parts > 0 ? (c->parts--, &new_command(c->name, 0)->node) : NULL;
}

static bool admit(struct dvk_gate *g, struct dvk_node *node)
{
    (void)g;
    (void)node;
    return allowed > 0 && allowed--;
}

static uint64_t cost(const struct dvk_node *node)
{
    (void)node;
    return 1000;
}

static void failed(struct dvk_node *node, int32_t status)
{
    (void)node;
    failures[failure_count++] = status;
}

static void measured(struct dvk_node *node, uint64_t began_ns, uint64_t took_ns)
{
    (void)node;
    (void)began_ns;
    (void)took_ns;
}

static void of_gate(struct dvk_gate *g)
{
    (void)g;
}

static void of_node(struct dvk_node *node)
{
    (void)node;
}

static bool more_coming(const struct dvk_node *node)
{
    (void)node;
    return false;
}

static void destroy(struct dvk_node *node)
{
    alive--;
    free(node);
}

static const struct dvk_graph_backend backend = {.submit = submit,
                                                 .cut = cut,
                                                 .cost = cost,
                                                 .admit = admit,
                                                 .drained = of_gate,
                                                 .closed = of_gate,
                                                 .measured = measured,
                                                 .all_measured = of_gate,
                                                 .before_visible = of_node,
                                                 .failed = failed,
                                                 .finished = of_node,
                                                 .more_coming = more_coming,
                                                 .destroy = destroy};

static int set_up(void **state)
{
    uint8_t *shm = sparse_memory(DV_SHM_ARENA_OFFSET);

    *state = shm;
    allowed = submissions = failure_count = alive = 0;
    refused_at = -1;
    dvk_graph_init(&graph, &backend, NULL, shm);
    dvk_graph_queue_init(&graph, &queue, 0, true);
    dvk_gate_init(&gate, 0);
    queue.gate = &gate;
    return 0;
}

static int tear_down(void **state)
{
    assert_int_equal(alive, 0);
    assert_int_equal(queue.detached, 0);
    assert_int_equal(gate.flight.count, 0);
    dvk_graph_queue_fini(&graph, &queue);
    dvk_graph_fini(&graph);
    return munmap(*state, DV_SHM_ARENA_OFFSET);
}

static struct command *enqueue(int name, int parts, uint32_t event)
{
    struct command *c = new_command(name, parts);

    c->node.queue = &queue;
    c->node.stream = &queue.main;
    c->node.number = queue.last_number + 1;
    c->node.event = event;
    c->node.runs_on = DV_RUNS_ON_DEVICE;
    dvk_graph_add(&graph, &c->node, NULL, 0);
    return c;
}

static void open_for(int count)
{
    allowed = count;
    dvk_graph_open_gate(&graph, &gate);
    allowed = 0;
}

static void end(int index, int32_t status)
{
    dvk_graph_report(&submitted[index]->node, status);
    dvk_graph_reap(&graph);
}

static const struct dv_shm_event *event(uint32_t slot)
{
    return (const struct dv_shm_event *)((uint8_t *)graph.shm + DV_SHM_EVENT_OFFSET) + slot - 1;
}

static uint64_t completed(void)
{
    return atomic_load(&queue.slot->completed);
}

/* ---- tests ---- */

static void only_the_last_part_is_the_command(void **state)
{
    (void)state;
    ((struct dv_shm_event *)event(1))->status = 3;
    enqueue(1, 2, 1);
    enqueue(2, 0, 0);
    assert_int_equal(submissions, 0);
    open_for(2);
    assert_int_equal(submissions, 2);
    end(0, 0);
    end(1, 0);
    assert_int_equal(event(1)->status, 3);
    assert_int_equal(completed(), 0);
    open_for(10);
    assert_int_equal(submissions, 4);
    assert_int_equal(submitted[2]->name, 1);
    assert_int_equal(submitted[3]->name, 2);
    end(2, 0);
    assert_int_equal(event(1)->status, 0);
    assert_int_equal(completed(), 1);
    end(3, 0);
    assert_int_equal(completed(), 2);
}

/* Without a closed gate, all parts go at once, and those of the next command behind them. */
static void an_open_gate_lets_all_parts_through(void **state)
{
    (void)state;
    allowed = 100;
    enqueue(1, 3, 0);
    enqueue(2, 3, 0);
    assert_int_equal(submissions, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(submitted[i]->name, 1 + i / 4);
        assert_true(submitted[i]->node.reports);
    }
    for (int i = 0; i < 8; i++)
        end(i, 0);
    assert_int_equal(completed(), 2);
}

static void the_error_of_a_part_is_the_command_s(void **state)
{
    (void)state;
    enqueue(1, 3, 1);
    enqueue(2, 0, 0);
    open_for(2);
    end(0, -14);
    open_for(10); /* the other part still runs */
    assert_int_equal(submissions, 2);
    assert_int_equal(completed(), 0);
    end(1, 0);
    open_for(10);
    assert_int_equal(event(1)->status, -14);
    assert_int_equal(failure_count, 1);
    assert_int_equal(failures[0], -14);
    assert_int_equal(submissions, 3);
    assert_int_equal(submitted[2]->name, 2);
    end(2, 0);
    assert_int_equal(completed(), 2);
}

/* The last part is on the device when an earlier one turns out to have failed. */
static void a_late_error_counts_too(void **state)
{
    (void)state;
    enqueue(1, 1, 1);
    open_for(2);
    assert_int_equal(submissions, 2);
    dvk_graph_report(&submitted[0]->node, -36);
    dvk_graph_report(&submitted[1]->node, 0);
    assert_int_equal(event(1)->status, -36);
    dvk_graph_reap(&graph);
    assert_int_equal(failures[0], -36);
}

static void a_part_that_the_vendor_refuses_fails_the_command(void **state)
{
    (void)state;
    refused_at = 1;
    enqueue(1, 3, 1);
    open_for(10);
    assert_int_equal(submissions, 1);
    assert_int_equal(completed(), 0);
    end(0, 0);
    open_for(10);
    assert_int_equal(event(1)->status, -5);
    assert_int_equal(completed(), 1);
}

int main(void)
{
#define PARTS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PARTS_TEST(only_the_last_part_is_the_command),
        PARTS_TEST(an_open_gate_lets_all_parts_through),
        PARTS_TEST(the_error_of_a_part_is_the_command_s),
        PARTS_TEST(a_late_error_counts_too),
        PARTS_TEST(a_part_that_the_vendor_refuses_fails_the_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
