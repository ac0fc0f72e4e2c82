/* What divvyd writes down about sessions, and what a new configuration changes for them: divvyd itself in the test's
 * process (tests/fuzz/stage.h), with sessions that have no worker. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "src/arbiter/config/saved.h"
#include "src/arbiter/session/private.h"
#include "src/base/usage_journal.h"
#include "src/wire/lease/lease.h"
#include "tests/fuzz/stage.h"
#include "tests/unit/unit.h"

#define RESTORED 4711 /* the number of a session of an earlier daemon */

static char directory[] = "/tmp/divvy-accounting-XXXXXX";
static char path[256];

static const char *in_directory(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int start(void **state)
{
    (void)state;
    stage_start();
    return mkdtemp(directory) ? 0 : -1;
}

static int end(void **state)
{
    char command[128];

    (void)state;
    dvd_arbiter_fini(&stage);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static int reset(void **state)
{
    (void)state;
    stage_know_devices();
    dvd_sessions_forget(&stage.sessions);
    dvd_sessions_forget_unread(&stage.sessions);
    return 0;
}

static void wait_ms(int ms)
{
    for (int i = 0; i < ms; i += 5) {
        poll(NULL, 0, 5);
        stage_run(20);
    }
}

/* A session that is granted device 0. */
static int hold(void)
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION_OLDEST,
                             .api = DV_API_LEASE};
    struct dv_lease_message want = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION, .type = DV_LEASE_WANT};
    int fd = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);

    assert_true(fd >= 0);
    assert_int_equal(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    stage_run(20);
    assert_int_equal(send(fd, &want, sizeof want, MSG_NOSIGNAL), sizeof want);
    wait_ms(20);
    assert_non_null(stage.sessions.all);
    return fd;
}

static void leave(int fd)
{
    close(fd);
    wait_ms(50);
    assert_null(stage.sessions.all);
}

/* ---- the journal ---- */

/* The lines of a file. */
static unsigned read_lines(const char *name, struct dv_usage_line *last)
{
    char text[DV_USAGE_LINE_BYTES];
    FILE *file = fopen(in_directory(name), "re");
    unsigned count = 0;

    while (file && fgets(text, sizeof text, file)) {
        assert_true(dv_usage_line_read(text, last));
        count++;
    }
    if (file)
        fclose(file);
    return count;
}

static void write_due_line(void)
{
    sd_event_source_set_time(stage.sessions.journal.timer, 0);
    stage_run(20);
}

static void used_time_is_written_down(void **state)
{
    struct dv_usage_line line;

    (void)state;
    dvd_journal_close(&stage.sessions);
    dvd_journal_open(&stage.sessions, directory, getgid());
    int fd = hold();
    write_due_line();
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), 1);
    assert_true(line.used_ms >= 15 && !line.is_last && line.uid == getuid());
    uint64_t used_ms = line.used_ms;
    leave(fd);
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), 2);
    assert_true(line.used_ms >= used_ms && line.is_last); /* a sum, and not a difference */
    fd = hold();
    stage.sessions.journal.file.bytes = DV_USAGE_FILE_BYTES_MAX;
    leave(fd);
    assert_int_equal(read_lines(DV_USAGE_FILE ".1", &line), 3);
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), 0);
    leave(hold());
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), 1);
}

/* A power failure, or a full disk, can leave a part of a line. */
static void a_torn_line_spoils_no_other(void **state)
{
    struct dv_usage_line line;
    char text[DV_USAGE_LINE_BYTES];
    unsigned good = 0, bad = 0;

    (void)state;
    dvd_journal_close(&stage.sessions);
    FILE *file = fopen(in_directory(DV_USAGE_FILE), "we");
    fputs("1\t1763480000\t1763480000\t7\t10", file);
    fclose(file);
    dvd_journal_open(&stage.sessions, directory, getgid());
    leave(hold());
    file = fopen(in_directory(DV_USAGE_FILE), "re");
    while (fgets(text, sizeof text, file))
        if (dv_usage_line_read(text, &line))
            good++;
        else
            bad++;
    fclose(file);
    assert_true(good == 1 && bad == 1);
    assert_int_equal(line.uid, getuid());
    assert_false(dv_usage_line_read("1\t1763480000\t1763480000\t7\t101\t1763480000\t1763480000\t8\t1000\t1\t5\tann\t"
                                    "ann\tbusy\n",
                                    &line));
    assert_false(dv_usage_line_read("1\t2\t1\t7\t10\t1\t5\t5\tann\tann\tbusy\tmore\n", &line));
    assert_true(dv_usage_line_read("1\t2\t1\t7\t10\t1\t5\t5\tann\tann\tbusy\n", &line));
}

/* A session of an earlier daemon, which has used device 0. Returns its end of the channel. */
static int restore(dv_ns used_ns)
{
    struct dv_state_lease *leases[DV_MAX_DEVICES] = {dvd_state_add(&stage.state.leases)};
    struct dv_state_session *record = dvd_state_add(&stage.state.sessions);
    struct dv_state_tenant *tenant = dvd_state_add(&stage.state.tenants);
    struct dvd_tenant_terms terms = {.share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD}};
    static const struct dvd_share_change none;
    struct dv_state_tenant_device *there = dvd_state_add(&stage.state.tenant_devices);
    struct dvd_kept kept = {.fds = {-1, -1, -1, -1, -1, -1}};
    int channel[2];

    assert_true(leases[0] && record && tenant && there);
    snprintf(tenant->name, sizeof tenant->name, "restored");
    *record = (struct dv_state_session){.api = DV_API_LEASE,
                                        .id = RESTORED,
                                        .uid = getuid(),
                                        .gid = getgid(),
                                        .tenant_pid = getpid(),
                                        .version = DV_WIRE_VERSION,
                                        .welcomed = 1,
                                        .device_count = 2,
                                        .devices = {0, 1},
                                        .leased_mask = 1,
                                        .command = "train"};
    leases[0]->used_ns = used_ns;
    dvd_state_commit(tenant);
    dvd_state_commit(there);
    dvd_state_commit(record);
    dvd_state_commit(leases[0]);
    struct dvd_tenant *of = dvd_tenant_restore(&stage.ledger, tenant, &terms, &none, false);
    assert_non_null(of);
    assert_int_equal(dvd_tenant_restore_device(of, &stage.ledger.devices[0], there, &terms.share), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, channel), 0);
    kept.fds[DV_KEPT_CHANNEL] = channel[0];
    kept.fds[DV_KEPT_TENANT] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    assert_int_equal(dvd_session_restore(&stage.sessions, record, leases, of, &kept), 0);
    return channel[1];
}

/* A user whose sessions end all the time does not push out the lines of others. */
static void sessions_that_end_in_quick_succession_share_a_line(void **state)
{
    struct dv_usage_line line;

    (void)state;
    dvd_journal_close(&stage.sessions);
    unlink(in_directory(DV_USAGE_FILE));
    dvd_journal_open(&stage.sessions, directory, getgid());
    unsigned ended = 0, lines;
    do { /* the longer it takes, the more lines there may be */
        leave(hold());
        ended++;
        lines = read_lines(DV_USAGE_FILE, &line);
    } while (ended < lines + 5 && ended < 4 * DV_JOURNAL_ENDS_BURST);
    assert_true(lines >= DV_JOURNAL_ENDS_BURST && ended == lines + 5);
    leave(restore(9 * DV_NS_PER_S)); /* has a line already: in a sum its time would count twice */
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), lines + 1);
    assert_true(line.session == RESTORED && line.used_ms == 9000);
    sd_event_source_set_time(stage.sessions.journal.sums_timer, 0);
    stage_run(20);
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), lines + 2);
    assert_true(line.used_ms >= 15 * (ended - lines) && line.is_last && line.uid == getuid());
    leave(hold());
    dvd_journal_close(&stage.sessions);
    assert_int_equal(read_lines(DV_USAGE_FILE, &line), lines + 3);
}

static void the_journal_is_for_its_readers(void **state)
{
    struct stat info;

    (void)state;
    if (geteuid() != 0)
        skip();
    dvd_journal_close(&stage.sessions);
    dvd_journal_open(&stage.sessions, directory, 100);
    stage.sessions.journal.file.bytes = DV_USAGE_FILE_BYTES_MAX;
    leave(hold());
    dvd_journal_file_set_readers(&stage.sessions.journal.file, 101);
    const char *const names[] = {".", DV_USAGE_FILE, DV_USAGE_FILE ".1"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stat(in_directory(names[i]), &info), 0);
        assert_int_equal(info.st_gid, 101);
    }
    dvd_journal_close(&stage.sessions);
    dvd_journal_open(&stage.sessions, directory, getgid());
}

static void without_a_journal_nothing_is_written(void **state)
{
    (void)state;
    dvd_journal_close(&stage.sessions);
    dvd_journal_open(&stage.sessions, "/proc/no/such", getgid());
    assert_int_equal(stage.sessions.journal.file.fd, -1);
    leave(hold());
    dvd_journal_open(&stage.sessions, NULL, getgid());
    leave(hold());
}

/* ---- ends ---- */

static void ends_are_kept_with_their_figures(void **state)
{
    (void)state;
    int fd = hold();
    struct dvd_session_id id = stage.sessions.all->lessee.id;
    leave(fd);
    const struct dvd_end_record *record = dvd_ends_find(&stage.sessions.ends, id);
    assert_non_null(record);
    assert_string_equal(record->why, "its program ended");
    assert_true(record->used_ns > 0 && record->kind == DVD_END_ORDERLY);
    assert_string_equal(dvd_end_kind_word(record->kind), "ended");
    assert_null(dvd_ends_find(&stage.sessions.ends, DVD_SESSION_ID(UINT64_MAX)));
}

/* Fields that were sent to the service manager's journal: in place of libsystemd's function. */
static char fields[32][256];
static unsigned field_count;

int sd_journal_send_with_location(const char *source_file, const char *line, const char *function, const char *format,
                                  ...)
{
    va_list arguments;

    (void)source_file;
    (void)line;
    (void)function;
    field_count = 0;
    va_start(arguments, format);
    for (; format; format = va_arg(arguments, const char *)) {
        const char *conversion = strchr(format, '%');
        int before = conversion ? (int)(conversion - format) : (int)strlen(format);
        assert_true(field_count < 32);
        char *field = fields[field_count++];
        int used = snprintf(field, sizeof fields[0], "%.*s", before, format);
        size_t left = sizeof fields[0] - (size_t)used;
        if (!conversion)
            continue;
        if (strcmp(conversion, "%s") == 0)
            snprintf(field + used, left, "%s", va_arg(arguments, const char *));
        else if (strcmp(conversion, "%llu") == 0)
            snprintf(field + used, left, "%llu", va_arg(arguments, unsigned long long));
        else if (strcmp(conversion, "%.3f") == 0)
            snprintf(field + used, left, "%.3f", va_arg(arguments, double));
        else
            fail_msg("the test does not know %s", conversion);
    }
    va_end(arguments);
    return 0;
}

static void journal_has(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void journal_has(const char *format, ...)
{
    char wanted[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(wanted, sizeof wanted, format, arguments);
    va_end(arguments);
    for (unsigned i = 0; i < field_count; i++)
        if (strcmp(fields[i], wanted) == 0)
            return;
    fail_msg("no field is %s", wanted);
}

static const char *journal_message(void)
{
    for (unsigned i = 0; i < field_count; i++)
        if (strncmp(fields[i], "MESSAGE=", strlen("MESSAGE=")) == 0)
            return fields[i] + strlen("MESSAGE=");
    return "";
}

static void ends_have_fields_in_the_journal(void **state)
{
    char message[256], stream[64];
    struct stat info;

    (void)state;
    assert_int_equal(fstat(STDERR_FILENO, &info), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)info.st_dev, (unsigned long long)info.st_ino);
    dvd_ends_fini(&stage.sessions.ends);
    stage.sessions.ends = (struct dvd_ends){0};
    field_count = 0;
    unsetenv("JOURNAL_STREAM");
    leave(hold());
    assert_int_equal(field_count, 0); /* it is a line of text then */
    dvd_ends_fini(&stage.sessions.ends);
    stage.sessions.ends = (struct dvd_ends){0};
    setenv("JOURNAL_STREAM", stream, 1);
    int fd = hold();
    struct dvd_session *session = stage.sessions.all;
    struct dvd_session_id id = session->lessee.id;
    session->end_kind = DVD_END_TERMINATED;
    session->lessee.reserved_peak = 4096;
    leave(fd);
    unsetenv("JOURNAL_STREAM");
    const struct dvd_end_record *end = dvd_ends_find(&stage.sessions.ends, id);
    assert_non_null(end);
    assert_true(end->used_ns >= 15 * DV_NS_PER_MS && end->lasted_ns >= end->used_ns);
    journal_has("PRIORITY=6");
    journal_has("SYSLOG_IDENTIFIER=divvyd");
    journal_has("DIVVY_SESSION=%llu", (unsigned long long)id.value);
    journal_has("DIVVY_USER=%s", end->user);
    journal_has("DIVVY_TENANT=%s", end->tenant);
    journal_has("DIVVY_COMMAND=%s", end->command);
    journal_has("DIVVY_END=terminated");
    journal_has("DIVVY_LASTED_S=%.3f", (double)end->lasted_ns / DV_NS_PER_S);
    journal_has("DIVVY_DEVICE_S=%.3f", (double)end->used_ns / DV_NS_PER_S);
    journal_has("DIVVY_WAITED_S=%.3f", (double)end->waited_ns / DV_NS_PER_S);
    journal_has("DIVVY_COMMANDS=%llu", (unsigned long long)end->commands);
    journal_has("DIVVY_MEMORY_PEAK_BYTES=4096");
    snprintf(message, sizeof message, "session %llu over: %s of %s, tenant %s, ", (unsigned long long)id.value,
             end->command, end->user, end->tenant);
    assert_memory_equal(journal_message(), message, strlen(message));
}

/* A user whose sessions end all the time overwrites its own records first. */
static void a_user_does_not_push_out_records_of_others(void **state)
{
    (void)state;
    dvd_ends_fini(&stage.sessions.ends);
    stage.sessions.ends = (struct dvd_ends){0};
    int fd = hold();
    struct dvd_session *session = stage.sessions.all;
    struct dvd_session_id first = session->lessee.id;
    session->end_kind = DVD_END_REFUSED;
    for (uint64_t i = 0; i < 3 * DV_MAX_ENDINGS; i++) {
        session->lessee.uid = i == 0 ? 4001 : 4002;
        session->lessee.id = i == 0 ? first : DVD_SESSION_ID(1000000 + i);
        dvd_ends_note(&stage.sessions.ends, session);
    }
    session->lessee.id = first;
    session->lessee.uid = getuid();
    session->end_kind = DVD_END_ORDERLY;
    assert_int_equal(dvd_ends_kept(&stage.sessions.ends), DV_MAX_ENDINGS);
    const struct dvd_end_record *record = dvd_ends_find(&stage.sessions.ends, first);
    assert_non_null(record);
    assert_int_equal(record->uid, 4001);
    assert_non_null(dvd_ends_at(&stage.sessions.ends, 0));
    leave(fd);
}

/* ---- a new configuration ---- */

static struct dvd_tenant_rule rule;
static struct dvd_config_file file;
static struct dvd_reload reload;

/* All programs of this user belong to this tenant, with these terms. */
static void configure(const char *name, struct dv_share share, uint64_t memory_bytes)
{
    rule = (struct dvd_tenant_rule){.user = "me", .uid = getuid(), .name = (char *)name};
    rule.terms = (struct dvd_tenant_terms){.share = share,
                                           .may_request_ppm = DV_PPM,
                                           .may_weight = DV_WEIGHT_MAX,
                                           .memory = {.bytes = memory_bytes},
                                           .memory_request = {.bytes = memory_bytes / 4},
                                           .host_bytes = memory_bytes};
    file.tenants = &rule;
    file.tenants_count = 1;
    stage.config.file = &file;
    struct dvd_ledger_terms terms = dvd_config_ledger_terms(&stage.config);
    dvd_ledger_set_terms(&stage.ledger, &terms);
    memset(&reload, 0, sizeof reload);
    dvd_sessions_apply_config(&stage.sessions, &reload);
}

static bool says(const char *words)
{
    return strstr(reload.text, words) != NULL;
}

static void a_new_configuration_reaches_tenants(void **state)
{
    const struct dv_share first = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD},
                          second = {
                              .request_ppm = DV_PPM / 5, .limit_ppm = DV_PPM / 2, .weight = 3, .class = DV_CLASS_BATCH};
    struct dvd_config_file *before = stage.config.file;

    (void)state;
    file = *before;
    configure("mine", first, UINT64_C(64) << 20);
    assert_int_equal(reload.changes, 0);
    int fd = hold();
    struct dvd_tenant *tenant = stage.sessions.all->lessee.tenant;
    assert_string_equal(tenant->name, "mine");
    configure("mine", second, UINT64_C(32) << 20);
    assert_true(says("tenant mine: request 20%, was 0%") && says("limit 50%, was 100%") && says("weight 3, was 1"));
    assert_true(says("class batch, was standard") && says("another memory quota") && says("another memory-request"));
    assert_true(says("another host-memory"));
    assert_int_equal(tenant->devices[0]->share.weight, 3);
    configure("mine", second, UINT64_C(32) << 20);
    assert_int_equal(reload.changes, 0);
    configure("other", first, 0);
    assert_true(says("later ones belong to tenant other"));
    rule.refuse = 1;
    stage.ledger.terms_version++;
    dvd_sessions_apply_config(&stage.sessions, &reload);
    assert_true(says("later ones are refused"));
    tenant->set_by_operator = true;
    configure("mine", first, 0);
    assert_true(says("keeps what `divvy set` gave it"));
    assert_int_equal(tenant->devices[0]->share.weight, 3);
    tenant->set_by_operator = false;
    leave(fd);
    stage.config.file = before;
}

/* ---- saved shares ---- */

static void saved_shares_are_written_and_read(void **state)
{
    const struct dvd_share_change change = {.has_weight = true, .weight = 9};
    struct dvd_saved again;

    (void)state;
    dvd_saved_close(&stage.saved);
    dvd_saved_open(&stage.saved, directory);
    stage.sessions.saved = &stage.saved;
    assert_int_equal(dvd_saved_put(&stage.saved, "mine", &change), 0);
    assert_int_equal(dvd_sessions_save_shares(&stage.sessions), 0);
    for (int i = 0; i < 100 && access(in_directory("saved.json"), F_OK) < 0; i++)
        wait_ms(20);
    dvd_saved_open(&again, directory);
    const struct dvd_share_change *found = dvd_saved_find(&again, "mine");
    assert_non_null(found);
    assert_true(found->has_weight && found->weight == 9 && !found->has_limit);
    dvd_saved_close(&again);
}

static void write_file(const char *name, const char *text)
{
    FILE *out = fopen(in_directory(name), "we");

    fputs(text, out);
    fclose(out);
}

/* divvyd was killed before the draft was on the disk. */
static void a_draft_counts_if_it_is_whole(void **state)
{
    struct dvd_saved saved;

    (void)state;
    write_file("saved.json", "{\"tenants\": {\"x\": {\"weight\": 2}}}");
    write_file("saved.json.new", "{\"tenants\": {\"x\": {\"weight\": 3}}}");
    dvd_saved_open(&saved, directory);
    assert_int_equal(dvd_saved_find(&saved, "x")->weight, 3);
    dvd_saved_close(&saved); /* an orderly end leaves no draft */
    assert_int_not_equal(access(in_directory("saved.json.new"), F_OK), 0);
    write_file("saved.json.new", "{\"tenants\": {\"x\": {\"weight\": 4");
    dvd_saved_open(&saved, directory);
    assert_int_equal(dvd_saved_find(&saved, "x")->weight, 3);
    assert_false(saved.is_broken);
    dvd_saved_close(&saved);
    write_file("saved.json.new", "{\"tenants\": {\"x\": {\"weight\": \"heavy\"}}}");
    dvd_saved_open(&saved, directory); /* whole, and not understood: it is not overwritten */
    assert_true(saved.is_broken && saved.directory_fd < 0);
    assert_null(dvd_saved_find(&saved, "x"));
    dvd_saved_close(&saved);
    assert_int_equal(access(in_directory("saved.json.new"), F_OK), 0);
    unlink(in_directory("saved.json.new"));
}

/* Changes add up: what divvyd would refuse to read is not saved. */
static void a_share_that_makes_no_sense_is_not_saved(void **state)
{
    const struct dvd_share_change limit = {.has_limit = true, .limit_ppm = DV_PPM / 10 * 3};
    const struct dvd_share_change request = {.has_request = true, .request_ppm = DV_PPM / 2};
    const struct dvd_share_change none = {.has_weight = true};
    struct dvd_saved saved = {.directory_fd = -1};

    (void)state;
    assert_int_equal(dvd_saved_put(&saved, "x", &limit), 0);
    assert_int_equal(dvd_saved_put(&saved, "x", &request), -ERANGE);
    assert_int_equal(dvd_saved_put(&saved, "y", &none), -ERANGE);
    assert_null(dvd_saved_find(&saved, "y"));
    assert_false(dvd_saved_find(&saved, "x")->has_request);
    assert_int_equal(dvd_saved_put(&saved, "", &limit), -EINVAL);
    assert_int_equal(dvd_saved_put(&saved, "x", NULL), 0);
    assert_int_equal(dvd_saved_put(&saved, "x", NULL), -ENOENT);
    assert_int_equal(dvd_saved_write(&saved), -ENOTDIR);
    dvd_saved_close(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(used_time_is_written_down, reset),
        cmocka_unit_test_setup(a_torn_line_spoils_no_other, reset),
        cmocka_unit_test_setup(sessions_that_end_in_quick_succession_share_a_line, reset),
        cmocka_unit_test_setup(the_journal_is_for_its_readers, reset),
        cmocka_unit_test_setup(without_a_journal_nothing_is_written, reset),
        cmocka_unit_test_setup(ends_are_kept_with_their_figures, reset),
        cmocka_unit_test_setup(ends_have_fields_in_the_journal, reset),
        cmocka_unit_test_setup(a_user_does_not_push_out_records_of_others, reset),
        cmocka_unit_test_setup(a_new_configuration_reaches_tenants, reset),
        cmocka_unit_test_setup(saved_shares_are_written_and_read, reset),
        cmocka_unit_test(a_draft_counts_if_it_is_whole),
        cmocka_unit_test(a_share_that_makes_no_sense_is_not_saved),
    };

    return cmocka_run_group_tests(tests, start, end);
}
