/* Random numbers (see random.h): splitmix64, and distributions from it. */
#include "src/sim/random.h"

#include <math.h>

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double dv_random_part(uint64_t *state)
{
    return (double)((random_bits(state) >> 11) + 1) / 9007199254740992.0;
}

double dv_random_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(dv_random_part(state)));
    return radius * cos(2 * 3.14159265358979323846 * dv_random_part(state));
}

double dv_random_exponential(uint64_t *state, double mean)
{
    return -log(dv_random_part(state)) * mean;
}

double dv_random_pareto(uint64_t *state, double mean, double shape)
{
    double least = mean * (shape - 1) / shape;
    return least / pow(dv_random_part(state), 1 / shape);
}
