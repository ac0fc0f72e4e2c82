/* A trial admission of a program (see admission.h). An OpenCL program that is refused only finds no
 * device, and its user does not see the daemon's reason. So this opens a session with the same share
 * and devices but without a worker, reads the answer, and closes it again. */
#include "src/cli/admission.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/policy/policy.h"
#include "src/wire/session/handshake.h"

#define ANSWER_TIMEOUT_S 30 /* a daemon that has just started may still be looking for devices */

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

bool dv_cli_admission_try(const char *directory, const struct dv_cli_share *share, const char *devices)
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION,
                             .api = DV_API_LEASE,
                             .request = share->request.from ? share->request.value + 1 : 0,
                             .limit = share->limit.from ? share->limit.value + 1 : 0,
                             .weight = (uint16_t)share->weight.value,
                             .class = class_of(share->class)};
    struct dv_welcome welcome;
    const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
    int fd_count;

    if (devices)
        dv_text_copy(hello.devices, sizeof hello.devices, devices);
    DV_AUTO_CLOSE int fd = dv_rundir_connect(directory, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0 ||
        dv_fd_send(fd, &hello, sizeof hello, NULL, 0) < 0 ||
        dv_fd_receive(fd, &welcome, sizeof welcome, NULL, 0, &fd_count, 0) != sizeof welcome ||
        welcome.magic != DV_WIRE_MAGIC)
        return true;
    dv_text_clean(welcome.text, sizeof welcome.text);
    if (welcome.status == DV_WELCOME_OK) {
        leave(fd);
        if (welcome.text[0])
            dv_cli_error("the program is started, but %s", welcome.text);
    }
    if (welcome.status != DV_WELCOME_REFUSED)
        return true;
    dv_cli_error("the program is not started, because it would be refused: %s (answer of the divvyd in %s)",
                 welcome.text, directory);
    return false;
}
