/* The configuration: any bytes are either refused with a message or understood. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/arbiter/config/config.h"
#include "src/base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    char path[64], error[1024] = "";
    struct dvd_config config;

    dv_log_set_level(DV_LOG_ERROR);
    if (fd < 0)
        fd = memfd_create("config", 0);
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (dvd_config_load(&config, path, true, error, sizeof error) == 0)
        dvd_config_fini(&config);
    else
        assert(error[0] && memchr(error, '\0', sizeof error));
    return 0;
}
