/* Values of divvy.yaml that its schema cannot express. */
#ifndef DVD_CONFIG_CHECK_H
#define DVD_CONFIG_CHECK_H

#include "src/arbiter/config/config.h"
#include "src/arbiter/config/messages.h"

/* Checks config->file, and fills in what its texts mean. Returns 0, or -EINVAL with a message. */
int dvd_config_check(struct dvd_config *config, const struct dvd_position *position);

#endif
