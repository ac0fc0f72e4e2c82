/* The private vendor directory: the only place where workers look for OpenCL drivers, so that
 * divvy's own driver never loads itself and tenants' settings never reach a worker. */
#ifndef DVD_WORKERS_ICD_DIRECTORY_H
#define DVD_WORKERS_ICD_DIRECTORY_H

#include <stddef.h>

#include "src/arbiter/config/config.h"

/* Where every OpenCL program of the machine looks for drivers. */
#define DV_VENDORS_PUBLIC "/etc/OpenCL/vendors"

/* Fills the directory with copies of the .icd files: those the configuration lists, else those of
 * $DIVVY_VENDORS, else those of DV_VENDORS_PUBLIC; never divvy's own. Other files that were there are removed.
 * Returns their number or a negative errno with the reason. */
int dvd_vendors_prepare(const char *directory, const struct dvd_config *config, char *error, size_t error_bytes);

/* Writes the paths of drivers that are outside of the usual places for libraries, each with its NUL.
 * Returns how many bytes they take. */
size_t dvd_vendors_list_libraries(const char *directory, char *list, size_t bytes);

/* Removes the directory and its files. */
void dvd_vendors_remove(const char *directory);

/* Lists, separated by ", ", the files in DV_VENDORS_PUBLIC that name a driver which the private
 * directory names too: with those every program can reach the device without divvy. */
void dvd_vendors_list_exposed(const char *directory, char *list, size_t bytes);

#endif
