/* bench-ledger: the part of divvyd that grants devices, alone and at virtual time, so that a tool can count its
 * instructions: divvyd itself uses system calls that such tools do not know.
 *
 *   bench-ledger GRANTS [trace]   GRANTS times a session releases the device, wants it again, and the next one is
 *                                 granted it. trace: events are noted, as if one traced
 *
 * Prints how many grants there were, as JSON. */
#include <err.h>

#include "src/arbiter/ledger/trace.h"
#include "tests/unit/ledger/stage.h"

#define SESSIONS 64
#define TENANTS 8
#define HOLD_NS (2 * DV_NS_PER_MS)

static struct stage stage;
static struct peer peers[SESSIONS];

/* The session that has been granted the device. */
static struct peer *find_holder(void)
{
    for (int i = 0; i < SESSIONS; i++) {
        struct peer *peer = &peers[i];
        while (peer->first < peer->count) {
            const struct dv_lease_message *m = &peer->messages[peer->first++ % MESSAGES_MAX].lease;
            if (m->type != DV_LEASE_GRANT)
                continue;
            peer->serial = m->serial;
            return peer;
        }
    }
    return NULL;
}

static uint64_t take_turns(uint64_t wanted)
{
    uint64_t grants = 0;

    for (int i = 0; i < SESSIONS; i++)
        say_want(&peers[i]);
    while (grants < wanted) {
        struct peer *holder = find_holder();
        stage_pass(&stage, HOLD_NS);
        if (!holder) /* the device waits for a session that may be back at once */
            continue;
        grants++;
        say_release(holder, true);
    }
    return grants;
}

int main(int argc, char **argv)
{
    uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;

    if (wanted == 0)
        errx(2, "usage: bench-ledger GRANTS [trace]");
    stage_start(&stage, 1);
    if (argc > 2 && dvd_trace_begin(&stage.ledger.trace) < 0)
        errx(1, "no memory");
    for (int i = 0; i < SESSIONS; i++) {
        char name[32];
        snprintf(name, sizeof name, "tenant%d", i % TENANTS);
        if (peer_begin(&stage, &peers[i], name) != 0)
            errx(1, "a session is refused: %s", peers[i].text);
    }
    printf("{\"grants\": %llu}\n", (unsigned long long)take_turns(wanted));
    return 0;
}
