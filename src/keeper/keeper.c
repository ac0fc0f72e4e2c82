/* The keeper's loop (see keeper.h). It never uses the descriptors that it keeps. */
#include "src/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/wire/restart/keeper.h"

/* Until the daemon has said how long it may be away. */
#define PATIENCE_NS (60 * DV_NS_PER_S)
#define LOOK_MS 200

struct item {
    uint64_t id;
    uint32_t kinds;
    int fds[DV_KEPT_KINDS]; /* as many as kinds has bits */
    UT_hash_handle hh;
};

struct keeper {
    int listen_fd;
    int daemon_fd; /* -1: there is none */
    uint64_t alone_since, patience_ns;
    struct item *items;
};

static int count_kinds(uint32_t kinds)
{
    return __builtin_popcount(kinds);
}

static void close_all(struct item *item)
{
    for (int i = 0; i < count_kinds(item->kinds); i++)
        close(item->fds[i]);
    item->kinds = 0;
}

static void drop(struct keeper *keeper, uint64_t id)
{
    struct item *item;

    HASH_FIND(hh, keeper->items, &id, sizeof id, item);
    if (!item)
        return;
    HASH_DEL(keeper->items, item);
    close_all(item);
    free(item);
}

/* Takes the descriptors over; closes those that it cannot keep. */
static void put(struct keeper *keeper, const struct dv_keeper_message *m, const int *fds, int count)
{
    struct item *item;

    HASH_FIND(hh, keeper->items, &m->id, sizeof m->id, item);
    if (item)
        close_all(item);
    else if ((item = calloc(1, sizeof *item))) {
        item->id = m->id;
        HASH_ADD(hh, keeper->items, id, sizeof item->id, item);
    }
    for (int i = 0; i < count; i++) {
        if (item)
            item->fds[i] = fds[i];
        else
            close(fds[i]);
    }
    if (item)
        item->kinds = m->kinds;
    if (m->id == DV_KEEPER_DAEMON)
        keeper->patience_ns = m->patience_s * DV_NS_PER_S;
}

static int say(struct keeper *keeper, enum dv_keeper_op op, const struct item *item)
{
    struct dv_keeper_message m = {.magic = DV_KEEPER_MAGIC,
                                  .version = DV_KEEPER_VERSION,
                                  .op = (uint16_t)op,
                                  .id = item ? item->id : 0,
                                  .kinds = item ? item->kinds : 0};
    return dv_fd_send(keeper->daemon_fd, &m, sizeof m, item ? item->fds : NULL, item ? count_kinds(item->kinds) : 0);
}

static void list(struct keeper *keeper)
{
    const struct item *item;

    for (item = keeper->items; item; item = item->hh.next)
        if (say(keeper, DV_KEEPER_ITEM, item) < 0)
            return; /* that daemon is gone, too */
    say(keeper, DV_KEEPER_END, NULL);
}

/* Returns false when it was told to quit. */
static bool serve_daemon(struct keeper *keeper)
{
    struct dv_keeper_message m;
    int fds[DV_KEPT_KINDS], count;
    ssize_t length = dv_fd_receive(keeper->daemon_fd, &m, sizeof m, fds, DV_KEPT_KINDS, &count, 0);

    if (length == 0 || (length < 0 && length != -EMSGSIZE)) {
        dv_close_fd(&keeper->daemon_fd);
        keeper->alone_since = dv_now();
        return true;
    }
    bool sound = length == sizeof m && m.magic == DV_KEEPER_MAGIC && m.version == DV_KEEPER_VERSION;
    if (sound && m.op == DV_KEEPER_PUT && m.kinds < 1u << DV_KEPT_KINDS && count_kinds(m.kinds) == count) {
        put(keeper, &m, fds, count);
        return true;
    }
    while (count > 0)
        close(fds[--count]);
    if (sound && m.op == DV_KEEPER_DROP)
        drop(keeper, m.id);
    else if (sound && m.op == DV_KEEPER_LIST)
        list(keeper);
    return !(sound && m.op == DV_KEEPER_QUIT);
}

static void accept_daemon(struct keeper *keeper)
{
    int fd = accept4(keeper->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (fd < 0)
        return;
    /* The socket's mode enforces the same. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || peer.uid != geteuid()) {
        close(fd);
        return;
    }
    keeper->daemon_fd = fd;
}

/* Sessions would wait for ever for a daemon that does not come. Once their channels are closed, they go
 * on by themselves. */
static bool is_done(const struct keeper *keeper)
{
    return keeper->daemon_fd < 0 && dv_now() - keeper->alone_since > keeper->patience_ns;
}

void dv_keeper_run(int listen_fd)
{
    struct keeper keeper = {
        .listen_fd = listen_fd, .daemon_fd = -1, .alone_since = dv_now(), .patience_ns = PATIENCE_NS};

    for (;;) {
        /* All messages of a daemon that is gone are read before the next one is accepted. */
        struct pollfd ready[] = {{.fd = keeper.daemon_fd < 0 ? keeper.listen_fd : -1, .events = POLLIN},
                                 {.fd = keeper.daemon_fd, .events = POLLIN}};
        if (poll(ready, 2, keeper.daemon_fd < 0 ? LOOK_MS : -1) < 0 && errno != EINTR)
            return;
        if (ready[1].revents && !serve_daemon(&keeper))
            return;
        if (ready[0].revents & POLLIN)
            accept_daemon(&keeper);
        if (is_done(&keeper))
            return;
    }
}
