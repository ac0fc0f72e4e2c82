/* Beginning a session (see hello.h). */
#include "src/hello/hello.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/base/rundir.h"

static int connect_to(const char *directory, int type)
{
    return dv_rundir_connect(directory, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET | type);
}

void dv_hello_find(const char *directory, struct dv_hello_places *places)
{
    const char *given = directory ? directory : secure_getenv("DIVVY_DIR");
    bool is_given = given && *given;

    /* what is cut off here is too long for a socket all the same */
    snprintf(places->first, sizeof places->first, "%s", is_given ? given : DV_RUNDIR_SYSTEM);
    places->has_second = !is_given && dv_rundir_user(places->second, sizeof places->second) == 0;
}

int dv_hello_connect_to(const struct dv_hello_places *places, int type)
{
    int fd = connect_to(places->first, type);

    if (fd >= 0 || !places->has_second)
        return fd;
    int second = connect_to(places->second, type);
    return second < 0 && second != -EPERM ? fd : second;
}

int dv_hello_connect(const char *directory, int type)
{
    struct dv_hello_places places;

    dv_hello_find(directory, &places);
    return dv_hello_connect_to(&places, type);
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
