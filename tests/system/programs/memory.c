/* memory: says "ready", the device's memory and its largest allocation, then does with device memory
 * what it is told on its standard input, a command a line, and answers each with a line: "ok", or
 * "error NUMBER", or "wrong ...".
 *
 *   alloc N BYTES      creates buffer N (it is not used yet)
 *   free N
 *   fill N SEED        a kernel writes a pattern that depends on the seed
 *   bump N             a kernel adds one to every word
 *   bumps N M TIMES    bumps the buffers from N to M in turn, TIMES times, without waiting in between
 *   sum N M            a kernel adds buffer M, which it only reads, to buffer N
 *   check N SEED PLUS  reads buffer N: is it the pattern, plus PLUS?
 *   part N             bumps the second half of it through a sub-buffer
 *   view N WIDTH       creates an image of WIDTH pixels over it, looks at one, lets go of it
 *   image N W H SEED   creates image N and writes a pattern into it
 *   imagecheck N SEED
 *   fresh N BYTES      creates buffer N and reads it: is it all zeros?
 *   zeros N            is it still?
 *   freshimage N W H   the same for an image
 *   steps COUNT SEED MOST  random steps with buffers of at most MOST bytes in all, checked
 *
 * With the argument "written" the host writes the pattern of `fill`, which the scripted vendor cannot
 * compute; its kernel `inc` is the one that bumps.
 */
#include "check.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1024 };

static const char *const source = "kernel void fill(global uint *out, uint seed) {\n"
                                  "    out[get_global_id(0)] = (uint)get_global_id(0) * 2654435761u + seed;\n"
                                  "}\n"
                                  "kernel void inc(global uint *out) { out[get_global_id(0)] += 1; }\n"
                                  "kernel void sum(global uint *out, global const uint *in) {\n"
                                  "    out[get_global_id(0)] += in[get_global_id(0)];\n"
                                  "}\n";

static cl_context context;
static cl_command_queue queue;
static cl_kernel fill, bump, sum;
static struct slot {
    cl_mem mem;
    size_t bytes, width, height;
    cl_uint seed, plus; /* of random steps */
} slots[SLOTS];

static uint32_t word(size_t i, cl_uint seed)
{
    return (uint32_t)i * 2654435761u + seed;
}

static cl_int run(cl_kernel kernel, size_t words)
{
    cl_event event;
    cl_int status = 0;
    cl_int error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &words, NULL, 0, NULL, &event);

    if (error == CL_SUCCESS) {
        error = clWaitForEvents(1, &event);
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        clReleaseEvent(event);
    }
    return status < 0 ? status : error;
}

static cl_int run_on(cl_kernel kernel, cl_mem mem, size_t bytes)
{
    cl_int error = clSetKernelArg(kernel, 0, sizeof mem, &mem);
    return error == CL_SUCCESS ? run(kernel, bytes / 4) : error;
}

static bool written; /* the host writes what `fill` would */

static cl_int write_pattern(struct slot *s, cl_uint seed)
{
    uint32_t *words = malloc(s->bytes);

    for (size_t i = 0; i < s->bytes / 4; i++)
        words[i] = word(i, seed);
    cl_int error = clEnqueueWriteBuffer(queue, s->mem, CL_TRUE, 0, s->bytes, words, 0, NULL, NULL);
    free(words);
    return error;
}

static cl_int fill_with(struct slot *s, cl_uint seed)
{
    if (written)
        return write_pattern(s, seed);
    clSetKernelArg(fill, 1, sizeof seed, &seed);
    return run_on(fill, s->mem, s->bytes);
}

static cl_int bump_all(struct slot *first, const struct slot *last, unsigned long long times)
{
    enum { EVENTS = 4096 };
    static cl_event events[EVENTS];
    cl_int error = CL_SUCCESS, status;
    size_t count = 0;

    for (; times > 0; times--)
        for (struct slot *s = first; s <= last && count < EVENTS && error == CL_SUCCESS; s++) {
            size_t words = s->bytes / 4;
            clSetKernelArg(bump, 0, sizeof s->mem, &s->mem);
            error = clEnqueueNDRangeKernel(queue, bump, 1, NULL, &words, NULL, 0, NULL, &events[count]);
            count += error == CL_SUCCESS;
        }
    clFinish(queue);
    for (size_t i = 0; i < count; i++) {
        clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        clReleaseEvent(events[i]);
        if (status < 0 && error == CL_SUCCESS)
            error = status;
    }
    return error;
}

/* Returns the first word that is wrong, or -1; an OpenCL error in *error. */
static long long check_words(struct slot *s, cl_uint seed, cl_uint plus, cl_int *error)
{
    uint32_t *words = malloc(s->bytes);

    *error = clEnqueueReadBuffer(queue, s->mem, CL_TRUE, 0, s->bytes, words, 0, NULL, NULL);
    long long wrong = -1;
    for (size_t i = 0; *error == CL_SUCCESS && wrong < 0 && i < s->bytes / 4; i++)
        if (words[i] != word(i, seed) + plus)
            wrong = (long long)i;
    free(words);
    return wrong;
}

static void answer(cl_int error)
{
    if (error == CL_SUCCESS)
        printf("ok\n");
    else
        printf("error %d\n", error);
}

static void answer_check(long long wrong, cl_int error)
{
    if (error == CL_SUCCESS && wrong >= 0)
        printf("wrong at %lld\n", wrong);
    else
        answer(error);
}

static cl_int bump_part(struct slot *s)
{
    size_t half = s->bytes / 2 / 4096 * 4096;
    cl_buffer_region region = {.origin = half, .size = s->bytes - half};
    cl_int error;
    cl_mem part = clCreateSubBuffer(s->mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);

    if (error == CL_SUCCESS) {
        error = run_on(bump, part, region.size);
        clReleaseMemObject(part);
    }
    return error;
}

static cl_int look_through_view(struct slot *s, size_t width)
{
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = width, .buffer = s->mem};
    size_t origin[3] = {0, 0, 0}, region[3] = {1, 1, 1};
    uint32_t pixel;
    cl_int error;
    cl_mem view = clCreateImage(context, 0, &format, &desc, NULL, &error);

    if (error == CL_SUCCESS) {
        error = clEnqueueReadImage(queue, view, CL_TRUE, origin, region, 0, 0, &pixel, 0, NULL, NULL);
        clReleaseMemObject(view);
    }
    return error;
}

static cl_mem new_image(size_t width, size_t height, cl_int *error)
{
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height};

    return clCreateImage(context, 0, &format, &desc, NULL, error);
}

static cl_int make_image(struct slot *s, size_t width, size_t height, cl_uint seed)
{
    size_t origin[3] = {0, 0, 0}, region[3] = {width, height, 1};
    uint32_t *pixels = malloc(width * height * 4);
    cl_int error;

    for (size_t i = 0; i < width * height; i++)
        pixels[i] = word(i, seed);
    s->width = width;
    s->height = height;
    s->mem = new_image(width, height, &error);
    if (error == CL_SUCCESS)
        error = clEnqueueWriteImage(queue, s->mem, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL, NULL);
    free(pixels);
    return error;
}

static long long check_image(struct slot *s, cl_uint seed, cl_int *error)
{
    size_t origin[3] = {0, 0, 0}, region[3] = {s->width, s->height, 1};
    uint32_t *pixels = malloc(s->width * s->height * 4);
    long long wrong = -1;

    *error = clEnqueueReadImage(queue, s->mem, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL, NULL);
    for (size_t i = 0; *error == CL_SUCCESS && wrong < 0 && i < s->width * s->height; i++)
        if (pixels[i] != word(i, seed))
            wrong = (long long)i;
    free(pixels);
    return wrong;
}

static long long first_nonzero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return (long long)i;
    return -1;
}

static long long check_zeros(struct slot *s, cl_int *error)
{
    uint8_t *read = malloc(s->bytes);

    memset(read, 0x33, s->bytes);
    *error = clEnqueueReadBuffer(queue, s->mem, CL_TRUE, 0, s->bytes, read, 0, NULL, NULL);
    long long wrong = first_nonzero(read, s->bytes);
    free(read);
    return wrong;
}

static long long look_at_fresh(struct slot *s, size_t bytes, cl_int *error)
{
    s->bytes = bytes;
    s->mem = clCreateBuffer(context, 0, bytes, NULL, error);
    return *error == CL_SUCCESS ? check_zeros(s, error) : -1;
}

static long long look_at_fresh_image(struct slot *s, size_t width, size_t height, cl_int *error)
{
    size_t origin[3] = {0, 0, 0}, region[3] = {width, height, 1};
    uint8_t *read = malloc(width * height * 4);

    memset(read, 0x33, width * height * 4);
    s->mem = new_image(width, height, error);
    if (*error == CL_SUCCESS)
        *error = clEnqueueReadImage(queue, s->mem, CL_TRUE, origin, region, 0, 0, read, 0, NULL, NULL);
    long long wrong = first_nonzero(read, width * height * 4);
    free(read);
    return wrong;
}

static uint64_t random_state;

static uint64_t random_below(uint64_t most)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % most;
}

/* Map, look at a word, change nothing. */
static cl_int look(struct slot *s, long long *wrong)
{
    cl_int error;
    size_t at = random_below(s->bytes / 4);
    uint32_t *words = clEnqueueMapBuffer(queue, s->mem, CL_TRUE, CL_MAP_READ, 0, s->bytes, 0, NULL, NULL, &error);
    if (error != CL_SUCCESS)
        return error;
    if (words[at] != word(at, s->seed) + s->plus)
        *wrong = (long long)at;
    error = clEnqueueUnmapMemObject(queue, s->mem, words, 0, NULL, NULL);
    return error == CL_SUCCESS ? clFinish(queue) : error;
}

static void random_steps(unsigned long count, uint64_t seed, size_t most)
{
    size_t total = 0;

    random_state = seed * 2654435761u + 88172645463325252u;
    for (unsigned long step = 0; step < count; step++) {
        struct slot *s = &slots[random_below(64)];
        cl_int error = CL_SUCCESS;
        long long wrong = -1;
        if (!s->mem) {
            size_t bytes = (size_t)4096 << random_below(10);
            if (total + bytes > most)
                continue;
            s->mem = clCreateBuffer(context, 0, bytes, NULL, &error);
            if (error == CL_MEM_OBJECT_ALLOCATION_FAILURE) { /* others of the tenant have it */
                s->mem = NULL;
                continue;
            }
            s->bytes = bytes;
            total += bytes;
            s->seed = (cl_uint)step;
            s->plus = 0;
            if (error == CL_SUCCESS)
                error = fill_with(s, s->seed);
        } else {
            switch (random_below(4)) {
            case 0:
                error = run_on(bump, s->mem, s->bytes);
                s->plus++;
                break;
            case 1:
                error = look(s, &wrong);
                break;
            case 2:
                wrong = check_words(s, s->seed, s->plus, &error);
                break;
            default:
                error = clReleaseMemObject(s->mem);
                s->mem = NULL;
                total -= s->bytes;
            }
        }
        if (error != CL_SUCCESS || wrong >= 0) {
            printf("wrong at step %lu: error %d, word %lld\n", step, error, wrong);
            return;
        }
    }
    for (int i = 0; i < 64; i++)
        if (slots[i].mem) {
            clReleaseMemObject(slots[i].mem);
            slots[i].mem = NULL;
        }
    printf("ok\n");
}

static void obey(char *line)
{
    char verb[16] = "";
    unsigned long long a[4] = {0};
    int count = sscanf(line, "%15s %llu %llu %llu %llu", verb, &a[0], &a[1], &a[2], &a[3]);
    struct slot *s = &slots[a[0] % SLOTS];
    cl_int error = CL_SUCCESS;

    if (count < 1)
        return;
    if (strcmp(verb, "alloc") == 0) {
        s->bytes = a[1];
        s->mem = clCreateBuffer(context, 0, s->bytes, NULL, &error);
        answer(error);
    } else if (strcmp(verb, "free") == 0) {
        answer(clReleaseMemObject(s->mem));
        s->mem = NULL;
    } else if (strcmp(verb, "fill") == 0) {
        answer(fill_with(s, (cl_uint)a[1]));
    } else if (strcmp(verb, "bump") == 0) {
        answer(run_on(bump, s->mem, s->bytes));
    } else if (strcmp(verb, "bumps") == 0) {
        answer(bump_all(s, &slots[a[1] % SLOTS], a[2]));
    } else if (strcmp(verb, "sum") == 0) {
        clSetKernelArg(sum, 1, sizeof(cl_mem), &slots[a[1] % SLOTS].mem);
        answer(run_on(sum, s->mem, s->bytes));
    } else if (strcmp(verb, "check") == 0) {
        long long wrong = check_words(s, (cl_uint)a[1], (cl_uint)a[2], &error);
        answer_check(wrong, error);
    } else if (strcmp(verb, "view") == 0) {
        answer(look_through_view(s, a[1]));
    } else if (strcmp(verb, "part") == 0) {
        answer(bump_part(s));
    } else if (strcmp(verb, "image") == 0) {
        answer(make_image(s, a[1], a[2], (cl_uint)a[3]));
    } else if (strcmp(verb, "imagecheck") == 0) {
        long long wrong = check_image(s, (cl_uint)a[1], &error);
        answer_check(wrong, error);
    } else if (strcmp(verb, "fresh") == 0) {
        long long wrong = look_at_fresh(s, a[1], &error);
        answer_check(wrong, error);
    } else if (strcmp(verb, "zeros") == 0) {
        long long wrong = check_zeros(s, &error);
        answer_check(wrong, error);
    } else if (strcmp(verb, "freshimage") == 0) {
        long long wrong = look_at_fresh_image(s, a[1], a[2], &error);
        answer_check(wrong, error);
    } else if (strcmp(verb, "steps") == 0) {
        random_steps(a[0], a[1], a[2]);
    } else {
        printf("what is %s?\n", verb);
    }
}

int main(int argc, char **argv)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_ulong memory = 0, most = 0;
    cl_int error;
    char line[128];

    written = argc > 1 && strcmp(argv[1], "written") == 0;
    REQUIRE_CL(clGetPlatformIDs(1, &platform, NULL));
    REQUIRE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    REQUIRE_CL(error);
    queue = clCreateCommandQueue(context, device, 0, &error);
    REQUIRE_CL(error);
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clBuildProgram(program, 1, &device, "", NULL, NULL));
    fill = clCreateKernel(program, "fill", &error);
    REQUIRE_CL(error);
    bump = clCreateKernel(program, "inc", &error);
    REQUIRE_CL(error);
    sum = clCreateKernel(program, "sum", &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL));
    REQUIRE_CL(clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    printf("ready %llu %llu\n", (unsigned long long)memory, (unsigned long long)most);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
