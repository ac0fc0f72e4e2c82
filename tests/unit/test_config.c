/* divvyd's configuration: good files are understood, bad ones refused with a message that helps. */
#include "unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/config/config.h"
#include "src/wire/session/handshake.h"
#include "src/wire/session/shm.h"

static char path[64];
static char error[1024];

static int make_path(void **state)
{
    strcpy(path, "/tmp/divvy-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int drop_path(void **state)
{
    unlink(path);
    rmdir(path);
    return 0;
}

static int load_bytes(struct dvd_config *config, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
    strcpy(error, "nothing was said");
    return dvd_config_load(config, path, true, error, sizeof error);
}

static int load(struct dvd_config *config, const char *text)
{
    return load_bytes(config, text, strlen(text));
}

/* The file is refused, and the message names file, line, and each of the words. */
static void refused(const char *text, int line, const char *const *words)
{
    struct dvd_config config;
    char place[96];
    if (load(&config, text) != -EINVAL)
        fail_msg("accepted:\n%s", text);
    snprintf(place, sizeof place, "%s:%d: ", path, line);
    if (strncmp(error, place, strlen(place)) != 0)
        fail_msg("expected line %d for:\n%s\nbut: %s", line, text, error);
    for (; *words; words++)
        if (!strstr(error, *words))
            fail_msg("expected '%s' for:\n%s\nbut: %s", *words, text, error);
    assert_null(config.file);
}
#define REFUSED(text, line, ...) refused(text, line, (const char *const[]){__VA_ARGS__, NULL})

static void without_a_file_the_defaults_hold(void **state)
{
    struct dvd_config config;
    assert_int_equal(dvd_config_load(&config, NULL, true, error, sizeof error), 0);
    assert_null(config.file);
    assert_true(config.arena_bytes >= DV_SHM_BYTES_MIN && config.arena_bytes <= DV_SHM_BYTES_MAX);
    assert_int_equal(config.arena_bytes % DV_PAGE, 0);
    /* as the documents say, and not as the code does */
    assert_int_equal(config.sessions_per_user, 64);
    assert_int_equal(config.cache_bytes, UINT64_C(1) << 30);
    assert_true(config.worker_processes >= 2048);
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(config.worker_memory_bytes, machine / 100 * 74, machine / 100 * 76);
    assert_int_equal(config.worker_uid_first, 1879048192);
    assert_int_equal(config.worker_uid_last, 1879113727);
    assert_false(config.has_operator_group);
    dvd_config_fini(&config);
    assert_int_equal(dvd_config_load(&config, "/nowhere/divvy.yaml", false, error, sizeof error), 0);
    assert_null(config.file);
}

static void a_file_that_must_exist_must_exist(void **state)
{
    struct dvd_config config;
    assert_int_equal(dvd_config_load(&config, "/nowhere/divvy.yaml", true, error, sizeof error), -ENOENT);
    assert_non_null(strstr(error, "/nowhere/divvy.yaml"));
    assert_int_equal(dvd_config_load(&config, "/tmp", true, error, sizeof error), -EINVAL);
    assert_non_null(strstr(error, "regular file"));
}

static void every_key_is_understood(void **state)
{
    struct dvd_config config;
    assert_int_equal(load(&config, "# all of it\n"
                                   "arena: 2GiB\n"
                                   "vendors: [/etc/a.icd, /etc/b.icd]\n"
                                   "operator-group: root\n"
                                   "tenants-see-own: yes\n"
                                   "sessions-per-user: 17\n"
                                   "device-order: fixed\n"
                                   "devices:\n"
                                   "  - match: \"*Fast*\"\n"
                                   "    name: Shared Card\n"
                                   "    unified: no\n"
                                   "    present-as: gpu\n"
                                   "  - match: \"[ab]?\"\n"
                                   "    unified: yes\n"
                                   "    hidden: yes\n"
                                   "  - match: \"*\"\n"),
                     0);
    assert_true(config.arena_bytes == UINT64_C(2) << 30);
    assert_int_equal(config.file->vendors_count, 2);
    assert_string_equal(config.file->vendors[1], "/etc/b.icd");
    assert_true(config.has_operator_group);
    assert_int_equal(config.operator_group, 0);
    assert_int_equal(config.file->tenants_see_own, 1);
    assert_int_equal(config.sessions_per_user, 17);
    assert_true(config.devices_fixed);
    assert_int_equal(config.file->devices_count, 3);
    const struct dvd_device_rule *rules = config.file->devices;
    assert_string_equal(rules[0].match, "*Fast*");
    assert_int_equal(rules[0].matches.kind, DV_MATCH_NAME);
    assert_string_equal(rules[0].name, "Shared Card");
    assert_int_equal(rules[0].unified, DV_UNIFIED_NO);
    assert_int_equal(rules[0].present_as, DV_PRESENT_AS_GPU);
    assert_int_equal(rules[0].hidden, 0);
    assert_null(rules[1].name);
    assert_int_equal(rules[1].unified, DV_UNIFIED_YES);
    assert_int_equal(rules[1].hidden, 1);
    assert_int_equal(rules[2].unified, DV_UNIFIED_AUTO);
    assert_int_equal(rules[2].present_as, DV_PRESENT_AS_IS);
    dvd_config_fini(&config);
    dvd_config_fini(&config); /* may be called again */
}

static void devices_have_several_names(void **state)
{
    static const char uuid[] = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    static const struct {
        const char *text;
        enum dvd_device_match_kind kind;
        const char *means;
    } cases[] = {
        {"7", DV_MATCH_NUMBER, ""},
        {"123456", DV_MATCH_NAME, "123456"},
        {"-1", DV_MATCH_NAME, "-1"},
        {"01:00.0", DV_MATCH_PCI, "0000:01:00.0"},
        {"0000:01:00.0", DV_MATCH_PCI, "0000:01:00.0"},
        {"10000:AF:1f.7", DV_MATCH_PCI, "10000:af:1f.7"},
        {"01:00", DV_MATCH_NAME, "01:00"},
        {"01:00.0.", DV_MATCH_NAME, "01:00.0."},
        {"1:2:3:4.5", DV_MATCH_NAME, "1:2:3:4.5"},
        {"00010203-0405-0607-0809-0a0b0c0d0e0f", DV_MATCH_UUID, uuid},
        {"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", DV_MATCH_UUID, uuid},
        {"00010203-0405-0607-0809-0a0b0c0d0e0", DV_MATCH_NAME, "00010203-0405-0607-0809-0a0b0c0d0e0"},
        {"*Radeon*", DV_MATCH_NAME, "*Radeon*"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dvd_device_match match = dvd_device_match_parse(cases[i].text);
        assert_int_equal(match.kind, cases[i].kind);
        assert_string_equal(match.text, cases[i].means);
    }
    assert_int_equal(dvd_device_match_parse("00042").number, 42);
}

static void tenants_have_terms(void **state)
{
    struct dvd_config config;
    assert_int_equal(load(&config, "tenants:\n"
                                   "  - user: root\n"
                                   "    group: \"0\"\n"
                                   "    cgroup: /slurm/*\n"
                                   "    name: team\n"
                                   "    request: 30%\n"
                                   "    limit: 62.5 %\n"
                                   "    weight: 2\n"
                                   "    class: batch\n"
                                   "    may-request: 50%\n"
                                   "    may-weight: 4\n"
                                   "    may-class: latency\n"
                                   "  - user: \"20001\"\n"
                                   "    cgroup: \"/job/*\"\n"
                                   "    per: cgroup\n"
                                   "  - request: 10%\n"),
                     0);
    assert_int_equal(config.file->tenants_count, 3);
    const struct dvd_tenant_rule *rules = config.file->tenants;
    const struct dvd_tenant_terms *terms = &rules[0].terms;
    assert_int_equal(rules[0].uid, 0);
    assert_int_equal(rules[0].gid, 0);
    assert_int_equal(terms->share.request_ppm, 300000);
    assert_int_equal(terms->share.limit_ppm, 625000);
    assert_int_equal(terms->share.weight, 2);
    assert_int_equal(terms->share.class, DV_CLASS_BATCH);
    assert_int_equal(terms->may_request_ppm, 500000);
    assert_int_equal(terms->may_weight, 4);
    assert_int_equal(terms->may_class, DV_CLASS_LATENCY);
    assert_int_equal(rules[1].uid, 20001);
    assert_int_equal(rules[1].per, DV_PER_CGROUP);
    assert_int_equal(rules[1].terms.share.limit_ppm, DV_PPM);
    assert_int_equal(rules[1].terms.share.class, DV_CLASS_STANDARD);
    /* nobody may raise itself unless it is said */
    assert_int_equal(rules[2].terms.may_request_ppm, 100000);
    assert_int_equal(rules[2].terms.may_weight, 1);
    assert_int_equal(rules[2].terms.may_class, DV_CLASS_STANDARD);
    dvd_config_fini(&config);
}

static const char *warning_of(const char *text)
{
    static char warning[DV_CONFIG_WARNING_BYTES];
    struct dvd_config config;

    assert_int_equal(load(&config, text), 0);
    memcpy(warning, config.warning, sizeof warning);
    dvd_config_fini(&config);
    return warning;
}

static void permissions_without_effect_are_named(void **state)
{
    (void)state;
    assert_string_equal(warning_of("tenants:\n  - user: root\n    may-request: 50%\n"), "");
    assert_string_equal(warning_of("tenants:\n  - name: x\n    may-weight: 2\n    members-may-change: yes\n"), "");
    const char *two = warning_of("tenants:\n  - name: x\n    request: 60%\n    may-class: batch\n"
                                 "  - name: y\n    request: 60%\n");
    assert_non_null(strstr(two, "add up to 120%"));
    assert_non_null(strstr(two, "; tenant rule 1: may-request, may-weight and may-class have no effect"));
    assert_non_null(strstr(warning_of("tenants:\n  - cgroup: /job/*\n    per: cgroup\n    may-request: 5%\n"),
                           "members-may-change: yes"));
}

static void requests_of_groups_are_for_one(void **state)
{
    (void)state;
    REFUSED("tenants:\n  - group: root\n    request: 60%\n", 2, "each with 60%", "name: root");
    assert_string_equal(warning_of("tenants:\n  - group: root\n    user: root\n    request: 60%\n"), "");
    assert_string_equal(warning_of("tenants:\n  - group: root\n    request: 0%\n"), "");
}

static void kernels_are_sliced(void **state)
{
    struct dvd_config config;

    (void)state;
    assert_int_equal(load(&config, "devices:\n"
                                   "  - match: \"*\"\n"
                                   "    slice-kernels: auto\n"
                                   "    kernel-slice: 2ms\n"
                                   "    kernel-slice-cost: 0.5%\n"
                                   "tenants:\n"
                                   "  - user: root\n"
                                   "    slice-kernels: never\n"
                                   "  - limit: 50%\n"),
                     0);
    const struct dvd_device_rule *rule = config.file->devices;
    assert_int_equal(rule->slice_kernels, DV_SLICE_KERNELS_AUTO + 1);
    assert_true(rule->kernel_slice_ns == 2 * DV_NS_PER_MS);
    assert_int_equal(rule->kernel_slice_cost_ppm, 5000);
    assert_int_equal(config.file->tenants[0].terms.slice_kernels, DV_SLICE_KERNELS_NEVER);
    assert_int_equal(config.file->tenants[1].terms.slice_kernels, DV_SLICE_KERNELS_AUTO);
    dvd_config_fini(&config);
}

static void memory_has_sizes(void **state)
{
    struct dvd_config config;
    assert_int_equal(load(&config, "devices:\n"
                                   "  - match: \"*\"\n"
                                   "    capacity: 8GiB\n"
                                   "    per-context: 64 MiB\n"
                                   "    swap: no\n"
                                   "    swap-part: 10%\n"
                                   "    room-patience: 5s\n"
                                   "    slice-max: 500ms\n"
                                   "  - match: x\n"
                                   "tenants:\n"
                                   "  - memory: 2GiB\n"
                                   "    host-memory: 1GiB\n"
                                   "    memory-request: 256MiB\n"
                                   "  - memory: 25%\n"),
                     0);
    const struct dvd_device_rule *rules = config.file->devices;
    assert_true(rules[0].capacity_bytes == UINT64_C(8) << 30);
    assert_true(rules[0].per_context_bytes == UINT64_C(64) << 20);
    assert_int_equal(rules[0].no_swap, 1);
    assert_int_equal(rules[0].swap_part_ppm, 100000);
    assert_true(rules[0].room_patience_ns == 5 * DV_NS_PER_S);
    assert_true(rules[0].moved_slice_max_ns == 500 * DV_NS_PER_MS);
    assert_int_equal(rules[1].no_swap, 0);
    assert_true(rules[1].capacity_bytes == 0);
    assert_true(config.file->tenants[0].terms.memory.bytes == UINT64_C(2) << 30);
    assert_true(config.file->tenants[0].terms.host_bytes == UINT64_C(1) << 30);
    assert_true(config.file->tenants[0].terms.memory_request.bytes == UINT64_C(256) << 20);
    assert_int_equal(config.file->tenants[1].terms.memory.ppm, 250000);
    dvd_config_fini(&config);
    REFUSED("deadlines:\n  standard: 1ms\n", 2, "standard is '1ms'", "100ms");
    REFUSED("deadlines:\n  often: 1s\n", 2, "often", "latency, standard, batch");
    REFUSED("lease-sessions: nobody-has-this\n", 1, "nobody-has-this", "name of a group");
    assert_int_equal(load(&config, "deadlines:\n  batch: none\n  idle: 5s\nlease-sessions: no\n"), 0);
    assert_true(config.deadline_ns[DV_CLASS_BATCH] == DV_DEADLINE_NONE);
    assert_true(config.deadline_ns[DV_CLASS_IDLE] == 5 * DV_NS_PER_S);
    assert_true(config.deadline_ns[DV_CLASS_STANDARD] == 0);
    assert_int_equal(config.lease_sessions, DV_LEASE_SESSIONS_NONE);
    dvd_config_fini(&config);
    REFUSED("restart-within: 0s\n", 1, "restart-within is '0s'", "1s to 3600s");
    REFUSED("cache-size: 1\n", 1, "cache-size is '1'", "1MiB");
    REFUSED("cache-size: 1GiB\ncaches-size: 1MiB\n", 2, "caches-size is '1MiB'", "not below cache-size");
    REFUSED("worker-cgroup: tenant\nworker-memory: 1GiB\n", 1, "the program's own cgroup", "no worker-memory");
    REFUSED("worker-users: 7-7\n", 1, "worker-users is '7-7'", "FIRST-LAST");
    REFUSED("worker-users: 0-5\n", 1, "worker-users is '0-5'", "FIRST-LAST");
    REFUSED("sandbox: maybe\n", 1, "maybe", "if-possible");
    REFUSED("sandbox: no\nallow-unsandboxed-workers: perhaps\n", 2, "perhaps", "yes or no");
    REFUSED("devices:\n  - match: x\n    sandbox:\n      paths: [etc]\n", 4, "paths is 'etc'", "absolute");
    REFUSED("devices:\n  - match: x\n    sandbox:\n      calls: [personality, shmat]\n", 4, "shmat",
            "none of System V");
    REFUSED("devices:\n  - match: x\n    sandbox:\n      path: []\n", 4, "path", "paths, groups, calls");
    assert_int_equal(load(&config, "devices:\n  - match: x\n    sandbox:\n      paths: [/dev/nvidia0, "
                                   "/dev/nvidia-uvm, /dev/nvidiactl, /dev/null]\n"
                                   "  - match: y\n    sandbox:\n      ioctls: [d, \"0x4601\", all]\n"),
                     0);
    rules = config.file->devices;
    assert_int_equal(rules[0].sandbox->request_count, 4);
    assert_int_equal(rules[0].sandbox->requests[0].bits, 'F' << 8);
    assert_int_equal(rules[1].sandbox->request_count, 3);
    assert_int_equal(rules[1].sandbox->requests[1].bits, 0x4601);
    assert_int_equal(rules[1].sandbox->requests[2].mask, 0);
    dvd_config_fini(&config);
    REFUSED("devices:\n  - match: x\n    sandbox:\n      paths: [/dev/odd0]\n", 4, "/dev/odd0", "ioctls");
    REFUSED("devices:\n  - match: x\n    sandbox:\n      ioctls: [many]\n", 4, "many", "letters or numbers");
    REFUSED("devices:\n  - match: x\n    capacity: 1\n", 3, "capacity is '1'", "4KiB");
    REFUSED("devices:\n  - match: x\n  - match: y\n    capacity: much\n", 4, "much", "such as 8GiB");
    REFUSED("devices:\n  - match: x\n    per-context: 300TiB\n", 3, "300TiB", "256TiB");
    REFUSED("devices:\n  - match: x\n    swap-part: 60%\n", 3, "60%", "1% to 50%");
    REFUSED("devices:\n  - match: x\n    slice-max: 61s\n", 3, "61s", "10ms to 60s");
    REFUSED("devices:\n  - match: x\n    slice-kernels: often\n", 3, "often", "auto, never or always");
    REFUSED("devices:\n  - match: x\n    kernel-slice: 10us\n", 3, "10us", "100us to 1s");
    REFUSED("devices:\n  - match: x\n    kernel-slice-cost: 60%\n", 3, "60%", "0.1% to 50%");
    REFUSED("devices:\n  - name: x\n    lease-only: yes\n    slice-kernels: auto\n", 2, "no driver", "");
    REFUSED("devices:\n  - match: x\n    room-patience: 5ms\n", 3, "5ms", "100ms to 86400s");
    REFUSED("tenants:\n  - memory: 150%\n", 2, "150%", ""); /* a part is at most the whole */
    REFUSED("tenants:\n  - memory: 0\n", 2, "memory is '0'", "2GiB");
    REFUSED("tenants:\n  - host-memory: none\n", 2, "none", "4GiB");
    REFUSED("tenants:\n  - memory-request: much\n", 2, "much", "50%");
}

static void nothing_but_comments_means_the_defaults(void **state)
{
    struct dvd_config config;
    assert_int_equal(load(&config, ""), 0);
    dvd_config_fini(&config);
    assert_int_equal(load(&config, "# nothing\n\n"), 0);
    assert_int_equal(config.sessions_per_user, DV_MAX_SESSIONS_PER_UID);
    dvd_config_fini(&config);
}

static void unknown_keys_are_named(void **state)
{
    REFUSED("arenas: 2GiB\n", 1, "'arenas'", "expected one of", "arena", "devices");
    REFUSED("arena: 2GiB\n\nshare: 3\n", 3, "'share'");
    REFUSED("devices:\n  - match: x\n    unify: no\n", 3, "'unify'", "device rule", "unified");
}

static void wrong_values_are_named(void **state)
{
    REFUSED("devices:\n  - match: x\n    unified: maybe\n", 3, "'unified'", "maybe", "yes, no or auto");
    REFUSED("devices:\n  - match: x\n    present-as: toaster\n", 3, "toaster", "accelerator");
    REFUSED("devices:\n  - match: x\n    hidden: 2\n", 3, "'hidden'", "yes or no");
    REFUSED("devices:\n  - match: x\n    policy: best\n", 3, "best", "elastic");
    REFUSED("devices:\n  - match: x\n    slots: 0\n", 3, "slots is 0", "1 to 64");
    REFUSED("devices:\n  - match: x\n    slots: 2\n  - match: y\n    slots: 65\n", 5, "65", "1 to 64");
    REFUSED("devices:\n  - match: x\n    slice: 10ms\n  - match: y\n    slice: 5\n", 5, "slice is '5'",
            "learned, or a time");
    REFUSED("devices:\n  - match: x\n    slice: 20s\n", 3, "20s", "100us to 10s");
    REFUSED("tenants-see-own: perhaps\n", 1, "perhaps", "yes or no");
    REFUSED("device-order: best\n", 1, "best", "free or fixed");
    REFUSED("sessions-per-user: many\n", 1, "'sessions-per-user'", "1 to 16384");
    REFUSED("sessions-per-user: 0\n", 1, "1 to 16384");
    REFUSED("# x\nsessions-per-user: 16385\n", 2, "16385", "1 to 16384");
    REFUSED("sessions-per-user: -1\n", 1, "1 to 16384");
    REFUSED("tenants:\n  - user: nobody at all\n", 2, "nobody at all", "name or number");
    REFUSED("tenants:\n  - group: none of them\n", 2, "none of them", "name or number");
    REFUSED("tenants:\n  - request: 30\n", 2, "request is '30'", "0% to 100%");
    REFUSED("tenants:\n  - request: 101%\n", 2, "101%", "0% to 100%");
    REFUSED("tenants:\n  - limit: 0.5%\n", 2, "0.5%", "1% to 100%");
    REFUSED("tenants:\n  - {}\n  - weight: 0\n", 3, "weight is '0'", "1 to 10000");
    REFUSED("tenants:\n  - request: 50%\n    limit: 40%\n", 2, "50%", "40%", "at most the limit");
    REFUSED("tenants:\n  - class: urgent\n", 2, "urgent", "latency, standard, batch or idle");
    REFUSED("tenants:\n  - per: planet\n", 2, "planet", "cgroup or program");
    REFUSED("tenants:\n  - shares: 3\n", 2, "unknown key 'shares' in a tenant rule", "may-request");
    REFUSED("operator-group: no such group here\n", 1, "no such group here");
    REFUSED("session-group: no such group here\n", 1, "session-group: there is no group");
    REFUSED("tenants:\n  - refuse: perhaps\n", 2, "'refuse' cannot be 'perhaps'");
    REFUSED("tenants:\n  - per: cgroup\n", 2, "per: cgroup needs a pattern");
    REFUSED("tenants:\n  - name: uid:7\n", 2, "a tenant cannot be called 'uid:7'");
    REFUSED("tenants:\n  - name: /slurm\n", 2, "a tenant cannot be called '/slurm'");
    REFUSED("tenants:\n  - name: \"7\"\n", 2, "a tenant cannot be called '7'");
    REFUSED("vendors:\n  - /etc/a.icd\n  - b.icd\n", 3, "b.icd", "absolute path");
}

static void arena_sizes_have_bounds(void **state)
{
    struct dvd_config config;
    REFUSED("arena: 1MiB\n", 1, "1MiB", "336 MiB", "16.0 TiB");
    REFUSED("arena: 17TiB\n", 1, "17TiB");
    REFUSED("arena: 99999999999999999999GiB\n", 1, "arena");
    REFUSED("arena: 16777216TiB\n", 1, "arena"); /* 2 to the 64th bytes */
    REFUSED("arena: large\n", 1, "large", "16GiB");
    REFUSED("arena: -1\n", 1, "-1");
    REFUSED("arena: ''\n", 1, "arena");
    assert_int_equal(load(&config, "arena: 1073741825\n"), 0);
    assert_true(config.arena_bytes == (UINT64_C(1) << 30) + DV_PAGE); /* rounded up to pages */
    dvd_config_fini(&config);
    assert_int_equal(load(&config, "arena: 16TiB\n"), 0);
    assert_true(config.arena_bytes == DV_SHM_BYTES_MAX);
    dvd_config_fini(&config);
}

static void wrong_shapes_are_refused(void **state)
{
    REFUSED("devices: all\n", 1, "'devices'");
    REFUSED("devices:\n  - unified: no\n", 2, "'match'", "lease-only");
    REFUSED("devices:\n  - lease-only: yes\n", 2, "no name");
    REFUSED("devices:\n  - name: \"a\\tb\"\n    lease-only: yes\n", 1, "plain text");
    REFUSED("devices:\n  - match: x\n  - name: encoder\n    lease-only: yes\n    unified: no\n", 3, "no driver",
            "slots");
    REFUSED("devices:\n  - name: encoder\n    lease-only: yes\n    match: x\n", 4, "no driver");
    REFUSED("devices:\n  - name: encoder\n    lease-only: yes\n    policy: none\n", 2, "not none");
    REFUSED("devices:\n  - name: encoder\n    lease-only: yes\n  - name: encoder\n    lease-only: yes\n", 4, "another");
    REFUSED("devices:\n  - name: encoder\n    lease-only: maybe\n", 3, "maybe", "yes or no");
    REFUSED("devices:\n  - x\n", 2, "devices");
    REFUSED("vendors: []\n", 1, "too few");
    REFUSED("vendors: {a: b}\n", 1, "vendors");
    REFUSED("- a\n- b\n", 1, "keys with values");
    REFUSED("arena: 2GiB\narena: 3GiB\n", 2, "'arena'", "twice");
    REFUSED("arena: 2GiB\nvendors: [/a]\nsessions-per-user: 4\narena: 3GiB\n", 4, "'arena'", "twice");
    REFUSED("devices:\n  - match: x\n    unified: no\n    match: y\n", 4, "'match'", "twice");
    REFUSED("devices:\n  - match: ''\n", 2, "'match'", "empty");
}

static void what_is_not_yaml_is_refused(void **state)
{
    REFUSED("arena: 2GiB\ndevices: [\n", 3, "not YAML");
    REFUSED("arena: b: c\n", 1, "not YAML");
    REFUSED("arena: \"unended\n", 2, "not YAML");
    REFUSED("arena: 2GiB\n\tvendors: x\n", 2, "not YAML");
}

static void long_things_have_an_end(void **state)
{
    struct dvd_config config;
    char text[9000], name[200];
    memset(name, 'n', sizeof name);
    name[DV_MAX_DEVICE_NAME - 1] = '\0';
    snprintf(text, sizeof text, "devices:\n  - match: %s\n", name);
    assert_int_equal(load(&config, text), 0);
    dvd_config_fini(&config);
    name[DV_MAX_DEVICE_NAME - 1] = 'n';
    name[DV_MAX_DEVICE_NAME] = '\0';
    snprintf(text, sizeof text, "devices:\n  - match: %s\n", name);
    REFUSED(text, 2, "too long");
    for (int count = DV_MAX_DEVICE_RULES; count <= DV_MAX_DEVICE_RULES + 1; count++) {
        size_t used = (size_t)snprintf(text, sizeof text, "devices:\n");
        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "  - match: x\n");
        if (count == DV_MAX_DEVICE_RULES) {
            assert_int_equal(load(&config, text), 0);
            assert_int_equal(config.file->devices_count, DV_MAX_DEVICE_RULES);
            dvd_config_fini(&config);
        } else {
            assert_int_equal(load(&config, text), -EINVAL);
            assert_non_null(strstr(error, "too many"));
        }
    }
    char *huge = malloc(DV_MAX_CONFIG_BYTES + 1);
    memset(huge, '#', DV_MAX_CONFIG_BYTES + 1);
    assert_int_equal(load_bytes(&config, huge, DV_MAX_CONFIG_BYTES + 1), -EFBIG);
    free(huge);
}

/* Whatever the bytes, the answer is an answer: run this under a sanitizer. */
static void random_files_do_no_harm(void **state)
{
    static const char *const pieces[] = {"devices:",
                                         "\n",
                                         "  - ",
                                         "match: ",
                                         "\"*\"",
                                         "unified: ",
                                         "no",
                                         "yes",
                                         "arena: ",
                                         "1GiB",
                                         "vendors: ",
                                         "[",
                                         "]",
                                         "{",
                                         "}",
                                         "&a ",
                                         "*a",
                                         "!!map ",
                                         "<<: ",
                                         "? ",
                                         ": ",
                                         "|\n",
                                         ">\n",
                                         "'",
                                         "\"",
                                         "#",
                                         "- ",
                                         "\t",
                                         "%YAML 1.1\n---\n",
                                         "...",
                                         "sessions-per-user: ",
                                         "18446744073709551616",
                                         "hidden: ",
                                         "name: ",
                                         "operator-group: ",
                                         "root",
                                         "\xff",
                                         "\xc3\xa9",
                                         "~",
                                         "null",
                                         "0x10"};
    struct random r = {random_seed()};
    int accepted = 0;
    for (int round = 0; round < 1000; round++) {
        char text[512];
        size_t used = 0;
        for (uint64_t n = 1 + random_below(&r, 14); n; n--) {
            const char *piece = pieces[random_below(&r, sizeof pieces / sizeof pieces[0])];
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", piece);
        }
        struct dvd_config config;
        if (load_bytes(&config, text, used) == 0) {
            accepted++;
            dvd_config_fini(&config);
        } else {
            assert_string_not_equal(error, "nothing was said");
        }
    }
    assert_true(accepted > 0);
}

int main(void)
{
#define CONFIG_TEST(function) cmocka_unit_test_setup_teardown(function, make_path, drop_path)
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(without_a_file_the_defaults_hold),
        CONFIG_TEST(a_file_that_must_exist_must_exist),
        CONFIG_TEST(every_key_is_understood),
        CONFIG_TEST(devices_have_several_names),
        CONFIG_TEST(tenants_have_terms),
        CONFIG_TEST(permissions_without_effect_are_named),
        CONFIG_TEST(requests_of_groups_are_for_one),
        CONFIG_TEST(kernels_are_sliced),
        CONFIG_TEST(memory_has_sizes),
        CONFIG_TEST(nothing_but_comments_means_the_defaults),
        CONFIG_TEST(unknown_keys_are_named),
        CONFIG_TEST(wrong_values_are_named),
        CONFIG_TEST(arena_sizes_have_bounds),
        CONFIG_TEST(wrong_shapes_are_refused),
        CONFIG_TEST(what_is_not_yaml_is_refused),
        CONFIG_TEST(long_things_have_an_end),
        CONFIG_TEST(random_files_do_no_harm),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
