/* The worker's main thread while a call that takes long is under way on another. */
#include <stdlib.h>
#include <unistd.h>

#include "src/worker/core/runtime.h"
#include "tests/unit/unit.h"

#define ROUNDS 30000
#define LIMIT_S 120

static struct dv_worker_start start;
static struct dv_runtime runtime;
static unsigned calls;

static void prepare_for_sleep(struct dv_runtime *r)
{
    (void)r;
}

static bool nothing_more(struct dv_runtime *r)
{
    (void)r;
    return false;
}

const struct dv_runtime_api dv_runtime_api_opencl = {.before_sleep = prepare_for_sleep,
                                                     .work = nothing_more};

/* Ends soon after a grant or a recall, while the main thread acts on that. */
static void call(void *argument)
{
    unsigned round = *(unsigned *)argument;

    dv_gates_wake_main(&runtime);
    for (volatile unsigned i = 0; i < round % 256 * 8; i++)
        ;
    calls++;
}

static void test_the_end_of_a_long_call_is_noticed(void **state)
{
    struct dv_shm_header *header = calloc(1, sizeof *header);

    (void)state;
    assert_non_null(header);
    runtime = (struct dv_runtime){.start = &start, .header = header, .ops = &dv_runtime_api_opencl,
                                  .upcall_lock = PTHREAD_MUTEX_INITIALIZER,
                                  .lease = (struct dv_lease *)header}; /* of no device */
    alarm(LIMIT_S);
    for (unsigned i = 0; i < ROUNDS; i++)
        dv_runtime_take_long(&runtime, call, &i);
    alarm(0);
    assert_int_equal(calls, ROUNDS);
    free(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_end_of_a_long_call_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
