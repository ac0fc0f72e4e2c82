/* Ordered sets of tenants: red-black trees, and lines of tenants that are due at a time. */
#include "src/policy/order.h"

static int compare(struct dv_policy_node *a, struct dv_policy_node *b)
{
    struct dv_policy_tree *tree = a->tree;

    tree->comparisons++;
    if (a->key != b->key)
        return dv_before(a->key, b->key) ? -1 : 1;
    return dv_before(a->order, b->order) ? -1 : a->order != b->order;
}

RB_GENERATE_INTERNAL(dv_policy_nodes, dv_policy_node, link, compare, __attribute__((unused)) static)

void dv_tree_insert(struct dv_policy_tree *tree, struct dv_policy_node *node, uint64_t key)
{
    dv_tree_remove(node);
    node->tree = tree;
    node->key = key;
    node->order = ++tree->order;
    tree->count++;
    RB_INSERT(dv_policy_nodes, &tree->nodes, node);
}

void dv_tree_remove(struct dv_policy_node *node)
{
    if (!node->tree)
        return;
    RB_REMOVE(dv_policy_nodes, &node->tree->nodes, node);
    node->tree->count--;
    node->tree = NULL;
}

struct dv_policy_node *dv_tree_first(struct dv_policy_tree *tree)
{
    return RB_MIN(dv_policy_nodes, &tree->nodes);
}

struct dv_policy_node *dv_tree_next(struct dv_policy_node *node)
{
    return RB_NEXT(dv_policy_nodes, &node->tree->nodes, node);
}

void dv_line_init(struct dv_policy_line *line)
{
    *line = (struct dv_policy_line){0};
}

static struct dv_line_entry *place_of(struct dv_policy_node *node)
{
    return (struct dv_line_entry *)(void *)node; /* the node is its first member */
}

void dv_line_insert(struct dv_policy_line *line, struct dv_line_entry *entry, uint64_t start, uint64_t finish,
                    uint64_t clock)
{
    entry->start = start;
    entry->finish = finish;
    if (dv_before(clock, start))
        dv_tree_insert(&line->ahead, &entry->node, start);
    else
        dv_tree_insert(&line->ready, &entry->node, finish);
}

void dv_line_remove(struct dv_line_entry *entry)
{
    dv_tree_remove(&entry->node);
}

void dv_line_advance(struct dv_policy_line *line, uint64_t clock)
{
    struct dv_policy_node *node;

    while ((node = dv_tree_first(&line->ahead)) && !dv_before(clock, node->key)) {
        dv_tree_insert(&line->ready, node, place_of(node)->finish);
    }
}

struct dv_line_entry *dv_line_first_ready(struct dv_policy_line *line, uint64_t clock)
{
    struct dv_policy_node *node;

    while ((node = dv_tree_first(&line->ready)) && dv_before(clock, place_of(node)->start))
        dv_tree_insert(&line->ahead, node, place_of(node)->start);
    return node ? place_of(node) : NULL;
}

struct dv_line_entry *dv_line_first_ahead(struct dv_policy_line *line)
{
    struct dv_policy_node *node = dv_tree_first(&line->ahead);
    return node ? place_of(node) : NULL;
}
