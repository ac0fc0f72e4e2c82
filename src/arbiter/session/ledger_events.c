/* Events of the ledger and lease channels for sessions (see struct dvd_ledger_events, struct dvd_channel_events). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/session/private.h"
#include "src/arbiter/system/peers.h"

static struct dvd_session *of_lessee(const struct dvd_lessee *lessee)
{
    return (struct dvd_session *)((char *)lessee - offsetof(struct dvd_session, lessee));
}

/* ---- the ledger ---- */

int dvd_session_send(struct dvd_lessee *lessee, const void *message, size_t bytes)
{
    struct dvd_session *session = of_lessee(lessee);

    return session->channel.fd < 0 ? -ENOTCONN : dvd_channel_send(&session->channel, message, bytes);
}

bool dvd_session_is_stopped(const struct dvd_lessee *lessee)
{
    const struct dvd_session *session = of_lessee(lessee);

    return dvd_process_is_stopped(session->worker_pid ? session->worker_pid : session->tenant_pid);
}

void dvd_session_overdue(struct dvd_lessee *lessee, dv_ns deadline, const char *what)
{
    struct dvd_session *session = of_lessee(lessee);
    char why[sizeof session->ended_because];

    snprintf(why, sizeof why,
             "it kept %s for %.1f s after it was asked to give it back, while others waited (deadlines in divvy.yaml)",
             what, (double)deadline / (double)DV_NS_PER_S);
    dvd_session_end_for(session, why);
}

void dvd_session_unanswered(struct dvd_lessee *lessee, const struct dvd_device *device, dv_ns since, dv_ns deadline)
{
    const struct dvd_session *session = of_lessee(lessee);
    char then[96] = "no deadline applies to its class (deadlines in divvy.yaml)";

    if (deadline)
        snprintf(then, sizeof then, "it loses the device after %.1f s", (double)deadline / (double)DV_NS_PER_S);
    dv_warning("session %llu of %s (process %d, %s) was asked to give %s back %.0f s ago and has not, while others "
               "wait: %s",
               ID(session), session->command, (int)session->tenant_pid, session->user, device->terms.name,
               (double)since / (double)DV_NS_PER_S, then);
}

static void answer_late(void *owner, struct dvd_session_id id, bool is_told)
{
    struct dvd_session *session = dvd_session_find(owner, id);

    (void)is_told;
    if (!session || !session->late_answer.type || session->channel.fd < 0)
        return;
    dvd_channel_send(&session->channel, &session->late_answer, sizeof session->late_answer);
    session->late_answer.type = 0;
}

/* The program, and `divvy explain`, can read the reason. The answer is sent once the program can. */
bool dvd_session_turned_away(struct dvd_lessee *lessee, const char *reason, const struct dv_lease_message *answer)
{
    struct dvd_session *session = of_lessee(lessee);

    if (dv_log_within(&session->sessions->refusals, DV_REFUSALS_PER_S))
        dv_warning("session %llu of %s (process %d, %s) cannot have a device: %s", ID(session), session->command,
                   (int)session->tenant_pid, session->user, reason);
    free(session->turned_away);
    session->turned_away = strdup(reason);
    if (session->late_answer.type || !dvd_session_tell(session, reason, answer_late))
        return false;
    session->late_answer = *answer;
    return true;
}

/* ---- lease channels ---- */

void dvd_session_ask_state(struct dvd_session *session)
{
    bool later = dvd_lessee_ask_state(&session->lessee) == -EAGAIN;

    if (later)
        dv_warning("session %llu: lease channel full, grants delayed", ID(session));
    dvd_channel_await_room(&session->channel, later);
}
