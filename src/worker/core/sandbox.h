/* The worker's sandbox: it separates native code of one tenant from everything else on the machine. The
 * worker enters it after the zygote's fork and before the vendor initialises, and cannot leave it.
 * docs/security.md lists what is allowed and why.
 *
 * Two steps, because only a child can be in a new pid namespace:
 *   dvk_sandbox_leave_host  in a short-lived child of the zygote: namespaces of its own
 *   dvk_sandbox_enter       in that one's child: files, user, limits, system calls */
#ifndef DV_WORKER_CORE_SANDBOX_H
#define DV_WORKER_CORE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "src/wire/session/handshake.h"

/* Whether all numbers and texts are within their bounds. */
bool dvk_sandbox_is_sound(const struct dv_sandbox_settings *sandbox);

/* Both return 0, or a negative errno with words. cache_fd: the tenant's directory of compiled
 * kernels, -1: there is none that outlives the worker. It is closed. Without a sandbox (`on` is 0),
 * dvk_sandbox_enter only becomes the sandbox's user, with its limits and without any right. */
int dvk_sandbox_leave_host(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes);
int dvk_sandbox_enter(const struct dv_sandbox_settings *sandbox, int cache_fd, char *text, size_t bytes);
/* Whether an error of theirs says that this kernel makes no sandboxes: it refuses, or does not know the
 * call. Other errors can be temporary, such as a lack of processes, memory or descriptors. */
bool dvk_sandbox_is_refused(int error);

/* Takes only the rights of the sandbox's user, without the rest of a sandbox. */
int dvk_sandbox_become_user(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes);

/* The last step of dvk_sandbox_enter (syscalls.c): from here on only listed system calls work; the
 * others fail with EPERM. */
int dvk_sandbox_restrict_calls(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes);

#endif
