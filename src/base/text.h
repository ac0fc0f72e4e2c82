/* Text from elsewhere, made fit for logs, terminals and JSON. */
#ifndef DV_BASE_TEXT_H
#define DV_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Ends the text within its field and replaces what would harm a log, a terminal, or a JSON or YAML document: control
 * characters, those that change the direction of writing, the noncharacters of Unicode, and every byte that is no part
 * of valid UTF-8, become '?'. */
void dv_text_clean(char *text, size_t bytes);

/* Copies a text of unknown origin into a field and cleans it. */
void dv_text_copy(char *field, size_t bytes, const char *text);

/* Copies texts that follow each other, each with its NUL, into one line with blanks between them, and cleans it. The
 * list ends with its bytes, or with two NULs. */
void dv_text_join(char *field, size_t bytes, const char *list, size_t list_bytes);

/* A size such as "8GiB", "512 MB", "2g" or "0". Units are powers of 1024, with or without "B" or "iB". A small number
 * without a unit is hardly meant as bytes: -EDOM. Returns 0, -EINVAL for anything else or -ERANGE when it does not
 * fit. */
int dv_text_parse_size(const char *text, uint64_t *bytes);

/* A number of digits alone, without sign or blanks. Returns 0, -EINVAL, or -ERANGE when it is more
 * than `most`. */
int dv_text_parse_number(const char *text, uint64_t most, uint64_t *number);

/* A share such as "30%" or "0.5 %" as parts per million. Returns 0 or -EINVAL for anything else,
 * also for more than 100 %. */
int dv_text_parse_share(const char *text, uint32_t *ppm);

/* A time such as "500us", "10 ms" or "1s" in nanoseconds. Returns 0 or -EINVAL. */
int dv_text_parse_time(const char *text, uint64_t *ns);

/* A size for people: "1.5 GiB". */
void dv_text_format_size(char *field, size_t bytes, uint64_t size);

#endif
