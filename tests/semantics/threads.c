/* Many threads in one process: on one queue, on queues of their own, with contexts of their own,
 * and on shared objects. Each thread checks its own results and events. */
#include "check.h"

#include <pthread.h>

#define THREADS 8
#define WORDS 512

static const char *const source = "kernel void advance(global uint *data, uint factor, uint add) {\n"
                                  "    size_t i = get_global_id(0);\n"
                                  "    data[i] = data[i] * factor + add;\n"
                                  "}\n";

struct worker {
    struct dv_test test; /* the thread uses queue; the context may be its own */
    cl_program program;
    int number;
    int rounds;
    pthread_barrier_t *start;
    struct exchange *exchange;
};

/* Starts one thread for each worker at the same moment and waits for all. */
static void run_threads(struct worker *workers, void *(*body)(void *))
{
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    REQUIRE(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].start = &start;
        REQUIRE(pthread_create(&threads[i], NULL, body, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    pthread_barrier_destroy(&start);
}

/* Random work on a buffer of the thread's own, every step ordered by events (right on any queue),
 * compared with a simulation. */
static void *work_and_check(void *data)
{
    struct worker *self = data;
    cl_command_queue queue = self->test.queue;
    cl_kernel kernel = dv_test_kernel(self->program, "advance");
    cl_uint expected[WORDS], back[WORDS], upload[WORDS];
    uint64_t random = 1000u + (unsigned)self->number;
    dv_test_random_fill(&random, expected, sizeof expected);
    cl_mem buffer = dv_test_buffer(&self->test, CL_MEM_COPY_HOST_PTR, sizeof expected, expected);
    pthread_barrier_wait(self->start);
    cl_event last = NULL;
    for (int round = 0; round < self->rounds; round++) {
        cl_event next = NULL;
        cl_uint waits = last ? 1 : 0;
        switch (dv_test_random(&random) % 4) {
        case 0: {
            dv_test_random_fill(&random, upload, sizeof upload);
            CHECK_CL(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof upload, upload, waits, last ? &last : NULL,
                                          &next));
            CHECK_CL(clFlush(queue));
            CHECK_CL(clWaitForEvents(1, &next));
            memcpy(expected, upload, sizeof expected);
            break;
        }
        case 1: {
            memset(back, 0, sizeof back);
            CHECK_CL(
                clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof back, back, waits, last ? &last : NULL, &next));
            CHECK_CL(clFlush(queue));
            CHECK_CL(clWaitForEvents(1, &next));
            CHECK(dv_test_event_status(next) == CL_COMPLETE);
            if (!CHECK(memcmp(back, expected, sizeof back) == 0))
                dv_test_detail("thread %d round %d", self->number, round);
            break;
        }
        default: {
            size_t global = WORDS, local = 16;
            cl_uint factor = (cl_uint)dv_test_random(&random) | 1;
            cl_uint add = (cl_uint)dv_test_random(&random);
            CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
            CHECK_CL(clSetKernelArg(kernel, 1, sizeof factor, &factor));
            CHECK_CL(clSetKernelArg(kernel, 2, sizeof add, &add));
            CHECK_CL(
                clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, waits, last ? &last : NULL, &next));
            for (size_t i = 0; i < WORDS; i++)
                expected[i] = expected[i] * factor + add;
            break;
        }
        }
        /* The event knows its queue, whatever the other threads do. */
        cl_command_queue of_event = NULL;
        CHECK_CL(clGetEventInfo(next, CL_EVENT_COMMAND_QUEUE, sizeof of_event, &of_event, NULL));
        CHECK(of_event == queue);
        if (last)
            CHECK_CL(clReleaseEvent(last));
        last = next;
    }
    if (self->number % 2)
        CHECK_CL(clFinish(queue));
    else
        CHECK_CL(clWaitForEvents(1, &last));
    CHECK_CL(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 1, &last, NULL));
    CHECK(memcmp(back, expected, sizeof back) == 0);
    CHECK_CL(clReleaseEvent(last));
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseKernel(kernel));
    return NULL;
}

static void test_one_queue(const struct dv_test *test, cl_program program, bool in_order)
{
    dv_test_section(in_order ? "one in-order queue" : "one out-of-order queue");
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.test = *test, .program = program, .rounds = 150};
        workers[i].test.queue = in_order ? test->queue : test->ooo_queue;
    }
    run_threads(workers, work_and_check);
}

static void test_many_queues(const struct dv_test *test, cl_program program)
{
    dv_test_section("a queue for each thread");
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        cl_int error;
        workers[i] = (struct worker){.test = *test, .program = program, .rounds = 200};
        workers[i].test.queue = clCreateCommandQueue(test->context, test->device,
                                                     i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &error);
        REQUIRE_CL(error);
    }
    run_threads(workers, work_and_check);
    for (int i = 0; i < THREADS; i++)
        CHECK_CL(clReleaseCommandQueue(workers[i].test.queue));
}

/* Contexts, programs and queues come and go in all threads at once. */
static void *whole_life(void *data)
{
    struct worker *self = data;
    pthread_barrier_wait(self->start);
    for (int round = 0; round < self->rounds; round++) {
        cl_int error;
        struct dv_test test = self->test;
        test.context = clCreateContext(NULL, 1, &test.device, NULL, NULL, &error);
        REQUIRE_CL(error);
        test.queue = clCreateCommandQueue(test.context, test.device, 0, &error);
        REQUIRE_CL(error);
        char options[40];
        /* Four different programs: some builds of the same at the same time. */
        snprintf(options, sizeof options, "-DTHREAD=%d", self->number % 4);
        cl_program program = dv_test_build(
            &test, "kernel void number(global uint *data) { data[get_global_id(0)] = THREAD + 40; }\n", options);
        cl_kernel kernel = dv_test_kernel(program, "number");
        cl_mem buffer = dv_test_buffer(&test, 0, 64 * 4, NULL);
        size_t global = 64, local = 16;
        cl_uint words[64] = {0};
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
        CHECK_CL(clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
        CHECK_CL(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
        for (int i = 0; i < 64; i++)
            CHECK(words[i] == (cl_uint)(self->number % 4 + 40));
        CHECK_CL(clReleaseMemObject(buffer));
        CHECK_CL(clReleaseKernel(kernel));
        CHECK_CL(clReleaseProgram(program));
        CHECK_CL(clReleaseCommandQueue(test.queue));
        CHECK_CL(clReleaseContext(test.context));
    }
    return NULL;
}

static void test_whole_lives(const struct dv_test *test)
{
    dv_test_section("a context for each thread");
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.test = *test, .rounds = 3};
    run_threads(workers, whole_life);
}

/* A ring of threads: each waits for the user event of its left neighbour, works on one shared
 * buffer, and sets its own. The order is by events alone. */
struct exchange {
    cl_mem buffer;
    cl_event turns[THREADS * 20 + 1];
    int rounds;
};

static void *ring_member(void *data)
{
    struct worker *self = data;
    struct exchange *exchange = self->exchange;
    cl_kernel kernel = dv_test_kernel(self->program, "advance");
    size_t global = WORDS, local = 16;
    pthread_barrier_wait(self->start);
    for (int round = 0; round < exchange->rounds; round++) {
        int turn = round * THREADS + self->number;
        cl_uint factor = 3, add = (cl_uint)turn;
        cl_event done;
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof exchange->buffer, &exchange->buffer));
        CHECK_CL(clSetKernelArg(kernel, 1, sizeof factor, &factor));
        CHECK_CL(clSetKernelArg(kernel, 2, sizeof add, &add));
        CHECK_CL(clEnqueueNDRangeKernel(self->test.ooo_queue, kernel, 1, NULL, &global, &local, 1,
                                        &exchange->turns[turn], &done));
        CHECK_CL(clFlush(self->test.ooo_queue));
        CHECK_CL(clWaitForEvents(1, &done));
        CHECK_CL(clReleaseEvent(done));
        CHECK_CL(clSetUserEventStatus(exchange->turns[turn + 1], CL_COMPLETE));
    }
    CHECK_CL(clReleaseKernel(kernel));
    return NULL;
}

static void test_ring(const struct dv_test *test, cl_program program)
{
    dv_test_section("ring of threads");
    struct exchange exchange = {.rounds = 20};
    cl_uint zeros[WORDS] = {0};
    exchange.buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros);
    int turns = THREADS * exchange.rounds;
    for (int i = 0; i <= turns; i++) {
        cl_int error;
        exchange.turns[i] = clCreateUserEvent(test->context, &error);
        REQUIRE_CL(error);
    }
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.test = *test, .program = program, .exchange = &exchange};
    CHECK_CL(clSetUserEventStatus(exchange.turns[0], CL_COMPLETE));
    run_threads(workers, ring_member);
    cl_uint expected = 0, back[WORDS];
    for (int i = 0; i < turns; i++)
        expected = expected * 3 + (cl_uint)i;
    CHECK_CL(clEnqueueReadBuffer(test->queue, exchange.buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < WORDS; i++)
        CHECK(back[i] == expected);
    for (int i = 0; i <= turns; i++)
        CHECK_CL(clReleaseEvent(exchange.turns[i]));
    CHECK_CL(clReleaseMemObject(exchange.buffer));
}

/* Queries and reference counts on shared objects from all threads. */
static void *query_shared(void *data)
{
    struct worker *self = data;
    pthread_barrier_wait(self->start);
    for (int round = 0; round < self->rounds; round++) {
        CHECK_CL(clRetainContext(self->test.context));
        CHECK_CL(clRetainCommandQueue(self->test.queue));
        CHECK_CL(clRetainProgram(self->program));
        cl_uint count = 0;
        CHECK_CL(clGetContextInfo(self->test.context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
        CHECK(count >= 2);
        cl_kernel kernel = dv_test_kernel(self->program, "advance");
        cl_program of_kernel = NULL;
        CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of_kernel, &of_kernel, NULL));
        CHECK(of_kernel == self->program);
        CHECK_CL(clReleaseKernel(kernel));
        char name[200];
        CHECK_CL(clGetDeviceInfo(self->test.device, CL_DEVICE_NAME, sizeof name, name, NULL));
        cl_event marker;
        CHECK_CL(clEnqueueMarkerWithWaitList(self->test.queue, 0, NULL, &marker));
        CHECK_CL(clWaitForEvents(1, &marker));
        CHECK_CL(clReleaseEvent(marker));
        CHECK_CL(clReleaseProgram(self->program));
        CHECK_CL(clReleaseCommandQueue(self->test.queue));
        CHECK_CL(clReleaseContext(self->test.context));
    }
    return NULL;
}

static cl_uint context_references(cl_context context)
{
    cl_uint count = 0;
    CHECK_CL(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    return count;
}

static void test_shared_queries(const struct dv_test *test, cl_program program)
{
    dv_test_section("queries on shared objects");
    struct worker workers[THREADS] = {0};
    cl_uint before = context_references(test->context);
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.test = *test, .program = program, .rounds = 100};
    run_threads(workers, query_shared);
    CHECK(context_references(test->context) == before);
}

/* Many threads wait for one and the same event. */
static void *wait_for_shared(void *data)
{
    struct worker *self = data;
    pthread_barrier_wait(self->start);
    for (int i = 0; i < self->exchange->rounds; i++)
        CHECK_CL(clWaitForEvents(1, &self->exchange->turns[i]));
    return NULL;
}

static void *set_shared(void *data)
{
    struct exchange *exchange = data;
    for (int i = 0; i < exchange->rounds; i++) {
        dv_test_sleep_ms(1);
        CHECK_CL(clSetUserEventStatus(exchange->turns[i], CL_COMPLETE));
    }
    return NULL;
}

static void test_shared_waits(const struct dv_test *test)
{
    dv_test_section("many waiting for one event");
    struct exchange exchange = {.rounds = 50};
    for (int i = 0; i < exchange.rounds; i++) {
        cl_int error;
        exchange.turns[i] = clCreateUserEvent(test->context, &error);
        REQUIRE_CL(error);
    }
    pthread_t setter;
    REQUIRE(pthread_create(&setter, NULL, set_shared, &exchange) == 0);
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.test = *test, .exchange = &exchange};
    run_threads(workers, wait_for_shared);
    REQUIRE(pthread_join(setter, NULL) == 0);
    for (int i = 0; i < exchange.rounds; i++)
        CHECK_CL(clReleaseEvent(exchange.turns[i]));
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    test_one_queue(&test, program, true);
    test_one_queue(&test, program, false);
    test_many_queues(&test, program);
    test_whole_lives(&test);
    test_ring(&test, program);
    test_shared_queries(&test, program);
    test_shared_waits(&test);
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("threads");
}
