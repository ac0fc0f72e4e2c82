/* The objects' view of the shared memory: which pages can be accessed after what. */
#include "unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "src/wire/session/shm.h"
#include "src/worker/core/guard.h"

#define MIB (UINT64_C(1) << 20)
#define ARENA DV_SHM_ARENA_OFFSET

struct ground {
    struct dvk_guard guard;
    int fd;
};

static struct ground *ground_make(uint64_t arena_bytes)
{
    struct ground *g = calloc(1, sizeof *g);
    g->fd = memfd_create("guard", MFD_CLOEXEC);
    assert_true(g->fd >= 0);
    assert_int_equal(ftruncate(g->fd, (off_t)(ARENA + arena_bytes)), 0);
    assert_int_equal(dvk_guard_init(&g->guard, g->fd, ARENA + arena_bytes), 0);
    return g;
}

static void ground_drop(struct ground *g)
{
    dvk_guard_fini(&g->guard);
    close(g->fd);
    free(g);
}

/* At once, where others do it when more objects have gone. */
static void close_now(struct ground *g, uint64_t offset, uint64_t bytes)
{
    dvk_guard_close(&g->guard, offset, bytes);
    dvk_guard_settle(&g->guard);
}

/* As the kernel sees it: it copies from there, or cannot. */
static bool is_open(const struct ground *g, uint64_t offset)
{
    int pair[2];
    assert_int_equal(pipe(pair), 0);
    bool open = write(pair[1], g->guard.view + offset, 1) == 1;
    close(pair[0]);
    close(pair[1]);
    return open;
}

static void nothing_is_open_at_first(void **state)
{
    struct ground *g = ground_make(64 * MIB);
    const uint64_t offsets[] = {0, DV_SHM_RING_OFFSET, ARENA - 1, ARENA, ARENA + 64 * MIB - 1};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        assert_false(is_open(g, offsets[i]));
    assert_false(is_open(g, ARENA + 64 * MIB)); /* behind the end */
    assert_false(is_open(g, (uint64_t)-1));     /* before the beginning */
    ground_drop(g);
}

static void an_object_is_open_while_it_lives(void **state)
{
    struct ground *g = ground_make(64 * MIB);
    uint64_t at = ARENA + 3 * DV_PAGE + 256, bytes = 2 * DV_PAGE; /* on three pages */
    uint8_t *memory = dvk_guard_open(&g->guard, at, bytes);

    assert_ptr_equal(memory, g->guard.view + at);
    memset(memory, 7, bytes);
    assert_int_equal(g->guard.ranges, 1);
    assert_false(is_open(g, ARENA + 3 * DV_PAGE - 1));
    assert_true(is_open(g, ARENA + 3 * DV_PAGE));
    assert_true(is_open(g, ARENA + 6 * DV_PAGE - 1));
    assert_false(is_open(g, ARENA + 6 * DV_PAGE));
    close_now(g, at, bytes);
    assert_false(is_open(g, at));
    assert_int_equal(g->guard.ranges, 0);
    assert_ptr_equal(dvk_guard_open(&g->guard, at, bytes), memory);
    assert_int_equal(memory[0], 7); /* closing takes nothing away */
    ground_drop(g);
}

/* A client that claims the same place twice has it open until both are gone. */
static void overlapping_objects_are_counted(void **state)
{
    struct ground *g = ground_make(64 * MIB);
    uint64_t a = ARENA, b = ARENA + 2 * DV_PAGE, bytes = 4 * DV_PAGE;

    assert_non_null(dvk_guard_open(&g->guard, a, bytes));
    assert_non_null(dvk_guard_open(&g->guard, b, bytes));
    assert_non_null(dvk_guard_open(&g->guard, b, bytes));
    assert_int_equal(g->guard.ranges, 1);
    close_now(g, a, bytes);
    assert_false(is_open(g, a));
    assert_false(is_open(g, b - 1));
    assert_true(is_open(g, b));
    close_now(g, b, bytes);
    assert_true(is_open(g, b));
    close_now(g, b, bytes);
    assert_false(is_open(g, b));
    close_now(g, b, bytes); /* once too often */
    assert_non_null(dvk_guard_open(&g->guard, b, bytes));
    assert_true(is_open(g, b));
    assert_int_equal(g->guard.ranges, 1);
    ground_drop(g);
}

static void small_objects_keep_their_page_open(void **state)
{
    struct ground *g = ground_make(64 * MIB);

    assert_non_null(dvk_guard_open(&g->guard, ARENA + 512, DV_ARENA_SMALL_MAX));
    assert_non_null(dvk_guard_open(&g->guard, ARENA + 3 * DV_PAGE, 0));
    close_now(g, ARENA + 512, DV_ARENA_SMALL_MAX);
    assert_true(is_open(g, ARENA));
    assert_false(is_open(g, ARENA + DV_PAGE));
    assert_true(is_open(g, ARENA + 3 * DV_PAGE));
    ground_drop(g);
}

static void more_objects_than_can_be_counted_stay_open(void **state)
{
    struct ground *g = ground_make(64 * MIB);

    for (int i = 0; i < 70000; i++)
        assert_non_null(dvk_guard_open(&g->guard, ARENA, DV_PAGE));
    for (int i = 0; i < 69999; i++)
        close_now(g, ARENA, DV_PAGE);
    assert_true(is_open(g, ARENA));
    ground_drop(g);
}

static void what_is_outside_is_refused(void **state)
{
    struct ground *g = ground_make(64 * MIB);

    assert_null(dvk_guard_open(&g->guard, ARENA + 64 * MIB, 1));
    assert_null(dvk_guard_open(&g->guard, ARENA + 64 * MIB - DV_PAGE, 2 * DV_PAGE));
    close_now(g, ARENA + 64 * MIB, DV_PAGE);
    assert_int_equal(g->guard.ranges, 0);
    ground_drop(g);
}

static unsigned mappings_of_this_process(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    unsigned count = 0;
    int c;
    assert_non_null(file);
    while ((c = fgetc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}

/* Coming back to the same pages soon needs no system call; closing them is not forgotten. */
static void pages_linger_until_others_follow(void **state)
{
    const uint64_t step = 2 * DV_PAGE;
    struct ground *g = ground_make(128 * MIB);

    assert_non_null(dvk_guard_open(&g->guard, ARENA, DV_PAGE));
    dvk_guard_close(&g->guard, ARENA, DV_PAGE);
    assert_true(is_open(g, ARENA));
    for (uint64_t i = 1; i <= DV_GUARD_LINGERING; i++) {
        assert_non_null(dvk_guard_open(&g->guard, ARENA + i * step, DV_PAGE));
        dvk_guard_close(&g->guard, ARENA + i * step, DV_PAGE);
    }
    assert_false(is_open(g, ARENA));
    assert_true(is_open(g, ARENA + step));
    assert_non_null(dvk_guard_open(&g->guard, ARENA + step, DV_PAGE)); /* is used again */
    dvk_guard_settle(&g->guard);
    assert_true(is_open(g, ARENA + step));
    assert_int_equal(g->guard.ranges, 1);
    ground_drop(g);
}

/* The kernel's bound of mappings is never reached, and all of them can be used. */
static void objects_without_number_are_open(void **state)
{
    const uint64_t count = 100000, step = 2 * DV_PAGE;
    struct ground *g = ground_make(count * step);

    for (uint64_t i = 0; i < count; i++) {
        uint8_t *memory = dvk_guard_open(&g->guard, ARENA + i * step, DV_PAGE);
        assert_non_null(memory);
        if (i % 997 == 0)
            *memory = 1;
    }
    assert_true(mappings_of_this_process() < 3 * DV_GUARD_RANGES_MAX);
    assert_false(is_open(g, ARENA + DV_PAGE)); /* the first still have their guards */
    assert_false(is_open(g, ARENA - 1));
    for (uint64_t i = 0; i < count; i++)
        close_now(g, ARENA + i * step, DV_PAGE);
    assert_false(is_open(g, ARENA));
    assert_true(g->guard.ranges < 64);
    ground_drop(g);
}

/* ---- at random ---- */

#define PAGES 256
#define LIVE_MOST 40

static void random_objects_are_open_and_nothing_else(void **state)
{
    struct ground *g = ground_make(64 * MIB);
    struct random r = {random_seed()};
    struct {
        uint64_t first, count;
    } live[LIVE_MOST];
    size_t lives = 0;

    for (int round = 0; round < 4000; round++) {
        if (lives < LIVE_MOST && random_chance(&r, 52)) {
            live[lives].first = random_below(&r, PAGES - 20);
            live[lives].count = 1 + random_below(&r, 20);
            assert_non_null(
                dvk_guard_open(&g->guard, ARENA + live[lives].first * DV_PAGE, live[lives].count * DV_PAGE));
            lives++;
        } else if (lives) {
            size_t at = random_below(&r, lives);
            close_now(g, ARENA + live[at].first * DV_PAGE, live[at].count * DV_PAGE);
            live[at] = live[--lives];
        }
        if (round % 50)
            continue;
        int64_t ranges = 0;
        bool before = false;
        for (uint64_t page = 0; page < PAGES; page++) {
            bool wanted = false;
            for (size_t i = 0; i < lives; i++)
                wanted |= page >= live[i].first && page - live[i].first < live[i].count;
            assert_int_equal(is_open(g, ARENA + page * DV_PAGE), wanted);
            ranges += wanted && !before;
            before = wanted;
        }
        assert_int_equal(g->guard.ranges, ranges);
    }
    ground_drop(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_open_at_first),
        cmocka_unit_test(an_object_is_open_while_it_lives),
        cmocka_unit_test(overlapping_objects_are_counted),
        cmocka_unit_test(small_objects_keep_their_page_open),
        cmocka_unit_test(more_objects_than_can_be_counted_stay_open),
        cmocka_unit_test(what_is_outside_is_refused),
        cmocka_unit_test(pages_linger_until_others_follow),
        cmocka_unit_test(objects_without_number_are_open),
        cmocka_unit_test(random_objects_are_open_and_nothing_else),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
