/* Processes that keep an idle daemon from ending. A program started by `divvy run` may compute for a long time before
 * its first OpenCL call: the daemon that was started for it must not have ended by then. */
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/control/private.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/peers.h"

struct dvd_hold {
    struct dvd_control *control;
    int pidfd;
    sd_event_source *io;
    struct dvd_hold *prev, *next;
};

static void drop(struct dvd_hold *hold)
{
    struct dvd_control *control = hold->control;

    DL_DELETE(control->holds, hold);
    control->hold_count--;
    hold->io = sd_event_source_disable_unref(hold->io);
    close(hold->pidfd);
    free(hold);
    dvd_idle_release(control->idle);
}

static int on_holder_gone(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    (void)events;
    drop(userdata);
    return 0;
}

static int open_peer_process(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return -1;
    return dvd_peer_open_process(fd, peer.pid, peer.uid);
}

struct dvd_reply dvd_serve_hold(struct dvd_control *control, const struct dvd_request *request)
{
    static const struct dvd_reply no_memory;

    if (control->idle->after_s == 0)
        return (struct dvd_reply){.status = MHD_HTTP_OK, .body = strdup("{\"held\":false}\n")};
    if (control->hold_count >= DV_MAX_HOLDS)
        return dvd_view_error(MHD_HTTP_SERVICE_UNAVAILABLE, "too many holds");
    struct dvd_hold *hold = calloc(1, sizeof *hold);
    if (!hold)
        return no_memory;
    hold->control = control;
    hold->pidfd = open_peer_process(request->fd);
    if (hold->pidfd < 0) {
        free(hold);
        return dvd_view_error(MHD_HTTP_INTERNAL_SERVER_ERROR, "the calling process cannot be identified");
    }
    DL_APPEND(control->holds, hold);
    control->hold_count++;
    dvd_idle_hold(control->idle);
    if (sd_event_add_io(control->event, &hold->io, hold->pidfd, EPOLLIN, on_holder_gone, hold) < 0) {
        drop(hold);
        return no_memory;
    }
    return (struct dvd_reply){.status = MHD_HTTP_OK, .body = strdup("{\"held\":true}\n")};
}

void dvd_holds_fini(struct dvd_control *control)
{
    struct dvd_hold *hold, *next;

    DL_FOREACH_SAFE (control->holds, hold, next)
        drop(hold);
}
