/* Clean-up attributes: a local resource is released on every way out of its scope. */
#ifndef DV_BASE_CLEANUP_H
#define DV_BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void dv_cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void dv_cleanup_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define DV_AUTO_FREE __attribute__((cleanup(dv_cleanup_free)))
#define DV_AUTO_CLOSE __attribute__((cleanup(dv_cleanup_close)))

/* Closes a descriptor, if there is one, and forgets it. */
static inline void dv_close_fd(int *fd)
{
    dv_cleanup_close(fd);
    *fd = -1;
}

/* Hand a descriptor or pointer over to a new owner. */
static inline int dv_take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#endif
