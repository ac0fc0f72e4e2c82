/* Reading and writing values for people (see values.h). */
#include "src/cli/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/policy/policy.h"

#define PPM_PER_PERCENT (DV_PPM / 100)

void dv_value_format_share(char *field, size_t bytes, int64_t ppm)
{
    char text[32];

    snprintf(text, sizeof text, "%lld.%04lld", (long long)(ppm / PPM_PER_PERCENT), (long long)(ppm % PPM_PER_PERCENT));
    size_t length = strlen(text);
    while (text[length - 1] == '0')
        text[--length] = '\0';
    if (text[length - 1] == '.')
        text[--length] = '\0';
    snprintf(field, bytes, "%s%%", text);
}

void dv_value_format_measured(char *field, size_t bytes, const json_t *ppm)
{
    double percent = json_number_value(ppm) * 100 / DV_PPM;

    if (json_is_number(ppm))
        snprintf(field, bytes, "%.1f%%", percent);
    else
        snprintf(field, bytes, "-");
}

void dv_value_format_brief(char *field, size_t bytes, double seconds)
{
    if (seconds < 0.001)
        snprintf(field, bytes, "%.0fus", seconds < 0 ? 0 : seconds * 1e6);
    else if (seconds < 0.9995)
        snprintf(field, bytes, "%.0fms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(field, bytes, "%.1fs", seconds);
    else
        dv_value_format_age(field, bytes, seconds);
}

void dv_value_format_duration(char *field, size_t bytes, double seconds)
{
    if (seconds < 0.001)
        snprintf(field, bytes, "%.0f us", seconds < 0 ? 0 : seconds * 1e6);
    else if (seconds < 1)
        snprintf(field, bytes, "%.1f ms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(field, bytes, "%.1f s", seconds);
    else
        dv_value_format_age(field, bytes, seconds);
}

void dv_value_format_age(char *field, size_t bytes, double seconds)
{
    unsigned long s = seconds < 0 ? 0 : (unsigned long)seconds;

    if (s < 60)
        snprintf(field, bytes, "%lus", s);
    else if (s < 3600)
        snprintf(field, bytes, "%lum%02lus", s / 60, s % 60);
    else if (s < 86400)
        snprintf(field, bytes, "%luh%02lum", s / 3600, s / 60 % 60);
    else
        snprintf(field, bytes, "%lud%02luh", s / 86400, s / 3600 % 24);
}

void dv_value_format_part(char *field, size_t bytes, uint64_t part, uint64_t whole)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double unit = 1;
    size_t i = 0;

    while (i + 1 < sizeof units / sizeof units[0] && (double)whole / unit >= 1024) {
        unit *= 1024;
        i++;
    }
    snprintf(field, bytes, i ? "%.1f/%.1f %s" : "%.0f/%.0f %s", (double)part / unit, (double)whole / unit, units[i]);
}

void dv_value_format_clock(char *field, size_t bytes, const char *iso)
{
    struct tm utc = {0}, local, today;
    time_t now = time(NULL);

    if (!strptime(iso, "%Y-%m-%dT%H:%M:%SZ", &utc)) {
        snprintf(field, bytes, "%s", iso);
        return;
    }
    time_t when = timegm(&utc);
    if (!localtime_r(&when, &local) || !localtime_r(&now, &today))
        return;
    bool is_today = local.tm_year == today.tm_year && local.tm_yday == today.tm_yday;
    strftime(field, bytes, is_today ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &local);
}

int dv_value_parse_seconds(const char *text, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"m", 60}, {"h", 3600}};
    char *end;
    double number = strtod(text, &end);

    while (*end == ' ')
        end++;
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].unit) == 0) {
            *seconds = number * units[i].seconds;
            return *seconds > 0 && *seconds <= 86400 ? 0 : -1;
        }
    return -1;
}
