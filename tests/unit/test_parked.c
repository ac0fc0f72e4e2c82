/* The store of a session, and the entries in it. */
#include "unit.h"

#include <errno.h>
#include <unistd.h>

#include "src/wire/session/shm.h"
#include "src/worker/core/parked.h"

#define PAGES 64

static int make_file(uint64_t bytes)
{
    int fd = memfd_create("store", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void open_store(struct dvk_store *store)
{
    int fd = make_file(PAGES * DV_PAGE);

    assert_int_equal(dvk_store_open(store, fd, PAGES * DV_PAGE), 0);
    close(fd);
}

static void test_room_is_found_in_gaps(void **state)
{
    struct dvk_store store;
    (void)state;

    open_store(&store);
    uint64_t a = dvk_store_take(&store, 1), b = dvk_store_take(&store, 2 * DV_PAGE),
             c = dvk_store_take(&store, DV_PAGE);
    assert_int_equal(a, DV_PAGE); /* the first page is the head's */
    assert_int_equal(b, 2 * DV_PAGE);
    assert_int_equal(c, 4 * DV_PAGE);
    dvk_store_give(&store, b);
    assert_int_equal(dvk_store_take(&store, 3 * DV_PAGE), 5 * DV_PAGE);
    assert_int_equal(dvk_store_take(&store, DV_PAGE + 1), b);
    assert_int_equal(dvk_store_take(&store, (PAGES - 8) * DV_PAGE), 8 * DV_PAGE); /* all the rest */
    assert_int_equal(dvk_store_take(&store, 1), 0);
    assert_int_equal(dvk_store_take(&store, 0), 0);
    assert_int_equal(dvk_store_take(&store, UINT64_MAX), 0);
    dvk_store_close(&store);
}

static void test_a_place_is_taken_once(void **state)
{
    struct dvk_store store;
    (void)state;

    open_store(&store);
    assert_true(dvk_store_take_at(&store, 8 * DV_PAGE, 2 * DV_PAGE));
    assert_false(dvk_store_take_at(&store, 8 * DV_PAGE, 1));
    assert_false(dvk_store_take_at(&store, 7 * DV_PAGE, DV_PAGE + 1));
    assert_false(dvk_store_take_at(&store, 9 * DV_PAGE, 1));
    assert_true(dvk_store_take_at(&store, 7 * DV_PAGE, DV_PAGE));
    assert_true(dvk_store_take_at(&store, 10 * DV_PAGE, 1));
    assert_true(dvk_store_take_at(&store, (PAGES - 1) * DV_PAGE, DV_PAGE));
    assert_false(dvk_store_take_at(&store, PAGES * DV_PAGE, 1));
    assert_false(dvk_store_take_at(&store, (PAGES - 2) * DV_PAGE, UINT64_MAX));
    assert_false(dvk_store_take_at(&store, (PAGES - 2) * DV_PAGE, 2 * DV_PAGE));
    assert_false(dvk_store_take_at(&store, 0, 1));
    assert_false(dvk_store_take_at(&store, DV_PAGE + 8, 1));
    assert_false(dvk_store_take_at(&store, UINT64_MAX - DV_PAGE + 1, 1));
    assert_false(dvk_store_take_at(&store, DV_PAGE, 0));
    assert_int_equal(dvk_store_take(&store, 6 * DV_PAGE), DV_PAGE);
    dvk_store_close(&store);
}

static void test_a_file_that_is_too_short_is_no_store(void **state)
{
    struct dvk_store store;
    int fd = make_file(3 * DV_PAGE);
    (void)state;

    assert_int_equal(dvk_store_open(&store, fd, 4 * DV_PAGE), -EINVAL);
    assert_int_equal(dvk_store_open(&store, fd, 3 * DV_PAGE - 1), -EINVAL);
    assert_int_equal(dvk_store_open(&store, fd, DV_PAGE), -EINVAL);
    assert_int_equal(dvk_store_take(&store, 1), 0);
    dvk_store_close(&store);
    close(fd);
}

static void test_entries_come_back_as_they_were(void **state)
{
    struct dvk_store store;
    struct dvk_parked_writer writer = {0};
    struct dvk_parked_reader reader;
    struct dv_parked_entry entry;
    const uint8_t *message, *data;
    struct {
        struct dv_record head;
        uint64_t value;
    } record = {.head = {.bytes = sizeof record, .op = 9}, .value = 77};
    (void)state;

    int fd = make_file(PAGES * DV_PAGE);
    assert_int_equal(dvk_store_open(&store, fd, PAGES * DV_PAGE), 0);
    dvk_parked_put(&writer, &(struct dv_parked_entry){.kind = DV_PARKED_MESSAGE, .data_bytes = 5}, &record.head,
                   "text");
    dvk_parked_put(&writer, &(struct dv_parked_entry){.kind = DV_PARKED_FAILED, .id = 3, .status = -5}, NULL, NULL);
    assert_int_equal(dvk_parked_finish(&writer, &store), 0);
    dvk_store_close(&store);
    assert_int_equal(dvk_store_open(&store, fd, PAGES * DV_PAGE), 0); /* in another worker */
    close(fd);
    assert_int_equal(dvk_parked_open(&reader, &store), 0);
    assert_int_equal(dvk_parked_next(&reader, &entry, &message, &data), 1);
    assert_int_equal(entry.kind, DV_PARKED_MESSAGE);
    assert_memory_equal(message, &record, sizeof record);
    assert_string_equal((const char *)data, "text");
    assert_int_equal(dvk_parked_next(&reader, &entry, &message, &data), 1);
    assert_int_equal(entry.id, 3);
    assert_int_equal(entry.status, -5);
    assert_null(message);
    assert_null(data);
    assert_int_equal(dvk_parked_next(&reader, &entry, &message, &data), 0);
    dvk_parked_close(&reader);
    assert_true(TAILQ_EMPTY(&store.taken));
    dvk_store_close(&store);
}

/* Whatever is in the store, the reader stays within it. */
static void test_random_stores_are_read_or_refused(void **state)
{
    struct dvk_store store;
    struct random random = {.state = random_seed()};
    (void)state;

    open_store(&store);
    for (int round = 0; round < 20000; round++) {
        struct dvk_parked_reader reader;
        struct dv_parked_entry entry;
        const uint8_t *message, *data;
        struct dv_parked_head head = {.magic = DV_PARKED_MAGIC,
                                      .version = DV_PARKED_VERSION,
                                      .at = DV_PAGE * (1 + random_below(&random, 4)),
                                      .bytes = 8 * random_below(&random, 60),
                                      .entries = random_below(&random, 6)};
        memcpy(store.base, &head, sizeof head);
        for (uint64_t i = 0; i < 480; i += 8) {
            uint64_t word =
                random_below(&random, 3) ? random_below(&random, 64) : UINT64_MAX - random_below(&random, 9);
            memcpy(store.base + head.at + i, &word, sizeof word);
        }
        if (dvk_parked_open(&reader, &store) == 0) {
            int found;
            while ((found = dvk_parked_next(&reader, &entry, &message, &data)) == 1) {
                assert_true(!message || message + entry.message_bytes <= reader.bytes + reader.size);
                assert_true(!data || data + entry.data_bytes <= reader.bytes + reader.size);
            }
            dvk_parked_close(&reader);
        }
        assert_true(TAILQ_EMPTY(&store.taken));
    }
    dvk_store_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room_is_found_in_gaps),
        cmocka_unit_test(test_a_place_is_taken_once),
        cmocka_unit_test(test_a_file_that_is_too_short_is_no_store),
        cmocka_unit_test(test_entries_come_back_as_they_were),
        cmocka_unit_test(test_random_stores_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
