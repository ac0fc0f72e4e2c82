/* The simulator against policies that are wrong, which it must say, and end; and its random
 * numbers. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "src/sim/private.h"
#include "src/sim/random.h"

static const char *const two_tenants = "duration: 1s\n"
                                       "devices: [{name: gpu0}]\n"
                                       "tenants:\n"
                                       "  - {name: first, kernel: 1ms}\n"
                                       "  - {name: second, kernel: 1ms}\n";

static struct dv_workload *load(const char *text)
{
    char path[] = "/tmp/test-sim-XXXXXX", error[512];
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    struct dv_workload *workload = dv_workload_load(path, error, sizeof error);
    unlink(path);
    if (!workload)
        fail_msg("%s", error);
    return workload;
}

/* What the run under this policy returns, with what it says. */
static int run(const char *text, const struct dv_policy_ops *ops, char *problem, size_t bytes)
{
    struct dv_workload *workload = load(text);
    struct dv_sim *sim = dv_sim_create(workload, ops, 0);

    assert_non_null(sim);
    int status = dv_sim_run(sim, NULL);
    snprintf(problem, bytes, "%s", sim->problem);
    dv_sim_destroy(sim);
    dv_workload_free(workload);
    return status;
}

static uint32_t want_all_slots(struct dv_policy *policy, enum dv_class class, dv_ns now)
{
    (void)class;
    (void)now;
    return policy->slots;
}

static void keep_nothing(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now)
{
    (void)policy;
    (void)now;
    session->keeps_ns = 0;
}

/* Wants all slots back as soon as it has granted them. */
static struct dv_policy_ops restless_policy(void)
{
    struct dv_policy_ops ops = dv_policy_fifo;

    ops.name = "restless";
    ops.slots_wanted = want_all_slots;
    ops.hold_began = keep_nothing;
    return ops;
}

/* Recalls each holder at the moment of its grant. */
static void test_grant_and_recall(void **state)
{
    struct dv_policy_ops ops = restless_policy();
    char problem[1024];

    (void)state;
    assert_int_equal(run(two_tenants, &ops, problem, sizeof problem), -ELOOP);
    assert_non_null(strstr(problem, "'restless'"));
    assert_non_null(strstr(problem, "'gpu0'"));
    assert_non_null(strstr(problem, "at 0.000000000 s"));
    assert_non_null(strstr(problem, "'first'"));
    assert_non_null(strstr(problem, "'second'"));
}

/* The same with overheads: time passes, but nothing ever runs. Less than the limit in a second. */
static void test_recall_with_overheads(void **state)
{
    struct dv_policy_ops ops = restless_policy();
    char problem[1024], text[256];

    (void)state;
    snprintf(text, sizeof text, "grant-overhead: 50us\n%s", two_tenants);
    assert_int_equal(run(text, &ops, problem, sizeof problem), 0);
    snprintf(text, sizeof text, "grant-overhead: 1ns\n%s", two_tenants);
    assert_int_equal(run(text, &ops, problem, sizeof problem), -ELOOP);
}

static dv_ns ask_again_after; /* UINT64_MAX: a nanosecond before now */

static struct dv_pick pick_nobody(struct dv_policy *policy, dv_ns now)
{
    (void)policy;
    return (struct dv_pick){.rule = DV_RULE_LIMIT, .ask_again_ns = now + ask_again_after};
}

/* Always says "ask me again", at once, a moment later, or at a time that is over. */
static void test_ask_again(void **state)
{
    static const dv_ns after[] = {0, 1, UINT64_MAX};
    static const char late[] = "duration: 1s\ndevices: [{name: gpu0}]\n"
                               "tenants: [{name: first, join: 10ms, kernel: 1ms}]\n";
    struct dv_policy_ops ops = dv_policy_fifo;
    char problem[1024];

    (void)state;
    ops.pick = pick_nobody;
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
        ask_again_after = after[i];
        assert_int_equal(run(late, &ops, problem, sizeof problem), -ELOOP);
        assert_non_null(strstr(problem, "no tenant"));
    }
    ask_again_after = DV_NS_PER_MS; /* patient: nothing wrong with it */
    assert_int_equal(run(late, &ops, problem, sizeof problem), 0);
}

/* Many decisions at one moment are not wrong in themselves. */
static void test_crowd(void **state)
{
    static const char crowd[] = "duration: 2s\n"
                                "devices: [{name: gpu0, slots: 256}]\n"
                                "tenants:\n"
                                "  - {name: many, copies: 10000, kernel: 1ms}\n"
                                "  - {name: urgent, class: latency, copies: 5000,\n"
                                "     arrival: periodic, period: 500ms, kernel: 10us}\n";
    static const struct dv_policy_ops *const all[] = {&dv_policy_elastic, &dv_policy_fair, &dv_policy_fifo};
    char problem[1024];

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (run(crowd, all[i], problem, sizeof problem) != 0)
            fail_msg("%s", problem);
}

/* The mean is the one that was asked for, and so many are far above it as the shape says. */
static void test_pareto(void **state)
{
    enum { DRAWS = 1000000 };
    static const double shapes[] = {2.2, 3, 10};
    uint64_t random = 7;

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        double shape = shapes[i], mean = 20, least = mean * (shape - 1) / shape;
        double sum = 0, above = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            double value = dv_random_pareto(&random, mean, shape);
            assert_true(value >= least);
            sum += value;
            above += value > 2 * least;
        }
        assert_true(fabs(sum / DRAWS - mean) < 0.02 * mean);
        assert_true(fabs(above / DRAWS - pow(2, -shape)) < 0.002);
    }
}

/* ---- random workloads ---- */

static uint64_t seed;

static unsigned draw(unsigned below)
{
    return (unsigned)(dv_random_part(&seed) * below) % below;
}

/* Tenants of every kind on devices whose memory is too small, coming and going. */
static void random_workload(char *text, size_t bytes)
{
    static const char *const classes[] = {"latency", "standard", "batch"};
    static const char *const arrivals[] = {"always", "always, gap: 3ms", "poisson, rate: 100", "pareto, mean: 20ms",
                                           "periodic, period: 30ms"};
    unsigned speeds[] = {20, 500, 20000};
    size_t used = (size_t)snprintf(text, bytes,
                                   "duration: 2s\nseed: %u\ngrant-overhead: %uus\ndevice-order: %s\n"
                                   "devices: [{name: gpu, copies: %u, slots: %u, memory: 100MiB, copy-speed: %uMiB, "
                                   "copy-engine: %s}]\ntenants:\n",
                                   draw(1000), 1 + draw(100), draw(2) ? "fixed" : "free", 1 + draw(3), 1 + draw(3),
                                   speeds[draw(3)], draw(2) ? "true" : "false");

    for (unsigned i = 0, count = 1 + draw(6); i < count; i++) {
        used += (size_t)snprintf(text + used, bytes - used,
                                 "  - {name: t%u, class: %s, arrival: %s, kernel: %uus, burst: %u, "
                                 "copies: %u, sessions: %u, join: %ums",
                                 i, classes[draw(3)], arrivals[draw(5)], 20 + draw(5000), 1 + draw(20), 1 + draw(3),
                                 1 + draw(3), draw(1000));
        if (draw(4))
            used += (size_t)snprintf(text + used, bytes - used, ", set: %uMiB", 1 + draw(100));
        if (!draw(3))
            used += (size_t)snprintf(text + used, bytes - used, ", leave: %ums", 1001 + draw(900));
        if (!draw(3))
            used += (size_t)snprintf(text + used, bytes - used, ", work: %ums", 1 + draw(200));
        used += (size_t)snprintf(text + used, bytes - used, "}\n");
    }
    assert_true(used < bytes);
}

static void check_memory(const struct dv_sim *sim, const struct dv_sim_device *device)
{
    const struct dv_engine *engine = (const struct dv_engine *)(const void *)sim;
    const struct dvd_device *known = &engine->ledger.devices[device - sim->devices];
    uint64_t room = 0;

    for (unsigned i = 0; i < sim->tenant_count; i++) {
        const struct dv_sim_tenant *tenant = &sim->tenants[i];
        for (unsigned j = 0; tenant->device == device && j < tenant->spec->session_count; j++) {
            const struct dv_sim_session *session = &tenant->sessions[j];
            assert_true(session->memory.resident <= session->memory.room);
            assert_true(session->memory.resident <= tenant->spec->set_bytes);
            if (session->state == DV_WORKER_RUNNING || session->state == DV_WORKER_LINGERING)
                assert_int_equal(session->memory.resident, tenant->spec->set_bytes);
            if (tenant->left)
                assert_int_equal(session->memory.room, 0);
            room += session->memory.room;
        }
    }
    assert_int_equal(room, known->memory.placed);
    assert_true(room <= device->spec->memory_bytes);
    assert_true(device->kernels_ns <= device->held_ns);
    assert_true(device->held_ns <= sim->workload->duration_ns * device->spec->slot_count);
}

/* The books are right at the end, whatever happened: a session that computes has its set, and no
 * device has more than it can hold. */
static void test_random_memory(void **state)
{
    enum { WORKLOADS = 300 };
    const char *given = getenv("DIVVY_TEST_SEED");
    uint64_t kernels = 0, moves = 0, evicted = 0;
    char text[8192];

    (void)state;
    seed = given ? strtoull(given, NULL, 10) : 1;
    for (int i = 0; i < WORKLOADS; i++) {
        random_workload(text, sizeof text);
        struct dv_workload *workload = load(text);
        struct dv_sim *sim = dv_sim_create(workload, NULL, 0);
        assert_non_null(sim);
        int status = dv_sim_run(sim, NULL);
        if (status != 0)
            fail_msg("%s\n%s", sim->problem, text);
        char wrong[256];
        if (dvd_ledger_check(&((struct dv_engine *)(void *)sim)->ledger, wrong, sizeof wrong) != 0)
            fail_msg("%s\n%s", wrong, text);
        for (unsigned d = 0; d < sim->device_count; d++) {
            check_memory(sim, &sim->devices[d]);
            kernels += sim->devices[d].kernel_epoch;
            moves += sim->devices[d].memory.moves;
            evicted += sim->devices[d].memory.evicted_bytes;
        }
        dv_sim_destroy(sim);
        dv_workload_free(workload);
    }
    assert_true(kernels > 100000 && moves > 1000 && evicted > UINT64_C(10) << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grant_and_recall), cmocka_unit_test(test_recall_with_overheads),
        cmocka_unit_test(test_ask_again),        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_pareto),           cmocka_unit_test(test_random_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
