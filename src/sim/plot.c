/* The shares of a simulation as a picture (SVG, which every browser shows): a panel for each device, a line for each
 * tenant. The look is that of the plots in docs/, which bench/sharing/drawing.py draws. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/sim/report.h"

#define LEFT 52
#define TOP 34
#define BOTTOM 42
#define PANEL_WIDTH 658
#define PANEL_HEIGHT 284
#define LEGEND_ROW 20
#define LEGEND_ROWS (PANEL_HEIGHT / LEGEND_ROW) /* in a column */
#define LEGEND_NAME_MAX 16                      /* characters of a name */
#define LEGEND_MAX 48 /* rows: more tenants are drawn as the entries of the file that they are copies of */
#define POINTS 600
#define MINUTES_FROM_S 300 /* longer simulations have a scale in minutes */

/* ---- colours ---- */

/* People with any kind of colour vision can tell these from each other. */
static const unsigned colours[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0x56b4e9, 0xe69f00, 0x000000, 0x999999};
#define COLOURS (sizeof colours / sizeof colours[0])

/* The same colours again, lighter and then darker, for many tenants. */
static unsigned colour_of(unsigned number)
{
    unsigned colour = colours[number % COLOURS], round = number / COLOURS % 3, mixed = 0;

    for (int shift = 16; round && shift >= 0; shift -= 8) {
        unsigned part = colour >> shift & 0xff;
        mixed |= (round == 1 ? 255 - (255 - part) * 55 / 100 : part * 55 / 100) << shift;
    }
    return round ? mixed : colour;
}

/* ---- scales ---- */

/* The smallest of 1, 2, 5, 10, 20 ... that divides a range into at most this many parts. */
static double nice_step(double range, unsigned most)
{
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(range / most)));

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (range / (power * steps[i]) <= most)
            return power * steps[i];
    return power * 10;
}

/* A panel: the tenants of a device. */
struct panel {
    const struct dv_sim *sim;
    const struct dv_sim_device *device;
    double top;             /* in the picture */
    double seconds;         /* the whole width */
    double percent, step;   /* the whole height, and a line of the grid */
    bool by_entry;          /* tenants of one entry of the file have one colour */
    unsigned rows, columns; /* of the legend */
    int column_width;
};

static double x_of(const struct panel *panel, dv_ns at)
{
    return LEFT + PANEL_WIDTH * (double)at / 1e9 / panel->seconds;
}

static double y_of(const struct panel *panel, double percent)
{
    return panel->top + PANEL_HEIGHT * (1 - percent / panel->percent);
}

/* ---- tenants ---- */

static bool is_there(const struct panel *panel, const struct dv_sim_tenant *tenant)
{
    return tenant->device == panel->device && tenant->join_ns < tenant->leave_ns;
}

/* Whether a tenant has the row and colour of the one before it. */
static bool shares_row(const struct panel *panel, const struct dv_sim_tenant *tenant,
                       const struct dv_sim_tenant *before)
{
    return panel->by_entry && before && before->spec == tenant->spec;
}

static unsigned count_rows(const struct panel *panel)
{
    const struct dv_sim_tenant *before = NULL;
    unsigned count = 0;

    for (unsigned i = 0; i < panel->sim->tenant_count; i++) {
        const struct dv_sim_tenant *tenant = &panel->sim->tenants[i];
        if (!is_there(panel, tenant))
            continue;
        count += !shares_row(panel, tenant, before);
        before = tenant;
    }
    return count;
}

/* The bins in which the window of a second lies within the tenant's time. A tenant that is there for a moment only is
 * drawn from its first bin. */
static size_t first_bin(const struct dv_sim_tenant *tenant)
{
    bool is_short = tenant->leave_ns - tenant->join_ns < 2 * DV_SIM_WINDOW_NS;

    return (size_t)((tenant->join_ns + (is_short ? 0 : DV_SIM_WINDOW_NS)) / DV_SIM_BIN_NS) + 1;
}

static size_t last_bin(const struct dv_sim *sim, const struct dv_sim_tenant *tenant)
{
    size_t last = (size_t)(tenant->leave_ns / DV_SIM_BIN_NS);

    return last < sim->bin_count ? last : sim->bin_count;
}

static size_t bins_of_a_point(const struct dv_sim *sim)
{
    return sim->bin_count / POINTS ? sim->bin_count / POINTS : 1;
}

static void find_highest(void *user, const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to, double entitled)
{
    double *highest = user;

    (void)tenant, (void)from, (void)to;
    *highest = fmax(*highest, 100 * entitled);
}

static void find_height(struct panel *panel, const struct dv_sim_report *report)
{
    const struct dv_sim *sim = panel->sim;
    double highest = 1;

    if (!panel->by_entry)
        dv_report_each_entitlement(report, panel->device, find_highest, &highest);
    for (unsigned i = 0; i < sim->tenant_count; i++) {
        const struct dv_sim_tenant *tenant = &sim->tenants[i];
        for (size_t bin = first_bin(tenant); is_there(panel, tenant) && bin <= last_bin(sim, tenant);
             bin += bins_of_a_point(sim))
            highest = fmax(highest, 100 * dv_report_window_share(sim, tenant, bin));
    }
    panel->step = nice_step(highest, 6);
    panel->percent = panel->step * ceil((highest - panel->step / 20) / panel->step);
}

/* ---- drawing ---- */

/* Names come from a file of the user's. Bytes of a character of UTF-8 stay together. */
static void put_text(FILE *file, const char *text, size_t most)
{
    size_t shown = 0;

    for (; *text && (shown < most || ((unsigned char)*text & 0xc0) == 0x80); text++) {
        shown += ((unsigned char)*text & 0xc0) != 0x80;
        if (*text == '<' || *text == '&' || *text == '>')
            fprintf(file, "&#%d;", *text);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, file);
    }
    if (*text)
        fputs("…", file);
}

static void draw_grid(FILE *file, const struct panel *panel)
{
    bool in_minutes = panel->seconds > MINUTES_FROM_S;
    double unit = in_minutes ? 60 : 1, length = panel->seconds / unit, step = nice_step(length, 12);

    fprintf(file, "<text x=\"%d\" y=\"%.0f\" font-size=\"14\">", LEFT, panel->top - 14);
    put_text(file, panel->device->name, 60);
    fputs(": device time of each tenant, last second</text>\n", file);
    for (unsigned i = 0; i * panel->step <= panel->percent * 1.001; i++)
        fprintf(file,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g %%</text>\n",
                LEFT, LEFT + PANEL_WIDTH, y_of(panel, i * panel->step), y_of(panel, i * panel->step), LEFT - 6,
                y_of(panel, i * panel->step) + 4, i * panel->step);
    for (unsigned i = 0; i * step <= length * 1.001; i++)
        fprintf(file, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.4g %s</text>\n",
                LEFT + PANEL_WIDTH * (i * step / length), panel->top + PANEL_HEIGHT + 16, i * step,
                in_minutes ? "min" : "s");
    fprintf(file,
            "<text x=\"%d\" y=\"%.0f\" fill=\"#555555\">policy %s; dashed: the share that a tenant that always has "
            "work is entitled to</text>\n",
            LEFT, panel->top + PANEL_HEIGHT + 34, panel->device->ops->name);
}

static void draw_legend(FILE *file, const struct panel *panel, unsigned row, const char *name)
{
    unsigned column = row / LEGEND_ROWS;
    double x = LEFT + PANEL_WIDTH + 12 + panel->column_width * column;
    double y = panel->top + 16 + LEGEND_ROW * (double)(row % LEGEND_ROWS);

    if (row >= LEGEND_MAX)
        return;
    fprintf(file,
            "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"#%06x\" stroke-width=\"3\"/>\n"
            "<text x=\"%.0f\" y=\"%.0f\">",
            x, x + 24, y, y, colour_of(row), x + 30, y + 4);
    if (row + 1 == LEGEND_MAX && panel->rows > LEGEND_MAX)
        fprintf(file, "and %u more", panel->rows - row - 1);
    else
        put_text(file, name, LEGEND_NAME_MAX);
    fputs("</text>\n", file);
}

static void draw_share(FILE *file, const struct panel *panel, const struct dv_sim_tenant *tenant, unsigned row)
{
    const struct dv_sim *sim = panel->sim;

    fputs("<polyline points=\"", file);
    for (size_t bin = first_bin(tenant); bin <= last_bin(sim, tenant); bin += bins_of_a_point(sim))
        fprintf(file, "%.1f,%.1f ", x_of(panel, bin * DV_SIM_BIN_NS),
                y_of(panel, 100 * dv_report_window_share(sim, tenant, bin)));
    fprintf(file, "\" fill=\"none\" stroke=\"#%06x\" stroke-width=\"1.8\"/>\n", colour_of(row));
}

/* What each tenant is entitled to while the same tenants are there, which the report knows. */
struct drawing {
    FILE *file;
    const struct panel *panel;
};

static void draw_entitlement(void *user, const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to, double entitled)
{
    const struct drawing *drawing = user;
    const struct panel *panel = drawing->panel;
    unsigned row = 0;

    for (const struct dv_sim_tenant *other = panel->sim->tenants; other < tenant; other++)
        row += is_there(panel, other);
    fprintf(drawing->file,
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#%06x\" stroke-dasharray=\"5 4\" "
            "opacity=\"0.6\"/>\n",
            x_of(panel, from), x_of(panel, to), y_of(panel, 100 * entitled), y_of(panel, 100 * entitled),
            colour_of(row));
}

static void draw_panel(FILE *file, const struct dv_sim_report *report, const struct panel *panel)
{
    const struct dv_sim *sim = panel->sim;
    const struct dv_sim_tenant *before = NULL;
    unsigned row = 0;

    draw_grid(file, panel);
    if (!panel->by_entry)
        dv_report_each_entitlement(report, panel->device, draw_entitlement,
                                   &(struct drawing){.file = file, .panel = panel});
    for (unsigned i = 0; i < sim->tenant_count; i++) {
        const struct dv_sim_tenant *tenant = &sim->tenants[i];
        if (!is_there(panel, tenant))
            continue;
        bool has_row = shares_row(panel, tenant, before);
        row += before && !has_row;
        draw_share(file, panel, tenant, row);
        if (!has_row)
            draw_legend(file, panel, row, panel->by_entry ? tenant->spec->name : tenant->name);
        before = tenant;
    }
}

/* Of the legend: room for the longest name. */
static int column_width(const struct dv_sim *sim)
{
    size_t longest = 6;

    for (unsigned i = 0; i < sim->tenant_count; i++)
        longest = strlen(sim->tenants[i].name) > longest ? strlen(sim->tenants[i].name) : longest;
    return 46 + 7 * (int)(longest < LEGEND_NAME_MAX ? longest : LEGEND_NAME_MAX);
}

static struct panel make_panel(const struct dv_sim_report *report, unsigned device)
{
    const struct dv_sim *sim = report->sim;
    struct panel panel = {.sim = sim,
                          .device = &sim->devices[device],
                          .top = TOP + device * (double)(TOP + PANEL_HEIGHT + BOTTOM),
                          .column_width = column_width(sim),
                          .seconds = (double)sim->workload->duration_ns / 1e9};

    panel.rows = count_rows(&panel);
    panel.by_entry = panel.rows > LEGEND_MAX;
    if (panel.by_entry)
        panel.rows = count_rows(&panel);
    panel.columns = ((panel.rows < LEGEND_MAX ? panel.rows : LEGEND_MAX) + LEGEND_ROWS - 1) / LEGEND_ROWS;
    find_height(&panel, report);
    return panel;
}

int dv_report_write_svg(const struct dv_sim_report *report, const char *path)
{
    const struct dv_sim *sim = report->sim;
    unsigned columns = 0;
    int height = (TOP + PANEL_HEIGHT + BOTTOM) * (int)sim->device_count;
    FILE *file = fopen(path, "we");

    if (!file)
        return -errno;
    for (unsigned d = 0; d < sim->device_count; d++) {
        unsigned here = make_panel(report, d).columns;
        columns = here > columns ? here : columns;
    }
    int width = LEFT + PANEL_WIDTH + 12 + (int)columns * column_width(sim);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
            width, height, width, height);
    for (unsigned d = 0; d < sim->device_count; d++) {
        struct panel panel = make_panel(report, d);
        draw_panel(file, report, &panel);
    }
    fputs("</svg>\n", file);
    return fclose(file) == 0 ? 0 : -errno;
}
