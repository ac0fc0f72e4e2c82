/* Reading and writing values for people (see values.h). */
#include "src/cli/values.h"

#include <stdio.h>
#include <string.h>

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
