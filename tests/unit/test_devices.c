/* The list of devices: which numbers devices of vendors and lease-only devices have, and for whom they are. */
#include "src/arbiter/workers/devices.h"
#include "tests/unit/unit.h"

static struct dvd_devices devices;
static struct dvd_device_rule rules[] = {{.lease_only = 1, .name = (char *)"encoder"},
                                         {.lease_only = 1, .name = (char *)"decoder"},
                                         {.match = (char *)"*", .name = (char *)"card", .matches = {.text = "*"}}};
static struct dvd_config_file file = {.devices = rules, .devices_count = 3};
static const struct dvd_config config = {.file = &file};

static void probe(uint32_t count)
{
    static struct dv_zygote_answer answer;

    answer.device_count = answer.devices_found = count;
    for (uint32_t i = 0; i < count; i++) {
        answer.devices[i] =
            (struct dv_device_report){.device = i, .kind = DV_DEVICE_LEASE_ONLY}; /* which it must not say */
        snprintf(answer.devices[i].name, sizeof answer.devices[i].name, "vendor %u", i);
    }
    assert_true(dvd_devices_take(&devices, &answer, 1));
    dvd_devices_add_lease_only(&devices, &config);
}

static int start(void **state)
{
    (void)state;
    devices = (struct dvd_devices){0};
    file.devices_count = 3;
    return 0;
}

static const char *name_of(uint32_t number)
{
    assert_true(number < devices.count);
    return devices.reports[number].name;
}

static uint32_t lease_only(const char *name, struct dvd_device_id *id)
{
    struct dvd_device_id ids[DV_MAX_DEVICES];
    char text[256] = "";
    uint32_t count = dvd_devices_choose_lease_only(&devices, &config, name, ids, text, sizeof text);

    if (count)
        *id = ids[0];
    else
        assert_non_null(strstr(text, name));
    return count;
}

/* How many devices programs with a worker see. */
static uint32_t for_programs(const char *choice)
{
    struct dvd_device_id ids[DV_MAX_DEVICES];
    char text[256] = "";

    return dvd_devices_choose(&devices, &config, choice, ids, text, sizeof text);
}

static void lease_only_devices_come_after_the_vendors(void **state)
{
    struct dvd_device_id id;

    (void)state;
    probe(2);
    assert_int_equal(devices.count, 4);
    assert_int_equal(devices.vendor_count, 2);
    assert_string_equal(name_of(1), "vendor 1");
    assert_string_equal(name_of(2), "encoder");
    assert_int_equal(lease_only("decoder", &id), 1);
    assert_int_equal(id.number, 3);
    assert_string_equal(dvd_devices_type_word(&devices.reports[3]), "lease-only");
}

static void each_kind_is_for_its_sessions_only(void **state)
{
    struct dvd_device_id id;
    struct dvd_device_id ids[DV_MAX_DEVICES];
    char text[256];

    (void)state;
    probe(2);
    assert_int_equal(for_programs(NULL), 2);
    assert_int_equal(for_programs("encoder"), 0);
    assert_int_equal(for_programs("2"), 0);
    assert_int_equal(for_programs("*"), 2);
    assert_int_equal(dvd_devices_choose_same(&devices, &config, "0,2", ids, text, sizeof text), 0);
    assert_int_equal(lease_only("vendor 0", &id), 0);
    assert_int_equal(lease_only("card", &id), 0);
    assert_int_equal(lease_only("enc*", &id), 0); /* a name, no pattern */
    assert_int_equal(lease_only("", &id), 0);
    assert_ptr_equal(dvd_devices_rule(&devices, 2, &config), &rules[0]);
    assert_ptr_equal(dvd_devices_rule(&devices, 0, &config), &rules[2]);
}

/* Sessions know devices by their numbers. */
static void a_device_keeps_its_number(void **state)
{
    struct dvd_device_id id;

    (void)state;
    probe(2);
    probe(1); /* a card is lost */
    assert_int_equal(lease_only("encoder", &id), 1);
    assert_int_equal(id.number, 2);
    assert_int_equal(devices.vendor_count, 1);
    assert_int_equal(for_programs(NULL), 1);
    assert_int_equal(for_programs("1"), 0);
    probe(0);
    assert_int_equal(for_programs(NULL), 0);
    assert_true(devices.had_some);
    probe(3); /* it is back, and another */
    assert_string_equal(name_of(1), "vendor 1");
    assert_string_equal(name_of(2), "encoder");
    assert_string_equal(name_of(4), "vendor 2");
    assert_int_equal(for_programs(NULL), 3);
    dvd_devices_restored(&devices, 1); /* as the next daemon finds them */
    assert_int_equal(devices.vendor_count, 3);
    assert_int_equal(lease_only("encoder", &id), 1);
}

static void a_device_that_is_no_longer_configured_is_not_offered(void **state)
{
    struct dvd_device_terms terms[DV_MAX_DEVICES];
    struct dvd_device_id id;

    (void)state;
    probe(1);
    file.devices_count = 1; /* encoder */
    probe(1);
    assert_int_equal(lease_only("decoder", &id), 0);
    assert_int_equal(lease_only("encoder", &id), 1);
    dvd_devices_terms(&devices, &config, terms);
    assert_true(terms[2].is_hidden && !terms[1].is_hidden && !terms[0].is_hidden);
    assert_string_equal(terms[1].name, "encoder");
    assert_int_equal(terms[1].capacity_bytes, 0);
    assert_false(terms[1].swaps);
    file.devices_count = 3;
    probe(1);
    assert_int_equal(lease_only("decoder", &id), 1);
    assert_int_equal(id.number, 2);
    assert_int_equal(devices.count, 3);
}

static void without_room_or_drivers(void **state)
{
    struct dvd_device_id id;

    (void)state;
    probe(DV_MAX_DEVICES - 1);
    assert_int_equal(lease_only("encoder", &id), 1);
    assert_int_equal(lease_only("decoder", &id), 0);
    probe(DV_MAX_DEVICES);
    assert_int_equal(devices.vendor_count, DV_MAX_DEVICES - 1);
    start(state);
    probe(0);
    assert_int_equal(lease_only("encoder", &id), 1);
    assert_int_equal(id.number, 0);
    assert_false(devices.had_some);
    probe(1);
    assert_string_equal(name_of(2), "vendor 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lease_only_devices_come_after_the_vendors, start),
        cmocka_unit_test_setup(each_kind_is_for_its_sessions_only, start),
        cmocka_unit_test_setup(a_device_keeps_its_number, start),
        cmocka_unit_test_setup(a_device_that_is_no_longer_configured_is_not_offered, start),
        cmocka_unit_test_setup(without_room_or_drivers, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
