/* Tables with aligned columns for people. */
#ifndef DV_CLI_TABLE_H
#define DV_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct dv_table {
    size_t columns;
    size_t width; /* of the screen: the last column is cut to fit; 0: it is not */
    const unsigned
        *least;        /* the widths down to which columns are cut if the last has no room; 0: a column is not cut */
    size_t last_least; /* what the last column should have then; 0: a few characters */
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

/* The columns of the terminal that stdout is, or 0 when it is none. */
size_t dv_screen_width(void);
/* Whether the locale lets texts have any character. */
bool dv_screen_is_unicode(void);
/* In another locale the terminal may take the bytes of a character for something else: replaces each character beyond
 * ASCII by '?'. */
void dv_screen_make_plain(char *text);
/* The number of bytes of a text that fit into this many columns. */
size_t dv_text_fit(const char *text, size_t columns);
/* Copies as much of the end of a text as fits into this many columns, after "..." where it is not all of it. */
void dv_text_take_end(char *field, size_t bytes, const char *text, size_t columns);
/* The columns that the first bytes of a text take on the screen. */
size_t dv_text_columns(const char *text, size_t bytes);

#endif
