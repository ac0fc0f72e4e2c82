/* The control socket: HTTP requests, well formed or not, while a session is there to be asked about. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/stage.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct dv_hello hello = {.magic = DV_WIRE_MAGIC,
                             .version = DV_WIRE_VERSION,
                             .version_oldest = DV_WIRE_VERSION_OLDEST,
                             .api = DV_API_LEASE};

    (void)argc;
    (void)argv;
    stage_start();
    int fd = stage_connect(DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET);
    (void)!send(fd, &hello, sizeof hello, 0);
    stage_run(8);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "X"};
    char text[4096];
    int length;

    if (bytes < 1 || bytes > 2048)
        return 0;
    if (data[0] & 4) /* as it is */
        length = snprintf(text, sizeof text, "%.*s", (int)(bytes - 1), (const char *)data + 1);
    else /* as a request for this path */
        length = snprintf(text, sizeof text, "%s %.*s HTTP/1.%d\r\nHost: divvy\r\n\r\n", methods[data[0] & 3],
                          (int)(bytes - 1), (const char *)data + 1, data[0] & 8 ? 0 : 1);
    int fd = stage_connect(DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM);
    if (fd < 0)
        return 0;
    (void)!send(fd, text, (size_t)length, MSG_NOSIGNAL);
    stage_run(16);
    (void)!recv(fd, text, sizeof text, MSG_DONTWAIT);
    close(fd);
    stage_run(16);
    return 0;
}
