/*
 * The script: which call or completion fails, hangs, crashes or comes late, when the device is
 * lost, and how the platform is made. Grammar and examples are in README.md.
 */
#include "vendor.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 128
#define MAX_SCRIPT_BYTES 65536
#define MAX_WORDS 8

enum target { TARGET_FUNCTION, TARGET_ANY_CALL, TARGET_COMPLETION };
enum action { ACT_RETURN, ACT_HANG, ACT_CRASH, ACT_ABORT, ACT_EXIT, ACT_DELAY, ACT_SAY, ACT_INTRUDE };

struct rule {
    enum target target;
    char function[64]; /* empty for every function */
    uint64_t first, last;
    unsigned percent; /* 0: every count from first to last */
    enum action action;
    cl_int value;
    uint64_t delay_ns;
    char word[64];
    atomic_uint_fast64_t seen;
};

/* The one context object of this library: a vendor library is forced to have one. */
static struct {
    pthread_once_t once;
    bool valid;
    struct dv_settings settings;
    pthread_mutex_t add_lock;
    struct rule rules[MAX_RULES];
    atomic_uint num_rules; /* published after the rule is complete */
    uint64_t seed;
    atomic_uint_fast64_t commands_started;
    atomic_uint_fast64_t lost_after_commands;
    atomic_uint_fast64_t lost_at_ns;
    atomic_bool lost;
    int log_fd;
} state = {.once = PTHREAD_ONCE_INIT,
           .add_lock = PTHREAD_MUTEX_INITIALIZER,
           .lost_after_commands = UINT64_MAX,
           .lost_at_ns = UINT64_MAX,
           .log_fd = -1};

static bool name_is_known(const char *name)
{
    static const char *const names[] = {
#define DV_ENTRY(function) #function,
#include "entries.h"
#undef DV_ENTRY
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- reading words ------------------------------------------------------------------------ */

static bool parse_number(const char *word, uint64_t *value, const char **rest)
{
    if (!isdigit((unsigned char)word[0])) {
        return false;
    }
    char *end;
    errno = 0;
    unsigned long long number = strtoull(word, &end, 10);
    if (errno != 0) {
        return false;
    }
    *value = number;
    *rest = end;
    return true;
}

static bool parse_scaled(const char *word, uint64_t *value, const char *const units[], const uint64_t factors[])
{
    const char *rest;
    if (!parse_number(word, value, &rest)) {
        return false;
    }
    for (size_t i = 0; units[i] != NULL; i++) {
        if (strcmp(rest, units[i]) == 0) {
            return !__builtin_mul_overflow(*value, factors[i], value);
        }
    }
    return false;
}

static bool parse_duration(const char *word, uint64_t *ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    static const uint64_t factors[] = {1, 1000, 1000000, 1000000000};
    return parse_scaled(word, ns, units, factors);
}

static bool parse_bytes(const char *word, uint64_t *bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", NULL};
    static const uint64_t factors[] = {1, UINT64_C(1) << 10, UINT64_C(1) << 20, UINT64_C(1) << 30};
    return parse_scaled(word, bytes, units, factors);
}

static bool parse_int(const char *word, cl_int *value)
{
    char *end;
    errno = 0;
    long number = strtol(word, &end, 10);
    if (end == word || *end != '\0' || errno != 0 || number < INT_MIN || number > INT_MAX) {
        return false;
    }
    *value = (cl_int)number;
    return true;
}

/* `*`, `3`, `3+`, `3-7` or `10%`. */
static bool parse_count(const char *word, struct rule *rule)
{
    rule->first = 1;
    rule->last = UINT64_MAX;
    rule->percent = 0;
    if (strcmp(word, "*") == 0) {
        return true;
    }
    uint64_t number;
    const char *rest;
    if (!parse_number(word, &number, &rest) || number == 0) {
        return false;
    }
    if (strcmp(rest, "%") == 0) {
        rule->percent = number > 100 ? 100 : (unsigned)number;
        return true;
    }
    rule->first = number;
    if (*rest == '\0') {
        rule->last = number;
        return true;
    }
    if (strcmp(rest, "+") == 0) {
        return true;
    }
    return *rest == '-' && parse_number(rest + 1, &rule->last, &rest) && *rest == '\0' && rule->last >= rule->first;
}

static bool parse_action(char **words, unsigned count, struct rule *rule)
{
    static const struct {
        const char *word;
        enum action action;
        unsigned arguments;
    } actions[] = {
        {"return", ACT_RETURN, 1}, {"status", ACT_RETURN, 1},   {"hang", ACT_HANG, 0},
        {"crash", ACT_CRASH, 0},   {"abort", ACT_ABORT, 0},     {"exit", ACT_EXIT, 1},
        {"delay", ACT_DELAY, 1},   {"intrude", ACT_INTRUDE, 0}, {"say", ACT_SAY, 1},
    };
    for (size_t i = 0; i < sizeof actions / sizeof actions[0] && count > 0; i++) {
        if (strcmp(words[0], actions[i].word) != 0) {
            continue;
        }
        if (count != 1 + actions[i].arguments) {
            return false;
        }
        rule->action = actions[i].action;
        switch (rule->action) {
        case ACT_RETURN:
            return parse_int(words[1], &rule->value) && rule->value < 0;
        case ACT_EXIT:
            return parse_int(words[1], &rule->value) && rule->value >= 0 && rule->value < 256;
        case ACT_DELAY:
            return parse_duration(words[1], &rule->delay_ns);
        case ACT_SAY:
            return snprintf(rule->word, sizeof rule->word, "%s", words[1]) < (int)sizeof rule->word;
        default:
            return true;
        }
    }
    return false;
}

/* ---- lines ----------------------------------------------------------------------------------*/

static bool words_are(char **words, unsigned count, unsigned expected, const char *first, const char *second,
                      const char *third)
{
    return count == expected && strcmp(words[0], first) == 0 && (second == NULL || strcmp(words[1], second) == 0) &&
           (third == NULL || strcmp(words[2], third) == 0);
}

static bool add_setting(char **words, unsigned count)
{
    struct dv_settings *set = &state.settings;
    uint64_t number;
    const char *rest;
    if (words_are(words, count, 2, "devices", NULL, NULL)) {
        bool good = parse_number(words[1], &number, &rest) && *rest == '\0' && number >= 1 && number <= DV_MAX_DEVICES;
        if (good) {
            set->devices = (unsigned)number;
        }
        return good;
    }
    if (words_are(words, count, 2, "seed", NULL, NULL)) {
        return parse_number(words[1], &state.seed, &rest) && *rest == '\0';
    }
    if (words_are(words, count, 3, "device", "memory", NULL)) {
        set->memory_enforced = true;
        return parse_bytes(words[2], &set->memory_bytes) && set->memory_bytes > 0;
    }
    if (words_are(words, count, 3, "device", "type", NULL)) {
        set->device_type = strcmp(words[2], "cpu") == 0           ? CL_DEVICE_TYPE_CPU
                           : strcmp(words[2], "gpu") == 0         ? CL_DEVICE_TYPE_GPU
                           : strcmp(words[2], "accelerator") == 0 ? CL_DEVICE_TYPE_ACCELERATOR
                                                                  : 0;
        return set->device_type != 0;
    }
    if (words_are(words, count, 3, "device", "unified", NULL)) {
        set->unified = strcmp(words[2], "yes") == 0;
        return set->unified || strcmp(words[2], "no") == 0;
    }
    if (words_are(words, count, 3, "device", "names", "alike")) {
        return set->alike = true;
    }
    if (words_are(words, count, 3, "device", "addresses", NULL)) {
        set->addresses = strcmp(words[2], "khr") == 0   ? DV_ADDRESSES_KHR
                         : strcmp(words[2], "nv") == 0  ? DV_ADDRESSES_NV
                         : strcmp(words[2], "amd") == 0 ? DV_ADDRESSES_AMD
                                                        : DV_ADDRESSES_NONE;
        return set->addresses != DV_ADDRESSES_NONE;
    }
    if (words_are(words, count, 2, "order", "newest", NULL)) {
        return set->newest_first = true;
    }
    if (words_are(words, count, 2, "flush", "required", NULL)) {
        return set->flush_required = true;
    }
    if (words_are(words, count, 2, "maps", "copied", NULL)) {
        return set->maps_copied = true;
    }
    if (words_are(words, count, 3, "unknown", "kernels", "nop")) {
        return set->unknown_kernels_are_nop = true;
    }
    return false;
}

static bool add_loss(char **words, unsigned count)
{
    uint64_t number;
    const char *rest;
    if (count != 4 || !words_are(words, 3, 3, "device", "lost", "after")) {
        return false;
    }
    if (parse_duration(words[3], &number)) {
        atomic_store(&state.lost_at_ns, dv_now_ns() + number);
        return true;
    }
    if (parse_number(words[3], &number, &rest) && *rest == '\0') {
        /* counted from now on: a rule may come late, in a program's source */
        atomic_store(&state.lost_after_commands, number + atomic_load(&state.commands_started));
        return true;
    }
    return false;
}

static bool add_rule(char **words, unsigned count)
{
    unsigned at = 1;
    unsigned index = atomic_load(&state.num_rules);
    if (index == MAX_RULES) {
        return false;
    }
    struct rule *rule = &state.rules[index];
    memset(rule, 0, sizeof *rule);
    if (strcmp(words[0], "call") == 0) {
        rule->target = TARGET_ANY_CALL;
    } else if (strcmp(words[0], "complete") == 0) {
        rule->target = TARGET_COMPLETION;
        if (count > 1 && name_is_known(words[1])) {
            snprintf(rule->function, sizeof rule->function, "%s", words[1]);
            at = 2;
        }
    } else if (name_is_known(words[0])) {
        rule->target = TARGET_FUNCTION;
        snprintf(rule->function, sizeof rule->function, "%s", words[0]);
    } else {
        return false;
    }
    if (count <= at || !parse_count(words[at], rule) || !parse_action(words + at + 1, count - at - 1, rule)) {
        return false;
    }
    atomic_init(&rule->seen, 0);
    atomic_store_explicit(&state.num_rules, index + 1, memory_order_release);
    return true;
}

static bool add_line(const char *line, bool settings_allowed, char *message, size_t message_size)
{
    char copy[256];
    if (snprintf(copy, sizeof copy, "%s", line) >= (int)sizeof copy) {
        snprintf(message, message_size, "line too long: %.60s", line);
        return false;
    }
    char *words[MAX_WORDS];
    unsigned count = 0;
    char *save = NULL;
    for (char *word = strtok_r(copy, " \t\r", &save); word != NULL && word[0] != '#';
         word = strtok_r(NULL, " \t\r", &save)) {
        if (count == MAX_WORDS) {
            snprintf(message, message_size, "too many words: %.200s", line);
            return false;
        }
        words[count++] = word;
    }
    if (count == 0) {
        return true;
    }
    if ((settings_allowed && add_setting(words, count)) || add_loss(words, count) || add_rule(words, count)) {
        return true;
    }
    snprintf(message, message_size, "not understood: %.200s", line);
    return false;
}

bool dv_script_add_rule(const char *line, char *message, size_t message_size)
{
    pthread_mutex_lock(&state.add_lock);
    bool good = add_line(line, false, message, message_size);
    pthread_mutex_unlock(&state.add_lock);
    return good;
}

/* ---- loading --------------------------------------------------------------------------------*/

/* The text of the file `value` names, or `value` itself when there is no such file. */
static char *script_text(const char *value)
{
    char *text = calloc(1, MAX_SCRIPT_BYTES);
    if (text == NULL) {
        return NULL;
    }
    FILE *file = strchr(value, '\n') == NULL ? fopen(value, "re") : NULL;
    if (file == NULL) {
        snprintf(text, MAX_SCRIPT_BYTES, "%s", value);
        return text;
    }
    size_t length = fread(text, 1, MAX_SCRIPT_BYTES - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

static void load_script(void)
{
    state.settings = (struct dv_settings){
        .devices = 1,
        .device_type = CL_DEVICE_TYPE_CPU,
        .memory_bytes = UINT64_C(1) << 30,
        .unified = true,
    };
    state.seed = 1;
    state.valid = true;
    const char *log = getenv("DIVVY_VENDOR_LOG");
    if (log != NULL && log[0] != '\0') {
        state.log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    const char *value = getenv("DIVVY_VENDOR_SCRIPT");
    if (value == NULL || value[0] == '\0') {
        return;
    }
    char *text = script_text(value);
    char *save = NULL;
    for (char *line = text != NULL ? strtok_r(text, "\n;", &save) : NULL; line != NULL;
         line = strtok_r(NULL, "\n;", &save)) {
        char message[320];
        if (!add_line(line, true, message, sizeof message)) {
            fprintf(stderr, "divvy-test-vendor: DIVVY_VENDOR_SCRIPT: %s\n", message);
            state.valid = false;
        }
    }
    free(text);
}

static void ensure_loaded(void)
{
    pthread_once(&state.once, load_script);
}

const struct dv_settings *dv_settings_get(void)
{
    ensure_loaded();
    return &state.settings;
}

bool dv_script_is_valid(void)
{
    ensure_loaded();
    return state.valid;
}

/* ---- doing what the script says -------------------------------------------------------------*/

void dv_script_log(const char *what, const char *detail, long number)
{
    if (state.log_fd < 0) {
        return;
    }
    char line[256];
    int length = snprintf(line, sizeof line, "%d %s %s %ld\n", getpid(), what, detail, number);
    if (length > 0 && (size_t)length < sizeof line) {
        ssize_t ignored = write(state.log_fd, line, (size_t)length);
        (void)ignored; /* a full disk loses log lines, not the test's behaviour */
    }
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* The same numbers for the same seed, whatever thread asks in whatever order. */
static bool chance(const struct rule *rule, uint64_t count)
{
    uint64_t mix = state.seed * UINT64_C(0x9e3779b97f4a7c15) +
                   (uint64_t)(rule - state.rules) * UINT64_C(0xd1342543de82ef95) + count;
    mix = (mix ^ (mix >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mix = (mix ^ (mix >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (mix ^ (mix >> 31)) % 100 < rule->percent;
}

static cl_int perform(const struct rule *rule, const char *what, const char *function)
{
    volatile int *volatile nowhere = (int *)(uintptr_t)64;

    dv_script_log(what, function, rule->action == ACT_RETURN ? rule->value : 0);
    switch (rule->action) {
    case ACT_RETURN:
        return rule->value;
    case ACT_HANG:
        for (;;) {
            pause();
        }
    case ACT_CRASH:
        *nowhere = 1; /* a signal that is sent does not end the first process of a pid namespace */
        abort();
    case ACT_ABORT:
        abort();
    case ACT_EXIT:
        _exit(rule->value);
    case ACT_DELAY:
        sleep_ns(rule->delay_ns);
        return CL_SUCCESS;
    case ACT_SAY:
        dprintf(STDERR_FILENO, "%s\n", rule->word);
        return CL_SUCCESS;
    case ACT_INTRUDE:
        dv_intrude();
        return CL_SUCCESS;
    }
    return CL_SUCCESS;
}

static cl_int apply(enum target target, const char *what, const char *function)
{
    unsigned count = atomic_load_explicit(&state.num_rules, memory_order_acquire);
    cl_int error = CL_SUCCESS;
    for (unsigned i = 0; i < count; i++) {
        struct rule *rule = &state.rules[i];
        bool is_call = rule->target != TARGET_COMPLETION;
        if (is_call != (target == TARGET_FUNCTION) ||
            (rule->function[0] != '\0' && strcmp(rule->function, function) != 0)) {
            continue;
        }
        uint64_t seen = 1 + atomic_fetch_add_explicit(&rule->seen, 1, memory_order_relaxed);
        if (seen < rule->first || seen > rule->last || (rule->percent != 0 && !chance(rule, seen))) {
            continue;
        }
        cl_int result = perform(rule, what, function);
        if (error == CL_SUCCESS) {
            error = result;
        }
    }
    return error;
}

cl_int dv_script_enter(const char *function)
{
    ensure_loaded();
    dv_script_log("call", function, 0);
    return apply(TARGET_FUNCTION, "scripted-call", function);
}

cl_int dv_script_complete(const char *function)
{
    return apply(TARGET_COMPLETION, "scripted-completion", function);
}

bool dv_device_is_lost(void)
{
    ensure_loaded();
    if (atomic_load_explicit(&state.lost, memory_order_relaxed)) {
        return true;
    }
    uint64_t at_ns = atomic_load_explicit(&state.lost_at_ns, memory_order_relaxed);
    if (at_ns == UINT64_MAX || dv_now_ns() < at_ns) {
        return false;
    }
    atomic_store(&state.lost, true);
    return true;
}

bool dv_device_start_command(void)
{
    if (dv_device_is_lost()) {
        return false;
    }
    if (atomic_fetch_add(&state.commands_started, 1) >= atomic_load(&state.lost_after_commands)) {
        atomic_store(&state.lost, true);
        return false;
    }
    return true;
}
