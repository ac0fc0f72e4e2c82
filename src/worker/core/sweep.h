/* Keeping a tenant's compiled kernels within their limit. */
#ifndef DV_WORKER_CORE_SWEEP_H
#define DV_WORKER_CORE_SWEEP_H

#include <stdint.h>

/* Removes the oldest files below a directory until what is left is clearly below the limit, if it is
 * above it. The directory's contents are hostile: called in a process of its own that runs as the
 * tenant's worker user, so that whatever it is made to follow or remove is that user's. */
void dv_sweep(int directory_fd, uint64_t bytes_most);

#endif
