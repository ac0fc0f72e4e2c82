/* Keeping a tenant's compiled kernels within their limit. The directories' contents are hostile: both
 * functions are called in a process of its own that runs as the tenant's worker user, so that whatever
 * it is made to follow or remove is that user's. */
#ifndef DV_WORKER_CORE_TRIM_H
#define DV_WORKER_CORE_TRIM_H

#include <stdint.h>

/* Removes the oldest files below a directory until what is left is clearly below the limit, if it is
 * above it. Directories count, too, and go when removing files is not enough. Returns what is left, in
 * bytes. */
uint64_t dvk_cache_trim(int directory_fd, uint64_t bytes_most);

/* Removes everything below a directory. */
void dvk_cache_empty(int directory_fd);

#endif
