/* Device memory on the lease channel (see include/divvy/memory.h). */
#include "include/divvy/memory.h"

#include <errno.h>
#include <sys/socket.h>

#include "src/lease/channel.h"

/* With the lock held. False: there is no daemon. */
static bool tell(struct dv_lease *lease, enum dv_memory_type type, uint32_t device, uint64_t id, uint64_t bytes,
                 uint32_t flags)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = (uint16_t)type,
                                  .device = device,
                                  .flags = flags,
                                  .id = id,
                                  .bytes = bytes};
    return lease->socket >= 0 && send(lease->socket, &m, sizeof m, MSG_NOSIGNAL) == sizeof m;
}

int dv_memory_reserve(struct dv_lease *lease, uint32_t device, uint64_t bytes)
{
    pthread_mutex_lock(&lease->asking);
    pthread_mutex_lock(&lease->lock);
    uint64_t id = ++lease->memory_id;
    lease->memory_device = device;
    lease->memory_bytes = bytes; /* until it is answered */
    bool told = tell(lease, DV_MEMORY_RESERVE, device, id, bytes, 0);
    while (told && lease->memory_answer_id != id && lease->socket >= 0)
        pthread_cond_wait(&lease->answered, &lease->lock);
    bool granted = lease->memory_answer_id == id ? lease->memory_granted : dv_lease_allows(lease);
    lease->memory_bytes = 0;
    pthread_mutex_unlock(&lease->lock);
    pthread_mutex_unlock(&lease->asking);
    return granted ? 0 : -ENOMEM;
}

static void give_back(struct dv_lease *lease, uint32_t device, uint64_t id, uint64_t bytes)
{
    uint64_t *reserved = &lease->devices[device].reserved;
    uint64_t counted = bytes < *reserved ? bytes : *reserved; /* others ended with an earlier session */

    *reserved -= counted;
    tell(lease, DV_MEMORY_RETURN, device, id, counted, 0);
}

void dv_memory_return(struct dv_lease *lease, uint32_t device, uint64_t bytes)
{
    pthread_mutex_lock(&lease->lock);
    give_back(lease, device, 0, bytes);
    pthread_mutex_unlock(&lease->lock);
}

static uint64_t ask_for_room(struct dv_lease *lease, uint32_t device, uint64_t bytes, uint32_t flags)
{
    struct device *d = &lease->devices[device];

    pthread_mutex_lock(&lease->lock);
    uint64_t id = ++d->place_id;
    d->place_asked = bytes;
    d->place_flags = flags;
    d->brings |= !(flags & DV_MEMORY_AHEAD);
    bool told = tell(lease, DV_MEMORY_PLACE, device, id, bytes, flags);
    bool allowed = dv_lease_allows(lease);
    if (!told)
        d->place_asked = 0;
    pthread_mutex_unlock(&lease->lock);
    if (!told && lease->callbacks.placed)
        lease->callbacks.placed(lease->callbacks.user, device, id, bytes, allowed);
    return id;
}

uint64_t dv_memory_place(struct dv_lease *lease, uint32_t device, uint64_t bytes, bool in_line)
{
    return ask_for_room(lease, device, bytes, in_line ? DV_MEMORY_WAITS : 0);
}

uint64_t dv_memory_place_ahead(struct dv_lease *lease, uint32_t device, uint64_t bytes)
{
    return ask_for_room(lease, device, bytes, DV_MEMORY_AHEAD);
}

void dv_memory_in_place(struct dv_lease *lease, uint32_t device, uint64_t took_ns)
{
    struct device *d = &lease->devices[device];

    pthread_mutex_lock(&lease->lock);
    d->brings = false;
    d->place_asked = 0;
    tell(lease, DV_MEMORY_IN_PLACE, device, 0, took_ns, 0);
    /* divvyd will extend the slice (EXTEND). Until then it has no end: its rest is too short for many
     * commands, and the device would be given back after the first. */
    atomic_store(&d->slice_end_ns, UINT64_MAX);
    pthread_mutex_unlock(&lease->lock);
}

/* With the lock held: `bytes` fewer are asked for. */
static void less_to_evict(struct device *d, uint64_t bytes)
{
    d->evicting -= bytes < d->evicting ? bytes : d->evicting;
}

void dv_memory_unplace(struct dv_lease *lease, uint32_t device, uint64_t evict_id, uint64_t bytes)
{
    struct device *d = &lease->devices[device];

    pthread_mutex_lock(&lease->lock);
    uint64_t counted = bytes < d->placed ? bytes : d->placed; /* as for reserved bytes */
    d->placed -= counted;
    less_to_evict(d, counted);
    tell(lease, DV_MEMORY_UNPLACE, device, evict_id, counted, 0);
    pthread_mutex_unlock(&lease->lock);
}

void dv_memory_moves(struct dv_lease *lease, uint32_t device, uint64_t evict_id, uint64_t bytes)
{
    pthread_mutex_lock(&lease->lock);
    tell(lease, DV_MEMORY_MOVES, device, evict_id, bytes, 0);
    pthread_mutex_unlock(&lease->lock);
}

void dv_memory_keeps(struct dv_lease *lease, uint32_t device, uint64_t evict_id, uint64_t bytes)
{
    pthread_mutex_lock(&lease->lock);
    less_to_evict(&lease->devices[device], bytes);
    tell(lease, DV_MEMORY_KEEPS, device, evict_id, bytes, 0);
    pthread_mutex_unlock(&lease->lock);
}

/* ---- the lease's thread ---- */

static void answer(struct dv_lease *lease, const struct dv_memory_message *m)
{
    bool granted = m->type == DV_MEMORY_RESERVED;

    pthread_mutex_lock(&lease->lock);
    if (m->id == lease->memory_id && lease->memory_bytes) {
        if (granted)
            lease->devices[m->device].reserved += lease->memory_bytes;
        lease->memory_bytes = 0;
        lease->memory_answer_id = m->id;
        lease->memory_granted = granted;
        pthread_cond_broadcast(&lease->answered);
    }
    pthread_mutex_unlock(&lease->lock);
}

static void take_room(struct dv_lease *lease, const struct dv_memory_message *m)
{
    const struct dv_lease_callbacks *callbacks = &lease->callbacks;
    struct device *device = &lease->devices[m->device];
    bool placed = m->type == DV_MEMORY_PLACED;

    pthread_mutex_lock(&lease->lock);
    if (m->id == device->place_id)
        device->place_asked = 0;
    if (placed)
        device->placed += m->bytes;
    pthread_mutex_unlock(&lease->lock);
    if (callbacks->placed)
        callbacks->placed(callbacks->user, m->device, m->id, m->bytes, placed);
}

static void make_room(struct dv_lease *lease, const struct dv_memory_message *m)
{
    const struct dv_lease_callbacks *callbacks = &lease->callbacks;

    pthread_mutex_lock(&lease->lock);
    lease->devices[m->device].evicting += m->bytes;
    pthread_mutex_unlock(&lease->lock);
    if (callbacks->evict)
        callbacks->evict(callbacks->user, m->device, m->id, m->bytes);
}

void dv_memory_handle(struct dv_lease *lease, const struct dv_memory_message *m)
{
    const struct dv_lease_callbacks *callbacks = &lease->callbacks;

    if (m->version != DV_MEMORY_VERSION || m->device >= lease->device_count)
        return;
    switch (m->type) {
    case DV_MEMORY_RESERVED:
    case DV_MEMORY_REFUSED:
        answer(lease, m);
        break;
    case DV_MEMORY_CALL_BACK: {
        uint64_t bytes = callbacks->call_back ? callbacks->call_back(callbacks->user, m->device) : 0;
        pthread_mutex_lock(&lease->lock);
        give_back(lease, m->device, m->id, bytes);
        pthread_mutex_unlock(&lease->lock);
        break;
    }
    case DV_MEMORY_PLACED:
    case DV_MEMORY_NO_ROOM:
        take_room(lease, m);
        break;
    case DV_MEMORY_EVICT:
        make_room(lease, m);
        break;
    default:
        break;
    }
}

void dv_memory_daemon_gone(struct dv_lease *lease)
{
    const struct dv_lease_callbacks *callbacks = &lease->callbacks;

    pthread_mutex_lock(&lease->lock);
    pthread_cond_broadcast(&lease->answered);
    pthread_mutex_unlock(&lease->lock);
    for (uint32_t i = 0; i < lease->device_count; i++) { /* no daemon refuses it any more */
        pthread_mutex_lock(&lease->lock);
        uint64_t bytes = lease->devices[i].place_asked, id = lease->devices[i].place_id;
        lease->devices[i].place_asked = 0;
        lease->devices[i].placed += bytes;
        pthread_mutex_unlock(&lease->lock);
        if (bytes && callbacks->placed)
            callbacks->placed(callbacks->user, i, id, bytes, true);
    }
}
