/* Lease channels of several users on one event loop. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/arbiter/session/channels.h"
#include "tests/unit/unit.h"

struct peer {
    struct dvd_channel channel;
    int other; /* the program's end */
    unsigned messages, writable, hung_up;
    dv_ns takes; /* processor time of each message */
    bool leaves; /* with its next message */
};

static sd_event *event;
static struct dvd_channels channels;

static struct peer *of(struct dvd_channel *channel)
{
    return (struct peer *)channel;
}

static dv_ns processor_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (dv_ns)now.tv_sec * DV_NS_PER_S + (dv_ns)now.tv_nsec;
}

static void on_message(struct dvd_channel *channel, const union dv_channel_message *message, ssize_t bytes)
{
    struct peer *peer = of(channel);
    dv_ns end = processor_time() + peer->takes;

    assert_int_equal(bytes, sizeof message->lease);
    peer->messages++;
    while (processor_time() < end)
        ;
    if (peer->leaves)
        dvd_channel_leave(channel);
}

static void on_writable(struct dvd_channel *channel)
{
    of(channel)->writable++;
    dvd_channel_await_room(channel, false);
}

static void on_hung_up(struct dvd_channel *channel)
{
    of(channel)->hung_up++;
}

static void on_costly(struct dvd_channel *channel, dv_ns took)
{
    (void)channel;
    (void)took;
}

static const struct dvd_channel_events events = {
    .message = on_message, .writable = on_writable, .hung_up = on_hung_up, .costly = on_costly};

static void enter(struct peer *peer, uint64_t id, uid_t uid)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    *peer = (struct peer){.channel = {.channels = &channels, .id = DVD_SESSION_ID(id), .uid = uid, .fd = pair[0]},
                          .other = pair[1]};
    assert_int_equal(dvd_channel_enter(&channels, &peer->channel), 0);
}

static void leave(struct peer *peer)
{
    dvd_channel_leave(&peer->channel);
    dvd_channel_leave(&peer->channel); /* twice does no harm */
    close(peer->channel.fd);
    close(peer->other);
}

static void say(struct peer *peer, unsigned count)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC};

    for (unsigned i = 0; i < count; i++)
        assert_int_equal(send(peer->other, &m, sizeof m, MSG_NOSIGNAL), sizeof m);
}

static void run(unsigned times)
{
    while (times-- > 0 && sd_event_run(event, 0) > 0)
        ;
}

static void messages_are_heard_in_parts(void **state)
{
    struct peer a, b;

    (void)state;
    enter(&a, 1, 1000);
    enter(&b, 2, 1001);
    say(&a, 12);
    say(&b, 1);
    run(1);
    assert_int_equal(a.messages, 8); /* of one channel at a time */
    assert_int_equal(b.messages, 1);
    run(10);
    assert_int_equal(a.messages, 12);
    leave(&a);
    leave(&b);
}

/* The budget is a part of the time while others talk, too. */
static void a_user_that_costs_much_is_put_off(void **state)
{
    struct peer greedy, other;

    (void)state;
    enter(&greedy, 1, 1000);
    enter(&other, 2, 1001);
    greedy.takes = 3 * DV_NS_PER_MS;
    for (unsigned i = 0; i < 3 && greedy.messages == i; i++) {
        say(&greedy, 1);
        say(&other, 1);
        run(4);
    }
    assert_in_range(greedy.messages, 1, 2);
    unsigned before = greedy.messages, heard = other.messages;
    say(&other, 1);
    run(4);
    assert_int_equal(other.messages, heard + 1);
    assert_int_equal(greedy.messages, before);
    assert_false(dvd_channels_are_quiet(&channels, dv_now()));
    for (int i = 0; i < 400 && greedy.messages == before; i++) { /* it is heard again later */
        poll(NULL, 0, 5);
        run(4);
    }
    assert_true(greedy.messages > before);
    greedy.takes = 30 * DV_NS_PER_MS;
    say(&other, 1);
    say(&greedy, 1);
    run(4);
    leave(&greedy); /* while it is put off */
    leave(&other);
    assert_null(channels.paused);
}

static void a_full_channel_is_told_when_there_is_room(void **state)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC};
    struct peer peer;

    (void)state;
    enter(&peer, 1, 1000);
    int error;
    while ((error = dvd_channel_send(&peer.channel, &m, sizeof m)) == 0)
        ;
    assert_int_equal(error, -EAGAIN);
    dvd_channel_await_room(&peer.channel, true);
    run(4);
    assert_int_equal(peer.writable, 0);
    while (recv(peer.other, &m, sizeof m, MSG_DONTWAIT) > 0)
        ;
    run(4);
    assert_int_equal(peer.writable, 1);
    assert_false(dvd_channels_are_costly(&channels, 1000, dv_now()));
    leave(&peer);
    dvd_channel_await_room(&peer.channel, true); /* its user has no channel any more */
}

static void a_channel_can_end_at_any_message(void **state)
{
    struct peer gone, ends;

    (void)state;
    enter(&gone, 1, 1000);
    enter(&ends, 2, 1000);
    ends.leaves = true;
    say(&ends, 5);
    shutdown(gone.other, SHUT_RDWR);
    run(4);
    assert_int_equal(gone.hung_up, 1);
    assert_false(gone.channel.is_heard);
    assert_int_equal(ends.messages, 1);
    assert_null(channels.by_uid);
    close(gone.channel.fd);
    gone.channel.fd = -1;
    assert_int_equal(dvd_channel_enter(&channels, &gone.channel), -EBADF);
    assert_null(channels.by_uid);
    close(gone.other);
    close(ends.other);
    close(ends.channel.fd);
}

static int start(void **state)
{
    (void)state;
    return sd_event_new(&event) < 0 || dvd_channels_init(&channels, event, &events) < 0;
}

static int end(void **state)
{
    (void)state;
    dvd_channels_fini(&channels);
    sd_event_unref(event);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_heard_in_parts),
        cmocka_unit_test(a_user_that_costs_much_is_put_off),
        cmocka_unit_test(a_full_channel_is_told_when_there_is_room),
        cmocka_unit_test(a_channel_can_end_at_any_message),
    };

    return cmocka_run_group_tests(tests, start, end);
}
