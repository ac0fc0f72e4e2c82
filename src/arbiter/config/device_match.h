/* Names of devices: a number, a UUID, an address on the PCI bus, or a pattern for the device's name. */
#ifndef DVD_CONFIG_DEVICE_MATCH_H
#define DVD_CONFIG_DEVICE_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "src/wire/session/handshake.h"

enum dvd_device_match_kind {
    DV_MATCH_NAME,
    DV_MATCH_NUMBER, /* as `divvy devices` shows it */
    DV_MATCH_UUID,
    DV_MATCH_PCI,
};

struct dvd_device_match {
    enum dvd_device_match_kind kind;
    uint32_t number;
    char text[DV_MAX_DEVICE_NAME]; /* as a report has it; a pattern for names */
};

/* Any text of less than DV_MAX_DEVICE_NAME bytes is valid; longer ones are cut. */
struct dvd_device_match dvd_device_match_parse(const char *text);
/* name: another name of the device, or NULL. */
bool dvd_device_match_is(const struct dvd_device_match *match, uint32_t number, const struct dv_device_report *report,
                         const char *name);

#endif
