/* What the control socket answers step by step: divvyd itself in the test's process (tests/fuzz/stage.h). */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/arbiter/control/metrics.h"
#include "src/arbiter/ledger/private.h"
#include "tests/fuzz/stage.h"
#include "tests/unit/unit.h"

static int start(void **state)
{
    (void)state;
    stage_start();
    return 0;
}

static int end(void **state)
{
    (void)state;
    dvd_arbiter_fini(&stage);
    return 0;
}

/* ---- metrics ---- */

#define MANY 100

static struct dvd_tenant *tenants[MANY];

static void leave_device(struct dvd_tenant *tenant)
{
    tenant->devices[0]->policy.used_ns = 1; /* so it is remembered */
    dvd_tenant_go(tenant->devices[0], false);
}

/* The tenant that is looked at next is forgotten. */
static void lose_the_next(struct dvd_metrics_place *place)
{
    for (int i = 0; i < MANY; i++)
        if (tenants[i] == place->tenant) {
            leave_device(tenants[i]);
            dvd_metrics_tenant_goes(place, tenants[i]);
            dvd_tenant_forget(tenants[i]);
            tenants[i] = NULL;
            return;
        }
    fail();
}

/* Programs of one name are added up, as far as they are there, a few in each step. */
static void a_sample_of_many_tenants_is_made_in_steps(void **state)
{
    struct dvd_metrics_place place = {0};
    char line[1024], text[DV_MAX_MESSAGE_TEXT];
    unsigned steps = 0, right = 0;

    (void)state;
    assert_true(dvd_device_start(&stage.ledger.devices[0]));
    for (int i = 0; i < MANY; i++) {
        struct dvd_identity identity = {.terms.share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD}};
        snprintf(identity.name, sizeof identity.name, "pid:%d:many", i + 1);
        tenants[i] = dvd_tenant_find_or_add(&stage.ledger, &identity);
        assert_non_null(tenants[i]);
        assert_non_null(dvd_tenant_come(tenants[i], &stage.ledger.devices[0], false, text, sizeof text));
    }
    leave_device(tenants[0]);
    while (dvd_metrics_next(&stage.control, &place, line, sizeof line)) {
        if (place.tenant && steps++ == 0)
            lose_the_next(&place);
        right += strcmp(line, "divvy_tenant_sessions{device=\"0\",tenant=\"program:many\"} 98\n") == 0;
        right += strcmp(line, "divvy_tenant_limit_ratio{device=\"0\",tenant=\"program:many\"} 98.000000\n") == 0;
    }
    assert_int_equal(right, 2);
    assert_true(steps > 5);
    for (int i = 0; i < MANY; i++) {
        if (!tenants[i])
            continue;
        if (tenants[i]->devices[0]->sessions)
            leave_device(tenants[i]);
        dvd_tenant_forget(tenants[i]);
    }
}

/* ---- traces ---- */

static bool no_memory;

int __real_dvd_trace_begin(struct dvd_trace *trace);
int __wrap_dvd_trace_begin(struct dvd_trace *trace);

int __wrap_dvd_trace_begin(struct dvd_trace *trace)
{
    return no_memory ? -ENOMEM : __real_dvd_trace_begin(trace);
}

/* Asks for a trace; expects this in the answer. */
static int trace(const char *expected)
{
    static const char request[] = "GET /v1/trace HTTP/1.1\r\nHost: divvyd\r\n\r\n";
    char answer[1024] = "";
    int fd = stage_connect(DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM);

    assert_true(fd >= 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    stage_run(50);
    assert_true(recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT) > 0);
    assert_non_null(strstr(answer, expected));
    return fd;
}

static void a_reader_without_a_ring_is_refused(void **state)
{
    (void)state;
    no_memory = true;
    int refused = trace("503");
    no_memory = false;
    assert_null(stage.control.listings.under_way);
    int reader = trace("{\"begin\":true}");
    close(refused);
    close(reader);
    for (int i = 0; i < 100 && stage.control.listings.under_way; i++) { /* that it is gone is noticed later */
        poll(NULL, 0, 20);
        stage_run(20);
    }
    assert_null(stage.control.listings.under_way);
    assert_null(stage.ledger.trace.records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_of_many_tenants_is_made_in_steps),
        cmocka_unit_test(a_reader_without_a_ring_is_refused),
    };

    return cmocka_run_group_tests(tests, start, end);
}
