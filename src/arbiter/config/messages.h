/* Error messages about divvy.yaml. */
#ifndef DVD_CONFIG_MESSAGES_H
#define DVD_CONFIG_MESSAGES_H

#include <stddef.h>

#include "src/base/yaml_complaint.h"

/* Where in the file a wrong value is, and where the message goes. */
struct dvd_position {
    const char *path, *data;
    int line; /* from here on */
    char *error;
    size_t error_bytes;
};

/* The values that a key takes, in words; NULL: it has no description. */
const char *dvd_config_hint(const char *key);
/* Writes that a key has a wrong value. Returns -EINVAL. */
int dvd_config_wrong(const struct dvd_position *position, const char *key, const char *value);
/* Writes a message for an error that libcyaml has found. */
void dvd_config_explain(struct dv_yaml_complaint *complaint, const char *path, const char *data, char *error,
                        size_t error_bytes);

#endif
