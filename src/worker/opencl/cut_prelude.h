/* What a part of a launch tells its kernel, where the kernel asks for more than a part knows: how many work-groups the
 * range has, and where the part begins. That takes 48 bits, 16 in each global offset of the part. More bits are not
 * safe: a driver can assume that offsets are small where the part is (PoCL does, below 65535 work-items in a
 * dimension). Pure code. */
#ifndef DV_WORKER_OPENCL_CUT_PRELUDE_H
#define DV_WORKER_OPENCL_CUT_PRELUDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The offsets of a launch of groups that begin at `at`, of a range with so many groups in each of its dimensions.
 * Returns false when they do not fit. */
bool dvk_cut_offsets(uint32_t dims, const uint64_t groups[3], const uint64_t at[3], size_t offsets[3]);

/* What is put before the source of a kernel: the functions that tell where a work-item is, computed from these offsets.
 */
extern const char dvk_cut_prelude[];

#endif
