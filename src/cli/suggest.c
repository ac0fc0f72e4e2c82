/* A command line to try instead of one that was refused (see suggest.h). */
#include "src/cli/suggest.h"

#include <stdio.h>
#include <string.h>

#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_"

struct line {
    char *text;
    size_t bytes, used;
    bool fails;
};

static void put(struct line *line, const char *text, size_t length)
{
    if (line->used + length >= line->bytes) {
        line->fails = true;
        return;
    }
    memcpy(line->text + line->used, text, length);
    line->used += length;
    line->text[line->used] = '\0';
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static bool is_shown(const char *word)
{
    for (; *word; word++)
        if ((unsigned char)*word < ' ' || *word == 127)
            return false;
    return true;
}

static void put_word(struct line *line, const char *word)
{
    line->fails |= !is_shown(word);
    put_text(line, " ");
    if (word[0] && !word[strspn(word, PLAIN)]) {
        put_text(line, word);
        return;
    }
    put_text(line, "'");
    while (*word) {
        size_t length = strcspn(word, "'");
        put(line, word, length);
        word += length;
        if (*word) {
            put_text(line, "'\\''");
            word++;
        }
    }
    put_text(line, "'");
}

/* How many words the option for a request takes, however far it is abbreviated. 0: it is another one. */
static int request_words(const char *word)
{
    size_t length = strcspn(word, "=");

    if (length < 3 || length > strlen("--request") || strncmp(word, "--request", length) != 0)
        return 0;
    return word[length] ? 1 : 2;
}

bool dv_cli_suggest_without_request(const struct dv_cli_words *words, char *text, size_t bytes)
{
    struct line line = {.text = text, .bytes = bytes};

    put_text(&line, "divvy run --request 0%");
    for (int i = 1; i < words->program;) {
        int skipped = request_words(words->all[i]);
        if (!skipped && strcmp(words->all[i], "--") != 0)
            put_word(&line, words->all[i]);
        i += skipped ? skipped : 1;
    }
    put_text(&line, " --");
    for (int i = words->program; words->all[i]; i++)
        put_word(&line, words->all[i]);
    return !line.fails;
}
