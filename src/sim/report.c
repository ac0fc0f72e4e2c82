/* Shares against entitlements (see report.h). */
#include "src/sim/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define WINDOW_BINS (DV_SIM_WINDOW_NS / DV_SIM_BIN_NS)
#define STEP_BINS 5 /* between the windows that are looked at */
#define CSV_STEP_BINS 10
#define TOLERATED 0.02

static int compare_ns(const void *a, const void *b)
{
    dv_ns x = *(const dv_ns *)a, y = *(const dv_ns *)b;
    return x < y ? -1 : x > y;
}

static void sort(struct dv_samples *samples)
{
    if (samples->count)
        qsort(samples->values, samples->count, sizeof *samples->values, compare_ns);
}

static dv_ns percentile(const struct dv_samples *sorted, unsigned percent)
{
    if (!sorted->count)
        return 0;
    size_t index = (sorted->count * percent + 99) / 100;
    return sorted->values[index ? index - 1 : 0];
}

double dv_report_window_share(const struct dv_sim *sim, const struct dv_sim_tenant *tenant, size_t end_bin)
{
    size_t first = end_bin > WINDOW_BINS ? end_bin - WINDOW_BINS : 0;
    dv_ns sum = 0;

    (void)sim;
    for (size_t bin = first; bin < end_bin; bin++)
        sum += tenant->bins[bin];
    return (double)sum / (double)((end_bin - first) * DV_SIM_BIN_NS);
}

static bool always_wants(const struct dv_sim_tenant *tenant)
{
    return tenant->spec->arrival == DV_ARRIVAL_ALWAYS && tenant->spec->gap_ns == 0;
}

static bool present_in(const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to)
{
    return tenant->join_ns <= from && tenant->leave_ns >= to;
}

static bool absent_from(const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to)
{
    return tenant->join_ns >= to || tenant->leave_ns <= from;
}

/* Figures that are computed window by window. */
struct windows {
    struct dv_share *shares;
    struct dv_sim_tenant **present;
    double *got;
    uint32_t *ppm;
    double *entitled_sum, *got_sum;
    size_t *count, *within;
};

/* Compares the shares of a device's tenants in one window with their entitlements. A tenant that does
 * not always want the device is assumed to want what it got. Windows in which a tenant joins or leaves
 * are left out: they have no single entitlement. */
static void look_at_window(struct dv_sim_report *report, const struct dv_sim_device *device, size_t end_bin,
                           struct windows *w)
{
    const struct dv_sim *sim = report->sim;
    dv_ns to = end_bin * DV_SIM_BIN_NS, from = to - DV_SIM_WINDOW_NS;
    uint32_t count = 0;

    for (unsigned i = 0; i < sim->tenant_count; i++) {
        struct dv_sim_tenant *tenant = &sim->tenants[i];
        if (tenant->device != device || absent_from(tenant, from, to))
            continue;
        if (!present_in(tenant, from, to))
            return;
        double got = dv_report_window_share(sim, tenant, end_bin);
        struct dv_share share = tenant->spec->share;
        if (!always_wants(tenant)) {
            uint32_t used = (uint32_t)(got * DV_PPM);
            share.limit_ppm = used < share.limit_ppm ? used : share.limit_ppm;
            share.request_ppm = share.request_ppm < share.limit_ppm ? share.request_ppm : share.limit_ppm;
        }
        w->present[count] = tenant;
        w->got[count] = got;
        w->shares[count++] = share;
    }
    dv_policy_entitlements(w->shares, count, w->ppm);
    for (uint32_t i = 0; i < count; i++) {
        size_t index = (size_t)(w->present[i] - sim->tenants);
        struct dv_sim_row *row = &report->rows[index];
        double entitled = (double)w->ppm[i] / DV_PPM;
        double off = w->got[i] - entitled;
        if (!always_wants(w->present[i]))
            continue;
        if (fabs(off) > fabs(row->worst))
            row->worst = off;
        row->least = w->count[index] && row->least < w->got[i] ? row->least : w->got[i];
        row->most = row->most > w->got[i] ? row->most : w->got[i];
        w->entitled_sum[index] += entitled;
        w->got_sum[index] += w->got[i];
        w->within[index] += fabs(off) <= TOLERATED;
        w->count[index]++;
    }
}

/* When the next tenant of a device joins or leaves. */
static dv_ns next_change(const struct dv_sim *sim, const struct dv_sim_device *device, dv_ns after)
{
    dv_ns next = sim->workload->duration_ns;

    for (unsigned i = 0; i < sim->tenant_count; i++) {
        const struct dv_sim_tenant *tenant = &sim->tenants[i];
        if (tenant->device != device)
            continue;
        if (tenant->join_ns > after && tenant->join_ns < next)
            next = tenant->join_ns;
        if (tenant->leave_ns > after && tenant->leave_ns < next)
            next = tenant->leave_ns;
    }
    return next;
}

/* What a tenant wants of a device between two moments: all that its share allows, or what it got. */
static struct dv_share wanted_between(const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to)
{
    struct dv_share share = tenant->spec->share;
    dv_ns held = 0;

    if (always_wants(tenant))
        return share;
    for (size_t bin = from / DV_SIM_BIN_NS; bin < to / DV_SIM_BIN_NS; bin++)
        held += tenant->bins[bin];
    uint32_t used = (uint32_t)((double)held / (double)(to - from) * DV_PPM);
    share.limit_ppm = used < share.limit_ppm ? used : share.limit_ppm;
    share.request_ppm = share.request_ppm < share.limit_ppm ? share.request_ppm : share.limit_ppm;
    return share;
}

void dv_report_each_entitlement(const struct dv_sim_report *report, const struct dv_sim_device *device,
                                void (*take)(void *user, const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to,
                                             double entitled),
                                void *user)
{
    const struct dv_sim *sim = report->sim;
    struct dv_share *shares = calloc(sim->tenant_count + 1, sizeof *shares);
    uint32_t *ppm = calloc(sim->tenant_count + 1, sizeof *ppm);
    const struct dv_sim_tenant **present = calloc(sim->tenant_count + 1, sizeof *present);

    for (dv_ns from = 0, to; shares && ppm && present && from < sim->workload->duration_ns; from = to) {
        uint32_t count = 0;
        to = next_change(sim, device, from);
        if (to - from < DV_SIM_WINDOW_NS)
            continue;
        for (unsigned i = 0; i < sim->tenant_count; i++)
            if (sim->tenants[i].device == device && present_in(&sim->tenants[i], from, to)) {
                present[count] = &sim->tenants[i];
                shares[count++] = wanted_between(&sim->tenants[i], from, to);
            }
        dv_policy_entitlements(shares, count, ppm);
        for (uint32_t i = 0; i < count; i++)
            if (always_wants(present[i]))
                take(user, present[i], from, to, (double)ppm[i] / DV_PPM);
    }
    free(shares);
    free(ppm);
    free(present);
}

static void look_at_windows(struct dv_sim_report *report, struct windows *w)
{
    const struct dv_sim *sim = report->sim;

    for (unsigned d = 0; d < sim->device_count; d++)
        for (size_t end = WINDOW_BINS; end <= sim->bin_count; end += STEP_BINS)
            look_at_window(report, &sim->devices[d], end, w);
    for (unsigned i = 0; i < sim->tenant_count; i++) {
        struct dv_sim_row *row = &report->rows[i];
        double count = (double)w->count[i];
        row->entitled = count > 0 ? w->entitled_sum[i] / count : NAN;
        row->within = count > 0 ? (double)w->within[i] / count : NAN;
    }
}

static int fill_windows(struct dv_sim_report *report)
{
    size_t count = report->sim->tenant_count;
    struct windows w = {calloc(count, sizeof *w.shares),       calloc(count, sizeof *w.present),
                        calloc(count, sizeof *w.got),          calloc(count, sizeof *w.ppm),
                        calloc(count, sizeof *w.entitled_sum), calloc(count, sizeof *w.got_sum),
                        calloc(count, sizeof *w.count),        calloc(count, sizeof *w.within)};
    bool ready = w.shares && w.present && w.got && w.ppm && w.entitled_sum && w.got_sum && w.count && w.within;

    if (ready)
        look_at_windows(report, &w);
    free(w.shares);
    free(w.present);
    free(w.got);
    free(w.ppm);
    free(w.entitled_sum);
    free(w.got_sum);
    free(w.count);
    free(w.within);
    return ready ? 0 : -ENOMEM;
}

struct dv_sim_report *dv_report_create(struct dv_sim *sim)
{
    struct dv_sim_report *report = calloc(1, sizeof *report);
    double capacity = 0, kernels = 0, held = 0, logarithms = 0, came = 0;

    if (!report)
        return NULL;
    report->sim = sim;
    report->rows = calloc(sim->tenant_count ? sim->tenant_count : 1, sizeof *report->rows);
    if (!report->rows || fill_windows(report) < 0) {
        dv_report_destroy(report);
        return NULL;
    }
    for (unsigned i = 0; i < sim->device_count; i++) {
        capacity += (double)sim->workload->duration_ns * sim->devices[i].spec->slot_count;
        held += (double)sim->devices[i].held_ns;
        report->has_memory |= sim->devices[i].spec->memory_bytes > 0;
    }
    for (unsigned i = 0; i < sim->tenant_count; i++) {
        struct dv_sim_tenant *tenant = &sim->tenants[i];
        struct dv_sim_row *row = &report->rows[i];
        sort(&tenant->waits);
        sort(&tenant->latencies);
        row->tenant = tenant;
        row->came = tenant->join_ns < tenant->leave_ns && !tenant->refused;
        if (row->came) {
            double present_ns = (double)(tenant->leave_ns - tenant->join_ns);
            row->share = (double)tenant->held_ns / present_ns;
            row->kernels = (double)tenant->kernels_ns / present_ns / tenant->device->spec->slot_count;
        }
        row->in_sla = tenant->sla_requests ? (double)tenant->sla_met / (double)tenant->sla_requests : NAN;
        report->has_sla |= tenant->spec->sla_ns > 0;
        row->wait_p50 = percentile(&tenant->waits, 50);
        row->wait_p99 = percentile(&tenant->waits, 99);
        row->latency_p50 = percentile(&tenant->latencies, 50);
        row->latency_p99 = percentile(&tenant->latencies, 99);
        kernels += (double)tenant->kernels_ns;
        came += row->came;
        if (row->came)
            logarithms += log((double)tenant->kernels_ns / (double)sim->workload->duration_ns);
    }
    report->useful = kernels / capacity;
    report->progress = exp(logarithms / came);
    report->held = held / capacity;
    return report;
}

void dv_report_destroy(struct dv_sim_report *report)
{
    if (report)
        free(report->rows);
    free(report);
}

static double ms(dv_ns ns)
{
    return (double)ns / 1e6;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void print_sla(dv_ns target_ns, double in_sla, FILE *out)
{
    char target[24] = "-", met[16] = "-";

    if (target_ns)
        snprintf(target, sizeof target, "%.5g", ms(target_ns));
    if (!isnan(in_sla))
        snprintf(met, sizeof met, "%.2f%%", 100 * in_sla);
    fprintf(out, " %8s %8s", target, met);
}

static void print_row(const struct dv_sim_report *report, const struct dv_sim_row *row, FILE *out)
{
    const struct dv_sim_tenant *tenant = row->tenant;
    char entitled[16] = "-", worst[24] = "-", within[16] = "-";

    if (!isnan(row->entitled)) {
        snprintf(entitled, sizeof entitled, "%.2f%%", 100 * row->entitled);
        snprintf(worst, sizeof worst, "%+.2f points", 100 * row->worst);
        snprintf(within, sizeof within, "%.1f%%", 100 * row->within);
    }
    fprintf(out, "%-16s %-8s %8s %6.2f%% %14s %7s %7.2f/%7.2f %8.2f/%8.2f %8llu %8.3f %8.3f %7.2f%%", tenant->name,
            dv_class_word(tenant->spec->share.class), entitled, 100 * row->share, worst, within, ms(row->wait_p50),
            ms(row->wait_p99), ms(row->latency_p50), ms(row->latency_p99), (unsigned long long)tenant->slices,
            tenant->slices ? ms(tenant->held_ns) / (double)tenant->slices : 0,
            tenant->slices ? ms(tenant->overuse_ns) / (double)tenant->slices : 0, 100 * row->kernels);
    if (report->has_sla)
        print_sla(tenant->spec->sla_ns, row->in_sla, out);
    if (report->has_memory)
        fprintf(out, " %8llu %10.1f %10.1f", (unsigned long long)tenant->moves, mib(tenant->moved_bytes),
                ms(tenant->moving_ns));
    fputc('\n', out);
}

static void print_device(const struct dv_sim_report *report, const struct dv_sim_device *device, FILE *out)
{
    double capacity = (double)report->sim->workload->duration_ns * device->spec->slot_count;

    fprintf(out, "%-16s %-8s %8u %7.2f%% %7.2f%% %10llu", device->name, device->ops->name, device->tenants_placed,
            100 * (double)device->kernels_ns / capacity, 100 * (double)device->held_ns / capacity,
            (unsigned long long)device->decisions);
    if (report->has_memory)
        fprintf(out, " %8llu %10.1f %12.1f %7.2f%%", (unsigned long long)device->memory.moves,
                mib(device->memory.moved_bytes), mib(device->memory.evicted_bytes),
                100 * (double)device->memory.moving_ns / capacity);
    fputc('\n', out);
}

static void print_devices(const struct dv_sim_report *report, FILE *out)
{
    fprintf(out, "\n%-16s %-8s %8s %8s %8s %10s", "DEVICE", "POLICY", "TENANTS", "KERNELS", "LEASES", "DECISIONS");
    if (report->has_memory)
        fprintf(out, " %8s %10s %12s %8s", "MOVES", "MOVED MiB", "EVICTED MiB", "LOST");
    fputc('\n', out);
    for (unsigned i = 0; i < report->sim->device_count; i++)
        print_device(report, &report->sim->devices[i], out);
}

void dv_report_print_table(const struct dv_sim_report *report, FILE *out)
{
    fprintf(out, "%-16s %-8s %8s %7s %14s %7s %15s %17s %8s %8s %8s %8s", "TENANT", "CLASS", "ENTITLED", "SHARE",
            "WORST 1s", "IN 2pt", "WAIT p50/p99", "LATENCY p50/p99", "SLICES", "MEAN", "OVERUSE", "KERNELS");
    if (report->has_sla)
        fprintf(out, " %8s %8s", "SLA", "IN SLA");
    if (report->has_memory)
        fprintf(out, " %8s %10s %10s", "MOVES", "MOVED MiB", "LOST");
    fputc('\n', out);
    for (unsigned i = 0; i < report->sim->tenant_count; i++)
        if (report->rows[i].came)
            print_row(report, &report->rows[i], out);
        else if (report->rows[i].tenant->refused)
            fprintf(out, "%-16s %-8s refused\n", report->rows[i].tenant->name,
                    dv_class_word(report->rows[i].tenant->spec->share.class));
    fprintf(out,
            "kernels ran %.2f%% of the time (%.3f%% a tenant, geometric mean); leases were out "
            "%.2f%%; times in ms\n",
            100 * report->useful, 100 * report->progress, 100 * report->held);
    if (report->sim->device_count > 1 || report->has_memory)
        print_devices(report, out);
}

void dv_report_print_load_head(const struct dv_workload *workload, FILE *out)
{
    fprintf(out, "%8s %12s %9s", "LOAD", "KERNELS RAN", "IN SLA");
    for (uint64_t i = 0; i < workload->tenants_count; i++)
        if (workload->tenants[i].sla_ns)
            fprintf(out, " %16.64s", workload->tenants[i].name);
    fputc('\n', out);
}

static void print_met(uint64_t met, uint64_t requests, int width, FILE *out)
{
    if (requests)
        fprintf(out, " %*.2f%%", width - 1, 100 * (double)met / (double)requests);
    else
        fprintf(out, " %*s", width, "-");
}

void dv_report_print_load(const struct dv_sim_report *report, FILE *out)
{
    const struct dv_sim *sim = report->sim;
    const struct dv_workload *workload = sim->workload;
    uint64_t requests = 0, met = 0;
    unsigned index = 0; /* tenants come in the order of their entries */

    for (unsigned i = 0; i < sim->tenant_count; i++) {
        requests += sim->tenants[i].sla_requests;
        met += sim->tenants[i].sla_met;
    }
    fprintf(out, "%8.3g %11.2f%%", workload->load, 100 * report->useful);
    print_met(met, requests, 9, out);
    for (uint64_t i = 0; i < workload->tenants_count; i++) {
        const struct dv_sim_tenant_spec *spec = &workload->tenants[i];
        for (requests = met = 0; index < sim->tenant_count && sim->tenants[index].spec == spec; index++) {
            requests += sim->tenants[index].sla_requests;
            met += sim->tenants[index].sla_met;
        }
        if (spec->sla_ns)
            print_met(met, requests, 16, out);
    }
    fputc('\n', out);
}

int dv_report_write_csv(const struct dv_sim_report *report, const char *path)
{
    const struct dv_sim *sim = report->sim;
    FILE *file = fopen(path, "we");

    if (!file)
        return -errno;
    fprintf(file, "time_s,device,tenant,share_1s,held_ms\n");
    for (size_t bin = CSV_STEP_BINS; bin <= sim->bin_count; bin += CSV_STEP_BINS)
        for (unsigned i = 0; i < sim->tenant_count; i++) {
            const struct dv_sim_tenant *tenant = &sim->tenants[i];
            dv_ns held = 0;
            if (!tenant->device)
                continue;
            for (size_t b = bin - CSV_STEP_BINS; b < bin; b++)
                held += tenant->bins[b];
            fprintf(file, "%.1f,%s,%s,%.5f,%.3f\n", (double)(bin * DV_SIM_BIN_NS) / 1e9, tenant->device->name,
                    tenant->name, dv_report_window_share(sim, tenant, bin), ms(held));
        }
    return fclose(file) == 0 ? 0 : -errno;
}
