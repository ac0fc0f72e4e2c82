/* Callbacks: events, builds, destructors of memory objects and contexts. They are called exactly
 * once, with the right arguments, and may themselves call OpenCL. */
#include "check.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

static const char *const source =
    "kernel void add(global uint *data, uint value) { data[get_global_id(0)] += value; }\n";

/* Waits for a callback; false after five seconds. */
static bool wait_semaphore(sem_t *semaphore)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    int result;
    while ((result = sem_timedwait(semaphore, &limit)) != 0 && errno == EINTR)
        ;
    return result == 0;
}

static void check_word(cl_command_queue queue, cl_mem buffer, cl_uint expected)
{
    cl_uint word = ~expected;
    CHECK_CL(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL));
    if (!CHECK(word == expected))
        dv_test_detail("got %u, expected %u", word, expected);
}

static cl_mem make_word(const struct dv_test *test, cl_uint value)
{
    return dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof value, &value);
}

static cl_int enqueue_add(cl_command_queue queue, cl_kernel kernel, cl_mem buffer, cl_uint value, cl_uint waits,
                          const cl_event *list, cl_event *event)
{
    size_t one = 1;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof value, &value));
    return clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, waits, list, event);
}

/* ----------------------------------------------------------------------------- event callbacks */

struct notice {
    sem_t called;
    atomic_int count;
    atomic_int status;
    cl_event event;
};

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *data)
{
    struct notice *notice = data;
    atomic_store(&notice->status, status);
    notice->event = event;
    atomic_fetch_add(&notice->count, 1);
    sem_post(&notice->called);
}

static void test_states(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("event states");
    cl_int error;
    cl_mem buffer = make_word(test, 0);
    cl_event gate = clCreateUserEvent(test->context, &error);
    REQUIRE_CL(error);
    cl_event event;
    CHECK_CL(enqueue_add(test->queue, kernel, buffer, 1, 1, &gate, &event));
    static const cl_int states[] = {CL_SUBMITTED, CL_RUNNING, CL_COMPLETE, CL_COMPLETE};
    struct notice notices[COUNT_OF(states)];
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        notices[i] = (struct notice){.count = 0};
        sem_init(&notices[i].called, 0, 0);
        CHECK_CL(clSetEventCallback(event, states[i], on_event, &notices[i]));
    }
    CHECK_ERROR(clSetEventCallback(event, CL_COMPLETE, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clSetEventCallback(event, CL_QUEUED, on_event, &notices[0]), CL_INVALID_VALUE);
    CHECK_ERROR(clSetEventCallback(event, 77, on_event, &notices[0]), CL_INVALID_VALUE);
    CHECK_CL(clFlush(test->queue));
    dv_test_sleep_ms(20);
    CHECK(atomic_load(&notices[1].count) == 0);
    CHECK(atomic_load(&notices[2].count) == 0);
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    for (size_t i = 0; i < COUNT_OF(states); i++) {
        if (!CHECK(wait_semaphore(&notices[i].called)))
            dv_test_detail("no callback for state %d", states[i]);
        CHECK(notices[i].event == event);
        /* The standard lets an implementation report a later state than the one asked for. */
        CHECK(atomic_load(&notices[i].status) <= states[i] && atomic_load(&notices[i].status) >= CL_COMPLETE);
    }
    CHECK(atomic_load(&notices[2].status) == CL_COMPLETE);

    /* On an event that is already complete the callback comes at once. */
    struct notice late = {.count = 0};
    sem_init(&late.called, 0, 0);
    CHECK_CL(clSetEventCallback(event, CL_COMPLETE, on_event, &late));
    CHECK(wait_semaphore(&late.called));
    CHECK(atomic_load(&late.status) == CL_COMPLETE);
    dv_test_sleep_ms(20);
    for (size_t i = 0; i < COUNT_OF(states); i++)
        CHECK(atomic_load(&notices[i].count) == 1);
    CHECK(atomic_load(&late.count) == 1);
    CHECK_CL(clReleaseEvent(event));
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clReleaseMemObject(buffer));
}

static void test_user_event(const struct dv_test *test)
{
    dv_test_section("callback of a user event");
    for (int way = 0; way < 2; way++) {
        cl_int error;
        cl_event user = clCreateUserEvent(test->context, &error);
        REQUIRE_CL(error);
        struct notice notice = {.count = 0};
        sem_init(&notice.called, 0, 0);
        CHECK_CL(clSetEventCallback(user, CL_COMPLETE, on_event, &notice));
        CHECK_CL(clSetUserEventStatus(user, way ? -99 : CL_COMPLETE));
        const char *clause = "5.11 clSetEventCallback: CL_COMPLETE or a negative status";
        if (way == 0)
            CHECK(wait_semaphore(&notice.called));
        else
            CHECK_EXCEPT_POCL(wait_semaphore(&notice.called), clause);
        dv_test_sleep_ms(5);
        if (way == 0 || !dv_test_on_bare_pocl()) {
            CHECK(atomic_load(&notice.status) == (way ? -99 : CL_COMPLETE));
            CHECK(atomic_load(&notice.count) == 1);
        }
        CHECK_CL(clReleaseEvent(user));
    }
}

/* Each callback enqueues the next command and hangs itself on it. */
struct relay {
    const struct dv_test *test;
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem buffer;
    atomic_int left;
    atomic_int errors;
    sem_t finished;
};

static void CL_CALLBACK relay_next(cl_event event, cl_int status, void *data)
{
    struct relay *relay = data;
    if (status != CL_COMPLETE || clReleaseEvent(event) != CL_SUCCESS)
        atomic_fetch_add(&relay->errors, 1);
    if (atomic_fetch_sub(&relay->left, 1) <= 1) {
        sem_post(&relay->finished);
        return;
    }
    cl_event next;
    if (enqueue_add(relay->queue, relay->kernel, relay->buffer, 1, 0, NULL, &next) != CL_SUCCESS ||
        clSetEventCallback(next, CL_COMPLETE, relay_next, relay) != CL_SUCCESS || clFlush(relay->queue) != CL_SUCCESS) {
        atomic_fetch_add(&relay->errors, 1);
        sem_post(&relay->finished);
    }
}

static void test_relay(const struct dv_test *test, cl_program program, cl_command_queue queue)
{
    dv_test_section("callback that enqueues");
    enum { STEPS = 200 };
    struct relay relay = {.test = test,
                          .queue = queue,
                          .kernel = dv_test_kernel(program, "add"),
                          .buffer = make_word(test, 0),
                          .left = STEPS};
    sem_init(&relay.finished, 0, 0);
    cl_event first;
    CHECK_CL(enqueue_add(queue, relay.kernel, relay.buffer, 1, 0, NULL, &first));
    CHECK_CL(clSetEventCallback(first, CL_COMPLETE, relay_next, &relay));
    CHECK_CL(clFlush(queue));
    CHECK(wait_semaphore(&relay.finished));
    CHECK(atomic_load(&relay.errors) == 0);
    check_word(queue, relay.buffer, STEPS);
    CHECK_CL(clReleaseKernel(relay.kernel));
    CHECK_CL(clReleaseMemObject(relay.buffer));
}

/* A callback opens the gate of another queue. */
static void CL_CALLBACK open_gate(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    CHECK_CL(clSetUserEventStatus(data, CL_COMPLETE));
}

static void test_gate_from_callback(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("callback that sets a user event");
    enum { ROUNDS = 50 };
    cl_mem buffer = make_word(test, 0);
    cl_event gates[ROUNDS];
    cl_event last = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        cl_int error;
        gates[i] = clCreateUserEvent(test->context, &error);
        REQUIRE_CL(error);
        cl_event first;
        /* The first of each round waits for the second of the round before. */
        CHECK_CL(enqueue_add(test->ooo_queue, kernel, buffer, 1, last ? 1 : 0, last ? &last : NULL, &first));
        CHECK_CL(clSetEventCallback(first, CL_COMPLETE, open_gate, gates[i]));
        if (last)
            CHECK_CL(clReleaseEvent(last));
        CHECK_CL(enqueue_add(test->queue, kernel, buffer, 1, 1, &gates[i], &last));
        CHECK_CL(clReleaseEvent(first));
    }
    CHECK_CL(clFlush(test->ooo_queue));
    CHECK_CL(clFlush(test->queue));
    CHECK_CL(clWaitForEvents(1, &last));
    CHECK_CL(clReleaseEvent(last));
    check_word(test->queue, buffer, 2 * ROUNDS);
    for (int i = 0; i < ROUNDS; i++)
        CHECK_CL(clReleaseEvent(gates[i]));
    CHECK_CL(clReleaseMemObject(buffer));
}

/* The callback releases the last handles of everything it knows. */
struct leavings {
    cl_mem buffer;
    cl_kernel kernel;
    cl_event gate;
    sem_t done;
};

static void CL_CALLBACK release_all(cl_event event, cl_int status, void *data)
{
    struct leavings *leavings = data;
    (void)status;
    CHECK_CL(clReleaseMemObject(leavings->buffer));
    CHECK_CL(clReleaseKernel(leavings->kernel));
    CHECK_CL(clReleaseEvent(leavings->gate));
    CHECK_CL(clReleaseEvent(event));
    sem_post(&leavings->done);
}

static void test_release_in_callback(const struct dv_test *test, cl_program program)
{
    dv_test_section("callback that releases");
    for (int i = 0; i < 20; i++) {
        cl_int error;
        struct leavings leavings = {.buffer = make_word(test, 0),
                                    .kernel = dv_test_kernel(program, "add"),
                                    .gate = clCreateUserEvent(test->context, &error)};
        REQUIRE_CL(error);
        sem_init(&leavings.done, 0, 0);
        cl_event event;
        CHECK_CL(enqueue_add(test->queue, leavings.kernel, leavings.buffer, 1, 1, &leavings.gate, &event));
        CHECK_CL(clSetEventCallback(event, CL_COMPLETE, release_all, &leavings));
        CHECK_CL(clFlush(test->queue));
        /* A call in progress needs a reference of its own. */
        cl_event gate = leavings.gate;
        CHECK_CL(clRetainEvent(gate));
        CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
        CHECK(wait_semaphore(&leavings.done));
        CHECK_CL(clReleaseEvent(gate));
    }
    CHECK_CL(clFinish(test->queue));
}

/* Many callbacks, all of them exactly once. */
static void CL_CALLBACK count_up(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    atomic_fetch_add((atomic_int *)data, 1);
}

static void test_many(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("many callbacks");
    enum { EVENTS = 300, EACH = 3 };
    atomic_int calls = 0;
    cl_mem buffer = make_word(test, 0);
    for (int i = 0; i < EVENTS; i++) {
        cl_event event;
        CHECK_CL(enqueue_add(test->queue, kernel, buffer, 1, 0, NULL, &event));
        for (int j = 0; j < EACH; j++)
            CHECK_CL(clSetEventCallback(event, CL_COMPLETE, count_up, &calls));
        /* The callbacks outlive the application's own reference. */
        CHECK_CL(clReleaseEvent(event));
    }
    CHECK_CL(clFinish(test->queue));
    for (int i = 0; i < 1000 && atomic_load(&calls) < EVENTS * EACH; i++)
        dv_test_sleep_ms(10);
    dv_test_sleep_ms(20);
    if (!CHECK(atomic_load(&calls) == EVENTS * EACH))
        dv_test_detail("%d of %d callbacks", atomic_load(&calls), EVENTS * EACH);
    check_word(test->queue, buffer, EVENTS);
    CHECK_CL(clReleaseMemObject(buffer));
}

/* Read data is there when the callback of the read runs. */
struct landing {
    unsigned char *bytes;
    size_t size;
    unsigned char expected;
    atomic_int wrong;
    sem_t done;
};

static void CL_CALLBACK look_at_data(cl_event event, cl_int status, void *data)
{
    struct landing *landing = data;
    (void)event;
    if (status != CL_COMPLETE)
        atomic_fetch_add(&landing->wrong, 1);
    for (size_t i = 0; i < landing->size; i += 1 + landing->size / 1000)
        if (landing->bytes[i] != landing->expected)
            atomic_fetch_add(&landing->wrong, 1);
    sem_post(&landing->done);
}

static void test_data_in_callback(const struct dv_test *test)
{
    dv_test_section("data when the callback runs");
    static const size_t sizes[] = {1, 4096, 100000, 4 << 20};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct landing landing = {.bytes = calloc(1, sizes[i]), .size = sizes[i], .expected = 0xa7};
        REQUIRE(landing.bytes);
        sem_init(&landing.done, 0, 0);
        cl_mem buffer = dv_test_buffer(test, 0, sizes[i], NULL);
        cl_event event;
        CHECK_CL(clEnqueueFillBuffer(test->queue, buffer, &landing.expected, 1, 0, sizes[i], 0, NULL, NULL));
        CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_FALSE, 0, sizes[i], landing.bytes, 0, NULL, &event));
        CHECK_CL(clSetEventCallback(event, CL_COMPLETE, look_at_data, &landing));
        CHECK_CL(clFlush(test->queue));
        CHECK(wait_semaphore(&landing.done));
        CHECK(atomic_load(&landing.wrong) == 0);
        CHECK_CL(clReleaseEvent(event));
        CHECK_CL(clReleaseMemObject(buffer));
        free(landing.bytes);
    }
}

/* --------------------------------------------------------------------------- program callbacks */

struct build_notice {
    sem_t called;
    atomic_int count;
    cl_program program;
    cl_device_id device;
    cl_build_status status;
};

static void CL_CALLBACK on_build(cl_program program, void *data)
{
    struct build_notice *notice = data;
    notice->program = program;
    notice->status = 99;
    CHECK_CL(clGetProgramBuildInfo(program, notice->device, CL_PROGRAM_BUILD_STATUS, sizeof notice->status,
                                   &notice->status, NULL));
    atomic_fetch_add(&notice->count, 1);
    sem_post(&notice->called);
}

static void test_build(const struct dv_test *test)
{
    dv_test_section("build callbacks");
    cl_int error;
    struct build_notice notice = {.device = test->device};
    sem_init(&notice.called, 0, 0);
    cl_program program = clCreateProgramWithSource(test->context, 1, (const char **)&source, NULL, &error);
    REQUIRE_CL(error);
    CHECK_CL(clBuildProgram(program, 1, &test->device, "", on_build, &notice));
    CHECK(wait_semaphore(&notice.called));
    CHECK(notice.program == program);
    CHECK(notice.status == CL_BUILD_SUCCESS);
    cl_kernel kernel = dv_test_kernel(program, "add");
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));

    /* A failing build calls it as well. */
    const char *bad = "kernel void broken(global int *p) { *p = no_such_thing; }\n";
    program = clCreateProgramWithSource(test->context, 1, &bad, NULL, &error);
    REQUIRE_CL(error);
    error = clBuildProgram(program, 1, &test->device, "", on_build, &notice);
    CHECK(error == CL_SUCCESS || error == CL_BUILD_PROGRAM_FAILURE);
    if (CHECK_EXCEPT_POCL(wait_semaphore(&notice.called),
                          "5.8.2: pfn_notify is called when the build has been tried")) {
        CHECK(notice.program == program);
        CHECK(notice.status == CL_BUILD_ERROR);
    }
    CHECK_CL(clReleaseProgram(program));

    /* User data without a function. */
    program = clCreateProgramWithSource(test->context, 1, (const char **)&source, NULL, &error);
    REQUIRE_CL(error);
    CHECK_ERROR(clBuildProgram(program, 1, &test->device, "", NULL, &notice), CL_INVALID_VALUE);

    /* Compiling and linking. */
    sem_init(&notice.called, 0, 0);
    CHECK_CL(clCompileProgram(program, 1, &test->device, "", 0, NULL, NULL, on_build, &notice));
    CHECK_EXCEPT_POCL(wait_semaphore(&notice.called), "5.8.3: pfn_notify of clCompileProgram");
    CHECK(notice.program == program);
    sem_init(&notice.called, 0, 0);
    cl_program linked = clLinkProgram(test->context, 1, &test->device, "", 1, &program, on_build, &notice, &error);
    CHECK_CL(error);
    CHECK_EXCEPT_POCL(wait_semaphore(&notice.called), "5.8.3: pfn_notify of clLinkProgram");
    CHECK(notice.program == linked);
    if (linked) {
        kernel = dv_test_kernel(linked, "add");
        CHECK_CL(clReleaseKernel(kernel));
        CHECK_CL(clReleaseProgram(linked));
    }
    CHECK_CL(clReleaseProgram(program));
}

/* ------------------------------------------------------------------------- destructor callbacks */

struct destruction {
    atomic_int next; /* place of the next callback in the order */
    atomic_int done;
    int order[16];
    void *host;
};

struct destructor {
    struct destruction *of;
    int number;
};

static void CL_CALLBACK on_mem_destroy(cl_mem memory, void *data)
{
    struct destructor *destructor = data;
    (void)memory;
    int place = atomic_fetch_add(&destructor->of->next, 1);
    destructor->of->order[place] = destructor->number;
    /* The last one to be called may free the memory behind the buffer. */
    if (destructor->number == 0)
        free(destructor->of->host);
    atomic_fetch_add(&destructor->of->done, 1);
}

static void await_count(atomic_int *counter, int expected)
{
    for (int i = 0; i < 1000 && atomic_load(counter) < expected; i++)
        dv_test_sleep_ms(5);
    if (!CHECK(atomic_load(counter) == expected))
        dv_test_detail("%d callbacks, expected %d", atomic_load(counter), expected);
}

static void test_mem_destructors(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("destructors of memory objects");
    enum { CALLBACKS = 5, BYTES = 4096 };
    for (int kind = 0; kind < 3; kind++) {
        struct destruction destruction = {.next = 0};
        struct destructor destructors[CALLBACKS];
        cl_int error;
        REQUIRE(posix_memalign(&destruction.host, 4096, BYTES) == 0);
        memset(destruction.host, 0, BYTES);
        cl_mem memory;
        if (kind == 2) {
            cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
            cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
            memory = clCreateImage(test->context, CL_MEM_USE_HOST_PTR, &format, &desc, destruction.host, &error);
            REQUIRE_CL(error);
        } else {
            memory = dv_test_buffer(test, CL_MEM_USE_HOST_PTR, BYTES, destruction.host);
        }
        for (int i = 0; i < CALLBACKS; i++) {
            destructors[i] = (struct destructor){&destruction, i};
            CHECK_CL(clSetMemObjectDestructorCallback(memory, on_mem_destroy, &destructors[i]));
        }
        CHECK_ERROR(clSetMemObjectDestructorCallback(memory, NULL, NULL), CL_INVALID_VALUE);
        cl_event gate = NULL;
        if (kind == 1) {
            /* A command still uses it: its end is the end of the object. */
            gate = clCreateUserEvent(test->context, &error);
            REQUIRE_CL(error);
            CHECK_CL(enqueue_add(test->queue, kernel, memory, 1, 1, &gate, NULL));
            cl_mem dummy = make_word(test, 0);
            /* The kernel object holds no claim on the buffer. */
            CHECK_CL(clSetKernelArg(kernel, 0, sizeof dummy, &dummy));
            CHECK_CL(clReleaseMemObject(dummy));
        }
        CHECK_CL(clRetainMemObject(memory));
        CHECK_CL(clReleaseMemObject(memory));
        dv_test_sleep_ms(5);
        CHECK(atomic_load(&destruction.next) == 0);
        CHECK_CL(clReleaseMemObject(memory));
        if (kind == 1) {
            CHECK_CL(clFlush(test->queue));
            dv_test_sleep_ms(20);
            CHECK(atomic_load(&destruction.next) == 0);
            CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
            CHECK_CL(clFinish(test->queue));
            CHECK_CL(clReleaseEvent(gate));
        }
        await_count(&destruction.done, CALLBACKS);
        for (int i = 0; i < CALLBACKS; i++)
            if (!CHECK(destruction.order[i] == CALLBACKS - 1 - i))
                dv_test_detail("place %d: callback %d", i, destruction.order[i]);
    }
}

/* A sub-buffer keeps its parent. */
static void test_sub_buffer_destructors(const struct dv_test *test)
{
    dv_test_section("destructors of sub-buffers");
    struct destruction parent_end = {.next = 0}, child_end = {.next = 0};
    struct destructor of_parent = {&parent_end, 1}, of_child = {&child_end, 1};
    cl_int error;
    cl_mem parent = dv_test_buffer(test, 0, 8192, NULL);
    cl_buffer_region region = {4096, 4096};
    cl_mem child = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    REQUIRE_CL(error);
    CHECK_CL(clSetMemObjectDestructorCallback(parent, on_mem_destroy, &of_parent));
    CHECK_CL(clSetMemObjectDestructorCallback(child, on_mem_destroy, &of_child));
    CHECK_CL(clReleaseMemObject(parent));
    dv_test_sleep_ms(10);
    CHECK(atomic_load(&parent_end.next) == 0);
    cl_uint value = 9;
    CHECK_CL(clEnqueueWriteBuffer(test->queue, child, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    check_word(test->queue, child, 9);
    CHECK_CL(clReleaseMemObject(child));
    await_count(&child_end.done, 1);
    await_count(&parent_end.done, 1);
}

static void CL_CALLBACK on_context_destroy(cl_context context, void *data)
{
    (void)context;
    atomic_fetch_add((atomic_int *)data, 1);
}

static void CL_CALLBACK on_context_error(const char *text, const void *info, size_t size, void *data)
{
    (void)text;
    (void)info;
    (void)size;
    atomic_fetch_add((atomic_int *)data, 1);
}

static void test_context(const struct dv_test *test)
{
    dv_test_section("context callbacks");
    cl_int error;
    atomic_int reports = 0, ends = 0;
    cl_context context = clCreateContext(NULL, 1, &test->device, on_context_error, &reports, &error);
    CHECK_CL(error);
    REQUIRE(context);
    CHECK_CL(clSetContextDestructorCallback(context, on_context_destroy, &ends));
    CHECK_CL(clSetContextDestructorCallback(context, on_context_destroy, &ends));
    CHECK_ERROR(clSetContextDestructorCallback(context, NULL, NULL), CL_INVALID_VALUE);
    cl_mem buffer = clCreateBuffer(context, 0, 64, NULL, &error);
    CHECK_CL(error);
    CHECK_CL(clReleaseContext(context));
    dv_test_sleep_ms(5);
    /* The buffer still holds the context. */
    CHECK(atomic_load(&ends) == 0);
    CHECK_CL(clReleaseMemObject(buffer));
    await_count(&ends, 2);

    CHECK(clCreateContext(NULL, 1, &test->device, NULL, &reports, &error) == NULL);
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK(clCreateContextFromType(NULL, CL_DEVICE_TYPE_ALL, NULL, &reports, &error) == NULL);
    CHECK_ERROR(error, CL_INVALID_VALUE);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "add");
    test_states(&test, kernel);
    test_user_event(&test);
    test_relay(&test, program, test.queue);
    test_relay(&test, program, test.ooo_queue);
    test_gate_from_callback(&test, kernel);
    test_release_in_callback(&test, program);
    test_many(&test, kernel);
    test_data_in_callback(&test);
    test_build(&test);
    test_mem_destructors(&test, kernel);
    test_sub_buffer_destructors(&test);
    test_context(&test);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("callbacks");
}
