/* Complaints of libcyaml (see yaml_complaint.h). */
#include "src/base/yaml_complaint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

static void take_complaint(cyaml_log_t level, void *context, const char *format, va_list args)
{
    struct dv_yaml_complaint *complaint = context;
    char text[256];

    (void)level;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    const char *body = strncmp(text, "Load: ", 6) == 0 ? text + 6 : text;
    const char *position = strstr(body, "(line: ");
    if (strncmp(body, "  in ", 5) != 0) {
        if (!complaint->what[0])
            snprintf(complaint->what, sizeof complaint->what, "%s", body);
        return;
    }
    if (complaint->line == 0 && position)
        complaint->line = atoi(position + strlen("(line: "));
    if (complaint->key_count < DV_YAML_DEPTH &&
        sscanf(body, "  in mapping field '%63[^']'", complaint->keys[complaint->key_count]) == 1)
        complaint->key_count++;
}

cyaml_config_t dv_yaml_settings(struct dv_yaml_complaint *complaint)
{
    return (cyaml_config_t){
        .log_fn = take_complaint, .log_ctx = complaint, .mem_fn = cyaml_mem, .log_level = CYAML_LOG_WARNING};
}

bool dv_yaml_is_in(const struct dv_yaml_complaint *complaint, const char *key)
{
    for (int i = 0; i < complaint->key_count; i++)
        if (strcmp(complaint->keys[i], key) == 0)
            return true;
    return false;
}

int dv_yaml_find_line(const char *data, const char *text, int from)
{
    int number = 1;

    for (const char *line = data; line; number++) {
        const char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        if (number >= from && line[strspn(line, " ")] != '#' && memmem(line, length, text, strlen(text)))
            return number;
        line = end ? end + 1 : NULL;
    }
    return from;
}

int dv_yaml_find_syntax_error(const char *data)
{
    yaml_parser_t parser;
    yaml_event_t event;
    bool more = true;

    if (!yaml_parser_initialize(&parser))
        return 1;
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, strlen(data));
    while (more && yaml_parser_parse(&parser, &event)) {
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    int line = (int)parser.problem_mark.line + 1;
    yaml_parser_delete(&parser);
    return line;
}
