/* Entries for the worker that follows (see parked.h). */
#include "src/worker/core/parked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/wire/session/ring.h"

/* ---- writing ---- */

static void append(struct dvk_parked_writer *writer, const void *data, uint64_t bytes)
{
    uint64_t padded = dv_record_align(bytes);

    if (writer->is_broken || bytes == 0)
        return;
    if (writer->capacity - writer->used < padded) {
        uint64_t capacity = writer->capacity ? writer->capacity : 65536;
        while (capacity - writer->used < padded)
            capacity *= 2;
        uint8_t *grown = realloc(writer->bytes, capacity);
        if (!grown) {
            writer->is_broken = true;
            return;
        }
        writer->bytes = grown;
        writer->capacity = capacity;
    }
    memcpy(writer->bytes + writer->used, data, bytes);
    memset(writer->bytes + writer->used + bytes, 0, padded - bytes);
    writer->used += padded;
}

void dvk_parked_put(struct dvk_parked_writer *writer, const struct dv_parked_entry *entry,
                    const struct dv_record *message, const void *data)
{
    struct dv_parked_entry put = *entry;

    put.message_bytes = message ? message->bytes : 0;
    put.data_bytes = data ? entry->data_bytes : 0;
    append(writer, &put, sizeof put);
    append(writer, message, put.message_bytes);
    append(writer, data, put.data_bytes);
    writer->entries++;
}

int dvk_parked_finish(struct dvk_parked_writer *writer, struct dvk_store *store)
{
    struct dv_parked_head head = {.magic = DV_PARKED_MAGIC, .version = DV_PARKED_VERSION, .entries = writer->entries};
    int error = 0;

    if (writer->is_broken)
        error = -ENOMEM;
    else if (writer->used > DV_PARKED_BYTES_MAX)
        error = -ENOSPC;
    else if (writer->used && !(head.at = dvk_store_take(store, writer->used)))
        error = -ENOSPC;
    if (error == 0) {
        head.bytes = writer->used;
        if (writer->used)
            memcpy(store->base + head.at, writer->bytes, writer->used);
        memcpy(store->base, &head, sizeof head);
    }
    free(writer->bytes);
    *writer = (struct dvk_parked_writer){0};
    return error;
}

/* ---- reading ---- */

int dvk_parked_open(struct dvk_parked_reader *reader, struct dvk_store *store)
{
    struct dv_parked_head head;

    *reader = (struct dvk_parked_reader){0};
    memcpy(&head, store->base, sizeof head);
    if (head.magic != DV_PARKED_MAGIC || head.version != DV_PARKED_VERSION)
        return -EPROTO;
    if (head.bytes > DV_PARKED_BYTES_MAX)
        return -EPROTO;
    if (head.bytes == 0)
        return head.entries ? -EPROTO : 0;
    if (!dvk_store_take_at(store, head.at, head.bytes))
        return -EPROTO;
    uint8_t *copy = malloc(head.bytes);
    if (copy)
        memcpy(copy, store->base + head.at, head.bytes);
    dvk_store_give(store, head.at);
    if (!copy)
        return -ENOMEM;
    *reader = (struct dvk_parked_reader){.bytes = copy, .size = head.bytes, .entries = head.entries};
    return 0;
}

/* A part of the entry, or NULL when it has none. Returns false: it reaches beyond the end. */
static bool take(struct dvk_parked_reader *reader, uint64_t bytes, const uint8_t **part)
{
    *part = bytes ? reader->bytes + reader->at : NULL;
    if (bytes > reader->size - reader->at || dv_record_align(bytes) > reader->size - reader->at)
        return false;
    reader->at += dv_record_align(bytes);
    return true;
}

int dvk_parked_next(struct dvk_parked_reader *reader, struct dv_parked_entry *entry, const uint8_t **message,
                    const uint8_t **data)
{
    const uint8_t *fixed;

    if (reader->entries == 0)
        return reader->at == reader->size ? 0 : -EPROTO;
    if (!take(reader, sizeof *entry, &fixed))
        return -EPROTO;
    memcpy(entry, fixed, sizeof *entry);
    if (!take(reader, entry->message_bytes, message) || !take(reader, entry->data_bytes, data))
        return -EPROTO;
    if (*message) {
        struct dv_record head;
        if (entry->message_bytes < sizeof head)
            return -EPROTO;
        memcpy(&head, *message, sizeof head);
        if (head.bytes != entry->message_bytes || head.bytes % DV_RECORD_ALIGN || head.bytes > DV_MAX_RECORD_BYTES)
            return -EPROTO;
    }
    reader->entries--;
    return 1;
}

void dvk_parked_close(struct dvk_parked_reader *reader)
{
    free((void *)reader->bytes);
    *reader = (struct dvk_parked_reader){0};
}
