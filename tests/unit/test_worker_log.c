/* How many lines workers may write into divvyd's log. */
#include "src/arbiter/workers/worker_log.h"

#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/base/log.h"
#include "tests/unit/unit.h"

/* A worker writes so many lines and ends. Returns how many of them were dropped. */
static uint64_t dropped_of(unsigned lines, struct dv_log_bucket *of_tenant)
{
    struct dvd_worker_log log;
    sd_event *event = NULL;

    assert_true(sd_event_new(&event) >= 0);
    dvd_worker_log_init(&log, "test", of_tenant);
    int fd = dvd_worker_log_open(&log, event);
    assert_true(fd >= 0);
    enum { OF_ONE_WRITE = 100, BYTES = 5 }; /* a socket holds fewer of single lines */
    char some[OF_ONE_WRITE * BYTES + 1] = "";
    for (unsigned i = 0; i < OF_ONE_WRITE; i++)
        strcat(some, "line\n");
    for (unsigned i = 0; i < lines; i += OF_ONE_WRITE)
        assert_int_equal(write(fd, some, (size_t)OF_ONE_WRITE * BYTES), OF_ONE_WRITE * BYTES);
    close(fd);
    dvd_worker_log_close(&log);
    sd_event_unref(event);
    return log.dropped;
}

static void a_worker_has_some_lines(void **state)
{
    (void)state;
    assert_int_equal(dropped_of(DV_WORKER_LINES_BURST, NULL), 0);
    uint64_t dropped = dropped_of(DV_WORKER_LINES_BURST + 500, NULL);
    assert_in_range(dropped, 500 - DV_WORKER_LINES_PER_S, 500); /* some have come back meanwhile */
}

static void workers_of_a_tenant_have_some_together(void **state)
{
    struct dv_log_bucket tenant = {0};
    uint64_t dropped = 0;

    (void)state;
    for (unsigned i = 0; i < DV_TENANT_LINES_BURST / DV_WORKER_LINES_BURST; i++)
        dropped += dropped_of(DV_WORKER_LINES_BURST, &tenant);
    assert_int_equal(dropped, 0);
    for (unsigned i = 0; i < 10; i++)
        dropped += dropped_of(100, &tenant);
    assert_in_range(dropped, 1000 - 10 * DV_TENANT_LINES_PER_S, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_has_some_lines),
        cmocka_unit_test(workers_of_a_tenant_have_some_together),
    };
    dv_log_set_level(DV_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
