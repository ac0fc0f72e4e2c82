/* Keeping compiled kernels within their limit, whatever their owner makes of the directory. */
#include "src/worker/core/cache_trim.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/unit.h"

enum { FILE_BYTES = 64 << 10, DEPTH = 100, DIRECTORIES = 2000, DIRECTORY_BYTES = 4 << 10 };

static char place[32];
static int top_fd;

static int set_up(void **state)
{
    (void)state;
    strcpy(place, "/tmp/dv-trim-XXXXXX");
    top_fd = mkdtemp(place) ? open(place, O_RDONLY | O_DIRECTORY) : -1;
    return top_fd < 0;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    close(top_fd);
    snprintf(command, sizeof command, "rm -rf %s", place);
    return system(command); /* NOLINT: a name of our own */
}

static void put(int directory_fd, const char *name, time_t changed)
{
    static const char bytes[FILE_BYTES];
    const struct timespec times[2] = {{.tv_sec = changed}, {.tv_sec = changed}};
    int fd = openat(directory_fd, name, O_WRONLY | O_CREAT, 0600);

    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static bool is_there(const char *name)
{
    return faccessat(top_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void the_oldest_go_first(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(top_fd, "a", 0700), 0);
    put(top_fd, "second", 2000);
    put(top_fd, "a/first", 1000);
    put(top_fd, "a/third", 3000);
    put(top_fd, "fourth", 4000);
    dvk_cache_trim(top_fd, 4 * FILE_BYTES + 2 * DIRECTORY_BYTES);
    assert_true(is_there("a/first")); /* it is within its limit */
    dvk_cache_trim(top_fd, 3 * FILE_BYTES + 2 * DIRECTORY_BYTES);
    assert_false(is_there("a/first") || is_there("second"));
    assert_true(is_there("a/third") && is_there("fourth"));
}

static void links_lead_nowhere(void **state)
{
    char outside[] = "/tmp/dv-trim-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(outside));
    int outside_fd = open(outside, O_RDONLY | O_DIRECTORY);
    put(outside_fd, "theirs", 1000);
    assert_int_equal(symlinkat(outside, top_fd, "link"), 0);
    assert_int_equal(symlinkat("..", top_fd, "up"), 0);
    put(top_fd, "mine", 2000);
    dvk_cache_trim(top_fd, 1);
    assert_false(is_there("mine"));
    assert_int_equal(unlinkat(outside_fd, "theirs", 0), 0);
    close(outside_fd);
    assert_int_equal(rmdir(outside), 0);
}

static void what_lies_deep_is_found_in_the_end(void **state)
{
    int fd = dup(top_fd);

    (void)state;
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    put(fd, "deep", 1000);
    for (int i = 0; i < DEPTH; i++)
        dvk_cache_trim(top_fd, 1);
    assert_int_equal(faccessat(fd, "deep", F_OK, 0), -1);
    close(fd);
}

static unsigned entries(void)
{
    DIR *directory = fdopendir(openat(top_fd, ".", O_RDONLY | O_DIRECTORY));
    unsigned count = 0;

    while (readdir(directory))
        count++;
    closedir(directory);
    return count - 2;
}

static void directories_count(void **state)
{
    char name[32];
    struct stat info;

    (void)state;
    for (int i = 0; i < DIRECTORIES; i++) {
        snprintf(name, sizeof name, "d%d", i);
        assert_int_equal(mkdirat(top_fd, name, 0700), 0);
    }
    assert_int_equal(fstatat(top_fd, "d0", &info, 0), 0);
    if (info.st_blocks == 0) /* they cost nothing on this file system */
        return;
    assert_true(dvk_cache_trim(top_fd, 2 * DIRECTORIES * DIRECTORY_BYTES) >= DIRECTORIES * DIRECTORY_BYTES);
    assert_int_equal(entries(), DIRECTORIES);
    assert_true(dvk_cache_trim(top_fd, DIRECTORIES * DIRECTORY_BYTES / 2) <= DIRECTORIES * DIRECTORY_BYTES / 2);
    assert_true(entries() < DIRECTORIES / 2);
}

/* Root may read them all the same, so this is only a test where somebody else runs it. */
static void what_is_shut_is_found(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(top_fd, "shut", 0700), 0);
    put(top_fd, "shut/file", 1000);
    assert_int_equal(fchmodat(top_fd, "shut", 0, 0), 0);
    assert_int_equal(fchmod(top_fd, 0), 0);
    dvk_cache_trim(top_fd, 1);
    assert_false(is_there("shut/file"));
}

static void all_of_it_goes(void **state)
{
    int fd = dup(top_fd);

    (void)state;
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        put(fd, "file", 1000);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    close(fd);
    assert_int_equal(symlinkat("..", top_fd, "up"), 0);
    dvk_cache_empty(top_fd);
    assert_int_equal(entries(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_go_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_lead_nowhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_lies_deep_is_found_in_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(directories_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_shut_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_of_it_goes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
