/* Launches that go to the device in parts. A part is a launch of its own over a box of the range's work-groups, in
 * their order. A kernel that asks only for global ids, local ids and local sizes can run as it is: the part starts at a
 * global offset, which keeps them right. All others run in a corrected form (correction.h). */
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/worker/opencl/cut_prelude.h"
#include "src/worker/opencl/executor.h"
#include "src/worker/opencl/residency.h"

/* Larger ranges are not cut; this bounds all products. */
#define SIZE_MAX_CUT ((size_t)INT32_MAX)
/* No global id beyond this is reached by an offset: see cut_prelude.h. */
#define OFFSET_SAFE_MAX UINT16_MAX
/* Where the program leaves the local size open. */
#define LOCAL_ITEMS_MAX 256

struct dvk_cut {
    cl_uint dims;
    size_t offset[3], global[3], local[3];
    uint64_t groups[3], total; /* in each dimension, and all */
    uint64_t next;             /* groups that were handed over; these are the first ones */
    uint64_t planned;          /* groups of the next part */
    uint64_t last;             /* groups of the part before */
    double group_items;
    bool corrected;
    struct dvk_pace pace; /* of this launch */
    uint32_t parts;       /* that were handed over */
    uint64_t expected_ns; /* of the next part; 0: not known */
    uint64_t spent_ns;    /* by the parts that have been measured */
    bool compiled;        /* perhaps: some part of it */
    uint32_t form;        /* of the next part */
    /* If the queue profiles: the part since which the driver has not compiled. When there was one before: when the
     * launch was handed over and began, and how long its parts before the anchor took. */
    cl_event anchor;
    uint64_t since_anchor_ns; /* by the parts after it that have been measured */
    cl_ulong submitted, began, took_before;
};

/* A box of groups. */
struct box {
    uint64_t at[3], count[3];
};

static const struct dvw_clEnqueueNDRangeKernel *message_of(const struct dvk_command *c)
{
    return (const void *)c->record;
}

static struct dvk_command *whole_of(struct dvk_command *c)
{
    return c->node.is_part ? (struct dvk_command *)c->node.whole : c;
}

/* ---- what may be spent ---- */

/* At the beginning, some launches are measured before there is time to take a part of. */
#define CREDIT_START_NS (5.0 * DV_NS_PER_MS)
#define CREDIT_MAX_NS (20.0 * DV_NS_PER_MS)
/* A part that is waited for, until the next one can follow. */
#define PROBE_NS (100.0 * DV_NS_PER_US)

void dvk_cut_start(struct dvk_worker *w)
{
    w->cut_credit_ns = CREDIT_START_NS;
}

void dvk_cut_earn(struct dvk_worker *w, uint32_t device, uint64_t took_ns)
{
    w->cut_credit_ns += (double)took_ns * dv_lease_part_cost_ppm(w->runtime->lease, device) / 1e6;
    if (w->cut_credit_ns > CREDIT_MAX_NS)
        w->cut_credit_ns = CREDIT_MAX_NS;
}

/* ---- whether a launch can be cut ---- */

/* The program left the local size open: the kernel's own, or one that divides the range. */
static void choose_local(const struct dvk_command *c, struct dvk_cut *cut)
{
    size_t required[3] = {0}, most = LOCAL_ITEMS_MAX;
    cl_device_id device = c->queue->device->vendor;
    cl_kernel kernel = c->kernel->vendor;

    clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof required, required, NULL);
    if (required[0]) {
        memcpy(cut->local, required, sizeof required);
        return;
    }
    clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL);
    if (most > LOCAL_ITEMS_MAX)
        most = LOCAL_ITEMS_MAX;
    /* the largest divisors, in the first dimension first: every group has the same size */
    for (cl_uint d = 0; d < cut->dims; d++) {
        size_t size = cut->global[d] < most ? cut->global[d] : most;
        while (size > 1 && cut->global[d] % size)
            size--;
        cut->local[d] = size;
        most /= size;
    }
}

/* Reads the launch. Returns false when it has no range. */
static bool read_range(const struct dvk_command *c, struct dvk_cut *cut)
{
    const struct dvw_clEnqueueNDRangeKernel *m = message_of(c);

    *cut = (struct dvk_cut){.dims = m->work_dim, .local = {1, 1, 1}, .group_items = 1, .total = 1};
    if (!m->has_global_work_size)
        return false;
    for (cl_uint d = 0; d < 3; d++) {
        cut->global[d] = d < cut->dims ? m->global_work_size[d] : 1;
        cut->offset[d] = d < cut->dims && m->has_global_work_offset ? m->global_work_offset[d] : 0;
        if (d < cut->dims && m->has_local_work_size)
            cut->local[d] = m->local_work_size[d];
        /* the vendor refuses what is wrong */
        if (cut->global[d] == 0 || cut->global[d] > SIZE_MAX_CUT || cut->offset[d] > SIZE_MAX_CUT ||
            cut->local[d] == 0 || cut->local[d] > SIZE_MAX_CUT)
            return false;
    }
    if (!m->has_local_work_size)
        choose_local(c, cut);
    for (cl_uint d = 0; d < 3; d++) {
        cut->groups[d] = (cut->global[d] + cut->local[d] - 1) / cut->local[d];
        if (cut->groups[d] > UINT64_MAX / cut->total)
            return false;
        cut->total *= cut->groups[d];
        cut->group_items *= (double)cut->local[d];
    }
    return true;
}

static uint32_t units_of(struct dvk_device *device)
{
    cl_uint units = 1;

    if (device->units == 0) {
        clGetDeviceInfo(device->vendor, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
        device->units = units ? units : 1;
    }
    return device->units;
}

/* The corrected form may need more registers, and so allow smaller groups only. */
static bool corrected_allows(const struct dvk_command *c, const struct dvk_cut *cut)
{
    size_t most = 0;

    return clGetKernelWorkGroupInfo(c->kernel->corrected.kernel, c->queue->device->vendor, CL_KERNEL_WORK_GROUP_SIZE,
                                    sizeof most, &most, NULL) == CL_SUCCESS &&
           cut->group_items <= (double)most;
}

static bool starts_at_zero(const struct dvk_cut *cut)
{
    return cut->offset[0] == 0 && cut->offset[1] == 0 && cut->offset[2] == 0;
}

/* Whether offsets alone reach all of the range. */
static bool offsets_reach(const struct dvk_cut *cut)
{
    for (int d = 0; d < 3; d++)
        if (cut->offset[d] + cut->global[d] > OFFSET_SAFE_MAX)
            return false;
    return true;
}

/* Whether the corrected form can describe the range. */
static bool is_described(const struct dvk_cut *cut)
{
    const uint64_t first[3] = {0};
    size_t offsets[3];

    for (int d = 0; d < 3; d++)
        if (cut->global[d] % cut->local[d])
            return false;
    return starts_at_zero(cut) && dvk_cut_offsets(cut->dims, cut->groups, first, offsets);
}

/* DV_WHOLE_NO_REASON: it can be cut, or it cannot be said before the corrected form is built (*builds). */
static enum dv_whole_reason why_whole(struct dvk_command *c, struct dvk_cut *cut, bool *builds)
{
    *builds = false;
    if (c->kernel->verdict.kind == DV_CUT_WHOLE)
        return c->kernel->verdict.reason;
    if (!read_range(c, cut) || cut->total < 2)
        return DV_WHOLE_SINGLE_GROUP;
    cut->corrected = c->kernel->verdict.kind == DV_CUT_CORRECTED || !offsets_reach(cut);
    if (!cut->corrected)
        return DV_WHOLE_NO_REASON;
    if (!is_described(cut))
        return DV_WHOLE_RANGE;
    enum dvk_correction_state state = dvk_kernel_correct(c->kernel);
    *builds = state == DVK_CORRECTION_BUILDING;
    if (state == DVK_CORRECTION_FAILED || (state == DVK_CORRECTION_READY && !corrected_allows(c, cut)))
        return DV_WHOLE_UNCORRECTED;
    return DV_WHOLE_NO_REASON;
}

/* The launch stays whole. */
static void leave_whole(struct dvk_command *c, enum dv_whole_reason reason)
{
    c->stays_whole = true;
    if (c->kernel->listed)
        atomic_store_explicit(&c->kernel->listed->reason, reason, memory_order_relaxed);
}

/* Makes it a launch in parts, if it can be one. Returns false when that is not known yet. */
static bool begin(struct dvk_command *c)
{
    struct dvk_cut cut;
    bool builds;
    enum dv_whole_reason reason = why_whole(c, &cut, &builds);

    if (builds)
        return false;
    if (reason != DV_WHOLE_NO_REASON)
        leave_whole(c, reason);
    else if ((c->cut = malloc(sizeof cut)))
        *c->cut = cut;
    return true;
}

void dvk_cut_free(struct dvk_cut *cut)
{
    if (!cut)
        return;
    if (cut->anchor)
        clReleaseEvent(cut->anchor);
    free(cut);
}

/* ---- the next part ---- */

/* The largest box that begins with the next group and has at most so many: of a row, of rows, or of layers. */
static struct box box_at(const struct dvk_cut *cut, uint64_t next, uint64_t most)
{
    uint64_t row = cut->groups[0], layer = row * cut->groups[1];
    struct box box = {.at = {next % row, next % layer / row, next / layer}, .count = {1, 1, 1}};

    if (box.at[0] != 0 || most < row) {
        uint64_t left = row - box.at[0];
        box.count[0] = most < left ? most : left;
    } else if (box.at[1] != 0 || most < layer) {
        uint64_t left = cut->groups[1] - box.at[1];
        box.count[0] = row;
        box.count[1] = most / row < left ? most / row : left;
    } else {
        uint64_t left = cut->groups[2] - box.at[2];
        box.count[0] = row;
        box.count[1] = cut->groups[1];
        box.count[2] = most / layer < left ? most / layer : left;
    }
    return box;
}

static uint64_t groups_of(const struct box *box)
{
    return box->count[0] * box->count[1] * box->count[2];
}

/* The range of a launch over these groups. */
static void range_of(const struct dvk_cut *cut, const struct box *box, size_t offset[3], size_t global[3])
{
    for (int d = 0; d < 3; d++) {
        size_t at = (size_t)box->at[d] * cut->local[d], size = (size_t)box->count[d] * cut->local[d];
        offset[d] = cut->offset[d] + at;
        global[d] = size < cut->global[d] - at ? size : cut->global[d] - at;
    }
    if (cut->corrected)
        dvk_cut_offsets(cut->dims, cut->groups, box->at, offset);
}

static uint32_t form_of(const struct dvk_cut *cut, const struct box *box)
{
    size_t offset[3], global[3];

    range_of(cut, box, offset, global);
    return dvk_timing_form(offset, global) | (cut->corrected ? DVK_FORM_CORRECTED : 0);
}

/* What is left of the slice when the commands in flight have ended; 0: nothing. */
static uint64_t left_of_slice(const struct dvk_command *c)
{
    const struct dvk_gate *gate = c->queue->graph.gate;
    uint64_t end_ns = dv_lease_end_ns(c->worker->runtime->lease, gate->device), begins = dv_now();

    if (gate->flight.count && gate->flight.ends_ns > begins)
        begins = gate->flight.ends_ns;
    return end_ns > begins ? end_ns - begins : 0;
}

/* A launch of which nothing is known begins with a small part, which measures it, unless there is no tenant that it
 * could delay. The arguments can make a launch long that was always short: those with new ones are measured as well, as
 * long as that costs little of the time. */
static bool is_unknown(const struct dvk_command *c, const struct dv_lease *lease, uint32_t device)
{
    if (dv_lease_alone(lease, device))
        return false;
    return c->timing->pace.item_ns <= 0 || c->compiles || (c->is_new && c->worker->cut_credit_ns > 0);
}

static bool is_worth_cutting(const struct dvk_command *c, uint64_t part_ns, uint32_t cost_ppm)
{
    const struct dvk_pace *pace = &c->timing->pace;

    return pace->item_ns > 0 && dvk_pace_fears(pace, c->items) > dvk_cut_worth_ns(pace, part_ns, cost_ppm);
}

bool dvk_cut_plan(struct dvk_command *c)
{
    struct dv_lease *lease = c->worker->runtime->lease;

    if (!c->kernel || !c->timing || c->stays_whole || !lease)
        return true;
    uint32_t device = c->queue->graph.gate->device;
    uint64_t part_ns = dv_lease_part_ns(lease, device);
    struct dvk_cut_wish wish = {.target_ns = part_ns, .cost_ppm = dv_lease_part_cost_ppm(lease, device)};
    bool always = part_ns == DVK_CUT_ALWAYS_NS;

    if (!c->cut) {
        bool unknown = part_ns && !always && is_unknown(c, lease, device);
        if (part_ns == 0 || !(always || unknown || is_worth_cutting(c, part_ns, wish.cost_ppm)))
            return true;
        /* where other tenants are, they are not to wait for the whole of it */
        if (!begin(c)) {
            bool goes = !always && dv_lease_alone(lease, device);
            dvk_gate_hold_up(c->queue->graph.gate, !goes);
            return goes;
        }
        if (!c->cut)
            return true;
        c->cut->pace = c->timing->pace;
        if (unknown)
            dvk_pace_init(&c->cut->pace);
    }
    struct dvk_cut *cut = c->cut;
    if (!always && !cut->pace.sure && c->node.open_parts > 0)
        return false;
    cut->pace.launch_ns = c->timing->pace.launch_ns;
    wish.slice_ns = left_of_slice(c);
    wish.group_items = cut->group_items;
    wish.groups_left = cut->total - cut->next;
    wish.last_groups = cut->last;
    wish.units = units_of(c->queue->device);
    wish.odd = always ? cut->parts % 2 : cut->parts % 4 == 1;
    /* 0: that was changed meanwhile */
    struct box box = box_at(cut, cut->next, part_ns ? dvk_cut_groups(&cut->pace, &wish) : wish.groups_left);
    cut->planned = groups_of(&box);
    cut->form = form_of(cut, &box);
    /* the driver compiles: how long the parts before it took is known first */
    if (c->node.open_parts > 0 && !dvk_timing_knows(c->timing, cut->local, cut->form))
        return false;
    cut->expected_ns = dvk_pace_expects(&cut->pace, (double)cut->planned * cut->group_items);
    return true;
}

/* Enqueues groups of a launch: of the command `on`, which is a part of it or the launch itself. */
static cl_int enqueue_groups(struct dvk_command *on, struct dvk_command *launch, uint64_t next, uint64_t count)
{
    const struct dvk_cut *cut = launch->cut;
    struct dvk_vendor_kernel *kernel = cut->corrected ? &launch->kernel->corrected : &launch->kernel->as_is;
    struct box box = box_at(cut, next, count);
    size_t offset[3], global[3];

    range_of(cut, &box, offset, global);
    cl_int error = dvk_arguments_apply(kernel, launch->arguments);
    if (error != CL_SUCCESS)
        return error;
    return clEnqueueNDRangeKernel(dvk_command_queue(on), kernel->kernel, cut->corrected ? 3 : cut->dims, offset, global,
                                  cut->local, on->wait_count, on->waits, dvk_command_event(on));
}

static void count_part(const struct dvk_command *launch)
{
    if (launch->kernel->listed)
        atomic_fetch_add_explicit(&launch->kernel->listed->parts, 1, memory_order_relaxed);
}

/* The first part cannot go, so the launch goes as a whole. A marker ends instead of the part. */
static cl_int give_up(struct dvk_command *part, enum dv_whole_reason reason)
{
    struct dvk_command *launch = whole_of(part);

    leave_whole(launch, reason);
    dvk_cut_free(launch->cut);
    launch->cut = NULL;
    return clEnqueueMarkerWithWaitList(dvk_command_queue(part), part->wait_count, part->waits, dvk_command_event(part));
}

static bool is_profiled(const struct dvk_command *launch)
{
    return launch->queue->profiling && launch->node.event;
}

static cl_ulong time_of(cl_event event, cl_profiling_info what)
{
    cl_ulong ns = 0;

    clGetEventProfilingInfo(event, what, sizeof ns, &ns, NULL);
    return ns;
}

/* The driver compiles for a part. Programs that measure themselves would take that for the kernel's time, so the launch
 * begins at this part, less what the parts before it took; these are complete. */
static void note_anchor(struct dvk_cut *cut)
{
    if (!cut->anchor)
        return;
    if (!cut->began) {
        cut->submitted = time_of(cut->anchor, CL_PROFILING_COMMAND_SUBMIT);
        cut->began = time_of(cut->anchor, CL_PROFILING_COMMAND_START);
    }
    cut->took_before += time_of(cut->anchor, CL_PROFILING_COMMAND_END) -
                        time_of(cut->anchor, CL_PROFILING_COMMAND_START) + cut->since_anchor_ns;
    cut->since_anchor_ns = 0;
    clReleaseEvent(cut->anchor);
    cut->anchor = NULL;
}

void dvk_cut_began(const struct dvk_command *c, cl_ulong *submit, cl_ulong *start)
{
    const struct dvk_cut *cut = c->cut;
    cl_event event = cut && cut->anchor ? cut->anchor : c->event;

    *submit = time_of(event, CL_PROFILING_COMMAND_SUBMIT);
    *start = time_of(event, CL_PROFILING_COMMAND_START);
    if (cut && cut->began) {
        *submit = cut->submitted;
        *start = *start > cut->began + cut->took_before ? *start - cut->took_before : cut->began;
    }
}

static int32_t submit_part(struct dvk_worker *w, struct dvk_command *c)
{
    struct dvk_command *launch = whole_of(c);
    struct dvk_cut *cut = launch->cut;
    uint64_t count = (uint64_t)(c->items / cut->group_items + 0.5);

    if (launch->refused)
        return launch->refused;
    cl_int error = enqueue_groups(c, launch, cut->next, count);
    if (error != CL_SUCCESS && cut->next == 0)
        return give_up(c, DV_WHOLE_REFUSED);
    if (error != CL_SUCCESS)
        return error;
    if (cut->next == 0 && launch->node.event)
        dvk_command_is_submitted(launch);
    if ((cut->next == 0 || c->compiles) && is_profiled(launch) && c->event) {
        note_anchor(cut);
        cut->anchor = c->event;
        c->event_is_kept = true;
    }
    if (!cut->pace.sure)
        w->cut_credit_ns -= PROBE_NS;
    cut->next += count;
    cut->last = count;
    cut->parts++;
    count_part(launch);
    dvk_residency_submitted(launch);
    return CL_SUCCESS;
}

struct dvk_node *dvk_cut_next(struct dvk_node *node)
{
    static const struct dvk_message_info info = {.name = "clEnqueueNDRangeKernel", .submit = submit_part};
    struct dvk_command *launch = (struct dvk_command *)node;
    struct dvk_cut *cut = launch->cut;

    if (!cut || cut->planned >= cut->total - cut->next)
        return NULL;
    struct dvk_command *c = calloc(1, sizeof *c);
    if (!c) {
        launch->refused = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    c->queue = launch->queue;
    c->worker = launch->worker;
    c->info = &info;
    c->may_print = launch->may_print;
    c->timing = launch->timing;
    c->timing->refs++;
    c->items = (double)cut->planned * cut->group_items;
    c->compiles = dvk_timing_is_new(c->timing, cut->local, cut->form) || (cut->next == 0 && launch->compiles);
    return &c->node;
}

cl_int dvk_cut_submit_rest(struct dvk_command *c)
{
    struct dvk_cut *cut = c->cut;

    if (c->kernel->listed)
        atomic_fetch_add_explicit(&c->kernel->listed->cut_launches, 1, memory_order_relaxed);
    count_part(c);
    c->compiles = dvk_timing_is_new(c->timing, cut->local, cut->form);
    if (c->compiles && is_profiled(c))
        note_anchor(cut);
    return enqueue_groups(c, c, cut->next, cut->total - cut->next);
}

bool dvk_cut_is_begun(struct dvk_command *c)
{
    if (c->cut && c->cut->next > 0)
        return true;
    dvk_cut_free(c->cut); /* it turned out to be short */
    c->cut = NULL;
    return false;
}

uint64_t dvk_cut_expects(const struct dvk_command *c)
{
    const struct dvk_command *launch = c->node.is_part ? (const struct dvk_command *)c->node.whole : c;

    return launch->cut ? launch->cut->expected_ns : 0;
}

/* ---- what parts take ---- */

void dvk_cut_measured(struct dvk_command *c, uint64_t took_ns)
{
    struct dvk_command *launch = whole_of(c);
    struct dvk_cut *cut = launch->cut;
    struct dvk_timing *timing = c->timing;

    if (!cut) /* the vendor refused the part */
        return;
    double items = c == launch ? (double)(cut->total - cut->next) * cut->group_items : c->items;
    if (!c->compiles) {
        dvk_pace_note(&timing->pace, items, took_ns);
        dvk_pace_note(&cut->pace, items, took_ns);
    }
    cut->spent_ns += took_ns;
    if (!c->event_is_kept)
        cut->since_anchor_ns += took_ns;
    cut->compiled |= c->compiles;
    if (c != launch || cut->compiled)
        return;
    timing->cost_ns = cut->spent_ns ? cut->spent_ns : 1;
    timing->items = c->items;
}
