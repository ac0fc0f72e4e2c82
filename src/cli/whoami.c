/* divvy whoami: the tenant of the caller's programs, what they may ask for, and what is left. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy whoami [--json] [--daemon DIR]\n"
    "\n"
    "Prints the tenant that your programs belong to, the share it has, the share that you may ask\n"
    "for with `divvy run`, and for each device what can still be requested of its time, and how\n"
    "much of its memory all programs of the tenant may allocate (quota) and have allocated.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static int64_t integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_share(const char *label, const json_t *document, const char *request, const char *limit,
                        const char *weight, const char *class)
{
    char text[32];

    dv_value_format_share(text, sizeof text, integer(document, request));
    printf("  %-10s request %s", label, text);
    if (limit) {
        dv_value_format_share(text, sizeof text, integer(document, limit));
        printf(", limit %s", text);
    }
    printf(", weight %" PRId64 ", class %s\n", integer(document, weight), dv_http_text(document, class, "?"));
}

static void print_device(const json_t *device)
{
    int64_t quota = integer(device, "memory_quota_bytes"), used = integer(device, "memory_reserved_bytes");
    char left[32], size[32], taken[32];

    dv_value_format_share(left, sizeof left, integer(device, "left_ppm"));
    printf("  device %-3" PRId64 " %s: up to %s can be requested\n", integer(device, "index"),
           dv_http_text(device, "device", "?"), left);
    if (quota <= 0) /* a device without memory, or an older daemon */
        return;
    dv_text_format_size(size, sizeof size, (uint64_t)quota);
    dv_text_format_size(taken, sizeof taken, (uint64_t)used);
    dv_text_format_size(left, sizeof left, used < quota ? (uint64_t)(quota - used) : 0);
    printf("  %-10s memory: quota %s, used %s, left %s\n", "", size, taken, left);
}

static void print_answer(const json_t *document)
{
    size_t index;
    json_t *device;

    printf("user %s (%" PRId64 ")%s\n", dv_http_text(document, "user", "?"), integer(document, "uid"),
           json_is_true(json_object_get(document, "operator")) ? ", an operator" : "");
    if (json_is_true(json_object_get(document, "refused"))) {
        puts("  refused    a rule of the configuration lets your programs use no device; ask the operator");
        return;
    }
    const char *tenant = dv_http_text(document, "tenant", "?");
    if (strncmp(tenant, "pid:", 4) == 0 || strncmp(tenant, "session:", 8) == 0)
        puts("  tenant     each of your programs is one");
    else
        printf("  tenant     %s%s\n", tenant,
               json_is_true(json_object_get(document, "shared")) ? ", of several users: only operators change its share"
                                                                 : "");
    print_share("has", document, "request_ppm", "limit_ppm", "weight", "class");
    if (!json_is_true(json_object_get(document, "shared")))
        print_share("may have", document, "may_request_ppm", NULL, "may_weight", "may_class");
    printf("  sessions   %" PRId64 " of at most %" PRId64 "\n", integer(document, "sessions_of_user"),
           integer(document, "sessions_per_user"));
    json_array_foreach(json_object_get(document, "devices"), index, device) print_device(device);
}

int dv_cli_whoami(int argc, char **argv)
{
    struct dv_cli_view view;
    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);

    return code == DV_EXIT_OK ? dv_http_show(&view, "GET", "/v1/whoami", print_answer) : code;
}
