/* Transfers that share host memory without the host waiting in between: data read into a block of
 * host memory is the source of the next write. The order of the commands alone must make that
 * right, whatever way the data takes. */
#include "check.h"

static const char *const source = "kernel void increment(global uchar *data) { data[get_global_id(0)] += 1; }\n";

static const size_t sizes[] = {1,     3,         17,     255,     4095,    4096,           4097,    65536 - 1,
                               65536, 65536 + 1, 262144, 1000003, 1 << 20, (1 << 20) + 64, 3 << 20, 8 << 20};

/* Commands that must run one after the other: on an in-order queue by the queue, otherwise by
 * events; alternate queues cross over by events at each step. */
struct chain {
    const struct dv_test *test;
    enum { IN_ORDER, OUT_OF_ORDER, ALTERNATING } way;
    cl_event last;
    unsigned steps;
};

static cl_command_queue chain_queue(struct chain *chain)
{
    if (chain->way == IN_ORDER)
        return chain->test->queue;
    if (chain->way == OUT_OF_ORDER)
        return chain->test->ooo_queue;
    return chain->steps % 2 ? chain->test->queue : chain->test->ooo_queue;
}

static cl_uint chain_waits(const struct chain *chain)
{
    return chain->way != IN_ORDER && chain->last ? 1 : 0;
}

static const cl_event *chain_list(const struct chain *chain)
{
    return chain_waits(chain) ? &chain->last : NULL;
}

static void chain_advance(struct chain *chain, cl_int error, const cl_event *event)
{
    REQUIRE_CL(error);
    if (chain->last)
        CHECK_CL(clReleaseEvent(chain->last));
    chain->last = *event;
    chain->steps++;
}

static void chain_read(struct chain *chain, cl_mem buffer, size_t offset, size_t size, void *to)
{
    cl_event event;
    chain_advance(chain,
                  clEnqueueReadBuffer(chain_queue(chain), buffer, CL_FALSE, offset, size, to, chain_waits(chain),
                                      chain_list(chain), &event),
                  &event);
}

static void chain_write(struct chain *chain, cl_mem buffer, size_t offset, size_t size, const void *from)
{
    cl_event event;
    chain_advance(chain,
                  clEnqueueWriteBuffer(chain_queue(chain), buffer, CL_FALSE, offset, size, from, chain_waits(chain),
                                       chain_list(chain), &event),
                  &event);
}

static void chain_increment(struct chain *chain, cl_kernel kernel, cl_mem buffer, size_t size)
{
    cl_event event;
    /* One work-item a group: no compilation for each size. */
    size_t local = 1;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    chain_advance(chain,
                  clEnqueueNDRangeKernel(chain_queue(chain), kernel, 1, NULL, &size, &local, chain_waits(chain),
                                         chain_list(chain), &event),
                  &event);
}

static void chain_end(struct chain *chain)
{
    CHECK_CL(clFlush(chain->test->queue));
    CHECK_CL(clFlush(chain->test->ooo_queue));
    CHECK_CL(clWaitForEvents(1, &chain->last));
    CHECK_CL(clReleaseEvent(chain->last));
    chain->last = NULL;
}

static void check_same(const unsigned char *got, const unsigned char *expected, size_t size, size_t total,
                       const char *what)
{
    if (CHECK(memcmp(got, expected, size) == 0))
        return;
    size_t first = 0;
    while (got[first] == expected[first])
        first++;
    dv_test_detail("%s of %zu bytes: byte %zu is 0x%02x, expected 0x%02x", what, total, first, got[first],
                   expected[first]);
}

static void check_buffer(const struct dv_test *test, cl_mem buffer, const unsigned char *expected, size_t size,
                         const char *what)
{
    unsigned char *back = malloc(size);
    REQUIRE(back);
    memset(back, 0x5a, size);
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, size, back, 0, NULL, NULL));
    check_same(back, expected, size, size, what);
    free(back);
}

static void test_size(const struct dv_test *test, cl_kernel kernel, size_t size, int way)
{
    uint64_t random = size * 31 + (unsigned)way + 1;
    unsigned char *a = malloc(size), *c = malloc(size), *p = malloc(size + 8), *sum = malloc(size);
    REQUIRE(a && c && p && sum);
    dv_test_random_fill(&random, a, size);
    dv_test_random_fill(&random, c, size);
    cl_mem mem_a = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, size, a);
    cl_mem mem_c = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, size, c);
    cl_mem mem_b = dv_test_buffer(test, 0, size, NULL);
    cl_mem mem_d = dv_test_buffer(test, 0, size, NULL);
    memset(p, 0, size + 8);

    /* p carries A to B, then C to D. */
    struct chain chain = {test, way, NULL, 0};
    chain_read(&chain, mem_a, 0, size, p);
    chain_write(&chain, mem_b, 0, size, p);
    chain_read(&chain, mem_c, 0, size, p);
    chain_write(&chain, mem_d, 0, size, p);
    chain_end(&chain);
    check_same(p, c, size, size, "host block");
    check_buffer(test, mem_b, a, size, "A through the host block");
    check_buffer(test, mem_d, c, size, "C through the host block");

    /* Overlap in part: the write starts inside the block just read. */
    size_t cut = size / 3;
    memset(p, 0, size);
    chain_read(&chain, mem_a, 0, size, p);
    if (size - cut > 0)
        chain_write(&chain, mem_d, 0, size - cut, p + cut);
    chain_read(&chain, mem_c, 0, size - cut, p + cut);
    chain_write(&chain, mem_b, 0, size, p);
    chain_end(&chain);
    memcpy(sum, a + cut, size - cut);
    memcpy(sum + size - cut, c + size - cut, cut);
    check_buffer(test, mem_d, sum, size, "shifted block");
    memcpy(sum, a, cut);
    memcpy(sum + cut, c, size - cut);
    check_buffer(test, mem_b, sum, size, "two reads into one block");

    /* A round trip through a kernel and the host, several times, then two buffers alike. */
    unsigned rounds = size > (1 << 20) ? 2 : 12;
    /* One item a group is slow on a CPU; big sizes work on a part. */
    size_t part = size > 4096 ? 4096 : size;
    for (unsigned i = 0; i < rounds; i++) {
        chain_increment(&chain, kernel, i % 2 ? mem_c : mem_a, part);
        chain_read(&chain, i % 2 ? mem_c : mem_a, 0, size, p);
        chain_write(&chain, i % 2 ? mem_a : mem_c, 0, size, p);
    }
    chain_read(&chain, mem_a, 0, size, p);
    chain_write(&chain, mem_b, 0, size, p);
    chain_end(&chain);
    for (size_t i = 0; i < part; i++)
        a[i] = (unsigned char)(a[i] + rounds);
    check_buffer(test, mem_a, a, size, "after the rounds, A");
    check_buffer(test, mem_c, a, size, "after the rounds, C");
    check_buffer(test, mem_b, a, size, "after the rounds, B");

    /* One source for many writes, and the last of many reads wins. */
    chain_write(&chain, mem_b, 0, size, a);
    chain_write(&chain, mem_d, 0, size, a);
    chain_read(&chain, mem_c, 0, size, p);
    chain_read(&chain, mem_d, 0, size, p);
    chain_end(&chain);
    check_same(p, a, size, size, "last read");
    CHECK(p[size] == 0 && p[size + 7] == 0);

    CHECK_CL(clReleaseMemObject(mem_a));
    CHECK_CL(clReleaseMemObject(mem_b));
    CHECK_CL(clReleaseMemObject(mem_c));
    CHECK_CL(clReleaseMemObject(mem_d));
    free(a);
    free(c);
    free(p);
    free(sum);
}

/* The same with rectangles: rows of the host block that a read leaves alone keep their bytes. */
static void test_rect(const struct dv_test *test, size_t width, size_t height, size_t depth, int way)
{
    size_t host_row = width + 5, host_slice = host_row * (height + 1);
    size_t row = width + 3, slice = row * (height + 2);
    size_t host_size = host_slice * (depth + 1) + 16, size = slice * (depth + 1) + 16;
    uint64_t random = width * height * depth + 7;
    unsigned char *a = malloc(size), *b = calloc(1, size), *p = malloc(host_size);
    unsigned char *expected_p = malloc(host_size);
    REQUIRE(a && b && p && expected_p);
    dv_test_random_fill(&random, a, size);
    dv_test_random_fill(&random, p, host_size);
    memcpy(expected_p, p, host_size);
    cl_mem mem_a = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, size, a);
    cl_mem mem_b = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, size, b);
    size_t origin_a[3] = {1, 1, 0}, origin_b[3] = {0, 2, 1}, origin_p[3] = {2, 1, 1};
    size_t region[3] = {width, height, depth};

    struct chain chain = {test, way, NULL, 0};
    cl_event event;
    chain_advance(&chain,
                  clEnqueueReadBufferRect(chain_queue(&chain), mem_a, CL_FALSE, origin_a, origin_p, region, row, slice,
                                          host_row, host_slice, p, chain_waits(&chain), chain_list(&chain), &event),
                  &event);
    chain_advance(&chain,
                  clEnqueueWriteBufferRect(chain_queue(&chain), mem_b, CL_FALSE, origin_b, origin_p, region, row, slice,
                                           host_row, host_slice, p, chain_waits(&chain), chain_list(&chain), &event),
                  &event);
    chain_end(&chain);
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++) {
            const unsigned char *from = a + 1 + (y + 1) * row + z * slice;
            memcpy(expected_p + 2 + (y + 1) * host_row + (z + 1) * host_slice, from, width);
            memcpy(b + (y + 2) * row + (z + 1) * slice, from, width);
        }
    check_same(p, expected_p, host_size, host_size, "host block of a rectangle");
    check_buffer(test, mem_b, b, size, "rectangle through the host block");

    /* A linear write of the whole block sees what the rectangle read put into it. */
    cl_mem mem_c = dv_test_buffer(test, 0, host_size, NULL);
    memset(p, 0x11, host_size);
    memset(expected_p, 0x11, host_size);
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            memcpy(expected_p + 2 + (y + 1) * host_row + (z + 1) * host_slice, a + 1 + (y + 1) * row + z * slice,
                   width);
    chain_advance(&chain,
                  clEnqueueReadBufferRect(chain_queue(&chain), mem_a, CL_FALSE, origin_a, origin_p, region, row, slice,
                                          host_row, host_slice, p, chain_waits(&chain), chain_list(&chain), &event),
                  &event);
    chain_write(&chain, mem_c, 0, host_size, p);
    chain_end(&chain);
    check_buffer(test, mem_c, expected_p, host_size, "linear write after a rectangle");

    CHECK_CL(clReleaseMemObject(mem_a));
    CHECK_CL(clReleaseMemObject(mem_b));
    CHECK_CL(clReleaseMemObject(mem_c));
    free(a);
    free(b);
    free(p);
    free(expected_p);
}

/* A gate holds the whole chain: nothing may be captured from the host block before its turn. */
static void test_gated(const struct dv_test *test, size_t size)
{
    uint64_t random = size + 5;
    unsigned char *a = malloc(size), *p = calloc(1, size);
    REQUIRE(a && p);
    dv_test_random_fill(&random, a, size);
    cl_mem mem_a = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, size, a);
    cl_mem mem_b = dv_test_buffer(test, 0, size, NULL);
    cl_int error;
    cl_event gate = clCreateUserEvent(test->context, &error);
    REQUIRE_CL(error);
    cl_event read, write;
    CHECK_CL(clEnqueueReadBuffer(test->ooo_queue, mem_a, CL_FALSE, 0, size, p, 1, &gate, &read));
    CHECK_CL(clEnqueueWriteBuffer(test->queue, mem_b, CL_FALSE, 0, size, p, 1, &read, &write));
    CHECK_CL(clFlush(test->ooo_queue));
    CHECK_CL(clFlush(test->queue));
    dv_test_sleep_ms(5);
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &write));
    check_same(p, a, size, size, "gated read");
    check_buffer(test, mem_b, a, size, "gated write");
    CHECK_CL(clReleaseEvent(read));
    CHECK_CL(clReleaseEvent(write));
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clReleaseMemObject(mem_a));
    CHECK_CL(clReleaseMemObject(mem_b));
    free(a);
    free(p);
}

/* The completed event of a read means that the bytes are there. */
static void test_landed(const struct dv_test *test, size_t size)
{
    unsigned char *p = malloc(size);
    REQUIRE(p);
    cl_mem buffer = dv_test_buffer(test, 0, size, NULL);
    for (unsigned round = 1; round <= 20; round++) {
        unsigned char pattern = (unsigned char)round;
        cl_event event;
        memset(p, 0, size);
        CHECK_CL(clEnqueueFillBuffer(test->queue, buffer, &pattern, 1, 0, size, 0, NULL, NULL));
        CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_FALSE, 0, size, p, 0, NULL, &event));
        CHECK_CL(clFlush(test->queue));
        while (dv_test_event_status(event) > CL_COMPLETE)
            ;
        CHECK(p[0] == pattern && p[size / 2] == pattern && p[size - 1] == pattern);
        CHECK_CL(clReleaseEvent(event));
    }
    CHECK_CL(clReleaseMemObject(buffer));
    free(p);
}

/* A non-blocking write may be followed by a change of the source once its event is complete, and a
 * blocking write at once. */
static void test_source_reuse(const struct dv_test *test, size_t size)
{
    unsigned char *p = malloc(size), *expected = malloc(size);
    REQUIRE(p && expected);
    enum { BUFFERS = 6 };
    cl_mem buffers[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = dv_test_buffer(test, 0, size, NULL);
        memset(p, 'a' + i, size);
        if (i % 2) {
            CHECK_CL(clEnqueueWriteBuffer(test->queue, buffers[i], CL_TRUE, 0, size, p, 0, NULL, NULL));
        } else {
            cl_event event;
            CHECK_CL(clEnqueueWriteBuffer(test->ooo_queue, buffers[i], CL_FALSE, 0, size, p, 0, NULL, &event));
            CHECK_CL(clWaitForEvents(1, &event));
            CHECK_CL(clReleaseEvent(event));
        }
        memset(p, 0, size);
    }
    for (int i = 0; i < BUFFERS; i++) {
        memset(expected, 'a' + i, size);
        check_buffer(test, buffers[i], expected, size, "reused source");
        CHECK_CL(clReleaseMemObject(buffers[i]));
    }
    free(p);
    free(expected);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "increment");
    static const char *const names[] = {"in order", "out of order", "alternating queues"};
    for (int way = IN_ORDER; way <= ALTERNATING; way++) {
        dv_test_section(names[way]);
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            test_size(&test, kernel, sizes[i], way);
        test_rect(&test, 1, 1, 1, way);
        test_rect(&test, 7, 3, 2, way);
        test_rect(&test, 64, 64, 1, way);
        test_rect(&test, 1021, 67, 3, way);
        test_rect(&test, 4096, 300, 1, way);
    }
    dv_test_section("gated");
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        test_gated(&test, sizes[i]);
    dv_test_section("landed");
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        test_landed(&test, sizes[i]);
    dv_test_section("source reuse");
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        test_source_reuse(&test, sizes[i]);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("host_overlap");
}
