/* Actions of `divvy top` (see actions.h). */
#include "src/cli/top/actions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/http.h"
#include "src/cli/table.h"

#define NAME_COLUMNS 40

/* Asks the daemon. Returns its answer, which the caller drops, or NULL with the reason. */
static json_t *ask(const char *directory, const char *method, const char *path, char *text, size_t bytes)
{
    DV_AUTO_FREE char *body = NULL;
    char error[512];
    int status = dv_http_request(directory, method, path, DV_HTTP_PATIENCE_S, &body, error, sizeof error);
    json_t *answer = status > 0 ? json_loads(body, 0, NULL) : NULL;

    if (status == 200 && answer)
        return answer;
    snprintf(text, bytes, "%s%s", status == -ETIMEDOUT ? "the daemon " : "",
             status < 0 ? error : dv_http_text(answer, "error", "the daemon refuses"));
    json_decref(answer);
    return NULL;
}

void dv_top_explain(const char *directory, uint64_t session, char *text, size_t bytes)
{
    char path[64];
    size_t used, index;
    json_t *device;

    snprintf(path, sizeof path, "/v1/sessions/%" PRIu64 "/explain", session);
    json_t *answer = ask(directory, "GET", path, text, bytes);
    if (!answer)
        return;
    used = (size_t)snprintf(text, bytes, "session %" PRIu64 ": %s\nuser %s, tenant %s\n", session,
                            dv_http_text(answer, "command_line", dv_http_text(answer, "command", "?")),
                            dv_http_text(answer, "user", "?"), dv_http_text(answer, "tenant", "?"));
    json_array_foreach(json_object_get(answer, "devices"), index, device)
    {
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "\ndevice %s: %s for %.1f s\n  because %s\n",
                                     dv_http_text(device, "name", "?"), dv_http_text(device, "state", "?"),
                                     json_number_value(json_object_get(device, "state_s")),
                                     dv_http_text(device, "because", "?"));
        if (used < bytes && dv_http_text(device, "to_change", "")[0])
            used +=
                (size_t)snprintf(text + used, bytes - used, "  to change: %s\n", dv_http_text(device, "to_change", ""));
    }
    json_decref(answer);
}

void dv_top_set(const char *directory, const char *tenant, const char *key, const char *value, char *text, size_t bytes)
{
    DV_AUTO_FREE char *name = dv_http_escape(tenant);
    DV_AUTO_FREE char *escaped = dv_http_escape(value);
    char path[512], end[192];
    uint32_t ppm;

    dv_text_take_end(end, sizeof end, tenant, NAME_COLUMNS);
    if (strcmp(key, "limit") == 0 && dv_text_parse_share(value, &ppm) < 0) {
        snprintf(text, bytes, "a limit is a share such as 40%%, not '%s'", value);
        return;
    }
    if (strcmp(key, "limit") == 0)
        snprintf(path, sizeof path, "/v1/tenants/%s/share?limit=%u", name, ppm);
    else
        snprintf(path, sizeof path, "/v1/tenants/%s/share?%s=%s", name, key, escaped);
    json_t *answer = ask(directory, "POST", path, text, bytes);
    if (answer)
        snprintf(text, bytes, "%s of tenant %s is %s now", key, end, value);
    json_decref(answer);
}

void dv_top_end(const char *directory, uint64_t session, char *text, size_t bytes)
{
    char path[64];

    snprintf(path, sizeof path, "/v1/sessions/%" PRIu64, session);
    json_t *answer = ask(directory, "DELETE", path, text, bytes);
    if (answer)
        snprintf(text, bytes, "session %" PRIu64 " ended", session);
    json_decref(answer);
}
