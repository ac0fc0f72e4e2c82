/* A tenant that launches random kernels over random ranges and prints what they computed, to be compared with the same
 * on the bare vendor.
 *
 *     ranges SEED PROGRAMS LAUNCHES
 *
 * Each program has one kernel, of random statements with the functions that tell a work-item where it is, with
 * barriers, local memory and atomic operations, and is launched so many times, over ranges of one to three dimensions
 * with and without offsets. Prints a line for each program, with a number made of all results; a line "whole N" at the
 * end tells how many launches had one work-group. Exit code 3: an OpenCL call failed that must not. */
#include "check.h"

#include <stdarg.h>
#include <unistd.h>

#define ITEMS_MAX (1u << 12)
#define STATEMENTS 6
#define LOCALS 3

static uint64_t state;
static unsigned single_groups;

static void need(cl_int error, const char *call)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "opencl error %s in %s\n", dv_test_error_name(error), call);
    _exit(3);
}

static unsigned below(unsigned n)
{
    return (unsigned)(dv_test_random(&state) % n);
}

static unsigned between(unsigned low, unsigned high)
{
    return low + below(high - low + 1);
}

/* ---- kernels ---- */

struct text {
    char *at, *end;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    text->at += vsnprintf(text->at, (size_t)(text->end - text->at), format, args);
    va_end(args);
}

/* A call of a function that tells where an item is. Some programs use only those that a part of a range leaves as they
 * are. */
static void add_place(struct text *text, bool of_the_range)
{
    static const char *const simple[] = {"get_global_id", "get_local_id", "get_local_size"};
    static const char *const ranges[] = {"get_group_id", "get_num_groups", "get_global_size", "get_global_offset"};
    const char *name = !of_the_range || below(3) == 0 ? simple[below(3)] : ranges[below(4)];

    if (below(12) == 0)
        add(text, "get_work_dim()");
    else if (below(6) == 0) /* the compiler does not know which dimension; 3 is none: there PoCL 3.1 counts 0 groups,
                               where the standard and a kernel in parts count 1 */
        add(text, "(uint)%s((x >> 3) %s)", name, strcmp(name, "get_num_groups") == 0 ? "% 3" : "& 3");
    else
        add(text, "(uint)%s(%u)", name, below(3));
}

static void add_statement(struct text *text, bool of_the_range)
{
    switch (below(7)) {
    case 0:
        add(text,
            "  scratch[lid] = x; barrier(CLK_LOCAL_MEM_FENCE);\n"
            "  x ^= scratch[(lid + %u) %% items] * 3; barrier(CLK_LOCAL_MEM_FENCE);\n",
            between(1, 9));
        break;
    case 1:
        add(text, "  atomic_add(&sums[%u], x & 0xffff);\n", below(4));
        break;
    case 2:
        if (below(2)) /* in no sum both: their order would matter */
            add(text, "  atomic_max(&sums[%u], x);\n", between(4, 5));
        else
            add(text, "  atomic_xor(&sums[%u], x);\n", between(6, 7));
        break;
    case 3:
        add(text, "  for (uint k = 0; k < (");
        add_place(text, of_the_range);
        add(text, " & 7); k++) x = x * 5 + k;\n");
        break;
    case 4:
        add(text, "  if (");
        add_place(text, of_the_range);
        add(text, " %% 3 == %u) x += 77;\n", below(3));
        break;
    default:
        add(text, "  x = rotate(x, 5u) ^ ");
        add_place(text, of_the_range);
        add(text, " * %uu;\n", between(1, 99) * 2 + 1);
        break;
    }
}

/* Half of them ask in a function of their own. */
static void write_kernel(char *source, size_t bytes, bool of_the_range)
{
    struct text text = {.at = source, .end = source + bytes};
    bool has_function = below(2);

    add(&text, "uint mix(uint x) { return x * 3 + ");
    if (has_function)
        add_place(&text, of_the_range);
    else
        add(&text, "1");
    add(&text,
        "; }\nkernel void k(global uint *out, global uint *sums, local uint *scratch, uint salt,\n"
        "              uint width, uint height, uint first) {\n"
        "  uint x = salt;\n"
        "  uint at = (uint)get_global_id(0) + width * ((uint)get_global_id(1) + height * (uint)get_global_id(2));\n"
        "  uint lid = (uint)(get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) *\n"
        "             get_local_id(2)));\n"
        "  uint items = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));\n");
    for (int i = 0; i < STATEMENTS; i++)
        add_statement(&text, of_the_range);
    add(&text, "  out[at - first] += mix(x);\n}\n");
}

/* ---- ranges ---- */

struct range {
    cl_uint dims;
    size_t offset[3], global[3], local[3];
};

static struct range choose_range(const size_t local[3], bool offsets)
{
    struct range range = {.dims = 1, .global = {1, 1, 1}};
    size_t room = ITEMS_MAX;

    memcpy(range.local, local, sizeof range.local);
    while (range.dims < 3 && (local[range.dims] > 1 || below(3) == 0))
        range.dims++;
    for (cl_uint d = 0; d < range.dims; d++)
        room /= local[d];
    for (cl_uint d = 0; d < range.dims; d++) {
        size_t most = room < 4 ? room : d == 0 && range.dims == 1 ? room : 4 + room / 8;
        size_t groups = below(4) == 0 ? between(1, (unsigned)(most < 3 ? most : 3)) : between(1, (unsigned)most);
        if (groups > room)
            groups = room;
        room /= groups;
        range.global[d] = groups * local[d];
        if (offsets && below(2))
            range.offset[d] = between(1, 20);
    }
    return range;
}

static uint64_t hash(uint64_t so_far, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < bytes; i++)
        so_far = (so_far ^ at[i]) * UINT64_C(0x100000001b3);
    return so_far;
}

/* ---- the run ---- */

struct place {
    struct dv_test test;
    cl_mem out, sums;
    cl_uint *results;
};

static uint64_t launch(struct place *place, cl_kernel kernel, const struct range *range, uint64_t so_far)
{
    size_t width = range->offset[0] + range->global[0], height = range->offset[1] + range->global[1], groups = 1;
    cl_uint first = (cl_uint)(range->offset[0] + width * (range->offset[1] + height * range->offset[2]));
    cl_uint last = (cl_uint)(width - 1 + width * (height - 1 + height * (range->offset[2] + range->global[2] - 1)));
    cl_uint salt = below(1000), numbers[] = {salt, (cl_uint)width, (cl_uint)height, first};
    size_t items = range->local[0] * range->local[1] * range->local[2];
    cl_uint sums[8];

    for (int i = 0; i < 3; i++)
        groups *= range->global[i] / range->local[i];
    single_groups += groups == 1;
    need(clSetKernelArg(kernel, 2, items * sizeof(cl_uint), NULL), "clSetKernelArg");
    for (cl_uint i = 0; i < 4; i++)
        need(clSetKernelArg(kernel, 3 + i, sizeof numbers[i], &numbers[i]), "clSetKernelArg");
    need(clEnqueueNDRangeKernel(place->test.queue, kernel, range->dims, range->offset, range->global, range->local, 0,
                                NULL, NULL),
         "clEnqueueNDRangeKernel");
    size_t bytes = (last - first + 1) * sizeof(cl_uint);
    need(clEnqueueReadBuffer(place->test.queue, place->out, CL_TRUE, 0, bytes, place->results, 0, NULL, NULL),
         "clEnqueueReadBuffer");
    need(clEnqueueReadBuffer(place->test.queue, place->sums, CL_TRUE, 0, sizeof sums, sums, 0, NULL, NULL),
         "clEnqueueReadBuffer");
    return hash(hash(so_far, place->results, bytes), sums, sizeof sums);
}

static void run_program(struct place *place, unsigned launches)
{
    char source[8192];
    bool of_the_range = below(4) > 0, offsets = below(3) == 0;
    size_t locals[LOCALS][3];
    uint64_t so_far = UINT64_C(0xcbf29ce484222325);
    cl_uint zero = 0;

    write_kernel(source, sizeof source, of_the_range);
    cl_program program = dv_test_build(&place->test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "k");
    need(clSetKernelArg(kernel, 0, sizeof place->out, &place->out), "clSetKernelArg");
    need(clSetKernelArg(kernel, 1, sizeof place->sums, &place->sums), "clSetKernelArg");
    for (int i = 0; i < LOCALS; i++)
        for (int d = 0; d < 3; d++)
            locals[i][d] = d == 0 ? between(1, 32) : below(2) ? 1 : between(1, 4);
    clEnqueueFillBuffer(place->test.queue, place->out, &zero, sizeof zero, 0, (size_t)4 << 24, 0, NULL, NULL);
    clEnqueueFillBuffer(place->test.queue, place->sums, &zero, sizeof zero, 0, 8 * sizeof zero, 0, NULL, NULL);
    for (unsigned i = 0; i < launches; i++) {
        struct range range = choose_range(locals[below(LOCALS)], offsets);
        so_far = launch(place, kernel, &range, so_far);
    }
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    printf("%016llx\n", (unsigned long long)so_far);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    state = strtoull(argv[1], NULL, 0) * 7919 + 1;
    unsigned programs = (unsigned)atoi(argv[2]), launches = (unsigned)atoi(argv[3]);
    struct place place = {.test = dv_test_setup()};

    place.out = dv_test_buffer(&place.test, CL_MEM_READ_WRITE, (size_t)4 << 24, NULL);
    place.sums = dv_test_buffer(&place.test, CL_MEM_READ_WRITE, 8 * sizeof(cl_uint), NULL);
    place.results = malloc((size_t)4 << 24);
    if (!place.results)
        return 2;
    for (unsigned i = 0; i < programs; i++)
        run_program(&place, launches);
    printf("whole %u\n", single_groups);
    free(place.results);
    clReleaseMemObject(place.out);
    clReleaseMemObject(place.sums);
    dv_test_teardown(&place.test);
    return 0;
}
