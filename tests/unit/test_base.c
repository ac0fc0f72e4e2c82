/* Text from elsewhere, sizes, and runtime directories. */
#include "unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/rundir.h"
#include "src/base/text.h"

/* ---- text ---- */

static void expect_clean(const char *dirty, const char *clean)
{
    char field[64];
    dv_text_copy(field, sizeof field, dirty);
    assert_string_equal(field, clean);
}

static void text_is_made_fit_to_show(void **state)
{
    expect_clean("plain text, 100 %", "plain text, 100 %");
    expect_clean("tab\tnew\nline\x1b[31m\x7f", "tab?new?line?[31m?");
    expect_clean("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    expect_clean("\xc2\x85", "??");           /* a control of the second kind */
    expect_clean("\xc0\xaf", "??");           /* overlong */
    expect_clean("\xe0\x80\xaf", "???");      /* overlong */
    expect_clean("\xed\xa0\x80", "???");      /* half a surrogate pair */
    expect_clean("\xf4\x90\x80\x80", "????"); /* beyond Unicode */
    expect_clean("\xff\xfe", "??");
    expect_clean("cut\xe2\x82", "cut??");
    expect_clean("\x80", "?");
    expect_clean("a\xe2\x80\xae"
                 "b",
                 "a???b");               /* U+202E: the rest is shown from right to left */
    expect_clean("\xe2\x81\xa6", "???"); /* U+2066 */
    expect_clean("\xe2\x80\x8f", "???"); /* U+200F */
    expect_clean("\xe2\x80\xa8", "???"); /* U+2028 */
    expect_clean("\xe2\x80\x93\xe2\x80\xaf", "\xe2\x80\x93\xe2\x80\xaf"); /* their neighbours */
}

static void noncharacters_are_not_text(void **state)
{
    expect_clean("\xef\xbf\xbe\xef\xbf\xbf", "??????");                           /* U+FFFE, U+FFFF */
    expect_clean("\xf0\x9f\xbf\xbe\xf4\x8f\xbf\xbf", "????????");                 /* U+1FFFE, U+10FFFF */
    expect_clean("\xef\xb7\x90\xef\xb7\xaf", "??????");                           /* U+FDD0, U+FDEF */
    expect_clean("\xef\xbf\xbd\xf0\x90\x80\x80", "\xef\xbf\xbd\xf0\x90\x80\x80"); /* their neighbours */
    expect_clean("\xef\xb7\x8f\xef\xb7\xb0", "\xef\xb7\x8f\xef\xb7\xb0");
}

static void text_is_ended_within_its_field(void **state)
{
    char field[8];
    memset(field, 'x', sizeof field);
    dv_text_clean(field, sizeof field); /* nobody had ended it */
    assert_string_equal(field, "xxxxxxx");
    dv_text_copy(field, sizeof field, "123456\xe2\x82\xac"); /* the last character does not fit */
    assert_string_equal(field, "123456?");
    char one = 'x';
    dv_text_clean(&one, 0);
    assert_int_equal(one, 'x');
    dv_text_clean(&one, 1);
    assert_int_equal(one, '\0');
}

static void random_text_becomes_valid(void **state)
{
    struct random r = {random_seed()};
    for (int round = 0; round < 20000; round++) {
        char field[32], again[32];
        for (size_t i = 0; i < sizeof field; i++)
            field[i] = (char)(random_chance(&r, 50) ? 0x80 + random_below(&r, 0x80) : random_next(&r));
        dv_text_clean(field, sizeof field);
        assert_true(strlen(field) < sizeof field);
        for (const char *p = field; *p; p++)
            assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
        memcpy(again, field, sizeof again);
        dv_text_clean(again, sizeof again); /* clean text stays as it is */
        assert_memory_equal(again, field, strlen(field) + 1);
    }
}

static void sizes_are_read(void **state)
{
    const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"512 MiB", 512ull << 20},
                {"8GiB", 8ull << 30},
                {"8G", 8ull << 30},
                {"1k", 1024},
                {"2tib", 2ull << 40},
                {"10 B", 10},
                {"7b", 7},
                {"18446744073709551615", UINT64_MAX},
                {"15EiB", 15ull << 60},
                {"1 MB", 1ull << 20},
                {"2GB", 2ull << 30},
                {"1p", 1ull << 50}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 42;
        assert_int_equal(dv_text_parse_size(good[i].text, &bytes), 0);
        assert_true(bytes == good[i].bytes);
    }
    const char *const bad[] = {"",      " 1",   "-1",  "+1",  "x",    "1x",     "1 MBs",
                               "1MiBs", "1.5G", "GiB", "1iB", "0x10", "1 G iB", "1,000"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 42;
        assert_int_equal(dv_text_parse_size(bad[i], &bytes), -EINVAL);
        assert_int_equal(bytes, 42);
    }
    uint64_t bytes;
    assert_int_equal(dv_text_parse_size("18446744073709551616", &bytes), -ERANGE);
    assert_int_equal(dv_text_parse_size("16EiB", &bytes), -ERANGE);
    assert_int_equal(dv_text_parse_size("2", &bytes), -EDOM);
    assert_int_equal(dv_text_parse_size("4095", &bytes), -EDOM);
    assert_int_equal(dv_text_parse_size("17179869184GiB", &bytes), -ERANGE);
}

static void sizes_are_written(void **state)
{
    char text[32];
    const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {200ull << 20, "200 MiB"},
                 {3ull << 30, "3.0 GiB"},
                 {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dv_text_format_size(text, sizeof text, cases[i].bytes);
        assert_string_equal(text, cases[i].text);
    }
}

/* ---- runtime directories ---- */

static int make_folder(void **state)
{
    char *folder = strdup("/tmp/divvy-unit-XXXXXX");
    assert_non_null(mkdtemp(folder));
    *state = folder;
    return 0;
}

static int drop_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    assert_int_equal(system(command), 0);
    free(*state);
    return 0;
}

static void a_runtime_directory_is_the_owner_s_alone(void **state)
{
    char path[128], link[128], file[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/run", (char *)*state);
    snprintf(link, sizeof link, "%s/link", (char *)*state);
    snprintf(file, sizeof file, "%s/file", (char *)*state);
    assert_int_equal(dv_rundir_check(path), -ENOENT);
    mode_t before = umask(0077);
    assert_int_equal(dv_rundir_make(path, 0755), 1);
    umask(before);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0755); /* whatever the umask was */
    assert_int_equal(dv_rundir_make(path, 0700), 0);
    assert_int_equal(dv_rundir_check(path), 0);
    assert_int_equal(chmod(path, 0775), 0);
    assert_int_equal(dv_rundir_check(path), -EACCES);
    assert_int_equal(dv_rundir_make(path, 0700), -EACCES);
    assert_int_equal(chmod(path, 0757), 0);
    assert_int_equal(dv_rundir_check(path), -EACCES);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(dv_rundir_check(link), -ENOTDIR);
    FILE *made = fopen(file, "w");
    fclose(made);
    assert_int_equal(dv_rundir_check(file), -ENOTDIR);
    assert_int_equal(dv_rundir_make(file, 0700), -ENOTDIR);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(dv_rundir_check(path), -EPERM);
    }
}

static void the_user_s_directory_is_really_the_user_s(void **state)
{
    char path[128], expected[128], tiny[8];
    snprintf(expected, sizeof expected, "%s/divvy", (char *)*state);
    setenv("XDG_RUNTIME_DIR", *state, 1);
    assert_int_equal(dv_rundir_user(path, sizeof path), 0);
    assert_string_equal(path, expected);
    assert_int_equal(dv_rundir_user(tiny, sizeof tiny), -ENAMETOOLONG);
    snprintf(expected, sizeof expected, "/tmp/divvy-%u", (unsigned)geteuid());
    assert_int_equal(chmod(*state, 0777), 0); /* somebody else could change it */
    assert_int_equal(dv_rundir_user(path, sizeof path), 0);
    assert_string_equal(path, expected);
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    assert_int_equal(dv_rundir_user(path, sizeof path), 0);
    assert_string_equal(path, expected);
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(dv_rundir_user(path, sizeof path), 0);
    assert_string_equal(path, expected);
}

static void addresses_have_an_end(void **state)
{
    struct sockaddr_un address;
    char folder[200];
    memset(folder, 'a', sizeof folder);
    folder[0] = '/';
    folder[sizeof address.sun_path - 1 - strlen("/name")] = '\0';
    assert_int_equal(dv_rundir_address(&address, folder, "name"), 0);
    assert_int_equal(strlen(address.sun_path), sizeof address.sun_path - 1);
    assert_int_equal(dv_rundir_address(&address, folder, "names"), -ENAMETOOLONG);
    assert_int_equal(dv_rundir_connect(folder, "names", SOCK_STREAM), -ENAMETOOLONG);
}

static void sockets_are_connected_to(void **state)
{
    struct sockaddr_un address;
    const char *folder = *state;
    assert_int_equal(dv_rundir_connect(folder, "s", SOCK_SEQPACKET), -ENOENT);
    assert_int_equal(dv_rundir_address(&address, folder, "s"), 0);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(dv_rundir_connect(folder, "s", SOCK_SEQPACKET), -ECONNREFUSED);
    assert_int_equal(listen(listener, 1), 0);
    int fd = dv_rundir_connect(folder, "s", SOCK_SEQPACKET);
    assert_true(fd >= 0);
    close(fd);
    close(listener);
}

static void shares_are_parts_per_million(void **state)
{
    static const struct {
        const char *text;
        uint32_t ppm;
    } good[] = {{"30%", 300000},    {"100%", 1000000},    {"0%", 0},           {"0.5%", 5000},
                {"62.5 %", 625000}, {"33.3333%", 333333}, {"1.00009%", 10000}, {"007%", 70000}};
    static const char *const bad[] = {
        "", "%", "30", "101%", "100.0001%", "-1%", "1.2.3%", "30%%", "30 percent", "0x1%", "99999999999999999999%"};
    uint32_t ppm;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(dv_text_parse_share(good[i].text, &ppm), 0);
        assert_int_equal(ppm, good[i].ppm);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(dv_text_parse_share(bad[i], &ppm), -EINVAL);
}

int main(void)
{
#define FOLDER_TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, drop_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_parts_per_million),
        cmocka_unit_test(text_is_made_fit_to_show),
        cmocka_unit_test(noncharacters_are_not_text),
        cmocka_unit_test(text_is_ended_within_its_field),
        cmocka_unit_test(random_text_becomes_valid),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(sizes_are_written),
        FOLDER_TEST(a_runtime_directory_is_the_owner_s_alone),
        FOLDER_TEST(the_user_s_directory_is_really_the_user_s),
        FOLDER_TEST(addresses_have_an_end),
        FOLDER_TEST(sockets_are_connected_to),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
