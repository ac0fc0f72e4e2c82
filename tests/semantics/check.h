/* What every program of this suite starts from: checks that count instead of stopping, a context
 * on the first device, and small wrappers that keep the tests readable. The programs use nothing
 * but the public OpenCL API, so that they judge any implementation alike. */
#ifndef DIVVY_TESTS_SEMANTICS_CHECK_H
#define DIVVY_TESTS_SEMANTICS_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* deprecated is not forbidden */
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The device under test and the objects nearly every test needs. */
struct dv_test {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;     /* in order, profiling on */
    cl_command_queue ooo_queue; /* out of order, profiling on */
};

/* Fails the whole program when there is no usable device. */
struct dv_test dv_test_setup(void);
void dv_test_teardown(struct dv_test *test);

/* True when the platform is PoCL itself. */
bool dv_test_on_bare_pocl(void);

/* True on bare PoCL, after printing why: for leaving out what would hang or crash PoCL 3.1. */
bool dv_test_pocl_dies(const char *why);

/* Prints the summary; the value is the exit code of main. */
int dv_test_result(const char *program);

cl_program dv_test_build(const struct dv_test *test, const char *source, const char *options);
cl_kernel dv_test_kernel(cl_program program, const char *name);
cl_mem dv_test_buffer(const struct dv_test *test, cl_mem_flags flags, size_t size, void *host);
cl_int dv_test_event_status(cl_event event);
cl_uint dv_test_event_references(cl_event event);
const char *dv_test_error_name(cl_int error);
double dv_test_now_s(void);
void dv_test_sleep_ms(unsigned ms);

/* Repeatable pseudo-random numbers; never zero as state. */
uint64_t dv_test_random(uint64_t *state);
void dv_test_random_fill(uint64_t *state, void *memory, size_t size);

/* Bookkeeping behind the macros. Thread safe. */
bool dv_test_note(bool ok, const char *file, int line, const char *what);
bool dv_test_note_error(cl_int got, cl_int expected, const char *file, int line, const char *what);
bool dv_test_note_vendor(bool ok, const char *file, int line, const char *what, const char *clause);
bool dv_test_note_except_pocl(bool ok, const char *file, int line, const char *what, const char *clause);
void dv_test_section(const char *name);
void dv_test_skip(const char *why);
void dv_test_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
__attribute__((noreturn)) void dv_test_give_up(const char *file, int line, const char *what);

/* A check that failed is counted and printed; the program goes on. The value tells the result. */
#define CHECK(condition) dv_test_note((condition), __FILE__, __LINE__, #condition)

/* The call returns CL_SUCCESS. */
#define CHECK_CL(call) dv_test_note_error((call), CL_SUCCESS, __FILE__, __LINE__, #call)

/* The call returns exactly this error. */
#define CHECK_ERROR(call, expected) dv_test_note_error((call), (expected), __FILE__, __LINE__, #call)

/* As CHECK, for what bare PoCL 3.1 is known to do otherwise than the standard says. A deviation is
 * printed with the clause, and not counted: the program still passes on the bare vendor. */
#define CHECK_VENDOR(condition, clause) dv_test_note_vendor((condition), __FILE__, __LINE__, #condition, (clause))

/* As CHECK_VENDOR on bare PoCL, a full check on everything else: for what a layer above PoCL
 * decides by itself and has to get right. */
#define CHECK_EXCEPT_POCL(condition, clause)                                                                           \
    dv_test_note_except_pocl((condition), __FILE__, __LINE__, #condition, (clause))

/* Nothing that follows makes sense without this. */
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            dv_test_give_up(__FILE__, __LINE__, #condition);                                                           \
    } while (0)
#define REQUIRE_CL(call)                                                                                               \
    do {                                                                                                               \
        if (!dv_test_note_error((call), CL_SUCCESS, __FILE__, __LINE__, #call))                                        \
            dv_test_give_up(__FILE__, __LINE__, #call);                                                                \
    } while (0)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
