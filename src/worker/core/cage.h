/* The worker's cage: what stands between native code of one tenant and everything else on the
 * machine. It is put on after the zygote's fork and before the vendor initialises; nothing in the
 * worker can take it off. docs/security.md lists what is allowed and why.
 *
 * Two steps, for only a child can be in a new pid namespace:
 *   dv_cage_leave_host  in a short-lived child of the zygote: namespaces of its own
 *   dv_cage_enter       in that one's child: files, user, limits, system calls */
#ifndef DV_WORKER_CORE_CAGE_H
#define DV_WORKER_CORE_CAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/wire/session/handshake.h"

/* Whether all numbers and texts are within their bounds. */
bool dv_cage_is_sound(const struct dv_cage *cage);

/* Both return 0, or a negative errno with words. cache_fd: the tenant's directory of compiled
 * kernels, -1: there is none that outlives the worker. It is closed. Without a cage (`on` is 0),
 * dv_cage_enter only becomes the cage's user, with its limits and without any right. */
int dv_cage_leave_host(const struct dv_cage *cage, char *text, size_t bytes);
int dv_cage_enter(const struct dv_cage *cage, int cache_fd, char *text, size_t bytes);
/* Whether an error of theirs says that this kernel makes no cages: it refuses, or does not know what
 * was asked. Anything else may pass, such as a lack of processes, memory or descriptors. */
bool dv_cage_is_refused(int error);

/* Only the rights of the cage's user, without the rest of a cage. */
int dv_cage_become_user(const struct dv_cage *cage, char *text, size_t bytes);

/* The last step of dv_cage_enter (syscalls.c): from here on only listed system calls work; the
 * others fail with EPERM. */
int dv_cage_restrict_calls(const struct dv_cage *cage, char *text, size_t bytes);

#endif
