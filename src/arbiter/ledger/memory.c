/* Device memory: messages of both kinds, quotas, and sizes (see memory.h). */
#include "src/arbiter/ledger/private.h"

/* ---- sizes ---- */

uint64_t dvd_device_size(const struct dvd_device *device, const struct dvd_memory_size *size)
{
    uint64_t capacity = device->terms.capacity_bytes;

    if (size->bytes)
        return size->bytes;
    return size->ppm ? (uint64_t)((unsigned __int128)capacity * size->ppm / DV_PPM) : capacity;
}

uint64_t dvd_memory_request_on(const struct dvd_device *device, const struct dvd_memory_size *request)
{
    return request->bytes || request->ppm ? dvd_device_size(device, request) : 0;
}

void dvd_memory_set_request(struct dvd_tenant_device *tenant, uint64_t request)
{
    tenant->memory.request = dvd_min(request, tenant->memory.quota);
    dvd_record_quota(tenant);
}

void dvd_memory_set_quota(struct dvd_tenant_device *tenant, uint64_t quota)
{
    tenant->memory.quota = quota;
    dvd_memory_set_request(tenant, tenant->memory.request);
    dvd_reservations_settle(tenant);
    dvd_room_shrink(tenant);
}

/* ---- messages ---- */

void dvd_memory_take(struct dvd_lease *lease, const struct dv_memory_message *m)
{
    if (m->bytes > DV_MEMORY_BYTES_MAX) {
        if (m->type == DV_MEMORY_RESERVE)
            dvd_memory_send(lease, DV_MEMORY_REFUSED, m->id, m->bytes);
        return;
    }
    switch (m->type) {
    case DV_MEMORY_RESERVE:
    case DV_MEMORY_RETURN:
        dvd_reservations_take(lease, m);
        break;
    case DV_MEMORY_PLACE:
    case DV_MEMORY_IN_PLACE:
    case DV_MEMORY_UNPLACE:
    case DV_MEMORY_KEEPS:
    case DV_MEMORY_MOVES:
        dvd_room_take(lease, m);
        break;
    default:
        break;
    }
}

void dvd_memory_sync(struct dvd_lease *lease, const struct dv_sync_message *m)
{
    struct dv_memory_message asked = {.type = DV_MEMORY_RESERVE, .id = m->asked_id, .bytes = m->asked};
    struct dv_memory_message place = {.type = DV_MEMORY_PLACE,
                                      .flags = (m->flags & DV_SYNC_AHEAD ? DV_MEMORY_AHEAD : 0) |
                                               (m->flags & DV_SYNC_IN_LINE ? DV_MEMORY_WAITS : 0),
                                      .id = m->place_id,
                                      .bytes = m->place_bytes};

    dvd_reservations_set(lease, dvd_min(lease->memory.reserved, m->reserved));
    dvd_room_sync(lease, m);
    dvd_reservations_settle(lease->tenant);
    if (m->asked)
        dvd_memory_take(lease, &asked);
    if (m->place_bytes || (m->flags & DV_SYNC_BRINGS))
        dvd_memory_take(lease, &place);
    dvd_room_settle(lease->device);
}
