/* Aligned tables (see table.h). */
#include "src/cli/table.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define GAP 2
#define LAST_LEAST 8

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
    if (text)
        dv_screen_make_plain(text);
    add_text(table, text);
}

size_t dv_screen_width(void)
{
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");

    if (columns && atoi(columns) > 0)
        return (size_t)atoi(columns);
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool dv_screen_is_unicode(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void dv_screen_make_plain(char *text)
{
    char *to = text;

    if (dv_screen_is_unicode())
        return;
    for (const char *from = text; *from; from++) {
        unsigned char byte = (unsigned char)*from;
        if (byte < 0x80)
            *to++ = *from;
        else if (byte >= 0xc0) /* the first byte of a character */
            *to++ = '?';
    }
    *to = '\0';
}

/* The next character of a text: its bytes, and its columns on the screen. */
static size_t next_character(const char *text, mbstate_t *state, size_t *columns)
{
    wchar_t character;
    size_t bytes = mbrtowc(&character, text, MB_CUR_MAX, state);

    if (bytes == (size_t)-1 || bytes == (size_t)-2) { /* not of this locale: the terminal shows something */
        *state = (mbstate_t){0};
        *columns = 1;
        return 1;
    }
    int width = wcwidth(character);
    *columns = width > 0 ? (size_t)width : 0;
    return bytes;
}

size_t dv_text_fit(const char *text, size_t columns)
{
    size_t used = 0, width = 0, more;
    mbstate_t state = {0};

    while (text[used]) {
        size_t bytes = next_character(text + used, &state, &more);
        if (width + more > columns)
            break;
        width += more;
        used += bytes;
    }
    return used;
}

size_t dv_text_columns(const char *text, size_t bytes)
{
    size_t used = 0, width = 0, more;
    mbstate_t state = {0};

    while (used < bytes && text[used]) {
        used += next_character(text + used, &state, &more);
        width += more;
    }
    return width;
}

void dv_text_take_end(char *field, size_t bytes, const char *text, size_t columns)
{
    static const char dots[] = "...";
    size_t from = 0, length = strlen(text);
    bool all = dv_text_columns(text, length) <= columns;

    while (!all && from < length && dv_text_columns(text + from, length - from) + strlen(dots) > columns)
        do
            from++;
        while ((text[from] & 0xc0) == 0x80); /* the rest of a character */
    snprintf(field, bytes, "%s%s", all ? "" : dots, text + from);
}

/* The columns before the last one. */
static size_t width_before_last(const struct dv_table *table, const size_t *widths)
{
    size_t before = 0;

    for (size_t i = 0; i + 1 < table->columns; i++)
        before += widths[i] + GAP;
    return before;
}

static size_t last_room(const struct dv_table *table, const size_t *widths)
{
    size_t before = width_before_last(table, widths);

    return table->width > before + LAST_LEAST ? table->width - before : LAST_LEAST;
}

/* Takes from the widest columns first, until the last one has its room. */
static void shrink(const struct dv_table *table, size_t *widths)
{
    size_t wanted = table->last_least ? table->last_least : LAST_LEAST;

    while (table->width && table->least && width_before_last(table, widths) + wanted > table->width) {
        size_t widest = table->columns;
        for (size_t i = 0; i + 1 < table->columns; i++)
            if (table->least[i] && widths[i] > table->least[i] &&
                (widest == table->columns || widths[i] > widths[widest]))
                widest = i;
        if (widest == table->columns)
            return;
        widths[widest]--;
    }
}

static size_t width_of(const char *text)
{
    return text ? dv_text_columns(text, strlen(text)) : 0;
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
    if (widths)
        shrink(table, widths);
    for (size_t i = 0; widths && i < table->cells; i++) {
        size_t column = i % table->columns;
        bool last = column + 1 == table->columns;
        const char *text = table->text[i] ? table->text[i] : "";
        size_t room = last && table->width ? last_room(table, widths) : widths[column];
        int shown = (int)dv_text_fit(text, room);
        int fill = (int)(room - dv_text_columns(text, (size_t)shown));
        if (table->right[column] && !last)
            printf("%*s%.*s", fill, "", shown, text);
        else
            printf("%.*s%*s", shown, text, last ? 0 : fill, "");
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
