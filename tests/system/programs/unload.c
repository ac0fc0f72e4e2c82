/* A program that loads OpenCL with dlopen, uses it, and closes it again, several times; also from a
 * thread that ends. */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

static void use(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library);
#define LOAD(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(library, #name)
    LOAD(clGetPlatformIDs);
    LOAD(clGetDeviceIDs);
    LOAD(clCreateContext);
    LOAD(clCreateCommandQueue);
    LOAD(clCreateBuffer);
    LOAD(clEnqueueWriteBuffer);
    LOAD(clEnqueueReadBuffer);
    LOAD(clReleaseMemObject);
    LOAD(clReleaseCommandQueue);
    LOAD(clReleaseContext);
#undef LOAD
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    REQUIRE_CL(p_clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(p_clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = p_clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    REQUIRE_CL(error);
    cl_command_queue queue = p_clCreateCommandQueue(context, device, 0, &error);
    REQUIRE_CL(error);
    cl_mem buffer = p_clCreateBuffer(context, 0, 65536, NULL, &error);
    REQUIRE_CL(error);
    static _Thread_local unsigned char out[65536], in[65536];
    memset(out, 0x6d, sizeof out);
    CHECK_CL(p_clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof out, out, 0, NULL, NULL));
    CHECK_CL(p_clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof in, in, 0, NULL, NULL));
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK_CL(p_clReleaseMemObject(buffer));
    CHECK_CL(p_clReleaseCommandQueue(queue));
    CHECK_CL(p_clReleaseContext(context));
    dlclose(library);
}

static void *use_in_thread(void *unused)
{
    use();
    return unused;
}

int main(void)
{
    for (int i = 0; i < 5; i++)
        use();
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, use_in_thread, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    return dv_test_result("unload");
}
