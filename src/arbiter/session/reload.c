/* What a new configuration changes for tenants that have sessions. The first session of each tenant stands for all. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/arbiter/session/identity.h"
#include "src/arbiter/session/private.h"
#include "src/base/cleanup.h"

#define PERCENT(ppm) ((double)(ppm) / (DV_PPM / 100.0))

/* Appends a line, if there is room for it. */
static void say(struct dvd_reload *reload, const char *format, ...)
{
    size_t used = strlen(reload->text);
    va_list args;

    va_start(args, format);
    int more = vsnprintf(reload->text + used, sizeof reload->text - used, format, args);
    va_end(args);
    if (more < 0 || (size_t)more + 1 >= sizeof reload->text - used)
        reload->text[used] = '\0';
    else
        memcpy(reload->text + used + more, "\n", 2);
    reload->changes++;
}

static void say_share(struct dvd_reload *reload, const char *tenant, const struct dv_share *old,
                      const struct dv_share *new)
{
    if (old->request_ppm != new->request_ppm)
        say(reload, "tenant %s: request %g%%, was %g%%", tenant, PERCENT(new->request_ppm), PERCENT(old->request_ppm));
    if (old->limit_ppm != new->limit_ppm)
        say(reload, "tenant %s: limit %g%%, was %g%%", tenant, PERCENT(new->limit_ppm), PERCENT(old->limit_ppm));
    if (old->weight != new->weight)
        say(reload, "tenant %s: weight %u, was %u", tenant, new->weight, old->weight);
    if (old->class != new->class)
        say(reload, "tenant %s: class %s, was %s", tenant, dv_class_word(new->class), dv_class_word(old->class));
}

static bool same_size(const struct dvd_memory_size *a, const struct dvd_memory_size *b)
{
    return a->bytes == b->bytes && a->ppm == b->ppm;
}

static void say_memory(struct dvd_reload *reload, const char *tenant, const struct dvd_tenant_terms *old,
                       const struct dvd_tenant_terms *new)
{
    if (!same_size(&old->memory, &new->memory))
        say(reload, "tenant %s: another memory quota", tenant);
    if (!same_size(&old->memory_request, &new->memory_request))
        say(reload, "tenant %s: another memory-request", tenant);
    if (old->host_bytes != new->host_bytes)
        say(reload, "tenant %s: another host-memory", tenant);
}

static bool same_terms(const struct dvd_tenant_terms *a, const struct dvd_tenant_terms *b)
{
    return a->share.request_ppm == b->share.request_ppm && a->share.limit_ppm == b->share.limit_ppm &&
           a->share.weight == b->share.weight && a->share.class == b->share.class &&
           same_size(&a->memory, &b->memory) && same_size(&a->memory_request, &b->memory_request) &&
           a->host_bytes == b->host_bytes && a->may_request_ppm == b->may_request_ppm &&
           a->may_weight == b->may_weight && a->may_class == b->may_class &&
           a->configured_class == b->configured_class && a->slice_kernels == b->slice_kernels;
}

/* Whether its process still is the one that opened the session: its number was used to look at it. */
static bool is_alive(const struct dvd_session *session)
{
    return syscall(SYS_pidfd_send_signal, session->process->pidfd, 0, NULL, 0) == 0;
}

/* lowers: sets tenants whose request does not grow; otherwise those whose request grows, for which there is room then.
 */
static void apply(struct dvd_session *session, bool lowers, struct dvd_reload *reload)
{
    struct dvd_tenant *tenant = session->lessee.tenant;
    struct dvd_identity identity;
    char text[DV_MAX_MESSAGE_TEXT];

    if (lowers && tenant->request_grows)
        return; /* a session before this one has shown that */
    bool admitted = dvd_session_identify(session, &identity);
    if (!is_alive(session))
        return; /* another session of the tenant decides */
    bool is_same = admitted && strcmp(identity.name, tenant->name) == 0;
    if (is_same)
        tenant->is_shared = identity.is_shared;
    if (is_same && reload->is_restart && same_terms(&tenant->terms, &identity.terms)) {
        dvd_tenant_is_current(tenant); /* what its users changed on single devices stays */
        return;
    }
    if (is_same && !tenant->set_by_operator) {
        tenant->request_grows = identity.terms.share.request_ppm > tenant->terms.share.request_ppm;
        if (lowers && tenant->request_grows)
            return;
        struct dvd_tenant_terms old = tenant->terms;
        if (dvd_tenant_set_terms(tenant, &identity.terms, text, sizeof text) < 0)
            say(reload, "tenant %s: %s", tenant->name, text);
        say_share(reload, tenant->name, &old.share, &identity.terms.share);
        say_memory(reload, tenant->name, &old, &identity.terms);
        if (old.slice_kernels != identity.terms.slice_kernels)
            say(reload, "tenant %s: slice-kernels %s, was %s", tenant->name,
                dvd_slice_kernels_word(identity.terms.slice_kernels), dvd_slice_kernels_word(old.slice_kernels));
    } else if (tenant->set_by_operator) {
        say(reload, "tenant %s keeps what `divvy set` gave it, until its last program ends", tenant->name);
    } else if (admitted) {
        say(reload, "tenant %s keeps its share until its programs end; later ones belong to tenant %s", tenant->name,
            identity.name);
    } else {
        say(reload, "tenant %s: its programs go on; later ones are refused", tenant->name);
    }
    dvd_tenant_is_current(tenant);
}

void dvd_sessions_apply_config(struct dvd_sessions *sessions, struct dvd_reload *reload)
{
    for (int lowers = 1; lowers >= 0; lowers--)
        for (struct dvd_session *session = sessions->all; session; session = session->hh.next)
            if (session->lessee.tenant && session->lessee.tenant->terms_version != sessions->ledger->terms_version)
                apply(session, lowers, reload);
}

/* ---- saved shares ---- */

/* On a disk that is slow, divvyd must not wait. */
static void sync_file(int fd, const void *data)
{
    (void)data;
    if (fsync(fd) < 0)
        _exit(1);
}

/* A later draft may have taken the place of this one meanwhile. If the disk is too slow, the draft stays: divvyd reads
 * it when it starts. */
static void on_synced(void *owner, struct dvd_session_id draft, bool is_done)
{
    struct dvd_sessions *sessions = owner;

    if (is_done && draft.value == sessions->saved->draft)
        dvd_saved_commit(sessions->saved);
}

int dvd_sessions_save_shares(struct dvd_sessions *sessions)
{
    DV_AUTO_CLOSE int fd = dvd_saved_write(sessions->saved);

    if (fd < 0)
        return fd;
    dvd_aside_start(&sessions->asides, sync_file, fd, "", on_synced, DVD_SESSION_ID(sessions->saved->draft));
    return 0;
}
