/* Limits a source of endless work to a part of divvyd's processor time. */
#ifndef DVD_SYSTEM_BUDGET_H
#define DVD_SYSTEM_BUDGET_H

#include <stdbool.h>
#include <time.h>

#include "src/arbiter/limits.h"
#include "src/base/clock.h"

struct dvd_budget {
    dv_ns spent_ns; /* decreases as time passes, by 1/DV_BUDGET_PART of it */
    dv_ns counted_at;
};

/* Not wall-clock time: while another process has the processor, divvyd spends nothing. */
static inline dv_ns dvd_processor_time(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (dv_ns)time.tv_sec * DV_NS_PER_S + (dv_ns)time.tv_nsec;
}

/* Charges `took`. Returns how long the source has to pause: 0 while it is within its part, or when it is
 * alone. Time beyond its part that it uses alone is never charged. */
static inline dv_ns dvd_budget_spend(struct dvd_budget *budget, dv_ns took, bool alone, dv_ns now)
{
    dv_ns made_up = (now - budget->counted_at) / DV_BUDGET_PART;

    budget->spent_ns -= made_up < budget->spent_ns ? made_up : budget->spent_ns;
    budget->spent_ns += took;
    budget->counted_at = now;
    if (budget->spent_ns <= DV_BUDGET_SPENT_NS)
        return 0;
    if (!alone)
        return (budget->spent_ns - DV_BUDGET_SPENT_NS + DV_BUDGET_LEFT_NS) * DV_BUDGET_PART;
    budget->spent_ns = DV_BUDGET_SPENT_NS;
    return 0;
}

#endif
