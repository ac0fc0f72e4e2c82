/* Beginning a session (see hello.h). */
#include "src/hello/hello.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/base/rundir.h"

static int connect_to(const char *directory, int type)
{
    return dv_rundir_connect(directory, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET | type);
}

int dv_hello_connect(const char *directory, int type)
{
    char own[DV_RUNDIR_BYTES];
    const char *given = directory ? directory : secure_getenv("DIVVY_DIR");

    if (given && *given)
        return connect_to(given, type);
    int fd = connect_to(DV_RUNDIR_SYSTEM, type);
    if (fd >= 0 || dv_rundir_user(own, sizeof own) < 0)
        return fd;
    int own_fd = connect_to(own, type);
    return own_fd < 0 && own_fd != -EPERM ? fd : own_fd;
}

/* A number that `divvy run` has put into the environment; false when there is none. */
static bool number_from(const char *variable, uint32_t most, uint32_t *number)
{
    const char *text = secure_getenv(variable);
    char *end;

    if (!text || *text < '0' || *text > '9')
        return false;
    unsigned long value = strtoul(text, &end, 10);
    *number = (uint32_t)value;
    return *end == '\0' && value <= most;
}

static void wish_for_share(struct dv_hello *hello)
{
    static const char *const classes[] = {"latency", "standard", "batch", "idle"};
    const char *class = secure_getenv("DIVVY_CLASS");

    uint32_t number;
    if (number_from("DIVVY_REQUEST", DV_SHARE_WHOLE, &number))
        hello->request = number + 1;
    if (number_from("DIVVY_LIMIT", DV_SHARE_WHOLE, &number))
        hello->limit = number + 1;
    if (number_from("DIVVY_WEIGHT", UINT16_MAX, &number))
        hello->weight = (uint16_t)number;
    for (uint16_t i = 0; class && i < 4; i++)
        if (strcmp(class, classes[i]) == 0)
            hello->class = i + 1;
}

size_t dv_hello_wish(struct dv_hello *hello)
{
    const char *memory = secure_getenv("DIVVY_MEMORY"), *deadline = secure_getenv("DIVVY_DEADLINE");

    wish_for_share(hello);
    hello->memory_bytes = memory ? strtoull(memory, NULL, 10) : 0;
    hello->deadline_ns = deadline ? strtoull(deadline, NULL, 10) : 0;
    return hello->memory_bytes || hello->deadline_ns ? sizeof *hello : DV_HELLO_BYTES_2;
}
