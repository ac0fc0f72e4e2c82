/* Asking the daemon beforehand whether a program may have the share and the devices that it will ask
 * for. */
#ifndef DV_CLI_ADMISSION_H
#define DV_CLI_ADMISSION_H

#include <stdbool.h>

#include "src/cli/share.h"

/* Returns false after a message when the daemon would refuse the program for its share or its devices
 * (NULL: all). Returns true also when the daemon does not answer: the program itself will find out. */
bool dv_cli_admission_try(const char *directory, const struct dv_cli_share *share, const char *devices);

#endif
