/* Programs and kernels: sources, binaries, compiling and linking, what a build says about itself,
 * kernel arguments of every kind, launches of every shape. */
#include "check.h"

static const char *const answer_source = "#ifndef ANSWER\n#define ANSWER 42\n#endif\n"
                                         "kernel void answer(global int *out) { out[get_global_id(0)] = ANSWER; }\n";

static char *program_string(cl_program program, cl_device_id device, cl_uint name)
{
    size_t size = 0;
    if (device)
        CHECK_CL(clGetProgramBuildInfo(program, device, name, 0, NULL, &size));
    else
        CHECK_CL(clGetProgramInfo(program, name, 0, NULL, &size));
    char *text = calloc(1, size + 1);
    REQUIRE(text);
    if (device)
        CHECK_CL(clGetProgramBuildInfo(program, device, name, size, text, NULL));
    else
        CHECK_CL(clGetProgramInfo(program, name, size, text, NULL));
    return text;
}

/* Runs a kernel that writes one int and returns it. */
static cl_int run_for_int(const struct dv_test *test, cl_kernel kernel)
{
    cl_int value = -1;
    size_t one = 1;
    cl_mem out = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof value, &value);
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test->queue, out, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CHECK_CL(clReleaseMemObject(out));
    return value;
}

static cl_int run_named(const struct dv_test *test, cl_program program, const char *name)
{
    cl_kernel kernel = dv_test_kernel(program, name);
    cl_int value = run_for_int(test, kernel);
    CHECK_CL(clReleaseKernel(kernel));
    return value;
}

/* A program's own types may be called nearly as the language's. */
static void test_types_of_its_own(const struct dv_test *test)
{
    static const char *const source =
        "typedef uchar uint8_t; typedef short int16_t;\n"
        "typedef struct { float4 row[4]; } float4x4;\n"
        "typedef struct { int width, height; } image_info;\n"
        "kernel void own(global int *out, uint8_t a, int16_t b, float4x4 c, image_info d,\n"
        "                global image_info *e) {\n"
        "    out[0] = a + b + (int)c.row[3].w + d.height + e[1].width;\n"
        "}\n";
    const struct {
        cl_int width, height;
    } infos[2] = {{1, 2}, {1000, 4}};
    cl_uchar a = 3;
    cl_short b = 20;
    cl_float4 c[4] = {{{0}}};

    dv_test_section("types of its own");
    c[3].s[3] = 100;
    cl_program program = dv_test_build(test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "own");
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof infos, (void *)infos);
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof a, &a));
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof b, &b));
    CHECK_CL(clSetKernelArg(kernel, 3, sizeof c, c));
    CHECK_CL(clSetKernelArg(kernel, 4, sizeof infos[0], &infos[0]));
    CHECK_CL(clSetKernelArg(kernel, 5, sizeof buffer, &buffer));
    CHECK(run_for_int(test, kernel) == 3 + 20 + 100 + 2 + 1000);
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
}

static void test_source(const struct dv_test *test)
{
    dv_test_section("source");
    /* Pieces with and without a length; what follows a piece's length must not be read. */
    const char *pieces[] = {"kernel void answer(XXX", "global int *out) {", " out[0] = 7; }YYY"};
    size_t lengths[] = {19, 0, 14};
    cl_int error;
    cl_program program = clCreateProgramWithSource(test->context, 3, pieces, lengths, &error);
    REQUIRE_CL(error);
    char *text = program_string(program, NULL, CL_PROGRAM_SOURCE);
    CHECK(strcmp(text, "kernel void answer(global int *out) { out[0] = 7; }") == 0);
    free(text);
    cl_build_status status = 77;
    CHECK_CL(clGetProgramBuildInfo(program, test->device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    CHECK(status == CL_BUILD_NONE);
    CHECK(!clCreateKernel(program, "answer", &error));
    CHECK_ERROR(error, CL_INVALID_PROGRAM_EXECUTABLE);
    CHECK_CL(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    CHECK(run_named(test, program, "answer") == 7);
    CHECK(!clCreateKernel(program, "nothing", &error));
    CHECK_ERROR(error, CL_INVALID_KERNEL_NAME);
    CHECK(!clCreateKernel(program, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK_CL(clReleaseProgram(program));

    const char *none[] = {"kernel void f() {}", NULL};
    CHECK(!clCreateProgramWithSource(test->context, 0, none, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    if (!dv_test_pocl_dies("5.8.1: crash when strings is NULL")) {
        CHECK(!clCreateProgramWithSource(test->context, 1, NULL, NULL, &error));
        CHECK_ERROR(error, CL_INVALID_VALUE);
    }
    CHECK(!clCreateProgramWithSource(test->context, 2, none, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
}

/* Builds a program whose kernels were released. PoCL lets go of a kernel some time after its last command has ended,
 * and until then it takes the program for one with kernels. */
static cl_int build_again(const struct dv_test *test, cl_program program, const char *options)
{
    double end = dv_test_now_s() + 10;
    cl_int error;

    while ((error = clBuildProgram(program, 1, &test->device, options, NULL, NULL)) == CL_INVALID_OPERATION &&
           dv_test_now_s() < end)
        dv_test_sleep_ms(1);
    return error;
}

static void test_options(const struct dv_test *test)
{
    dv_test_section("options");
    cl_int error;
    const char *source = answer_source;
    cl_program program = clCreateProgramWithSource(test->context, 1, &source, NULL, &error);
    REQUIRE_CL(error);
    static const char *const options[] = {"-DANSWER=5", "", "  -D ANSWER=6 -cl-mad-enable ",
                                          "-DANSWER=9 -cl-kernel-arg-info -w"};
    static const cl_int answers[] = {5, 42, 6, 9};
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        CHECK_CL(build_again(test, program, options[i]));
        char *text = program_string(program, test->device, CL_PROGRAM_BUILD_OPTIONS);
        if (options[i][0] == ' ')
            CHECK_VENDOR(strcmp(text, options[i]) == 0, "5.8.7: the options as they were given");
        else if (!CHECK(strcmp(text, options[i]) == 0))
            dv_test_detail("options '%s' are reported as '%s'", options[i], text);
        free(text);
        CHECK(run_named(test, program, "answer") == answers[i]);
        cl_build_status status = 77;
        CHECK_CL(clGetProgramBuildInfo(program, test->device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
        CHECK(status == CL_BUILD_SUCCESS);
    }
    CHECK_CL(build_again(test, program, NULL));
    char *text = program_string(program, test->device, CL_PROGRAM_BUILD_OPTIONS);
    CHECK(strcmp(text, "") == 0);
    free(text);

    /* A program with kernels is not built again. */
    cl_kernel kernel = dv_test_kernel(program, "answer");
    CHECK_ERROR(clBuildProgram(program, 1, &test->device, "", NULL, NULL), CL_INVALID_OPERATION);
    CHECK(run_for_int(test, kernel) == 42);
    CHECK_CL(clReleaseKernel(kernel));
    error = build_again(test, program, "-no-such-option");
    CHECK(error == CL_INVALID_BUILD_OPTIONS || error == CL_BUILD_PROGRAM_FAILURE);
    CHECK_VENDOR(error == CL_INVALID_BUILD_OPTIONS, "5.8.2: options that are not valid");
    CHECK_ERROR(clBuildProgram(program, 0, &test->device, "", NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clBuildProgram(program, 1, NULL, "", NULL, NULL), CL_INVALID_VALUE);
    CHECK_CL(clReleaseProgram(program));
}

static void test_failure(const struct dv_test *test)
{
    dv_test_section("build failure");
    cl_int error;
    const char *source = "kernel void broken(global int *out) { out[0] = no_such_name; }\n";
    cl_program program = clCreateProgramWithSource(test->context, 1, &source, NULL, &error);
    REQUIRE_CL(error);
    CHECK_ERROR(clBuildProgram(program, 1, &test->device, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    cl_build_status status = 77;
    CHECK_CL(clGetProgramBuildInfo(program, test->device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    CHECK(status == CL_BUILD_ERROR);
    char *log = program_string(program, test->device, CL_PROGRAM_BUILD_LOG);
    CHECK(strstr(log, "no_such_name") != NULL);
    free(log);
    CHECK(!clCreateKernel(program, "broken", &error));
    CHECK_ERROR(error, CL_INVALID_PROGRAM_EXECUTABLE);
    /* The next build of the same program object may be good. */
    CHECK_CL(clBuildProgram(program, 1, &test->device, "-Dno_such_name=3", NULL, NULL));
    CHECK(run_named(test, program, "broken") == 3);
    CHECK_CL(clReleaseProgram(program));

    const char *warning = "#warning look here\nkernel void fine(global int *out) { out[0] = 1; }\n";
    program = clCreateProgramWithSource(test->context, 1, &warning, NULL, &error);
    REQUIRE_CL(error);
    CHECK_CL(clBuildProgram(program, 1, &test->device, "", NULL, NULL));
    CHECK(run_named(test, program, "fine") == 1);
    CHECK_CL(clReleaseProgram(program));
}

static void test_info(const struct dv_test *test)
{
    dv_test_section("program queries");
    cl_int error;
    cl_program program =
        dv_test_build(test, "kernel void b_two(int x) {}\nkernel void a_one() {}\nvoid helper() {}\n", "");
    cl_uint devices = 0, references = 0;
    cl_context context = NULL;
    cl_device_id device = NULL;
    size_t kernels = 0;
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof devices, &devices, NULL));
    CHECK(devices == 1);
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof device, &device, NULL));
    CHECK(device == test->device);
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof context, &context, NULL));
    CHECK(context == test->context);
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL));
    CHECK(kernels == 2);
    CHECK_CL(clRetainProgram(program));
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(references == 2);
    CHECK_CL(clReleaseProgram(program));
    char *names = program_string(program, NULL, CL_PROGRAM_KERNEL_NAMES);
    CHECK(strcmp(names, "a_one;b_two") == 0 || strcmp(names, "b_two;a_one") == 0);
    free(names);

    cl_kernel all[4] = {NULL, NULL, NULL, (cl_kernel)1};
    cl_uint count = 0;
    CHECK_CL(clCreateKernelsInProgram(program, 0, NULL, &count));
    CHECK(count == 2);
    CHECK_ERROR(clCreateKernelsInProgram(program, 1, all, NULL), CL_INVALID_VALUE);
    CHECK_CL(clCreateKernelsInProgram(program, 3, all, &count));
    CHECK(count == 2);
    bool seen_one = false, seen_two = false;
    for (int i = 0; i < 2; i++) {
        char name[32] = "";
        CHECK_CL(clGetKernelInfo(all[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        seen_one |= strcmp(name, "a_one") == 0;
        seen_two |= strcmp(name, "b_two") == 0;
        CHECK_CL(clReleaseKernel(all[i]));
    }
    CHECK(seen_one && seen_two);
    CHECK(all[3] == (cl_kernel)1);
    CHECK_CL(clReleaseProgram(program));
    CHECK(!clCreateProgramWithBuiltInKernels(test->context, 1, &test->device, "no.such.kernel", &error));
    CHECK(error != CL_SUCCESS);
}

static void test_binaries(const struct dv_test *test)
{
    dv_test_section("binaries");
    cl_program program = dv_test_build(test, answer_source, "-DANSWER=77");
    size_t size = 0;
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    REQUIRE(size > 0);
    unsigned char *binary = malloc(size + 8);
    REQUIRE(binary);
    memset(binary + size, 0xa5, 8);
    unsigned char *list[1] = {binary};
    size_t list_size = 0;
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_BINARIES, 0, NULL, &list_size));
    CHECK(list_size == sizeof list);
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof list, list, NULL));
    CHECK(binary[size] == 0xa5 && binary[size + 7] == 0xa5);
    cl_program_binary_type type = 0;
    CHECK_CL(clGetProgramBuildInfo(program, test->device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    /* A NULL in the list leaves that device out. */
    if (!dv_test_pocl_dies("5.8.7: crash when an entry of CL_PROGRAM_BINARIES is NULL")) {
        unsigned char *nothing[1] = {NULL};
        CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof nothing, nothing, NULL));
    }
    CHECK_CL(clReleaseProgram(program));

    cl_int error, status = 77;
    const unsigned char *input = binary;
    cl_program again = clCreateProgramWithBinary(test->context, 1, &test->device, &size, &input, &status, &error);
    CHECK_CL(error);
    REQUIRE(again);
    CHECK(status == CL_SUCCESS);
    CHECK_CL(clBuildProgram(again, 1, &test->device, "", NULL, NULL));
    cl_kernel kernel = dv_test_kernel(again, "answer");
    CHECK(run_for_int(test, kernel) == 77);
    cl_uint arguments = 0;
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL));
    CHECK(arguments == 1);
    CHECK_CL(clReleaseKernel(kernel));
    char *source = program_string(again, NULL, CL_PROGRAM_SOURCE);
    CHECK(source[0] == 0);
    free(source);
    CHECK_CL(clReleaseProgram(again));

    /* Not a binary at all. */
    unsigned char rubbish[64];
    memset(rubbish, 0x5a, sizeof rubbish);
    input = rubbish;
    size_t rubbish_size = sizeof rubbish;
    status = 77;
    CHECK(!clCreateProgramWithBinary(test->context, 1, &test->device, &rubbish_size, &input, &status, &error));
    CHECK_ERROR(error, CL_INVALID_BINARY);
    CHECK(status == CL_INVALID_BINARY);
    input = NULL;
    CHECK(!clCreateProgramWithBinary(test->context, 1, &test->device, &size, &input, &status, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    input = binary;
    size_t zero = 0;
    CHECK(!clCreateProgramWithBinary(test->context, 1, &test->device, &zero, &input, &status, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    free(binary);
}

static void test_link(const struct dv_test *test)
{
    dv_test_section("compile and link");
    cl_int error;
    const char *main_source = "#include <numbers.h>\n#include \"dir/more.h\"\nint helper(int x);\n"
                              "kernel void linked(global int *out) { out[0] = helper(FIRST) + SECOND; }\n";
    const char *helper_source = "int helper(int x) { return x * 100 + SCALE; }\n";
    const char *header_1 = "#define FIRST 7\n", *header_2 = "#define SECOND 5000\n";
    cl_program main_program = clCreateProgramWithSource(test->context, 1, &main_source, NULL, &error);
    REQUIRE_CL(error);
    cl_program helper = clCreateProgramWithSource(test->context, 1, &helper_source, NULL, &error);
    REQUIRE_CL(error);
    cl_program headers[2];
    headers[0] = clCreateProgramWithSource(test->context, 1, &header_1, NULL, &error);
    REQUIRE_CL(error);
    headers[1] = clCreateProgramWithSource(test->context, 1, &header_2, NULL, &error);
    REQUIRE_CL(error);
    const char *names[2] = {"numbers.h", "dir/more.h"};
    CHECK_CL(clCompileProgram(main_program, 1, &test->device, "", 2, headers, names, NULL, NULL));
    CHECK_CL(clCompileProgram(helper, 1, &test->device, "-DSCALE=3", 0, NULL, NULL, NULL, NULL));
    cl_program_binary_type type = 0;
    CHECK_CL(clGetProgramBuildInfo(helper, test->device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    char *options = program_string(helper, test->device, CL_PROGRAM_BUILD_OPTIONS);
    CHECK(strcmp(options, "-DSCALE=3") == 0);
    free(options);
    CHECK(!clCreateKernel(main_program, "linked", &error));
    CHECK_VENDOR(error == CL_INVALID_PROGRAM_EXECUTABLE, "5.9.1: compiled but not linked");

    cl_program parts[2] = {main_program, helper};
    cl_program executable = clLinkProgram(test->context, 1, &test->device, "", 2, parts, NULL, NULL, &error);
    CHECK_CL(error);
    if (executable) {
        CHECK(run_named(test, executable, "linked") == 703 + 5000);
        CHECK_CL(clGetProgramBuildInfo(executable, test->device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
        CHECK(type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
        CHECK_CL(clReleaseProgram(executable));
    }
    /* By way of a library. */
    cl_program library =
        clLinkProgram(test->context, 1, &test->device, "-create-library", 1, &helper, NULL, NULL, &error);
    CHECK_CL(error);
    if (library) {
        CHECK_CL(clGetProgramBuildInfo(library, test->device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
        CHECK(type == CL_PROGRAM_BINARY_TYPE_LIBRARY);
        cl_program with_library[2] = {main_program, library};
        executable = clLinkProgram(test->context, 1, &test->device, "", 2, with_library, NULL, NULL, &error);
        CHECK_CL(error);
        if (executable) {
            CHECK(run_named(test, executable, "linked") == 703 + 5000);
            CHECK_CL(clReleaseProgram(executable));
        }
        CHECK_CL(clReleaseProgram(library));
    }
    /* A missing part, a missing header, wrong counts. */
    executable = clLinkProgram(test->context, 1, &test->device, "", 0, NULL, NULL, NULL, &error);
    CHECK(!executable);
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK_ERROR(clCompileProgram(main_program, 1, &test->device, "", 1, headers, names, NULL, NULL),
                CL_COMPILE_PROGRAM_FAILURE);
    if (!dv_test_pocl_dies("5.8.3: crash when header names are missing")) {
        CHECK_ERROR(clCompileProgram(main_program, 1, &test->device, "", 0, headers, names, NULL, NULL),
                    CL_INVALID_VALUE);
        CHECK_ERROR(clCompileProgram(main_program, 1, &test->device, "", 1, headers, NULL, NULL, NULL),
                    CL_INVALID_VALUE);
    }
    CHECK_CL(clReleaseProgram(main_program));
    CHECK_CL(clReleaseProgram(helper));
    CHECK_CL(clReleaseProgram(headers[0]));
    CHECK_CL(clReleaseProgram(headers[1]));
}

/* ------------------------------------------------------------------------------------- kernels */

static const char *const kernel_source =
    "typedef struct { int a; char b; long c; float4 d; uchar tail[5]; } record;\n"
    "typedef struct { uint words[200]; } big;\n"
    "kernel void take_record(global long *out, record r) {\n"
    "    out[0] = r.a; out[1] = r.b; out[2] = r.c; out[3] = (long)(r.d.x + r.d.w);\n"
    "    out[4] = r.tail[4]; out[5] = sizeof(record);\n"
    "}\n"
    "kernel void take_big(global uint *out, big b) {\n"
    "    out[get_global_id(0)] = b.words[get_global_id(0)];\n"
    "}\n"
    "kernel void take_scalars(global double *out, char c, uchar uc, short s, ushort us, int i,\n"
    "                         uint ui, long l, ulong ul, float f, double d, float4 v, char3 w) {\n"
    "    out[0] = c; out[1] = uc; out[2] = s; out[3] = us; out[4] = i; out[5] = ui;\n"
    "    out[6] = l; out[7] = ul; out[8] = f; out[9] = d; out[10] = v.w; out[11] = w.z;\n"
    "}\n"
    "kernel void use_local(global int *out, local int *a, local long *b, int n) {\n"
    "    int l = get_local_id(0);\n"
    "    a[l] = l; b[l] = 1000 * l;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    int next = (l + 1) % (int)get_local_size(0);\n"
    "    out[get_global_id(0)] = a[next] + (int)b[next] + n;\n"
    "}\n"
    "kernel void use_constant(global int *out, constant int *table, global int *maybe) {\n"
    "    out[0] = table[0] + table[1] + (maybe ? maybe[0] : 500);\n"
    "}\n"
    "kernel void where(global uint *out) {\n"
    "    uint x = get_global_id(0) - get_global_offset(0);\n"
    "    uint y = get_global_id(1) - get_global_offset(1);\n"
    "    uint z = get_global_id(2) - get_global_offset(2);\n"
    "    uint at = x + get_global_size(0) * (y + get_global_size(1) * z);\n"
    "    out[at] = get_global_id(0) + 100 * get_global_id(1) + 10000 * get_global_id(2);\n"
    "}\n"
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global int *out) {\n"
    "    if (get_global_id(0) == 0 && get_global_id(1) == 0)\n"
    "        out[0] = (int)(get_local_size(0) * 10 + get_local_size(1));\n"
    "}\n"
    "kernel void described(global const float4 *restrict first, local uint *second,\n"
    "                      constant char *third, const int fourth, read_only image2d_t fifth,\n"
    "                      write_only image2d_t sixth, sampler_t seventh,\n"
    "                      volatile global int *eighth) {}\n"
    "kernel void bump(global int *data) { data[get_global_id(0)] += 1; }\n";

struct record {
    cl_int a;
    cl_char b;
    cl_long c;
    cl_float4 d;
    cl_uchar tail[5];
};

static void run_once(const struct dv_test *test, cl_kernel kernel, size_t global, size_t local)
{
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
}

static void read_back(const struct dv_test *test, cl_mem buffer, void *to, size_t size)
{
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, size, to, 0, NULL, NULL));
}

static void test_arguments(const struct dv_test *test, cl_program program)
{
    dv_test_section("kernel arguments");
    cl_mem out = dv_test_buffer(test, 0, 4096, NULL);

    struct record record = {.a = -5, .b = 'b', .c = 1234567890123, .tail = {1, 2, 3, 4, 99}};
    record.d.s[0] = 1.5f;
    record.d.s[3] = 2.5f;
    cl_kernel kernel = dv_test_kernel(program, "take_record");
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof record, &record));
    memset(&record.a, 0xff, sizeof record.a); /* the value was taken when it was set */
    run_once(test, kernel, 1, 1);
    cl_long longs[6] = {0};
    read_back(test, out, longs, sizeof longs);
    CHECK(longs[0] == -5 && longs[1] == 'b' && longs[2] == 1234567890123 && longs[3] == 4);
    CHECK(longs[4] == 99 && longs[5] == (cl_long)sizeof record);
    CHECK_VENDOR(clSetKernelArg(kernel, 1, sizeof record - 1, &record) == CL_INVALID_ARG_SIZE,
                 "5.9.2: arg_size is not the size of the argument's type");
    CHECK_CL(clReleaseKernel(kernel));

    cl_uint words[200], words_back[200];
    for (cl_uint i = 0; i < 200; i++)
        words[i] = i * i + 1;
    kernel = dv_test_kernel(program, "take_big");
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof words, words));
    run_once(test, kernel, 200, 1);
    read_back(test, out, words_back, sizeof words_back);
    CHECK(memcmp(words, words_back, sizeof words) == 0);
    CHECK_CL(clReleaseKernel(kernel));

    kernel = dv_test_kernel(program, "take_scalars");
    cl_char c = -1;
    cl_uchar uc = 200;
    cl_short s = -300;
    cl_ushort us = 60000;
    cl_int i = -70000;
    cl_uint ui = 4000000000u;
    cl_long l = -5000000000;
    cl_ulong ul = 6000000000u;
    cl_float f = 0.5f;
    cl_double d = 0.25;
    cl_float4 v = {{1, 2, 3, 4.5f}};
    cl_char3 w = {{7, 8, 9}};
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof c, &c));
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof uc, &uc));
    CHECK_CL(clSetKernelArg(kernel, 3, sizeof s, &s));
    CHECK_CL(clSetKernelArg(kernel, 4, sizeof us, &us));
    CHECK_CL(clSetKernelArg(kernel, 5, sizeof i, &i));
    CHECK_CL(clSetKernelArg(kernel, 6, sizeof ui, &ui));
    CHECK_CL(clSetKernelArg(kernel, 7, sizeof l, &l));
    CHECK_CL(clSetKernelArg(kernel, 8, sizeof ul, &ul));
    CHECK_CL(clSetKernelArg(kernel, 9, sizeof f, &f));
    CHECK_CL(clSetKernelArg(kernel, 10, sizeof d, &d));
    CHECK_CL(clSetKernelArg(kernel, 11, sizeof v, &v));
    CHECK_CL(clSetKernelArg(kernel, 12, sizeof w, &w));
    run_once(test, kernel, 1, 1);
    cl_double doubles[12] = {0};
    read_back(test, out, doubles, sizeof doubles);
    const cl_double expected[12] = {c, uc, s, us, i, ui, (cl_double)l, (cl_double)ul, f, d, 4.5, 9};
    for (int k = 0; k < 12; k++)
        if (!CHECK(doubles[k] == expected[k]))
            dv_test_detail("scalar %d is %f, expected %f", k, doubles[k], expected[k]);
    CHECK_ERROR(clSetKernelArg(kernel, 13, sizeof w, &w), CL_INVALID_ARG_INDEX);
    CHECK_ERROR(clSetKernelArg(kernel, 5, 8, &l), CL_INVALID_ARG_SIZE);
    CHECK_ERROR(clSetKernelArg(kernel, 5, 4, NULL), CL_INVALID_ARG_VALUE);
    CHECK_CL(clReleaseKernel(kernel));

    kernel = dv_test_kernel(program, "use_local");
    cl_int n = 3;
    for (size_t local = 1; local <= 64; local *= 4) {
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
        CHECK_CL(clSetKernelArg(kernel, 1, local * sizeof(cl_int), NULL));
        CHECK_CL(clSetKernelArg(kernel, 2, local * sizeof(cl_long), NULL));
        CHECK_CL(clSetKernelArg(kernel, 3, sizeof n, &n));
        run_once(test, kernel, 128, local);
        cl_int ints[128] = {0};
        read_back(test, out, ints, sizeof ints);
        for (size_t k = 0; k < 128; k++)
            CHECK(ints[k] == (cl_int)(((k % local + 1) % local) * 1001) + n);
    }
    cl_int wrong = 1;
    CHECK_ERROR(clSetKernelArg(kernel, 1, sizeof wrong, &wrong), CL_INVALID_ARG_VALUE);
    CHECK_ERROR(clSetKernelArg(kernel, 1, 0, NULL), CL_INVALID_ARG_SIZE);
    cl_ulong local_size = 0;
    CHECK_CL(
        clGetKernelWorkGroupInfo(kernel, test->device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_size, &local_size, NULL));
    CHECK_VENDOR(local_size >= 64 * 12, "5.9.4: includes the local memory of arguments set");
    CHECK_CL(clReleaseKernel(kernel));

    kernel = dv_test_kernel(program, "use_constant");
    cl_int table[2] = {10, 20}, extra = 300;
    cl_mem constants = dv_test_buffer(test, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof table, table);
    cl_mem more = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof extra, &extra);
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof constants, &constants));
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof more, &more));
    CHECK(run_for_int(test, kernel) == 330);
    /* Both ways to pass no buffer. */
    cl_mem nothing = NULL;
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof nothing, &nothing));
    CHECK(run_for_int(test, kernel) == 530);
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof more, &more));
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof nothing, NULL));
    CHECK(run_for_int(test, kernel) == 530);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(constants));
    CHECK_CL(clReleaseMemObject(more));

    /* Sub-buffers; the parent's other bytes stay. */
    cl_int zeros[1024] = {0};
    cl_mem parent = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros);
    cl_buffer_region region = {1024, 1024};
    cl_int error;
    cl_mem child = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    REQUIRE_CL(error);
    kernel = dv_test_kernel(program, "bump");
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof child, &child));
    run_once(test, kernel, 256, 64);
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof parent, &parent));
    run_once(test, kernel, 1024, 64);
    read_back(test, parent, zeros, sizeof zeros);
    for (int k = 0; k < 1024; k++)
        CHECK(zeros[k] == (k >= 256 && k < 512 ? 2 : 1));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(child));
    CHECK_CL(clReleaseMemObject(parent));
    CHECK_CL(clReleaseMemObject(out));
}

static void check_arg(cl_kernel kernel, cl_uint index, cl_kernel_arg_address_qualifier address,
                      cl_kernel_arg_access_qualifier access, cl_kernel_arg_type_qualifier qualifier, const char *type,
                      const char *name)
{
    cl_kernel_arg_address_qualifier got_address = 0;
    cl_kernel_arg_access_qualifier got_access = 0;
    cl_kernel_arg_type_qualifier got_qualifier = 99;
    char got_type[64] = "", got_name[64] = "";
    CHECK_CL(
        clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof got_address, &got_address, NULL));
    CHECK_CL(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof got_access, &got_access, NULL));
    CHECK_CL(
        clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof got_qualifier, &got_qualifier, NULL));
    CHECK_CL(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof got_type, got_type, NULL));
    CHECK_CL(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_NAME, sizeof got_name, got_name, NULL));
    if (!CHECK(got_address == address && got_access == access && got_qualifier == qualifier))
        dv_test_detail("argument %u: 0x%x 0x%x 0x%x", index, got_address, got_access, (unsigned)got_qualifier);
    if (!CHECK(strcmp(got_type, type) == 0 && strcmp(got_name, name) == 0))
        dv_test_detail("argument %u: '%s' '%s'", index, got_type, got_name);
}

static void test_kernel_info(const struct dv_test *test, cl_program program)
{
    dv_test_section("kernel queries");
    cl_kernel kernel = dv_test_kernel(program, "described");
    check_arg(kernel, 0, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ACCESS_NONE,
              CL_KERNEL_ARG_TYPE_CONST | CL_KERNEL_ARG_TYPE_RESTRICT, "float4*", "first");
    check_arg(kernel, 1, CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_ACCESS_NONE, 0, "uint*", "second");
    check_arg(kernel, 2, CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ACCESS_NONE, CL_KERNEL_ARG_TYPE_CONST, "char*",
              "third");
    check_arg(kernel, 3, CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ACCESS_NONE, 0, "int", "fourth");
    check_arg(kernel, 4, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ACCESS_READ_ONLY, 0, "image2d_t", "fifth");
    check_arg(kernel, 5, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ACCESS_WRITE_ONLY, 0, "image2d_t", "sixth");
    check_arg(kernel, 6, CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ACCESS_NONE, 0, "sampler_t", "seventh");
    check_arg(kernel, 7, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ACCESS_NONE, CL_KERNEL_ARG_TYPE_VOLATILE, "int*",
              "eighth");
    char name[64];
    size_t size = 0;
    CHECK_ERROR(clGetKernelArgInfo(kernel, 8, CL_KERNEL_ARG_NAME, sizeof name, name, NULL), CL_INVALID_ARG_INDEX);
    CHECK_ERROR(clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, 2, name, NULL), CL_INVALID_VALUE);
    CHECK_CL(clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, 0, NULL, &size));
    CHECK(size == sizeof "first");

    cl_uint count = 0;
    cl_context context = NULL;
    cl_program of = NULL;
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    CHECK(count == 8);
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, sizeof context, &context, NULL));
    CHECK(context == test->context);
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of, &of, NULL));
    CHECK(of == program);
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size));
    CHECK(size == sizeof "described");
    CHECK_ERROR(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 3, name, NULL), CL_INVALID_VALUE);
    CHECK_CL(clRetainKernel(kernel));
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof count, &count, NULL));
    CHECK(count == 2);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseKernel(kernel));

    kernel = dv_test_kernel(program, "fixed");
    size_t fixed[3] = {0}, value = 0, multiple = 0;
    CHECK_CL(
        clGetKernelWorkGroupInfo(kernel, test->device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof fixed, fixed, NULL));
    CHECK(fixed[0] == 4 && fixed[1] == 2 && fixed[2] == 1);
    CHECK_CL(clGetKernelWorkGroupInfo(kernel, NULL, CL_KERNEL_WORK_GROUP_SIZE, sizeof value, &value, NULL));
    CHECK(value >= 8);
    CHECK_CL(clGetKernelWorkGroupInfo(kernel, test->device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                                      sizeof multiple, &multiple, NULL));
    CHECK(multiple >= 1);
    cl_mem out = dv_test_buffer(test, 0, 64, NULL);
    cl_int answer = 0;
    size_t global[2] = {8, 4}, right[2] = {4, 2}, wrong[2] = {2, 4};
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, right, 0, NULL, NULL));
    read_back(test, out, &answer, sizeof answer);
    CHECK(answer == 42);
    CHECK_ERROR(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, wrong, 0, NULL, NULL),
                CL_INVALID_WORK_GROUP_SIZE);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(out));
}

static void test_shapes(const struct dv_test *test, cl_program program)
{
    dv_test_section("shapes of launches");
    cl_kernel kernel = dv_test_kernel(program, "where");
    cl_uint back[512];
    cl_mem out = dv_test_buffer(test, 0, sizeof back, NULL);
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    static const struct {
        cl_uint dimensions;
        size_t offset[3], global[3], local[3];
    } shapes[] = {
        {1, {0, 0, 0}, {60, 1, 1}, {4, 1, 1}}, {1, {13, 0, 0}, {7, 1, 1}, {1, 1, 1}},
        {2, {0, 0, 0}, {12, 5, 1}, {3, 1, 1}}, {2, {2, 3, 0}, {8, 4, 1}, {2, 2, 1}},
        {3, {0, 0, 0}, {4, 4, 4}, {2, 1, 2}},  {3, {1, 2, 3}, {5, 3, 7}, {1, 1, 1}},
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const size_t *g = shapes[i].global, *o = shapes[i].offset;
        memset(back, 0, sizeof back);
        CHECK_CL(clEnqueueWriteBuffer(test->queue, out, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, shapes[i].dimensions, o[0] | o[1] | o[2] ? o : NULL, g,
                                        shapes[i].local, 0, NULL, NULL));
        read_back(test, out, back, sizeof back);
        for (size_t z = 0; z < g[2]; z++)
            for (size_t y = 0; y < g[1]; y++)
                for (size_t x = 0; x < g[0]; x++)
                    if (!CHECK(back[x + g[0] * (y + g[1] * z)] == x + o[0] + 100 * (y + o[1]) + 10000 * (z + o[2])))
                        dv_test_detail("shape %zu at %zu,%zu,%zu", i, x, y, z);
        CHECK(back[g[0] * g[1] * g[2]] == 0);
    }
    /* The implementation chooses the group. */
    size_t global[2] = {16, 16};
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL));
    read_back(test, out, back, sizeof back);
    CHECK(back[255] == 15 + 1500);
    CHECK_CL(clEnqueueTask(test->queue, kernel, 0, NULL, NULL));
    CHECK_CL(clFinish(test->queue));

    size_t odd_local[2] = {3, 1}, huge[3] = {1 << 20, 1, 1}, zero[2] = {0, 1};
    CHECK_ERROR(clEnqueueNDRangeKernel(test->queue, kernel, 0, NULL, global, NULL, 0, NULL, NULL),
                CL_INVALID_WORK_DIMENSION);
    CHECK_ERROR(clEnqueueNDRangeKernel(test->queue, kernel, 4, NULL, global, NULL, 0, NULL, NULL),
                CL_INVALID_WORK_DIMENSION);
    CHECK_ERROR(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, odd_local, 0, NULL, NULL),
                CL_INVALID_WORK_GROUP_SIZE);
    if (!dv_test_pocl_dies("5.10: division by zero when a local size is zero"))
        CHECK(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, zero, 0, NULL, NULL) != CL_SUCCESS);
    cl_int error = clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, huge, huge, 0, NULL, NULL);
    CHECK(error == CL_INVALID_WORK_GROUP_SIZE || error == CL_INVALID_WORK_ITEM_SIZE);
    CHECK_CL(clReleaseKernel(kernel));
    /* Arguments not set. */
    kernel = dv_test_kernel(program, "where");
    CHECK_ERROR(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL),
                CL_INVALID_KERNEL_ARGS);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(out));
}

static void test_clone(const struct dv_test *test, cl_program program)
{
    dv_test_section("clone");
    cl_int error, one = 1, two = 2;
    cl_kernel kernel = dv_test_kernel(program, "use_local");
    cl_mem out = dv_test_buffer(test, 0, 64, NULL), other = dv_test_buffer(test, 0, 64, NULL);
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clSetKernelArg(kernel, 1, 4, NULL));
    CHECK_CL(clSetKernelArg(kernel, 2, 8, NULL));
    CHECK_CL(clSetKernelArg(kernel, 3, sizeof one, &one));
    cl_kernel clone = clCloneKernel(kernel, &error);
    CHECK_CL(error);
    REQUIRE(clone);
    CHECK(clone != kernel);
    cl_uint count = 0;
    CHECK_CL(clGetKernelInfo(clone, CL_KERNEL_REFERENCE_COUNT, sizeof count, &count, NULL));
    CHECK(count == 1);
    /* The clone has the arguments; from now on each has its own. */
    CHECK_CL(clSetKernelArg(kernel, 3, sizeof two, &two));
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof other, &other));
    run_once(test, clone, 1, 1);
    run_once(test, kernel, 1, 1);
    cl_int value = 0;
    read_back(test, out, &value, sizeof value);
    CHECK(value == 1);
    read_back(test, other, &value, sizeof value);
    CHECK(value == 2);
    CHECK_CL(clReleaseKernel(kernel));
    run_once(test, clone, 1, 1);
    CHECK_CL(clReleaseKernel(clone));
    CHECK_CL(clFinish(test->queue));
    CHECK_CL(clReleaseMemObject(out));
    CHECK_CL(clReleaseMemObject(other));
}

/* Objects live as long as something needs them. */
static void test_lifetimes(const struct dv_test *test)
{
    dv_test_section("lifetimes");
    cl_program program = dv_test_build(test, answer_source, "-DANSWER=31");
    cl_kernel kernel = dv_test_kernel(program, "answer");
    CHECK_CL(clReleaseProgram(program));
    CHECK(run_for_int(test, kernel) == 31);
    cl_program of = NULL;
    CHECK_CL(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of, &of, NULL));
    CHECK(of == program);

    cl_mem out = dv_test_buffer(test, 0, 4, NULL);
    cl_int error;
    cl_event gate = clCreateUserEvent(test->context, &error);
    REQUIRE_CL(error);
    size_t one = 1;
    cl_int value = 0;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &one, &one, 1, &gate, NULL));
    CHECK_CL(clEnqueueReadBuffer(test->queue, out, CL_FALSE, 0, 4, &value, 0, NULL, NULL));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(out));
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clFinish(test->queue));
    CHECK(value == 31);
    CHECK_CL(clUnloadPlatformCompiler(test->platform));
    program = dv_test_build(test, answer_source, "-DANSWER=32");
    CHECK(run_named(test, program, "answer") == 32);
    CHECK_CL(clReleaseProgram(program));
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    test_source(&test);
    test_types_of_its_own(&test);
    test_options(&test);
    test_failure(&test);
    test_info(&test);
    test_binaries(&test);
    test_link(&test);
    cl_program program = dv_test_build(&test, kernel_source, "-cl-kernel-arg-info");
    test_arguments(&test, program);
    test_kernel_info(&test, program);
    test_shapes(&test, program);
    test_clone(&test, program);
    CHECK_CL(clReleaseProgram(program));
    test_lifetimes(&test);
    dv_test_teardown(&test);
    return dv_test_result("programs");
}
