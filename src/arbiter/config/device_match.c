/* Names of devices (see device_match.h). */
#include "src/arbiter/config/device_match.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/text.h"

#define UUID_LENGTH 36
#define NUMBER_LENGTH_MOST 5

static bool is_number(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= NUMBER_LENGTH_MOST && text[digits] == '\0';
}

/* 8-4-4-4-12 digits, after "GPU-" as some tools write them. */
static const char *find_uuid(const char *text)
{
    if (strncasecmp(text, "GPU-", 4) == 0)
        text += 4;
    for (int i = 0; i < UUID_LENGTH; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return NULL;
    }
    return text[UUID_LENGTH] == '\0' ? text : NULL;
}

/* [DOMAIN:]BUS:DEVICE.FUNCTION in hexadecimal digits, as lspci(8) shows them. */
static bool read_pci(const char *text, char *address, size_t bytes)
{
    unsigned domain = 0, bus, device, function;
    int end = -1;

    if (text[strspn(text, "0123456789abcdefABCDEF:.")] != '\0')
        return false;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 || end < 0 || text[end]) {
        domain = 0;
        end = -1;
        if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3 || end < 0 || text[end])
            return false;
    }
    snprintf(address, bytes, DV_PCI_FORMAT, domain, bus, device, function);
    return true;
}

struct dvd_device_match dvd_device_match_parse(const char *text)
{
    struct dvd_device_match match = {.kind = DV_MATCH_NAME};
    const char *uuid = find_uuid(text);

    if (is_number(text)) {
        match.kind = DV_MATCH_NUMBER;
        match.number = (uint32_t)strtoul(text, NULL, 10);
    } else if (uuid) {
        match.kind = DV_MATCH_UUID;
        dv_text_copy(match.text, sizeof match.text, uuid);
    } else if (read_pci(text, match.text, sizeof match.text)) {
        match.kind = DV_MATCH_PCI;
    } else {
        dv_text_copy(match.text, sizeof match.text, text);
    }
    return match;
}

bool dvd_device_match_is(const struct dvd_device_match *match, uint32_t number, const struct dv_device_report *report,
                         const char *name)
{
    switch (match->kind) {
    case DV_MATCH_NUMBER:
        return number == match->number;
    case DV_MATCH_UUID:
        return strcasecmp(report->uuid, match->text) == 0;
    case DV_MATCH_PCI:
        return strcmp(report->pci, match->text) == 0;
    default:
        return fnmatch(match->text, report->name, 0) == 0 || (name && fnmatch(match->text, name, 0) == 0);
    }
}
