/* Serving the control socket (see server.h): libmicrohttpd without threads of its own, driven by
 * divvyd's event loop. */
#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/control/private.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/sockets.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/system/peers.h"
#include "src/base/cleanup.h"

#define FALLBACK_POLL_US (1 * DV_S)

/* ---- callers ---- */

static int connection_fd(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

static bool identify(const struct dvd_control *control, int fd, struct dvd_control_peer *peer)
{
    struct ucred credentials;
    socklen_t bytes = sizeof credentials;

    *peer = (struct dvd_control_peer){.uid = (uid_t)-1, .is_remote = !dvd_socket_is_local(fd)};
    if (peer->is_remote)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0)
        return false;
    peer->uid = credentials.uid;
    peer->is_operator = dvd_peer_is_operator(control->config, fd, &credentials);
    return true;
}

/* ---- answers ---- */

static struct MHD_Response *make_response(struct dvd_reply *reply)
{
    static char no_memory[] = "{\"error\":\"divvyd is short of memory\"}\n";

    if (reply->listing)
        reply->status = MHD_HTTP_OK;
    else if (!reply->body)
        reply->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    if (reply->listing)
        return reply->listing;
    return reply->body ? MHD_create_response_from_buffer(strlen(reply->body), reply->body, MHD_RESPMEM_MUST_FREE)
                       : MHD_create_response_from_buffer(strlen(no_memory), no_memory, MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result reply(struct MHD_Connection *connection, const struct dvd_control_peer *peer,
                             struct dvd_reply reply)
{
    struct MHD_Response *response = make_response(&reply);

    if (!response) {
        free(reply.body);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.type ? reply.type : "application/json");
    /* After too many questions a new connection is refused until the rate recovers. On the port all callers share a few
     * places. */
    if (reply.status == MHD_HTTP_TOO_MANY_REQUESTS || peer->is_remote)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = MHD_queue_response(connection, reply.status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- requests ---- */

#define TOO_MANY_QUESTIONS                                                                                             \
    "too many questions at once: ask again a little later, and not more often than " NUMBER(                           \
        DV_MAX_CONTROL_QUESTIONS_PER_S) " times a second"
#define NUMBER(number) NUMBER_AS_TEXT(number)
#define NUMBER_AS_TEXT(number) #number
#define ONLY_OPERATORS                                                                                                 \
    "only operators outside containers may ask this daemon, unless divvy.yaml has `tenants-see-own: yes`"

static bool tenants_may_ask(const struct dvd_control *control)
{
    return control->config->file && control->config->file->tenants_see_own;
}

static bool may_ask_now(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct dvd_caller *caller = info ? info->socket_context : NULL;

    return caller && dvd_caller_may_ask(caller, dv_now() / DV_NS_PER_US);
}

static enum MHD_Result serve(struct dvd_control *control, struct MHD_Connection *connection, const char *path,
                             const char *method)
{
    struct dvd_request request = {.connection = connection, .fd = connection_fd(connection)};
    const struct dvd_control_peer *peer = &request.peer;

    if (!identify(control, request.fd, &request.peer))
        return reply(connection, peer, dvd_view_error(MHD_HTTP_FORBIDDEN, "the peer cannot be identified"));
    if (!may_ask_now(connection))
        return reply(connection, peer, dvd_view_error(MHD_HTTP_TOO_MANY_REQUESTS, TOO_MANY_QUESTIONS));
    if (peer->is_remote && strcmp(path, "/metrics") != 0)
        return reply(connection, peer, dvd_view_error(MHD_HTTP_FORBIDDEN, "this port serves /metrics only"));
    if (!peer->is_operator && !peer->is_remote && !tenants_may_ask(control)) /* the configuration has changed */
        return reply(connection, peer, dvd_view_error(MHD_HTTP_FORBIDDEN, ONLY_OPERATORS));
    return reply(connection, peer, dvd_routes_serve(control, method, path, &request));
}

static bool has_body(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return (length && strcmp(length, "0") != 0) ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/* libmicrohttpd calls this once with the headers, then for the answer. No request of ours has a body: a
 * connection that sends one is closed, because bodies can be endless. */
static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload, size_t *upload_bytes,
                                  void **state)
{
    static int headers_seen;

    (void)version;
    (void)upload;
    if (!*state && has_body(connection)) {
        may_ask_now(connection); /* counts against the rate */
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

/* Connections of the port have one answer each, and a limited time for it. libmicrohttpd knows only how long one is
 * idle: a caller that sends a byte now and then would keep its place for ever. */
static void enter_port(struct dvd_control *control, struct MHD_Connection *connection)
{
    for (int i = 0; i < DV_MAX_CONTROL_PER_TENANT; i++)
        if (control->on_port[i].began == 0) {
            control->on_port[i].fd = connection_fd(connection);
            control->on_port[i].began = dv_now();
            break;
        }
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)DV_METRICS_TIMEOUT_S);
}

static void leave_port(struct dvd_control *control, int fd)
{
    for (int i = 0; i < DV_MAX_CONTROL_PER_TENANT; i++)
        if (control->on_port[i].fd == fd)
            control->on_port[i].began = 0;
}

/* Called whenever something happens on a connection. libmicrohttpd then closes those that are shut down. */
static void end_overdue(const struct dvd_control *control)
{
    dv_ns now = dv_now();

    for (int i = 0; i < DV_MAX_CONTROL_PER_TENANT; i++)
        if (control->on_port[i].began && now - control->on_port[i].began > DV_METRICS_TIMEOUT_S * DV_NS_PER_S)
            shutdown(control->on_port[i].fd, SHUT_RDWR);
}

/* libmicrohttpd reports each connection's begin and end. */
static void on_coming_and_going(void *userdata, struct MHD_Connection *connection, void **context,
                                enum MHD_ConnectionNotificationCode code)
{
    struct dvd_control *control = userdata;
    struct dvd_callers *callers = &control->callers;
    struct dvd_control_peer peer;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        if (!identify(control, connection_fd(connection), &peer))
            return;
        *context = dvd_callers_enter(callers, peer.uid, peer.is_operator);
        if (peer.is_remote)
            enter_port(control, connection);
        return;
    }
    leave_port(control, connection_fd(connection));
    if (*context) {
        dvd_callers_leave(callers, *context, dv_now() / DV_NS_PER_US);
        *context = NULL;
    }
}

/* Answers before anything was asked. The caller closes the connection. */
static void turn_away(int fd, const char *status, const char *text)
{
    char answer[512];
    int length = snprintf(answer, sizeof answer,
                          "HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                          "Content-Length: %zu\r\n\r\n{\"error\":\"%s\"}\n",
                          status, strlen(text) + strlen("{\"error\":\"\"}\n"), text);

    send(fd, answer, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The limits depend on the connection's user, so it is accepted here and not by libmicrohttpd. */
static void take_connection(struct dvd_control *control, int accepted_fd)
{
    DV_AUTO_CLOSE int fd = accepted_fd;
    struct dvd_control_peer peer;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (!identify(control, fd, &peer))
        return;
    if (!peer.is_operator && !peer.is_remote && !tenants_may_ask(control)) {
        turn_away(fd, "403 Forbidden", ONLY_OPERATORS);
        return;
    }
    if (!dvd_callers_have_place(&control->callers, peer.uid, peer.is_operator)) {
        turn_away(fd, "503 Service Unavailable", "too many connections at once: close some of them");
        return;
    }
    if (!dvd_callers_may_ask(&control->callers, peer.uid, peer.is_operator, dv_now() / DV_NS_PER_US)) {
        turn_away(fd, "429 Too Many Requests", TOO_MANY_QUESTIONS);
        return;
    }
    MHD_add_connection(control->http, dv_take_fd(&fd), (struct sockaddr *)&address,
                       sizeof address); /* closes the socket if it fails */
}

/* ---- the event loop ---- */

/* Sets the timer: to the pause, else to libmicrohttpd's timeout. */
static void arm(struct dvd_control *control, dv_ns pause)
{
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

static void listen_to_callers(struct dvd_control *control, bool listens)
{
    if (control->metrics_listening)
        sd_event_source_set_enabled(control->metrics_listening, listens ? SD_EVENT_ON : SD_EVENT_OFF);
    sd_event_source_set_enabled(control->listening, listens ? SD_EVENT_ON : SD_EVENT_OFF);
    sd_event_source_set_enabled(control->io, listens ? SD_EVENT_ON : SD_EVENT_OFF);
}

/* All work for callers happens here and is charged to them: while sessions send messages, callers have a
 * limited part of divvyd's time. accepts: the maximum number of connections to accept. */
static void run_http(struct dvd_control *control, int accepts)
{
    dv_ns began = dvd_processor_time();

    for (int accepted; accepts > 0; accepts--) {
        accepted = dvd_socket_accept(control->listening, control->fd);
        if (accepted < 0 && control->metrics_listening)
            accepted = dvd_socket_accept(control->metrics_listening, control->metrics_fd);
        if (accepted < 0)
            break;
        take_connection(control, accepted);
    }
    end_overdue(control);
    dvd_listings_continue(&control->listings);
    MHD_run(control->http);
    dv_ns now = dv_now();
    dv_ns pause = dvd_budget_spend(&control->budget, dvd_processor_time() - began,
                                   dvd_channels_are_quiet(&control->sessions->channels, now), now);
    listen_to_callers(control, pause == 0);
    arm(control, pause);
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    (void)events;
    run_http(userdata, DV_MAX_ACCEPTS); /* the first question has often come already */
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

void dvd_control_run_soon(struct dvd_control *control)
{
    int listens = 0;

    if (sd_event_source_get_enabled(control->io, &listens) < 0 || listens == SD_EVENT_OFF)
        return; /* callers have used up their time: it goes on after the pause */
    sd_event_source_set_time_relative(control->timer, 0);
    sd_event_source_set_enabled(control->timer, SD_EVENT_ONESHOT);
}

/* ---- life ---- */

/* Permissions of the owner, and where configured also of operators or all users. */
static mode_t mode_for(const struct dvd_control *control, mode_t owner, mode_t group, mode_t others)
{
    if (control->config->of_user)
        return owner;
    return owner | group | (tenants_may_ask(control) ? others : 0);
}

static void close_metrics(struct dvd_control *control)
{
    control->metrics_listening = sd_event_source_disable_unref(control->metrics_listening);
    dv_close_fd(&control->metrics_fd);
    control->metrics_port = 0;
}

/* Opens, changes or closes the port for metrics. A socket of the service manager stays. */
static void apply_metrics_port(struct dvd_control *control)
{
    uint16_t port = control->config->metrics_port;

    if (control->metrics_activated || port == control->metrics_port)
        return;
    close_metrics(control);
    if (!port)
        return;
    int fd = dvd_socket_open_loopback(port);
    if (fd < 0) {
        dv_error("cannot listen for metrics on 127.0.0.1 port %u: %s%s", port, strerror(-fd),
                 fd == -EAFNOSUPPORT ? " (enable divvyd-metrics.socket instead, or allow AF_INET in the unit)" : "");
        return;
    }
    control->metrics_port = port;
    dvd_control_listen_metrics(control, fd);
}

void dvd_control_listen_metrics(struct dvd_control *control, int fd)
{
    control->metrics_fd = fd;
    if (sd_event_add_io(control->event, &control->metrics_listening, fd, EPOLLIN, on_connection, control) < 0)
        close_metrics(control);
}

/* By the present configuration. */
static bool has_rights(const struct dvd_control *control, struct MHD_Connection *connection,
                       const struct dvd_control_peer *peer)
{
    struct dvd_control_peer now;

    return identify(control, connection_fd(connection), &now) &&
           (peer->is_operator ? now.is_operator : tenants_may_ask(control));
}

void dvd_control_apply_config(struct dvd_control *control)
{
    struct sockaddr_un address;
    char directory[DV_RUNDIR_BYTES + sizeof "/" DV_RUNDIR_CONTROL];
    gid_t group = dvd_config_operators(control->config);

    if (dv_rundir_address(&address, control->directory, DV_RUNDIR_CONTROL_SOCKET) < 0)
        return;
    snprintf(directory, sizeof directory, "%s/" DV_RUNDIR_CONTROL, control->directory);
    dvd_socket_let_in(address.sun_path, group, mode_for(control, 0600, 0060, 0006));
    dvd_socket_let_in(directory, group, mode_for(control, 0700, 0050, 0005));
    apply_metrics_port(control);
    dvd_listings_review(&control->listings, has_rights);
}

static int open_socket(struct dvd_control *control)
{
    char directory[DV_RUNDIR_BYTES + sizeof "/" DV_RUNDIR_CONTROL];

    snprintf(directory, sizeof directory, "%s/" DV_RUNDIR_CONTROL, control->directory);
    int status = dv_rundir_make(directory, 0700);
    return status < 0 ? status : dvd_socket_open(control->directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, 0600);
}

static int adopt_socket(struct dvd_control *control)
{
    struct sockaddr_un address;
    DV_AUTO_CLOSE int fd = dvd_keeper_take(control->keeper, DV_KEPT_CONTROL_SOCKET);

    /* an earlier release had it elsewhere */
    if (dv_rundir_address(&address, control->directory, DV_RUNDIR_CONTROL_SOCKET) < 0 ||
        access(address.sun_path, F_OK) < 0)
        return -ENOENT;
    return dv_take_fd(&fd);
}

static int start_http(struct dvd_control *control)
{

    control->http = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_request, control, MHD_OPTION_EXTERNAL_LOGGER, on_http_log, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_coming_and_going, control, MHD_OPTION_CONNECTION_LIMIT, (unsigned)DV_MAX_CONTROL_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)DV_CONTROL_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)DV_MAX_CONTROL_MEMORY, MHD_OPTION_END);
    if (!control->http)
        return -EIO;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(control->http, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return -EIO;
    int error = sd_event_add_io(control->event, &control->listening, control->fd, EPOLLIN, on_connection, control);
    if (error >= 0)
        error = sd_event_add_io(control->event, &control->io, info->epoll_fd, EPOLLIN, on_io, control);
    if (error >= 0)
        error = sd_event_add_time_relative(control->event, &control->timer, CLOCK_MONOTONIC, FALLBACK_POLL_US,
                                           1 * DV_MS, on_timer, control);
    if (error < 0)
        return error;
    arm(control, 0);
    return 0;
}

int dvd_control_init(struct dvd_control *control, int activated_fd)
{

    control->activated = activated_fd >= 0;
    control->fd = activated_fd >= 0 ? activated_fd : adopt_socket(control);
    if (control->fd < 0)
        control->fd = open_socket(control);
    if (control->fd < 0)
        return control->fd;
    dvd_incoming_prepare(control->fd);
    dvd_control_apply_config(control);
    return start_http(control);
}

void dvd_control_fini(struct dvd_control *control)
{
    struct sockaddr_un address;

    control->listening = sd_event_source_disable_unref(control->listening);
    control->io = sd_event_source_disable_unref(control->io);
    control->timer = sd_event_source_disable_unref(control->timer);
    if (control->fd >= 0 && !control->activated &&
        dv_rundir_address(&address, control->directory, DV_RUNDIR_CONTROL_SOCKET) == 0)
        unlink(address.sun_path);
    close_metrics(control);
    dvd_listings_wake(&control->listings);
    if (control->http)
        MHD_stop_daemon(control->http);
    control->http = NULL;
    dvd_callers_fini(&control->callers);
    if (control->fd >= 0)
        close(control->fd);
    control->fd = -1;
    dvd_holds_fini(control);
}
