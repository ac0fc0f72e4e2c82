/* A program that forks. Before the first OpenCL call each process is on its own; afterwards the
 * child's calls on inherited objects fail cleanly and the parent goes on. */
#include "tenant.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

/* Waits for a child with a limit; false when it hung, crashed or failed. */
static bool child_fine(pid_t pid)
{
    int status = -1;
    for (int i = 0; i < 3000; i++) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return true;
            dv_test_detail("child ended with status 0x%x", status);
            return false;
        }
        dv_test_sleep_ms(10);
    }
    dv_test_detail("child did not end");
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return false;
}

/* In the child: every kind of call comes back, and none claims to have done work. */
static void use_inherited(struct tenant *tenant, cl_event gate)
{
    cl_uint word = 0;
    cl_int error;
    size_t one = 1;
    CHECK(clEnqueueReadBuffer(tenant->test.queue, tenant->buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL) < 0);
    CHECK(clEnqueueWriteBuffer(tenant->test.queue, tenant->buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL) < 0);
    CHECK(clFinish(tenant->test.queue) < 0);
    cl_event event = NULL;
    error = clEnqueueNDRangeKernel(tenant->test.queue, tenant->kernel, 1, NULL, &one, &one, 0, NULL, &event);
    if (error == CL_SUCCESS)
        CHECK(clWaitForEvents(1, &event) < 0);
    cl_mem buffer = clCreateBuffer(tenant->test.context, 0, 1 << 20, NULL, &error);
    if (buffer)
        CHECK(clEnqueueFillBuffer(tenant->test.queue, buffer, &word, 4, 0, 64, 0, NULL, NULL) < 0 ||
              clFinish(tenant->test.queue) < 0);
    const char *text = "kernel void other() {}\n";
    const cl_image_format format = {CL_R, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 2, .image_height = 2};
    CHECK(!clCreateProgramWithSource(tenant->test.context, 1, &text, NULL, &error) && error < 0);
    CHECK(clBuildProgram(tenant->program, 0, NULL, "-DOTHER", NULL, NULL) < 0);
    CHECK(!clCreateImage(tenant->test.context, CL_MEM_COPY_HOST_PTR, &format, &desc, &word, &error) && error < 0);
    CHECK(clWaitForEvents(1, &gate) < 0);
    clSetUserEventStatus(gate, CL_COMPLETE); /* must not reach the parent's session */
    clReleaseMemObject(tenant->buffer);
    clReleaseKernel(tenant->kernel);
    clReleaseProgram(tenant->program);
    clReleaseCommandQueue(tenant->test.queue);
    clReleaseContext(tenant->test.context);
}

int main(void)
{
    /* Before anything: the child is a tenant of its own. */
    dv_test_section("fork before the first call");
    pid_t pid = fork();
    if (pid == 0) {
        struct tenant tenant = tenant_open();
        tenant_work(&tenant);
        tenant_close(&tenant);
        _exit(dv_test_result("forks (early child)"));
    }
    struct tenant tenant = tenant_open();
    tenant_work(&tenant);
    CHECK(child_fine(pid));

    dv_test_section("fork of a user of OpenCL");
    cl_int error;
    cl_event gate = clCreateUserEvent(tenant.test.context, &error);
    REQUIRE_CL(error);
    cl_uint pattern = 9;
    cl_event gated;
    REQUIRE_CL(clEnqueueFillBuffer(tenant.test.ooo_queue, tenant.buffer, &pattern, 4, 0, 64, 1, &gate, &gated));
    REQUIRE_CL(clFlush(tenant.test.ooo_queue));
    fflush(stdout);
    for (int round = 0; round < 3; round++) {
        pid = fork();
        if (pid == 0) {
            alarm(40);
            use_inherited(&tenant, gate);
            int code = dv_test_result("forks (child)");
            /* Through the exit handlers, and past them. */
            round == 0 ? exit(code) : _exit(code);
        }
        tenant_work(&tenant);
        CHECK(child_fine(pid));
        tenant_work(&tenant);
    }
    CHECK(dv_test_event_status(gate) == CL_SUBMITTED);
    CHECK(dv_test_event_status(gated) > CL_COMPLETE);
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &gated));
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clReleaseEvent(gated));

    dv_test_section("child that starts another program");
    pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    CHECK(child_fine(pid));
    CHECK(system("exit 0") == 0);
    tenant_work(&tenant);

    dv_test_section("child that dies of a signal");
    pid = fork();
    if (pid == 0) {
        kill(getpid(), SIGKILL);
        _exit(9);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    tenant_work(&tenant);
    CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
    tenant_close(&tenant);
    return dv_test_result("forks");
}
