/* The command ring: both ends work on the same memory, and the reader survives any writer. */
#include "unit.h"

#include <pthread.h>

#include "src/wire/session/ring.h"

#define RING_MEMORY (DV_SHM_RING_OFFSET + DV_SHM_RING_BYTES)

struct ring {
    uint8_t *shm;
    struct dv_shm_header *header;
    struct dv_ring_writer writer;
    struct dv_ring_reader reader;
};

static int set_up(void **state)
{
    struct ring *ring = calloc(1, sizeof *ring);
    ring->shm = sparse_memory(RING_MEMORY);
    ring->header = (struct dv_shm_header *)ring->shm;
    dv_ring_writer_init(&ring->writer, ring->shm);
    dv_ring_reader_init(&ring->reader, ring->shm);
    *state = ring;
    return 0;
}

static int tear_down(void **state)
{
    struct ring *ring = *state;
    munmap(ring->shm, RING_MEMORY);
    free(ring);
    return 0;
}

/* Writes a record whose bytes follow from its op. */
static bool put(struct ring *ring, uint16_t op, uint32_t bytes)
{
    uint8_t *room = dv_ring_reserve(&ring->writer, bytes);
    if (!room)
        return false;
    memset(room, (uint8_t)op, bytes);
    memcpy(room, &(struct dv_record){.bytes = bytes, .op = op}, sizeof(struct dv_record));
    dv_ring_publish(&ring->writer, bytes);
    return true;
}

static void expect(struct ring *ring, uint16_t op, uint32_t bytes)
{
    struct dv_record record;
    assert_int_equal(dv_ring_peek(&ring->reader, &record), 0);
    assert_int_equal(record.op, op);
    assert_int_equal(record.bytes, bytes);
    uint8_t *copy = malloc(bytes);
    dv_ring_take(&ring->reader, &record, copy);
    for (uint32_t i = sizeof record; i < bytes; i++)
        assert_int_equal(copy[i], (uint8_t)op);
    free(copy);
}

static void expect_empty(struct ring *ring)
{
    struct dv_record record;
    assert_int_equal(dv_ring_peek(&ring->reader, &record), -EAGAIN);
}

/* Both ends as if so many bytes had already gone through. */
static void start_at(struct ring *ring, uint64_t position)
{
    atomic_store(&ring->header->ring_tail, position);
    atomic_store(&ring->header->ring_head, position);
    dv_ring_writer_init(&ring->writer, ring->shm);
    ring->reader.head = ring->reader.tail_seen = position;
}

/* A record head at the reader's position and a tail, as a hostile writer may leave them. */
static int peek_forged(struct ring *ring, uint32_t bytes, uint16_t op, uint64_t available)
{
    struct dv_record record = {.bytes = bytes, .op = op};
    uint64_t at = ring->reader.head & DV_RING_MASK;
    memcpy(ring->shm + DV_SHM_RING_OFFSET + at, &record, sizeof record);
    atomic_store(&ring->header->ring_tail, ring->reader.head + available);
    ring->reader.tail_seen = ring->reader.head;
    return dv_ring_peek(&ring->reader, &record);
}

static void records_come_out_in_order(void **state)
{
    struct ring *ring = *state;
    expect_empty(ring);
    assert_true(put(ring, 1, 8));
    assert_true(put(ring, 2, 64));
    assert_true(put(ring, 3, 4096));
    expect(ring, 1, 8);
    expect(ring, 2, 64);
    expect(ring, 3, 4096);
    expect_empty(ring);
}

static void nothing_is_visible_before_publish(void **state)
{
    struct ring *ring = *state;
    uint8_t *room = dv_ring_reserve(&ring->writer, 16);
    assert_non_null(room);
    memcpy(room, &(struct dv_record){.bytes = 16, .op = 7}, sizeof(struct dv_record));
    expect_empty(ring);
    dv_ring_publish(&ring->writer, 16);
    struct dv_record record;
    assert_int_equal(dv_ring_peek(&ring->reader, &record), 0);
}

static void a_record_that_just_fits_the_end_needs_no_padding(void **state)
{
    struct ring *ring = *state;
    start_at(ring, DV_SHM_RING_BYTES - 64);
    assert_true(put(ring, 5, 64));
    assert_int_equal(atomic_load(&ring->header->ring_tail), DV_SHM_RING_BYTES);
    expect(ring, 5, 64);
    assert_true(put(ring, 6, 64));
    assert_memory_equal(ring->shm + DV_SHM_RING_OFFSET, (&(struct dv_record){.bytes = 64, .op = 6}),
                        sizeof(struct dv_record));
    expect(ring, 6, 64);
}

static void a_record_that_does_not_fit_the_end_goes_to_the_start(void **state)
{
    struct ring *ring = *state;
    for (uint64_t left = 8; left < 128; left += 8) {
        start_at(ring, 3 * DV_SHM_RING_BYTES - left);
        assert_true(put(ring, 9, 128));
        assert_int_equal(atomic_load(&ring->header->ring_tail), 3 * DV_SHM_RING_BYTES + 128);
        expect(ring, 9, 128);
        assert_int_equal(atomic_load(&ring->header->ring_head), 3 * DV_SHM_RING_BYTES + 128);
        expect_empty(ring);
    }
}

static void padding_at_the_end_is_not_yet_a_record(void **state)
{
    struct ring *ring = *state;
    start_at(ring, DV_SHM_RING_BYTES - 64);
    assert_int_equal(peek_forged(ring, 64, 0, 64), -EAGAIN);
    assert_int_equal(ring->reader.head, DV_SHM_RING_BYTES);
}

static void a_full_ring_refuses_and_goes_on_when_there_is_room(void **state)
{
    struct ring *ring = *state;
    const uint32_t bytes = DV_MAX_RECORD_BYTES;
    for (int i = 0; i < 4; i++)
        assert_true(put(ring, (uint16_t)(1 + i), bytes));
    assert_null(dv_ring_reserve(&ring->writer, 8));
    expect(ring, 1, bytes);
    assert_true(put(ring, 5, bytes));
    assert_null(dv_ring_reserve(&ring->writer, 8));
    for (int i = 1; i < 5; i++)
        expect(ring, (uint16_t)(1 + i), bytes);
    expect_empty(ring);
}

/* The room that padding takes counts too, and a refused reservation changes nothing. */
static void padding_needs_room_as_well(void **state)
{
    struct ring *ring = *state;
    start_at(ring, DV_SHM_RING_BYTES - 16);
    atomic_store(&ring->header->ring_head, DV_SHM_RING_BYTES - 16 - (DV_SHM_RING_BYTES - 64));
    dv_ring_writer_init(&ring->writer, ring->shm); /* 64 bytes of room: 16 at the end, 48 before */
    assert_null(dv_ring_reserve(&ring->writer, 56));
    assert_int_equal(ring->writer.tail, DV_SHM_RING_BYTES - 16);
    assert_non_null(dv_ring_reserve(&ring->writer, 48));
}

/* Every record up to the largest can be written into an empty ring, wherever it stands. */
static void the_largest_record_always_fits_an_empty_ring(void **state)
{
    struct ring *ring = *state;
    for (uint64_t at = 0; at < DV_SHM_RING_BYTES; at += DV_SHM_RING_BYTES / 64 + 8) {
        start_at(ring, at & ~UINT64_C(7));
        assert_true(put(ring, 3, DV_MAX_RECORD_BYTES));
        expect(ring, 3, DV_MAX_RECORD_BYTES);
    }
}

static void positions_may_wrap_the_counter(void **state)
{
    struct ring *ring = *state;
    start_at(ring, UINT64_MAX - 63); /* 64 before the counter and the ring's end at once */
    for (int i = 0; i < 5; i++)
        assert_true(put(ring, (uint16_t)(10 + i), 48));
    for (int i = 0; i < 5; i++)
        expect(ring, (uint16_t)(10 + i), 48);
    expect_empty(ring);
}

static void a_writer_told_nonsense_sees_a_full_ring(void **state)
{
    struct ring *ring = *state;
    start_at(ring, 1024);
    ring->writer.head_seen = 1024 - DV_SHM_RING_BYTES; /* full, so it must look again */
    atomic_store(&ring->header->ring_head, 4096);      /* ahead of what was ever written */
    assert_null(dv_ring_reserve(&ring->writer, 8));
    atomic_store(&ring->header->ring_head, 1024);
    assert_non_null(dv_ring_reserve(&ring->writer, 8));
}

static void hostile_lengths_are_refused(void **state)
{
    struct ring *ring = *state;
    assert_int_equal(peek_forged(ring, 0, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 4, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 12, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 63, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 72, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, UINT32_MAX, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, UINT32_MAX & ~7u, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, DV_MAX_RECORD_BYTES + 8, 1, DV_SHM_RING_BYTES), -EPROTO);
    assert_int_equal(peek_forged(ring, 0, 0, 64), -EPROTO); /* padding of no length: no endless loop */
    assert_int_equal(peek_forged(ring, 72, 0, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 8, 1, 4), -EPROTO); /* less than a head is there */
    assert_int_equal(peek_forged(ring, 8, 1, DV_SHM_RING_BYTES + 8), -EPROTO);
    assert_int_equal(peek_forged(ring, 8, 1, UINT64_MAX - 1024), -EPROTO);
    assert_int_equal(peek_forged(ring, 64, 1, 64), 0);
}

static void a_record_across_the_end_is_refused(void **state)
{
    struct ring *ring = *state;
    start_at(ring, DV_SHM_RING_BYTES - 32);
    assert_int_equal(peek_forged(ring, 40, 1, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 40, 0, 64), -EPROTO);
    assert_int_equal(peek_forged(ring, 32, 1, 64), 0);
}

static void a_misaligned_position_is_refused(void **state)
{
    struct ring *ring = *state;
    ring->reader.head = ring->reader.tail_seen = 4;
    assert_int_equal(peek_forged(ring, 8, 1, 64), -EPROTO);
}

/* The writer may scribble at any time: what was checked is what is used. */
static void a_record_changed_after_peek_keeps_the_checked_head(void **state)
{
    struct ring *ring = *state;
    assert_true(put(ring, 4, 64));
    assert_true(put(ring, 5, 64));
    struct dv_record record, forged = {.bytes = 4096, .op = 99};
    assert_int_equal(dv_ring_peek(&ring->reader, &record), 0);
    memcpy(ring->shm + DV_SHM_RING_OFFSET, &forged, sizeof forged);
    uint8_t copy[128];
    memset(copy, 0xee, sizeof copy);
    dv_ring_take(&ring->reader, &record, copy);
    assert_memory_equal(copy, (&(struct dv_record){.bytes = 64, .op = 4}), sizeof record);
    for (size_t i = 64; i < sizeof copy; i++)
        assert_int_equal(copy[i], 0xee);
    assert_int_equal(atomic_load(&ring->header->ring_head), 64);
    expect(ring, 5, 64);
}

/* Garbage in the ring and in its positions: the reader never steps outside and always ends. */
static void random_garbage_never_leads_outside(void **state)
{
    struct ring *ring = *state;
    struct random r = {random_seed()};
    uint8_t *copy = malloc(DV_MAX_RECORD_BYTES);
    uint64_t accepted = 0;
    for (int round = 0; round < 20000; round++) {
        uint64_t head = random_below(&r, 4 * DV_SHM_RING_BYTES) & ~UINT64_C(7);
        ring->reader.head = ring->reader.tail_seen = head;
        uint64_t available = random_chance(&r, 80) ? random_below(&r, 2 * DV_SHM_RING_BYTES) : random_next(&r);
        atomic_store(&ring->header->ring_tail, head + available);
        struct dv_record record = {.bytes = (uint32_t)random_below(&r, 2048), .op = (uint16_t)random_below(&r, 3)};
        if (random_chance(&r, 70))
            record.bytes &= ~7u;
        memcpy(ring->shm + DV_SHM_RING_OFFSET + (head & DV_RING_MASK), &record, sizeof record);
        int found = dv_ring_peek(&ring->reader, &record);
        if (found == 0) {
            accepted++;
            assert_true((ring->reader.head & DV_RING_MASK) + record.bytes <= DV_SHM_RING_BYTES);
            dv_ring_take(&ring->reader, &record, copy);
        } else {
            assert_true(found == -EPROTO || found == -EAGAIN);
        }
    }
    assert_true(accepted > 100);
    free(copy);
}

/* ---- two threads ---- */

#define STREAMED (UNDER_SANITIZER ? 200000 : 1000000)
#define LOST_AFTER (10 * DV_NS_PER_S) /* a sleep that long means that a wake-up was lost */

static _Atomic int lost_wakeups;

static uint32_t streamed_bytes(struct random *r)
{
    uint64_t bytes = random_chance(r, 1) ? random_below(r, 20000) : random_below(r, 240);
    return (uint32_t)dv_record_align(sizeof(struct dv_record) + sizeof(uint64_t) + bytes);
}

static uint64_t checksum(const uint8_t *data, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static void *stream_records(void *argument)
{
    struct ring *ring = argument;
    struct random sizes = {random_seed()}, contents = {random_seed() + 1};
    for (int i = 0; i < STREAMED; i++) {
        uint32_t bytes = streamed_bytes(&sizes);
        uint8_t *room;
        while (!(room = dv_ring_reserve(&ring->writer, bytes))) {
            atomic_store(&ring->header->ring_waiting, 1);
            if ((room = dv_ring_reserve(&ring->writer, bytes)))
                break;
            if (dv_futex_wait(&ring->header->ring_waiting, 1, LOST_AFTER) == -ETIMEDOUT)
                lost_wakeups++;
        }
        memcpy(room, &(struct dv_record){.bytes = bytes, .op = (uint16_t)(1 + i % 60000)}, sizeof(struct dv_record));
        for (uint32_t at = 16; at < bytes; at += 8)
            memcpy(room + at, &(uint64_t){random_next(&contents)}, 8);
        uint64_t sum = checksum(room + 16, bytes - 16);
        memcpy(room + 8, &sum, sizeof sum);
        dv_ring_publish(&ring->writer, bytes);
    }
    return NULL;
}

static void two_threads_stream_records(void **state)
{
    struct ring *ring = *state;
    struct random sizes = {random_seed()};
    uint8_t *copy = malloc(32768);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stream_records, ring), 0);
    int wrong = 0;
    for (int i = 0; i < STREAMED && !wrong; i++) {
        struct dv_record record;
        int found;
        while ((found = dv_ring_peek(&ring->reader, &record)) == -EAGAIN) {
            atomic_store(&ring->header->worker_asleep, 1);
            if (atomic_load(&ring->header->ring_tail) == ring->reader.head &&
                dv_futex_wait(&ring->header->worker_asleep, 1, LOST_AFTER) == -ETIMEDOUT)
                lost_wakeups++;
            atomic_store(&ring->header->worker_asleep, 0);
        }
        wrong += found != 0 || record.op != 1 + i % 60000 || record.bytes != streamed_bytes(&sizes);
        if (wrong)
            break;
        dv_ring_take(&ring->reader, &record, copy);
        uint64_t sum;
        memcpy(&sum, copy + 8, sizeof sum);
        wrong += sum != checksum(copy + 16, record.bytes - 16);
    }
    if (wrong)
        fail_msg("a record arrived damaged");
    pthread_join(thread, NULL);
    expect_empty(ring);
    assert_int_equal(lost_wakeups, 0);
    free(copy);
}

int main(void)
{
#define RING_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        RING_TEST(records_come_out_in_order),
        RING_TEST(nothing_is_visible_before_publish),
        RING_TEST(a_record_that_just_fits_the_end_needs_no_padding),
        RING_TEST(a_record_that_does_not_fit_the_end_goes_to_the_start),
        RING_TEST(padding_at_the_end_is_not_yet_a_record),
        RING_TEST(a_full_ring_refuses_and_goes_on_when_there_is_room),
        RING_TEST(padding_needs_room_as_well),
        RING_TEST(the_largest_record_always_fits_an_empty_ring),
        RING_TEST(positions_may_wrap_the_counter),
        RING_TEST(a_writer_told_nonsense_sees_a_full_ring),
        RING_TEST(hostile_lengths_are_refused),
        RING_TEST(a_record_across_the_end_is_refused),
        RING_TEST(a_misaligned_position_is_refused),
        RING_TEST(a_record_changed_after_peek_keeps_the_checked_head),
        RING_TEST(random_garbage_never_leads_outside),
        RING_TEST(two_threads_stream_records),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
