/* Values as people write and read them on the command line: shares, numbers, lengths of time. */
#ifndef DV_CLI_VALUES_H
#define DV_CLI_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A share that was set, in full: "30%", "0.5%". */
void dv_value_format_share(char *field, size_t bytes, int64_t ppm);

/* A share that was measured or computed, rounded: "42.0%"; "-" where the member is not a number. */
void dv_value_format_measured(char *field, size_t bytes, const json_t *ppm);

/* A short time in a table: "286us", "985ms", "4.4s", "12m30s". */
void dv_value_format_brief(char *field, size_t bytes, double seconds);

/* A short time in a sentence: "850 us", "1.2 ms", "12.5 s", and from a minute on as dv_value_format_age. */
void dv_value_format_duration(char *field, size_t bytes, double seconds);

/* A long time for people: "12s", "3m05s", "1h02m", "2d03h". */
void dv_value_format_age(char *field, size_t bytes, double seconds);

/* Reads a time such as "500ms", "30s" or "10min". Returns 0, or -1: it is none, or not above 0. */
int dv_value_parse_seconds(const char *text, double *seconds);

/* A part of a size in the unit of the whole: "0.7/6.5 GiB". */
void dv_value_format_part(char *field, size_t bytes, uint64_t part, uint64_t whole);

/* A moment of ISO 8601 in local time: "17:24:02" if it was today, else with its date. */
void dv_value_format_clock(char *field, size_t bytes, const char *iso);

#endif
