/* The history of a session (see history.h). */
#include "src/worker/core/history.h"

#include <stdlib.h>
#include <string.h>

void dvk_history_init(struct dvk_history *history)
{
    *history = (struct dvk_history){.count = 0};
    TAILQ_INIT(&history->kept);
}

struct dvk_origin *dvk_origin_new(struct dvk_history *history)
{
    struct dvk_origin *origin = calloc(1, sizeof *origin);

    if (!origin) {
        history->is_incomplete = true;
        return NULL;
    }
    origin->history = history;
    origin->refs = 1;
    STAILQ_INIT(&origin->kept);
    return origin;
}

struct dvk_origin *dvk_origin_ref(struct dvk_origin *origin)
{
    if (origin)
        origin->refs++;
    return origin;
}

static void forget(struct dvk_origin *origin, struct dvk_kept *kept)
{
    TAILQ_REMOVE(&origin->history->kept, kept, in_history);
    origin->history->count--;
    for (uint32_t i = 0; i < kept->need_count; i++)
        dvk_origin_unref(kept->needs[i]);
    free(kept->needs);
    free(kept->data);
    free(kept);
}

void dvk_origin_unref(struct dvk_origin *origin)
{
    struct dvk_kept *kept;

    if (!origin || --origin->refs > 0)
        return;
    while ((kept = STAILQ_FIRST(&origin->kept))) {
        STAILQ_REMOVE_HEAD(&origin->kept, in_origin);
        forget(origin, kept);
    }
    free(origin);
}

struct dvk_kept *dvk_origin_keep(struct dvk_origin *origin, const struct dv_record *message, uint64_t arrival,
                                 void *data, uint64_t data_bytes)
{
    struct dvk_kept *kept = origin ? malloc(sizeof *kept + message->bytes) : NULL;

    if (!kept) {
        free(data);
        if (origin)
            origin->history->is_incomplete = true;
        return NULL;
    }
    *kept = (struct dvk_kept){.origin = origin, .arrival = arrival, .data = data, .data_bytes = data_bytes};
    memcpy(kept->message, message, message->bytes);
    TAILQ_INSERT_TAIL(&origin->history->kept, kept, in_history);
    STAILQ_INSERT_TAIL(&origin->kept, kept, in_origin);
    origin->history->count++;
    return kept;
}

void dvk_kept_needs(struct dvk_kept *kept, struct dvk_origin *other)
{
    struct dvk_origin **grown;

    if (!kept || !other)
        return;
    grown = realloc(kept->needs, (kept->need_count + 1) * sizeof(struct dvk_origin *));
    if (!grown) {
        other->history->is_incomplete = true;
        return;
    }
    kept->needs = grown;
    kept->needs[kept->need_count++] = dvk_origin_ref(other);
}

void dvk_origin_forget(struct dvk_origin *origin, uint16_t op)
{
    struct dvk_kept *kept, *next;

    if (!origin)
        return;
    for (kept = STAILQ_FIRST(&origin->kept); kept; kept = next) {
        next = STAILQ_NEXT(kept, in_origin);
        if (((const struct dv_record *)kept->message)->op != op)
            continue;
        STAILQ_REMOVE(&origin->kept, kept, dvk_kept, in_origin);
        forget(origin, kept);
    }
}
