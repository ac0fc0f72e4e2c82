/* The command graph against its rules: thousands of random graphs, executed by the fake backend in
 * a random order that the rules allow, alone and with the vendor on threads of its own. */
#include "unit.h"

#include <time.h>

#include "graph_fake.h"
#include "src/base/futex.h"

#define QUEUES 4
#define EVENTS 24 /* few, so that slots are used again */
#define COMMANDS_MOST 96
#define NEEDS_MOST (2 * COMMANDS_MOST)

/* What the rules say of one command, worked out without the graph. */
struct plan {
    int queue; /* -1: user event */
    enum dvk_runs_on runs_on;
    bool lane, by_helper, everything, barrier;
    uint64_t number;
    uint32_t event;
    int32_t host_status;
    uint32_t needs[NEEDS_MOST]; /* commands that must be complete before it runs */
    uint32_t need_count;
    uint32_t listed[8]; /* those of them in its wait list */
    uint32_t listed_count;
};

struct world {
    struct fake fake;
    struct random random;
    struct dvk_graph_queue queues[QUEUES];
    uint64_t numbers[QUEUES];
    uint32_t barrier[QUEUES]; /* id of the last barrier, or 0 */
    struct plan plans[COMMANDS_MOST * 3];
    uint32_t newest[EVENTS + 1];   /* id of the last command with that event */
    uint32_t hosts[COMMANDS_MOST]; /* turned host commands, in the order of their turns */
    _Atomic uint32_t host_count;
    uint32_t users[COMMANDS_MOST];
    uint32_t user_count;
    char wrong[160]; /* the first rule that was broken, in words */
};

static void complain(struct world *w, const char *what, uint32_t id, uint32_t other)
{
    if (!w->wrong[0])
        snprintf(w->wrong, sizeof w->wrong, "command %u %s %u", id, what, other);
}

static bool is_done(struct world *w, uint32_t id)
{
    return w->fake.traces[id].executed || atomic_load(&w->fake.traces[id].visible);
}

static bool is_listed(const struct plan *plan, uint32_t id)
{
    for (uint32_t i = 0; i < plan->listed_count; i++)
        if (plan->listed[i] == id)
            return true;
    return false;
}

/* Whether the vendor, or the client's helper, will keep the order by itself. */
static bool kept_by_others(struct world *w, uint32_t id, uint32_t need)
{
    const struct plan *a = &w->plans[id], *b = &w->plans[need];
    const struct fake_trace *ta = &w->fake.traces[id], *tb = &w->fake.traces[need];

    if (a->runs_on == DV_RUNS_ON_HOST)
        return a->by_helper && b->by_helper && b->runs_on == DV_RUNS_ON_HOST && tb->turned && !is_listed(a, need);
    if (b->runs_on != DV_RUNS_ON_DEVICE || !tb->submitted)
        return false;
    if (ta->stream == tb->stream && !is_listed(a, need))
        return true;
    for (uint32_t i = 0; i < ta->wait_count; i++)
        if (ta->waits[i] == need)
            return true;
    return false;
}

static void check_submission(struct fake *fake, uint32_t id)
{
    struct world *w = fake->user;
    const struct plan *plan = &w->plans[id];

    if (fake->traces[id].is_fence)
        return;
    for (uint32_t i = 0; i < plan->need_count; i++)
        if (!is_done(w, plan->needs[i]) && !kept_by_others(w, id, plan->needs[i]))
            complain(w, "was handed over before", id, plan->needs[i]);
    if (plan->runs_on == DV_RUNS_ON_HOST)
        w->hosts[w->host_count++] = id;
    if (plan->runs_on == DV_RUNS_NOWHERE)
        complain(w, "was handed over though it runs nowhere", id, 0);
}

static void check_execution(struct fake *fake, uint32_t id)
{
    struct world *w = fake->user;
    const struct plan *plan = &w->plans[id];

    if (fake->traces[id].is_fence)
        return;
    for (uint32_t i = 0; i < plan->need_count; i++)
        if (!is_done(w, plan->needs[i]))
            complain(w, "ran before", id, plan->needs[i]);
}

static void check_visibility(struct fake *fake, uint32_t id)
{
    struct world *w = fake->user;
    const struct plan *plan = &w->plans[id];

    if (fake->traces[id].is_fence || plan->queue < 0)
        return;
    bool in_order = w->queues[plan->queue].in_order && !plan->lane;
    bool nowhere = plan->runs_on == DV_RUNS_NOWHERE && fake->traces[id].final >= 0;
    for (uint32_t i = 0; (in_order || nowhere) && i < plan->need_count; i++) {
        uint32_t earlier = plan->needs[i];
        bool in_line = w->plans[earlier].queue == plan->queue && !w->plans[earlier].lane;
        if (!is_done(w, earlier) && (nowhere || in_line))
            complain(w, "was told complete before", id, earlier);
    }
}

static void world_init(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random.state = seed;
    fake_init(&w->fake, COMMANDS_MOST * 3 - 1);
    w->fake.user = w;
    w->fake.on_submit = check_submission;
    w->fake.on_execute = check_execution;
    w->fake.on_visible = check_visibility;
    for (uint32_t i = 0; i < QUEUES; i++)
        assert_int_equal(dvk_graph_queue_init(&w->fake.graph, &w->queues[i], i, i % 2 == 0), 0);
}

static void need(struct plan *plan, uint32_t id)
{
    assert_true(plan->need_count < NEEDS_MOST);
    plan->needs[plan->need_count++] = id;
}

static uint32_t pick_event(struct world *w)
{
    for (int tries = 0; tries < 4; tries++) {
        uint32_t event = 1 + (uint32_t)random_below(&w->random, EVENTS);
        if (!w->newest[event] || atomic_load(&fake_event_slot(&w->fake, event)->status) <= 0)
            return event;
    }
    return 0;
}

static void take_event(struct world *w, uint32_t event, uint32_t id)
{
    w->plans[id].event = event;
    w->newest[event] = id;
    atomic_store(&fake_event_slot(&w->fake, event)->status, 3);
}

static void add_user_event(struct world *w)
{
    uint32_t event = pick_event(w);
    if (!event)
        return;
    struct fake_command *c = fake_command(&w->fake, NULL, DV_RUNS_NOWHERE);
    c->node.event = event;
    w->plans[c->id] = (struct plan){.queue = -1, .runs_on = DV_RUNS_NOWHERE};
    take_event(w, event, c->id);
    w->users[w->user_count++] = c->id;
    assert_int_equal(dvk_graph_add_user_event(&w->fake.graph, &c->node), 0);
}

static void add_command(struct world *w)
{
    struct random *r = &w->random;
    int queue = (int)random_below(r, QUEUES);
    bool in_order = w->queues[queue].in_order;
    struct fake_command *c = fake_command(&w->fake, &w->queues[queue], DV_RUNS_ON_DEVICE);
    uint32_t id = c->id, waits[8], wait_count = 0;
    struct plan *plan = &w->plans[id];
    struct fake_trace *trace = &w->fake.traces[id];

    *plan = (struct plan){.queue = queue};
    uint64_t kind = random_below(r, 100);
    if (kind < 15) {
        plan->runs_on = DV_RUNS_ON_HOST;
        plan->by_helper = random_chance(r, 60);
        plan->host_status = random_chance(r, 15) ? -61 : 0;
    } else if (kind < 30) { /* marker or barrier */
        plan->runs_on = in_order && random_chance(r, 70) ? DV_RUNS_ON_DEVICE : DV_RUNS_NOWHERE;
        plan->everything = random_chance(r, 60);
        plan->barrier = random_chance(r, 50);
    } else if (kind < 38) {
        plan->lane = true;
    }
    if (plan->runs_on == DV_RUNS_ON_DEVICE) {
        trace->plan = random_chance(r, 10) ? -62 : 0;
        trace->refusal = random_chance(r, 6) ? -63 : 0;
    }
    uint64_t wanted = random_chance(r, 45) ? 1 + random_below(r, 5) : 0;
    for (uint64_t i = 0; i < wanted; i++) {
        uint32_t event = 1 + (uint32_t)random_below(r, EVENTS);
        uint32_t other = w->newest[event];
        if (!other)
            continue;
        waits[wait_count++] = event;
        plan->listed[plan->listed_count++] = other;
        need(plan, other);
    }
    if (!plan->lane) {
        bool all = in_order || plan->everything;
        for (uint32_t other = 1; other < id; other++) {
            const struct plan *earlier = &w->plans[other];
            if (w->fake.traces[other].is_fence || earlier->queue != queue || earlier->lane)
                continue;
            if (all || other == w->barrier[queue])
                need(plan, other);
        }
        if (plan->barrier && !in_order)
            w->barrier[queue] = id;
        plan->number = ++w->numbers[queue];
    }
    if (plan->lane || random_chance(r, 60)) {
        uint32_t event = pick_event(w);
        if (event)
            take_event(w, event, id);
    }
    c->node.runs_on = plan->runs_on;
    c->node.by_helper = plan->by_helper;
    c->node.everything = plan->everything;
    c->node.barrier = plan->barrier;
    c->node.detached = plan->lane;
    c->node.stream = plan->lane ? &w->queues[queue].lane : &w->queues[queue].main;
    c->node.number = plan->number;
    c->node.event = plan->event;
    w->fake.more = random_chance(r, 70);
    dvk_graph_add(&w->fake.graph, &c->node, waits, wait_count);
}

/* The client ends a host command: its helper in the order of turns, other threads as they like. */
static bool finish_a_host_command(struct world *w)
{
    pthread_mutex_lock(&w->fake.lock);
    if (w->host_count == 0) {
        pthread_mutex_unlock(&w->fake.lock);
        return false;
    }
    uint32_t at = (uint32_t)random_below(&w->random, w->host_count);
    if (w->plans[w->hosts[at]].by_helper)
        for (at = 0; !w->plans[w->hosts[at]].by_helper; at++)
            ;
    uint32_t id = w->hosts[at];
    memmove(w->hosts + at, w->hosts + at + 1, (w->host_count - at - 1) * sizeof *w->hosts);
    w->host_count--;
    pthread_mutex_unlock(&w->fake.lock);
    const struct plan *plan = &w->plans[id];
    struct dvk_node *node = dvk_graph_find(&w->queues[plan->queue], plan->number);
    if (!node || !dvk_graph_is_ready(node))
        complain(w, "had its turn but is not to be found as", id, (uint32_t)plan->number);
    else
        dvk_graph_finish(&w->fake.graph, node, plan->host_status);
    return true;
}

static bool set_a_user_event(struct world *w)
{
    if (w->user_count == 0)
        return false;
    uint32_t at = (uint32_t)random_below(&w->random, w->user_count);
    uint32_t id = w->users[at];
    w->users[at] = w->users[--w->user_count];
    dvk_graph_finish(&w->fake.graph, dvk_graph_event_node(&w->fake.graph, w->plans[id].event),
                     random_chance(&w->random, 25) ? -64 : 0);
    return true;
}

/* As before the main thread sleeps, with a vendor that sometimes cannot. */
static void fence(struct world *w)
{
    w->fake.fence_refusal = random_chance(&w->random, 5) ? -65 : 0;
    w->fake.fence_plan = random_chance(&w->random, 5) ? -66 : 0;
    w->fake.more = false; /* it sleeps only when nothing is left to read */
    dvk_graph_fence(&w->fake.graph);
}

/* ---- the end ---- */

static bool may_end_with(struct world *w, uint32_t id)
{
    const struct plan *plan = &w->plans[id];
    const struct fake_trace *trace = &w->fake.traces[id];
    bool dependency_failed = false;

    for (uint32_t i = 0; i < plan->listed_count; i++)
        dependency_failed |= w->fake.traces[plan->listed[i]].final < 0;
    if (plan->queue < 0)
        return trace->final == 0 || trace->final == -64;
    if (trace->refusal && trace->final == trace->refusal)
        return true; /* it may have been refused before a dependency failed in the vendor */
    if (trace->submitted && !trace->reports)
        return trace->final == 0 || trace->final == -65; /* nobody can see how it ended */
    if (dependency_failed)
        return trace->final == DV_STATUS_DEPENDENCY_FAILED;
    if (trace->refusal)
        return false;
    if (plan->runs_on == DV_RUNS_ON_HOST)
        return trace->final == plan->host_status;
    if (plan->runs_on == DV_RUNS_NOWHERE)
        return trace->final == 0;
    return trace->final == trace->plan;
}

static void check_counters(struct world *w)
{
    for (uint32_t id = 1; id <= w->fake.count; id++) {
        const struct plan *plan = &w->plans[id];
        if (w->fake.traces[id].is_fence || plan->queue < 0 || plan->lane || is_done(w, id))
            continue;
        if (atomic_load(&w->queues[plan->queue].slot->completed) >= plan->number)
            complain(w, "is counted as complete in queue", id, (uint32_t)plan->queue);
    }
}

static void describe(struct world *w)
{
    for (uint32_t id = 1; id <= w->fake.count; id++) {
        const struct plan *plan = &w->plans[id];
        const struct fake_trace *t = &w->fake.traces[id];
        print_message("%u: queue %d%s number %llu place %d%s%s%s%s event %u; plan %d refusal %d host "
                      "%d; submitted %u executed %u turned %u visible %u %s; ended %d; waits for",
                      id, plan->queue, plan->lane ? " lane" : "", (unsigned long long)plan->number, plan->runs_on,
                      plan->by_helper ? " helper" : "", plan->everything ? " everything" : "",
                      plan->barrier ? " barrier" : "", t->is_fence ? " fence" : "", plan->event, t->plan, t->refusal,
                      plan->host_status, t->submitted, t->executed, t->turned, atomic_load(&t->visible),
                      t->reports ? "reports" : "", t->final);
        for (uint32_t i = 0; i < plan->listed_count; i++)
            print_message(" %u", plan->listed[i]);
        print_message("\n");
    }
}

static void world_fini(struct world *w, uint64_t seed)
{
    for (uint32_t id = 1; id <= w->fake.count; id++) {
        const struct fake_trace *trace = &w->fake.traces[id];
        if (trace->is_fence)
            continue;
        if (!may_end_with(w, id))
            complain(w, "ended with the wrong status", id, (uint32_t)-trace->final);
        if (trace->failures != (trace->final < 0))
            complain(w, "had its failure told so many times:", id, trace->failures);
        if (trace->final < 0 && trace->failure != trace->final)
            complain(w, "had another failure told", id, (uint32_t)-trace->failure);
    }
    for (uint32_t i = 0; i < QUEUES; i++)
        if (atomic_load(&w->queues[i].slot->completed) != w->numbers[i])
            complain(w, "is the last of a queue that ended at", (uint32_t)w->numbers[i],
                     (uint32_t)atomic_load(&w->queues[i].slot->completed));
    for (uint32_t event = 1; event <= EVENTS; event++)
        if (w->newest[event] &&
            atomic_load(&fake_event_slot(&w->fake, event)->status) != w->fake.traces[w->newest[event]].final)
            complain(w, "has another status in its event", w->newest[event], event);
    if (w->wrong[0])
        describe(w);
    if (w->wrong[0])
        fail_msg("seed %llu: %s", (unsigned long long)seed, w->wrong);
    fake_fini(&w->fake);
}

/* ---- one thread ---- */

/* A random command that the vendor may execute, or 0. */
static uint32_t pick_executable(struct fake *fake, struct random *r)
{
    uint32_t start = fake->submissions ? (uint32_t)random_below(r, fake->submissions) : 0;
    for (uint32_t i = 0; i < fake->submissions; i++) {
        uint32_t id = fake->order[(start + i) % fake->submissions];
        if (fake_may_execute(fake, id))
            return id;
    }
    return 0;
}

static uint32_t pick_reportable(struct fake *fake, struct random *r)
{
    uint32_t start = fake->submissions ? (uint32_t)random_below(r, fake->submissions) : 0;
    for (uint32_t i = 0; i < fake->submissions; i++) {
        uint32_t id = fake->order[(start + i) % fake->submissions];
        const struct fake_trace *trace = &fake->traces[id];
        if (trace->executed && trace->reports && !trace->reported)
            return id;
    }
    return 0;
}

static bool step(struct world *w, unsigned which)
{
    uint32_t id;

    switch (which) {
    case 0:
    case 1:
        if ((id = pick_executable(&w->fake, &w->random)))
            fake_execute(&w->fake, id);
        return id != 0;
    case 2:
        if ((id = pick_reportable(&w->fake, &w->random)))
            fake_report(&w->fake, id);
        return id != 0;
    case 3: {
        bool any = atomic_load(&w->fake.graph.done) != NULL;
        dvk_graph_reap(&w->fake.graph);
        return any;
    }
    case 4:
        return finish_a_host_command(w);
    case 5:
        return random_chance(&w->random, 40) && set_a_user_event(w);
    default: {
        uint32_t before = w->fake.fences;
        fence(w);
        return w->fake.fences != before;
    }
    }
}

static void run_world(struct world *w, uint64_t seed)
{
    world_init(w, seed);
    uint32_t left = 4 + (uint32_t)random_below(&w->random, 60);
    while (left && !w->wrong[0]) {
        if (random_chance(&w->random, 35)) {
            left--;
            if (random_chance(&w->random, 12))
                add_user_event(w);
            else
                add_command(w);
        } else {
            step(w, (unsigned)random_below(&w->random, 7));
        }
        check_counters(w);
    }
    for (;;) {
        bool moved = false;
        for (unsigned i = 0; i < 5 && !w->wrong[0]; i++) {
            moved |= step(w, i);
            check_counters(w);
        }
        if (!moved)
            moved = set_a_user_event(w) || step(w, 6); /* nothing else to do: as before sleeping */
        if (!moved || w->wrong[0])
            break;
    }
    world_fini(w, seed);
}

static void random_graphs_keep_the_rules(void **state)
{
    struct world *w = malloc(sizeof *w);
    for (uint64_t i = 0; i < (UNDER_SANITIZER ? 1500 : 6000); i++)
        run_world(w, random_seed() * 1000003 + i);
    free(w);
}

/* ---- the vendor on its own threads ---- */

struct vendor {
    struct world *world;
    uint64_t seed;
    _Atomic bool *stop;
};

static void *vendor_thread(void *argument)
{
    struct vendor *vendor = argument;
    struct fake *fake = &vendor->world->fake;
    struct random r = {vendor->seed};

    while (!atomic_load(vendor->stop)) {
        pthread_mutex_lock(&fake->lock);
        uint32_t id = pick_executable(fake, &r);
        bool reports = id && fake->traces[id].reports;
        if (id)
            fake_execute(fake, id);
        pthread_mutex_unlock(&fake->lock);
        if (reports)
            fake_report(fake, id);
        else if (!id)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return NULL;
}

/* As the worker's main thread sleeps; false when a wake-up was lost. */
static bool sleep_until_woken(struct world *w)
{
    _Atomic uint32_t *asleep = &w->fake.graph.shm->worker_asleep;
    /* with nothing that needs the main thread nobody wakes it: look now and then */
    bool needed = atomic_load(&w->fake.graph.attention) != 0;

    atomic_store(&w->fake.graph.asleep, true);
    atomic_store(asleep, 1);
    if (atomic_load(&w->fake.graph.done) || w->host_count) {
        atomic_store(asleep, 0);
        return true;
    }
    int result = dv_futex_wait(asleep, 1, needed ? 20 * DV_NS_PER_S : DV_NS_PER_MS);
    atomic_store(asleep, 0);
    return !(needed && result == -ETIMEDOUT);
}

static bool all_visible(struct world *w)
{
    for (uint32_t id = 1; id <= w->fake.count; id++)
        if (!w->fake.traces[id].is_fence && !atomic_load(&w->fake.traces[id].visible))
            return false;
    return true;
}

static void run_threaded_world(struct world *w, uint64_t seed)
{
    _Atomic bool stop = false;
    struct vendor vendors[2];
    pthread_t threads[2];

    world_init(w, seed);
    for (int i = 0; i < 2; i++) {
        vendors[i] = (struct vendor){.world = w, .seed = seed + 77 + (uint64_t)i, .stop = &stop};
        pthread_create(&threads[i], NULL, vendor_thread, &vendors[i]);
    }
    uint32_t left = 20 + (uint32_t)random_below(&w->random, COMMANDS_MOST - 20);
    while (!w->wrong[0]) {
        bool handled = false;
        if (left && random_chance(&w->random, 80)) {
            left--;
            handled = true;
            if (random_chance(&w->random, 12))
                add_user_event(w);
            else
                add_command(w);
        } else if (random_chance(&w->random, 60)) {
            handled = finish_a_host_command(w);
        } else if (random_chance(&w->random, 30)) {
            handled = set_a_user_event(w);
        }
        if (atomic_load(&w->fake.graph.done)) {
            dvk_graph_reap(&w->fake.graph);
        } else if (!handled && !left && !w->host_count && !w->user_count) {
            fence(w);
            if (all_visible(w))
                break;
            /* a refused fence may have let a host command loose */
            if (!w->host_count && !sleep_until_woken(w))
                complain(w, "was the number of commands when a wake-up was lost", w->fake.count, 0);
        }
    }
    bool in_flight;
    do { /* fences may still be under way */
        dvk_graph_reap(&w->fake.graph);
        in_flight = false;
        for (uint32_t i = 0; i < QUEUES; i++)
            in_flight |= !TAILQ_EMPTY(&w->queues[i].main.flight) || !TAILQ_EMPTY(&w->queues[i].lane.flight);
    } while (in_flight && !w->wrong[0]);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    world_fini(w, seed);
}

static void random_graphs_keep_the_rules_with_vendor_threads(void **state)
{
    struct world *w = malloc(sizeof *w);
    for (uint64_t i = 0; i < (UNDER_SANITIZER ? 150 : 600); i++)
        run_threaded_world(w, random_seed() * 2000003 + i);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_keep_the_rules),
        cmocka_unit_test(random_graphs_keep_the_rules_with_vendor_threads),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("graph-random", tests, NULL, NULL);
}
