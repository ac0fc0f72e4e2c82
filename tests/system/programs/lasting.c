/* A tenant with kernels that take long, in many work-groups.
 *
 *     lasting run SECONDS [MIB]  launches over a buffer, one by one;
 *                                prints "ready" when the first is over
 *     lasting order              launches in an out-of-order queue,
 *                                releases objects while they run
 *     lasting print              a kernel in which each group prints
 *     lasting measure            a kernel that drivers compile for long;
 *                                prints the milliseconds of two launches
 *                                by the clock and by their profiles
 *
 * Exit code 0: everything was right. */
#include "check.h"

#include <time.h>
#include <unistd.h>

#define GROUPS 256u
#define ROUNDS 800000u /* some 300 ms on one core */
#define LINES 64u

static const char *const source =
    "kernel void last(global uint *data, uint words, uint rounds) {\n"
    "    uint i = get_global_id(0), value = data[i];\n"
    "    for (uint r = 0; r < rounds; r++) value = value * 1664525u + 1013904223u;\n"
    "    for (uint at = i; at < words; at += get_global_size(0)) data[at] = value + at;\n"
    "}\n"
    "kernel void add(global uint *sum, global const uint *a, global const uint *b) {\n"
    "    sum[get_global_id(0)] = a[get_global_id(0)] + b[get_global_id(0)];\n"
    "}\n"
    "kernel void tell(uint rounds) {\n"
    "    uint value = get_global_id(0);\n"
    "    for (uint r = 0; r < rounds; r++) value = value * 1664525u + 1013904223u;\n"
    "    printf(\"group %u of %u: %u\\n\", (uint)get_group_id(0), (uint)get_num_groups(0), value);\n"
    "}\n";
static const size_t groups = GROUPS, one = 1;

static cl_event launch(cl_command_queue queue, cl_kernel kernel, cl_mem buffer, cl_uint words, cl_uint rounds)
{
    cl_event event;

    REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    REQUIRE_CL(clSetKernelArg(kernel, 1, sizeof words, &words));
    REQUIRE_CL(clSetKernelArg(kernel, 2, sizeof rounds, &rounds));
    REQUIRE_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &groups, &one, 0, NULL, &event));
    return event;
}

static cl_uint advanced(cl_uint value, cl_uint rounds)
{
    for (cl_uint r = 0; r < rounds; r++)
        value = value * 1664525u + 1013904223u;
    return value;
}

/* ---- run ---- */

static void run(struct dv_test *test, double seconds, size_t bytes)
{
    cl_uint words = (cl_uint)(bytes / sizeof(cl_uint));
    cl_program program = dv_test_build(test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "last");
    cl_uint *data = calloc(words, sizeof *data);
    REQUIRE(data);
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, bytes, data);
    double end = dv_test_now_s() + seconds;
    unsigned launches = 0, wrong = 0;

    while (launches == 0 || dv_test_now_s() < end) {
        cl_event event = launch(test->queue, kernel, buffer, words, ROUNDS);
        REQUIRE_CL(clWaitForEvents(1, &event));
        CHECK_CL(clReleaseEvent(event));
        if (launches++ == 0) {
            puts("ready");
            fflush(stdout);
        }
    }
    REQUIRE_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL));
    for (cl_uint i = 0; i < GROUPS; i++) {
        cl_uint value = 0;
        for (unsigned n = 0; n < launches; n++)
            value = advanced(value, ROUNDS) + i;
        for (cl_uint at = i; at < words; at += GROUPS)
            wrong += data[at] != value - i + at;
    }
    CHECK(wrong == 0);
    printf("launches %u\n", launches);
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    free(data);
}

/* ---- order ---- */

static cl_ulong when(cl_event event, cl_profiling_info what)
{
    cl_ulong ns = 0;

    CHECK_CL(clGetEventProfilingInfo(event, what, sizeof ns, &ns, NULL));
    return ns;
}

static void CL_CALLBACK count_call(cl_event event, cl_int status, void *count)
{
    (void)event;
    if (status == CL_COMPLETE)
        atomic_fetch_add((atomic_uint *)count, 1);
}

/* Two launches in any order, then the sum of both, which waits for the two; the program holds nothing but events. */
static void order(struct dv_test *test)
{
    static atomic_uint calls;
    cl_program program = dv_test_build(test, source, "");
    cl_kernel last = dv_test_kernel(program, "last"), add = dv_test_kernel(program, "add");
    cl_uint data[GROUPS] = {0};
    cl_mem a = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof data, data);
    cl_mem b = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof data, data);
    cl_mem sum = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof data, data);
    cl_event events[3], read;

    /* How long it takes is known afterwards. */
    cl_event first = launch(test->queue, last, sum, GROUPS, ROUNDS);
    CHECK_CL(clWaitForEvents(1, &first));
    CHECK_CL(clReleaseEvent(first));
    events[0] = launch(test->ooo_queue, last, a, GROUPS, ROUNDS);
    events[1] = launch(test->ooo_queue, last, b, GROUPS, ROUNDS + 1);
    CHECK_CL(clSetEventCallback(events[0], CL_COMPLETE, count_call, &calls));
    CHECK_CL(clSetKernelArg(add, 0, sizeof sum, &sum));
    CHECK_CL(clSetKernelArg(add, 1, sizeof a, &a));
    CHECK_CL(clSetKernelArg(add, 2, sizeof b, &b));
    CHECK_CL(clEnqueueNDRangeKernel(test->ooo_queue, add, 1, NULL, &groups, &one, 2, events, &events[2]));
    CHECK_CL(clEnqueueReadBuffer(test->ooo_queue, sum, CL_FALSE, 0, sizeof data, data, 1, &events[2], &read));
    CHECK_CL(clFlush(test->ooo_queue));
    dv_test_sleep_ms(50); /* the first runs now */
    CHECK(dv_test_event_status(events[2]) != CL_COMPLETE);
    CHECK_CL(clReleaseKernel(last));
    CHECK_CL(clReleaseKernel(add));
    CHECK_CL(clReleaseProgram(program));
    CHECK_CL(clReleaseMemObject(a));
    CHECK_CL(clReleaseMemObject(b));
    CHECK_CL(clReleaseMemObject(sum));
    CHECK_CL(clWaitForEvents(1, &read));
    for (unsigned i = 0; i < GROUPS; i++)
        CHECK(data[i] == advanced(0, ROUNDS) + advanced(0, ROUNDS + 1) + 2 * i);
    for (unsigned i = 0; i < 2; i++) {
        cl_ulong start = when(events[i], CL_PROFILING_COMMAND_START), end = when(events[i], CL_PROFILING_COMMAND_END);
        CHECK(when(events[i], CL_PROFILING_COMMAND_QUEUED) <= when(events[i], CL_PROFILING_COMMAND_SUBMIT));
        CHECK(when(events[i], CL_PROFILING_COMMAND_SUBMIT) <= start && start < end);
        CHECK(end - start > 50000000u); /* of all its work-groups, not of the last ones */
        CHECK(end <= when(events[2], CL_PROFILING_COMMAND_START));
    }
    for (unsigned i = 0; i < 100 && atomic_load(&calls) == 0; i++)
        dv_test_sleep_ms(10);
    CHECK(atomic_load(&calls) == 1);
    for (unsigned i = 0; i < 3; i++)
        CHECK_CL(clReleaseEvent(events[i]));
    CHECK_CL(clReleaseEvent(read));
}

/* ---- print ---- */

static void print(struct dv_test *test)
{
    cl_program program = dv_test_build(test, source, "");
    cl_kernel tell = dv_test_kernel(program, "tell");
    const cl_uint rounds = ROUNDS * (GROUPS / LINES);
    const size_t lines = LINES;

    CHECK_CL(clSetKernelArg(tell, 0, sizeof rounds, &rounds));
    for (unsigned i = 0; i < 2; i++)
        CHECK_CL(clEnqueueNDRangeKernel(test->queue, tell, 1, NULL, &lines, &one, 0, NULL, NULL));
    CHECK_CL(clFinish(test->queue));
    CHECK_CL(clReleaseKernel(tell));
    CHECK_CL(clReleaseProgram(program));
}

/* ---- measure ---- */

/* No driver has it in a cache. */
static char *slow_to_compile(void)
{
    enum { STATEMENTS = 500 };
    char *text = malloc(STATEMENTS * 64 + 1024), *end = text;

    REQUIRE(text);
    end += sprintf(end, "kernel void slow(global uint *data) {\n    uint v = get_global_id(0) + %lldu;\n",
                   (long long)(time(NULL) * 1000 + getpid()) % 1000000007);
    for (unsigned i = 0; i < STATEMENTS; i++)
        end += sprintf(end, "    v = v * %uu + (v >> %u);\n", 2 * i + 1, i % 31 + 1);
    sprintf(end, "    data[get_global_id(0)] = v;\n}\n");
    return text;
}

static void measure(struct dv_test *test)
{
    char *text = slow_to_compile();
    cl_program program = dv_test_build(test, text, "");
    cl_kernel kernel = dv_test_kernel(program, "slow");
    cl_mem buffer = dv_test_buffer(test, 0, LINES * sizeof(cl_uint), NULL);
    const size_t lines = LINES;

    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (unsigned i = 0; i < 2; i++) {
        double begin = dv_test_now_s();
        cl_event event;
        REQUIRE_CL(clEnqueueNDRangeKernel(test->ooo_queue, kernel, 1, NULL, &lines, &one, 0, NULL, &event));
        REQUIRE_CL(clWaitForEvents(1, &event));
        printf("%.1f %.1f\n", (dv_test_now_s() - begin) * 1e3,
               (double)(when(event, CL_PROFILING_COMMAND_END) - when(event, CL_PROFILING_COMMAND_START)) / 1e6);
        CHECK(when(event, CL_PROFILING_COMMAND_SUBMIT) <= when(event, CL_PROFILING_COMMAND_START));
        CHECK_CL(clReleaseEvent(event));
    }
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    free(text);
}

int main(int argc, char **argv)
{
    struct dv_test test = dv_test_setup();

    if (argc > 2 && strcmp(argv[1], "run") == 0)
        run(&test, strtod(argv[2], NULL),
            argc > 3 ? (size_t)strtoul(argv[3], NULL, 0) << 20 : GROUPS * sizeof(cl_uint));
    else if (argc > 1 && strcmp(argv[1], "order") == 0)
        order(&test);
    else if (argc > 1 && strcmp(argv[1], "print") == 0)
        print(&test);
    else if (argc > 1 && strcmp(argv[1], "measure") == 0)
        measure(&test);
    else
        return 2;
    dv_test_teardown(&test);
    return dv_test_result("lasting");
}
