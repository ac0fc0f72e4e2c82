/* The screen of `divvy top` as lines of text, the same for a terminal and for a file. */
#ifndef DV_CLI_TOP_LAYOUT_H
#define DV_CLI_TOP_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "src/cli/top/model.h"

#define DV_TOP_LINE_BYTES 1024

enum dv_top_look { DV_TOP_PLAIN, DV_TOP_HEADING, DV_TOP_BUSY, DV_TOP_WAITS, DV_TOP_IDLE, DV_TOP_SELECTED };

struct dv_top_line {
    char text[DV_TOP_LINE_BYTES];
    enum dv_top_look look;
};

struct dv_top_layout {
    size_t columns;
    size_t name_columns; /* of the longest name */
    bool unicode;        /* the terminal can show blocks */
};

/* How wide the columns of a picture are depends on the names in it. */
void dv_top_layout_fit(struct dv_top_layout *layout, const struct dv_top_model *model);
/* The columns' names. */
void dv_top_layout_heading(const struct dv_top_layout *layout, struct dv_top_line *line);
/* A row of the tree. */
void dv_top_layout_node(const struct dv_top_layout *layout, const struct dv_top_node *node, struct dv_top_line *line);

#endif
