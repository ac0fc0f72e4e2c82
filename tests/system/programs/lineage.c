/* A program that computes on a device and has a child that does so, too, by the same handle.
 *
 *     lineage DEVICE
 *
 * Prints "parent" when it has computed; after a line of its standard input forks, and the child prints
 * "child PID" when it has. Both stay until the input ends. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void compute(cl_device_id device)
{
    cl_int error;
    cl_uint seven = 7, word = 0;

    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    REQUIRE_CL(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    REQUIRE_CL(error);
    cl_mem buffer = clCreateBuffer(context, 0, 4096, NULL, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clEnqueueFillBuffer(queue, buffer, &seven, 4, 0, 4096, 0, NULL, NULL));
    REQUIRE_CL(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 4092, 4, &word, 0, NULL, NULL));
    REQUIRE(word == seven);
}

int main(int argc, char **argv)
{
    cl_platform_id platform;
    cl_device_id devices[64];
    cl_uint count = 0;
    char line[16];

    if (argc < 2)
        return 2;
    REQUIRE_CL(clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, devices, &count));
    cl_uint device = (cl_uint)atoi(argv[1]);
    REQUIRE(device < count);
    compute(devices[device]);
    printf("parent\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        compute(devices[device]);
        printf("child %d\n", (int)getpid());
        fflush(stdout);
    }
    while (fgets(line, sizeof line, stdin))
        ;
    return child > 0 && waitpid(child, NULL, 0) != child;
}
