/* That malloc in a worker is jemalloc's, with the settings of src/worker/core/allocator.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 1000u
/* below 8 MiB, from where jemalloc gives pages back at once by default */
#define LARGE_BYTES ((size_t)1 << 20)

static size_t size_named(const char *name)
{
    size_t value, bytes = sizeof value;

    assert_int_equal(mallctl(name, &value, &bytes, NULL, 0), 0);
    return value;
}

static void settings_are_taken(void **state)
{
    unsigned arenas;
    ssize_t decay;
    size_t bytes = sizeof arenas;

    assert_int_equal(mallctl("opt.narenas", &arenas, &bytes, NULL, 0), 0);
    assert_int_equal(arenas, 1);
    bytes = sizeof decay;
    assert_int_equal(mallctl("opt.dirty_decay_ms", &decay, &bytes, NULL, 0), 0);
    assert_int_equal(decay, 0);
    assert_int_equal(mallctl("opt.muzzy_decay_ms", &decay, &bytes, NULL, 0), 0);
    assert_int_equal(decay, 0);
}

/* strdup is the C library's: what it allocates must come from the same place. */
static void c_library_allocates_there_too(void **state)
{
    char text[3000];
    uint64_t before, after;
    size_t bytes = sizeof before;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(mallctl("thread.allocated", &before, &bytes, NULL, 0), 0);
    char *copy = strdup(text);
    assert_int_equal(mallctl("thread.allocated", &after, &bytes, NULL, 0), 0);
    assert_non_null(copy);
    assert_true(after - before >= sizeof text);
    free(copy);
}

static size_t dirty_pages(void)
{
    uint64_t epoch = 1;

    assert_int_equal(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch), 0);
    return size_named("stats.arenas.0.pdirty");
}

static void freed_pages_go_back_at_once(void **state)
{
    char *large = malloc(LARGE_BYTES);

    assert_non_null(large);
    memset(large, 1, LARGE_BYTES);
    free(large);
    assert_int_equal(dirty_pages(), 0);
}

static void *free_all(void *blocks)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        free(((void **)blocks)[i]);
    return NULL;
}

static bool allocate_and_free_elsewhere(void)
{
    void *blocks[BLOCKS];
    pthread_t thread;

    for (uint32_t i = 0; i < BLOCKS; i++)
        if (!(blocks[i] = calloc(1, 16 + i)))
            return false;
    return pthread_create(&thread, NULL, free_all, blocks) == 0 && pthread_join(thread, NULL) == 0;
}

/* As a worker does, which is a fork of the zygote. */
static void child_allocates(void **state)
{
    int status;

    assert_true(allocate_and_free_elsewhere());
    pid_t child = fork();
    if (child == 0)
        _exit(allocate_and_free_elsewhere() ? 0 : 1);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_taken),
        cmocka_unit_test(c_library_allocates_there_too),
        cmocka_unit_test(freed_pages_go_back_at_once),
        cmocka_unit_test(child_allocates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
