/* A tenant whose kernel includes files of its own: includes DIRECTORY. Prints what the kernel found in
 * them, or the build log. */
#include "check.h"

static const char *const source = "#include \"first.h\"\n"
                                  "#include <first.h>\n"
                                  "kernel void tell(global int *out) { *out = VALUE; }\n";

int main(int argc, char **argv)
{
    struct dv_test test = dv_test_setup();
    char options[4096], log[8192] = "";
    size_t one = 1;
    cl_int error, value = 0;

    snprintf(options, sizeof options, "-I %s -DOFFSET=2", argc > 1 ? argv[1] : ".");
    cl_program program = clCreateProgramWithSource(test.context, 1, (const char **)&source, NULL, &error);
    REQUIRE_CL(error);
    error = clBuildProgram(program, 0, NULL, options, NULL, NULL);
    if (error != CL_SUCCESS) {
        clGetProgramBuildInfo(program, test.device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        printf("error %d\n%s\n", error, log);
        return 1;
    }
    cl_kernel kernel = clCreateKernel(program, "tell", &error);
    REQUIRE_CL(error);
    cl_mem out = dv_test_buffer(&test, 0, sizeof value, NULL);
    REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof out, &out));
    REQUIRE_CL(clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    REQUIRE_CL(clEnqueueReadBuffer(test.queue, out, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("%d\n", value);
    return 0;
}
