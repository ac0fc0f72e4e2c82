/* What every unit test needs: cmocka with the headers it wants first, numbers that look random but
 * come again with the same seed, and a session's shared memory without a session. */
#ifndef DV_TESTS_UNIT_H
#define DV_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

struct random {
    uint64_t state;
};

/* DIVVY_TEST_SEED repeats or varies a run; every test that uses it prints its seed. */
static inline uint64_t random_seed(void)
{
    const char *text = getenv("DIVVY_TEST_SEED");
    return text ? strtoull(text, NULL, 0) : 20240607;
}

static inline uint64_t random_next(struct random *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t random_below(struct random *r, uint64_t limit)
{
    return random_next(r) % limit;
}

static inline int random_chance(struct random *r, unsigned percent)
{
    return random_below(r, 100) < percent;
}

/* Zeroed memory of which only touched pages cost anything. */
static inline void *sparse_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

#endif
