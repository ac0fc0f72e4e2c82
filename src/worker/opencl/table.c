/* The tables of a session's objects, by kind and by the client's ids. */
#include <stdlib.h>
#include <string.h>

#include "src/worker/opencl/executor.h"

void *dvk_find(struct dvk_worker *w, enum dv_object_kind kind, struct dv_object_id id)
{
    const struct dvk_table *table = &w->tables[kind];
    return id.value < table->capacity ? table->slots[id.value] : NULL;
}

int dvk_put(struct dvk_worker *w, enum dv_object_kind kind, struct dv_object_id id, void *object)
{
    struct dvk_table *table = &w->tables[kind];

    if (id.value == 0 || id.value >= DV_MAX_OBJECT_ID)
        return CL_INVALID_VALUE;
    if (id.value >= table->capacity) {
        uint32_t capacity = table->capacity ? table->capacity : 64;
        while (capacity <= id.value)
            capacity *= 2;
        void **grown = realloc(table->slots, capacity * sizeof *grown);
        if (!grown)
            return CL_OUT_OF_HOST_MEMORY;
        memset(grown + table->capacity, 0, (capacity - table->capacity) * sizeof *grown);
        table->slots = grown;
        table->capacity = capacity;
    }
    if (table->slots[id.value])
        return CL_INVALID_VALUE; /* the client gave two objects the same id */
    table->slots[id.value] = object;
    return CL_SUCCESS;
}

void *dvk_take(struct dvk_worker *w, enum dv_object_kind kind, struct dv_object_id id)
{
    void *object = dvk_find(w, kind, id);
    if (object)
        w->tables[kind].slots[id.value] = NULL;
    return object;
}
