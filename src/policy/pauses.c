/* Pauses of a session (see pauses.h). */
#include "src/policy/pauses.h"

#define ALL 256u
#define HISTORY 8u /* about this many gaps count */

void dv_pauses_note(struct dv_pauses *pauses, dv_ns gap_ns, dv_ns bridge_ns)
{
    bool ended = gap_ns > bridge_ns;

    pauses->ended -= pauses->ended / HISTORY;
    if (!ended)
        return;
    pauses->ended += ALL / HISTORY;
    pauses->pause_ns = pauses->pause_ns ? (pauses->pause_ns + gap_ns) / 2 : gap_ns;
}

dv_ns dv_pauses_linger(const struct dv_pauses *pauses, dv_ns linger_ns, dv_ns short_ns, bool contended)
{
    dv_ns keep = pauses->pause_ns > linger_ns ? short_ns : linger_ns;

    /* Most gaps were pauses: keeping the device through them costs more than the hand-overs that it
     * saves. */
    if (contended && keep == short_ns && pauses->ended > ALL / 2)
        return 0;
    return keep;
}
