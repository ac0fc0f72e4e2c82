/* A tenant whose session can be parked at "ready" and at each "right", until it reads a line: then it goes on with
 * objects of every kind, among them some that were released, and with commands that waited all the while.
 *
 * Exit code 0: everything was right. */
#include "check.h"

#define WORDS (256u << 10)
#define SIDE 32u
#define ROUNDS_MAX 100

static const char *const source =
    "kernel void add(global uint *data, uint what) { data[get_global_id(0)] += what; }\n"
    "kernel void sum(global uint *into, global const uint *a, global const uint *b, local uint *own) {\n"
    "    own[get_local_id(0)] = a[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    into[get_global_id(0)] = own[get_local_id(0)] + b[get_global_id(0)];\n"
    "}\n"
    "kernel void look(global uint *into, read_only image2d_t image, sampler_t sampler) {\n"
    "    int2 at = (int2)(get_global_id(0) % 32, get_global_id(0) / 32);\n"
    "    into[get_global_id(0)] = read_imageui(image, sampler, at).x;\n"
    "}\n";
static const char *const part_source = "uint twice(uint x) { return 2 * x; }\n";
static const char *const whole_source = "uint twice(uint x);\n"
                                        "kernel void doubled(global uint *data) {\n"
                                        "    data[get_global_id(0)] = twice(data[get_global_id(0)]);\n"
                                        "}\n";

/* What stays over all rounds. */
struct objects {
    cl_mem data, sub, other, image;
    cl_sampler sampler;
    cl_kernel add, sum, look, doubled, copy;
    cl_uint expected; /* each word of data, less its index */
};

static cl_program linked(const struct dv_test *test)
{
    cl_int error;
    cl_program parts[2];
    const char *texts[2] = {part_source, whole_source};

    for (int i = 0; i < 2; i++) {
        parts[i] = clCreateProgramWithSource(test->context, 1, &texts[i], NULL, &error);
        REQUIRE_CL(error);
        REQUIRE_CL(clCompileProgram(parts[i], 0, NULL, "", 0, NULL, NULL, NULL, NULL));
    }
    cl_program program = clLinkProgram(test->context, 0, NULL, "", 2, parts, NULL, NULL, &error);
    REQUIRE_CL(error);
    for (int i = 0; i < 2; i++) /* a worker that follows needs them all the same */
        REQUIRE_CL(clReleaseProgram(parts[i]));
    return program;
}

static struct objects make(const struct dv_test *test)
{
    struct objects o = {.expected = 0};
    cl_program program = dv_test_build(test, source, "-DUNUSED=1"), link = linked(test);
    cl_uint *words = malloc(WORDS * sizeof *words);
    cl_int error;

    REQUIRE(words);
    for (cl_uint i = 0; i < WORDS; i++)
        words[i] = i;
    o.data = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, WORDS * sizeof *words, words);
    o.other = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, WORDS * sizeof *words, words);
    cl_buffer_region region = {.origin = 4096, .size = 4096};
    o.sub = clCreateSubBuffer(o.data, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    REQUIRE_CL(error);
    const cl_image_format format = {.image_channel_order = CL_R, .image_channel_data_type = CL_UNSIGNED_INT32};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
    o.image = clCreateImage(test->context, CL_MEM_COPY_HOST_PTR, &format, &desc, words, &error);
    REQUIRE_CL(error);
    o.sampler = clCreateSampler(test->context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &error);
    REQUIRE_CL(error);
    o.add = dv_test_kernel(program, "add");
    o.sum = dv_test_kernel(program, "sum");
    o.look = dv_test_kernel(program, "look");
    o.doubled = dv_test_kernel(link, "doubled");
    cl_uint five = 5;
    REQUIRE_CL(clSetKernelArg(o.add, 0, sizeof o.data, &o.data));
    REQUIRE_CL(clSetKernelArg(o.add, 1, sizeof five, &five));
    o.copy = clCloneKernel(o.add, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clSetKernelArg(o.look, 1, sizeof o.image, &o.image));
    REQUIRE_CL(clSetKernelArg(o.look, 2, sizeof o.sampler, &o.sampler));
    REQUIRE_CL(clReleaseProgram(program));
    REQUIRE_CL(clReleaseProgram(link));
    free(words);
    return o;
}

static void launch(cl_command_queue queue, cl_kernel kernel, size_t count, cl_uint waits, const cl_event *list,
                   cl_event *event)
{
    const size_t local = 32;

    REQUIRE_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, &local, waits, list, event));
}

static void await_line(const char *said)
{
    char line[16];

    printf("%s\n", said);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(dv_test_result("parked"));
}

/* All of data is as expected. */
static void check_data(const struct dv_test *test, const struct objects *o)
{
    cl_uint *words = malloc(WORDS * sizeof *words), wrong = 0;

    REQUIRE(words);
    REQUIRE_CL(clEnqueueReadBuffer(test->queue, o->data, CL_TRUE, 0, WORDS * sizeof *words, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < WORDS; i++)
        wrong += words[i] != i + o->expected;
    CHECK(wrong == 0);
    free(words);
}

/* Launches that wait for a user event, with arguments that are other ones by then, and objects released by then. */
static void check_waiting(const struct dv_test *test, struct objects *o, const char *said)
{
    cl_int error;
    cl_event gate = clCreateUserEvent(test->context, &error), failed = clCreateUserEvent(test->context, &error);
    cl_event done[3], never;
    cl_mem brief = dv_test_buffer(test, 0, WORDS * sizeof(cl_uint), NULL);
    cl_uint seven = 7, nine = 9, words[WORDS / 1024], pattern = 3;
    const size_t own = 32 * sizeof(cl_uint);

    REQUIRE_CL(error);
    REQUIRE_CL(clSetUserEventStatus(failed, -77));
    REQUIRE_CL(clEnqueueFillBuffer(test->ooo_queue, brief, &pattern, sizeof pattern, 0, WORDS * sizeof(cl_uint), 1,
                                   &gate, &done[0]));
    REQUIRE_CL(clSetKernelArg(o->sum, 0, sizeof o->other, &o->other));
    REQUIRE_CL(clSetKernelArg(o->sum, 1, sizeof brief, &brief));
    REQUIRE_CL(clSetKernelArg(o->sum, 2, sizeof o->data, &o->data));
    REQUIRE_CL(clSetKernelArg(o->sum, 3, own, NULL));
    launch(test->ooo_queue, o->sum, WORDS, 1, &done[0], &done[1]);
    REQUIRE_CL(clReleaseMemObject(brief));
    REQUIRE_CL(clSetKernelArg(o->add, 1, sizeof seven, &seven));
    launch(test->queue, o->add, WORDS, 1, &done[1], &done[2]);
    REQUIRE_CL(clSetKernelArg(o->add, 1, sizeof nine, &nine));
    REQUIRE_CL(clFlush(test->queue));
    REQUIRE_CL(clFlush(test->ooo_queue));

    await_line(said);

    REQUIRE_CL(clEnqueueBarrierWithWaitList(test->ooo_queue, 1, &failed, &never));
    CHECK_ERROR(clWaitForEvents(1, &never), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    REQUIRE_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    REQUIRE_CL(clWaitForEvents(1, &done[2]));
    REQUIRE_CL(clEnqueueReadBuffer(test->queue, o->other, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < COUNT_OF(words); i++)
        if (!CHECK(words[i] == i + o->expected + 3))
            break;
    o->expected += seven;
    check_data(test, o);
    launch(test->queue, o->add, WORDS, 0, NULL, NULL);  /* with the nine that was set meanwhile */
    launch(test->queue, o->copy, WORDS, 0, NULL, NULL); /* with the five of its original */
    o->expected += nine + 5;
    cl_ulong start = 0, queued = 0;
    CHECK_CL(clGetEventProfilingInfo(done[2], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
    CHECK_CL(clGetEventProfilingInfo(done[2], CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL));
    CHECK(start > queued);
    for (int i = 0; i < 3; i++)
        CHECK_CL(clReleaseEvent(done[i]));
    CHECK_CL(clReleaseEvent(never));
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clReleaseEvent(failed));
}

/* Images, samplers, parts of buffers, linked programs. */
static void check_others(const struct dv_test *test, struct objects *o)
{
    cl_uint words[SIDE * SIDE], part[1024];

    REQUIRE_CL(clSetKernelArg(o->look, 0, sizeof o->other, &o->other));
    launch(test->queue, o->look, SIDE * SIDE, 0, NULL, NULL);
    REQUIRE_CL(clEnqueueReadBuffer(test->queue, o->other, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < SIDE * SIDE; i++)
        if (!CHECK(words[i] == i))
            break;
    REQUIRE_CL(clSetKernelArg(o->doubled, 0, sizeof o->sub, &o->sub));
    launch(test->queue, o->doubled, 1024, 0, NULL, NULL);
    REQUIRE_CL(clEnqueueReadBuffer(test->queue, o->sub, CL_TRUE, 0, sizeof part, part, 0, NULL, NULL));
    for (cl_uint i = 0; i < 1024; i++) {
        if (!CHECK(part[i] == 2 * (1024 + i + o->expected)))
            break;
        part[i] /= 2;
    }
    REQUIRE_CL(clEnqueueWriteBuffer(test->queue, o->sub, CL_TRUE, 0, sizeof part, part, 0, NULL, NULL));
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    struct objects o = make(&test);

    for (int round = 0; round < ROUNDS_MAX; round++) {
        check_waiting(&test, &o, round ? "right" : "ready");
        check_others(&test, &o);
        check_data(&test, &o);
    }
    return dv_test_result("parked");
}
