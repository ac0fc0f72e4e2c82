"""The two bars of a figure. The goal is written where the figure is taken. The CI bar, below, is the value beyond which
a run of CI fails: wide enough for a machine that others use too, and narrow enough that a change for the worse is
seen. Between the two a figure is missed: neither passed nor failed."""
import fnmatch

CI_BARS = {   # by the key of the figure, in the direction of its goal; the first pattern that fits counts
    # micro
    "enqueue_empty*": 0.65, "rate_empty*": 0.7, "rate_wide*": 0.75, "finish_added": 1.3,
    "discrete_*": 0.4, "write_*": 0.75, "read_*": 0.75, "map_256M_to_4k": 2.5, "map_*": 1.25,
    "busy_write_*": 0.6, "start_queue": 1.25, "idle_queue_mib": 7, "idle_kernel_mib": 7,
    # overhead
    "overhead_geomean": 1.15, "overhead_worst": 1.35,
    # sched, scale
    "decision_p99_us": 62, "session_kib": 10, "session_bytes": 10240, "worst_added_ms": 6,
    "beside_time": 1.35, "beside_rate": 0.7, "endings_half_s": 1.25, "endings_gap_s": 1.25,
    "endings_all_s": 1.25, "endings_again": 1.35, "stuck": 0, "*_stuck": 0, "endings_sessions": 0,
    "endings_descriptors": 0, "none_*": 0,
    # share
    "join_leave_within2": 75, "*_within2": 75, "*_held_off": 6.25, "limit30_off": 1.5, "class_*_off": 2.5,
    "programs_*_off": 5, "sim_off": 1.5, "sim_bursty_off": 3, "*_off": 1.25, "*_at_once": 2,
    "request50_share": 45, "busy_two": 80, "busy_eight": 80, "lease_cost": 2, "live_follow": 80,
    "slice_learned_behind": 2.5, "slice_fixed_behind": 1.5, "latency_added_*": 2, "latency_busy_*": 85,
    "batch_keeps_*": 60, "idle_slows": 1.25, "idle_unused": 2.5, "hoarding_50*": 40, "hoarding_*": 15,
    # memory
    "makespan_*": 1.1, "fits": 1.2, "crowd_hosts_*": 0.7, "service_large": 1.9, "swap_bandwidth": 0.6,
    "small_cost_us": 6.25,
    # observe
    "watched_rate": 0.95, "off_part": 1, "scrape_ms": 25, "scrape_worst_ms": 40, "scraped_p99_us": 250,
    # long
    "long_added_*": 15, "long_keeps_*": 0.85, "long_alone_*": 1.06, "long_shares_*": 80,
    # restarts
    "restarts.worst": 3.75, "restarts.left": 0,
}


def ci_bar(key, goal):
    """(relation, number), or None where there is no goal. A figure with a goal must have both."""
    if goal is None:
        return None
    for pattern, number in CI_BARS.items():
        if fnmatch.fnmatchcase(key, pattern):
            return goal[0], number
    raise KeyError(f"figure {key} has a goal and no bar in bench/bars.py")


def meets(value, bar):
    relation, number = bar
    return {">=": value >= number, "<=": value <= number, ">": value > number}[relation]


def show(goal, ci):
    """As a cell of a table: the goal, and in brackets the CI bar."""
    return f"{goal[0]} {goal[1]:.4g} ({ci[1]:.4g})" if goal else ""
