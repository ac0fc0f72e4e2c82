/* Buffers, and the life of the vendor's memory objects that are not managed (residency.h). */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/worker/opencl/executor.h"
#include "src/worker/opencl/memory.h"
#include "src/worker/opencl/residency.h"

#define FREED_SOON_BYTES (UINT64_C(1) << 20)

int32_t dvk_on_claim_memory(struct dvk_worker *w, const struct dvw_claim_memory *m, const uint8_t *tail,
                            size_t tail_bytes, struct dvk_reply *reply)
{
    const struct dvk_context *context = dvk_find_context(w, m->context);

    if (!context)
        return CL_INVALID_CONTEXT;
    if (m->bytes > DV_SHM_BYTES_MAX)
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return dvk_account_claim(w->runtime, dvk_mem_home(context), m->bytes) < 0 ? CL_MEM_OBJECT_ALLOCATION_FAILURE
                                                                              : CL_SUCCESS;
}

/* The vendor does not use its bytes any more. */
static void take_back_storage(struct dvk_mem *mem)
{
    if (mem->lent)
        dvk_runtime_take_back(mem->worker->runtime, mem->lent, mem->bytes);
    mem->lent = 0;
}

static void CL_CALLBACK mem_gone(cl_mem vendor, void *user)
{
    struct dvk_mem *mem = user;
    take_back_storage(mem); /* before the client is told, and puts another object there */
    atomic_fetch_sub(&mem->worker->runtime->header->memory_bytes, mem->bytes);
    dvk_mem_uncount(mem); /* first: once told, the client may ask for the same bytes again */
    dvk_runtime_upcall(mem->worker->runtime, &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id.value}, true);
    atomic_fetch_sub(&mem->worker->leaving, 1);
    free(mem);
}

/* The vendor's callback outlives the worker's record of the object, so it has its own copy. */
static void tell_when_gone(struct dvk_mem *mem)
{
    struct dvk_mem *copy = malloc(sizeof *copy);
    if (!copy)
        return;
    *copy = *mem;
    mem->told_by_vendor = clSetMemObjectDestructorCallback(mem->vendor, mem_gone, copy) == CL_SUCCESS;
    if (!mem->told_by_vendor)
        free(copy);
}

/* Puts the object in its table even when creation failed: commands that use it then fail with the error, because
 * creation itself has no reply. */
void dvk_mem_keep(struct dvk_worker *w, struct dvk_mem *mem, cl_int error)
{
    cl_int kept = dvk_put(w, DV_KIND_MEM, mem->id, mem);

    mem->error = error;
    if (error != CL_SUCCESS || kept != CL_SUCCESS) {
        if (mem->root)
            dvk_residency_forget(mem);
        else if (mem->vendor)
            clReleaseMemObject(mem->vendor);
        mem->root = NULL;
        mem->vendor = NULL;
        take_back_storage(mem);
        dvk_mem_uncount(mem);
        if (kept != CL_SUCCESS)
            dvk_mem_free(mem);
        return;
    }
    atomic_fetch_add(&w->runtime->header->memory_bytes, mem->bytes);
    if (!mem->root)
        tell_when_gone(mem);
}

/* Zeros to initialise a fresh object where another tenant may have left data. NULL: nothing must be hidden, or it
 * cannot be (*error). Managed objects are scrubbed when they are placed. */
void *dvk_fresh_zeros(const struct dvk_context *context, uint64_t bytes, cl_int *error)
{
    bool scrubbed = false;

    for (uint32_t i = 0; i < context->device_count; i++)
        scrubbed |= context->devices[i]->scrubbed;
    if (!scrubbed || bytes == 0) /* the vendor refuses 0 bytes */
        return NULL;
    if (bytes > DV_SHM_BYTES_MAX) {
        *error = CL_INVALID_VALUE;
        return NULL;
    }
    void *zeros = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    return zeros;
}

/* A buffer that stays with the vendor for its whole life. */
static void make_unmanaged_buffer(struct dvk_mem *mem, struct dvk_context *context, cl_mem_flags flags, void *storage,
                                  bool initial, cl_int *error)
{
    void *zeros = storage ? NULL : dvk_fresh_zeros(context, mem->bytes, error);

    if (*error != CL_SUCCESS)
        return;
    flags |= initial || zeros ? CL_MEM_COPY_HOST_PTR : storage ? CL_MEM_USE_HOST_PTR : 0;
    mem->vendor = clCreateBuffer(context->vendor, flags, mem->bytes, zeros ? zeros : storage, error);
    if (zeros)
        munmap(zeros, mem->bytes);
}

/* An earlier worker had counted the object, and its reservation ended with it. */
static bool claim_again(struct dvk_worker *w, const struct dvk_context *context, uint64_t bytes)
{
    return !w->follows || dvk_account_claim(w->runtime, dvk_mem_home(context), bytes) == 0;
}

void dvk_on_create_buffer(struct dvk_worker *w, const struct dvw_create_buffer *m, const uint8_t *tail,
                          size_t tail_bytes)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    struct dvk_mem *mem = dvk_mem_new(w, m->id);
    cl_int error = CL_SUCCESS;
    void *storage = NULL;
    cl_mem_flags flags = m->flags & DVK_DEVICE_FLAGS;

    if (!mem)
        return;
    mem->bytes = m->size;
    if (!context)
        error = CL_INVALID_CONTEXT;
    else if (m->arena && !(storage = dvk_runtime_arena(w->runtime, m->arena, m->size)))
        error = CL_INVALID_VALUE;
    else if (!claim_again(w, context, m->size) || !dvk_mem_count(mem, context, m->claimed || w->follows))
        /* the client should not have sent it */
        error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    else if (dvk_is_managed(context) && (!storage || m->initial)) {
        dvk_mem_set_recipe(mem, (struct dvk_recipe){.context = context, .flags = flags});
        error = dvk_residency_add(mem, storage);
    } else if (storage && !m->initial && !(storage = dvk_runtime_lend(w->runtime, m->arena, m->size))) {
        error = CL_OUT_OF_HOST_MEMORY;
    } else {
        mem->lent = storage && !m->initial ? m->arena : 0;
        dvk_mem_set_recipe(mem, (struct dvk_recipe){.context = context, .flags = flags});
        make_unmanaged_buffer(mem, context, flags, storage, m->initial, &error);
    }
    if (m->initial) /* a small block is not worth waking the client for */
        dvk_runtime_upcall(w->runtime, &(struct dv_upcall){.kind = DV_UPCALL_FREE, .b = m->arena},
                           m->size >= FREED_SOON_BYTES);
    if (error == CL_SUCCESS)
        dvk_mem_set_origin(mem, &m->head, context->origin);
    dvk_mem_keep(w, mem, error);
}

void dvk_on_create_sub_buffer(struct dvk_worker *w, const struct dvw_create_sub_buffer *m, const uint8_t *tail,
                              size_t tail_bytes)
{
    struct dvk_mem *parent = dvk_find_mem(w, m->parent);
    struct dvk_mem *mem = dvk_mem_new(w, m->id);
    cl_buffer_region region = {.origin = m->origin, .size = m->size};
    cl_mem_flags flags = m->flags & DVK_DEVICE_FLAGS;
    cl_int error = CL_INVALID_MEM_OBJECT;

    if (!mem)
        return;
    if (parent && !parent->error && parent->root && !parent->is_image && !parent->parent) {
        dvk_mem_set_recipe(
            mem,
            (struct dvk_recipe){.context = parent->make.context, .flags = flags, .origin = m->origin, .size = m->size});
        mem->device = parent->device;
        mem->parent = parent;
        error = m->origin > parent->bytes || m->size > parent->bytes - m->origin ? CL_INVALID_VALUE
                                                                                 : dvk_residency_add(mem, NULL);
    } else if (parent && parent->vendor && !parent->is_image) {
        mem->is_part = true;
        mem->vendor = clCreateSubBuffer(parent->vendor, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    }
    if (error == CL_SUCCESS)
        dvk_mem_set_origin(mem, &m->head, parent->origin);
    dvk_mem_keep(w, mem, error);
}

static void release_vendor_mem(struct dvk_mem *mem)
{
    if (mem->root) {
        if (mem->in_use == 0) /* otherwise the last command that uses it removes it */
            dvk_residency_remove(mem);
        return;
    }
    bool told = mem->vendor && mem->told_by_vendor;
    if (mem->vendor) {
        if (!told) { /* the vendor will not report its end: wait until nothing can use it */
            dvk_finish(mem->worker);
            atomic_fetch_sub(&mem->worker->runtime->header->memory_bytes, mem->bytes);
            dvk_mem_uncount(mem);
        }
        if (told)
            atomic_fetch_add(&mem->worker->leaving, 1);
        clReleaseMemObject(mem->vendor);
        mem->vendor = NULL;
        if (!told)
            take_back_storage(mem);
    }
    if (!told)
        dvk_runtime_upcall(mem->worker->runtime, &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id.value},
                           true);
    mem->error = CL_INVALID_MEM_OBJECT;
    dvk_mem_forget_origin(mem);
}

void dvk_mem_unpin(struct dvk_mem *mem)
{
    if (--mem->pins == 0 && mem->released)
        release_vendor_mem(mem);
    dvk_mem_unref(mem);
}

void dvk_mem_release(struct dvk_mem *mem)
{
    mem->released = true;
    if (mem->pins == 0)
        release_vendor_mem(mem);
    dvk_mem_unref(mem);
}
