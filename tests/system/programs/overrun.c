/* A tenant that writes past a buffer, with other buffers before and behind it.
 *
 *     overrun kernel MIB    its kernel writes that much from the beginning of a buffer of 1 MiB
 *     overrun before MIB    its kernel writes that much, backwards from there
 *     overrun host MIB      the program itself does, through the pointer of a mapped buffer
 *
 * Says "finish ERROR", then "changed N": how many words of the other buffers are not what they were,
 * as mapped before. Then waits for a line on standard input, and says "after ERROR" of another clFinish. */
#include "check.h"

#define BYTES ((size_t)1 << 20)
#define WORDS (BYTES / sizeof(cl_uint))
#define OTHERS 6
#define PAGE 4096

static const char *const source = "kernel void past(global uint *data, ulong words) {\n"
                                  "    for (ulong i = 0; i < words; i++)\n"
                                  "        data[i] = 0xdead;\n"
                                  "}\n"
                                  "kernel void before(global uint *data, ulong words) {\n"
                                  "    for (ulong i = 1; i <= words; i++)\n"
                                  "        *(data - i) = 0xdead;\n"
                                  "}\n";

int main(int argc, char **argv)
{
    cl_int error;
    size_t one = 1;

    if (argc != 3)
        return 2;
    bool by_host = strcmp(argv[1], "host") == 0, before = strcmp(argv[1], "before") == 0;
    cl_ulong words = strtoull(argv[2], NULL, 10) << 18;
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, before ? "before" : "past");
    cl_mem others[OTHERS], target = NULL;
    cl_uint *seen[OTHERS];

    for (int i = 0; i < OTHERS; i++) {
        if (i == OTHERS / 2)
            target = dv_test_buffer(&test, CL_MEM_READ_WRITE, BYTES, NULL);
        others[i] = dv_test_buffer(&test, CL_MEM_READ_WRITE, BYTES, NULL);
        seen[i] = clEnqueueMapBuffer(test.queue, others[i], CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL,
                                     NULL, &error);
        REQUIRE_CL(error);
        for (size_t k = 0; k < WORDS; k++)
            seen[i][k] = (cl_uint)k;
    }
    if (by_host) {
        char *past = clEnqueueMapBuffer(test.queue, target, CL_TRUE, CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &error);
        REQUIRE_CL(error);
        for (size_t at = (OTHERS + 2) * BYTES; at < words * sizeof(cl_uint); at += PAGE)
            past[at] = 1;
    } else {
        REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof target, &target));
        REQUIRE_CL(clSetKernelArg(kernel, 1, sizeof words, &words));
        error = clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    }
    if (error == CL_SUCCESS)
        error = clFinish(test.queue);
    printf("finish %s\n", dv_test_error_name(error));
    size_t changed = 0;
    for (int i = 0; i < OTHERS; i++)
        for (size_t k = 0; k < WORDS; k++)
            changed += seen[i][k] != (cl_uint)k;
    printf("changed %zu\n", changed);
    fflush(stdout);
    getchar();
    printf("after %s\n", dv_test_error_name(clFinish(test.queue)));
    return 0;
}
