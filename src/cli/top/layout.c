/* Lines of `divvy top` (see layout.h). Widths are those of a terminal with 80 columns; on a wider one the name and the
 * last minute have more room, and from 120 columns on the reason why a session waits. */
#include "src/cli/top/layout.h"

#include <stdio.h>
#include <string.h>

#include "src/cli/table.h"
#include "src/cli/values.h"

enum { NAME = 22, SHARE = 5, BAR = 14, MEMORY = 6, SWAPPED = 6, STATE = 14, MINUTE = 7, GAPS = 6 };
enum { LEAST = 80, WIDE = 120 }; /* columns of the terminal */

/* ---- parts of a line ---- */

static void append(struct dv_top_line *line, const char *text)
{
    size_t used = strlen(line->text);

    snprintf(line->text + used, sizeof line->text - used, "%s", text);
}

/* A text in this many columns of the screen, cut or filled up. */
static void append_cell(struct dv_top_line *line, const char *text, size_t width, bool right)
{
    size_t bytes = dv_text_fit(text, width), columns = dv_text_columns(text, bytes);
    char cell[DV_TOP_LINE_BYTES];

    snprintf(cell, sizeof cell, "%*s%.*s%*s", right ? (int)(width - columns) : 0, "", (int)bytes, text,
             right ? 0 : (int)(width - columns), "");
    append(line, cell);
}

/* "[|||||:::  L ]": filled up to the part, with marks where the request and the limit are. */
static void append_bar(struct dv_top_line *line, double part, double request, double limit, size_t width)
{
    char bar[128];
    size_t inner = width - 2 < sizeof bar ? width - 2 : sizeof bar - 1;
    size_t filled = part > 0 ? (size_t)(part * (double)inner + 0.5) : 0;

    memset(bar, ' ', inner);
    memset(bar, '|', filled < inner ? filled : inner);
    if (limit > 0 && limit < 0.995)
        bar[(size_t)(limit * (double)(inner - 1) + 0.5)] = 'L';
    if (request > 0.005)
        bar[(size_t)((request < 1 ? request : 1) * (double)(inner - 1) + 0.5)] = 'R';
    bar[inner] = '\0';
    append(line, "[");
    append(line, bar);
    append(line, "]");
}

static void format_bytes(char *field, size_t bytes, uint64_t size)
{
    static const char units[] = "BKMGTPE";
    double value = (double)size;
    size_t unit = 0;

    while (value >= 1000 && unit + 2 < sizeof units) {
        value /= 1024;
        unit++;
    }
    snprintf(field, bytes, unit && value < 10 ? "%.1f%c" : "%.0f%c", value, units[unit]);
}

static void append_bytes(struct dv_top_line *line, uint64_t size, size_t width)
{
    char text[32];

    format_bytes(text, sizeof text, size);
    append_cell(line, text, width, true);
}

/* The last minute, in as many steps as there are columns. */
static void append_minute(struct dv_top_line *line, const struct dv_top_history *history, size_t width, bool unicode)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const signs[] = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};

    for (size_t i = 0; history && i < width; i++) {
        size_t from = i * DV_TOP_MINUTE / width, to = (i + 1) * DV_TOP_MINUTE / width;
        to += to == from; /* there are more columns than seconds */
        double sum = 0;
        int count = 0;
        for (size_t k = from; k < to; k++)
            if (history->parts[k] >= 0) {
                sum += history->parts[k];
                count++;
            }
        double part = count ? sum / count : 0;
        int level = part < 0.01 ? 0 : 1 + (int)(part * 7 + 0.5);
        append(line, (unicode ? blocks : signs)[level > 8 ? 8 : level]);
    }
}

/* ---- lines ---- */

struct widths {
    size_t name, minute, because; /* because 0: there is no room for it */
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct widths widths_for(const struct dv_top_layout *layout)
{
    size_t more = layout->columns > LEAST ? layout->columns - LEAST : 0;

    if (layout->columns < WIDE)
        return (struct widths){.name = NAME + more / 2, .minute = MINUTE + more - more / 2};
    size_t name = layout->name_columns > NAME ? lesser(layout->name_columns - NAME, more / 2) : 0;
    size_t minute = (more - name) / 4;
    return (struct widths){.name = NAME + name, .minute = MINUTE + minute, .because = more - name - minute - 1};
}

static void name_node(const struct dv_top_node *node, char *name, size_t bytes)
{
    if (node->kind == DV_TOP_DEVICE)
        snprintf(name, bytes, "%llu %s", (unsigned long long)node->id, node->name);
    else if (node->kind == DV_TOP_TENANT)
        snprintf(name, bytes, "  %s", node->name);
    else
        snprintf(name, bytes, "    %llu %s", (unsigned long long)node->id, node->name);
}

void dv_top_layout_fit(struct dv_top_layout *layout, const struct dv_top_model *model)
{
    char name[256];

    layout->name_columns = 0;
    for (size_t i = 0; i < model->count; i++) {
        if (model->nodes[i].kind == DV_TOP_DEVICE)
            continue;
        name_node(&model->nodes[i], name, sizeof name);
        size_t columns = dv_text_columns(name, strlen(name));
        if (columns > layout->name_columns)
            layout->name_columns = columns;
    }
}

void dv_top_layout_heading(const struct dv_top_layout *layout, struct dv_top_line *line)
{
    struct widths widths = widths_for(layout);

    *line = (struct dv_top_line){.look = DV_TOP_HEADING};
    append_cell(line, "DEVICE / TENANT / SES.", widths.name, false);
    append(line, " ");
    append_cell(line, "SHARE", SHARE, true);
    append(line, " ");
    append_cell(line, " 0%       100%", BAR, false);
    append(line, " ");
    append_cell(line, "MEM", MEMORY, true);
    append(line, " ");
    append_cell(line, "SWAP", SWAPPED, true);
    append(line, " ");
    append_cell(line, "STATE", STATE, false);
    append(line, " ");
    append_cell(line, "MINUTE", widths.minute, false);
    if (widths.because)
        append(line, " BECAUSE");
}

/* How long it lasts is left out where there is no room for it. */
static void describe_state(const struct dv_top_node *node, char *state, size_t bytes)
{
    const char *word = strcmp(node->state, "waiting for memory") == 0 ? "needs memory" : node->state;
    char since[32];

    if (node->kind == DV_TOP_DEVICE && node->waiting)
        snprintf(state, bytes, "%u of %u wait%s", node->waiting, node->sessions, node->waiting == 1 ? "s" : "");
    else if (node->kind == DV_TOP_DEVICE)
        snprintf(state, bytes, "%u session%s", node->sessions, node->sessions == 1 ? "" : "s");
    else if (node->kind == DV_TOP_TENANT || strcmp(node->state, "computing") == 0) {
        snprintf(state, bytes, "%s", word);
    } else {
        dv_value_format_brief(since, sizeof since, node->state_s);
        bool fits = strlen(word) + 1 + strlen(since) <= STATE;
        snprintf(state, bytes, "%s%s%s", word, fits ? " " : "", fits ? since : "");
    }
}

static enum dv_top_look look_of(const struct dv_top_node *node)
{
    if (node->kind == DV_TOP_DEVICE)
        return DV_TOP_HEADING;
    if (strncmp(node->state, "waiting", 7) == 0 || node->at_limit)
        return DV_TOP_WAITS;
    return strcmp(node->state, "idle") == 0 ? DV_TOP_IDLE : DV_TOP_BUSY;
}

/* A device: how busy it is, and how much of its memory is in use. */
static void lay_out_device(const struct dv_top_layout *layout, const struct dv_top_node *node, const char *name,
                           const char *share, const char *state, struct dv_top_line *line)
{
    enum { SHORT_NAME = 18, SHORT_BAR = 12, SIZES = 10 };
    size_t more = layout->columns > LEAST ? layout->columns - LEAST : 0;
    double memory = node->capacity_bytes ? (double)node->memory_bytes / (double)node->capacity_bytes : 0;
    char sizes[64];

    format_bytes(sizes, sizeof sizes, node->memory_bytes);
    size_t used = strlen(sizes);
    sizes[used] = '/';
    format_bytes(sizes + used + 1, sizeof sizes - used - 1, node->capacity_bytes);
    append_cell(line, name, SHORT_NAME + more / 2, false);
    append(line, " ");
    append_cell(line, share, SHARE, true);
    append(line, " ");
    append_bar(line, node->part, 0, 0, SHORT_BAR);
    append(line, " mem ");
    append_bar(line, memory, 0, 0, SHORT_BAR);
    append(line, " ");
    append_cell(line, sizes, SIZES, false);
    append(line, " ");
    append_cell(line, state, STATE, false);
    append_minute(line, node->history, more - more / 2, layout->unicode);
}

void dv_top_layout_node(const struct dv_top_layout *layout, const struct dv_top_node *node, struct dv_top_line *line)
{
    struct widths widths = widths_for(layout);
    char name[256], share[16] = "-", state[96], because[sizeof node->because];

    *line = (struct dv_top_line){.look = look_of(node)};
    name_node(node, name, sizeof name);
    dv_screen_make_plain(name);
    describe_state(node, state, sizeof state);
    if (node->part >= 0)
        snprintf(share, sizeof share, "%.0f%%", 100 * node->part);
    if (node->kind == DV_TOP_DEVICE) {
        lay_out_device(layout, node, name, share, state, line);
        return;
    }
    append_cell(line, name, widths.name, false);
    append(line, " ");
    append_cell(line, share, SHARE, true);
    append(line, " ");
    append_bar(line, node->part, node->request, node->kind == DV_TOP_TENANT ? node->limit : 0, BAR);
    append(line, " ");
    append_bytes(line, node->resident_bytes, MEMORY);
    append(line, " ");
    if (node->knows_swapped)
        append_bytes(line, node->swapped_bytes, SWAPPED);
    else
        append_cell(line, "-", SWAPPED, true);
    append(line, " ");
    append_cell(line, state, STATE, false);
    append(line, " ");
    append_minute(line, node->history, widths.minute, layout->unicode);
    if (!widths.because || !node->because[0])
        return;
    snprintf(because, sizeof because, "%s", node->because);
    dv_screen_make_plain(because);
    append(line, " ");
    append_cell(line, because, widths.because, false);
}
