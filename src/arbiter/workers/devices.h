/* The machine's devices: the result of the probe, the lease-only devices of the configuration, and the configuration
 * applied to both. A device keeps its number as long as divvyd runs, because sessions know it by that. */
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
    uint32_t vendor_count; /* of them, those that the vendors have now */
    uint32_t found;        /* by the vendors, including those for which there was no room */
    bool had_some;         /* of the vendors' at any time: if there is none now, they may come back */
    struct dv_device_report reports[DV_MAX_DEVICES];
    uint8_t groups[DV_MAX_DEVICES]; /* the first device that each is like */
    char text[DV_MAX_MESSAGE_TEXT]; /* why there is none, when vendor_count is 0 */
};

/* Takes over a probe's answer; false when it makes no sense. */
bool dvd_devices_take(struct dvd_devices *devices, const struct dv_zygote_answer *answer, uint64_t now_us);

/* After the probe, and after a reload: adds the configuration's lease-only devices. One that is no longer configured is
 * offered to no session. */
void dvd_devices_add_lease_only(struct dvd_devices *devices, const struct dvd_config *config);

/* Takes over the reports of an earlier daemon, `count` of them. */
void dvd_devices_restored(struct dvd_devices *devices, uint64_t now_us);

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
/* Fills the lease-only device of this name. Returns 1, or 0 with the reason. */
uint32_t dvd_devices_choose_lease_only(const struct dvd_devices *devices, const struct dvd_config *config,
                                       const char *name, struct dvd_device_id ids[DV_MAX_DEVICES], char *text,
                                       size_t bytes);
/* The description of a device for a session's worker. */
struct dv_device_grant dvd_devices_grant(const struct dvd_devices *devices, uint32_t index,
                                         const struct dvd_config *config, uint32_t present_as);

const char *dvd_devices_type_word(const struct dv_device_report *report);
const char *dvd_present_as_word(uint32_t present_as);

#endif
