/* The record of a memory object: which uses are refused, and what it counts. */
#include "src/worker/opencl/executor.h"
#include "tests/unit/unit.h"

static uint64_t counted;
static unsigned contexts_freed;

bool dvk_account_use(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes, bool claimed)
{
    (void)runtime;
    (void)device;
    (void)claimed;
    counted += bytes;
    return true;
}

void dvk_account_drop(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes)
{
    (void)runtime;
    (void)device;
    counted -= bytes;
}

void dvk_context_unref(struct dvk_context *context)
{
    contexts_freed += --context->refs == 0;
}

static struct dvk_device device = {.index = 3};
static struct dvk_context context = {.refs = 1, .device_count = 1, .devices = {&device}};
static struct dvk_worker worker;

/* A program could release the root and still use a part of it, whose memory is gone then. */
static void a_part_is_not_used_without_its_root(void **state)
{
    struct dvk_mem root = {.worker = &worker}, part = {.worker = &worker, .root = &root, .parent = &root};

    (void)state;
    root.root = &root;
    assert_true(dvk_mem_is_usable(&root));
    assert_true(dvk_mem_is_usable(&part));
    root.released = true;
    assert_false(dvk_mem_is_usable(&part));
    root.released = false;
    part.error = CL_INVALID_VALUE; /* it was never made */
    assert_false(dvk_mem_is_usable(&part));
    part = (struct dvk_mem){.released = true}; /* of the vendor's own, which lives as long as commands use it */
    assert_true(dvk_mem_is_usable(&part));
}

static void it_counts_once_and_keeps_its_context(void **state)
{
    struct dvk_mem *mem = dvk_mem_new(&worker, DV_OBJECT_ID(7));

    (void)state;
    assert_non_null(mem);
    dvk_mem_set_recipe(mem, (struct dvk_recipe){.context = &context});
    assert_int_equal(context.refs, 2);
    mem->bytes = 4096;
    assert_true(dvk_mem_count(mem, &context, false));
    assert_int_equal(mem->device, 3);
    assert_int_equal(counted, 4096);
    dvk_mem_uncount(mem);
    dvk_mem_uncount(mem);
    assert_int_equal(counted, 0);
    mem->refs++;
    dvk_mem_unref(mem);
    assert_int_equal(context.refs, 2);
    dvk_mem_unref(mem);
    assert_int_equal(context.refs, 1);
    dvk_mem_unref(NULL);
    assert_int_equal(contexts_freed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_not_used_without_its_root),
        cmocka_unit_test(it_counts_once_and_keeps_its_context),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
