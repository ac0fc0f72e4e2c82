/* Keeping a tenant's compiled kernels within their limit. The directories' contents are hostile: both
 * functions are called in a separate process that runs as the tenant's worker user, so that they can only
 * follow or remove what that user owns. */
#ifndef DV_WORKER_CORE_TRIM_H
#define DV_WORKER_CORE_TRIM_H

#include <stdint.h>

/* If a directory is above the limit, removes its oldest files until it is clearly below. Directories
 * count, too, and are removed when removing files is not enough. Returns the bytes that are left. */
uint64_t dvk_cache_trim(int directory_fd, uint64_t bytes_most);

/* Removes everything below a directory. */
void dvk_cache_empty(int directory_fd);

#endif
