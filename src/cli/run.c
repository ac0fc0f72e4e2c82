/* divvy run: makes sure that a daemon runs, points the program's OpenCL loader at divvy's
 * driver alone, and becomes the program. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/cli/admission.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"
#include "src/cli/share.h"
#include "src/wire/session/handshake.h"
#include "src/wire/session/shm.h"

#define DEADLINE_MIN_NS (100 * DV_NS_PER_MS)
#define DEADLINE_MAX_NS (86400 * DV_NS_PER_S)

static const char usage[] =
    "Usage: divvy run [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"
    "\n"
    "Runs an OpenCL program on the shared devices. The program needs no change; it sees the\n"
    "platform \"divvy\" in place of the vendors' ones. The exit code is the program's.\n"
    "\n"
    "If no daemon runs, one of your own is started. It ends after it has been idle for a\n"
    "minute.\n"
    "\n"
    "  --present-as TYPE show the devices as cpu, gpu or accelerator, for programs that look\n"
    "                    for one type only\n"
    "  --device WHICH    let the program see this device only: its number, its address on the\n"
    "                    PCI bus, its UUID, or a pattern for its name, as `divvy devices` shows\n"
    "                    them. For several, repeat the option or separate them with commas\n"
    "  --name NAME       a name for the session, which ps, explain and end show and take\n"
    "  --memory SIZE     how much memory it may allocate on each device, such as 2GiB\n"
    "  --deadline TIME   how long it may take to give back a device that others wait for, such\n"
    "                    as 10s; then its session is ended. It can only shorten the daemon's\n"
    "  --daemon DIR      use the divvyd whose runtime directory is DIR (default: $DIVVY_DIR,\n"
    "                    then " DV_RUNDIR_SYSTEM ", then your own)\n"
    "  --help            print this help\n"
    "\n"
    "The share to ask for, as far as the daemon's configuration lets you:\n" DV_CLI_SHARE_HELP "\n"
    "Examples:\n"
    "  divvy run -- clinfo\n"
    "  divvy run --present-as gpu -- hashcat -b\n"
    "  divvy run --device 0 --device 2 -- ./simulate\n"
    "  divvy run --request 30% --class latency -- ./serve\n"
    "\n"
    "Exit codes of divvy itself: 125 it failed, 126 PROGRAM cannot be executed,\n"
    "127 PROGRAM was not found.\n";

struct run_options {
    const char *present_as;
    const char *daemon_directory;
    const char *name;
    char devices[DV_MAX_DEVICE_CHOICE]; /* with commas between them; empty: all */
    struct dv_cli_limits limits;
    struct dv_cli_share share;
};

/* Returns 0, or -1 after a message. */
static int add_device(struct run_options *run, const char *which)
{
    size_t used = strlen(run->devices);
    int more = snprintf(run->devices + used, sizeof run->devices - used, "%s%s", used ? "," : "", which);

    if (which[0] && (size_t)more < sizeof run->devices - used)
        return 0;
    dv_cli_error(which[0] ? "--device names too many devices: together they can have %d "
                            "characters. A pattern such as '*' names several."
                          : "--device names no device. `divvy devices` lists them.",
                 DV_MAX_DEVICE_CHOICE - 1);
    return -1;
}

static int take_memory(struct run_options *run, const char *text)
{
    int status = dv_text_parse_size(text, &run->limits.memory_bytes);

    if (status == 0 && run->limits.memory_bytes > 0)
        return 0;
    if (status == -EDOM)
        dv_cli_error("--memory %s would be %s bytes. Give a unit, such as --memory %sGiB.", text, text, text);
    else
        dv_cli_error("--memory is a size such as 512MiB or 2GiB, not '%s'.", text);
    return -1;
}

static int take_deadline(struct run_options *run, const char *text)
{
    if (dv_text_parse_time(text, &run->limits.deadline_ns) == 0 && run->limits.deadline_ns >= DEADLINE_MIN_NS &&
        run->limits.deadline_ns <= DEADLINE_MAX_NS)
        return 0;
    dv_cli_error("--deadline is a time from 100ms to 86400s, such as 10s, not '%s'.", text);
    return -1;
}

static int take_name(struct run_options *run, const char *text)
{
    uint64_t number;

    run->name = text;
    if (text[0] && strlen(text) < DV_MAX_SESSION_NAME && dv_text_parse_number(text, UINT64_MAX, &number) == -EINVAL)
        return 0;
    dv_cli_error("--name is a name of at most %d characters that is not a number.", DV_MAX_SESSION_NAME - 1);
    return -1;
}

/* `divvy run` in a program under `divvy run` uses the same devices, unless told otherwise. */
static int inherit_devices(struct run_options *run)
{
    const char *devices = getenv("DIVVY_DEVICES");
    return run->devices[0] || !devices || !devices[0] ? 0 : add_device(run, devices);
}

static int parse_options(int argc, char **argv, struct run_options *run)
{
    static const struct option options[] = {{"present-as", required_argument, NULL, 'p'},
                                            {"daemon", required_argument, NULL, 'd'},
                                            {"device", required_argument, NULL, 'D'},
                                            {"name", required_argument, NULL, 'n'},
                                            {"memory", required_argument, NULL, 'm'},
                                            {"deadline", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            DV_CLI_SHARE_OPTIONS,
                                            {NULL, 0, NULL, 0}};
    int option;

    opterr = 0;
    /* '+': arguments after PROGRAM are the program's */
    while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
        switch (option) {
        case 'p':
            run->present_as = optarg;
            break;
        case 'd':
            run->daemon_directory = optarg;
            break;
        case 'D':
            if (add_device(run, optarg) < 0)
                return DV_EXIT_OWN;
            break;
        case 'n':
        case 'm':
        case 't':
            if ((option == 'n'   ? take_name(run, optarg)
                 : option == 'm' ? take_memory(run, optarg)
                                 : take_deadline(run, optarg)) < 0)
                return DV_EXIT_OWN;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(dv_cli_check_output(DV_EXIT_OK) == DV_EXIT_OK ? DV_EXIT_OK : DV_EXIT_OWN);
        default: {
            int status = dv_cli_share_option(&run->share, option, optarg);
            if (status > 0)
                dv_cli_error("unknown option or missing value: %s. See `divvy run --help`.", argv[optind - 1]);
            if (status != 0)
                return DV_EXIT_OWN;
        }
        }
    }
    if (dv_cli_share_inherit(&run->share) < 0 || dv_cli_share_check(&run->share) < 0 || inherit_devices(run) < 0)
        return DV_EXIT_OWN;
    if (run->present_as && strcmp(run->present_as, "cpu") != 0 && strcmp(run->present_as, "gpu") != 0 &&
        strcmp(run->present_as, "accelerator") != 0) {
        dv_cli_error("--present-as is cpu, gpu or accelerator, not '%s'", run->present_as);
        return DV_EXIT_OWN;
    }
    if (optind == argc) {
        dv_cli_error("missing PROGRAM. Example: divvy run -- clinfo");
        return DV_EXIT_OWN;
    }
    return DV_EXIT_OK;
}

/* Neither installed nor in a build tree: a vendor directory of the user's own. */
static int make_vendors(char *directory, size_t bytes)
{
    static const char *const libraries[] = {"libdivvy-opencl.so", "../client/opencl/libdivvy-opencl.so", NULL};
    char library[PATH_MAX];
    char own[DV_RUNDIR_BYTES];
    char path[PATH_MAX];

    if (dv_daemon_find_file(libraries, DIVVY_LIB "/libdivvy-opencl.so.1", library, sizeof library) < 0)
        return -ENOENT;
    int status = dv_rundir_user(own, sizeof own);
    if (status == 0)
        status = dv_rundir_make(own, 0700);
    if (status < 0)
        return status;
    if ((size_t)snprintf(directory, bytes, "%s/tenant-vendors", own) >= bytes)
        return -ENAMETOOLONG;
    status = dv_rundir_make(directory, 0700);
    if (status < 0)
        return status;
    if ((size_t)snprintf(path, sizeof path, "%s/divvy.icd", directory) >= sizeof path)
        return -ENAMETOOLONG;
    /* A program started at the same moment must never read half a file. */
    char draft[PATH_MAX];
    if ((size_t)snprintf(draft, sizeof draft, "%s/.divvy.icd.%d", directory, (int)getpid()) >= sizeof draft)
        return -ENAMETOOLONG;
    DV_AUTO_CLOSE int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0 || dprintf(fd, "%s\n", library) < 0 || rename(draft, path) < 0)
        return -errno;
    return 0;
}

/* A directory in which divvy.icd is the only driver. */
static int find_vendors(char *directory, size_t bytes)
{
    static const char *const icds[] = {"../client/opencl/vendors/divvy.icd", NULL};

    if (dv_daemon_find_file(icds, DIVVY_DATA "/vendors/divvy.icd", directory, bytes) == 0) {
        *strrchr(directory, '/') = '\0';
        return 0;
    }
    return make_vendors(directory, bytes);
}

/* Without the option, programs keep the value of the environment. */
static void export_limit(const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    if (value)
        setenv(name, text, 1);
}

static int execute(char **command)
{
    execvp(command[0], command);
    int error = errno;
    dv_cli_error("cannot run '%s': %s", command[0], strerror(error));
    return error == ENOENT ? DV_EXIT_NOT_FOUND : DV_EXIT_NOT_EXECUTABLE;
}

int dv_cli_run(int argc, char **argv)
{
    struct run_options run = {0};
    char directory[DV_RUNDIR_BYTES];
    char absolute[PATH_MAX];
    char vendors[PATH_MAX];

    int code = parse_options(argc, argv, &run);
    if (code != DV_EXIT_OK)
        return code;
    int error = find_vendors(vendors, sizeof vendors);
    if (error < 0) {
        dv_cli_error("cannot find divvy's OpenCL driver (libdivvy-opencl.so): %s. Reinstall divvy; in "
                     "a build tree, build it first.",
                     strerror(-error));
        return DV_EXIT_OWN;
    }
    code = dv_daemon_find_or_start(run.daemon_directory, directory);
    if (code != DV_EXIT_OK)
        return code;
    const struct dv_cli_words words = {.all = argv, .program = optind};
    if (!dv_cli_admission_try(directory, &run.share, &run.limits, run.devices, &words))
        return DV_EXIT_OWN;

    /* The program may change its directory before its first OpenCL call. */
    setenv("DIVVY_DIR", realpath(directory, absolute) ? absolute : directory, 1);
    if (run.present_as)
        setenv("DIVVY_PRESENT_AS", run.present_as, 1);
    if (run.devices[0])
        setenv("DIVVY_DEVICES", run.devices, 1);
    else
        unsetenv("DIVVY_DEVICES"); /* it is empty, if it is set */
    if (run.name)
        setenv("DIVVY_NAME", run.name, 1);
    export_limit("DIVVY_MEMORY", run.limits.memory_bytes);
    export_limit("DIVVY_DEADLINE", run.limits.deadline_ns);
    dv_cli_share_export(&run.share);
    setenv("OCL_ICD_VENDORS", vendors, 1);
    /* These would make the vendors' drivers visible beside divvy's. */
    unsetenv("OPENCL_VENDOR_PATH");
    unsetenv("OCL_ICD_FILENAMES");
    return execute(argv + optind);
}
