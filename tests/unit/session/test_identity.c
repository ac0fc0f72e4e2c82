/* Which tenant a program belongs to. The peer is this process. */
#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/arbiter/session/identity.h"
#include "tests/unit/unit.h"

static struct dvd_tenant_rule rules[2];
static struct dvd_config_file file = {.tenants = rules};
static struct dvd_config config = {.file = &file};
static struct dvd_identity found;
static int sockets[2];

static int set_up(void **state)
{
    (void)state;
    memset(rules, 0, sizeof rules);
    file.tenants_count = 1;
    config = (struct dvd_config){.file = &file};
    return 0;
}

static struct dvd_peer this_process(void)
{
    return (struct dvd_peer){
        .fd = sockets[0], .uid = 1000, .gid = 1001, .pid = getpid(), .session = 7, .user = "ann", .command = "train"};
}

static const char *tenant_of(const struct dvd_peer *peer)
{
    return dvd_identity_find(&config, peer, &found) ? found.name : "(refused)";
}

static void users_are_tenants_without_a_rule(void **state)
{
    struct dvd_peer peer = this_process();

    (void)state;
    config.file = NULL;
    assert_string_equal(tenant_of(&peer), "ann");
    assert_int_equal(found.terms.may_request_ppm, 0);
    assert_int_equal(found.terms.may_class, DV_CLASS_STANDARD);
    assert_false(found.is_shared);
    peer.user = "1000"; /* it has no name */
    assert_string_equal(tenant_of(&peer), "uid:1000");
}

static void programs_are_tenants_of_a_users_own_daemon(void **state)
{
    struct dvd_peer peer = this_process();
    char expected[64];

    (void)state;
    config = (struct dvd_config){.of_user = true};
    snprintf(expected, sizeof expected, "pid:%d:train", (int)getpid());
    assert_string_equal(tenant_of(&peer), expected);
    assert_int_equal(found.terms.may_request_ppm, DV_PPM);
    peer.pid = 0; /* of another pid namespace */
    assert_string_equal(tenant_of(&peer), "session:7");
    assert_false(dvd_identity_is_shared(&config, "/jobs"));
}

static void rules_match_by_user_and_group(void **state)
{
    struct dvd_peer peer = this_process();

    (void)state;
    file.tenants_count = 2;
    rules[0] = (struct dvd_tenant_rule){.user = "ben", .uid = 1001, .name = "others"};
    rules[1] = (struct dvd_tenant_rule){.group = "lab", .gid = 1001, .name = "lab", .terms.share.weight = 3};
    assert_string_equal(tenant_of(&peer), "lab");
    assert_int_equal(found.terms.share.weight, 3);
    assert_true(found.is_shared);
    peer.gid = 5;
    rules[1].gid = 4711; /* neither its own nor a further one */
    assert_string_equal(tenant_of(&peer), "ann");
    rules[0].refuse = 1;
    peer.uid = 1001;
    assert_string_equal(tenant_of(&peer), "(refused)");
}

static void further_groups_count(void **state)
{
    struct dvd_peer peer = this_process();
    gid_t groups[] = {4712, 4711, 20};
    int pair[2];

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(setgroups(3, groups), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    peer.fd = pair[0];
    rules[0] = (struct dvd_tenant_rule){.group = "lab", .gid = 4711, .per = DV_PER_GROUP};
    assert_string_equal(tenant_of(&peer), "group:4711");
    assert_true(found.is_shared);
    rules[0] = (struct dvd_tenant_rule){.per = DV_PER_GROUP};
    assert_string_equal(tenant_of(&peer), "group:1001");
    close(pair[0]);
    close(pair[1]);
}

/* The path of this process in the first hierarchy in which it is not at the root. */
static bool read_own_cgroup(char *path, size_t bytes)
{
    char line[4096];
    FILE *lines = fopen("/proc/self/cgroup", "re");
    bool any = false;

    while (lines && !any && fgets(line, sizeof line, lines)) {
        const char *colon = strchr(strchr(line, ':') + 1, ':');
        line[strcspn(line, "\n")] = '\0';
        any = strcmp(colon + 1, "/") != 0;
        snprintf(path, bytes, "%s", colon + 1);
    }
    if (lines)
        fclose(lines);
    return any;
}

static void cgroups_are_tenants(void **state)
{
    struct dvd_peer peer = this_process();
    char own[4096];

    (void)state;
    rules[0] = (struct dvd_tenant_rule){.cgroup = "/no/such/*", .name = "jobs"};
    assert_string_equal(tenant_of(&peer), "ann");
    rules[0] = (struct dvd_tenant_rule){.cgroup = "/*", .name = "jobs"};
    assert_string_equal(tenant_of(&peer), "jobs");
    rules[0] = (struct dvd_tenant_rule){.per = DV_PER_CGROUP};
    if (!read_own_cgroup(own, sizeof own)) {
        assert_string_equal(tenant_of(&peer), "ann"); /* it is in none */
        return;
    }
    assert_int_equal(tenant_of(&peer)[strlen(found.name) - 1], own[strlen(own) - 1]);
    assert_true(found.is_shared);
    rules[0].cgroup = "/*"; /* what a job makes below its own is still the job's */
    assert_int_equal(tenant_of(&peer)[0], '/');
    assert_null(strchr(found.name + 1, '/'));
}

static void patterns_name_cgroups(void **state)
{
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct {
        const char *pattern, *path, *name; /* of the path %s is the id; name NULL: it does not match */
    } cases[] = {
        {"/slurm/uid_*/job_*", "/slurm/uid_1000/job_7/step_0/task_1", "/slurm/uid_1000/job_7"},
        {"/slurm/*", "/slurm/uid_1000/job_7", "/slurm/uid_1000"}, /* a '*' does not cross a '/' */
        {"/slurm/*/job_*", "/slurm/uid_1000", NULL},
        {"/slurm/*", "/slurmish/job_7", NULL},
        {"/user.slice/user-[0-9]*.slice", "/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice"},
        {"/docker/*", "/docker/%s", "container:0123456789ab"},
        {"/system.slice/docker-*", "/system.slice/docker-%s.scope", "docker:0123456789ab"},
        {"/machine.slice/libpod-*", "/machine.slice/libpod-%s.scope/container", "podman:0123456789ab"},
        {NULL, "/user.slice/docker-%s.scope", "/user.slice/docker-"}, /* a user can make such a cgroup */
        {NULL, "/", NULL},
    };
    char name[DV_MAX_TENANT_NAME], path[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *place = strstr(cases[i].path, "%s");
        snprintf(path, sizeof path, "%.*s%s%s", place ? (int)(place - cases[i].path) : 255, cases[i].path,
                 place ? id : "", place ? place + 2 : "");
        assert_int_equal(dvd_identity_of_cgroup(path, cases[i].pattern, name, sizeof name), cases[i].name != NULL);
        if (cases[i].name)
            assert_memory_equal(name, cases[i].name, strlen(cases[i].name) + (cases[i].pattern != NULL));
    }
}

/* Who has a cgroup can make others below it, with the name of another's container. */
static void forged_containers_have_long_names(void **state)
{
#define MINE "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
    static const char *const forged[] = {
        "/system.slice/docker-" MINE ".scope/docker-" OTHER ".scope",
        "/system.slice/docker-" MINE ".scope/system.slice/docker-" OTHER ".scope",
        "/system.slice/job.service/docker-" OTHER ".scope",
        "/system.slice/system-job.slice/job@1.service/work/docker-" OTHER ".scope",
        "/machine.slice/vm.scope/libpod-" OTHER ".scope",
        "/docker/" MINE "/" OTHER,
        "/docker/" MINE "/work/docker-" OTHER,
        "/kubepods/besteffort/pod7/" MINE "/" OTHER,
        "/kubepods.slice/kubepods-pod7.slice/cri-containerd-" MINE ".scope/crio-" OTHER ".scope",
    };
    char name[DV_MAX_TENANT_NAME];

    (void)state;
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        assert_true(dvd_identity_of_cgroup(forged[i], NULL, name, sizeof name));
        assert_null(strchr(name, ':'));
    }
    assert_true(dvd_identity_of_cgroup("/kubepods.slice/kubepods-pod7.slice/cri-containerd-" MINE ".scope", NULL, name,
                                       sizeof name));
    assert_string_equal(name, "containerd:0123456789ab");
    assert_true(dvd_identity_of_cgroup("/kubepods/besteffort/pod7/" MINE, NULL, name, sizeof name));
    assert_string_equal(name, "container:0123456789ab");
#undef MINE
#undef OTHER
}

static void names_do_not_collide(void **state)
{
    struct dvd_peer peer = this_process();

    (void)state;
    rules[0] = (struct dvd_tenant_rule){.user = "ben", .uid = 1001, .name = "ann"}; /* a tenant named like the user */
    assert_string_equal(tenant_of(&peer), "uid:1000");
    assert_false(dvd_identity_is_shared(&config, "ann")); /* one user's */
    rules[0].user = NULL;
    assert_true(dvd_identity_is_shared(&config, "ann"));
    assert_true(dvd_identity_is_shared(&config, "/jobs"));
    assert_true(dvd_identity_is_shared(&config, "group:7"));
    assert_false(dvd_identity_is_shared(&config, "carl"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(users_are_tenants_without_a_rule, set_up),
        cmocka_unit_test_setup(programs_are_tenants_of_a_users_own_daemon, set_up),
        cmocka_unit_test_setup(rules_match_by_user_and_group, set_up),
        cmocka_unit_test_setup(further_groups_count, set_up),
        cmocka_unit_test_setup(cgroups_are_tenants, set_up),
        cmocka_unit_test_setup(patterns_name_cgroups, set_up),
        cmocka_unit_test(forged_containers_have_long_names),
        cmocka_unit_test_setup(names_do_not_collide, set_up),
    };

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
