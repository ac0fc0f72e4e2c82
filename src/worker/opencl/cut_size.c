/* The size of parts (see cut_size.h). */
#include "src/worker/opencl/cut_size.h"

#include <math.h>

#include "src/base/clock.h"

/* The assumed cost of a part until it can be measured. */
#define LAUNCH_START_NS (20.0 * DV_NS_PER_US)
/* No measurement of it counts for more. */
#define LAUNCH_MAX_NS (1.0 * DV_NS_PER_MS)
/* However dear a part is, no kernel holds the device for longer. */
#define PART_MAX_NS (50 * DV_NS_PER_MS)
/* Shorter ones say more about the launch than about the kernel. */
#define TELLING_NS (200 * DV_NS_PER_US)
/* Until then a part has at most this many times the groups of the one before. */
#define GROWTH 8
/* A shorter measurement lowers the estimate at most by this factor. A longer one counts at once: parts that are too
 * short for a while cost little, and one that is too long delays others. */
#define FALL 4.0
/* A kernel can take long or short by its arguments: the slowest launch loses this part of its excess over each other.
 */
#define FORGET_PART 16
/* Of the sums, what an older measurement keeps when a new one comes. */
#define KEEP (63.0 / 64.0)
#define WEIGHT_MIN 6.0
/* Sizes must differ by this part of their mean to tell the two costs apart. */
#define SPREAD_MIN 0.05

void dvk_pace_init(struct dvk_pace *pace)
{
    *pace = (struct dvk_pace){.launch_ns = -1};
}

/* A line through the measurements: its slope is the cost of an item, and where it begins that of a part. On a busy
 * machine times vary by more than a part costs, and parts made larger by mistake delay others. So a part is taken for
 * dear only as far as the measurements leave no doubt: two standard errors less. */
static void estimate_launch(struct dvk_pace *pace)
{
    double count = pace->weight, mean = pace->items / count, variance = pace->items_squared / count - mean * mean;

    if (count < WEIGHT_MIN || variance < SPREAD_MIN * SPREAD_MIN * mean * mean)
        return;
    double mean_ns = pace->ns / count, together = pace->items_ns / count - mean * mean_ns;
    double slope = together / variance, begins = mean_ns - slope * mean;
    double residue = (pace->ns_squared / count - mean_ns * mean_ns - slope * together) / (count - 2);
    double error = residue > 0 ? sqrt(residue * (1 + mean * mean / variance)) : 0, least = begins - 2 * error;
    pace->launch_ns = least < 0 ? 0 : least > LAUNCH_MAX_NS ? LAUNCH_MAX_NS : least;
}

void dvk_pace_note(struct dvk_pace *pace, double items, uint64_t took_ns)
{
    if (items < 1)
        return;
    double ns = (double)(took_ns ? took_ns : 1), item_ns = ns / items;
    if (pace->item_ns > 0 && item_ns < 2 * pace->item_ns) {
        double near = item_ns < pace->item_ns / FALL ? pace->item_ns / FALL : item_ns;
        pace->item_ns = pace->sure ? (pace->item_ns + near) / 2 : near;
    } else {
        pace->item_ns = item_ns;
    }
    if (item_ns > pace->slow_item_ns)
        pace->slow_item_ns = item_ns;
    else
        pace->slow_item_ns -= (pace->slow_item_ns - item_ns) / FORGET_PART;
    pace->sure |= took_ns >= TELLING_NS;
    if (took_ns < TELLING_NS)
        return;
    pace->weight = pace->weight * KEEP + 1;
    pace->items = pace->items * KEEP + items;
    pace->ns = pace->ns * KEEP + ns;
    pace->items_squared = pace->items_squared * KEEP + items * items;
    pace->items_ns = pace->items_ns * KEEP + items * ns;
    pace->ns_squared = pace->ns_squared * KEEP + ns * ns;
    estimate_launch(pace);
}

uint64_t dvk_cut_part_ns(const struct dvk_pace *pace, uint64_t target_ns, uint32_t cost_ppm)
{
    double launch_ns = pace->launch_ns < 0 ? LAUNCH_START_NS : pace->launch_ns;
    double least = cost_ppm ? launch_ns * 1e6 / cost_ppm : 0;

    if (least > (double)PART_MAX_NS)
        least = (double)PART_MAX_NS;
    return (double)target_ns > least ? target_ns : (uint64_t)least;
}

uint64_t dvk_cut_worth_ns(const struct dvk_pace *pace, uint64_t target_ns, uint32_t cost_ppm)
{
    return target_ns == DVK_CUT_ALWAYS_NS ? 0 : 2 * dvk_cut_part_ns(pace, target_ns, cost_ppm);
}

static uint64_t round_to_units(double groups, uint32_t units)
{
    uint64_t whole = groups < 1 ? 1 : (uint64_t)groups;

    return units > 1 && whole > units ? whole - whole % units : whole;
}

uint64_t dvk_cut_groups(const struct dvk_pace *pace, const struct dvk_cut_wish *wish)
{
    uint64_t groups;

    if (wish->target_ns == DVK_CUT_ALWAYS_NS) {
        groups = wish->odd ? wish->last_groups : 2 * wish->last_groups;
    } else if (pace->item_ns <= 0) {
        groups = wish->units;
    } else {
        double group_ns = pace->item_ns * wish->group_items;
        double part_ns = (double)dvk_cut_part_ns(pace, wish->target_ns, wish->cost_ppm);
        if ((double)wish->groups_left * group_ns <= 1.5 * part_ns)
            return wish->groups_left;
        /* what is left of a slice is used for a shorter part, unless that is too short to be worth it */
        if ((double)wish->slice_ns > part_ns / 4 && (double)wish->slice_ns < part_ns)
            part_ns = (double)wish->slice_ns;
        else if (wish->odd)
            part_ns = part_ns / 2;
        groups = round_to_units(part_ns / group_ns, wish->units);
        if (!pace->sure && groups > GROWTH * (wish->last_groups ? wish->last_groups : wish->units))
            groups = GROWTH * (wish->last_groups ? wish->last_groups : wish->units);
    }
    if (groups < 1)
        groups = 1;
    return groups < wish->groups_left ? groups : wish->groups_left;
}

static uint64_t bounded(double ns)
{
    return ns < (double)DV_NS_PER_S ? (uint64_t)ns : DV_NS_PER_S;
}

uint64_t dvk_pace_expects(const struct dvk_pace *pace, double items)
{
    return bounded(pace->item_ns * items);
}

uint64_t dvk_pace_fears(const struct dvk_pace *pace, double items)
{
    return bounded(pace->slow_item_ns * items);
}
