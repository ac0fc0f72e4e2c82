/* How busy devices are (see load.h). */
#include "src/cli/load.h"

#include <stdio.h>
#include <string.h>

#include "src/base/text.h"
#include "src/cli/http.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

/* Room for the name of a device, if the terminal's width does not say. */
#define NAME_COLUMNS 40
#define NAME_COLUMNS_MIN 8

static double number_of(const json_t *device, const char *key)
{
    return json_number_value(json_object_get(device, key));
}

static void format_sessions(char *field, size_t bytes, const json_t *device)
{
    double sessions = number_of(device, "sessions"), waiting = number_of(device, "waiting");
    size_t used = (size_t)snprintf(field, bytes, "%.0f session%s", sessions, sessions == 1 ? "" : "s");

    if (waiting > 0 && used < bytes)
        snprintf(field + used, bytes - used, ", %.0f wait%s", waiting, waiting == 1 ? "s" : "");
}

static void print_device(const json_t *device)
{
    const json_t *busy = json_object_get(device, "busy_1s_ppm");
    char name[256], memory[64], sessions[64], number[32], load[192];
    size_t width = dv_screen_width(), room = NAME_COLUMNS;

    snprintf(name, sizeof name, "%s", dv_http_text(device, "name", "?"));
    dv_screen_make_plain(name);
    dv_value_format_part(memory, sizeof memory, (uint64_t)number_of(device, "memory_used_bytes"),
                         (uint64_t)number_of(device, "memory_bytes"));
    format_sessions(sessions, sizeof sessions, device);
    snprintf(number, sizeof number, "device %.0f  ", number_of(device, "index"));
    if (json_is_number(busy))
        snprintf(load, sizeof load, "  busy %.0f%%  memory %s  %s", json_number_value(busy) / 1e4, memory, sessions);
    else
        snprintf(load, sizeof load, "  memory %s  %s", memory, sessions);
    if (width) {
        size_t others = strlen(number) + strlen(load);
        room = width > others + NAME_COLUMNS_MIN ? width - others : NAME_COLUMNS_MIN;
    }
    printf("%s%.*s%s\n", number, (int)dv_text_fit(name, room), name, load);
}

void dv_load_print(const json_t *devices)
{
    size_t index;
    json_t *device;

    json_array_foreach(devices, index, device)
    {
        if (!json_is_true(json_object_get(device, "hidden")))
            print_device(device);
    }
}

void dv_load_print_none(const json_t *document, const char *only_others)
{
    const json_t *devices = json_object_get(document, "devices");
    double sessions = 0;
    size_t index;
    json_t *device;

    json_array_foreach(devices, index, device) sessions += number_of(device, "sessions");
    if (json_array_size(devices) == 0)
        printf("no devices: %s\n", dv_http_text(document, "note", "the daemon gives no reason"));
    else if (sessions > 0)
        puts(only_others);
    else
        puts("no program uses the shared devices now");
}
