/* Tables with aligned columns for people. */
#ifndef DV_CLI_TABLE_H
#define DV_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct dv_table {
    size_t columns;
    size_t cells;
    size_t capacity;
    char **text;       /* row by row, the heading first */
    const bool *right; /* which columns are numbers */
};

/* The heading is the first row; `right` must outlive the table. */
void dv_table_init(struct dv_table *table, size_t columns, const char *const *heading, const bool *right);
/* Adds the next cell. The cell stays empty when out of memory. */
void dv_table_add(struct dv_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints to stdout and releases everything. */
void dv_table_finish(struct dv_table *table);

#endif
