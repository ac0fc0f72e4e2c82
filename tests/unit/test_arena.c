/* The arena's allocator, on memory like a session's. */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/client/opencl/arena.h"
#include "src/wire/session/shm.h"

#define MIB (UINT64_C(1) << 20)
/* The largest block that takes so many bytes of the arena. */
#define WITHIN(bytes) ((bytes)-DV_ARENA_GUARD_BYTES)

struct ground {
    struct dvc_arena arena;
    uint64_t bytes; /* of the arena itself */
    int fd;
};

static struct ground *ground_make(uint64_t arena_bytes)
{
    struct ground *g = calloc(1, sizeof *g);
    uint64_t all = DV_SHM_ARENA_OFFSET + arena_bytes;
    g->bytes = arena_bytes;
    g->fd = memfd_create("arena", MFD_CLOEXEC);
    assert_true(g->fd >= 0);
    assert_int_equal(ftruncate(g->fd, (off_t)all), 0);
    uint8_t *shm = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, g->fd, 0);
    assert_true(shm != MAP_FAILED);
    assert_int_equal(dvc_arena_init(&g->arena, shm, all), 0);
    return g;
}

static void ground_drop(struct ground *g)
{
    dvc_arena_end(&g->arena);
    munmap(g->arena.shm, DV_SHM_ARENA_OFFSET + g->bytes);
    close(g->fd);
    free(g);
}

static uint64_t backed_bytes(struct ground *g)
{
    struct stat info;
    assert_int_equal(fstat(g->fd, &info), 0);
    return (uint64_t)info.st_blocks * 512;
}

static void blocks_are_aligned_and_inside(void **state)
{
    struct ground *g = ground_make(64 * MIB);
    const uint64_t sizes[] = {0, 1, 16, 255, 256, 257, 4096, 32768, 32769, 100000, 1048576, 5000001};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t offset = dvc_arena_alloc(&g->arena, sizes[i]);
        assert_true(offset >= DV_SHM_ARENA_OFFSET);
        assert_true(offset + sizes[i] <= g->arena.end);
        assert_int_equal(offset % 256, 0);
        if (sizes[i] > DV_ARENA_SMALL_MAX)
            assert_int_equal(offset % DV_PAGE, 0);
    }
    ground_drop(g);
}

static void what_cannot_fit_is_refused(void **state)
{
    struct ground *g = ground_make(16 * MIB);
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(16 * MIB) + 1), 0);
    assert_int_equal(dvc_arena_alloc(&g->arena, g->arena.end), 0);
    assert_int_equal(dvc_arena_alloc(&g->arena, g->arena.end + 1), 0);
    assert_int_equal(dvc_arena_alloc(&g->arena, UINT64_MAX), 0);
    assert_int_equal(dvc_arena_alloc(&g->arena, UINT64_MAX - 4094), 0);
    uint64_t all = dvc_arena_alloc(&g->arena, WITHIN(16 * MIB));
    assert_int_equal(all, DV_SHM_ARENA_OFFSET);
    assert_int_equal(dvc_arena_alloc(&g->arena, 1), 0);
    assert_int_equal(dvc_arena_alloc(&g->arena, 40000), 0);
    dvc_arena_free(&g->arena, all);
    assert_int_not_equal(dvc_arena_alloc(&g->arena, WITHIN(16 * MIB)), 0);
    ground_drop(g);
}

/* After large blocks have been everywhere, small ones must still be had. */
static void small_blocks_come_from_freed_large_ones(void **state)
{
    struct ground *g = ground_make(16 * MIB);
    uint64_t all = dvc_arena_alloc(&g->arena, WITHIN(16 * MIB));
    assert_int_not_equal(all, 0);
    dvc_arena_free(&g->arena, all);
    for (uint64_t bytes = 16; bytes <= 32768; bytes *= 2)
        assert_int_not_equal(dvc_arena_alloc(&g->arena, bytes), 0);
    ground_drop(g);
}

/* What the worker does not open for kernels. */
static void whole_pages_have_a_page_behind_them(void **state)
{
    struct ground *g = ground_make(64 * MIB);
    const uint64_t sizes[] = {2049, 4096, 4097, 32768, MIB, 5 * MIB + 1};
    uint64_t end = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t offset = dvc_arena_alloc(&g->arena, sizes[i]);
        assert_true(offset >= end + DV_PAGE);
        end = (offset + sizes[i] + DV_PAGE - 1) / DV_PAGE * DV_PAGE;
    }
    uint64_t small = dvc_arena_alloc(&g->arena, 100);
    assert_true(small >= end + DV_PAGE);
    assert_true(dvc_arena_alloc(&g->arena, 5000) >= small + MIB + DV_PAGE);
    ground_drop(g);
}

static void freed_neighbours_are_joined(void **state)
{
    struct ground *g = ground_make(8 * MIB);
    uint64_t blocks[8];
    for (int i = 0; i < 8; i++)
        assert_int_not_equal(blocks[i] = dvc_arena_alloc(&g->arena, WITHIN(MIB)), 0);
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(2 * MIB)), 0);
    dvc_arena_free(&g->arena, blocks[2]); /* alone */
    dvc_arena_free(&g->arena, blocks[4]); /* alone */
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(2 * MIB)), 0);
    dvc_arena_free(&g->arena, blocks[3]); /* joins both sides */
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(3 * MIB)), blocks[2]);
    dvc_arena_free(&g->arena, blocks[2]);
    dvc_arena_free(&g->arena, blocks[1]); /* joins what follows */
    dvc_arena_free(&g->arena, blocks[5]); /* joins what precedes */
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(5 * MIB)), blocks[1]);
    dvc_arena_free(&g->arena, blocks[1]);
    dvc_arena_free(&g->arena, blocks[0]);
    dvc_arena_free(&g->arena, blocks[6]);
    dvc_arena_free(&g->arena, blocks[7]);
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(8 * MIB)), blocks[0]);
    ground_drop(g);
}

static void the_best_fit_is_taken_and_the_rest_kept(void **state)
{
    struct ground *g = ground_make(16 * MIB);
    uint64_t large = dvc_arena_alloc(&g->arena, WITHIN(4 * MIB));
    dvc_arena_alloc(&g->arena, WITHIN(MIB));
    uint64_t small = dvc_arena_alloc(&g->arena, WITHIN(2 * MIB));
    dvc_arena_alloc(&g->arena, WITHIN(MIB));
    dvc_arena_free(&g->arena, large);
    dvc_arena_free(&g->arena, small);
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(2 * MIB) - 5), small);
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(MIB)), large);
    assert_int_equal(dvc_arena_alloc(&g->arena, WITHIN(3 * MIB)), large + MIB);
    ground_drop(g);
}

/* Offsets to free come from the worker too, and are believed only if they name a block in use. */
static void foreign_and_double_frees_are_ignored(void **state)
{
    struct ground *g = ground_make(8 * MIB);
    uint64_t a = dvc_arena_alloc(&g->arena, MIB), b = dvc_arena_alloc(&g->arena, MIB);
    uint64_t small = dvc_arena_alloc(&g->arena, 100);
    const uint64_t nonsense[] = {0,
                                 1,
                                 DV_SHM_ARENA_OFFSET - 4096,
                                 a + 1,
                                 a + 4096,
                                 small + 128,
                                 small + 256,
                                 g->arena.end,
                                 g->arena.end - 4096,
                                 UINT64_MAX};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        dvc_arena_free(&g->arena, nonsense[i]);
    dvc_arena_free(&g->arena, a);
    dvc_arena_free(&g->arena, a);
    dvc_arena_free(&g->arena, small);
    dvc_arena_free(&g->arena, small);
    uint64_t first = dvc_arena_alloc(&g->arena, MIB), second = dvc_arena_alloc(&g->arena, MIB);
    assert_int_equal(first, a);
    assert_int_not_equal(second, a);
    assert_int_not_equal(second, b);
    uint64_t one = dvc_arena_alloc(&g->arena, 100), two = dvc_arena_alloc(&g->arena, 100);
    assert_int_equal(one, small);
    assert_int_not_equal(two, small);
    ground_drop(g);
}

/* ---- at random ---- */

#define LIVE_MOST 400

struct block {
    uint64_t offset, bytes;
};

static uint64_t random_size(struct random *r)
{
    switch (random_below(r, 4)) {
    case 0:
        return random_below(r, 300);
    case 1:
        return random_below(r, 40000);
    case 2:
        return random_below(r, 300000);
    default:
        return random_below(r, 3 * MIB);
    }
}

static void check_apart(const struct block *live, size_t count, const struct block *fresh,
                        const struct dvc_arena *arena)
{
    assert_int_equal(fresh->offset % 256, 0);
    assert_true(fresh->offset >= DV_SHM_ARENA_OFFSET);
    assert_true(fresh->bytes <= arena->end - fresh->offset);
    for (size_t i = 0; i < count; i++)
        if (fresh->offset < live[i].offset + live[i].bytes && live[i].offset < fresh->offset + fresh->bytes)
            fail_msg("blocks %llx+%llx and %llx+%llx overlap", (unsigned long long)fresh->offset,
                     (unsigned long long)fresh->bytes, (unsigned long long)live[i].offset,
                     (unsigned long long)live[i].bytes);
}

static void random_blocks_never_overlap(void **state)
{
    struct ground *g = ground_make(128 * MIB);
    struct random r = {random_seed()};
    struct block live[LIVE_MOST];
    size_t count = 0;
    uint64_t refused = 0, used = 0;

    for (int round = 0; round < (UNDER_SANITIZER ? 20000 : 60000); round++) {
        if (count < LIVE_MOST && random_chance(&r, 52)) {
            struct block fresh = {.bytes = random_size(&r)};
            fresh.offset = dvc_arena_alloc(&g->arena, fresh.bytes);
            if (!fresh.offset) {
                refused++;
                assert_true(used + fresh.bytes > 16 * MIB); /* not while most is free */
                continue;
            }
            fresh.bytes = fresh.bytes ? fresh.bytes : 1;
            check_apart(live, count, &fresh, &g->arena);
            used += fresh.bytes;
            live[count++] = fresh;
        } else if (count) {
            size_t at = random_below(&r, count);
            used -= live[at].bytes;
            dvc_arena_free(&g->arena, live[at].offset);
            if (random_chance(&r, 5))
                dvc_arena_free(&g->arena, live[at].offset);
            live[at] = live[--count];
        }
    }
    assert_true(refused > 0); /* the arena was full now and then */
    while (count)
        dvc_arena_free(&g->arena, live[--count].offset);
    /* Slabs of small blocks stay; everything else is one piece again, or nearly. */
    assert_int_not_equal(dvc_arena_alloc(&g->arena, 64 * MIB), 0);
    ground_drop(g);
}

static void *allocate_and_free(void *argument)
{
    struct ground *g = argument;
    static _Atomic uint64_t seeds = 1;
    struct random r = {random_seed() + atomic_fetch_add(&seeds, 1)};
    uint64_t mark = random_next(&r);
    uintptr_t wrong = 0;

    for (int i = 0; i < 4000 && !wrong; i++) {
        uint64_t offsets[4];
        for (int k = 0; k < 4; k++)
            if ((offsets[k] = dvc_arena_alloc(&g->arena, 8 + random_below(&r, 60000))))
                memcpy(g->arena.shm + offsets[k], &mark, sizeof mark);
        for (int k = 0; k < 4; k++)
            if (offsets[k]) {
                wrong += memcmp(g->arena.shm + offsets[k], &mark, sizeof mark) != 0;
                dvc_arena_free(&g->arena, offsets[k]);
            }
    }
    return (void *)wrong;
}

static void threads_do_not_get_the_same_block(void **state)
{
    struct ground *g = ground_make(32 * MIB);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, allocate_and_free, g);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    ground_drop(g);
}

/* ---- memory given back ---- */

static uint64_t allocate_touched(struct ground *g, uint64_t bytes)
{
    uint64_t offset = dvc_arena_alloc(&g->arena, bytes);
    assert_int_not_equal(offset, 0);
    for (uint64_t at = 0; at < bytes; at += DV_PAGE)
        g->arena.shm[offset + at] = 1;
    return offset;
}

static void freed_memory_stays_warm_up_to_a_bound(void **state)
{
    struct ground *g = ground_make(1024 * MIB);
    uint64_t a = allocate_touched(g, 200 * MIB);
    uint64_t b = allocate_touched(g, 100 * MIB);
    assert_true(backed_bytes(g) >= 300 * MIB);
    dvc_arena_free(&g->arena, a);
    assert_true(backed_bytes(g) >= 300 * MIB); /* kept for the next one */
    dvc_arena_free(&g->arena, b);
    assert_true(backed_bytes(g) <= 256 * MIB); /* too much: given back */
    uint64_t again = dvc_arena_alloc(&g->arena, 300 * MIB);
    assert_int_equal(again, a);
    assert_int_equal(g->arena.shm[b], 0);
    ground_drop(g);
}

/* A program that maps one large buffer again and again finds its memory still there. */
static void the_largest_block_stays_warm(void **state)
{
    struct ground *g = ground_make(1024 * MIB);
    uint64_t a = allocate_touched(g, 300 * MIB);
    dvc_arena_free(&g->arena, a);
    assert_true(backed_bytes(g) >= 300 * MIB);
    assert_int_equal(dvc_arena_alloc(&g->arena, 300 * MIB), a);
    assert_int_equal(g->arena.shm[a], 1);
    ground_drop(g);
}

/* Taking memory that is not backed must not make room for more that is. */
static void the_bound_holds_after_cold_memory_was_used(void **state)
{
    struct ground *g = ground_make(1024 * MIB);
    uint64_t warm = allocate_touched(g, 200 * MIB);
    dvc_arena_alloc(&g->arena, 40000);                     /* keeps neighbours apart */
    uint64_t cold = dvc_arena_alloc(&g->arena, 190 * MIB); /* never touched */
    dvc_arena_alloc(&g->arena, 40000);
    uint64_t more = allocate_touched(g, 200 * MIB);
    dvc_arena_alloc(&g->arena, 40000);
    dvc_arena_free(&g->arena, warm); /* stays backed */
    dvc_arena_free(&g->arena, cold); /* over the bound: given back */
    assert_int_equal(dvc_arena_alloc(&g->arena, 190 * MIB), cold);
    dvc_arena_free(&g->arena, more); /* over the bound again */
    assert_true(backed_bytes(g) <= 256 * MIB);
    ground_drop(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_inside),
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(small_blocks_come_from_freed_large_ones),
        cmocka_unit_test(whole_pages_have_a_page_behind_them),
        cmocka_unit_test(freed_neighbours_are_joined),
        cmocka_unit_test(the_best_fit_is_taken_and_the_rest_kept),
        cmocka_unit_test(foreign_and_double_frees_are_ignored),
        cmocka_unit_test(random_blocks_never_overlap),
        cmocka_unit_test(threads_do_not_get_the_same_block),
        cmocka_unit_test(freed_memory_stays_warm_up_to_a_bound),
        cmocka_unit_test(the_largest_block_stays_warm),
        cmocka_unit_test(the_bound_holds_after_cold_memory_was_used),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
