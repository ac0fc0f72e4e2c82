/* The world around a policy (see harness.h). */
#include "tests/policy/harness.h"

#include <sys/mman.h>

uint64_t world_total_waits;

struct world *world_create(const struct dv_policy_ops *ops, uint32_t slots, uint64_t seed)
{
    /* mapped, not allocated: most of it is never touched */
    struct world *world =
        mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_ptr_not_equal(world, MAP_FAILED);
    world->random.state = seed;
    dv_policy_init(&world->policy, ops, slots, 0);
    return world;
}

struct peer *world_add(struct world *world, struct dv_share share, dv_ns kernel_min, dv_ns kernel_max)
{
    struct peer *peer = &world->peers[world->count++];

    assert_true(world->count <= MAX_TENANTS);
    peer->share = share;
    peer->sessions = 1;
    peer->kernel_min = kernel_min;
    peer->kernel_max = kernel_max;
    peer->always = true;
    dv_policy_tenant_add(&world->policy, &peer->tenant, &share, world->now);
    for (unsigned i = 0; i < MAX_SESSIONS; i++) {
        peer->actors[i].peer = peer;
        dv_policy_session_init(&peer->actors[i].lease, &peer->tenant);
    }
    return peer;
}

void world_destroy(struct world *world)
{
    world_total_waits += world->waits;
    munmap(world, sizeof *world);
}

static void ask(struct world *world, struct actor *actor)
{
    actor->phase = PHASE_WAITING;
    dv_policy_wait(&world->policy, &actor->lease, world->now);
    dv_policy_wait(&world->policy, &actor->lease, world->now); /* asking twice changes nothing */
    world->waits++;
}

/* Marks the time up to now, for a tenant that has had no work. */
static void record_idling(struct world *world, struct peer *peer)
{
    for (size_t bin = peer->idle_since / BIN_NS; bin <= world->now / BIN_NS; bin++) {
        assert_true(bin < MAX_BINS);
        peer->idle_in[bin] = true;
    }
    peer->idle_since = world->now;
}

static bool has_work(const struct peer *peer)
{
    return peer->tenant.waiting_count || peer->tenant.holding_count;
}

static void begin_work(struct world *world, struct actor *actor)
{
    struct peer *peer = actor->peer;

    if (!has_work(peer))
        record_idling(world, peer);
    actor->work_left = peer->always ? 1 : 1 + (unsigned)random_below(&world->random, peer->burst_max);
    ask(world, actor);
}

static void begin_kernel(struct world *world, struct actor *actor)
{
    const struct peer *peer = actor->peer;
    dv_ns span = peer->kernel_max - peer->kernel_min;
    dv_ns length = peer->kernel_min + (span ? random_below(&world->random, span + 1) : 0);

    actor->phase = PHASE_RUNNING;
    actor->next_at = world->now + length;
    if (length > world->longest_kernel)
        world->longest_kernel = length;
    if (length > actor->lease.burst.kernel_ns)
        actor->lease.burst.kernel_ns = length;
}

static void record(struct world *world, struct peer *peer, dv_ns start, dv_ns end)
{
    if (end - start > peer->longest_hold)
        peer->longest_hold = end - start;
    while (start < end) {
        size_t bin = start / BIN_NS;
        dv_ns stop = (bin + 1) * BIN_NS < end ? (bin + 1) * BIN_NS : end;
        assert_true(bin < MAX_BINS);
        peer->held_in[bin] += (stop - start) / world->policy.slots;
        start = stop;
    }
}

/* As many short pauses as long ones, by orders of magnitude, if there is a shortest one. */
static dv_ns random_pause(struct world *world, const struct peer *peer)
{
    dv_ns longest = peer->idle_max;

    while (peer->idle_min && longest / 2 > peer->idle_min && random_chance(&world->random, 50))
        longest /= 4;
    return peer->idle_min + random_below(&world->random, longest);
}

static void give_back(struct world *world, struct actor *actor)
{
    struct dv_policy_session *lease = &actor->lease;
    struct peer *peer = actor->peer;

    record(world, peer, lease->granted_at, world->now);
    lease->burst.last_ns = lease->burst.p90_ns = peer->burst_ns ? peer->burst_ns : world->now - lease->granted_at;
    dv_policy_release(&world->policy, lease, world->now);
    if (peer->always || actor->work_left) {
        ask(world, actor);
    } else {
        actor->phase = PHASE_IDLE;
        actor->next_at = world->now + 1 + random_pause(world, peer);
        peer->idle_since = world->now;
    }
}

/* After a kernel: another one if it is likely to fit into what is left of the slice. */
static void end_kernel(struct world *world, struct actor *actor)
{
    const struct dv_policy_session *lease = &actor->lease;
    const struct peer *peer = actor->peer;
    dv_ns expected = (peer->kernel_min + peer->kernel_max) / 2;

    if (!peer->always && actor->work_left)
        actor->work_left--;
    bool more = peer->always || actor->work_left;
    if (more && !lease->recalled && world->now + expected <= lease->granted_at + lease->slice_ns)
        begin_kernel(world, actor);
    else
        give_back(world, actor);
}

static struct actor *actor_of(struct dv_policy_session *lease)
{
    return (struct actor *)(void *)lease;
}

static void check_books(const struct world *world)
{
    const struct dv_policy *policy = &world->policy;
    unsigned waiting_tenants = 0, holding = 0;

    for (unsigned i = 0; i < world->count; i++) {
        const struct peer *peer = &world->peers[i];
        unsigned waiting = 0, held = 0;
        for (unsigned s = 0; s < MAX_SESSIONS; s++) {
            waiting += peer->actors[s].lease.waiting;
            held += peer->actors[s].lease.holding;
            assert_int_equal(peer->actors[s].lease.waiting, peer->actors[s].phase == PHASE_WAITING);
            assert_int_equal(peer->actors[s].lease.holding, peer->actors[s].phase >= PHASE_STARTING);
        }
        assert_int_equal(peer->tenant.waiting_count, waiting);
        assert_int_equal(peer->tenant.holding_count, held);
        waiting_tenants += waiting > 0;
        holding += held;
    }
    assert_int_equal(policy->waiting_tenants, waiting_tenants);
    assert_int_equal(policy->holders.count, holding);
    assert_int_equal(policy->free_slots, policy->slots - holding);
}

static void decide(struct world *world)
{
    struct dv_decision decision;
    dv_ns again;

    while ((decision = dv_policy_next(&world->policy, world->now)).session) {
        struct actor *actor = actor_of(decision.session);
        struct peer *peer = actor->peer;
        dv_ns waited = world->now - decision.session->waiting_since;

        assert_int_equal(actor->phase, PHASE_WAITING);
        assert_true(decision.slice_ns > 0 && decision.linger_ns > 0);
        assert_int_equal(decision.slice_ns, decision.session->slice_ns);
        if (decision.session->own_ns > world->longest_slice)
            world->longest_slice = decision.session->own_ns;
        if (waited > peer->longest_wait)
            peer->longest_wait = waited;
        peer->grants++;
        world->grants++;
        world->fingerprint = world->fingerprint * 31 + world->now + (uint64_t)(peer - world->peers);
        if (world->grant_delay_max) {
            actor->phase = PHASE_STARTING;
            actor->next_at = world->now + random_below(&world->random, world->grant_delay_max);
        } else {
            begin_kernel(world, actor);
        }
    }
    if (decision.rule == DV_RULE_LIMIT || decision.rule == DV_RULE_IDLE_WINDOW)
        assert_true(decision.ask_again_ns > world->now);
    struct dv_policy_session *lease;
    while ((lease = dv_policy_recall(&world->policy, world->now, &again)))
        assert_true(actor_of(lease)->phase >= PHASE_STARTING);
    assert_true(!again || again > world->now);
    world->poll_at = decision.ask_again_ns;
    if (again && (!world->poll_at || again < world->poll_at))
        world->poll_at = again;
}

/* The next thing that happens, or the wake-up the policy asked for. */
static struct actor *next_actor(struct world *world, dv_ns *at)
{
    struct actor *first = NULL;

    *at = world->poll_at ? world->poll_at : UINT64_MAX;
    for (unsigned i = 0; i < world->count; i++)
        for (unsigned s = 0; s < world->peers[i].sessions; s++) {
            struct actor *actor = &world->peers[i].actors[s];
            if ((actor->phase == PHASE_IDLE || actor->phase >= PHASE_STARTING) && actor->next_at < *at) {
                *at = actor->next_at;
                first = actor;
            }
        }
    return first;
}

static bool unlimited_waits(const struct world *world)
{
    for (unsigned i = 0; i < world->count; i++)
        if (world->peers[i].tenant.waiting_count && world->peers[i].tenant.share.limit_ppm == DV_PPM)
            return true;
    return false;
}

static void add_up(struct peer *peer, dv_ns until)
{
    for (size_t bin = 0; bin <= until / BIN_NS; bin++) {
        peer->held_before[bin + 1] = peer->held_before[bin] + peer->held_in[bin];
        peer->idle_before[bin + 1] = peer->idle_before[bin] + peer->idle_in[bin];
    }
}

/* A session that waits at the end has waited, whether it would be served or not. */
static void count_unfinished_waits(struct world *world)
{
    for (unsigned i = 0; i < world->count; i++)
        for (unsigned s = 0; s < world->peers[i].sessions; s++) {
            const struct dv_policy_session *lease = &world->peers[i].actors[s].lease;
            if (lease->waiting && world->now - lease->waiting_since > world->peers[i].longest_wait)
                world->peers[i].longest_wait = world->now - lease->waiting_since;
        }
}

void world_run(struct world *world, dv_ns until)
{
    for (unsigned i = 0; i < world->count; i++)
        for (unsigned s = 0; s < world->peers[i].sessions; s++)
            if (world->peers[i].actors[s].phase == PHASE_OFF)
                begin_work(world, &world->peers[i].actors[s]);
    decide(world);
    for (;;) {
        dv_ns at;
        struct actor *actor = next_actor(world, &at);
        if (at >= until)
            break;
        if (world->policy.free_slots && unlimited_waits(world))
            world->idle_while_wanted += at - world->now;
        world->now = at;
        if (!actor)
            world->poll_at = 0;
        else if (actor->phase == PHASE_IDLE)
            begin_work(world, actor);
        else if (actor->phase == PHASE_STARTING && !actor->lease.recalled)
            begin_kernel(world, actor);
        else if (actor->phase == PHASE_STARTING) /* recalled before it could begin */
            give_back(world, actor);
        else
            end_kernel(world, actor);
        decide(world);
        if (world->meddle && world->now >= world->next_meddling) {
            world->meddle(world);
            decide(world);
        }
        check_books(world);
    }
    world->now = until;
    count_unfinished_waits(world);
    for (unsigned i = 0; i < world->count; i++)
        if (!has_work(&world->peers[i]))
            record_idling(world, &world->peers[i]);
    for (unsigned i = 0; i < world->count; i++)
        add_up(&world->peers[i], until);
}

double world_share(const struct peer *peer, size_t first, size_t bins)
{
    dv_ns sum = peer->held_before[first + bins] - peer->held_before[first];
    return (double)sum / (double)(bins * BIN_NS);
}
