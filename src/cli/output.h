/* The file that a command writes at its end, and opens at its beginning. */
#ifndef DV_CLI_OUTPUT_H
#define DV_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct dv_cli_output {
    const char *path;
    FILE *file;
    bool is_new; /* there was no such file */
};

/* Opens a file, or standard output for "-". What is in the file stays until it is written. Returns an exit code, other
 * than 0 after a message. */
int dv_cli_output_open(struct dv_cli_output *output, const char *path);
/* The file, empty now; NULL after a message. */
FILE *dv_cli_output_begin(struct dv_cli_output *output);
/* Closes the file. With the code of a command that failed, a file that was not there before is removed. Returns that
 * code, or another one after a message if the file could not be written. */
int dv_cli_output_close(struct dv_cli_output *output, int code);

#endif
