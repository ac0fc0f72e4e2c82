/* A trial admission of a program (see admission.h). An OpenCL program that is refused only finds no
 * device, and its user does not see the daemon's reason. So this opens a session with the same share
 * and devices but without a worker, reads the answer, and closes it again. */
#include "src/cli/admission.h"

#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/policy/policy.h"
#include "src/wire/session/handshake.h"

#define SUGGESTION_BYTES 400 /* a longer command line is no help */

static uint16_t class_of(const char *word)
{
    enum dv_class class;

    return word && dv_class_by_word(word, &class) ? (uint16_t)(class + 1) : 0;
}

/* Waits until the daemon has closed the session too, so that it is not counted beside the
 * program's own. */
static void leave(int fd)
{
    char rest[64];

    shutdown(fd, SHUT_WR);
    while (recv(fd, rest, sizeof rest, 0) > 0)
        ;
}

/* While a daemon does not answer, a line says what the command waits for. */
static void note_silence(int fd, const char *directory)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};

    if (poll(&answer, 1, DV_ADMISSION_PATIENCE_MS) == 0)
        dv_cli_error("the divvyd in %s has not answered for %d s; waiting up to %d s. It may still be looking for "
                     "devices, or be stopped: see its log.",
                     directory, DV_ADMISSION_PATIENCE_MS / 1000, DV_ADMISSION_TIMEOUT_S);
}

enum dv_admission dv_cli_admission_ask(const char *directory, const struct dv_cli_share *share,
                                       const struct dv_cli_limits *limits, const char *devices,
                                       char text[DV_MAX_MESSAGE_TEXT])
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION,
                             .api = DV_API_LEASE,
                             .request = share->request.from ? share->request.value + 1 : 0,
                             .limit = share->limit.from ? share->limit.value + 1 : 0,
                             .weight = (uint16_t)share->weight.value,
                             .class = class_of(share->class),
                             .memory_bytes = limits->memory_bytes,
                             .deadline_ns = limits->deadline_ns};
    size_t bytes = limits->memory_bytes || limits->deadline_ns ? sizeof hello : DV_HELLO_BYTES_2;
    struct dv_welcome welcome;
    const struct timeval timeout = {.tv_sec = DV_ADMISSION_TIMEOUT_S};
    int fd_count;

    text[0] = '\0';
    if (devices)
        dv_text_copy(hello.devices, sizeof hello.devices, devices);
    DV_AUTO_CLOSE int fd = dv_rundir_connect(directory, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0 ||
        dv_fd_send(fd, &hello, bytes, NULL, 0) < 0)
        return DV_ADMISSION_UNKNOWN;
    note_silence(fd, directory);
    if (dv_fd_receive(fd, &welcome, sizeof welcome, NULL, 0, &fd_count, 0) != sizeof welcome ||
        welcome.magic != DV_WIRE_MAGIC)
        return DV_ADMISSION_UNKNOWN;
    if (welcome.status == DV_WELCOME_OK)
        leave(fd);
    if (welcome.status != DV_WELCOME_NO_LEASE) /* which is about this question, not about programs */
        dv_text_copy(text, DV_MAX_MESSAGE_TEXT, welcome.text);
    return welcome.status == DV_WELCOME_REFUSED     ? DV_ADMISSION_REFUSED
           : welcome.status == DV_WELCOME_NO_WORKER ? DV_ADMISSION_NO_DEVICE
                                                    : DV_ADMISSION_SERVED;
}

/* The daemon calls a session by the name of its process: in its log and in its record of a refusal that is to be the
 * program, not divvy. */
static enum dv_admission ask_as(const char *program, const char *directory, const struct dv_cli_share *share,
                                const struct dv_cli_limits *limits, const char *devices, char text[DV_MAX_MESSAGE_TEXT])
{
    const char *slash = strrchr(program, '/');
    char own[16] = ""; /* as long as such a name can be */

    prctl(PR_GET_NAME, own);
    prctl(PR_SET_NAME, slash ? slash + 1 : program);
    enum dv_admission answer = dv_cli_admission_ask(directory, share, limits, devices, text);
    prctl(PR_SET_NAME, own);
    return answer;
}

/* Whether the caller's tenant is its own, so that what it asks for counts. The daemon may not tell. */
static bool asks_for_itself(const char *directory)
{
    DV_AUTO_FREE char *body = NULL;
    char error[256];
    int status = dv_http_request(directory, "GET", "/v1/whoami", DV_HTTP_PATIENCE_S, &body, error, sizeof error);
    json_t *answer = status == 200 ? json_loads(body, 0, NULL) : NULL;
    bool is_own = json_is_false(json_object_get(answer, "shared"));

    json_decref(answer);
    return is_own;
}

/* A request that does not fit is all that keeps the program from the devices. Trying the admission without it would
 * take the request from the tenant's other programs. */
static void suggest(const char *directory, const char *refusal, const struct dv_cli_words *words)
{
    char line[SUGGESTION_BYTES];

    if (strncmp(refusal, "a request of ", strlen("a request of ")) == 0 &&
        dv_cli_suggest_without_request(words, line, sizeof line) && asks_for_itself(directory))
        dv_cli_error("to run it now without a guaranteed share: %s", line);
}

bool dv_cli_admission_try(const char *directory, const struct dv_cli_share *share, const struct dv_cli_limits *limits,
                          const char *devices, const struct dv_cli_words *words)
{
    const char *program = words->all[words->program];
    char text[DV_MAX_MESSAGE_TEXT];
    enum dv_admission answer = ask_as(program, directory, share, limits, devices, text);

    if (answer == DV_ADMISSION_SERVED && text[0])
        dv_cli_error("%s is started, but %s", program, text);
    if (answer == DV_ADMISSION_NO_DEVICE)
        dv_cli_error("%s is started, but finds no device now: %s (answer of the divvyd in %s)", program, text,
                     directory);
    if (answer == DV_ADMISSION_REFUSED) {
        dv_cli_error("no device for %s now, so it is not started: %s (answer of the divvyd in %s)", program, text,
                     directory);
        suggest(directory, text, words);
    }
    return answer != DV_ADMISSION_REFUSED;
}
