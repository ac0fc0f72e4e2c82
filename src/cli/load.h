/* How busy devices are, in a line for each. */
#ifndef DV_CLI_LOAD_H
#define DV_CLI_LOAD_H

#include <jansson.h>

/* One line a device: name, busy part of the last second, memory, sessions. */
void dv_load_print(const json_t *devices);
/* Says why nothing is listed, from the answer to /v1/devices: there are no devices, no program uses them, or only
 * programs of others do. For the last, the caller gives the words. */
void dv_load_print_none(const json_t *document, const char *only_others);

#endif
