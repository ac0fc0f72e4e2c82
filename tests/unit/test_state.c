/* The state file: records that come, go and are found again. */
#include "src/arbiter/restart/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "tests/unit/unit.h"

static char directory[] = "/tmp/dv-state-XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/dv-state-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    dvd_state_remove(directory);
    return rmdir(directory);
}

static struct dv_state_session *add_session(struct dvd_state *kept, uint64_t id)
{
    struct dv_state_session *session = dvd_state_add(&kept->sessions);

    assert_non_null(session);
    session->id = id;
    dvd_state_commit(session);
    return session;
}

static void what_was_committed_is_found_again(void **state)
{
    struct dvd_state first, second;
    bool inherited;

    (void)state;
    assert_int_equal(dvd_state_open(&first, directory, &inherited), 0);
    assert_false(inherited);
    struct dv_state_session *gone = add_session(&first, 1);
    add_session(&first, 2);
    struct dv_state_session *begun = dvd_state_add(&first.sessions);
    begun->id = 3; /* cut off before it was complete */
    dvd_state_drop(&first.sessions, gone);

    /* as after a kill: the file is not closed */
    assert_int_equal(dvd_state_open(&second, directory, &inherited), 0);
    assert_true(inherited);
    assert_int_equal(second.sessions.touched, 2);
    assert_null(dvd_state_at(&second.sessions, 0));
    struct dv_state_session *found = dvd_state_at(&second.sessions, 1);
    assert_non_null(found);
    assert_int_equal(found->id, 2);
    assert_null(dvd_state_at(&second.sessions, 2));
    assert_null(dvd_state_at(&second.sessions, UINT32_MAX));
    /* places are used again, and new ones are empty */
    struct dv_state_session *next = dvd_state_add(&second.sessions);
    assert_int_equal(dvd_state_index(&second.sessions, next), 0);
    assert_int_equal(next->id, 0);
    assert_int_equal(dvd_state_index(&second.sessions, dvd_state_add(&second.sessions)), 2);
    dvd_state_close(&first);
    dvd_state_close(&second);
}

static void a_full_table_is_full(void **state)
{
    struct dvd_state kept;
    bool inherited;

    (void)state;
    assert_int_equal(dvd_state_open(&kept, directory, &inherited), 0);
    dvd_state_clear(&kept);
    for (uint32_t i = 0; i < DV_STATE_SESSIONS; i++)
        add_session(&kept, i + 1);
    assert_null(dvd_state_add(&kept.sessions));
    dvd_state_drop(&kept.sessions, dvd_state_at(&kept.sessions, 77));
    assert_int_equal(dvd_state_index(&kept.sessions, add_session(&kept, 1)), 77);
    dvd_state_clear(&kept);
    assert_int_equal(kept.sessions.touched, 0);
    dvd_state_close(&kept);
}

static void ten_thousand_sessions_on_eight_devices_are_kept(void **state)
{
    const uint32_t leases = 10000 * 8;
    struct dvd_state first, second;
    bool inherited;

    (void)state;
    assert_int_equal(dvd_state_open(&first, directory, &inherited), 0);
    dvd_state_clear(&first);
    for (uint32_t i = 0; i < leases; i++) {
        struct dv_state_lease *lease = dvd_state_add(&first.leases);
        assert_non_null(lease);
        lease->session = i;
        dvd_state_commit(lease);
    }
    assert_int_equal(dvd_state_open(&second, directory, &inherited), 0);
    assert_true(inherited);
    assert_int_equal(second.leases.touched, leases);
    for (uint32_t i = 0; i < leases; i++)
        assert_int_equal(((struct dv_state_lease *)dvd_state_at(&second.leases, i))->session, i);
    /* and all that there can be have their place */
    assert_int_equal(second.leases.capacity, DV_MAX_SESSIONS * DV_MAX_DEVICES);
    assert_int_equal(second.tenant_devices.capacity, DV_STATE_TENANTS * DV_MAX_DEVICES);
    assert_true(second.leases.records + (size_t)second.leases.capacity * 128 <=
                (uint8_t *)second.header + DV_STATE_BYTES);
    dvd_state_clear(&second);
    dvd_state_close(&first);
    dvd_state_close(&second);
}

static void spoil(off_t offset, const char *text)
{
    char path[64];

    snprintf(path, sizeof path, "%s/state", directory);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, text, strlen(text), offset), (ssize_t)strlen(text));
    close(fd);
}

static void a_file_of_another_boot_version_or_kind_is_not_used(void **state)
{
    static const off_t fields[] = {0 /* magic */, 8 /* version */, 16 /* boot */};
    struct dvd_state kept;
    bool inherited;

    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        assert_int_equal(dvd_state_open(&kept, directory, &inherited), 0);
        add_session(&kept, 5);
        dvd_state_close(&kept);
        spoil(fields[i], "X");
        assert_int_equal(dvd_state_open(&kept, directory, &inherited), 0);
        assert_false(inherited);
        assert_int_equal(kept.sessions.touched, 0);
        assert_null(dvd_state_at(&kept.sessions, 0));
        dvd_state_close(&kept);
    }
}

static void a_file_that_others_may_change_is_not_used(void **state)
{
    struct dvd_state kept;
    char path[64];
    bool inherited;

    (void)state;
    snprintf(path, sizeof path, "%s/state", directory);
    assert_int_equal(chmod(path, 0666), 0);
    assert_true(dvd_state_open(&kept, directory, &inherited) < 0);
    assert_null(dvd_state_add(&kept.sessions));
    dvd_state_commit(NULL);
    dvd_state_drop(&kept.sessions, NULL);
    dvd_state_close(&kept);
    assert_int_equal(chmod(path, 0600), 0);
}

static void shares_that_make_no_sense_are_refused(void **state)
{
    struct dv_share share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_BATCH}, read;
    struct dv_state_share record = dvd_state_share_of(&share);

    (void)state;
    assert_true(dvd_state_share_to(&record, &read));
    assert_int_equal(read.class, DV_CLASS_BATCH);
    record.weight = 0;
    assert_false(dvd_state_share_to(&record, &read));
    record = dvd_state_share_of(&share);
    record.class = 7;
    assert_false(dvd_state_share_to(&record, &read));
    record = dvd_state_share_of(&share);
    record.request_ppm = DV_PPM + 1;
    assert_false(dvd_state_share_to(&record, &read));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_committed_is_found_again),
        cmocka_unit_test(a_full_table_is_full),
        cmocka_unit_test(ten_thousand_sessions_on_eight_devices_are_kept),
        cmocka_unit_test(a_file_of_another_boot_version_or_kind_is_not_used),
        cmocka_unit_test(a_file_that_others_may_change_is_not_used),
        cmocka_unit_test(shares_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
