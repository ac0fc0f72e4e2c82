/* After a restart of divvyd: what this session holds and waits for (see src/wire/lease/sync.h). */
#include <sys/socket.h>

#include "src/lease/channel.h"

/* With the lock held. All messages to divvyd were sent under it, too, so this is exactly what a daemon
 * that had received them all would know. */
static struct dv_sync_message describe(const struct dv_lease *lease, uint32_t index)
{
    const struct device *d = &lease->devices[index];
    int state = atomic_load(&d->state);
    struct dv_sync_message m = {.magic = DV_SYNC_MAGIC,
                                .version = DV_SYNC_VERSION,
                                .type = DV_SYNC_STATE,
                                .device = index,
                                .serial = atomic_load(&d->serial),
                                .reserved = d->reserved,
                                .placed = d->placed,
                                .place_bytes = d->place_asked,
                                .place_id = d->place_id,
                                .evicting = d->evicting};

    if ((state == GRANTED || state == RECALLED) && !d->lost)
        m.flags |= d->brings ? DV_SYNC_HOLDS | DV_SYNC_BRINGS : DV_SYNC_HOLDS;
    if (state == WAITING)
        m.flags |= DV_SYNC_WAITS;
    if (d->place_flags & DV_MEMORY_AHEAD)
        m.flags |= DV_SYNC_AHEAD;
    if (d->place_flags & DV_MEMORY_WAITS)
        m.flags |= DV_SYNC_IN_LINE;
    if (lease->memory_bytes && lease->memory_device == index) {
        m.asked_id = lease->memory_id;
        m.asked = lease->memory_bytes;
    }
    return m;
}

void dv_sync_handle(struct dv_lease *lease, const struct dv_sync_message *asked)
{
    if (asked->version != DV_SYNC_VERSION || asked->type != DV_SYNC_ASK)
        return;
    pthread_mutex_lock(&lease->lock);
    for (uint32_t i = 0; i < lease->device_count && lease->socket >= 0; i++) {
        struct dv_sync_message m = describe(lease, i);
        m.id = asked->id;
        send(lease->socket, &m, sizeof m, MSG_NOSIGNAL);
    }
    if (lease->join_pending && lease->socket >= 0)
        dv_lease_send_join(lease); /* messages before the answers do not count */
    pthread_mutex_unlock(&lease->lock);
}
