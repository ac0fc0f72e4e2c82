/* Aligned tables (see table.h). */
#include "src/cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define GAP 2

static void add_text(struct dv_table *table, char *text)
{
    if (table->cells == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 64;
        char **longer = realloc(table->text, capacity * sizeof *longer);
        if (!longer) {
            free(text);
            return;
        }
        table->text = longer;
        table->capacity = capacity;
    }
    table->text[table->cells++] = text;
}

void dv_table_init(struct dv_table *table, size_t columns, const char *const *heading, const bool *right)
{
    *table = (struct dv_table){.columns = columns, .right = right};
    for (size_t i = 0; i < columns; i++)
        add_text(table, strdup(heading[i]));
}

void dv_table_add(struct dv_table *table, const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    add_text(table, text);
}

/* Width on the screen, which is less than the bytes of a name with accents. */
static size_t width_of(const char *text)
{
    wchar_t wide[256] = L"";

    if (!text)
        return 0;
    size_t count = mbstowcs(wide, text, sizeof wide / sizeof wide[0]);
    if (count == (size_t)-1 || count == sizeof wide / sizeof wide[0])
        return strlen(text);
    int width = wcswidth(wide, count);
    return width < 0 ? strlen(text) : (size_t)width;
}

static size_t column_width(const struct dv_table *table, size_t column)
{
    size_t widest = 0;

    for (size_t i = column; i < table->cells; i += table->columns)
        if (width_of(table->text[i]) > widest)
            widest = width_of(table->text[i]);
    return widest;
}

void dv_table_finish(struct dv_table *table)
{
    size_t *widths = calloc(table->columns, sizeof *widths);

    for (size_t i = 0; widths && i < table->columns; i++)
        widths[i] = column_width(table, i);
    for (size_t i = 0; widths && i < table->cells; i++) {
        size_t column = i % table->columns;
        bool last = column + 1 == table->columns;
        const char *text = table->text[i] ? table->text[i] : "";
        int fill = (int)(widths[column] - width_of(text));
        if (table->right[column])
            printf("%*s%s", fill, "", text);
        else
            printf("%s%*s", text, last ? 0 : fill, "");
        printf("%*s", last ? 0 : GAP, "");
        if (last)
            putchar('\n');
    }
    free(widths);
    for (size_t i = 0; i < table->cells; i++)
        free(table->text[i]);
    free(table->text);
    *table = (struct dv_table){0};
}
