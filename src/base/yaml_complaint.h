/* The message of libcyaml when it refuses a file, and its place in the file. */
#ifndef DV_BASE_YAML_COMPLAINT_H
#define DV_BASE_YAML_COMPLAINT_H

#include <cyaml/cyaml.h>
#include <stdbool.h>

#define DV_YAML_DEPTH 4

/* First what is wrong, then where, from the inside out. */
struct dv_yaml_complaint {
    char what[256];
    char keys[DV_YAML_DEPTH][64]; /* innermost first; empty: there are no more */
    int key_count;
    int line; /* 0: unknown */
};

/* For cyaml_load_data and cyaml_free; the complaint must outlive it. */
cyaml_config_t dv_yaml_settings(struct dv_yaml_complaint *complaint);

/* Whether the complaint is about something under this key. */
bool dv_yaml_is_in(const struct dv_yaml_complaint *complaint, const char *key);

/* The line, from `from` on and no comment, that holds the text; `from` itself when none does. */
int dv_yaml_find_line(const char *data, const char *text, int from);

/* The line of a syntax error, which libcyaml does not report. */
int dv_yaml_find_syntax_error(const char *data);

#endif
