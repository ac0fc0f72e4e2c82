/* Asking the daemon beforehand whether it will serve a program, with the share and the devices that the
 * program will ask for. */
#ifndef DV_CLI_ADMISSION_H
#define DV_CLI_ADMISSION_H

#include <stdbool.h>

#include "src/cli/share.h"
#include "src/cli/suggest.h"
#include "src/wire/session/handshake.h"

#define DV_ADMISSION_TIMEOUT_S 30 /* a daemon that has just started may still be looking for devices */
#define DV_ADMISSION_PATIENCE_MS 3000

/* Limits that the program is to have; 0: none. */
struct dv_cli_limits {
    uint64_t memory_bytes, deadline_ns;
};

enum dv_admission {
    DV_ADMISSION_SERVED,    /* the text, if any, says what is ignored */
    DV_ADMISSION_NO_DEVICE, /* it would be admitted, and find no device */
    DV_ADMISSION_REFUSED,
    DV_ADMISSION_UNKNOWN, /* the daemon does not answer */
};

/* Whether a program with this share and these devices (NULL: all) would be served now, with the daemon's text. */
enum dv_admission dv_cli_admission_ask(const char *directory, const struct dv_cli_share *share,
                                       const struct dv_cli_limits *limits, const char *devices,
                                       char text[DV_MAX_MESSAGE_TEXT]);
/* The same for a program that is about to start. Returns false after a message when the daemon would refuse it. If it
 * would find no device, says so and returns true: it may do without. */
bool dv_cli_admission_try(const char *directory, const struct dv_cli_share *share, const struct dv_cli_limits *limits,
                          const char *devices, const struct dv_cli_words *words);

#endif
