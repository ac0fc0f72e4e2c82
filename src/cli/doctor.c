/* divvy doctor: looks for what keeps programs of the caller from the shared devices. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/cli/admission.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"
#include "src/cli/http.h"

static const char usage[] =
    "Usage: divvy doctor [--daemon DIR]\n"
    "\n"
    "Looks for what keeps your programs from the shared devices: the OpenCL loader, divvy's driver,\n"
    "the daemon, its devices, your admission. Prints a line for each, and for a fault what to do.\n"
    "Exit status: 0 if there is no fault, 1 if there is one.\n"
    "\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static unsigned faults;

static void report(const char *kind, const char *format, va_list args)
{
    printf("%-6s", kind);
    vprintf(format, args);
    putchar('\n');
}

__attribute__((format(printf, 1, 2))) static void good(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    report("ok", format, args);
    va_end(args);
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    report("note", format, args);
    va_end(args);
}

__attribute__((format(printf, 1, 2))) static void fault(const char *format, ...)
{
    va_list args;

    faults++;
    va_start(args, format);
    report("FAULT", format, args);
    va_end(args);
}

/* ---- this side ---- */

static void check_loader(void)
{
    void *loader = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (loader)
        good("the OpenCL loader (libOpenCL.so.1) is installed");
    else
        fault("the OpenCL loader is missing: install it (Debian: apt install ocl-icd-libopencl1)");
    if (loader)
        dlclose(loader);
}

static void check_driver(void)
{
    static const char *const beside[] = {"../client/opencl/vendors/divvy.icd", NULL};
    char path[4096];

    if (dv_daemon_find_file(beside, DIVVY_DATA "/vendors/divvy.icd", path, sizeof path) == 0)
        good("divvy's OpenCL driver is announced in %s", path);
    else
        note("divvy's driver is not installed; `divvy run` announces it in a directory of your own");
    if (access("/etc/OpenCL/vendors/divvy.icd", R_OK) == 0)
        good("/etc/OpenCL/vendors/divvy.icd is there: programs use divvy also without `divvy run`");
}

static void check_environment(void)
{
    static const char *const names[] = {"DIVVY_DIR",       "DIVVY_DEVICES",      "DIVVY_REQUEST",
                                        "DIVVY_LIMIT",     "DIVVY_WEIGHT",       "DIVVY_CLASS",
                                        "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]) && getenv(names[i])[0])
            note("the environment sets %s=%s", names[i], getenv(names[i]));
}

/* ---- the daemon ---- */

/* Returns whether a daemon serves this user. */
static bool check_daemon(const char *wanted, char directory[DV_RUNDIR_BYTES])
{
    int found = dv_daemon_find(wanted, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET, directory);

    fflush(stdout);
    if (found == -ENOENT && access("/etc/divvy/divvy.yaml", F_OK) != 0) {
        note("no divvyd runs; `divvy run` starts one of your own");
        return false;
    }
    if (found < 0) {
        fault("no divvyd serves you:");
        fflush(stdout);
        dv_daemon_explain(found, directory);
        return false;
    }
    if (dv_daemon_explain_left(directory)) {
        faults++;
        return false;
    }
    good("a divvyd listens in %s", directory);
    return true;
}

static void check_version(const json_t *version)
{
    const char *other = dv_http_text(version, "version", "?");

    if (strcmp(other, DIVVY_VERSION) == 0)
        good("divvyd and divvy have the same version, %s", other);
    else
        fault("divvyd has version %s and divvy %s: restart divvyd (systemctl restart divvyd)", other, DIVVY_VERSION);
}

static void check_devices(const json_t *answer)
{
    const json_t *devices = json_object_get(answer, "devices");
    size_t index;
    json_t *warning;

    if (json_array_size(devices) > 0)
        good("divvyd serves %zu device%s", json_array_size(devices), json_array_size(devices) == 1 ? "" : "s");
    else
        fault("divvyd has no device: %s", dv_http_text(answer, "note", "it gives no reason"));
    json_array_foreach(json_object_get(answer, "warnings"), index, warning)
    {
        note("%s", json_is_string(warning) ? json_string_value(warning) : "?");
    }
}

/* What only the control socket tells; users may not be allowed to ask. */
static void check_by_control(const char *directory)
{
    static const struct {
        const char *path;
        void (*check)(const json_t *answer);
    } questions[] = {{"/v1/version", check_version}, {"/v1/devices", check_devices}};
    char error[512];

    if (dv_daemon_find(directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, (char[DV_RUNDIR_BYTES]){""}) < 0) {
        note("divvyd answers questions of operators only (tenants-see-own in divvy.yaml)");
        return;
    }
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        DV_AUTO_FREE char *body = NULL;
        int status =
            dv_http_request(directory, "GET", questions[i].path, DV_HTTP_PATIENCE_S, &body, error, sizeof error);
        json_t *answer = status == 200 ? json_loads(body, 0, NULL) : NULL;
        if (answer)
            questions[i].check(answer);
        else if (status == 403)
            note("divvyd answers questions of operators only (tenants-see-own in divvy.yaml)");
        else
            fault("divvyd does not answer %s: %s", questions[i].path, status < 0 ? error : body);
        json_decref(answer);
        if (status == 403)
            return;
    }
}

static void check_admission(const char *directory)
{
    static const struct dv_cli_share usual;
    static const struct dv_cli_limits none;
    char reason[DV_MAX_MESSAGE_TEXT];

    switch (dv_cli_admission_ask(directory, &usual, &none, NULL, reason)) {
    case DV_ADMISSION_SERVED:
        good("your programs are served");
        break;
    case DV_ADMISSION_NO_DEVICE:
        fault("your programs would find no device now: %s", reason);
        break;
    case DV_ADMISSION_REFUSED:
        fault("your programs would be refused now: %s", reason);
        break;
    case DV_ADMISSION_UNKNOWN:
        fault("divvyd does not answer on its session socket within %d s; its log says more", DV_ADMISSION_TIMEOUT_S);
        break;
    }
}

int dv_cli_doctor(int argc, char **argv)
{
    struct dv_cli_view view;
    char directory[DV_RUNDIR_BYTES];
    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);

    if (code != DV_EXIT_OK)
        return code;
    check_loader();
    check_driver();
    check_environment();
    if (check_daemon(view.daemon_directory, directory)) {
        check_admission(directory); /* waits until the devices are known */
        check_by_control(directory);
    }
    printf("%u fault%s\n", faults, faults == 1 ? "" : "s");
    return faults ? DV_EXIT_FAILED : DV_EXIT_OK;
}
