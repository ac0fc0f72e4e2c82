/* Files that a program's source includes. The worker cannot see the application's files, so the client
 * reads them, with the application's own rights, and puts their text where they are included. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/client.h"

#define DEPTH_MOST 64
#define ONCE_MOST 1024 /* files that say they want to be included once */

struct expansion {
    char *text;
    size_t length, room;
    const char *options;        /* with -I and absolute directories */
    const char *const *headers; /* names that the vendor is given by other means */
    size_t header_count;
    ino_t once[ONCE_MOST];
    size_t once_count;
    bool any; /* something was included */
    bool failed;
};

static void append(struct expansion *e, const char *text, size_t length)
{
    if (e->failed || e->length + length > DV_MAX_PROGRAM_BYTES) {
        e->failed = true;
        return;
    }
    if (e->length + length + 1 > e->room) {
        size_t room = 2 * (e->length + length + 1);
        char *grown = realloc(e->text, room);
        if (!grown) {
            e->failed = true;
            return;
        }
        e->text = grown;
        e->room = room;
    }
    memcpy(e->text + e->length, text, length);
    e->length += length;
    e->text[e->length] = '\0';
}

/* Says to the compiler where the next line comes from. */
static void append_place(struct expansion *e, int line, const char *path)
{
    char text[PATH_MAX + 32];
    int length = snprintf(text, sizeof text, "\n#line %d \"%s\"\n", line, path);

    append(e, text, (size_t)length);
}

static char *read_file(const char *path, ino_t *id)
{
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size > DV_MAX_PROGRAM_BYTES)
        return NULL;
    char *text = malloc((size_t)info.st_size + 1);
    ssize_t length = text ? read(fd, text, (size_t)info.st_size) : -1;
    if (length < 0) {
        free(text);
        return NULL;
    }
    text[length] = '\0';
    *id = info.st_ino;
    return text;
}

/* The next directory of the options' -I, from `at` on; returns where to look on, or NULL. */
static const char *next_directory(const char *options, const char *at, char directory[PATH_MAX])
{
    while ((at = strstr(at, "-I"))) {
        bool starts = at == options || at[-1] == ' ' || at[-1] == '\t';
        at += 2;
        if (!starts)
            continue;
        at += strspn(at, " ");
        const char *end = *at == '"' ? "\"" : " \t";
        at += *at == '"';
        size_t length = strcspn(at, end);
        if (length > 0 && length < PATH_MAX) {
            memcpy(directory, at, length);
            directory[length] = '\0';
            return at + length;
        }
    }
    return NULL;
}

/* The text of an included file, and its path; NULL: the compiler may know it. */
static char *find_file(const struct expansion *e, const char *name, const char *beside,
                       char path[PATH_MAX], ino_t *id)
{
    char directory[PATH_MAX];
    char *text = NULL;

    for (size_t i = 0; i < e->header_count; i++)
        if (strcmp(e->headers[i], name) == 0)
            return NULL;
    if (beside && snprintf(path, PATH_MAX, "%.*s%s", (int)(strrchr(beside, '/') + 1 - beside), beside,
                           name) < PATH_MAX &&
        (text = read_file(path, id)))
        return text;
    for (const char *at = e->options; (at = next_directory(e->options, at, directory));)
        if (snprintf(path, PATH_MAX, "%s/%s", directory, name) < PATH_MAX &&
            (text = read_file(path, id)))
            return text;
    return NULL;
}

/* Takes the name out of a line such as #include "name"; quoted: it is in quotation marks. */
static bool included_name(const char *line, size_t length, char name[PATH_MAX], bool *quoted)
{
    const char *at = line, *end = line + length;

    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == end || *at++ != '#')
        return false;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (end - at < 7 || strncmp(at, "include", 7) != 0)
        return false;
    at += 7;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == end || (*at != '"' && *at != '<'))
        return false;
    *quoted = *at == '"';
    const char *close = memchr(at + 1, *quoted ? '"' : '>', (size_t)(end - at - 1));
    if (!close || close - at - 1 >= PATH_MAX || close == at + 1)
        return false;
    memcpy(name, at + 1, (size_t)(close - at - 1));
    name[close - at - 1] = '\0';
    return true;
}

static bool was_included(struct expansion *e, const char *text, ino_t id)
{
    if (!strstr(text, "#pragma once"))
        return false;
    for (size_t i = 0; i < e->once_count; i++)
        if (e->once[i] == id)
            return true;
    if (e->once_count < ONCE_MOST)
        e->once[e->once_count++] = id;
    return false;
}

/* path: of the text; NULL: it is the program's own. */
static void expand(struct expansion *e, const char *text, const char *path, int depth)
{
    int number = 1;

    for (const char *line = text; *line && !e->failed; number++) {
        size_t length = strcspn(line, "\n");
        DV_AUTO_FREE char *name = malloc(2 * PATH_MAX);
        char *found = name ? name + PATH_MAX : NULL, *inner = NULL;
        bool quoted;
        ino_t id;
        if (name && depth < DEPTH_MOST && included_name(line, length, name, &quoted))
            inner = find_file(e, name, quoted ? path : NULL, found, &id);
        if (inner) {
            e->any = true;
            if (!was_included(e, inner, id)) {
                append_place(e, 1, found);
                expand(e, inner, found, depth + 1);
            }
            append_place(e, number + 1, path ? path : "program");
            free(inner);
        } else {
            append(e, line, length);
            append(e, "\n", 1);
        }
        line += length + (line[length] == '\n');
    }
}

char *dv_source_with_includes(const char *source, const char *options, const char *const *headers,
                              size_t header_count)
{
    struct expansion *e = calloc(1, sizeof *e);
    char *text = NULL;

    if (!e)
        return NULL;
    e->options = options;
    e->headers = headers;
    e->header_count = headers ? header_count : 0;
    expand(e, source, NULL, 0);
    if (e->any && !e->failed) {
        text = e->text;
        e->text = NULL;
    }
    free(e->text);
    free(e);
    return text;
}
