/* malloc and free of small blocks, for all that runs in a worker.
 *
 * What a launch allocates on the thread that enqueues it, the vendor frees on another, and the C
 * library is slow at that: both threads need the lock of its lists for each block, and calloc does
 * not look at the blocks that a thread keeps for itself. Here a thread keeps the small blocks that
 * it frees, hands them on by the batch, and takes batches that other threads handed on. Each block
 * is the C library's own: functions that are not replaced here, such as realloc, take it as any
 * other, and what exceeds MOST_BYTES goes back to the C library. */
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Block sizes as the C library has them: 24 bytes, 40, 56, ... */
#define LEAST_BYTES 24u
#define STEP_BYTES 16u
#define CLASSES 64u
#define LARGEST_BYTES (LEAST_BYTES + (CLASSES - 1) * STEP_BYTES)
#define ALIGNMENT_MOST 128u
/* A batch has about so many bytes, and so many blocks at most. */
#define BATCH_BYTES 4096u
#define BATCH_BLOCKS 64u
/* What is kept for all threads, of one size and of all together. */
#define MOST_BYTES_OF_CLASS (256u << 10)
#define MOST_BYTES (1024u << 10)

/* The C library's own, under the names that it has for this purpose. */
// NOLINTBEGIN(bugprone-reserved-identifier)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *pointer);
// NOLINTEND(bugprone-reserved-identifier)

struct block {
    struct block *next;
    uint64_t mark; /* tells that it is free, so that one freed twice is found out */
    struct block *next_batch;
};
static_assert(sizeof(struct block) <= LEAST_BYTES, "must fit the smallest");

static struct class
{
    _Alignas(64) atomic_flag busy;
    struct block *batches;
    size_t bytes;
} classes[CLASSES];

static _Atomic size_t kept_bytes;
static uint64_t free_mark;

/* Of one size: those at hand, and at most one batch more. */
struct stack {
    struct block *blocks, *full;
    uint32_t count; /* of `blocks` */
};

enum thread_state { NEW, BEGINS, KEEPS, ENDS };

static _Thread_local struct stack stacks[CLASSES];
static _Thread_local enum thread_state this_thread;

static uint32_t bytes_of(uint32_t class)
{
    return LEAST_BYTES + class * STEP_BYTES;
}

static uint32_t batch_of(uint32_t class)
{
    uint32_t blocks = BATCH_BYTES / bytes_of(class);
    return blocks < BATCH_BLOCKS ? blocks : BATCH_BLOCKS;
}

static void free_batch(struct block *block)
{
    while (block) {
        struct block *next = block->next;
        block->mark = 0;
        __libc_free(block);
        block = next;
    }
}

/* ---- what is kept for all threads ----
 * A thread that finds a list busy does without it: so no thread waits for another, and a process
 * that is forked meanwhile cannot hang. */

static bool hand_on(uint32_t index, struct block *batch)
{
    struct class *class = &classes[index];
    size_t bytes = (size_t)batch_of(index) * bytes_of(index);
    bool taken = false;

    if (atomic_load_explicit(&kept_bytes, memory_order_relaxed) + bytes > MOST_BYTES ||
        atomic_flag_test_and_set_explicit(&class->busy, memory_order_acquire))
        return false;
    if (class->bytes + bytes <= MOST_BYTES_OF_CLASS) {
        batch->next_batch = class->batches;
        class->batches = batch;
        class->bytes += bytes;
        taken = true;
    }
    atomic_flag_clear_explicit(&class->busy, memory_order_release);
    if (taken)
        atomic_fetch_add_explicit(&kept_bytes, bytes, memory_order_relaxed);
    return taken;
}

static struct block *take_batch(uint32_t index)
{
    struct class *class = &classes[index];
    size_t bytes = (size_t)batch_of(index) * bytes_of(index);
    struct block *batch;

    if (atomic_flag_test_and_set_explicit(&class->busy, memory_order_acquire))
        return NULL;
    batch = class->batches;
    if (batch) {
        class->batches = batch->next_batch;
        class->bytes -= bytes;
    }
    atomic_flag_clear_explicit(&class->busy, memory_order_release);
    if (batch)
        atomic_fetch_sub_explicit(&kept_bytes, bytes, memory_order_relaxed);
    return batch;
}

/* ---- what a thread keeps ---- */

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void give_back_all(void *unused)
{
    this_thread = ENDS; /* what other destructors free goes back at once */
    for (uint32_t i = 0; i < CLASSES; i++) {
        free_batch(stacks[i].blocks);
        free_batch(stacks[i].full);
        stacks[i] = (struct stack){0};
    }
}

static void prepare(void)
{
    const void *chance = (const void *)getauxval(AT_RANDOM);

    if (chance)
        memcpy(&free_mark, chance, sizeof free_mark);
    free_mark |= 1; /* no pointer, nor zero */
    if (pthread_key_create(&key, give_back_all) != 0)
        free_mark = 0;
}

/* Whether this thread keeps blocks. */
static bool keeps(void)
{
    if (this_thread == KEEPS)
        return true;
    if (this_thread != NEW)
        return false;
    this_thread = BEGINS; /* what is called here may itself allocate */
    pthread_once(&once, prepare);
    if (free_mark && pthread_setspecific(key, &this_thread) == 0)
        this_thread = KEEPS;
    return this_thread == KEEPS;
}

static uint32_t class_for(size_t bytes)
{
    return bytes <= LEAST_BYTES ? 0
                                : (uint32_t)((bytes - LEAST_BYTES + STEP_BYTES - 1) / STEP_BYTES);
}

static void *take(uint32_t index)
{
    struct stack *stack = &stacks[index];

    if (!stack->blocks) {
        stack->blocks = stack->full ? stack->full : take_batch(index);
        stack->full = NULL;
        stack->count = stack->blocks ? batch_of(index) : 0;
    }
    struct block *block = stack->blocks;
    if (block) {
        stack->blocks = block->next;
        stack->count--;
        block->mark = 0;
    }
    return block;
}

static void *allocate(size_t bytes)
{
    if (bytes > LARGEST_BYTES || !keeps())
        return __libc_malloc(bytes);
    uint32_t index = class_for(bytes);
    void *block = take(index);
    /* of a size at which it will be found again */
    return block ? block : __libc_malloc(bytes_of(index));
}

static _Noreturn void complain(void)
{
    static const char text[] = "divvy-worker: a block of memory was freed twice\n";

    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        abort();
    abort();
}

static void give(struct block *block, uint32_t index)
{
    struct stack *stack = &stacks[index];

    if (block->mark == free_mark)
        complain();
    if (stack->count == batch_of(index)) {
        if (stack->full && !hand_on(index, stack->full))
            free_batch(stack->full);
        stack->full = stack->blocks;
        stack->blocks = NULL;
        stack->count = 0;
    }
    block->mark = free_mark;
    block->next = stack->blocks;
    stack->blocks = block;
    stack->count++;
}

/* ---- in place of the C library's ---- */

#define REPLACES __attribute__((visibility("default")))

REPLACES void *malloc(size_t bytes)
{
    return allocate(bytes);
}

REPLACES void *calloc(size_t count, size_t each)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, each, &bytes) || bytes > LARGEST_BYTES)
        return __libc_calloc(count, each);
    void *block = allocate(bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

REPLACES void free(void *pointer)
{
    if (!pointer)
        return;
    size_t bytes = malloc_usable_size(pointer);
    if (bytes < LEAST_BYTES || bytes > LARGEST_BYTES || !keeps())
        __libc_free(pointer);
    else
        give(pointer, (uint32_t)((bytes - LEAST_BYTES) / STEP_BYTES));
}

/* A block freed just before is often aligned, because it was allocated like this one. */
static void *allocate_aligned(size_t alignment, size_t bytes)
{
    if (bytes <= LARGEST_BYTES && alignment <= ALIGNMENT_MOST && keeps()) {
        uint32_t index = class_for(bytes);
        if ((uintptr_t)stacks[index].blocks % alignment == 0) {
            void *block = take(index);
            if ((uintptr_t)block % alignment == 0 && block)
                return block;
            if (block)
                free(block);
        }
        bytes = bytes_of(index);
    }
    return __libc_memalign(alignment, bytes);
}

REPLACES int posix_memalign(void **pointer, size_t alignment, size_t bytes)
{
    int before = errno;

    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *block = allocate_aligned(alignment, bytes);
    errno = before;
    if (!block)
        return ENOMEM;
    *pointer = block;
    return 0;
}
