/* The shares of a simulation as a picture (SVG, which every browser shows): one panel per device, one
 * line per tenant. */
#include <errno.h>

#include "src/sim/report.h"

#define PANEL_WIDTH 860
#define PANEL_HEIGHT 320
#define LEFT 60
#define TOP 40
#define LEGEND_WIDTH 190
#define BOTTOM 50
#define MAX_LEGEND 14
#define POINTS 600

static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e",
                                      "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"};

static const char *colour(unsigned number)
{
    return colours[number % (sizeof colours / sizeof colours[0])];
}

/* Names come from a file of the user's. */
static void put_text(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '&' || *text == '>')
            fprintf(file, "&#%d;", *text);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, file);
}

static void draw_axes(FILE *file, double top, double seconds, const char *device, const char *policy)
{
    fprintf(file, "<text x='%d' y='%.0f' font-weight='bold'>", LEFT, top - 14);
    put_text(file, device);
    fprintf(file, " (%s): share of device time over the last second</text>\n", policy);
    for (int percent = 0; percent <= 100; percent += 20) {
        double y = top + PANEL_HEIGHT * (1 - percent / 100.0);
        fprintf(file,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%d%%</text>\n",
                LEFT, y, LEFT + PANEL_WIDTH, y, LEFT - 8, y + 4, percent);
    }
    for (int part = 0; part <= 6; part++) {
        double x = LEFT + PANEL_WIDTH * part / 6.0;
        fprintf(file,
                "<line x1='%.1f' y1='%.0f' x2='%.1f' y2='%.0f' stroke='#ddd'/>"
                "<text x='%.1f' y='%.0f' text-anchor='middle'>%.3g s</text>\n",
                x, top, x, top + PANEL_HEIGHT, x, top + PANEL_HEIGHT + 18, seconds * part / 6);
    }
}

static void draw_tenant(FILE *file, const struct dv_sim *sim, const struct dv_sim_tenant *tenant, double top,
                        unsigned number)
{
    size_t step = sim->bin_count / POINTS ? sim->bin_count / POINTS : 1;
    double seconds = (double)sim->workload->duration_ns / 1e9;

    fprintf(file, "<polyline fill='none' stroke='%s' stroke-width='1.5' points='", colour(number));
    for (size_t bin = step; bin <= sim->bin_count; bin += step) {
        dv_ns at = bin * DV_SIM_BIN_NS;
        if (at < tenant->join_ns || at > tenant->leave_ns + DV_SIM_WINDOW_NS)
            continue;
        fprintf(file, "%.1f,%.1f ", LEFT + PANEL_WIDTH * ((double)at / 1e9) / seconds,
                top + PANEL_HEIGHT * (1 - dv_report_window_share(sim, tenant, bin)));
    }
    fprintf(file, "'/>\n");
    if (number >= MAX_LEGEND)
        return;
    double y = top + 10 + 20 * number;
    fprintf(file,
            "<line x1='%d' y1='%.0f' x2='%d' y2='%.0f' stroke='%s' stroke-width='3'/>"
            "<text x='%d' y='%.0f'>",
            LEFT + PANEL_WIDTH + 12, y, LEFT + PANEL_WIDTH + 32, y, colour(number), LEFT + PANEL_WIDTH + 38, y + 4);
    put_text(file, tenant->name);
    fprintf(file, "</text>\n");
}

int dv_report_write_svg(const struct dv_sim_report *report, const char *path)
{
    const struct dv_sim *sim = report->sim;
    int width = LEFT + PANEL_WIDTH + LEGEND_WIDTH;
    int height = (TOP + PANEL_HEIGHT + BOTTOM) * (int)sim->device_count;
    FILE *file = fopen(path, "we");

    if (!file)
        return -errno;
    fprintf(file,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n",
            width, height);
    for (unsigned d = 0; d < sim->device_count; d++) {
        double top = TOP + d * (double)(TOP + PANEL_HEIGHT + BOTTOM);
        unsigned number = 0;
        draw_axes(file, top, (double)sim->workload->duration_ns / 1e9, sim->devices[d].name, sim->devices[d].ops->name);
        for (unsigned i = 0; i < sim->tenant_count; i++)
            if (sim->tenants[i].device == &sim->devices[d])
                draw_tenant(file, sim, &sim->tenants[i], top, number++);
    }
    fprintf(file, "</svg>\n");
    return fclose(file) == 0 ? 0 : -errno;
}
