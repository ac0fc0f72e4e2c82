/* What the programs of the benches share. */
#ifndef DV_BENCH_BENCH_H
#define DV_BENCH_BENCH_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Ends the program with a message. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* An OpenCL call's answer: anything but CL_SUCCESS (0) ends the program. */
static inline void check(int error, const char *what)
{
    if (error != 0)
        fail("%s: OpenCL error %d", what, error);
}

static inline uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
