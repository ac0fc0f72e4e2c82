/* divvy top: a live view of devices, tenants and sessions. */
#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"
#include "src/cli/http.h"
#include "src/cli/stream.h"
#include "src/cli/table.h"
#include "src/cli/top/actions.h"
#include "src/cli/top/layout.h"
#include "src/cli/top/model.h"

static const char usage[] =
    "Usage: divvy top [-b] [-n NUMBER] [-d SECONDS] [--sort COLUMN] [--filter TEXT] [--daemon DIR]\n"
    "\n"
    "Shows devices, tenants and sessions, and what each gets, and keeps the picture up to date.\n"
    "Operators see all tenants, others their own.\n"
    "\n"
    "  -b, --batch    print plain text instead, for scripts and files\n"
    "  -n NUMBER      end after this many pictures\n"
    "  -d SECONDS     the time between two pictures, from 0.1 to 60; default: 1\n"
    "  --sort COLUMN  share (the default), memory, used or name\n"
    "  --filter TEXT  only tenants and commands with this text in their name\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "In the bar of a tenant, R marks its request and L its limit. MEM is its memory on the device,\n"
    "SWAP what it has allocated beside that, MINUTE the share over the last minute. SWAP of a\n"
    "session on several devices is not known. From 120 columns on, BECAUSE is why a session waits;\n"
    "on the screen the last line says it of the selected one.\n"
    "\n"
    "Keys: q quit, up and down select, s sort, / filter, t hide or show sessions, e explain the\n"
    "session, l change the tenant's limit, c its class, x end the session, h help.\n";

#define ESCAPE 27
#define ESCAPE_MS 100 /* a key that sends several bytes sends them within this */
#define EMPTY_READS 3
#define NAME_LEAST 20 /* columns */

struct top {
    struct dv_cli_view view;
    char directory[DV_RUNDIR_BYTES];
    struct dv_top_model model;
    struct dv_top_layout layout;
    struct dv_stream *stream;
    bool is_new;  /* an answer has come that is not shown yet */
    bool is_over; /* no answer comes any more */
    bool batch, colours;
    int input;            /* -1: it is at its end */
    unsigned empty_reads; /* in a row: something to read was announced, and there was no key */
    int write_error;      /* errno of the output */
    long pictures;        /* left; -1: no end */
    unsigned interval_ms;
    size_t selected, first; /* rows of the tree: the selected one, and the first on the screen */
    char selected_key[256]; /* keeps the selection on its session or tenant */
    char message[256];      /* instead of the keys, until the next one is pressed */
    char prompt[512];       /* instead of both, while something is asked */
};

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* ---- the first line ---- */

static void write_title(const struct top *top, char *text, size_t bytes)
{
    unsigned devices = 0, sessions = top->model.sessions;
    char clock[16] = "";
    time_t now = time(NULL);
    struct tm local;

    for (size_t i = 0; i < top->model.count; i++)
        devices += top->model.nodes[i].kind == DV_TOP_DEVICE;
    if (localtime_r(&now, &local))
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    snprintf(text, bytes, "divvy  %s  %u device%s, %u session%s, %u waiting  by %s%s%s", clock, devices,
             devices == 1 ? "" : "s", sessions, sessions == 1 ? "" : "s", top->model.waiting,
             dv_top_sort_word(top->model.sort), top->model.filter[0] ? ", filter " : "", top->model.filter);
}

/* ---- plain text ---- */

static void trim(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
}

static void print_picture(struct top *top)
{
    struct dv_top_line line;
    char title[256];

    write_title(top, title, sizeof title);
    dv_screen_make_plain(title);
    puts(title);
    dv_top_layout_fit(&top->layout, &top->model);
    dv_top_layout_heading(&top->layout, &line);
    puts(line.text);
    for (size_t i = 0; i < top->model.count; i++) {
        dv_top_layout_node(&top->layout, &top->model.nodes[i], &line);
        trim(line.text);
        puts(line.text);
    }
}

/* ---- the screen ---- */

static chtype attributes_of(const struct top *top, enum dv_top_look look)
{
    static const chtype monochrome[] = {
        [DV_TOP_PLAIN] = A_NORMAL, [DV_TOP_HEADING] = A_BOLD, [DV_TOP_BUSY] = A_NORMAL,
        [DV_TOP_WAITS] = A_NORMAL, [DV_TOP_IDLE] = A_DIM,     [DV_TOP_SELECTED] = A_REVERSE};

    if (!top->colours || look == DV_TOP_SELECTED)
        return monochrome[look];
    if (look == DV_TOP_BUSY)
        return (chtype)COLOR_PAIR(1);
    return look == DV_TOP_WAITS ? (chtype)COLOR_PAIR(2) : monochrome[look];
}

static void put_line(const struct top *top, int row, const char *text, enum dv_top_look look)
{
    char plain[DV_TOP_LINE_BYTES];

    snprintf(plain, sizeof plain, "%s", text);
    dv_screen_make_plain(plain);
    size_t bytes = dv_text_fit(plain, (size_t)COLS);
    attrset((int)attributes_of(top, look));
    mvprintw(row, 0, "%.*s", (int)bytes, plain);
    if (look == DV_TOP_SELECTED)
        for (int column = (int)dv_text_columns(plain, bytes); column < COLS; column++)
            mvaddch(row, column, ' ');
    attrset(A_NORMAL);
}

static void key_of(const struct dv_top_node *node, char *key, size_t bytes)
{
    if (node->kind == DV_TOP_SESSION)
        snprintf(key, bytes, "s%llu.%u", (unsigned long long)node->id, node->device);
    else
        snprintf(key, bytes, "%c%u.%s", node->kind == DV_TOP_DEVICE ? 'd' : 't', node->device, node->name);
}

static void remember_selected(struct top *top)
{
    if (top->selected < top->model.count)
        key_of(&top->model.nodes[top->selected], top->selected_key, sizeof top->selected_key);
}

/* Rows move: the selection moves with its session or tenant. */
static void find_selected(struct top *top)
{
    char key[sizeof top->selected_key];

    for (size_t i = 0; i < top->model.count; i++) {
        key_of(&top->model.nodes[i], key, sizeof key);
        if (strcmp(key, top->selected_key) == 0) {
            top->selected = i;
            return;
        }
    }
    if (top->selected >= top->model.count)
        top->selected = top->model.count ? top->model.count - 1 : 0;
}

/* A message; or why the selected session waits; or the keys. */
static void write_last(const struct top *top, char *text, size_t bytes)
{
    const struct dv_top_node *node = top->selected < top->model.count ? &top->model.nodes[top->selected] : NULL;

    if (top->message[0])
        snprintf(text, bytes, "%s", top->message);
    else if (node && node->because[0])
        snprintf(text, bytes, "because %s", node->because);
    else
        snprintf(text, bytes, "q quit  s sort  / filter  t tree  e explain  l limit  c class  x end  h help");
}

static void draw(struct top *top)
{
    int rows = LINES - 3 > 1 ? LINES - 3 : 1; /* the title, the heading and the last line */
    struct dv_top_line line;
    char title[256], last[512];

    erase();
    top->layout.columns = (size_t)COLS;
    write_title(top, title, sizeof title);
    put_line(top, 0, title, DV_TOP_HEADING);
    dv_top_layout_fit(&top->layout, &top->model);
    dv_top_layout_heading(&top->layout, &line);
    put_line(top, 1, line.text, DV_TOP_HEADING);
    if (top->selected < top->first)
        top->first = top->selected;
    if (top->selected >= top->first + (size_t)rows)
        top->first = top->selected - (size_t)rows + 1;
    for (int row = 0; row < rows && top->first + (size_t)row < top->model.count; row++) {
        size_t index = top->first + (size_t)row;
        dv_top_layout_node(&top->layout, &top->model.nodes[index], &line);
        put_line(top, row + 2, line.text, index == top->selected ? DV_TOP_SELECTED : line.look);
    }
    if (top->prompt[0]) {
        char prompt[sizeof top->prompt];
        dv_text_take_end(prompt, sizeof prompt, top->prompt, (size_t)COLS - 1);
        put_line(top, LINES - 1, prompt, DV_TOP_HEADING); /* the cursor stays behind it */
    } else {
        write_last(top, last, sizeof last);
        put_line(top, LINES - 1, last, DV_TOP_IDLE);
    }
    refresh();
}

/* ---- waiting ---- */

static bool goes_on(const struct top *top)
{
    return !is_interrupted && !top->is_over;
}

/* The next key that was pressed, or ERR. An input at its end can always be read and never has a key. */
static int next_key(struct top *top)
{
    struct pollfd input = {.fd = top->input, .events = POLLIN};
    bool is_readable = poll(&input, 1, 0) > 0;
    int key = getch();

    top->empty_reads = key == ERR && is_readable ? top->empty_reads + 1 : 0;
    if (top->empty_reads == EMPTY_READS)
        top->input = -1;
    return key;
}

/* Returns a key, or ERR after waiting for keys and for answers: those are read whatever is on the screen. */
static int wait_for_key(struct top *top)
{
    int key = next_key(top);

    if (key == ERR)
        top->is_over = !dv_stream_wait(top->stream, top->input, 1000);
    return key;
}

/* ---- texts and questions ---- */

/* Puts a line of a text into as many rows as it needs. Returns the row behind them. */
static int put_wrapped(const struct top *top, int row, const char *text, size_t length)
{
    size_t indent = strspn(text, " ");
    char line[DV_TOP_LINE_BYTES];

    if (indent >= length)
        indent = 0;
    text += indent;
    length -= indent;
    do {
        size_t fits = dv_text_fit(text, (size_t)COLS > indent ? (size_t)COLS - indent : 1), blank;
        if (fits < length) {
            for (blank = fits; blank > 0 && text[blank] != ' ';)
                blank--;
            fits = blank ? blank : fits ? fits : length;
        } else {
            fits = length;
        }
        snprintf(line, sizeof line, "%*s%.*s", (int)indent, "", (int)fits, text);
        put_line(top, row++, line, DV_TOP_PLAIN);
        while (fits < length && text[fits] == ' ')
            fits++;
        text += fits;
        length -= fits;
    } while (length > 0 && row < LINES - 1);
    return row;
}

static void draw_text(const struct top *top, const char *text)
{
    int row = 0;

    erase();
    while (*text && row < LINES - 1) {
        size_t length = strcspn(text, "\n");
        row = put_wrapped(top, row, text, length);
        text += length + (text[length] == '\n');
    }
    put_line(top, LINES - 1, "press a key", DV_TOP_IDLE);
    refresh();
}

/* A text instead of the picture, until a key is pressed. */
static void show_text(struct top *top, const char *text)
{
    int key = ERR;

    while (goes_on(top) && (key == ERR || key == KEY_RESIZE)) {
        draw_text(top, text);
        key = wait_for_key(top);
    }
}

static void edit(char *answer, size_t bytes, int key)
{
    size_t length = strlen(answer);

    if (key == KEY_BACKSPACE || key == '\b' || key == 127) {
        while (length > 0 && (answer[length - 1] & 0xc0) == 0x80) /* the rest of a character */
            length--;
        answer[length > 0 ? length - 1 : 0] = '\0';
    } else if (key >= ' ' && key < 256 && length + 1 < bytes) {
        answer[length] = (char)key;
        answer[length + 1] = '\0';
    }
}

/* Asks for a line of text. The picture goes on. Returns false when the user does not want to answer. */
static bool ask(struct top *top, const char *question, char *answer, size_t bytes)
{
    int key = ERR;

    answer[0] = '\0';
    curs_set(1);
    while (goes_on(top) && key != '\n' && key != '\r' && key != KEY_ENTER && key != ESCAPE) {
        snprintf(top->prompt, sizeof top->prompt, "%s%s", question, answer);
        draw(top);
        key = wait_for_key(top);
        edit(answer, bytes, key);
    }
    curs_set(0);
    top->prompt[0] = '\0';
    return goes_on(top) && key != ESCAPE;
}

/* ---- keys ---- */

static const struct dv_top_node *selected(const struct top *top)
{
    return top->selected < top->model.count ? &top->model.nodes[top->selected] : NULL;
}

static void select_row(struct top *top, long row)
{
    long last = (long)top->model.count - 1;

    top->selected = row < 0 ? 0 : row > last ? (size_t)(last < 0 ? 0 : last) : (size_t)row;
    remember_selected(top);
}

static const char *tenant_of(const struct dv_top_node *node)
{
    return !node || node->kind == DV_TOP_DEVICE ? NULL : node->kind == DV_TOP_TENANT ? node->name : node->tenant;
}

static void explain_selected(struct top *top)
{
    const struct dv_top_node *node = selected(top);
    char text[4096];

    if (!node || node->kind != DV_TOP_SESSION) {
        snprintf(top->message, sizeof top->message, "select a session first");
        return;
    }
    dv_top_explain(top->directory, node->id, text, sizeof text);
    show_text(top, text);
}

static void change_selected(struct top *top, const char *key, const char *question)
{
    const char *tenant = tenant_of(selected(top));
    char prompt[256], value[32], name[192], end[192];

    if (!tenant) {
        snprintf(top->message, sizeof top->message, "select a tenant or a session first");
        return;
    }
    snprintf(name, sizeof name, "%s", tenant);
    size_t others = strlen(question) + strlen(" of tenant : ") + sizeof value;
    dv_text_take_end(end, sizeof end, name, (size_t)COLS > others + NAME_LEAST ? (size_t)COLS - others : NAME_LEAST);
    snprintf(prompt, sizeof prompt, "%s of tenant %s: ", question, end);
    if (ask(top, prompt, value, sizeof value) && value[0])
        dv_top_set(top->directory, name, key, value, top->message, sizeof top->message);
}

static void end_selected(struct top *top)
{
    const struct dv_top_node *node = selected(top);
    char prompt[256], answer[8];

    if (!node || node->kind != DV_TOP_SESSION) {
        snprintf(top->message, sizeof top->message, "select a session first");
        return;
    }
    uint64_t id = node->id;
    snprintf(prompt, sizeof prompt, "end session %llu (%.*s)? y or n: ", (unsigned long long)id,
             (int)dv_text_fit(node->name, 40), node->name);
    if (ask(top, prompt, answer, sizeof answer) && answer[0] == 'y')
        dv_top_end(top->directory, id, top->message, sizeof top->message);
}

static void change_filter(struct top *top)
{
    char text[sizeof top->model.filter];

    if (ask(top, "show tenants and commands with (nothing: all): ", text, sizeof text))
        dv_text_copy(top->model.filter, sizeof top->model.filter, text);
}

/* Returns false to quit. */
static bool take_key(struct top *top, int key)
{
    top->message[0] = '\0';
    switch (key) {
    case 'q':
        return false;
    case KEY_UP:
    case 'k':
        select_row(top, (long)top->selected - 1);
        break;
    case KEY_DOWN:
    case 'j':
        select_row(top, (long)top->selected + 1);
        break;
    case KEY_PPAGE:
        select_row(top, (long)top->selected - (LINES - 3));
        break;
    case KEY_NPAGE:
        select_row(top, (long)top->selected + (LINES - 3));
        break;
    case 's':
        top->model.sort = (top->model.sort + 1) % DV_TOP_SORTS;
        break;
    case 't':
        top->model.hides_sessions = !top->model.hides_sessions;
        break;
    case '/':
        change_filter(top);
        break;
    case 'e':
    case '\n':
        explain_selected(top);
        break;
    case 'l':
        change_selected(top, "limit", "limit, such as 40%,");
        break;
    case 'c':
        change_selected(top, "class", "class (latency, standard, batch or idle)");
        break;
    case 'x':
        end_selected(top);
        break;
    case 'h':
    case '?':
        show_text(top, usage);
        break;
    default:
        break;
    }
    return true;
}

/* ---- life ---- */

static void start_screen(struct top *top)
{
    initscr();
    set_escdelay(ESCAPE_MS);
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    timeout(0);
    top->colours = has_colors() && !(getenv("NO_COLOR") && getenv("NO_COLOR")[0]);
    if (top->colours) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_GREEN, -1);
        init_pair(2, COLOR_YELLOW, -1);
    }
}

static void take_answer(void *user, const json_t *answer)
{
    struct top *top = user;

    top->is_new |= dv_top_model_take(&top->model, answer);
    find_selected(top);
}

/* Returns whether there is something new to show. */
static bool has_news(struct top *top)
{
    bool is_new = top->is_new;

    top->is_new = false;
    return is_new;
}

static void run_screen(struct top *top)
{
    bool quits = false;

    start_screen(top);
    while (goes_on(top) && !quits && top->pictures != 0) {
        int key = wait_for_key(top);
        if (has_news(top) && top->pictures > 0)
            top->pictures--;
        if (key != ERR)
            quits = !take_key(top, key);
        if (goes_on(top) && !quits)
            draw(top);
    }
    endwin();
}

static void run_batch(struct top *top)
{
    bool is_first = true;

    while (!is_interrupted && top->pictures != 0 && dv_stream_wait(top->stream, -1, 1000)) {
        if (!has_news(top))
            continue;
        if (!is_first)
            putchar('\n');
        is_first = false;
        print_picture(top);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            top->write_error = errno;
            return;
        }
        top->pictures -= top->pictures > 0;
    }
}

static int take_number(const char *text, struct top *top)
{
    uint64_t number;

    if (dv_text_parse_number(text, 1000000, &number) < 0 || number == 0) {
        dv_cli_error("-n is a number of pictures, not '%s'.", text);
        return DV_EXIT_USAGE;
    }
    top->pictures = (long)number;
    return DV_EXIT_OK;
}

static int take_interval(const char *text, struct top *top)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !(seconds >= 0.1 && seconds <= 60)) {
        dv_cli_error("-d is a number of seconds from 0.1 to 60, not '%s'.", text);
        return DV_EXIT_USAGE;
    }
    top->interval_ms = (unsigned)(seconds * 1000 + 0.5);
    return DV_EXIT_OK;
}

static int take_sort(const char *text, struct top *top)
{
    for (int i = 0; i < DV_TOP_SORTS; i++)
        if (strcmp(text, dv_top_sort_word((enum dv_top_sort)i)) == 0) {
            top->model.sort = (enum dv_top_sort)i;
            return DV_EXIT_OK;
        }
    dv_cli_error("--sort is share, memory, used or name, not '%s'.", text);
    return DV_EXIT_USAGE;
}

static int parse_options(int argc, char **argv, struct top *top)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS,
                                            {"batch", no_argument, NULL, 'b'},
                                            {"sort", required_argument, NULL, 's'},
                                            {"filter", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    int option, code = DV_EXIT_OK;

    opterr = 0;
    while (code == DV_EXIT_OK && (option = getopt_long(argc, argv, "hbn:d:", options, NULL)) != -1) {
        if (option == 'b')
            top->batch = true;
        else if (option == 'n')
            code = take_number(optarg, top);
        else if (option == 'd')
            code = take_interval(optarg, top);
        else if (option == 's')
            code = take_sort(optarg, top);
        else if (option == 'f')
            snprintf(top->model.filter, sizeof top->model.filter, "%s", optarg);
        else
            code = dv_cli_view_option(&top->view, option, argv, usage);
    }
    return code == DV_EXIT_OK ? dv_cli_check_arguments(argc, argv, 0) : code;
}

int dv_cli_top(int argc, char **argv)
{
    struct top top = {.pictures = -1, .interval_ms = 1000, .input = STDIN_FILENO};
    const struct sigaction interrupts = {.sa_handler = on_signal}; /* and what waits, too */
    char path[64];
    int code = parse_options(argc, argv, &top);

    if (code != DV_EXIT_OK)
        return code;
    int found = dv_daemon_find(top.view.daemon_directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, top.directory);
    if (found < 0) {
        dv_daemon_explain(found, top.directory);
        return DV_EXIT_FAILED;
    }
    if (dv_daemon_explain_left(top.directory))
        return DV_EXIT_FAILED;
    top.batch |= !isatty(STDOUT_FILENO);
    top.layout.columns = dv_screen_width() ? dv_screen_width() : 80;
    top.layout.unicode = dv_screen_is_unicode();
    snprintf(path, sizeof path, "/v1/watch?interval_ms=%u", top.interval_ms);
    top.stream = dv_stream_open(top.directory, path, top.interval_ms, take_answer, &top);
    if (!top.stream) {
        dv_cli_error("out of memory");
        return DV_EXIT_FAILED;
    }
    sigaction(SIGINT, &interrupts, NULL);
    sigaction(SIGTERM, &interrupts, NULL);
    if (top.batch)
        run_batch(&top);
    else
        run_screen(&top);
    if (dv_stream_error(top.stream)[0]) {
        dv_cli_error("the divvyd in %s: %s", top.directory, dv_stream_error(top.stream));
        code = DV_EXIT_FAILED;
    }
    dv_stream_close(top.stream);
    dv_top_model_fini(&top.model);
    errno = top.write_error; /* for the message */
    return top.write_error ? DV_EXIT_FAILED : code;
}
