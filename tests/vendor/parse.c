/*
 * Finds the kernels in OpenCL C source and reads their argument lists. It is no compiler: it looks
 * for the word `kernel` and understands what may stand between it and the closing parenthesis.
 */
#include "vendor.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *at;
    char *message;
    size_t message_size;
};

static bool fail(struct parser *parser, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->message, parser->message_size, format, arguments);
    va_end(arguments);
    return false;
}

/* A copy of the source with comments and string contents blanked out. */
static char *blank_comments(const char *source)
{
    char *copy = strdup(source);
    enum { CODE, LINE_COMMENT, BLOCK_COMMENT, STRING } where = CODE;
    for (char *c = copy; c != NULL && *c != '\0'; c++) {
        switch (where) {
        case CODE:
            if (c[0] == '/' && c[1] == '/') {
                where = LINE_COMMENT;
                c[0] = ' ';
            } else if (c[0] == '/' && c[1] == '*') {
                where = BLOCK_COMMENT;
                c[0] = c[1] = ' ';
                c++;
            } else if (c[0] == '"') {
                where = STRING;
            }
            break;
        case LINE_COMMENT:
            if (*c == '\n') {
                where = CODE;
            } else {
                *c = ' ';
            }
            break;
        case BLOCK_COMMENT:
            if (c[0] == '*' && c[1] == '/') {
                where = CODE;
                c[0] = c[1] = ' ';
                c++;
            } else if (*c != '\n') {
                *c = ' ';
            }
            break;
        case STRING:
            if (c[0] == '\\' && c[1] != '\0') {
                c[0] = c[1] = ' ';
                c++;
            } else if (*c == '"' || *c == '\n') {
                where = CODE;
            } else {
                *c = ' ';
            }
            break;
        }
    }
    return copy;
}

/* Blanks out preprocessor lines: a macro that makes kernels is beyond this parser. */
static void blank_directives(char *text)
{
    bool directive = false, line_start = true;
    for (char *c = text; *c != '\0'; c++) {
        if (*c == '\n') {
            bool continued = directive && c > text && c[-1] == '\\';
            directive = continued;
            line_start = true;
        } else {
            directive = directive || (line_start && *c == '#');
            line_start = line_start && isspace((unsigned char)*c);
        }
        if (directive && *c != '\n' && !(c[0] == '\\' && c[1] == '\n')) {
            *c = ' ';
        }
    }
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '\\' ? ' ' : *c;
    }
}

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The next word, or one punctuation character; false at the end of the text. */
static bool next_token(const char **at, char *token, size_t size)
{
    const char *c = *at;
    while (isspace((unsigned char)*c)) {
        c++;
    }
    if (*c == '\0') {
        *at = c;
        return false;
    }
    size_t length = 0;
    if (!is_word_char(*c)) {
        token[length++] = *c++;
    } else {
        while (is_word_char(*c)) {
            if (length + 1 < size) {
                token[length++] = *c;
            }
            c++;
        }
    }
    token[length] = '\0';
    *at = c;
    return true;
}

/* The text inside the parentheses that open next, which may be nested. */
static bool parenthesised(struct parser *parser, char *text, size_t size)
{
    char token[96];
    if (!next_token(&parser->at, token, sizeof token) || token[0] != '(') {
        return fail(parser, "'(' expected near '%.20s'", parser->at);
    }
    const char *start = parser->at;
    unsigned depth = 1;
    const char *c = start;
    for (; *c != '\0'; c++) {
        depth += *c == '(' ? 1 : 0;
        depth -= *c == ')' ? 1 : 0;
        if (depth == 0) {
            break;
        }
    }
    if (*c == '\0' || (size_t)(c - start) >= size) {
        return fail(parser, "parentheses do not close, or hold too much");
    }
    memcpy(text, start, (size_t)(c - start));
    text[c - start] = '\0';
    parser->at = c + 1;
    return true;
}

/* ---- arguments ------------------------------------------------------------------------------*/

static size_t value_bytes(const char *type)
{
    static const struct {
        const char *name;
        size_t bytes;
    } scalars[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2},  {"int", 4},
                   {"uint", 4}, {"float", 4}, {"long", 8},  {"ulong", 8},  {"double", 8}};
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        size_t length = strlen(scalars[i].name);
        if (strncmp(type, scalars[i].name, length) != 0) {
            continue;
        }
        const char *width = type + length;
        if (*width == '\0') {
            return scalars[i].bytes;
        }
        static const struct {
            const char *text;
            size_t lanes;
        } widths[] = {{"2", 2}, {"3", 4}, {"4", 4}, {"8", 8}, {"16", 16}};
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            if (strcmp(width, widths[w].text) == 0) {
                return scalars[i].bytes * widths[w].lanes;
            }
        }
    }
    return 0;
}

static bool one_of(const char *word, const char *first, const char *second)
{
    return strcmp(word, first) == 0 || strcmp(word, second) == 0;
}

/* True if the word is a qualifier, and then it is noted in the argument. */
static bool take_qualifier(const char *word, struct dv_arg_signature *arg)
{
    if (one_of(word, "__global", "global")) {
        arg->address = CL_KERNEL_ARG_ADDRESS_GLOBAL;
    } else if (one_of(word, "__local", "local")) {
        arg->address = CL_KERNEL_ARG_ADDRESS_LOCAL;
    } else if (one_of(word, "__constant", "constant")) {
        arg->address = CL_KERNEL_ARG_ADDRESS_CONSTANT;
        arg->type_qualifier |= CL_KERNEL_ARG_TYPE_CONST;
    } else if (one_of(word, "__private", "private")) {
        arg->address = CL_KERNEL_ARG_ADDRESS_PRIVATE;
    } else if (one_of(word, "__read_only", "read_only")) {
        arg->access = CL_KERNEL_ARG_ACCESS_READ_ONLY;
    } else if (one_of(word, "__write_only", "write_only")) {
        arg->access = CL_KERNEL_ARG_ACCESS_WRITE_ONLY;
    } else if (one_of(word, "__read_write", "read_write")) {
        arg->access = CL_KERNEL_ARG_ACCESS_READ_WRITE;
    } else if (strcmp(word, "const") == 0) {
        arg->type_qualifier |= CL_KERNEL_ARG_TYPE_CONST;
    } else if (strcmp(word, "volatile") == 0) {
        arg->type_qualifier |= CL_KERNEL_ARG_TYPE_VOLATILE;
    } else if (one_of(word, "restrict", "__restrict")) {
        arg->type_qualifier |= CL_KERNEL_ARG_TYPE_RESTRICT;
    } else {
        return false;
    }
    return true;
}

static void classify(struct dv_arg_signature *arg, bool pointer)
{
    if (strncmp(arg->type_name, "image", 5) == 0 && !pointer) {
        arg->class = DV_ARG_IMAGE;
        arg->address = CL_KERNEL_ARG_ADDRESS_GLOBAL;
        if (arg->access == CL_KERNEL_ARG_ACCESS_NONE) {
            arg->access = CL_KERNEL_ARG_ACCESS_READ_ONLY;
        }
    } else if (strcmp(arg->type_name, "sampler_t") == 0 && !pointer) {
        arg->class = DV_ARG_SAMPLER;
    } else if (!pointer) {
        arg->class = DV_ARG_VALUE;
        arg->value_bytes = value_bytes(arg->type_name);
        arg->type_qualifier = CL_KERNEL_ARG_TYPE_NONE; /* of a value, nothing is reported */
    } else {
        arg->class = arg->address == CL_KERNEL_ARG_ADDRESS_LOCAL ? DV_ARG_LOCAL : DV_ARG_BUFFER;
        strncat(arg->type_name, "*", sizeof arg->type_name - strlen(arg->type_name) - 1);
    }
}

static bool parse_argument(struct parser *parser, const char *text, struct dv_arg_signature *arg)
{
    *arg = (struct dv_arg_signature){.address = CL_KERNEL_ARG_ADDRESS_PRIVATE, .access = CL_KERNEL_ARG_ACCESS_NONE};
    char words[4][64];
    unsigned count = 0;
    bool pointer = false;
    bool is_unsigned = false;
    char token[64];
    for (const char *at = text; next_token(&at, token, sizeof token);) {
        if (token[0] == '*') {
            pointer = true;
        } else if (strcmp(token, "unsigned") == 0) {
            is_unsigned = true;
        } else if (take_qualifier(token, arg) || strcmp(token, "signed") == 0) {
            continue;
        } else if (!is_word_char(token[0]) || count == 4) {
            return fail(parser, "argument not understood: '%.60s'", text);
        } else {
            snprintf(words[count++], sizeof words[0], "%s", token);
        }
    }
    if (count == 0 || (count == 1 && !is_unsigned)) {
        return fail(parser, "argument without a name or type: '%.60s'", text);
    }
    snprintf(arg->name, sizeof arg->name, "%s", words[count - 1]);
    size_t used = 0;
    if (is_unsigned) {
        used = (size_t)snprintf(arg->type_name, sizeof arg->type_name, "u%s", count == 1 ? "int" : "");
    }
    for (unsigned i = 0; i + 1 < count && used < sizeof arg->type_name; i++) {
        used +=
            (size_t)snprintf(arg->type_name + used, sizeof arg->type_name - used, "%s%s", i > 0 ? " " : "", words[i]);
    }
    classify(arg, pointer);
    if (pointer && arg->address == CL_KERNEL_ARG_ADDRESS_PRIVATE) {
        return fail(parser, "pointer argument without an address space: '%.60s'", text);
    }
    return true;
}

static bool parse_arguments(struct parser *parser, char *list, struct dv_signature *signature)
{
    char token[8];
    const char *peek = list;
    bool any = next_token(&peek, token, sizeof token);
    const char *rest = peek;
    char more[8];
    if (!any || (strcmp(token, "void") == 0 && !next_token(&rest, more, sizeof more))) {
        return true;
    }
    for (char *text = list, *next = NULL; text != NULL; text = next) {
        next = strchr(text, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        if (signature->num_args == DV_MAX_KERNEL_ARGS) {
            return fail(parser, "more than %d arguments", DV_MAX_KERNEL_ARGS);
        }
        if (!parse_argument(parser, text, &signature->args[signature->num_args])) {
            return false;
        }
        signature->num_args++;
    }
    return true;
}

/* ---- kernels --------------------------------------------------------------------------------*/

static bool parse_attribute(struct parser *parser, struct dv_signature *signature)
{
    char text[128];
    if (!parenthesised(parser, text, sizeof text)) {
        return false;
    }
    /* attributes stand in double parentheses */
    char *open = strchr(text, '(');
    char *close = strrchr(text, ')');
    if (open == NULL || close == NULL) {
        return fail(parser, "attribute not understood: '%s'", text);
    }
    *close = '\0';
    snprintf(signature->attributes, sizeof signature->attributes, "%s", open + 1);
    unsigned long x, y, z;
    if (sscanf(open + 1, " reqd_work_group_size ( %lu , %lu , %lu )", &x, &y, &z) == 3) {
        signature->required_group[0] = x;
        signature->required_group[1] = y;
        signature->required_group[2] = z;
    }
    return true;
}

/* From behind the word `kernel`; *is_definition is false for a mere declaration. */
static bool parse_kernel(struct parser *parser, struct dv_signature *signature, bool *is_definition)
{
    char token[96];
    memset(signature, 0, sizeof *signature);
    while (signature->name[0] == '\0') {
        if (!next_token(&parser->at, token, sizeof token)) {
            return fail(parser, "the source ends inside a kernel's declaration");
        }
        if (one_of(token, "__attribute__", "__attribute")) {
            if (!parse_attribute(parser, signature)) {
                return false;
            }
        } else if (!is_word_char(token[0])) {
            return fail(parser, "'%s' in a kernel's declaration", token);
        } else if (strcmp(token, "void") != 0) {
            snprintf(signature->name, sizeof signature->name, "%s", token);
        }
    }
    char list[2048];
    if (!parenthesised(parser, list, sizeof list) || !parse_arguments(parser, list, signature)) {
        return false;
    }
    const char *peek = parser->at;
    *is_definition = next_token(&peek, token, sizeof token) && token[0] == '{';
    if (*is_definition) {
        signature->behaviour = dv_behaviour_find(signature, parser->message, parser->message_size);
        return signature->behaviour != NULL;
    }
    return true;
}

bool dv_source_take_rules(const char *source, char *message, size_t message_size)
{
    static const char marker[] = "#pragma divvy-vendor ";
    for (const char *at = strstr(source, marker); at != NULL; at = strstr(at, marker)) {
        at += sizeof marker - 1;
        char line[256];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (!dv_script_add_rule(line, message, message_size)) {
            return false;
        }
    }
    return true;
}

static bool find_error_directive(struct parser *parser, const char *text)
{
    const char *found = strstr(text, "#error");
    if (found == NULL) {
        return false;
    }
    unsigned line = 1;
    for (const char *c = text; c < found; c++) {
        line += *c == '\n';
    }
    fail(parser, "<source>:%u: error: %.*s", line, (int)strcspn(found, "\n"), found);
    return true;
}

static bool parse_all(struct parser *parser, struct dv_signature **signatures, cl_uint *count)
{
    char token[96];
    while (next_token(&parser->at, token, sizeof token)) {
        if (!one_of(token, "__kernel", "kernel")) {
            continue;
        }
        struct dv_signature *grown = realloc(*signatures, (*count + 1) * sizeof *grown);
        if (grown == NULL) {
            return fail(parser, "out of memory");
        }
        *signatures = grown;
        bool is_definition;
        if (!parse_kernel(parser, &grown[*count], &is_definition)) {
            return false;
        }
        *count += is_definition ? 1 : 0;
    }
    return true;
}

bool dv_source_parse(const char *source, struct dv_signature **signatures, cl_uint *count, char *message,
                     size_t message_size)
{
    *signatures = NULL;
    *count = 0;
    message[0] = '\0';
    char *text = blank_comments(source);
    struct parser parser = {.at = text, .message = message, .message_size = message_size};
    bool good = text != NULL && !find_error_directive(&parser, text);
    if (good) {
        blank_directives(text);
        good = parse_all(&parser, signatures, count);
    }
    free(text);
    if (!good) {
        free(*signatures);
        *signatures = NULL;
        *count = 0;
    }
    return good;
}
