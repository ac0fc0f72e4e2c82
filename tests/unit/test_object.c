/* Handles: any pointer may be asked about, and only live objects of the right kind are found. */
#include "unit.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/client/opencl/objects.h"

#define REST_BEFORE_REUSE 64

static struct dvc_session session; /* alive as far as objects are concerned */

static void free_object(void *object)
{
    dvc_object_free(object);
}

/* Must be the first test: nothing was ever created. */
static void nothing_is_found_before_anything_was_made(void **state)
{
    for (int kind = 1; kind < DV_KIND_COUNT; kind++) {
        assert_null(dvc_object_find(kind, NULL));
        assert_null(dvc_object_find(kind, &session));
        assert_null(dvc_object_find(kind, (void *)UINTPTR_MAX));
        assert_null(dvc_object_by_id(kind, DV_OBJECT_ID(1)));
    }
}

static void a_live_object_is_found_by_its_kind_only(void **state)
{
    for (int kind = 1; kind < DV_KIND_COUNT; kind++) {
        struct dvc_object *object = dvc_object_create(kind, &session);
        assert_non_null(object);
        assert_ptr_equal(object->session, &session);
        assert_int_equal(dvc_object_refs(object), 1);
        assert_non_null(object->dispatch);
        for (int other = 1; other < DV_KIND_COUNT; other++)
            if (other == kind)
                assert_ptr_equal(dvc_object_find(other, object), object);
            else
                assert_null(dvc_object_find(other, object));
        assert_ptr_equal(dvc_object_by_id(kind, object->id), object);
    }
}

static void a_freed_object_is_not_found_but_still_leads_to_us(void **state)
{
    for (int kind = DV_KIND_CONTEXT; kind < DV_KIND_COUNT; kind++) {
        if (kind == DV_KIND_EVENT || kind == DV_KIND_QUEUE)
            continue; /* they look at their slots, see below */
        struct dvc_object *object = dvc_object_create(kind, &session);
        struct dv_object_id id = object->id;
        free_object(object);
        assert_null(dvc_object_find(kind, object));
        assert_null(dvc_object_by_id(kind, id));
        assert_ptr_equal(object->dispatch, &dvc_dispatch); /* the loader looks there first */
    }
}

static void pointers_beside_an_object_are_not_handles(void **state)
{
    struct dvc_object *object = dvc_object_create(DV_KIND_MEM, &session);
    for (size_t step = 1; step < sizeof(struct dvc_mem); step++) {
        assert_null(dvc_object_find(DV_KIND_MEM, (char *)object + step));
        if (dvc_object_find(DV_KIND_MEM, (char *)object - step))
            assert_true(step >= sizeof(struct dvc_mem)); /* the neighbour itself */
    }
    free_object(object);
}

static void random_pointers_are_not_handles(void **state)
{
    struct random r = {random_seed()};
    struct dvc_object *known = dvc_object_create(DV_KIND_SAMPLER, &session);
    void *heap = malloc(1);
    for (int i = 0; i < 300000; i++) {
        uintptr_t pointer = random_next(&r);
        switch (random_below(&r, 5)) {
        case 0:
            pointer = random_below(&r, 1 << 20);
            break;
        case 1: /* near the objects */
            pointer = (uintptr_t)known + random_below(&r, 1 << 24) - (1 << 23);
            break;
        case 2:
            pointer = (uintptr_t)heap + random_below(&r, 4096);
            break;
        case 3:
            pointer = (uintptr_t)&r + random_below(&r, 4096);
            break;
        default:
            break;
        }
        for (int kind = 1; kind < DV_KIND_COUNT; kind++) {
            struct dvc_object *found = dvc_object_find(kind, (void *)pointer);
            if (found) {
                assert_ptr_equal(found, (void *)pointer);
                assert_int_equal(found->kind, kind);
                assert_ptr_equal(dvc_object_by_id(kind, found->id), found);
            }
        }
    }
    free(heap);
    free_object(known);
}

static void ids_outside_are_not_objects(void **state)
{
    struct dvc_object *object = dvc_object_create(DV_KIND_KERNEL, &session);
    assert_null(dvc_object_by_id(DV_KIND_KERNEL, DV_OBJECT_ID(0)));
    assert_null(dvc_object_by_id(DV_KIND_KERNEL, DV_OBJECT_ID(object->id.value + 1000)));
    assert_null(dvc_object_by_id(DV_KIND_KERNEL, DV_OBJECT_ID(UINT32_MAX)));
    free_object(object);
}

/* A program that uses a handle too long should be told so, not meet somebody else's object. */
static void a_handle_rests_before_it_is_used_again(void **state)
{
    struct dvc_object *objects[REST_BEFORE_REUSE];
    struct dvc_object *first = dvc_object_create(DV_KIND_PROGRAM, &session);
    free_object(first);
    for (int i = 0; i < REST_BEFORE_REUSE - 1; i++) {
        objects[i] = dvc_object_create(DV_KIND_PROGRAM, &session);
        assert_ptr_not_equal(objects[i], first);
        free_object(objects[i]);
    }
    bool again = false;
    for (int i = 0; i < 3 * REST_BEFORE_REUSE && !again; i++) {
        struct dvc_object *object = dvc_object_create(DV_KIND_PROGRAM, &session);
        again = object == first;
        free_object(object);
    }
    assert_true(again); /* but it is used again some time */
}

static void a_used_again_object_is_clean(void **state)
{
    for (int i = 0; i < 3 * REST_BEFORE_REUSE; i++) {
        struct dvc_sampler *sampler = dvc_object_create(DV_KIND_SAMPLER, &session);
        assert_null(sampler->context);
        assert_int_equal(sampler->filter, 0);
        assert_int_equal(dvc_object_refs(&sampler->object), 1);
        sampler->context = (struct dvc_context *)&session;
        sampler->filter = 77;
        dvc_object_use(&sampler->object);
        free_object(sampler);
    }
}

/* The worker still writes to the slot of a command under way. */
static void an_event_under_way_is_not_used_again(void **state)
{
    static struct dv_shm_event running = {.status = CL_SUBMITTED}, complete = {.status = CL_COMPLETE};
    struct dvc_event *event = dvc_object_create(DV_KIND_EVENT, &session);
    event->slot = &running;
    free_object(event);
    for (int i = 0; i < 4 * REST_BEFORE_REUSE; i++) {
        struct dvc_event *other = dvc_object_create(DV_KIND_EVENT, &session);
        assert_ptr_not_equal(other, event);
        other->slot = &complete;
        free_object(other);
    }
    atomic_store(&running.status, -5);
    bool again = false;
    for (int i = 0; i < 4 * REST_BEFORE_REUSE && !again; i++) {
        struct dvc_event *other = dvc_object_create(DV_KIND_EVENT, &session);
        again = other == event;
        other->slot = &complete;
        free_object(other);
    }
    assert_true(again);
}

static void a_queue_under_way_is_not_used_again(void **state)
{
    static struct dv_shm_queue running = {.completed = 4}, idle;
    struct dvc_queue *queue = dvc_object_create(DV_KIND_QUEUE, &session);
    queue->slot = &running;
    queue->enqueued = 5;
    free_object(queue);
    for (int i = 0; i < 4 * REST_BEFORE_REUSE; i++) {
        struct dvc_queue *other = dvc_object_create(DV_KIND_QUEUE, &session);
        assert_ptr_not_equal(other, queue);
        other->slot = &idle;
        free_object(other);
    }
    atomic_store(&running.completed, 5);
    bool again = false;
    for (int i = 0; i < 4 * REST_BEFORE_REUSE && !again; i++) {
        struct dvc_queue *other = dvc_object_create(DV_KIND_QUEUE, &session);
        again = other == queue;
        other->slot = &idle;
        free_object(other);
    }
    assert_true(again);
}

static void live_objects_have_different_ids(void **state)
{
    enum { MOST = 500 };
    struct random r = {random_seed() + 2};
    struct dvc_object *live[MOST];
    size_t count = 0;
    for (int round = 0; round < 20000; round++) {
        if (count < MOST && random_chance(&r, 55)) {
            struct dvc_object *object = dvc_object_create(DV_KIND_MEM, &session);
            assert_int_not_equal(object->id.value, 0);
            for (size_t i = 0; i < count; i++)
                assert_int_not_equal(live[i]->id.value, object->id.value);
            live[count++] = object;
        } else if (count) {
            size_t at = random_below(&r, count);
            assert_ptr_equal(dvc_object_by_id(DV_KIND_MEM, live[at]->id), live[at]);
            free_object(live[at]);
            live[at] = live[--count];
        }
    }
    while (count)
        free_object(live[--count]);
}

/* There is an end to the number of objects, and it is told by NULL. */
static void too_many_objects_are_refused(void **state)
{
    enum { MOST = 100 };
    struct dvc_object *objects[MOST];
    int count = 0;
    while (count < MOST && (objects[count] = dvc_object_create(DV_KIND_PLATFORM, &session)))
        count++;
    assert_true(count < MOST);
    while (count)
        free_object(objects[--count]);
}

static void *make_and_free(void *argument)
{
    uintptr_t wrong = 0;
    for (int i = 0; i < 20000 && !wrong; i++) {
        struct dvc_context *context = dvc_object_create(DV_KIND_CONTEXT, &session);
        context->device_count = (cl_uint)(uintptr_t)argument;
        wrong += dvc_object_find(DV_KIND_CONTEXT, context) != context;
        wrong += dvc_object_by_id(DV_KIND_CONTEXT, context->object.id) != context;
        wrong += context->device_count != (cl_uint)(uintptr_t)argument;
        free_object(context);
    }
    return (void *)wrong;
}

static void threads_never_share_a_new_object(void **state)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, make_and_free, (void *)(i + 1));
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static void a_forked_child_still_knows_its_handles(void **state)
{
    struct dvc_object *object = dvc_object_create(DV_KIND_MEM, &session);
    pid_t child = fork();
    if (child == 0) {
        dvc_object_after_fork();
        bool right = dvc_object_find(DV_KIND_MEM, object) == object;
        struct dvc_object *fresh = dvc_object_create(DV_KIND_MEM, &session);
        right = right && fresh && fresh != object;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    free_object(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_found_before_anything_was_made),
        cmocka_unit_test(a_live_object_is_found_by_its_kind_only),
        cmocka_unit_test(a_freed_object_is_not_found_but_still_leads_to_us),
        cmocka_unit_test(pointers_beside_an_object_are_not_handles),
        cmocka_unit_test(random_pointers_are_not_handles),
        cmocka_unit_test(ids_outside_are_not_objects),
        cmocka_unit_test(a_handle_rests_before_it_is_used_again),
        cmocka_unit_test(a_used_again_object_is_clean),
        cmocka_unit_test(an_event_under_way_is_not_used_again),
        cmocka_unit_test(a_queue_under_way_is_not_used_again),
        cmocka_unit_test(live_objects_have_different_ids),
        cmocka_unit_test(too_many_objects_are_refused),
        cmocka_unit_test(threads_never_share_a_new_object),
        cmocka_unit_test(a_forked_child_still_knows_its_handles),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    dvc_object_set_dispatch(&dvc_dispatch);
    return cmocka_run_group_tests_name("object", tests, NULL, NULL);
}
