/* Text from elsewhere, made fit to be shown, and sizes written for people (see text.h). */
#include "src/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Characters that are not seen and change how the text around them is shown: marks and controls of the writing
 * direction, and separators of lines. With them a name could look like another one. */
static bool is_format(uint32_t code)
{
    return code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* Numbers that are no characters and never will be. YAML, for one, refuses a text with U+FFFF. */
static bool is_noncharacter(uint32_t code)
{
    return (code >= 0xfdd0 && code <= 0xfdef) || (code & 0xfffe) == 0xfffe;
}

/* Length of the valid UTF-8 character at p, 0 when there is none or when it is a control. */
static size_t character_length(const unsigned char *p)
{
    uint32_t code;
    size_t length;

    if (p[0] < 0x80)
        return p[0] < 0x20 || p[0] == 0x7f ? 0 : 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        length = 2;
        code = p[0] & 0x1f;
    } else if ((p[0] & 0xf0) == 0xe0) {
        length = 3;
        code = p[0] & 0x0f;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        length = 4;
        code = p[0] & 0x07;
    } else {
        return 0;
    }
    for (size_t i = 1; i < length; i++) { /* the ending NUL is no continuation: never read past it */
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (length == 3 && (code < 0x800 || (code >= 0xd800 && code <= 0xdfff)))
        return 0;
    if (length == 4 && (code < 0x10000 || code > 0x10ffff))
        return 0;
    return code < 0xa0 || is_format(code) || is_noncharacter(code) ? 0 : length; /* U+0080..U+009F are controls too */
}

void dv_text_clean(char *text, size_t bytes)
{
    if (bytes == 0)
        return;
    text[bytes - 1] = '\0';
    for (unsigned char *p = (unsigned char *)text; *p;) {
        size_t length = character_length(p);
        if (length == 0)
            *p++ = '?';
        else
            p += length;
    }
}

void dv_text_copy(char *field, size_t bytes, const char *text)
{
    snprintf(field, bytes, "%s", text);
    dv_text_clean(field, bytes);
}

void dv_text_join(char *field, size_t bytes, const char *list, size_t list_bytes)
{
    size_t used = 0;

    for (; used < list_bytes && used + 1 < bytes && (list[used] || (used + 1 < list_bytes && list[used + 1])); used++)
        if (list[used])
            field[used] = list[used];
        else
            field[used] = ' ';
    while (used > 0 && field[used - 1] == ' ')
        used--;
    field[used] = '\0';
    dv_text_clean(field, bytes);
}

/* Without a unit, less than this is hardly meant. */
#define BARE_BYTES_MIN 4096

int dv_text_parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGTPE";
    char *rest;
    int shift = 0;

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    errno = 0;
    unsigned long long number = strtoull(text, &rest, 10);
    if (errno)
        return -ERANGE;
    while (*rest == ' ')
        rest++;
    if (!*rest && number && number < BARE_BYTES_MIN)
        return -EDOM;
    if (*rest) {
        const char *unit = strchr(units, toupper((unsigned char)*rest));
        if (unit) {
            shift = 10 * (int)(unit - units + 1);
            rest++;
            if (*rest && strcasecmp(rest, "iB") != 0 && strcasecmp(rest, "B") != 0)
                return -EINVAL;
        } else if (strcasecmp(rest, "B") != 0) {
            return -EINVAL;
        }
    }
    if (shift && number > UINT64_MAX >> shift)
        return -ERANGE;
    *bytes = (uint64_t)number << shift;
    return 0;
}

int dv_text_parse_number(const char *text, uint64_t most, uint64_t *number)
{
    *number = 0;
    if (!*text)
        return -EINVAL;
    for (const char *p = text; *p; p++)
        if (!isdigit((unsigned char)*p))
            return -EINVAL;
    errno = 0;
    *number = strtoull(text, NULL, 10);
    return errno || *number > most ? -ERANGE : 0;
}

int dv_text_parse_share(const char *text, uint32_t *ppm)
{
    uint64_t value = 0;
    int decimals = -1; /* none seen */

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    for (; isdigit((unsigned char)*text) || (*text == '.' && decimals < 0); text++) {
        if (*text == '.') {
            decimals = 0;
        } else if (decimals < 4) { /* finer than a part per million does not count */
            value = value * 10 + (uint64_t)(*text - '0');
            decimals += decimals >= 0;
            if (value > 1000000)
                return -EINVAL;
        }
    }
    for (int i = decimals > 0 ? decimals : 0; i < 4; i++)
        value *= 10;
    while (*text == ' ')
        text++;
    if (strcmp(text, "%") != 0 || value > 1000000)
        return -EINVAL;
    *ppm = (uint32_t)value;
    return 0;
}

int dv_text_parse_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = {{"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    char *rest;

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    errno = 0;
    unsigned long long number = strtoull(text, &rest, 10);
    while (*rest == ' ')
        rest++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(rest, units[i].unit) != 0)
            continue;
        if (errno || number > UINT64_MAX / units[i].ns)
            return -EINVAL;
        *ns = number * units[i].ns;
        return 0;
    }
    return -EINVAL;
}

void dv_text_format_size(char *field, size_t bytes, uint64_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)size;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        snprintf(field, bytes, "%llu B", (unsigned long long)size);
    else
        snprintf(field, bytes, value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}
