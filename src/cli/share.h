/* The options that ask for a share, the same for `divvy set` and `divvy run`. */
#ifndef DV_CLI_SHARE_H
#define DV_CLI_SHARE_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

/* A value that is asked for, and the name of its source ("--request") for messages; NULL: not given. */
struct dv_cli_amount {
    const char *from;
    uint32_t value;
};

struct dv_cli_share {
    struct dv_cli_amount request, limit; /* parts per million */
    struct dv_cli_amount weight;
    const char *class; /* NULL: not given */
};

/* For the long options of a command; the letters are not offered as short ones. */
/* clang-format off */
#define DV_CLI_SHARE_OPTIONS                     \
    {"request", required_argument, NULL, 'r'},   \
    {"limit", required_argument, NULL, 'l'},     \
    {"weight", required_argument, NULL, 'w'},    \
    {"class", required_argument, NULL, 'P'}
/* clang-format on */

#define DV_CLI_SHARE_HELP                                                                                              \
    "  --request P%      the guaranteed share of the device's time, such as 30%\n"                                     \
    "  --limit P%        the maximum share, even when no other tenant wants the device\n"                              \
    "  --weight N        its part of the time not guaranteed: 1 (as others) to 10000\n"                                \
    "  --class CLASS     latency, standard or batch: which runs first within the shares;\n"                            \
    "                    idle: only what others leave over\n"

/* Takes one of these options. Returns 1 when it was none of them, 0 when it was good, or -1 after a
 * message. */
int dv_cli_share_option(struct dv_cli_share *share, int option, const char *text);

/* Takes values that are not given from the environment, as `divvy run` passes them on. Returns 0, or
 * -1 after a message. */
int dv_cli_share_inherit(struct dv_cli_share *share);

/* Checks that the values are consistent. Returns 0, or -1 after a message. */
int dv_cli_share_check(const struct dv_cli_share *share);

bool dv_cli_share_is_empty(const struct dv_cli_share *share);

/* Sets the environment variables of given values, for the client library, and unsets the others. */
void dv_cli_share_export(const struct dv_cli_share *share);

#endif
