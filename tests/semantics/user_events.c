/* User events: what waits on one stays queued and blocks nobody else, completion releases it, an
 * error ends it, and a program whose event never comes can still release everything and leave. */
#include "check.h"

#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define WORDS 1024

static const char *const source =
    "kernel void add(global uint *data, uint value) { data[get_global_id(0)] += value; }\n";

static cl_event make_user_event(const struct dv_test *test)
{
    cl_int error;
    cl_event event = clCreateUserEvent(test->context, &error);
    REQUIRE_CL(error);
    return event;
}

static void enqueue_add(cl_command_queue queue, cl_kernel kernel, cl_mem buffer, cl_uint value, cl_uint waits,
                        const cl_event *wait_list, cl_event *event)
{
    size_t global = WORDS;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof value, &value));
    CHECK_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, waits, wait_list, event));
}

static void check_words(cl_command_queue queue, cl_mem buffer, cl_uint expected)
{
    cl_uint words[WORDS];
    memset(words, 0xee, sizeof words);
    CHECK_CL(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    size_t wrong = 0;
    for (size_t i = 0; i < WORDS; i++)
        wrong += words[i] != expected;
    if (!CHECK(wrong == 0))
        dv_test_detail("%zu of %d words wrong, first is %u instead of %u", wrong, WORDS, words[0], expected);
}

static cl_mem make_zeroed(const struct dv_test *test)
{
    cl_uint zeros[WORDS] = {0};
    return dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros);
}

static void test_queries(const struct dv_test *test)
{
    dv_test_section("queries");
    cl_event user = make_user_event(test);
    CHECK(dv_test_event_status(user) == CL_SUBMITTED);
    CHECK(dv_test_event_references(user) == 1);
    cl_command_type type = 0;
    CHECK_CL(clGetEventInfo(user, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_COMMAND_USER);
    cl_command_queue queue = test->queue;
    CHECK_CL(clGetEventInfo(user, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL));
    CHECK(queue == NULL);
    cl_context context = NULL;
    CHECK_CL(clGetEventInfo(user, CL_EVENT_CONTEXT, sizeof context, &context, NULL));
    CHECK(context == test->context);
    cl_ulong time;
    CHECK_ERROR(clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL),
                CL_PROFILING_INFO_NOT_AVAILABLE);

    CHECK_ERROR(clSetUserEventStatus(user, CL_RUNNING), CL_INVALID_VALUE);
    CHECK_ERROR(clSetUserEventStatus(user, CL_QUEUED), CL_INVALID_VALUE);
    CHECK(dv_test_event_status(user) == CL_SUBMITTED);
    CHECK_CL(clSetUserEventStatus(user, CL_COMPLETE));
    CHECK(dv_test_event_status(user) == CL_COMPLETE);
    CHECK_ERROR(clSetUserEventStatus(user, CL_COMPLETE), CL_INVALID_OPERATION);
    CHECK_ERROR(clSetUserEventStatus(user, -7), CL_INVALID_OPERATION);
    CHECK_CL(clWaitForEvents(1, &user));

    cl_event command;
    CHECK_CL(clEnqueueMarkerWithWaitList(test->queue, 1, &user, &command));
    CHECK_CL(clFinish(test->queue));
    CHECK_ERROR(clSetUserEventStatus(command, CL_COMPLETE), CL_INVALID_EVENT);
    CHECK_CL(clReleaseEvent(command));

    CHECK_CL(clRetainEvent(user));
    CHECK(dv_test_event_references(user) == 2);
    CHECK_CL(clReleaseEvent(user));
    CHECK_CL(clReleaseEvent(user));
}

/* One command of each kind behind the gate; in the gated in-order queue also commands that have no
 * wait list of their own. Meanwhile other queues work. */
static void test_gate(const struct dv_test *test, cl_kernel kernel, bool in_order)
{
    dv_test_section(in_order ? "gate, in order" : "gate, out of order");
    cl_int error;
    cl_command_queue gated = clCreateCommandQueue(test->context, test->device,
                                                  in_order ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    REQUIRE_CL(error);
    cl_mem buffer = make_zeroed(test);
    cl_mem other = make_zeroed(test);
    cl_uint ones[WORDS], back[WORDS], host_copy[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        ones[i] = 1;
    memset(back, 0, sizeof back);
    memset(host_copy, 0, sizeof host_copy);

    cl_event user = make_user_event(test);
    cl_event events[8];
    size_t count = 0;
    cl_uint pattern = 3;
    CHECK_CL(clEnqueueWriteBuffer(gated, buffer, CL_FALSE, 0, sizeof ones, ones, 1, &user, &events[count++]));
    enqueue_add(gated, kernel, buffer, 10, 1, &events[count - 1], &events[count]);
    count++;
    CHECK_CL(clEnqueueReadBuffer(gated, buffer, CL_FALSE, 0, sizeof back, back, 1, &events[count - 1], &events[count]));
    count++;
    CHECK_CL(clEnqueueFillBuffer(gated, buffer, &pattern, sizeof pattern, 0, sizeof ones, 1, &events[count - 1],
                                 &events[count]));
    count++;
    CHECK_CL(clEnqueueCopyBuffer(gated, buffer, other, 0, 0, sizeof ones, 1, &events[count - 1], &events[count]));
    count++;
    void *mapped = clEnqueueMapBuffer(gated, other, CL_FALSE, CL_MAP_READ, 0, sizeof ones, 1, &events[count - 1],
                                      &events[count], &error);
    CHECK_CL(error);
    CHECK(mapped != NULL);
    count++;
    CHECK_CL(clEnqueueMarkerWithWaitList(gated, 1, &events[count - 1], &events[count]));
    count++;
    if (in_order) {
        /* No wait list: held back by the order of the queue alone. */
        CHECK_CL(clEnqueueReadBuffer(gated, buffer, CL_FALSE, 0, sizeof host_copy, host_copy, 0, NULL, &events[count]));
    } else {
        CHECK_CL(clEnqueueReadBuffer(gated, buffer, CL_FALSE, 0, sizeof host_copy, host_copy, 1, &events[count - 1],
                                     &events[count]));
    }
    count++;

    double before = dv_test_now_s();
    CHECK_CL(clFlush(gated));
    CHECK(dv_test_now_s() - before < 2.0);

    /* The other queues of the same context are not concerned. */
    cl_mem free_buffer = make_zeroed(test);
    for (int i = 0; i < 20; i++)
        enqueue_add(i % 2 ? test->queue : test->queue, kernel, free_buffer, 1, 0, NULL, NULL);
    CHECK_CL(clFinish(test->queue));
    check_words(test->queue, free_buffer, 20);
    enqueue_add(test->ooo_queue, kernel, free_buffer, 1, 0, NULL, NULL);
    CHECK_CL(clFinish(test->ooo_queue));
    check_words(test->ooo_queue, free_buffer, 21);

    dv_test_sleep_ms(30);
    for (size_t i = 0; i < count; i++) {
        cl_int status = dv_test_event_status(events[i]);
        if (!CHECK(status == CL_QUEUED || status == CL_SUBMITTED))
            dv_test_detail("command %zu has status %d before its user event", i, status);
    }
    CHECK(back[0] == 0 && host_copy[0] == 0);

    CHECK_CL(clSetUserEventStatus(user, CL_COMPLETE));
    CHECK_CL(clFinish(gated));
    for (size_t i = 0; i < count; i++)
        CHECK(dv_test_event_status(events[i]) == CL_COMPLETE);
    CHECK(back[0] == 11 && back[WORDS - 1] == 11);
    CHECK(host_copy[0] == 3 && host_copy[WORDS - 1] == 3);
    if (mapped)
        CHECK(((cl_uint *)mapped)[0] == 3 && ((cl_uint *)mapped)[WORDS - 1] == 3);
    CHECK_CL(clEnqueueUnmapMemObject(gated, other, mapped, 0, NULL, NULL));
    CHECK_CL(clFinish(gated));

    for (size_t i = 0; i < count; i++)
        CHECK_CL(clReleaseEvent(events[i]));
    CHECK_CL(clReleaseEvent(user));
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseMemObject(other));
    CHECK_CL(clReleaseMemObject(free_buffer));
    CHECK_CL(clReleaseCommandQueue(gated));
}

static void CL_CALLBACK note_status(cl_event event, cl_int status, void *data)
{
    (void)event;
    atomic_store((atomic_int *)data, status);
}

/* Commands enqueued when their wait list has already failed: a blocking one says so at once, the
 * others through their events, and none of them does anything. */
static void test_after_failure(const struct dv_test *test, cl_kernel kernel, cl_mem buffer, cl_event failed)
{
    enum { COMMANDS = 6 };
    cl_uint word = 0, pattern = 77, host[WORDS];
    memset(host, 0x5a, sizeof host);
    for (int in_order = 0; in_order < 2; in_order++) {
        cl_int error;
        cl_command_queue queue = clCreateCommandQueue(test->context, test->device,
                                                      in_order ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
        REQUIRE_CL(error);
        CHECK_ERROR(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 1, &failed, NULL),
                    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        CHECK_ERROR(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 1, &failed, NULL),
                    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        CHECK(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 1, &failed, NULL, &error) == NULL);
        CHECK_ERROR(error, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        cl_event events[COMMANDS] = {NULL};
        CHECK_CL(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof host, host, 1, &failed, &events[0]));
        CHECK_CL(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof host, host, 1, &failed, &events[1]));
        CHECK_CL(clEnqueueFillBuffer(queue, buffer, &pattern, 4, 0, 64, 1, &failed, &events[2]));
        enqueue_add(queue, kernel, buffer, 1, 1, &failed, &events[3]);
        CHECK_CL(clEnqueueMarkerWithWaitList(queue, 1, &failed, &events[4]));
        CHECK_CL(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 512, 64, 1, &failed, &events[5]));
        CHECK_CL(clFlush(queue));
        for (int i = 0; i < COMMANDS; i++) {
            CHECK_ERROR(clWaitForEvents(1, &events[i]), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
            if (!CHECK_ERROR(dv_test_event_status(events[i]), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST))
                dv_test_detail("command %d, %s", i, in_order ? "in order" : "out of order");
            CHECK_CL(clReleaseEvent(events[i]));
        }
        CHECK_CL(clFinish(queue));
        CHECK(host[0] == 0x5a5a5a5a && host[WORDS - 1] == 0x5a5a5a5a);
        CHECK_CL(clReleaseCommandQueue(queue));
    }
    check_words(test->queue, buffer, 100);
}

/* clSetUserEventStatus with a negative value ends the commands that wait, directly or not. */
static void test_error(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("error status");
    cl_mem buffer = make_zeroed(test);
    cl_event user = make_user_event(test);
    cl_uint ones[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        ones[i] = 1;
    cl_event events[4];
    atomic_int seen = 1000;
    CHECK_CL(clEnqueueWriteBuffer(test->ooo_queue, buffer, CL_FALSE, 0, sizeof ones, ones, 1, &user, &events[0]));
    enqueue_add(test->ooo_queue, kernel, buffer, 10, 1, &events[0], &events[1]);
    CHECK_CL(clEnqueueMarkerWithWaitList(test->ooo_queue, 1, &events[1], &events[2]));
    enqueue_add(test->ooo_queue, kernel, buffer, 100, 0, NULL, &events[3]);
    CHECK_CL(clSetEventCallback(events[1], CL_COMPLETE, note_status, &seen));
    CHECK_CL(clFlush(test->ooo_queue));

    CHECK_CL(clSetUserEventStatus(user, -4711));
    CHECK(dv_test_event_status(user) == -4711);
    CHECK_ERROR(clWaitForEvents(1, &user), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    for (int i = 0; i < 3; i++) {
        CHECK_ERROR(clWaitForEvents(1, &events[i]), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        CHECK(dv_test_event_status(events[i]) < 0);
        CHECK_EXCEPT_POCL(dv_test_event_status(events[i]) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                          "5.11: a command ended because of its wait list has this status");
    }
    CHECK_CL(clWaitForEvents(1, &events[3]));
    CHECK(dv_test_event_status(events[3]) == CL_COMPLETE);
    cl_event mixed[2] = {events[3], events[0]};
    CHECK_ERROR(clWaitForEvents(2, mixed), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    for (int i = 0; i < 100 && atomic_load(&seen) == 1000; i++)
        dv_test_sleep_ms(10);
    CHECK_EXCEPT_POCL(atomic_load(&seen) < 0, "5.11 clSetEventCallback: called for CL_COMPLETE or a negative status");

    /* The queue is still good, and the ended commands did nothing. */
    CHECK_CL(clFinish(test->ooo_queue));
    check_words(test->ooo_queue, buffer, 100);

    if (!dv_test_pocl_dies("5.2.2: no return from a blocking read with a failed wait list"))
        test_after_failure(test, kernel, buffer, events[0]);

    for (int i = 0; i < 4; i++)
        CHECK_CL(clReleaseEvent(events[i]));
    CHECK_CL(clReleaseEvent(user));
    CHECK_CL(clReleaseMemObject(buffer));
}

/* A barrier that waits for a user event holds back what comes later in its own queue only. */
static void test_barrier(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("barrier on a user event");
    cl_mem buffer = make_zeroed(test);
    cl_event user = make_user_event(test);
    cl_event early, barrier, late;
    enqueue_add(test->ooo_queue, kernel, buffer, 1, 0, NULL, &early);
    CHECK_CL(clEnqueueBarrierWithWaitList(test->ooo_queue, 1, &user, &barrier));
    enqueue_add(test->ooo_queue, kernel, buffer, 2, 0, NULL, &late);
    CHECK_CL(clFlush(test->ooo_queue));
    CHECK_CL(clWaitForEvents(1, &early));
    dv_test_sleep_ms(20);
    CHECK(dv_test_event_status(barrier) > CL_COMPLETE);
    CHECK(dv_test_event_status(late) > CL_RUNNING);
    check_words(test->queue, buffer, 1);
    CHECK_CL(clSetUserEventStatus(user, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &late));
    check_words(test->queue, buffer, 3);
    CHECK_CL(clReleaseEvent(early));
    CHECK_CL(clReleaseEvent(barrier));
    CHECK_CL(clReleaseEvent(late));
    CHECK_CL(clReleaseEvent(user));
    CHECK_CL(clReleaseMemObject(buffer));
}

struct setter {
    cl_event event;
    unsigned delay_ms;
    cl_int result;
};

static void *set_later(void *data)
{
    struct setter *setter = data;
    dv_test_sleep_ms(setter->delay_ms);
    setter->result = clSetUserEventStatus(setter->event, CL_COMPLETE);
    return NULL;
}

/* Every call that may block wakes up when another thread completes the event. */
static void test_wake_up(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("wake-up from another thread");
    for (int way = 0; way < 5; way++) {
        cl_mem buffer = make_zeroed(test);
        cl_event user = make_user_event(test);
        cl_event done;
        enqueue_add(test->queue, kernel, buffer, 5, 1, &user, &done);
        struct setter setter = {user, 40, CL_SUCCESS};
        pthread_t thread;
        double before = dv_test_now_s();
        REQUIRE(pthread_create(&thread, NULL, set_later, &setter) == 0);
        cl_uint word = 0;
        cl_int error;
        switch (way) {
        case 0:
            CHECK_CL(clWaitForEvents(1, &done));
            break;
        case 1:
            CHECK_CL(clFinish(test->queue));
            break;
        case 2:
            CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL));
            CHECK(word == 5);
            break;
        case 3: {
            cl_uint *mapped =
                clEnqueueMapBuffer(test->queue, buffer, CL_TRUE, CL_MAP_READ, 0, sizeof word, 0, NULL, NULL, &error);
            CHECK_CL(error);
            CHECK(mapped && mapped[0] == 5);
            CHECK_CL(clEnqueueUnmapMemObject(test->queue, buffer, mapped, 0, NULL, NULL));
            break;
        }
        default:
            CHECK_CL(clWaitForEvents(1, &user));
            break;
        }
        double waited = dv_test_now_s() - before;
        if (!CHECK(waited > 0.02 && waited < 5.0))
            dv_test_detail("way %d waited %.3f s", way, waited);
        REQUIRE(pthread_join(thread, NULL) == 0);
        CHECK_CL(setter.result);
        CHECK_CL(clWaitForEvents(1, &done));
        check_words(test->queue, buffer, 5);
        CHECK_CL(clReleaseEvent(done));
        CHECK_CL(clReleaseEvent(user));
        CHECK_CL(clReleaseMemObject(buffer));
    }
}

/* Many gates, opened in random order, over a chain that crosses queues. */
static void test_many_gates(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("many gates");
    enum { GATES = 60 };
    uint64_t random = 99;
    cl_mem buffer = make_zeroed(test);
    cl_event gates[GATES], steps[GATES];
    for (int i = 0; i < GATES; i++) {
        gates[i] = make_user_event(test);
        cl_event waits[2] = {gates[i], i ? steps[i - 1] : gates[i]};
        enqueue_add(i % 2 ? test->queue : test->ooo_queue, kernel, buffer, 1, 2, waits, &steps[i]);
    }
    CHECK_CL(clFlush(test->queue));
    CHECK_CL(clFlush(test->ooo_queue));
    int order[GATES];
    for (int i = 0; i < GATES; i++)
        order[i] = i;
    for (int i = GATES - 1; i > 0; i--) {
        int j = (int)(dv_test_random(&random) % (uint64_t)(i + 1));
        int swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < GATES; i++) {
        /* The chain has advanced exactly over the leading open gates, never past a closed one. */
        CHECK(dv_test_event_status(steps[order[i]]) > CL_RUNNING);
        CHECK_CL(clSetUserEventStatus(gates[order[i]], CL_COMPLETE));
    }
    CHECK_CL(clWaitForEvents(1, &steps[GATES - 1]));
    check_words(test->queue, buffer, GATES);
    for (int i = 0; i < GATES; i++) {
        CHECK_CL(clReleaseEvent(steps[i]));
        CHECK_CL(clReleaseEvent(gates[i]));
    }
    CHECK_CL(clReleaseMemObject(buffer));
}

/* The application lets go of its handles while the commands still wait. */
static void test_release_before_set(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("released handles");
    cl_mem buffer = make_zeroed(test);
    cl_event user = make_user_event(test);
    cl_event done;
    enqueue_add(test->ooo_queue, kernel, buffer, 1, 1, &user, &done);
    enqueue_add(test->ooo_queue, kernel, buffer, 1, 1, &done, NULL);
    CHECK_CL(clReleaseEvent(done));
    CHECK_CL(clSetUserEventStatus(user, CL_COMPLETE));
    CHECK_CL(clReleaseEvent(user));
    CHECK_CL(clFinish(test->ooo_queue));
    check_words(test->queue, buffer, 2);
    CHECK_CL(clReleaseMemObject(buffer));
}

/* Runs in a process of its own: the event never comes; the program releases what it has (how = 1)
 * or nothing (how = 0) and returns from main. */
static int never(int how)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "add");
    cl_mem buffer = make_zeroed(&test);
    cl_event user = make_user_event(&test);
    static cl_uint host[WORDS];
    cl_event done;
    enqueue_add(test.queue, kernel, buffer, 1, 1, &user, &done);
    CHECK_CL(clEnqueueReadBuffer(test.queue, buffer, CL_FALSE, 0, sizeof host, host, 0, NULL, NULL));
    CHECK_CL(clEnqueueWriteBuffer(test.ooo_queue, buffer, CL_FALSE, 0, sizeof host, host, 1, &done, NULL));
    CHECK_CL(clFlush(test.queue));
    CHECK_CL(clFlush(test.ooo_queue));
    if (how == 1) {
        CHECK_CL(clReleaseEvent(done));
        CHECK_CL(clReleaseEvent(user));
        CHECK_CL(clReleaseKernel(kernel));
        CHECK_CL(clReleaseProgram(program));
        CHECK_CL(clReleaseMemObject(buffer));
        CHECK_CL(clReleaseCommandQueue(test.queue));
        CHECK_CL(clReleaseCommandQueue(test.ooo_queue));
        CHECK_CL(clReleaseContext(test.context));
    }
    return dv_test_result("user_events (never)");
}

static void test_never(const char *self)
{
    dv_test_section("event that never comes");
    for (int how = 0; how < 2; how++) {
        char number[] = {(char)('0' + how), 0};
        char *arguments[] = {(char *)self, "never", number, NULL};
        pid_t pid;
        REQUIRE(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
        int status = -1;
        double deadline = dv_test_now_s() + 60.0;
        pid_t ended = 0;
        while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && dv_test_now_s() < deadline)
            dv_test_sleep_ms(20);
        if (!CHECK(ended == pid)) {
            dv_test_detail("the process did not end (%s)", how ? "all released" : "no release");
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
        } else if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
            dv_test_detail("wait status 0x%x (%s)", status, how ? "all released" : "no release");
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "never") == 0)
        return never(atoi(argv[2]));
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "add");
    test_queries(&test);
    test_gate(&test, kernel, true);
    test_gate(&test, kernel, false);
    test_error(&test, kernel);
    test_barrier(&test, kernel);
    test_wake_up(&test, kernel);
    test_many_gates(&test, kernel);
    test_release_before_set(&test, kernel);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    test_never("/proc/self/exe");
    return dv_test_result("user_events");
}
