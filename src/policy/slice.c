/* How long a slice should be: as long as the session's bursts, so that it neither idles inside the
 * slice nor needs several for one burst; and never so long that shares suffer. */
#include "src/policy/order.h"

/* Gemini's two factors, in quarters: how much the high percentile counts compared with the last
 * burst, and the estimate so far compared with the new one. They only set how fast it adapts. */
#define PERCENTILE_QUARTERS 3
#define HISTORY_QUARTERS 2
/* A gap this short is bridged, and so is one that wastes little compared with the burst. */
#define LINGER_MIN_NS (100 * DV_NS_PER_US)
#define LINGER_PART 20
/* Room for kernels that take a little longer than they did before. */
#define MARGIN_PART 20

static dv_ns estimate(const struct dv_burst *burst)
{
    return (burst->p90_ns * PERCENTILE_QUARTERS + burst->last_ns * (4 - PERCENTILE_QUARTERS)) / 4;
}

static dv_ns longer(dv_ns a, dv_ns b)
{
    return a > b ? a : b;
}

dv_ns dv_slice_max(const struct dv_policy *policy)
{
    dv_ns most = policy->hand_over_ns * DV_HAND_OVER_PART;

    most = longer(most, DV_SLICE_MAX_NS);
    return most < DV_SLICE_DEAR_MAX_NS ? most : DV_SLICE_DEAR_MAX_NS;
}

dv_ns dv_slice_learn(const struct dv_policy *policy, struct dv_policy_session *session)
{
    const struct dv_share *share = &session->tenant->share;
    bool limited = share->limit_ppm < DV_PPM;
    dv_ns most = dv_slice_max(policy);
    dv_ns now_ns = estimate(&session->burst);
    dv_ns slice = DV_SLICE_START_NS;

    if (limited) /* its time is spread evenly */
        most = most / 5 * 4;
    if (now_ns && session->learned_ns)
        session->learned_ns = (session->learned_ns * HISTORY_QUARTERS + now_ns * (4 - HISTORY_QUARTERS)) / 4;
    else if (now_ns)
        session->learned_ns = now_ns;
    if (policy->fixed_slice_ns)
        return policy->fixed_slice_ns;
    if (session->learned_ns)
        slice = session->learned_ns + session->learned_ns / MARGIN_PART;
    if (slice > most) /* equal parts: the last slice of a burst should not end in idling */
        slice /= (slice + most - 1) / most;
    /* A slice in which no kernel fits would mostly be wasted. */
    dv_ns kernel = session->burst.kernel_ns;
    return longer(longer(slice, DV_SLICE_MIN_NS), kernel < DV_SLICE_KERNEL_MAX_NS ? kernel : DV_SLICE_KERNEL_MAX_NS);
}

dv_ns dv_slice_linger(const struct dv_policy_session *session)
{
    dv_ns slice = session->learned_ns < DV_SLICE_MAX_NS ? session->learned_ns : DV_SLICE_MAX_NS;
    return longer(LINGER_MIN_NS, slice / LINGER_PART);
}
