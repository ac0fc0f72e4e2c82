/* Random numbers of a simulation. Each session draws from a stream of its own, so that one tenant
 * never changes the numbers of another. */
#ifndef DV_SIM_RANDOM_H
#define DV_SIM_RANDOM_H

#include <stdint.h>

double dv_random_part(uint64_t *state); /* above 0, at most 1 */
double dv_random_normal(uint64_t *state);
double dv_random_exponential(uint64_t *state, double mean);
/* Heavy-tailed: most values are below the mean, a few are far above. The shape is above 1. */
double dv_random_pareto(uint64_t *state, double mean, double shape);

#endif
