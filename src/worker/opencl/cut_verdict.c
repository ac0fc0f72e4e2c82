/* Verdicts about programs (see cut_verdict.h). They err on the safe side only where the text says what the kernel does:
 * a kernel whose groups wait for each other in a way that is not recognised here would wait bare, too, on a device that
 * runs fewer groups at a time than it has. */
#include "src/worker/opencl/cut_verdict.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static bool is_part_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- texts ---- */

struct text {
    const char *at, *end;
};

static const char *find(struct text text, const char *what)
{
    return memmem(text.at, (size_t)(text.end - text.at), what, strlen(what));
}

static bool has_word(struct text text, const char *word)
{
    size_t length = strlen(word);
    const char *begin = text.at;

    while ((text.at = find(text, word))) {
        bool starts = text.at == begin || !is_part_of_name(text.at[-1]);
        text.at += length;
        if (starts && (text.at == text.end || !is_part_of_name(*text.at)))
            return true;
    }
    return false;
}

static bool has_any_word(struct text text, const char *const *words)
{
    for (; *words; words++)
        if (has_word(text, *words))
            return true;
    return false;
}

static const char *skip_blanks(struct text text)
{
    while (text.at < text.end && isspace((unsigned char)*text.at))
        text.at++;
    return text.at;
}

/* Behind the bracket that closes the one at the beginning of the text; NULL: there is none. */
static const char *behind_brackets(struct text text)
{
    int open = 0;

    for (; text.at < text.end; text.at++) {
        open += *text.at == '(';
        open -= *text.at == ')';
        if (open == 0)
            return text.at + 1;
    }
    return NULL;
}

/* ---- groups that wait for each other ---- */

/* Atomic operations that take part in a lock, or in an update that is tried again: the loop ends by itself as soon as
 * a group that runs has finished its part. */
static const char *const trying[] = {"cmpxchg", "xchg", "compare_exchange", "exchange", "test_and_set", NULL};
static const char *const changing[] = {"++", "--", "+=", "-=", "*=", "/=", "|=", "&=", "^=", ">>=", "<<=", NULL};

static bool has_any(struct text text, const char *const *parts)
{
    for (; *parts; parts++)
        if (find(text, *parts))
            return true;
    return false;
}

/* An atomic operation that reads only: a load, or one that adds nothing. */
static bool reads_atomically(struct text condition)
{
    if (find(condition, "atomic_load"))
        return true;
    while ((condition.at = find(condition, "atom"))) {
        struct text call = {.at = condition.at, .end = condition.end};
        condition.at += strlen("atom");
        const char *open = memchr(call.at, '(', (size_t)(call.end - call.at));
        call.at = open;
        const char *behind = open ? behind_brackets(call) : NULL;
        if (!behind)
            continue;
        for (behind -= 2; behind > open && isspace((unsigned char)*behind); behind--)
            ;
        if (*behind == 'u' || *behind == 'U')
            behind--;
        if (*behind == '0' && !is_part_of_name(behind[-1]))
            return true;
    }
    return false;
}

/* A loop that does nothing until memory changes: another group has to change it, which may not have begun. */
static bool waits_for_memory(struct text condition, bool is_empty)
{
    if (has_any(condition, trying))
        return false;
    if (reads_atomically(condition))
        return true;
    return is_empty &&
           (memchr(condition.at, '[', (size_t)(condition.end - condition.at)) ||
            memchr(condition.at, '*', (size_t)(condition.end - condition.at)) || find(condition, "->") ||
            find(condition, "atom")) &&
           !has_any(condition, changing);
}

static bool groups_wait(struct text text)
{
    const char *begin = text.at;

    while ((text.at = find(text, "while"))) {
        const char *word = text.at;
        text.at += strlen("while");
        if ((word > begin && is_part_of_name(word[-1])) || text.at == text.end)
            continue;
        struct text condition = text;
        condition.at = skip_blanks(text);
        if (condition.at == text.end || *condition.at != '(')
            continue;
        const char *behind = behind_brackets(condition);
        if (!behind)
            continue;
        condition.end = behind;
        const char *body = skip_blanks((struct text){.at = behind, .end = text.end});
        bool is_empty = body < text.end && *body == ';';
        const char *before = word;
        while (before > begin && isspace((unsigned char)before[-1]))
            before--;
        if (is_empty && before > begin && before[-1] == '}') /* the end of do { } while */
            is_empty = false;
        if (waits_for_memory(condition, is_empty))
            return true;
    }
    return false;
}

/* ---- OpenCL C ---- */

/* What a launch with a part of the range answers otherwise. */
static const char *const of_the_range[] = {"get_group_id",      "get_num_groups",       "get_global_size",
                                           "get_global_offset", "get_global_linear_id", NULL};
/* The child kernels of a part would be enqueued before the next part. */
static const char *const beyond_the_range[] = {"enqueue_kernel", "enqueue_marker", NULL};

/* A name of the list can be put together by the preprocessor: get_ ## what ## _id. */
static bool pastes_names(struct text text)
{
    const char *begin = text.at;

    while ((text.at = find(text, "##"))) {
        const char *left = text.at, *right = text.at + 2;
        while (left > begin && (left[-1] == ' ' || left[-1] == '\t'))
            left--;
        const char *name = left;
        while (name > begin && is_part_of_name(name[-1]))
            name--;
        if (left - name >= 3 && memcmp(name, "get", 3) == 0)
            return true;
        while (right < text.end && (*right == ' ' || *right == '\t'))
            right++;
        name = right;
        while (right < text.end && is_part_of_name(*right))
            right++;
        struct text pasted = {.at = name, .end = right};
        if (find(pasted, "_id") || find(pasted, "groups") || find(pasted, "global_"))
            return true;
        text.at += 2;
    }
    return false;
}

struct dvk_verdict dvk_verdict_of_source(const char *source, size_t bytes)
{
    struct text text = {.at = source, .end = source + bytes};

    if (has_any_word(text, beyond_the_range))
        return (struct dvk_verdict){.kind = DV_CUT_WHOLE, .reason = DV_WHOLE_ENQUEUES};
    if (groups_wait(text))
        return (struct dvk_verdict){.kind = DV_CUT_WHOLE, .reason = DV_WHOLE_GROUPS_WAIT};
    bool corrects = has_any_word(text, of_the_range) || pastes_names(text);
    return (struct dvk_verdict){.kind = corrects ? DV_CUT_CORRECTED : DV_CUT_FREE};
}

/* ---- SPIR-V ---- */

enum {
    SPIRV_MAGIC = 0x07230203,
    SPIRV_HEADER_WORDS = 5,
    OP_DECORATE = 71,
    OP_ATOMIC_LOAD = 227,
    OP_ENQUEUE_MARKER = 291,
    OP_ENQUEUE_KERNEL = 292,
    DECORATION_BUILT_IN = 11,
};

static bool differs_in_parts(uint32_t built_in)
{
    switch (built_in) {
    case 24: /* NumWorkgroups */
    case 26: /* WorkgroupId */
    case 31: /* GlobalSize */
    case 33: /* GlobalOffset */
    case 34: /* GlobalLinearId */
        return true;
    default:
        return false;
    }
}

static struct dvk_verdict whole(enum dv_whole_reason reason)
{
    return (struct dvk_verdict){.kind = DV_CUT_WHOLE, .reason = reason};
}

static uint32_t word_at(const uint8_t *module, size_t at, bool swapped)
{
    uint32_t word;

    memcpy(&word, module + 4 * at, sizeof word);
    return swapped ? __builtin_bswap32(word) : word;
}

struct dvk_verdict dvk_verdict_of_il(const void *module, size_t bytes)
{
    size_t words = bytes / 4, length;

    if (words < SPIRV_HEADER_WORDS)
        return whole(DV_WHOLE_BINARY);
    bool swapped = word_at(module, 0, false) == __builtin_bswap32(SPIRV_MAGIC);
    if (word_at(module, 0, swapped) != SPIRV_MAGIC)
        return whole(DV_WHOLE_BINARY);
    for (size_t at = SPIRV_HEADER_WORDS; at < words; at += length) {
        uint32_t first = word_at(module, at, swapped);
        length = first >> 16;
        if (length == 0 || length > words - at)
            return whole(DV_WHOLE_BINARY);
        switch (first & 0xffff) {
        case OP_ENQUEUE_MARKER:
        case OP_ENQUEUE_KERNEL:
            return whole(DV_WHOLE_ENQUEUES);
        case OP_ATOMIC_LOAD:
            return whole(DV_WHOLE_GROUPS_WAIT);
        case OP_DECORATE:
            if (length >= 4 && word_at(module, at + 2, swapped) == DECORATION_BUILT_IN &&
                differs_in_parts(word_at(module, at + 3, swapped)))
                return whole(DV_WHOLE_IL);
            break;
        default:
            break;
        }
    }
    return (struct dvk_verdict){.kind = DV_CUT_FREE};
}

struct dvk_verdict dvk_verdict_of_both(struct dvk_verdict a, struct dvk_verdict b)
{
    return a.kind > b.kind ? a : b;
}
