/* The worker's main thread: how it wakes, and whom it wakes. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/worker/core/runtime.h"
#include "tests/unit/unit.h"

#define ROUNDS 30000
#define LIMIT_S 120

static struct dvk_worker_start start;
static struct dvk_runtime runtime;
static unsigned calls;

static void prepare_for_sleep(struct dvk_runtime *r)
{
    (void)r;
}

static bool nothing_more(struct dvk_runtime *r)
{
    (void)r;
    return false;
}

static const struct dvk_runtime_api api = {.before_sleep = prepare_for_sleep, .work = nothing_more};

/* Ends soon after a grant or a recall, while the main thread acts on that. */
static void call(void *argument)
{
    unsigned round = *(unsigned *)argument;

    dvk_gates_wake_main(&runtime);
    for (volatile unsigned i = 0; i < round % 256 * 8; i++)
        ;
    calls++;
}

static int set_up(void **state)
{
    uint8_t *shm =
        mmap(NULL, DV_SHM_ARENA_OFFSET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)state;
    runtime = (struct dvk_runtime){.start = &start,
                                   .shm = shm,
                                   .header = (struct dv_shm_header *)shm,
                                   .ops = &api,
                                   .upcall_lock = PTHREAD_MUTEX_INITIALIZER,
                                   .submitting = PTHREAD_MUTEX_INITIALIZER,
                                   .lease = (struct dv_lease *)shm}; /* of no device */
    pthread_mutex_lock(&runtime.submitting);
    return shm == MAP_FAILED;
}

static int tear_down(void **state)
{
    (void)state;
    pthread_mutex_unlock(&runtime.submitting);
    free(runtime.overflow);
    return munmap(runtime.shm, DV_SHM_ARENA_OFFSET);
}

static void test_the_end_of_a_long_call_is_noticed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (i % 256 == 0)
            alarm(LIMIT_S);
        dvk_runtime_take_long(&runtime, call, &i);
    }
    alarm(0);
    assert_int_equal(calls, ROUNDS);
}

/* One upcall more than the ring holds; then the client takes all that it sees, and sleeps. */
static void overflow_and_let_sleep(void)
{
    const struct dv_upcall upcall = {.kind = DV_UPCALL_EVENT};

    for (unsigned i = 0; i <= DV_SHM_UPCALL_COUNT; i++)
        dvk_runtime_upcall(&runtime, &upcall, false);
    assert_int_equal(runtime.overflow_count, 1);
    atomic_store(&runtime.header->upcall_head, DV_SHM_UPCALL_COUNT);
    atomic_store(&runtime.header->client_asleep, 1);
}

static void test_who_sleeps_is_woken_for_what_did_not_fit(void **state)
{
    (void)state;
    overflow_and_let_sleep();
    assert_false(dvk_runtime_upcalls_wait(&runtime));
    assert_int_equal(atomic_load(&runtime.header->upcall_tail), DV_SHM_UPCALL_COUNT + 1);
    assert_int_equal(atomic_load(&runtime.header->client_asleep), 0);
}

static void test_who_sleeps_is_woken_by_an_upcall_that_brings_another(void **state)
{
    (void)state;
    overflow_and_let_sleep();
    dvk_runtime_upcall(&runtime, &(struct dv_upcall){.kind = DV_UPCALL_FREE}, false);
    assert_int_equal(atomic_load(&runtime.header->upcall_tail), DV_SHM_UPCALL_COUNT + 2);
    assert_int_equal(atomic_load(&runtime.header->client_asleep), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_end_of_a_long_call_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_sleeps_is_woken_for_what_did_not_fit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_sleeps_is_woken_by_an_upcall_that_brings_another, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
