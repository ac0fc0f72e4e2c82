/* Small blocks: sizes, what is kept and what goes back, and blocks that change hands. The functions
 * have other names here and stand on ours, which count: so sanitizers can watch them, too. */
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

void *below_malloc(size_t bytes);
void *below_calloc(size_t number, size_t bytes);
void *below_memalign(size_t alignment, size_t bytes);
void below_free(void *block);

static _Atomic long outstanding; /* blocks that the C library has given and not got back */

static void *count(void *block)
{
    if (block)
        atomic_fetch_add(&outstanding, 1);
    return block;
}

void *below_malloc(size_t bytes)
{
    return count(malloc(bytes));
}

void *below_calloc(size_t number, size_t bytes)
{
    return count(calloc(number, bytes));
}

void *below_memalign(size_t alignment, size_t bytes)
{
    void *block = NULL;

    return posix_memalign(&block, alignment, bytes) == 0 ? count(block) : NULL;
}

void below_free(void *block)
{
    atomic_fetch_sub(&outstanding, 1);
    free(block);
}

void *tested_malloc(size_t bytes);
void *tested_calloc(size_t number, size_t bytes);
int tested_posix_memalign(void **pointer, size_t alignment, size_t bytes);
void tested_free(void *pointer);

#define __libc_malloc below_malloc
#define __libc_calloc below_calloc
#define __libc_memalign below_memalign
#define __libc_free below_free
#define malloc tested_malloc
#define calloc tested_calloc
#define posix_memalign tested_posix_memalign
#define free tested_free
#include "src/worker/core/blocks.c"
#undef malloc
#undef calloc
#undef posix_memalign
#undef free

static void blocks_are_large_enough_and_aligned(void **state)
{
    void *blocks[LARGEST_BYTES + 64];

    for (int round = 0; round < 3; round++) {
        for (size_t n = 0; n < LARGEST_BYTES + 64; n++) {
            blocks[n] = tested_malloc(n);
            assert_non_null(blocks[n]);
            assert_int_equal((uintptr_t)blocks[n] % 16, 0);
            assert_true(malloc_usable_size(blocks[n]) >= n);
            memset(blocks[n], (int)n, n);
        }
        for (size_t n = 0; n < LARGEST_BYTES + 64; n++) {
            for (size_t i = 0; i < n; i++)
                assert_int_equal(((uint8_t *)blocks[n])[i], (uint8_t)n); /* nor do they overlap */
            tested_free(blocks[n]);
        }
    }
    tested_free(NULL);
}

static void calloc_gives_zeros_whatever_was_there(void **state)
{
    for (size_t n = 1; n < LARGEST_BYTES + 64; n++) {
        uint8_t *block = tested_malloc(n);
        memset(block, 0xa5, n);
        tested_free(block);
        block = tested_calloc(1, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(block[i], 0);
        tested_free(block);
    }
    if (!UNDER_SANITIZER) { /* which would end the process for asking */
        void *volatile block = tested_calloc(SIZE_MAX / 2, 3);
        assert_null(block);
    }
}

static void a_freed_block_is_the_next_one_given(void **state)
{
    void *block = tested_malloc(200);
    long before = outstanding;

    for (int i = 0; i < 1000; i++) {
        tested_free(block);
        void *again = tested_malloc(193 + (size_t)i % 8);
        assert_ptr_equal(again, block);
    }
    assert_int_equal(outstanding, before);
    tested_free(block);
}

static void aligned_blocks_come_again_too(void **state)
{
    void *block = NULL, *small;
    long before = 0;

    assert_int_equal(tested_posix_memalign(&block, 3, 100), EINVAL);
    assert_int_equal(tested_posix_memalign(&block, 24, 100), EINVAL);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(tested_posix_memalign(&block, 128, 384), 0);
        assert_int_equal((uintptr_t)block % 128, 0);
        assert_true(malloc_usable_size(block) >= 384);
        if (i == 10)
            before = outstanding;
        tested_free(block);
    }
    if (!UNDER_SANITIZER) /* whose blocks have other sizes */
        assert_int_equal(outstanding, before);
    for (int i = 0; i < 1000; i++) { /* also where blocks that are not aligned lie on top */
        small = tested_malloc(380);
        assert_int_equal(tested_posix_memalign(&block, 64, 380), 0);
        assert_int_equal((uintptr_t)block % 64, 0);
        tested_free(block);
        tested_free(small);
    }
    assert_int_equal(tested_posix_memalign(&block, 4096, 100), 0);
    assert_int_equal((uintptr_t)block % 4096, 0);
    tested_free(block);
}

enum { MANY = 100000 };

static void what_is_kept_is_bounded(void **state)
{
    static void *blocks[MANY];
    const size_t sizes[] = {16, 100, 240, 1000};
    long before = outstanding, mine = 0;

    for (uint32_t i = 0; i < CLASSES; i++)
        mine += 2 * batch_of(i);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t i = 0; i < MANY; i++)
            assert_non_null(blocks[i] = tested_malloc(sizes[s]));
        for (size_t i = 0; i < MANY; i++)
            tested_free(blocks[i]);
        assert_true(kept_bytes <= MOST_BYTES);
        assert_true(classes[class_for(sizes[s])].bytes <= MOST_BYTES_OF_CLASS);
    }
    assert_true(outstanding - before <= mine + (long)(MOST_BYTES / LEAST_BYTES));
    assert_true(kept_bytes >= 2 * (MOST_BYTES_OF_CLASS - BATCH_BYTES)); /* and it is kept */
}

static void *leave_blocks(void *argument)
{
    void *blocks[8];

    for (size_t n = 24; n < LARGEST_BYTES; n += 50) {
        for (int i = 0; i < 8; i++) /* from below, as many as fit a thread's own */
            blocks[i] = below_malloc(n);
        for (int i = 0; i < 8; i++)
            tested_free(blocks[i]);
    }
    return NULL;
}

static void a_thread_leaves_nothing_behind(void **state)
{
    for (int i = 0; i < 10; i++) {
        size_t kept = kept_bytes;
        long before = outstanding;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, leave_blocks, NULL), 0);
        pthread_join(thread, NULL);
        if (kept_bytes == kept) /* else it handed some on */
            assert_int_equal(outstanding, before);
        else
            assert_true(outstanding - before <= (long)(MOST_BYTES / LEAST_BYTES));
    }
}

/* One thread allocates and another frees, as with a vendor's launches; and both do a little of the
 * other. */
enum { ROUNDS = 200000, SLOTS = 1024 };

static _Atomic(uint64_t *) handed[SLOTS];

static void *free_what_comes(void *argument)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t *block;
        while (!(block = atomic_exchange(&handed[i % SLOTS], NULL)))
            sched_yield();
        if (block[0] != i || block[1] != ~i)
            return (void *)1;
        tested_free(block);
        if (i % 3 == 0) {
            uint8_t *own = tested_calloc(1, 240);
            memset(own, 0xff, 240);
            tested_free(own);
        }
    }
    return NULL;
}

static void blocks_change_hands_and_stay_whole(void **state)
{
    struct random r = {.state = random_seed()};
    pthread_t thread;
    void *wrong;

    assert_int_equal(pthread_create(&thread, NULL, free_what_comes, NULL), 0);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        size_t bytes = 16 + random_below(&r, 300);
        uint64_t *block = i % 2 ? tested_malloc(bytes) : tested_calloc(1, bytes);
        assert_non_null(block);
        if (i % 2 == 0)
            assert_true(block[0] == 0 && block[1] == 0);
        block[0] = i;
        block[1] = ~i;
        while (atomic_load(&handed[i % SLOTS]))
            sched_yield();
        atomic_store(&handed[i % SLOTS], block);
    }
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_true(kept_bytes <= MOST_BYTES);
}

static void a_block_freed_twice_ends_the_process(void **state)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        void *volatile block = tested_malloc(100);
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        tested_free(block);
        tested_free(block);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_large_enough_and_aligned),
        cmocka_unit_test(calloc_gives_zeros_whatever_was_there),
        cmocka_unit_test(a_freed_block_is_the_next_one_given),
        cmocka_unit_test(aligned_blocks_come_again_too),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(a_thread_leaves_nothing_behind),
        cmocka_unit_test(blocks_change_hands_and_stay_whole),
        cmocka_unit_test(a_block_freed_twice_ends_the_process),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
