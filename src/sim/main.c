/* divvy-sim: how tenants would share a device, without a device. Reads a workload, runs divvyd's
 * policies at virtual time, prints the shares of tenants. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/sim/report.h"

#define BAR_WIDTH 40
#define MAX_LOADS 64

struct options {
    const char *workload, *config, *csv, *svg;
    const struct dv_policy_ops *ops;
    dv_ns slice_ns;
    uint64_t seed;
    bool has_seed;
    double loads[MAX_LOADS];
    unsigned load_count;
};

static const char usage[] = "Usage: divvy-sim [OPTIONS] WORKLOAD.yaml\n"
                            "\n"
                            "Simulates how tenants share devices and prints what each of them gets.\n"
                            "\n"
                            "  --config FILE   shares and policies of this divvy.yaml, for tenants and devices of\n"
                            "                  the same names; overrides the workload\n"
                            "  --policy NAME   elastic, fair, fifo or band; overrides the file\n"
                            "  --slice TIME    fixed slices such as 10ms; overrides the file\n"
                            "  --seed N        the seed of the random numbers\n"
                            "  --load N[,N...] arrivals come N times as often; several: a line for each\n"
                            "  --csv FILE      write shares over time as comma-separated values\n"
                            "  --plot FILE     draw shares over time (SVG)\n"
                            "  --help, --version\n"
                            "\n"
                            "divvy-sim(1) describes the workload file.\n";

static void show_progress(double part)
{
    int done = (int)(part * BAR_WIDTH);

    fprintf(stderr, "\r[%.*s%*s] %3.0f%%", done, "########################################", BAR_WIDTH - done, "",
            100 * part);
    if (part >= 1)
        fprintf(stderr, "\r%*s\r", BAR_WIDTH + 8, "");
    fflush(stderr);
}

static int fail(const char *what, const char *which)
{
    fprintf(stderr, "divvy-sim: %s%s%s\n", what, which ? ": " : "", which ? which : "");
    return 2;
}

static int read_loads(const char *text, struct options *options)
{
    char *end;

    options->load_count = 0;
    do {
        double load = strtod(text, &end);
        if (end == text || !(load > 0 && load <= DV_SIM_MAX_LOAD) || options->load_count == MAX_LOADS)
            return -EINVAL;
        options->loads[options->load_count++] = load;
        text = end + 1;
    } while (*end == ',');
    return *end ? -EINVAL : 0;
}

/* Returns 0 to go on, otherwise one more than the status to end with. */
static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"config", required_argument, NULL, 'C'}, {"policy", required_argument, NULL, 'p'},
        {"slice", required_argument, NULL, 's'},  {"seed", required_argument, NULL, 'n'},
        {"csv", required_argument, NULL, 'c'},    {"plot", required_argument, NULL, 'g'},
        {"load", required_argument, NULL, 'l'},   {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},      {0}};
    char *end;

    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (option) {
        case 'C':
            options->config = optarg;
            break;
        case 'p':
            options->ops = dv_policy_by_name(optarg);
            if (!options->ops)
                return 1 + fail("there is no such policy", optarg);
            break;
        case 's':
            if (dv_sim_parse_duration(optarg, &options->slice_ns) < 0 || !options->slice_ns)
                return 1 + fail("a slice is a time such as 10ms, not", optarg);
            break;
        case 'n':
            options->seed = strtoull(optarg, &end, 10);
            options->has_seed = true;
            if (end == optarg || *end)
                return 1 + fail("a seed is a number, not", optarg);
            break;
        case 'l':
            if (read_loads(optarg, options) < 0)
                return 1 + fail("a load is a number such as 1.5, or several with commas, not", optarg);
            break;
        case 'c':
            options->csv = optarg;
            break;
        case 'g':
            options->svg = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return 1;
        case 'v':
            printf("divvy-sim %s\n", DIVVY_VERSION);
            return 1;
        default:
            return 1 + fail("see divvy-sim --help", NULL);
        }
    if (optind + 1 != argc)
        return 1 + fail("expected one workload file; see divvy-sim --help", NULL);
    if (options->load_count > 1 && (options->csv || options->svg))
        return 1 + fail("--csv and --plot are for one load", NULL);
    options->workload = argv[optind];
    return 0;
}

static int write_files(const struct dv_sim_report *report, const struct options *options)
{
    int status = 0;

    if (options->csv && (status = dv_report_write_csv(report, options->csv)) < 0)
        fprintf(stderr, "divvy-sim: cannot write %s: %s\n", options->csv, strerror(-status));
    else if (options->svg && (status = dv_report_write_svg(report, options->svg)) < 0)
        fprintf(stderr, "divvy-sim: cannot write %s: %s\n", options->svg, strerror(-status));
    return status;
}

static int show(struct dv_sim *sim, const struct options *options)
{
    struct dv_sim_report *report = dv_report_create(sim);
    int status = report ? 0 : -ENOMEM;

    if (report && options->load_count > 1) {
        dv_report_print_load(report, stdout);
    } else if (report) {
        dv_report_print_table(report, stdout);
        status = write_files(report, options);
    }
    dv_report_destroy(report);
    return status < 0 ? 1 : 0;
}

static int simulate(const struct dv_workload *workload, const struct options *options)
{
    struct dv_sim *sim = dv_sim_create(workload, options->ops, options->slice_ns);
    int status = sim ? dv_sim_run(sim, isatty(STDERR_FILENO) ? show_progress : NULL) : -ENOMEM;

    if (status < 0)
        fprintf(stderr, "divvy-sim: %s\n", status == -ELOOP ? sim->problem : "out of memory");
    status = status < 0 ? 1 : show(sim, options);
    dv_sim_destroy(sim);
    return status;
}

/* One simulation, or one for each load. */
static int simulate_all(struct dv_workload *workload, const struct options *options)
{
    int status = 0;

    if (options->load_count == 0)
        return simulate(workload, options);
    if (options->load_count > 1)
        dv_report_print_load_head(workload, stdout);
    for (unsigned i = 0; i < options->load_count && status == 0; i++) {
        workload->load = options->loads[i];
        status = simulate(workload, options);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    char error[512];
    int status = read_options(argc, argv, &options);

    if (status)
        return status - 1;
    struct dv_workload *workload = dv_workload_load(options.workload, error, sizeof error);
    if (!workload) {
        fprintf(stderr, "divvy-sim: %s\n", error);
        return 1;
    }
    if (options.config && dv_workload_apply_config(workload, options.config, error, sizeof error) < 0) {
        fprintf(stderr, "divvy-sim: %s\n", error);
        dv_workload_free(workload);
        return 1;
    }
    if (options.has_seed)
        workload->seed = options.seed;
    status = simulate_all(workload, &options);
    dv_workload_free(workload);
    return status;
}
