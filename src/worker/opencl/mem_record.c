/* The record of a memory object: its references, and its bytes in the tenant's account. The vendor's object behind it
 * is made and released elsewhere (memory.c, images.c, residency.c). */
#include <stdlib.h>

#include "src/worker/opencl/executor.h"

struct dvk_mem *dvk_mem_new(struct dvk_worker *w, struct dv_object_id id)
{
    struct dvk_mem *mem = calloc(1, sizeof *mem);
    if (!mem)
        return NULL;
    mem->refs = 1;
    mem->id = id;
    mem->worker = w;
    return mem;
}

/* Sets how the object is made. The context stays as long as the object's record. */
void dvk_mem_set_recipe(struct dvk_mem *mem, struct dvk_recipe recipe)
{
    mem->make = recipe;
    recipe.context->refs++;
}

/* The object is gone; its record can be needed longer. */
void dvk_mem_forget_origin(struct dvk_mem *mem)
{
    dvk_origin_unref(mem->origin);
    mem->origin = NULL;
}

void dvk_mem_free(struct dvk_mem *mem)
{
    dvk_context_unref(mem->make.context);
    dvk_mem_forget_origin(mem);
    free(mem);
}

bool dvk_mem_is_usable(const struct dvk_mem *mem)
{
    return !mem->error && !(mem->root && mem->root->released);
}

void dvk_mem_unref(struct dvk_mem *mem)
{
    if (mem && --mem->refs == 0)
        dvk_mem_free(mem);
}

/* Objects are counted against the first device of their context. */
uint32_t dvk_mem_home(const struct dvk_context *context)
{
    return context->devices[0]->index;
}

bool dvk_mem_count(struct dvk_mem *mem, const struct dvk_context *context, bool claimed)
{
    mem->device = dvk_mem_home(context);
    mem->counted = dvk_account_use(mem->worker->runtime, mem->device, mem->bytes, claimed);
    return mem->counted;
}

void dvk_mem_uncount(struct dvk_mem *mem)
{
    if (mem->counted)
        dvk_account_drop(mem->worker->runtime, mem->device, mem->bytes);
    mem->counted = false;
}
