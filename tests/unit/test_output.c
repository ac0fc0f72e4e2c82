/* Output of kernels on its way to the client, with a client that is slow to take it. */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/worker/core/runtime.h"
#include "tests/unit/unit.h"

#define ROUNDS 20
#define BEYOND ((size_t)256 << 10) /* printed when the ring is full */
#define LIMIT_MS 10000

static struct dvk_runtime runtime;

void dvk_runtime_wake_client(struct dvk_runtime *r)
{
    (void)r;
}

static void print(size_t bytes)
{
    static const char text[4096] = "x";

    for (size_t done = 0; done < bytes; done += sizeof text)
        if (write(STDOUT_FILENO, text, sizeof text) != (ssize_t)sizeof text)
            _exit(2);
}

/* The thread that reads runs only when this one sleeps, as on a busy machine. */
static void slow_reader_down(void)
{
    struct sched_param none = {0};
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        _exit(3);
    for (const struct dirent *task; (task = readdir(tasks));) {
        pid_t tid = (pid_t)atoi(task->d_name);
        if (tid > 0)
            sched_setaffinity(tid, sizeof one, &one);
        if (tid > 0 && tid != getpid() && sched_setscheduler(tid, SCHED_IDLE, &none) < 0)
            _exit(3);
    }
    closedir(tasks);
    usleep(50000); /* now it waits for output */
}

/* As the client does before it shows a completion. Returns false when the rest does not come. */
static bool take_all(uint64_t made)
{
    struct dv_shm_header *header = runtime.header;

    for (int i = 0; i < LIMIT_MS; i++) {
        atomic_store(&header->output_head, atomic_load(&header->output_tail));
        if (atomic_load(&header->output_head) == made)
            return true;
        usleep(1000);
    }
    return false;
}

static void print_much(void)
{
    if (dvk_output_start(&runtime) < 0)
        _exit(4);
    slow_reader_down();
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        print(DV_SHM_OUTPUT_BYTES);
        dvk_output_drain(&runtime);
        print(BEYOND);
        dvk_output_drain(&runtime);
        uint64_t made = atomic_load(&runtime.header->output_made);
        if (made != i * (DV_SHM_OUTPUT_BYTES + BEYOND))
            _exit(5);
        if (!take_all(made))
            _exit(6);
    }
    _exit(0);
}

/* In a child, whose standard output becomes the pipe. */
static void all_output_arrives_although_the_ring_was_full(void **state)
{
    int status;

    (void)state;
    runtime.shm =
        mmap(NULL, DV_SHM_ARENA_OFFSET, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(runtime.shm, MAP_FAILED);
    runtime.header = (struct dv_shm_header *)runtime.shm;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        print_much();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    munmap(runtime.shm, DV_SHM_ARENA_OFFSET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_output_arrives_although_the_ring_was_full)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
