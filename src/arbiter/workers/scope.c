/* Asking systemd for a scope (see scope.h). */
#include "src/arbiter/workers/scope.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/base/log.h"

#define MANAGER "org.freedesktop.systemd1"
#define MANAGER_PATH "/org/freedesktop/systemd1"
#define MANAGER_INTERFACE MANAGER ".Manager"

/* Properties of the scope. Before version 253 systemd did not know OOMPolicy of a scope, and ended no scope
 * when the kernel had killed a process in it for lack of memory. */
static int append_properties(sd_bus_message *m, pid_t member, bool oom_policy)
{
    int error = sd_bus_message_open_container(m, 'a', "(sv)");

    if (error >= 0)
        error = sd_bus_message_append(m, "(sv)", "Description", "s", "workers of divvyd");
    if (error >= 0)
        error = sd_bus_message_append(m, "(sv)", "Delegate", "b", 1);
    if (error >= 0)
        error = sd_bus_message_append(m, "(sv)", "TasksMax", "t", UINT64_MAX);
    if (error >= 0)
        error = sd_bus_message_append(m, "(sv)", "PIDs", "au", 1, (uint32_t)member);
    if (error >= 0 && oom_policy)
        error = sd_bus_message_append(m, "(sv)", "OOMPolicy", "s", "continue");
    return error < 0 ? error : sd_bus_message_close_container(m);
}

static int start_scope(sd_bus *bus, const char *unit, pid_t member, bool oom_policy, sd_bus_error *words)
{
    sd_bus_message *m = NULL;

    int error = sd_bus_message_new_method_call(bus, &m, MANAGER, MANAGER_PATH, MANAGER_INTERFACE, "StartTransientUnit");
    if (error >= 0)
        error = sd_bus_message_append(m, "ss", unit, "fail");
    if (error >= 0)
        error = append_properties(m, member, oom_policy);
    if (error >= 0)
        error = sd_bus_message_append(m, "a(sa(sv))", 0);
    if (error >= 0)
        error = sd_bus_call(bus, m, DV_SCOPE_TIMEOUT_US, words, NULL);
    sd_bus_message_unref(m);
    return error;
}

/* Its cgroup, once it has one. The name is empty until the unit has started. */
static int find_cgroup(sd_bus *bus, const char *unit, char *path, size_t bytes)
{
    sd_bus_message *answer = NULL;
    const char *object;
    char *group = NULL;

    int error = sd_bus_call_method(bus, MANAGER, MANAGER_PATH, MANAGER_INTERFACE, "GetUnit", NULL, &answer, "s", unit);
    if (error >= 0)
        error = sd_bus_message_read(answer, "o", &object);
    if (error >= 0)
        error = sd_bus_get_property_string(bus, MANAGER, object, MANAGER ".Scope", "ControlGroup", NULL, &group);
    if (error >= 0)
        error = !*group ? -EAGAIN : (size_t)snprintf(path, bytes, "%s", group) < bytes ? 0 : -ENAMETOOLONG;
    free(group);
    sd_bus_message_unref(answer);
    return error;
}

static int start_or_find(sd_bus *bus, const char *unit, pid_t member, char *path, size_t bytes)
{
    enum { TRIES = 50, PAUSE_US = 20000 };
    sd_bus_error words = SD_BUS_ERROR_NULL;

    int error = find_cgroup(bus, unit, path, bytes);
    if (error >= 0)
        return error;
    error = start_scope(bus, unit, member, true, &words);
    if (error < 0) {
        sd_bus_error_free(&words);
        error = start_scope(bus, unit, member, false, &words);
    }
    if (error < 0)
        dv_warning("systemd did not make %s: %s", unit, words.message ? words.message : strerror(-error));
    sd_bus_error_free(&words);
    if (error < 0)
        return error;
    for (int i = 0; i < TRIES && (error = find_cgroup(bus, unit, path, bytes)) < 0; i++)
        usleep(PAUSE_US); /* the job is queued, and done soon */
    return error;
}

int dvd_scope_open(const char *name, pid_t member, char *path, size_t bytes)
{
    char unit[256];
    sd_bus *bus = NULL;

    if (sd_booted() <= 0)
        return -ENOENT;
    snprintf(unit, sizeof unit, "%s.scope", name);
    int error = sd_bus_open_system(&bus);
    if (error >= 0)
        error = sd_bus_set_method_call_timeout(bus, DV_SCOPE_TIMEOUT_US);
    if (error >= 0)
        error = start_or_find(bus, unit, member, path, bytes);
    sd_bus_flush_close_unref(bus);
    return error;
}
