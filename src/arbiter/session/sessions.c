/* All sessions: events of the parts below them, and their common end. */
#include <stdlib.h>
#include <sys/socket.h>

#include "src/arbiter/session/private.h"

static struct dvd_session *of_channel(struct dvd_channel *channel)
{
    return (struct dvd_session *)((char *)channel - offsetof(struct dvd_session, channel));
}

static void on_message(struct dvd_channel *channel, const union dv_channel_message *message, ssize_t bytes)
{
    if (dv_channel_kind(message, bytes) == DV_LEASE_MAGIC && message->lease.version == DV_LEASE_VERSION &&
        (message->lease.type == DV_LEASE_PARKED || message->lease.type == DV_LEASE_NOT_PARKED)) {
        dvd_session_take_park_answer(of_channel(channel), &message->lease);
        return;
    }
    dvd_lessee_take(&of_channel(channel)->lessee, message, bytes);
}

static void on_writable(struct dvd_channel *channel)
{
    dvd_session_ask_state(of_channel(channel));
}

static void on_hung_up(struct dvd_channel *channel)
{
    dvd_session_hung_up(of_channel(channel));
}

static void on_costly(struct dvd_channel *channel, dv_ns took)
{
    struct dvd_session *session = of_channel(channel);

    dv_warning("session %llu of %s (process %d, %s): a message to or from it takes divvyd %.1f ms, as its socket has "
               "too many watches; it is terminated",
               ID(session), session->command, (int)session->tenant_pid, session->user, (double)took / DV_NS_PER_MS);
    if (session->lessee.has_worker)
        dvd_session_end_for(session, "its messages took divvyd too long, as its socket has too many watches");
    else
        shutdown(channel->fd, SHUT_RDWR); /* this is reported as its end */
}

static const struct dvd_channel_events channel_events = {
    .message = on_message, .writable = on_writable, .hung_up = on_hung_up, .costly = on_costly};

int dvd_sessions_init(struct dvd_sessions *sessions)
{
    sessions->asides = (struct dvd_asides){.event = sessions->event, .owner = sessions};
    sessions->parking = &dvd_session_parking;
    sessions->bells = (struct dvd_bells){.event = sessions->event,
                                         .rang = dvd_sessions_bell_rang,
                                         .lost = dvd_sessions_bells_lost,
                                         .owner = sessions,
                                         .fd = -1};
    sessions->arenas.on_excess = dvd_session_end_for;
    sessions->processes = (struct dvd_processes){
        .event = sessions->event, .descriptors_free = &sessions->descriptors_free, .on_exit = dvd_session_tenant_gone};
    dvd_journal_open(sessions, NULL, 0);
    return dvd_channels_init(&sessions->channels, sessions->event, &channel_events);
}

void dvd_sessions_fini(struct dvd_sessions *sessions)
{
    sessions->is_stopping = true;
    dvd_sessions_forget(sessions);
    dvd_sessions_forget_unread(sessions);
    dvd_asides_fini(&sessions->asides);
    dvd_bells_fini(&sessions->bells);
    dvd_arenas_fini(sessions);
    dvd_channels_fini(&sessions->channels);
    sessions->advance = sd_event_source_disable_unref(sessions->advance);
    dvd_ends_fini(&sessions->ends);
    dvd_journal_close(sessions);
}
