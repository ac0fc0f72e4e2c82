/* Giving up capabilities (see rights.h). */
#include "src/arbiter/system/rights.h"

#include <cap-ng.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

#define END (-1)

static const int kept[][8] = {
    [DV_RIGHTS_NONE] = {END},
    [DV_RIGHTS_DAEMON] = {CAP_CHOWN,        /* directories of compiled kernels, the control socket */
                          CAP_DAC_OVERRIDE, /* those directories again; cgroups, where the top of a
                                             * hierarchy is not writable */
                          CAP_KILL,         /* to kill workers */
                          END},
    [DV_RIGHTS_LAUNCHER] = {CAP_SYS_ADMIN,          /* namespaces and mounts of a sandbox */
                            CAP_DAC_OVERRIDE,       /* to show paths that a worker's user cannot reach */
                            CAP_SETUID, CAP_SETGID, /* to become a worker's user */
                            CAP_SETPCAP,            /* to give up the rest for good */
                            CAP_KILL,               /* a worker that cannot be watched */
                            END},
};

int dvd_rights_keep(enum dvd_rights rights)
{
    bool has[CAP_LAST_CAP + 1] = {false};

    if (geteuid() != 0)
        return 0;
    if (capng_get_caps_process() < 0)
        return -EPERM;
    /* a container may have less */
    for (const int *capability = kept[rights]; *capability != END; capability++)
        has[*capability] = capng_have_capability(CAPNG_PERMITTED, (unsigned)*capability);
    bool for_good = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP);
    capng_clear(CAPNG_SELECT_BOTH);
    for (const int *capability = kept[rights]; *capability != END; capability++)
        if (has[*capability])
            capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET, (unsigned)*capability);
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    /* a keeper that is forked later cannot narrow the bounding set any more */
    if (rights != DV_RIGHTS_LAUNCHER && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return capng_apply(for_good ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS) < 0 ? -EPERM : 0;
}
