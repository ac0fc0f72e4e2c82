/* A tenant whose kernel never ends. Prints "running" when the kernel has been handed over, then what
 * became of it: "finish ERROR" and "callback TEXT". */
#include "check.h"

#include <unistd.h>

static const char *const source = "kernel void spin(global volatile int *go) {\n"
                                  "    while (*go == 0)\n"
                                  "        ;\n"
                                  "}\n";

static char told[1024];
static atomic_int is_told;

static void CL_CALLBACK on_error(const char *text, const void *info, size_t bytes, void *user)
{
    (void)info;
    (void)bytes;
    (void)user;
    snprintf(told, sizeof told, "%s", text);
    atomic_store(&is_told, 1);
}

int main(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int error, zero = 0;
    size_t one = 1;

    REQUIRE_CL(clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, on_error, NULL, &error);
    REQUIRE_CL(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    REQUIRE_CL(error);
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "spin", &error);
    REQUIRE_CL(error);
    cl_mem go = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof zero, &zero, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof go, &go));
    REQUIRE_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    REQUIRE_CL(clFlush(queue));
    printf("running\n");
    fflush(stdout);
    error = clFinish(queue);
    for (int i = 0; i < 500 && !atomic_load(&is_told); i++)
        usleep(10000);
    printf("finish %d\ncallback %s\n", error, told);
    return 0;
}
