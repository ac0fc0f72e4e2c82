/* A command line to try instead of one that was refused. */
#ifndef DV_CLI_SUGGEST_H
#define DV_CLI_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

/* The words of `divvy run` (the first is "run"), and where its program begins. */
struct dv_cli_words {
    char **all;
    int program;
};

/* The same command without a guaranteed share, quoted for a shell. Returns false when it is longer than the text, or
 * has characters that no terminal shows. */
bool dv_cli_suggest_without_request(const struct dv_cli_words *words, char *text, size_t bytes);

#endif
