/* divvy-worker: the program of the zygote and of every worker, which is forked from it. Only divvyd starts it. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "src/worker/core/zygote.h"
#include "src/worker/opencl/api.h"

int main(int argc, char **argv)
{
    int type;
    socklen_t type_bytes = sizeof type;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("divvy-worker %s\n", DIVVY_VERSION);
        return 0;
    }
    bool of_system = argc == 2 && strcmp(argv[1], "--system-zygote") == 0;
    if (argc != 2 || (strcmp(argv[1], "--zygote") != 0 && !of_system) ||
        getsockopt(DV_ZYGOTE_SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &type_bytes) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "divvy-worker is started by divvyd, not by hand: it needs divvyd's socket.\n"
                        "To run a program through divvy: divvy run -- PROGRAM\n");
        return 2;
    }
    return dvk_zygote_run(DV_ZYGOTE_SOCKET_FD, of_system, &dvk_opencl);
}
