/* Options for shares (see share.h). */
#include "src/cli/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/values.h"
#include "src/policy/policy.h"

#define LEAST_LIMIT_PPM (DV_PPM / 100)

static int take_share(struct dv_cli_amount *amount, const char *from, const char *text)
{
    amount->from = from;
    if (dv_text_parse_share(text, &amount->value) == 0)
        return 0;
    dv_cli_error("%s takes a share of one device's time from 0%% to 100%%, with the percent sign, such "
                 "as 30%% or 0.5%%, not '%s'.",
                 from, text);
    return -1;
}

static int take_weight(struct dv_cli_amount *amount, const char *from, const char *text)
{
    uint64_t weight;

    amount->from = from;
    if (dv_text_parse_number(text, DV_WEIGHT_MAX, &weight) < 0 || weight == 0) {
        dv_cli_error("%s is a whole number from 1 to %u, not '%s'. Of the time that is not "
                     "guaranteed, a tenant of weight 2 gets twice as much as one of weight 1.",
                     from, DV_WEIGHT_MAX, text);
        return -1;
    }
    amount->value = (uint32_t)weight;
    return 0;
}

static int take_class(const char **taken, const char *from, const char *text)
{
    enum dv_class class;

    if (!dv_class_by_word(text, &class)) {
        dv_cli_error("%s is " DV_CLASS_WORDS ", not '%s'.", from, text);
        return -1;
    }
    *taken = text;
    return 0;
}

int dv_cli_share_option(struct dv_cli_share *share, int option, const char *text)
{
    switch (option) {
    case 'r':
        return take_share(&share->request, "--request", text);
    case 'l':
        return take_share(&share->limit, "--limit", text);
    case 'w':
        return take_weight(&share->weight, "--weight", text);
    case 'P':
        return take_class(&share->class, "--class", text);
    default:
        return 1;
    }
}

/* A variable that is empty counts as not set. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && text[0] ? text : NULL;
}

static int inherit_ppm(struct dv_cli_amount *amount, const char *name, const char *option)
{
    const char *text = variable(name);
    uint64_t ppm;

    if (amount->from || !text)
        return 0;
    if (dv_text_parse_number(text, DV_PPM, &ppm) < 0) {
        dv_cli_error("the environment variable %s is '%s', not a number of millionths of a "
                     "device, 0 to %u. Unset it, or use %s, which takes percent and overrides it.",
                     name, text, DV_PPM, option);
        return -1;
    }
    *amount = (struct dv_cli_amount){.from = name, .value = (uint32_t)ppm};
    return 0;
}

int dv_cli_share_inherit(struct dv_cli_share *share)
{
    const char *weight = variable("DIVVY_WEIGHT");
    const char *class = variable("DIVVY_CLASS");

    if (inherit_ppm(&share->request, "DIVVY_REQUEST", "--request") < 0 ||
        inherit_ppm(&share->limit, "DIVVY_LIMIT", "--limit") < 0)
        return -1;
    if (!share->weight.from && weight && take_weight(&share->weight, "DIVVY_WEIGHT", weight) < 0)
        return -1;
    if (!share->class && class)
        return take_class(&share->class, "DIVVY_CLASS", class);
    return 0;
}

int dv_cli_share_check(const struct dv_cli_share *share)
{
    char request[32], limit[32];

    if (!share->limit.from)
        return 0;
    dv_value_format_share(limit, sizeof limit, share->limit.value);
    if (share->limit.value < LEAST_LIMIT_PPM) {
        dv_cli_error("%s is %s, but the minimum limit is 1%%: with less a program would hardly ever "
                     "run. Give it 1%%, or end the program.",
                     share->limit.from, limit);
        return -1;
    }
    if (!share->request.from || share->request.value <= share->limit.value)
        return 0;
    dv_value_format_share(request, sizeof request, share->request.value);
    dv_cli_error("the limit of %s (%s) is below the request of %s (%s): a tenant cannot be guaranteed "
                 "more than its limit. Raise the limit or lower the request.",
                 limit, share->limit.from, request, share->request.from);
    return -1;
}

bool dv_cli_share_is_empty(const struct dv_cli_share *share)
{
    return !share->request.from && !share->limit.from && !share->weight.from && !share->class;
}

static void export_amount(const char *name, const struct dv_cli_amount *amount)
{
    char text[16];

    if (!amount->from) {
        unsetenv(name); /* it is empty, if it is set */
        return;
    }
    snprintf(text, sizeof text, "%u", amount->value);
    setenv(name, text, 1);
}

void dv_cli_share_export(const struct dv_cli_share *share)
{
    export_amount("DIVVY_REQUEST", &share->request);
    export_amount("DIVVY_LIMIT", &share->limit);
    export_amount("DIVVY_WEIGHT", &share->weight);
    if (share->class)
        setenv("DIVVY_CLASS", share->class, 1);
    else
        unsetenv("DIVVY_CLASS");
}
