/* Implementation of check.h: counting and printing of checks, set-up of the device under test. */
#include "check.h"

#include <pthread.h>
#include <stdarg.h>
#include <time.h>

static atomic_uint checks_done;
static atomic_uint checks_failed;
static atomic_uint vendor_deviations;
static const char *current_section = "";
static bool on_bare_pocl;

bool dv_test_note(bool ok, const char *file, int line, const char *what)
{
    atomic_fetch_add(&checks_done, 1);
    if (!ok) {
        /* A loop that fails a million times says so once in a while only. */
        if (atomic_fetch_add(&checks_failed, 1) < 200)
            fprintf(stderr, "FAIL %s:%d [%s] %s\n", file, line, current_section, what);
    }
    return ok;
}

bool dv_test_note_error(cl_int got, cl_int expected, const char *file, int line, const char *what)
{
    bool ok = dv_test_note(got == expected, file, line, what);
    if (!ok)
        dv_test_detail("got %s, expected %s", dv_test_error_name(got), dv_test_error_name(expected));
    return ok;
}

bool dv_test_note_vendor(bool ok, const char *file, int line, const char *what, const char *clause)
{
    atomic_fetch_add(&checks_done, 1);
    if (!ok) {
        atomic_fetch_add(&vendor_deviations, 1);
        fprintf(stderr, "DEVIATION %s:%d [%s] %s (%s)\n", file, line, current_section, what, clause);
    }
    return ok;
}

bool dv_test_note_except_pocl(bool ok, const char *file, int line, const char *what, const char *clause)
{
    if (on_bare_pocl)
        return dv_test_note_vendor(ok, file, line, what, clause);
    if (!dv_test_note(ok, file, line, what))
        dv_test_detail("%s", clause);
    return ok;
}

void dv_test_section(const char *name)
{
    current_section = name;
    if (getenv("DIVVY_TEST_VERBOSE"))
        fprintf(stderr, "section %s\n", name);
}

void dv_test_skip(const char *why)
{
    fprintf(stderr, "SKIP [%s] %s\n", current_section, why);
}

void dv_test_detail(const char *format, ...)
{
    if (atomic_load(&checks_failed) > 200)
        return;
    va_list arguments;
    va_start(arguments, format);
    fputs("     ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

void dv_test_give_up(const char *file, int line, const char *what)
{
    fprintf(stderr, "FAIL %s:%d [%s] cannot go on: %s\n", file, line, current_section, what);
    _Exit(1);
}

int dv_test_result(const char *program)
{
    unsigned failed = atomic_load(&checks_failed);
    printf("%s: %u checks, %u failed, %u known deviations\n", program, atomic_load(&checks_done), failed,
           atomic_load(&vendor_deviations));
    fflush(stdout);
    return failed ? 1 : 0;
}

struct dv_test dv_test_setup(void)
{
    struct dv_test test = {0};
    cl_int error;
    setvbuf(stderr, NULL, _IOLBF, 0);
    REQUIRE_CL(clGetPlatformIDs(1, &test.platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(test.platform, CL_DEVICE_TYPE_ALL, 1, &test.device, NULL));
    char name[256] = "";
    REQUIRE_CL(clGetPlatformInfo(test.platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
    on_bare_pocl = strcmp(name, "Portable Computing Language") == 0;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)test.platform, 0};
    test.context = clCreateContext(properties, 1, &test.device, NULL, NULL, &error);
    REQUIRE_CL(error);
    test.queue = clCreateCommandQueue(test.context, test.device, CL_QUEUE_PROFILING_ENABLE, &error);
    REQUIRE_CL(error);
    test.ooo_queue = clCreateCommandQueue(test.context, test.device,
                                          CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    REQUIRE_CL(error);
    return test;
}

void dv_test_teardown(struct dv_test *test)
{
    CHECK_CL(clFinish(test->queue));
    CHECK_CL(clFinish(test->ooo_queue));
    CHECK_CL(clReleaseCommandQueue(test->queue));
    CHECK_CL(clReleaseCommandQueue(test->ooo_queue));
    CHECK_CL(clReleaseContext(test->context));
}

bool dv_test_on_bare_pocl(void)
{
    return on_bare_pocl;
}

bool dv_test_pocl_dies(const char *why)
{
    if (on_bare_pocl)
        dv_test_skip(why);
    return on_bare_pocl;
}

cl_program dv_test_build(const struct dv_test *test, const char *source, const char *options)
{
    cl_int error;
    cl_program program = clCreateProgramWithSource(test->context, 1, &source, NULL, &error);
    REQUIRE_CL(error);
    error = clBuildProgram(program, 1, &test->device, options, NULL, NULL);
    if (error != CL_SUCCESS) {
        static char log[16384];
        clGetProgramBuildInfo(program, test->device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fprintf(stderr, "build log:\n%s\n", log);
    }
    REQUIRE_CL(error);
    return program;
}

cl_kernel dv_test_kernel(cl_program program, const char *name)
{
    cl_int error;
    cl_kernel kernel = clCreateKernel(program, name, &error);
    REQUIRE_CL(error);
    return kernel;
}

cl_mem dv_test_buffer(const struct dv_test *test, cl_mem_flags flags, size_t size, void *host)
{
    cl_int error;
    cl_mem buffer = clCreateBuffer(test->context, flags, size, host, &error);
    REQUIRE_CL(error);
    return buffer;
}

cl_int dv_test_event_status(cl_event event)
{
    cl_int status = 12345;
    CHECK_CL(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

cl_uint dv_test_event_references(cl_event event)
{
    cl_uint count = 0;
    CHECK_CL(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
    return count;
}

double dv_test_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void dv_test_sleep_ms(unsigned ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&pause, &pause) != 0)
        ;
}

uint64_t dv_test_random(uint64_t *state)
{
    uint64_t x = *state ? *state : 0x9e3779b97f4a7c15u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * 0x2545f4914f6cdd1du >> 11;
}

void dv_test_random_fill(uint64_t *state, void *memory, size_t size)
{
    unsigned char *bytes = memory;
    for (size_t i = 0; i < size; i += 6) {
        uint64_t value = dv_test_random(state); /* 53 bits */
        memcpy(bytes + i, &value, size - i < 6 ? size - i : 6);
    }
}

const char *dv_test_error_name(cl_int error)
{
    static const struct {
        cl_int value;
        const char *name;
    } names[] = {
#define NAME(value) {value, #value}
        NAME(CL_SUCCESS),
        NAME(CL_DEVICE_NOT_FOUND),
        NAME(CL_DEVICE_NOT_AVAILABLE),
        NAME(CL_COMPILER_NOT_AVAILABLE),
        NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        NAME(CL_OUT_OF_RESOURCES),
        NAME(CL_OUT_OF_HOST_MEMORY),
        NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
        NAME(CL_MEM_COPY_OVERLAP),
        NAME(CL_IMAGE_FORMAT_MISMATCH),
        NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED),
        NAME(CL_BUILD_PROGRAM_FAILURE),
        NAME(CL_MAP_FAILURE),
        NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
        NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
        NAME(CL_COMPILE_PROGRAM_FAILURE),
        NAME(CL_LINKER_NOT_AVAILABLE),
        NAME(CL_LINK_PROGRAM_FAILURE),
        NAME(CL_DEVICE_PARTITION_FAILED),
        NAME(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
        NAME(CL_INVALID_VALUE),
        NAME(CL_INVALID_DEVICE_TYPE),
        NAME(CL_INVALID_PLATFORM),
        NAME(CL_INVALID_DEVICE),
        NAME(CL_INVALID_CONTEXT),
        NAME(CL_INVALID_QUEUE_PROPERTIES),
        NAME(CL_INVALID_COMMAND_QUEUE),
        NAME(CL_INVALID_HOST_PTR),
        NAME(CL_INVALID_MEM_OBJECT),
        NAME(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
        NAME(CL_INVALID_IMAGE_SIZE),
        NAME(CL_INVALID_SAMPLER),
        NAME(CL_INVALID_BINARY),
        NAME(CL_INVALID_BUILD_OPTIONS),
        NAME(CL_INVALID_PROGRAM),
        NAME(CL_INVALID_PROGRAM_EXECUTABLE),
        NAME(CL_INVALID_KERNEL_NAME),
        NAME(CL_INVALID_KERNEL_DEFINITION),
        NAME(CL_INVALID_KERNEL),
        NAME(CL_INVALID_ARG_INDEX),
        NAME(CL_INVALID_ARG_VALUE),
        NAME(CL_INVALID_ARG_SIZE),
        NAME(CL_INVALID_KERNEL_ARGS),
        NAME(CL_INVALID_WORK_DIMENSION),
        NAME(CL_INVALID_WORK_GROUP_SIZE),
        NAME(CL_INVALID_WORK_ITEM_SIZE),
        NAME(CL_INVALID_GLOBAL_OFFSET),
        NAME(CL_INVALID_EVENT_WAIT_LIST),
        NAME(CL_INVALID_EVENT),
        NAME(CL_INVALID_OPERATION),
        NAME(CL_INVALID_GL_OBJECT),
        NAME(CL_INVALID_BUFFER_SIZE),
        NAME(CL_INVALID_MIP_LEVEL),
        NAME(CL_INVALID_GLOBAL_WORK_SIZE),
        NAME(CL_INVALID_PROPERTY),
        NAME(CL_INVALID_IMAGE_DESCRIPTOR),
        NAME(CL_INVALID_COMPILER_OPTIONS),
        NAME(CL_INVALID_LINKER_OPTIONS),
        NAME(CL_INVALID_DEVICE_PARTITION_COUNT),
        NAME(CL_INVALID_PIPE_SIZE),
        NAME(CL_INVALID_DEVICE_QUEUE),
        NAME(CL_INVALID_SPEC_ID),
#undef NAME
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (names[i].value == error)
            return names[i].name;
    static _Thread_local char number[32];
    snprintf(number, sizeof number, "%d", error);
    return number;
}
