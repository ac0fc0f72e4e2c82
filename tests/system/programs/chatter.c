/* chatter LINES: a kernel of many work-items prints that many lines in all, far more than pipes hold,
 * while a read of another queue waits for the device. */
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

#define ITEMS 64
#define BYTES ((size_t)1 << 20)

static const char *const source =
    "kernel void chatter(uint lines) {\n"
    "    for (uint i = 0; i < lines; i++)\n"
    "        printf(\"a line of sixty-four bytes, which is printed again and again......\\n\");\n"
    "}\n";

int main(int argc, char **argv)
{
    alarm(100);
    struct dv_test test = dv_test_setup();
    cl_kernel kernel = dv_test_kernel(dv_test_build(&test, source, ""), "chatter");
    cl_mem buffer = dv_test_buffer(&test, 0, BYTES, NULL);
    cl_uint lines = argc > 1 ? (cl_uint)atoi(argv[1]) / ITEMS : 1;
    cl_uint pattern = 7, *host = calloc(1, BYTES);
    size_t items = ITEMS, one = 1;

    REQUIRE(host);
    REQUIRE_CL(clEnqueueFillBuffer(test.queue, buffer, &pattern, 4, 0, BYTES, 0, NULL, NULL));
    REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof lines, &lines));
    REQUIRE_CL(clFinish(test.queue));
    REQUIRE_CL(clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &items, &one, 0, NULL, NULL));
    REQUIRE_CL(clFlush(test.queue));
    dv_test_sleep_ms(100);
    REQUIRE_CL(clEnqueueReadBuffer(test.ooo_queue, buffer, CL_FALSE, 0, BYTES, host, 0, NULL, NULL));
    REQUIRE_CL(clFinish(test.ooo_queue));
    REQUIRE_CL(clFinish(test.queue));
    CHECK(host[0] == pattern && host[BYTES / 4 - 1] == pattern);
    return dv_test_result("chatter");
}
