/* How jemalloc behaves in a worker; it reads this before main.
 *
 * narenas:1: the few threads of a worker share one arena, and each keeps small blocks in a cache of
 * its own anyway. dirty_decay_ms:0: pages go back to the kernel when they become free, because a
 * worker that has fallen idle calls nothing that would give them back later. */
#include <jemalloc/jemalloc.h>

const char *malloc_conf = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0";
