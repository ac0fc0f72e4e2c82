/* Files that a program's source includes. The worker cannot see the application's files, so the client reads them, with
 * the application's own rights, and inserts their text where they are included. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/objects.h"

#define DEPTH_MAX 64
#define ONCE_MAX 1024    /* files with #pragma once */
#define BRANCHES_MAX 256 /* nested conditions */

/* A file, identified by device and inode number. */
struct file {
    dev_t device;
    ino_t number;
    char path[PATH_MAX];
    const struct file *includer; /* NULL: the program itself */
};

struct expansion {
    char *text;
    size_t length, room;
    const char *options;        /* with -I and absolute directories */
    const char *const *headers; /* names that the vendor gets by other means */
    size_t header_count;
    struct {
        dev_t device;
        ino_t number;
        unsigned branch; /* in which it was inserted */
    } once[ONCE_MAX];
    size_t once_count;
    unsigned branches[BRANCHES_MAX]; /* numbers of the conditional branches around the current line */
    size_t branch_count;
    unsigned last_branch;
    bool in_comment;
    bool any;    /* something was included */
    bool failed; /* too long, or no memory */
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

/* Tells the compiler where the next line comes from. */
static void append_place(struct expansion *e, int line, const char *path)
{
    char text[PATH_MAX + 32];
    int length = snprintf(text, sizeof text, "\n#line %d \"%s\"\n", line, path);

    append(e, text, (size_t)length);
}

static char *read_file(struct expansion *e, struct file *file)
{
    DV_AUTO_CLOSE int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size > DV_MAX_PROGRAM_BYTES)
        return NULL;
    char *text = malloc((size_t)info.st_size + 1);
    ssize_t length = text ? read(fd, text, (size_t)info.st_size) : -1;
    e->failed |= !text;
    if (length < 0) {
        free(text);
        return NULL;
    }
    text[length] = '\0';
    file->device = info.st_dev;
    file->number = info.st_ino;
    return text;
}

/* Finds the next -I directory in the options, from `at` on. Returns where to continue, or NULL. */
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

/* The text of an included file; NULL: the compiler may know it. */
static char *find_file(struct expansion *e, const char *name, bool quoted, struct file *file)
{
    const char *beside = quoted && file->includer ? file->includer->path : NULL;
    char directory[PATH_MAX];
    char *text = NULL;

    for (size_t i = 0; i < e->header_count; i++)
        if (strcmp(e->headers[i], name) == 0)
            return NULL;
    if (name[0] == '/') {
        memcpy(file->path, name, strlen(name) + 1);
        return read_file(e, file);
    }
    if (beside &&
        snprintf(file->path, PATH_MAX, "%.*s%s", (int)(strrchr(beside, '/') + 1 - beside), beside, name) < PATH_MAX &&
        (text = read_file(e, file)))
        return text;
    for (const char *at = e->options; (at = next_directory(e->options, at, directory));)
        if (snprintf(file->path, PATH_MAX, "%s/%s", directory, name) < PATH_MAX && (text = read_file(e, file)))
            return text;
    return NULL;
}

/* Reads the name from a line such as #include "name"; quoted: it is in quotation marks. */
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

static bool same(const struct file *file, dev_t device, ino_t number)
{
    return file->device == device && file->number == number;
}

/* Whether the file is being expanded, so that its include guard is already defined. */
static bool is_open(const struct file *file)
{
    for (const struct file *f = file->includer; f; f = f->includer)
        if (same(file, f->device, f->number))
            return true;
    return false;
}

/* The innermost branch around the current line; 0: none. */
static unsigned branch_of(const struct expansion *e)
{
    size_t count = e->branch_count;

    return count == 0 ? 0 : e->branches[(count < BRANCHES_MAX ? count : BRANCHES_MAX) - 1];
}

/* Whether the branch is compiled whenever the current line is. */
static bool is_within(const struct expansion *e, unsigned branch)
{
    bool found = branch == 0;

    for (size_t i = 0; i < e->branch_count && i < BRANCHES_MAX; i++)
        found |= e->branches[i] == branch;
    return found;
}

/* The number of a file with #pragma once, or ONCE_MAX if there are too many. *there: it is surely included already. */
static size_t find_once(struct expansion *e, const struct file *file, bool *there)
{
    size_t i = 0;

    while (i < e->once_count && !same(file, e->once[i].device, e->once[i].number))
        i++;
    *there = i < e->once_count && is_within(e, e->once[i].branch);
    if (i == ONCE_MAX || *there)
        return i;
    if (i == e->once_count)
        e->once_count++;
    e->once[i].device = file->device;
    e->once[i].number = file->number;
    e->once[i].branch = branch_of(e);
    return i;
}

static void expand(struct expansion *e, const char *text, const struct file *of, int depth);

/* Inserts the text of a file. Whether it is included already can depend on conditions that only the compiler knows.
 * Then the compiler decides. */
static void put_text(struct expansion *e, const char *text, const struct file *file, int depth)
{
    size_t branch_count = e->branch_count;
    bool there = is_open(file);
    size_t once = !there && strstr(text, "#pragma once") ? find_once(e, file, &there) : ONCE_MAX;
    char guard[96];

    if (there)
        return;
    if (once < ONCE_MAX)
        append(e, guard,
               (size_t)snprintf(guard, sizeof guard, "\n#ifndef DIVVY_ONCE_%zu\n#define DIVVY_ONCE_%zu\n", once, once));
    append_place(e, 1, file->path);
    expand(e, text, file, depth + 1);
    e->branch_count = branch_count;
    if (once < ONCE_MAX)
        append(e, "\n#endif\n", strlen("\n#endif\n"));
}

/* Inserts a file if the line includes one. Returns whether it did. */
static bool put_in(struct expansion *e, const char *line, size_t length, const struct file *of, int depth)
{
    char name[PATH_MAX];
    bool quoted;

    if (depth == DEPTH_MAX || !included_name(line, length, name, &quoted))
        return false;
    DV_AUTO_FREE struct file *file = calloc(1, sizeof *file);
    if (!file) {
        e->failed = true;
        return false;
    }
    file->includer = of;
    DV_AUTO_FREE char *text = find_file(e, name, quoted, file);
    if (!text)
        return false;
    e->any = true;
    put_text(e, text, file, depth);
    return true;
}

static void pass_condition(struct expansion *e, const char *line)
{
    const char *word = line + strspn(line, " \t");

    if (*word != '#')
        return;
    word += 1 + strspn(word + 1, " \t");
    bool begins = strncmp(word, "if", 2) == 0, ends = strncmp(word, "endif", 5) == 0;
    if (ends || strncmp(word, "el", 2) == 0)
        e->branch_count -= e->branch_count > 0;
    if (begins || strncmp(word, "el", 2) == 0) {
        if (e->branch_count < BRANCHES_MAX)
            e->branches[e->branch_count] = ++e->last_branch;
        e->branch_count++;
    }
}

/* Tracks conditions, and comments that the line begins or ends. */
static void pass_line(struct expansion *e, const char *line, size_t length)
{
    const char *at = line, *end = line + length;
    char quote = '\0';

    if (!e->in_comment)
        pass_condition(e, line);
    for (; at < end; at++) {
        bool two = at + 1 < end;
        if (e->in_comment) {
            e->in_comment = !(two && at[0] == '*' && at[1] == '/');
            at += !e->in_comment;
        } else if (quote) {
            at += *at == '\\';
            if (at < end && *at == quote)
                quote = '\0';
        } else if (*at == '"' || *at == '\'') {
            quote = *at;
        } else if (two && at[0] == '/' && at[1] == '/') {
            return;
        } else if (two && at[0] == '/' && at[1] == '*') {
            e->in_comment = true;
            at++;
        }
    }
}

/* of: the file that contains the text; NULL: the program's own source. */
static void expand(struct expansion *e, const char *text, const struct file *of, int depth)
{
    int number = 1;

    for (const char *line = text; *line && !e->failed; number++) {
        size_t length = strcspn(line, "\n");
        if (!e->in_comment && put_in(e, line, length, of, depth)) {
            append_place(e, number + 1, of ? of->path : "program");
            pass_line(e, line, length);
            if (e->in_comment) /* it began after the file name */
                append(e, "/*", 2);
        } else {
            append(e, line, length);
            append(e, "\n", 1);
            pass_line(e, line, length);
        }
        line += length + (line[length] == '\n');
    }
}

cl_int dvc_source_with_includes(const char *source, const char *options, const char *const *headers,
                                size_t header_count, char **expanded)
{
    struct expansion *e = calloc(1, sizeof *e);

    *expanded = NULL;
    if (!e)
        return CL_OUT_OF_HOST_MEMORY;
    e->options = options;
    e->headers = headers;
    e->header_count = headers ? header_count : 0;
    expand(e, source, NULL, 0);
    cl_int error = e->failed ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
    if (e->any && !e->failed)
        *expanded = e->text;
    else
        free(e->text);
    free(e);
    return error;
}
