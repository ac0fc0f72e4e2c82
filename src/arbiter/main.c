/* divvyd: reads its options and lets the arbiter run. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/arbiter.h"

#define MAX_IDLE_EXIT_S 1000000u
#define MAX_FD 1000000u

static const char usage[] = "Usage: divvyd [--user] [OPTIONS]\n"
                            "\n"
                            "Shares the accelerators of this machine among programs. Programs reach it through\n"
                            "`divvy run -- PROGRAM`; this daemon starts one worker process for each of them.\n"
                            "\n"
                            "  --user              a daemon of your own: no root, private directory\n"
                            "  --dir DIR           runtime directory (default: /run/divvy; with --user\n"
                            "                      $XDG_RUNTIME_DIR/divvy or /tmp/divvy-UID)\n"
                            "  --config FILE       configuration (default: /etc/divvy/divvy.yaml; with --user none)\n"
                            "  --state-dir DIR     directory of the journal of used time (default:\n"
                            "                      $STATE_DIRECTORY or /var/lib/divvy; with --user none)\n"
                            "  --check FILE        check a configuration, print what it means, and exit\n"
                            "  --idle-exit SECONDS exit after this time without a session\n"
                            "  --ready-fd N        write a byte to descriptor N once sessions are accepted\n"
                            "  --worker FILE       the program divvy-worker (default: found beside divvyd)\n"
                            "  --log-level LEVEL   error, warning, info (default) or debug\n"
                            "  --version           print the version\n"
                            "  --help              print this help\n"
                            "\n"
                            "Signals: TERM and INT end divvyd and all workers, USR1 ends divvyd only,\n"
                            "HUP reloads the configuration. See divvyd(8) and divvy.yaml(5).\n";

enum {
    OPTION_USER = 256,
    OPTION_DIR,
    OPTION_CONFIG,
    OPTION_CHECK,
    OPTION_STATE_DIR,
    OPTION_IDLE_EXIT,
    OPTION_READY_FD,
    OPTION_WORKER,
    OPTION_LOG_LEVEL,
    OPTION_VERSION,
    OPTION_HELP
};

static const struct option long_options[] = {{"user", no_argument, NULL, OPTION_USER},
                                             {"dir", required_argument, NULL, OPTION_DIR},
                                             {"config", required_argument, NULL, OPTION_CONFIG},
                                             {"check", required_argument, NULL, OPTION_CHECK},
                                             {"state-dir", required_argument, NULL, OPTION_STATE_DIR},
                                             {"idle-exit", required_argument, NULL, OPTION_IDLE_EXIT},
                                             {"ready-fd", required_argument, NULL, OPTION_READY_FD},
                                             {"worker", required_argument, NULL, OPTION_WORKER},
                                             {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
                                             {"version", no_argument, NULL, OPTION_VERSION},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

static _Noreturn void fail_usage(const char *what, const char *value)
{
    fprintf(stderr, "divvyd: %s: %s\nTry: divvyd --help\n", what, value);
    exit(2);
}

static unsigned parse_number(const char *text, unsigned most, const char *option)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end || value > most)
        fail_usage(option, "a number is expected");
    return (unsigned)value;
}

static enum dv_log_level parse_level(const char *text)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};

    for (int i = 0; i < 4; i++)
        if (strcmp(text, words[i]) == 0)
            return (enum dv_log_level)i;
    fail_usage("--log-level is error, warning, info or debug, not", text);
}

static void parse_options(int argc, char **argv, struct dvd_options *options, const char **check_path)
{
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (option) {
        case OPTION_USER:
            options->user = true;
            break;
        case OPTION_DIR:
            options->directory = optarg;
            break;
        case OPTION_CONFIG:
            options->config_path = optarg;
            break;
        case OPTION_CHECK:
            *check_path = optarg;
            break;
        case OPTION_STATE_DIR:
            options->state_directory = optarg;
            break;
        case OPTION_IDLE_EXIT:
            options->idle_exit_s = parse_number(optarg, MAX_IDLE_EXIT_S, "--idle-exit");
            break;
        case OPTION_READY_FD:
            options->ready_fd = (int)parse_number(optarg, MAX_FD, "--ready-fd");
            break;
        case OPTION_WORKER:
            options->worker_path = optarg;
            break;
        case OPTION_LOG_LEVEL:
            options->log_level = parse_level(optarg);
            break;
        case OPTION_VERSION:
            printf("divvyd %s\n", DIVVY_VERSION);
            exit(0);
        case OPTION_HELP:
            fputs(usage, stdout);
            exit(0);
        default:
            fprintf(stderr, "Try: divvyd --help\n");
            exit(2);
        }
    }
    if (optind < argc)
        fail_usage("unexpected argument", argv[optind]);
    if (options->ready_fd >= 0 && fcntl(options->ready_fd, F_SETFD, FD_CLOEXEC) < 0)
        fail_usage("--ready-fd", "this descriptor is not open");
}

/* Returns the exit status. */
static int check_config(const char *path, bool of_user)
{
    struct dvd_config config;
    char error[1024];

    int status = dvd_config_load(&config, path, true, error, sizeof error);
    if (status == 0) {
        status = dvd_config_set_mode(&config, path, of_user, of_user ? geteuid() : 0, error, sizeof error);
        if (status == 0)
            dvd_config_describe(&config, stdout);
        dvd_config_fini(&config);
    }
    if (status < 0)
        fprintf(stderr, "divvyd: %s\n", error);
    return status < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    static struct dvd_arbiter arbiter;
    struct dvd_options options = {.ready_fd = -1, .log_level = DV_LOG_INFO};
    const char *check_path = NULL;

    umask(0022); /* each file gets its mode when it is made; the service manager may be stricter */
    parse_options(argc, argv, &options, &check_path);
    if (check_path)
        return check_config(check_path, options.user);
    dv_log_set_name("divvyd");
    dv_log_set_level(options.log_level);
    int status = dvd_arbiter_init(&arbiter, &options) < 0 ? 1 : dvd_arbiter_run(&arbiter);
    dvd_arbiter_fini(&arbiter);
    return status;
}
