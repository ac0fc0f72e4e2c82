/* The machine's devices: the result of the probe, and the configuration applied to it. */
#ifndef DVD_WORKERS_DEVICES_H
#define DVD_WORKERS_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "src/arbiter/config/config.h"
#include "src/wire/session/handshake.h"

struct dvd_devices {
    bool known;         /* a probe has answered */
    uint64_t probed_us; /* when it did */
    uint32_t count;
    uint32_t found; /* including those for which there was no room */
    bool had_some;  /* at any time: if there is none now, they may come back */
    struct dv_device_report reports[DV_MAX_DEVICES];
    uint8_t groups[DV_MAX_DEVICES]; /* the first device that each is like */
    char text[DV_MAX_MESSAGE_TEXT]; /* why there is none, when count is 0 */
};

/* Takes over a probe's answer; false when it makes no sense. */
bool dvd_devices_take(struct dvd_devices *devices, const struct dv_zygote_answer *answer, uint64_t now_us);

/* Finds out which reported devices are alike. */
void dvd_devices_group(struct dvd_devices *devices);

/* The rule that decides for a device, or NULL: the defaults. */
const struct dvd_device_rule *dvd_devices_rule(const struct dvd_devices *devices, uint32_t index,
                                               const struct dvd_config *config);
/* Each device's terms for the ledger, from the vendor and the configuration. */
void dvd_devices_terms(const struct dvd_devices *devices, const struct dvd_config *config,
                       struct dvd_device_terms terms[DV_MAX_DEVICES]);
/* enum dvd_policy_choice of a device, by its rule or by default. */
int dvd_devices_policy(const struct dvd_devices *devices, uint32_t index, const struct dvd_config *config);

/* Fills the indices of the devices that a session may use: those that it names, with commas between them,
 * as far as they are offered; NULL: all. Returns their number; 0: there is none, with the reason. */
uint32_t dvd_devices_choose(const struct dvd_devices *devices, const struct dvd_config *config, const char *choice,
                            struct dvd_device_id ids[DV_MAX_DEVICES], char *text, size_t bytes);
/* Fills exactly those devices that are named by their numbers, in that order. Returns how many they are; 0:
 * one of them is not there, or is named twice. */
uint32_t dvd_devices_choose_same(const struct dvd_devices *devices, const struct dvd_config *config,
                                 const char *numbers, struct dvd_device_id ids[DV_MAX_DEVICES], char *text,
                                 size_t bytes);
/* The description of a device for a session's worker. */
struct dv_device_grant dvd_devices_grant(const struct dvd_devices *devices, uint32_t index,
                                         const struct dvd_config *config, uint32_t present_as);

const char *dvd_devices_type_word(uint64_t type);
const char *dvd_present_as_word(uint32_t present_as);

#endif
