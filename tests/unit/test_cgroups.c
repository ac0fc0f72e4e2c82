/* Cgroups of workers, in directories that look like those of a kernel. On a machine with version 1 this is
 * all that version 2 can be tried on; the real ones of version 1 are in the system tests. */
#include "src/arbiter/workers/cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/unit.h"

static char place[64];

static char *at(const char *format, const char *more)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8], name[512];

    snprintf(name, sizeof name, format, more);
    snprintf(path, sizeof paths[0], "%s/%s", place, name);
    return path;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static const char *get(const char *path)
{
    static char text[256];
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* A cgroup with the control files that version 2 would make. */
static void make_cgroup(const char *path)
{
    static const char *const files[] = {"cgroup.procs", "cgroup.subtree_control", "memory.max", "pids.max",
                                        "memory.limit_in_bytes"};
    char name[512];

    mkdir(path, 0755);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", path, files[i]);
        put(name, "");
    }
    snprintf(name, sizeof name, "%s/cgroup.controllers", path);
    put(name, "cpuset cpu io memory pids\n");
}

static int begin(void **state)
{
    (void)state;
    strcpy(place, "/tmp/dv-cgroups-XXXXXX");
    return mkdtemp(place) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static int end(void **state)
{
    (void)state;
    return nftw(place, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct dvd_cgroups_sources sources(const char *mounts, const char *own)
{
    put(at("%s", "mounts"), mounts);
    put(at("%s", "own"), own);
    static char paths[2][1024];
    strcpy(paths[0], at("%s", "mounts"));
    strcpy(paths[1], at("%s", "own"));
    return (struct dvd_cgroups_sources){.mounts = paths[0], .own = paths[1]};
}

static void below_its_own_in_version_2(void **state)
{
    char mounts[256];
    struct dvd_cgroups cgroups = {0};

    make_cgroup(at("%s", "cg"));
    make_cgroup(at("%s", "cg/divvyd.service"));
    put(at("%s", "cg/divvyd.service/cgroup.procs"), "4710\n4711\n"); /* divvyd, and its keeper */
    make_cgroup(at("%s", "cg/divvyd.service/divvy-daemon"));
    make_cgroup(at("%s", "cg/divvyd.service/divvy-workers"));
    make_cgroup(at("%s", "cg/divvyd.service/divvy-workers/ann.1000"));
    snprintf(mounts, sizeof mounts, "proc /proc proc rw 0 0\ncgroup2 %s/cg cgroup2 rw 0 0\n", place);
    struct dvd_cgroups_sources there = sources(mounts, "0::/divvyd.service\n");
    const struct dvd_cgroups_wish wish = {.memory = 1 << 30, .processes = 500};
    assert_true(dvd_cgroups_open(&cgroups, &there, &wish));
    assert_string_equal(cgroups.why_not, "");
    assert_true(cgroups.bounds[DV_BOUND_MEMORY].v2);
    assert_string_equal(get(at("%s", "cg/divvyd.service/divvy-daemon/cgroup.procs")), "4711");
    /* one after the other: here the second is written over the first */
    assert_string_equal(get(at("%s", "cg/divvyd.service/cgroup.subtree_control")), "+pidsry");
    assert_string_equal(get(at("%s", "cg/cgroup.subtree_control")), ""); /* not ours */

    assert_int_equal(dvd_cgroups_join(&cgroups, "ann.1000", 4712), 0);
    const char *kind = "cg/divvyd.service/divvy-workers/ann.1000/";
    char path[256];
    snprintf(path, sizeof path, "%smemory.max", kind);
    assert_string_equal(get(at("%s", path)), "1073741824");
    snprintf(path, sizeof path, "%spids.max", kind);
    assert_string_equal(get(at("%s", path)), "500");
    snprintf(path, sizeof path, "%scgroup.procs", kind);
    assert_string_equal(get(at("%s", path)), "4712");

    assert_int_equal(dvd_cgroups_starved(&cgroups, "ann.1000"), 0);
    snprintf(path, sizeof path, "%smemory.events", kind);
    put(at("%s", path), "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n");
    assert_int_equal(dvd_cgroups_starved(&cgroups, "ann.1000"), 2);
    assert_int_equal(dvd_cgroups_starved(&cgroups, "ben.1001"), 0);

    /* another wish holds for those that are there already, and so does none */
    const struct dvd_cgroups_wish more = {.memory = 1ull << 31};
    assert_false(dvd_cgroups_open(&cgroups, &there, &more));
    assert_string_equal(cgroups.why_not, "");
    snprintf(path, sizeof path, "%smemory.max", kind);
    assert_string_equal(get(at("%s", path)), "2147483648");
    snprintf(path, sizeof path, "%spids.max", kind);
    assert_string_equal(get(at("%s", path)), "max");
    assert_true(dvd_cgroups_open(&cgroups, &there, &wish)); /* of processes there was none */
    dvd_cgroups_close(&cgroups);
}

/* The first bound makes divvyd move. Its own cgroup is still the one that was delegated, for the second bound
 * and whenever the configuration is read again. */
static void once_it_has_stepped_aside(void **state)
{
    char mounts[256];
    struct dvd_cgroups cgroups = {0};

    (void)state;
    make_cgroup(at("%s", "cg"));
    make_cgroup(at("%s", "cg/divvyd.service"));
    make_cgroup(at("%s", "cg/divvyd.service/divvy-daemon"));
    make_cgroup(at("%s", "cg/divvyd.service/divvy-workers"));
    snprintf(mounts, sizeof mounts, "cgroup2 %s/cg cgroup2 rw 0 0\n", place);
    struct dvd_cgroups_sources there = sources(mounts, "0::/divvyd.service/divvy-daemon\n");
    const struct dvd_cgroups_wish wish = {
        .memory = 1 << 30, .processes = 500, .memory_if_possible = true, .processes_if_possible = true};
    assert_true(dvd_cgroups_open(&cgroups, &there, &wish));
    assert_string_equal(cgroups.unbounded, "");
    for (int i = 0; i < DV_BOUND_COUNT; i++) {
        struct stat kept, meant;
        assert_int_equal(fstat(cgroups.bounds[i].directory, &kept), 0);
        assert_int_equal(stat(at("%s", "cg/divvyd.service/divvy-workers"), &meant), 0);
        assert_int_equal(kept.st_ino, meant.st_ino);
    }
    dvd_cgroups_close(&cgroups);
}

static void at_a_place_that_was_named(void **state)
{
    char mounts[256];
    struct dvd_cgroups cgroups = {0};

    make_cgroup(at("%s", "cg"));
    make_cgroup(at("%s", "cg/divvy"));
    make_cgroup(at("%s", "cg/divvy/divvy-workers"));
    snprintf(mounts, sizeof mounts, "cgroup2 %s/cg cgroup2 rw 0 0\n", place);
    struct dvd_cgroups_sources there = sources(mounts, "0::/elsewhere\n");
    const struct dvd_cgroups_wish wish = {.memory = 1 << 30, .cgroup = "divvy"};
    dvd_cgroups_open(&cgroups, &there, &wish);
    assert_string_equal(cgroups.why_not, "");
    assert_string_equal(get(at("%s", "cg/cgroup.subtree_control")), "+memory");
    assert_string_equal(get(at("%s", "cg/divvy/cgroup.subtree_control")), "+memory");
    dvd_cgroups_close(&cgroups);
}

/* Version 1 has a hierarchy for each controller; version 2 may be there beside it, without them. */
static void each_controller_where_it_is(void **state)
{
    char mounts[512];
    struct dvd_cgroups cgroups = {0};

    make_cgroup(at("%s", "unified"));
    put(at("%s", "unified/cgroup.controllers"), "hugetlb\n");
    make_cgroup(at("%s", "memory"));
    make_cgroup(at("%s", "pids"));
    make_cgroup(at("%s", "memory/job"));
    make_cgroup(at("%s", "memory/job/divvy-workers"));
    make_cgroup(at("%s", "memory/job/divvy-workers/user.7"));
    make_cgroup(at("%s", "pids/divvy-workers"));
    make_cgroup(at("%s", "pids/divvy-workers/user.7"));
    snprintf(mounts, sizeof mounts,
             "cgroup2 %s/unified cgroup2 rw 0 0\ncgroup %s/memory cgroup rw,memory 0 0\n"
             "cgroup %s/pids cgroup rw,pids 0 0\n",
             place, place, place);
    struct dvd_cgroups_sources there = sources(mounts, "8:pids:/\n4:cpu,memory:/job\n0::/nowhere\n");
    const struct dvd_cgroups_wish wish = {.memory = 1 << 28, .processes = 99};
    dvd_cgroups_open(&cgroups, &there, &wish);
    assert_string_equal(cgroups.why_not, "");
    assert_false(cgroups.bounds[DV_BOUND_MEMORY].v2);
    assert_int_equal(dvd_cgroups_join(&cgroups, "user.7", 12), 0);
    assert_string_equal(get(at("%s", "memory/job/divvy-workers/user.7/memory.limit_in_bytes")), "268435456");
    assert_string_equal(get(at("%s", "pids/divvy-workers/user.7/pids.max")), "99");
    assert_string_equal(get(at("%s", "pids/divvy-workers/user.7/cgroup.procs")), "12");
    dvd_cgroups_close(&cgroups);
}

static void what_cannot_be_kept_is_said(void **state)
{
    struct dvd_cgroups cgroups = {0};
    struct dvd_cgroups_sources there = sources("tmpfs /tmp tmpfs rw 0 0\n", "0::/\n");
    const struct dvd_cgroups_wish wish = {.processes = 99}, none = {0};

    dvd_cgroups_open(&cgroups, &there, &wish);
    assert_non_null(strstr(cgroups.why_not, "worker-processes needs a cgroup"));
    assert_int_not_equal(dvd_cgroups_join(&cgroups, "user.7", 12), 0);
    dvd_cgroups_close(&cgroups);
    dvd_cgroups_open(&cgroups, &there, &none);
    assert_string_equal(cgroups.why_not, "");
    assert_int_equal(dvd_cgroups_join(&cgroups, "user.7", 12), 0);
    dvd_cgroups_close(&cgroups);
}

static void where_its_program_is(void **state)
{
    char mounts[512], text[256] = "";

    (void)state;
    mkdir(at("%s", "pids"), 0755);
    make_cgroup(at("%s", "pids/job"));
    make_cgroup(at("%s", "cg"));
    make_cgroup(at("%s", "cg/job"));
    snprintf(mounts, sizeof mounts, "cgroup %s/pids cgroup rw,pids 0 0\ncgroup2 %s/cg cgroup2 rw 0 0\n", place, place);
    struct dvd_cgroups_sources there = sources(mounts, "");
    const char *program = "3:name=systemd:/a\n2:cpu,cpuacct:/b\n1:pids:/job\n0::/job\n";
    assert_int_equal(dvd_cgroups_follow(&there, program, 4712, text, sizeof text), 0);
    assert_string_equal(get(at("%s", "pids/job/cgroup.procs")), "4712");
    assert_string_equal(get(at("%s", "cg/job/cgroup.procs")), "4712");
    assert_string_equal(text, "");

    assert_true(dvd_cgroups_follow(&there, "0::/gone\n", 4713, text, sizeof text) == -ENOENT);
    assert_non_null(strstr(text, "0::/gone"));
    assert_true(dvd_cgroups_follow(&there, "0::/../job\n", 4713, text, sizeof text) == -EXDEV);
    assert_true(dvd_cgroups_follow(&there, "3:name=systemd:/a\n", 4713, text, sizeof text) < 0);
    assert_true(dvd_cgroups_follow(&there, "0:\n", 4713, text, sizeof text) < 0);
    assert_string_equal(get(at("%s", "cg/job/cgroup.procs")), "4712");
}

static void what_is_not_demanded_is_done_without(void **state)
{
    struct dvd_cgroups cgroups = {0};
    char mounts[256];
    const struct dvd_cgroups_wish wish = {
        .memory = 1 << 30, .processes = 99, .memory_if_possible = true, .processes_if_possible = true};

    (void)state;
    make_cgroup(at("%s", "cg")); /* which nobody has delegated */
    snprintf(mounts, sizeof mounts, "cgroup2 %s/cg cgroup2 rw 0 0\n", place);
    struct dvd_cgroups_sources there = sources(mounts, "0::/\n");
    assert_false(dvd_cgroups_open(&cgroups, &there, &wish));
    assert_string_equal(cgroups.why_not, "");
    assert_non_null(strstr(cgroups.unbounded, "needs a cgroup"));
    assert_false(dvd_cgroups_wanted(&cgroups));
    assert_string_equal(get(at("%s", "cg/cgroup.subtree_control")), "");
    dvd_cgroups_close(&cgroups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(where_its_program_is, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_demanded_is_done_without, begin, end),
        cmocka_unit_test_setup_teardown(below_its_own_in_version_2, begin, end),
        cmocka_unit_test_setup_teardown(once_it_has_stepped_aside, begin, end),
        cmocka_unit_test_setup_teardown(at_a_place_that_was_named, begin, end),
        cmocka_unit_test_setup_teardown(each_controller_where_it_is, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_kept_is_said, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
