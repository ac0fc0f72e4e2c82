/* What the keys of `divvy top` do: the same as the commands explain, set and end. */
#ifndef DV_CLI_TOP_ACTIONS_H
#define DV_CLI_TOP_ACTIONS_H

#include <stddef.h>
#include <stdint.h>

/* What a session waits for, and why, as text. */
void dv_top_explain(const char *directory, uint64_t session, char *text, size_t bytes);
/* Sets the limit (such as "40%") or the class of a tenant. The text says what came of it. */
void dv_top_set(const char *directory, const char *tenant, const char *key, const char *value, char *text,
                size_t bytes);
/* Ends a session. The same. */
void dv_top_end(const char *directory, uint64_t session, char *text, size_t bytes);

#endif
