/* The objects that commands use, and which of them are to be brought in (see working_set.h). */
#include "src/worker/opencl/working_set.h"

#include <stdlib.h>

/* Objects of the commands behind the next one are brought in with it, up to these limits. */
#define AHEAD_BYTES (UINT64_C(64) << 20)
#define AHEAD_OBJECTS 4096

static bool add_use(struct dvk_command *c, struct dvk_mem *mem, bool writes)
{
    if (!mem || !mem->root)
        return true;
    if (c->use_count == c->use_capacity) {
        uint32_t capacity = c->use_capacity ? c->use_capacity * 2 : 8;
        void *grown = realloc(c->uses, capacity * sizeof *c->uses);
        if (!grown)
            return false;
        c->uses = grown;
        c->use_capacity = capacity;
    }
    mem->refs++;
    mem->root->refs++;
    c->uses[c->use_count++] = (struct dvk_use){.mem = mem, .root = mem->root, .writes = writes};
    return true;
}

bool dvk_list_uses(struct dvk_command *c)
{
    bool all = true;

    for (int i = 0; i < DVK_KEPT; i++)
        all &= add_use(c, c->mems[i], c->writes >> i & 1);
    for (uint32_t i = 0; i < c->listed_count; i++)
        all &= add_use(c, c->listed[i], c->info->writes_list);
    for (uint32_t i = 0; c->arguments && i < c->arguments->count; i++) {
        struct dvk_mem *mem = c->arguments->list[i].mem;
        all &= add_use(c, mem, mem && !(mem->make.flags & CL_MEM_READ_ONLY) && !c->kernel->parameters[i].only_reads);
    }
    return all;
}

static bool append(struct dvk_list *list, struct dvk_mem *root)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 256;
        void *grown = realloc(list->roots, capacity * sizeof *list->roots);
        if (!grown)
            return false;
        list->roots = grown;
        list->capacity = capacity;
    }
    list->roots[list->count++] = root;
    return true;
}

/* Wanted objects are not evicted, and stay known until they are forgotten. */
void dvk_forget_wanted(struct dvk_room *room)
{
    for (uint32_t i = 0; i < room->wanted.count; i++) {
        room->wanted.roots[i]->wanted = false;
        dvk_mem_unref(room->wanted.roots[i]);
    }
    room->wanted.count = 0;
}

static void add_to_set(struct dvk_room *room, struct dvk_set *set, struct dvk_command *c)
{
    set->short_of_memory |= c->use_count == 0 && !dvk_list_uses(c);
    for (uint32_t i = 0; i < c->use_count; i++) {
        struct dvk_mem *root = c->uses[i].root;
        if (root->wanted)
            continue;
        if ((!dvk_is_resident(root) && !append(&room->set, root)) || !append(&room->wanted, root)) {
            set->short_of_memory = true;
            return;
        }
        root->wanted = true;
        root->refs++;
        if (root == room->partly_there)
            dvk_forget_partly_there(room);
        if (dvk_is_resident(root))
            continue;
        set->need += root->residence == DVK_ARRIVING ? 0 : root->bytes;
        set->copies |= dvk_needs_bytes(root);
    }
    set->count = room->set.count;
}

/* Drops partially placed objects that are not wanted any more, because their command has been given up. */
static void forget_wanted_before(struct dvk_room *room)
{
    for (uint32_t i = 0; i < room->wanted_before.count; i++) {
        struct dvk_mem *root = room->wanted_before.roots[i];
        if (!root->wanted)
            dvk_drop_arriving(root);
        dvk_mem_unref(root);
    }
    room->wanted_before.count = 0;
}

struct dvk_set dvk_gather(struct dvk_room *room, struct dvk_command *c)
{
    struct dvk_set set = {0};
    struct dvk_node *node = c->node.detached ? NULL : TAILQ_NEXT(&c->node, in_active);
    struct dvk_list before = room->wanted;

    room->wanted = room->wanted_before;
    room->wanted_before = before;
    for (uint32_t i = 0; i < before.count; i++)
        before.roots[i]->wanted = false;
    room->set.count = 0;
    add_to_set(room, &set, c);
    set.head_count = set.count;
    set.head_need = set.need;
    uint64_t most = set.head_need + (room->capacity / 4 < AHEAD_BYTES ? room->capacity / 4 : AHEAD_BYTES);
    for (; node && room->phase < DVK_BRINGS_HEAD && set.need < most && room->wanted.count < AHEAD_OBJECTS;
         node = TAILQ_NEXT(node, in_active))
        if (node->runs_on == DV_RUNS_ON_DEVICE && !node->doomed)
            add_to_set(room, &set, (struct dvk_command *)node);
    forget_wanted_before(room);
    return set;
}
