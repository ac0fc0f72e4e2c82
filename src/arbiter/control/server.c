/* Serving the control socket (see server.h): libmicrohttpd without threads of its own, driven by
 * divvyd's event loop. */
#include "src/arbiter/control/server.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/restart/restore_all.h"
#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/sockets.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/system/peers.h"
#include "src/arbiter/session/processes.h"
#include "src/base/cleanup.h"

#define FALLBACK_POLL_US (1 * DV_S)

struct dv_hold {
    struct dv_arbiter *arbiter;
    int pidfd;
    sd_event_source *io;
    struct dv_hold *prev, *next;
};

/* ---- who asks ---- */

static int connection_fd(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

static bool identify(const struct dv_arbiter *arbiter, int fd, struct dv_control_peer *peer)
{
    struct ucred credentials;
    socklen_t bytes = sizeof credentials;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0)
        return false;
    peer->uid = credentials.uid;
    peer->is_operator = dvd_peer_is_operator(&arbiter->config, fd, &credentials);
    return true;
}

/* ---- answers ---- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, char *body)
{
    static char no_memory[] = "{\"error\":\"divvyd is short of memory\"}\n";
    struct MHD_Response *response;

    if (body)
        response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
    else
        response =
            MHD_create_response_from_buffer(strlen(no_memory), no_memory, MHD_RESPMEM_PERSISTENT);
    if (!response) {
        free(body);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    if (status == MHD_HTTP_TOO_MANY_REQUESTS) /* who comes back too soon is refused before it can ask */
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result =
        MHD_queue_response(connection, body ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, response);
    MHD_destroy_response(response);
    return result;
}

/* The listing is sent while it is made; its rows, and the end of the connection where they cannot be
 * made, come later. */
static enum MHD_Result reply_listing(struct dv_arbiter *arbiter, struct MHD_Connection *connection,
                                     const struct dv_control_peer *peer, enum dv_listing_kind kind)
{
    struct MHD_Response *response = dv_listing_respond(arbiter, peer, kind);

    if (!response)
        return reply(connection, 0, NULL);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_error(struct MHD_Connection *connection, unsigned status,
                                   const char *text)
{
    return reply(connection, status, dv_control_render(json_pack("{s:s}", "error", text)));
}

/* ---- holds ---- */

static void hold_destroy(struct dv_hold *hold)
{
    struct dv_arbiter *arbiter = hold->arbiter;

    DL_DELETE(arbiter->control.holds, hold);
    arbiter->control.hold_count--;
    hold->io = sd_event_source_disable_unref(hold->io);
    close(hold->pidfd);
    free(hold);
    dv_arbiter_check_idle(arbiter);
}

static int on_holder_gone(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    (void)events;
    hold_destroy(userdata);
    return 0;
}

static int open_peer_process(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return -1;
    return dvd_peer_open_process(fd, peer.pid, peer.uid);
}

/* A program started by `divvy run` may compute for long before its first OpenCL call: the daemon
 * that was started for it must not have ended for idleness by then. */
static enum MHD_Result serve_hold(struct dv_arbiter *arbiter, struct MHD_Connection *connection,
                                  const struct dv_control_peer *peer)
{
    struct dv_control *control = &arbiter->control;

    if (!peer->is_operator)
        return reply_error(connection, MHD_HTTP_FORBIDDEN,
                           "only the daemon's owner may keep it from ending");
    if (arbiter->options.idle_exit_s == 0)
        return reply(connection, MHD_HTTP_OK, strdup("{\"held\":false}\n"));
    if (control->hold_count >= DV_LIMIT_HOLDS)
        return reply_error(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "too many holds");
    struct dv_hold *hold = calloc(1, sizeof *hold);
    if (!hold)
        return reply(connection, 0, NULL);
    hold->arbiter = arbiter;
    hold->pidfd = open_peer_process(connection_fd(connection));
    if (hold->pidfd < 0) {
        free(hold);
        return reply_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
                           "the calling process cannot be identified");
    }
    DL_APPEND(control->holds, hold);
    control->hold_count++;
    if (sd_event_add_io(arbiter->event, &hold->io, hold->pidfd, EPOLLIN, on_holder_gone, hold) <
        0) {
        hold_destroy(hold);
        return reply(connection, 0, NULL);
    }
    dv_arbiter_check_idle(arbiter);
    return reply(connection, MHD_HTTP_OK, strdup("{\"held\":true}\n"));
}

/* ---- requests ---- */

#define TOO_MANY_QUESTIONS                                                                            \
    "too many questions at once: ask again a little later, and not more often than "                  \
    NUMBER(DV_LIMIT_CONTROL_QUESTIONS_PER_S) " times a second"
#define NUMBER(number) NUMBER_AS_TEXT(number)
#define NUMBER_AS_TEXT(number) #number
#define ONLY_OPERATORS "only operators may ask this daemon, and nobody in a container is one"

static bool tenants_may_ask(const struct dv_arbiter *arbiter)
{
    return arbiter->config.file && arbiter->config.file->tenants_see_own;
}

/* Takes what stands between a path's beginning and end, such as the name in /v1/tenants/NAME/share.
 */
static bool between(const char *path, const char *begin, const char *end, char *name, size_t bytes)
{
    size_t length = strlen(path), begins = strlen(begin), ends = strlen(end);

    if (length <= begins + ends || length - begins - ends >= bytes ||
        strncmp(path, begin, begins) != 0 || strcmp(path + length - ends, end) != 0)
        return false;
    snprintf(name, bytes, "%.*s", (int)(length - begins - ends), path + begins);
    return true;
}

/* The paths that name something. Returns false for all others. */
static bool serve_live(struct dv_arbiter *arbiter, struct MHD_Connection *connection,
                       const struct dv_control_peer *peer, const char *path, const char *method,
                       char *name, size_t bytes, enum MHD_Result *result)
{
#define ARGUMENT(key) MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, key)
    const struct dv_live_arguments arguments = {.device = ARGUMENT("device"),
                                                .request = ARGUMENT("request"),
                                                .limit = ARGUMENT("limit"),
                                                .memory = ARGUMENT("memory"),
                                                .memory_request = ARGUMENT("memory_request"),
                                                .weight = ARGUMENT("weight"),
                                                .class = ARGUMENT("class"),
                                                .name = ARGUMENT("name"),
                                                .slice_ns = ARGUMENT("slice_ns")};
#undef ARGUMENT
    bool of_tenant = between(path, "/v1/tenants/", "/share", name, bytes);
    bool of_session = !of_tenant && between(path, "/v1/sessions/", "/share", name, bytes);
    bool explain =
        !of_tenant && !of_session && between(path, "/v1/sessions/", "/explain", name, bytes);
    bool policy = !of_tenant && !of_session && !explain &&
                  between(path, "/v1/devices/", "/policy", name, bytes);
    const char *wanted = explain ? "GET" : "POST";
    char *body = NULL;
    unsigned status;

    if (!of_tenant && !of_session && !explain && !policy)
        return false;
    if (strcmp(method, wanted) != 0) {
        *result = reply_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                              explain ? "use GET" : "use POST");
        return true;
    }
    if (explain)
        status = dv_live_explain(arbiter, peer, name, &body);
    else if (policy)
        status = dv_live_set_policy(arbiter, peer, name, &arguments, &body);
    else
        status = dv_live_set_share(arbiter, peer, name, of_session, &arguments, &body);
    *result = reply(connection, status, body);
    return true;
}

static bool may_ask_now(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct dv_caller *caller = info ? info->socket_context : NULL;

    return caller && dv_caller_may_ask(caller, dv_now() / DV_NS_PER_US);
}

static enum MHD_Result serve(struct dv_arbiter *arbiter, struct MHD_Connection *connection,
                             const char *path, const char *method)
{
    struct dv_control_peer peer;
    enum MHD_Result result;
    bool get = strcmp(method, "GET") == 0;

    if (!identify(arbiter, connection_fd(connection), &peer))
        return reply_error(connection, MHD_HTTP_FORBIDDEN, "the peer cannot be identified");
    if (!peer.is_operator && !tenants_may_ask(arbiter)) /* any more, since it has connected */
        return reply_error(connection, MHD_HTTP_FORBIDDEN, ONLY_OPERATORS);
    if (!may_ask_now(connection))
        return reply_error(connection, MHD_HTTP_TOO_MANY_REQUESTS, TOO_MANY_QUESTIONS);
    if (strcmp(path, "/v1/hold") == 0)
        return strcmp(method, "POST") == 0
                   ? serve_hold(arbiter, connection, &peer)
                   : reply_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "use POST");
    char name[DV_LIMIT_TENANT_NAME];
    if (serve_live(arbiter, connection, &peer, path, method, name, sizeof name, &result))
        return result;
    bool version = strcmp(path, "/v1/version") == 0;
    bool devices = strcmp(path, "/v1/devices") == 0;
    bool sessions = strcmp(path, "/v1/sessions") == 0;
    bool tenants = strcmp(path, "/v1/tenants") == 0;
    bool check = strcmp(path, "/v1/check") == 0;
    if (!version && !devices && !sessions && !tenants && !check)
        return reply_error(connection, MHD_HTTP_NOT_FOUND,
                           "there are /v1/version, /v1/devices, /v1/sessions, /v1/tenants, /v1/check, "
                           "/v1/hold, "
                           "/v1/sessions/ID/explain, /v1/sessions/ID/share, /v1/tenants/NAME/share "
                           "and /v1/devices/INDEX/policy");
    if (!get)
        return reply_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "use GET");
    if (check && !peer.is_operator)
        return reply_error(connection, MHD_HTTP_FORBIDDEN, "only operators may check the ledger");
    if (version || check)
        return reply(connection, MHD_HTTP_OK,
                     version ? dv_control_version(arbiter) : dv_control_check(arbiter));
    return reply_listing(arbiter, connection, &peer,
                         devices    ? DV_LISTING_DEVICES
                         : sessions ? DV_LISTING_SESSIONS
                                    : DV_LISTING_TENANTS);
}

static bool has_body(struct MHD_Connection *connection)
{
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return (length && strcmp(length, "0") != 0) ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/* libmicrohttpd calls this once with the headers, then for the answer. No request of ours has a body: the
 * connection of one that has is closed, for bodies can be without end. */
static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *upload, size_t *upload_bytes, void **state)
{
    static int headers_seen;

    (void)version;
    (void)upload;
    if (!*state && has_body(connection)) {
        may_ask_now(connection); /* it counts */
        return MHD_NO;
    }
    if (!*state) {
        *state = &headers_seen;
        return MHD_YES;
    }
    if (*upload_bytes > 0)
        return MHD_NO;
    return serve(userdata, connection, path, method);
}

static void on_http_log(void *userdata, const char *format, va_list args)
{
    char text[256];

    (void)userdata;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    dv_debug("http: %s", text);
}

/* ---- connections ---- */

/* libmicrohttpd tells of each connection's begin and end. */
static void on_coming_and_going(void *userdata, struct MHD_Connection *connection, void **context,
                                enum MHD_ConnectionNotificationCode code)
{
    struct dv_arbiter *arbiter = userdata;
    struct dv_callers *callers = &arbiter->control.callers;
    struct dv_control_peer peer;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        if (identify(arbiter, connection_fd(connection), &peer))
            *context = dv_callers_enter(callers, peer.uid, peer.is_operator);
    } else if (*context) {
        dv_callers_leave(callers, *context, dv_now() / DV_NS_PER_US);
        *context = NULL;
    }
}

/* An answer before anything was asked, and the end of the connection. */
static void turn_away(int fd, const char *status, const char *text)
{
    char answer[512];
    int length = snprintf(answer, sizeof answer,
                          "HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                          "Content-Length: %zu\r\n\r\n{\"error\":\"%s\"}\n",
                          status, strlen(text) + strlen("{\"error\":\"\"}\n"), text);

    send(fd, answer, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Who is bounded is known only of the connection itself, so it is accepted here and not by
 * libmicrohttpd. */
static void take_connection(struct dv_arbiter *arbiter, int accepted_fd)
{
    DV_AUTO_CLOSE int fd = accepted_fd;
    struct dv_control_peer peer;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (!identify(arbiter, fd, &peer))
        return;
    if (!peer.is_operator && !tenants_may_ask(arbiter)) {
        turn_away(fd, "403 Forbidden", ONLY_OPERATORS);
        return;
    }
    if (!dv_callers_have_place(&arbiter->control.callers, peer.uid, peer.is_operator)) {
        turn_away(fd, "503 Service Unavailable", "too many connections at once: close some of them");
        return;
    }
    if (!dv_callers_may_ask(&arbiter->control.callers, peer.uid, peer.is_operator,
                            dv_now() / DV_NS_PER_US)) {
        turn_away(fd, "429 Too Many Requests", TOO_MANY_QUESTIONS);
        return;
    }
    MHD_add_connection(arbiter->control.http, dv_take_fd(&fd), (struct sockaddr *)&address,
                       sizeof address); /* which closes it if it fails */
}

/* ---- the event loop ---- */

/* When to run next if nothing comes; after a pause in any case. */
static void arm(struct dv_arbiter *arbiter, dv_ns pause)
{
    struct dv_control *control = &arbiter->control;
    MHD_UNSIGNED_LONG_LONG wait_ms;

    if (pause) {
        sd_event_source_set_time_relative(control->timer, pause / DV_NS_PER_US + 1);
        sd_event_source_set_enabled(control->timer, SD_EVENT_ONESHOT);
        return;
    }
    if (MHD_get_timeout(control->http, &wait_ms) != MHD_YES) {
        sd_event_source_set_enabled(control->timer, SD_EVENT_OFF);
        return;
    }
    if (sd_event_source_set_time_relative(control->timer, wait_ms * DV_MS) < 0)
        sd_event_source_set_time_relative(control->timer, FALLBACK_POLL_US);
    sd_event_source_set_time_accuracy(control->timer, wait_ms ? 1 * DV_MS : 1);
    sd_event_source_set_enabled(control->timer, SD_EVENT_ONESHOT);
}

static void listen_to_callers(struct dv_control *control, bool listens)
{
    sd_event_source_set_enabled(control->listening, listens ? SD_EVENT_ON : SD_EVENT_OFF);
    sd_event_source_set_enabled(control->io, listens ? SD_EVENT_ON : SD_EVENT_OFF);
}

/* All that callers cause happens here, and is counted: while sessions have something to say, callers have
 * a part of divvyd's time. accepts: so many connections are taken, if there are any. */
static void run_http(struct dv_arbiter *arbiter, int accepts)
{
    struct dv_control *control = &arbiter->control;
    dv_ns began = dv_processor_time();

    for (int accepted; accepts > 0; accepts--) {
        if ((accepted = dvd_socket_accept(control->listening, control->fd)) < 0)
            break;
        take_connection(arbiter, accepted);
    }
    dv_listings_turn(&control->listings);
    MHD_run(control->http);
    dv_ns now = dv_now();
    dv_ns pause = dv_budget_spend(&control->budget, dv_processor_time() - began,
                                  dv_channels_are_quiet(&arbiter->channels, now), now);
    listen_to_callers(control, pause == 0);
    arm(arbiter, pause);
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    (void)events;
    run_http(userdata, DV_LIMIT_ACCEPTS); /* the first question has often come already */
    return 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    (void)events;
    run_http(userdata, 0);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    run_http(userdata, 0);
    return 0;
}

/* ---- life ---- */

/* What the owner may, and where it is meant for them also operators or everybody. */
static mode_t mode_for(const struct dv_arbiter *arbiter, mode_t owner, mode_t group, mode_t others)
{
    if (arbiter->options.user)
        return owner;
    return owner | group | (tenants_may_ask(arbiter) ? others : 0);
}

void dv_control_apply_config(struct dv_arbiter *arbiter)
{
    struct sockaddr_un address;
    char directory[DV_RUNDIR_BYTES + sizeof "/" DV_RUNDIR_CONTROL];
    gid_t group = arbiter->config.has_operator_group ? arbiter->config.operator_group : getegid();

    if (dv_rundir_address(&address, arbiter->directory, DV_RUNDIR_CONTROL_SOCKET) < 0)
        return;
    snprintf(directory, sizeof directory, "%s/" DV_RUNDIR_CONTROL, arbiter->directory);
    dvd_socket_let_in(address.sun_path, group, mode_for(arbiter, 0600, 0060, 0006));
    dvd_socket_let_in(directory, group, mode_for(arbiter, 0700, 0050, 0005));
}

static int open_socket(struct dv_arbiter *arbiter)
{
    char directory[DV_RUNDIR_BYTES + sizeof "/" DV_RUNDIR_CONTROL];

    snprintf(directory, sizeof directory, "%s/" DV_RUNDIR_CONTROL, arbiter->directory);
    int status = dv_rundir_make(directory, 0700);
    return status < 0 ? status
                      : dvd_socket_open(arbiter->directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, 0600);
}

static int adopt_socket(struct dv_arbiter *arbiter)
{
    struct sockaddr_un address;
    DV_AUTO_CLOSE int fd = dv_adopt_socket(arbiter, DV_KEPT_CONTROL_SOCKET);

    /* an earlier release had it elsewhere */
    if (dv_rundir_address(&address, arbiter->directory, DV_RUNDIR_CONTROL_SOCKET) < 0 ||
        access(address.sun_path, F_OK) < 0)
        return -ENOENT;
    return dv_take_fd(&fd);
}

static int start_http(struct dv_arbiter *arbiter)
{
    struct dv_control *control = &arbiter->control;

    control->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, on_request,
        arbiter, MHD_OPTION_EXTERNAL_LOGGER, on_http_log, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_coming_and_going, arbiter, MHD_OPTION_CONNECTION_LIMIT, (unsigned)DV_LIMIT_CONTROL_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)DV_LIMIT_CONTROL_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)DV_LIMIT_CONTROL_MEMORY, MHD_OPTION_END);
    if (!control->http)
        return -EIO;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(control->http, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return -EIO;
    int error = sd_event_add_io(arbiter->event, &control->listening, control->fd, EPOLLIN,
                                on_connection, arbiter);
    if (error >= 0)
        error =
            sd_event_add_io(arbiter->event, &control->io, info->epoll_fd, EPOLLIN, on_io, arbiter);
    if (error >= 0)
        error = sd_event_add_time_relative(arbiter->event, &control->timer, CLOCK_MONOTONIC,
                                           FALLBACK_POLL_US, 1 * DV_MS, on_timer, arbiter);
    if (error < 0)
        return error;
    arm(arbiter, 0);
    return 0;
}

int dv_control_init(struct dv_arbiter *arbiter, int activated_fd)
{
    struct dv_control *control = &arbiter->control;

    control->activated = activated_fd >= 0;
    control->fd = activated_fd >= 0 ? activated_fd : adopt_socket(arbiter);
    if (control->fd < 0)
        control->fd = open_socket(arbiter);
    if (control->fd < 0)
        return control->fd;
    dvd_incoming_prepare(control->fd);
    dv_control_apply_config(arbiter);
    return start_http(arbiter);
}

void dv_control_fini(struct dv_arbiter *arbiter)
{
    struct dv_control *control = &arbiter->control;
    struct dv_hold *hold, *next;
    struct sockaddr_un address;

    control->listening = sd_event_source_disable_unref(control->listening);
    control->io = sd_event_source_disable_unref(control->io);
    control->timer = sd_event_source_disable_unref(control->timer);
    if (control->fd >= 0 && !control->activated &&
        dv_rundir_address(&address, arbiter->directory, DV_RUNDIR_CONTROL_SOCKET) == 0)
        unlink(address.sun_path);
    if (control->http)
        MHD_stop_daemon(control->http);
    control->http = NULL;
    dv_callers_fini(&control->callers);
    if (control->fd >= 0)
        close(control->fd);
    control->fd = -1;
    DL_FOREACH_SAFE(control->holds, hold, next)
    {
        hold_destroy(hold);
    }
}
