/* To be preloaded into a tenant: the client library does not get the memory, or the thread, that it asks
 * for. Requests of other code in the process are not touched.
 *
 *     STARVE_AT=N       the N-th request of the client's fails
 *     STARVE_PLACE=P    ... counting only those from this place in the library
 *     STARVE_ON=1       ... and so do all that follow it
 *     STARVE_LIST=FILE  at the end of the process: for each request the place that it came from
 *
 * A place is the offset, in hexadecimal, of a request's return address. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT "libdivvy-opencl.so"
#define LISTED_MOST (1u << 20)

static unsigned long fails_at, fails_from_place;
static bool fails_on;
static const char *list_name;
static _Atomic bool is_ready; /* earlier requests are not the client's */

static _Atomic uintptr_t client_start, client_end; /* the end is set last */
static atomic_ulong counted, listed;
static uint32_t places[LISTED_MOST];

static unsigned long number_from(const char *variable, int base)
{
    const char *text = getenv(variable);
    return text ? strtoul(text, NULL, base) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    fails_at = number_from("STARVE_AT", 10);
    fails_from_place = number_from("STARVE_PLACE", 16);
    fails_on = number_from("STARVE_ON", 10);
    list_name = getenv("STARVE_LIST");
    atomic_store(&is_ready, true);
}

__attribute__((destructor)) static void end(void)
{
    FILE *list = list_name ? fopen(list_name, "w") : NULL;

    for (unsigned long i = 0; list && i < atomic_load(&listed) && i < LISTED_MOST; i++)
        fprintf(list, "%x\n", places[i]);
    if (list)
        fclose(list);
}

/* Where the client lies, once an address in it is seen. */
static void find_client(uintptr_t address)
{
    Dl_info library;

    if (!dladdr((void *)address, &library) || !library.dli_fname || !strstr(library.dli_fname, CLIENT))
        return;
    const ElfW(Ehdr) *file = library.dli_fbase;
    const ElfW(Phdr) *part = (const void *)((const char *)file + file->e_phoff);
    uintptr_t start = (uintptr_t)library.dli_fbase, most = 0;
    for (int i = 0; i < file->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && part[i].p_vaddr + part[i].p_memsz > most)
            most = part[i].p_vaddr + part[i].p_memsz;
    atomic_store(&client_start, start);
    atomic_store(&client_end, start + most);
}

static bool fails(void *caller)
{
    uintptr_t address = (uintptr_t)caller;

    if (!atomic_load(&is_ready))
        return false;
    if (!atomic_load(&client_end))
        find_client(address);
    if (address >= atomic_load(&client_end) || address < atomic_load(&client_start))
        return false;
    uint32_t place = (uint32_t)(address - atomic_load(&client_start));
    unsigned long at = atomic_fetch_add(&listed, 1);
    if (at < LISTED_MOST)
        places[at] = place;
    unsigned long seen = atomic_load(&counted);
    if (!fails_from_place || place == fails_from_place)
        seen = atomic_fetch_add(&counted, 1) + 1;
    else if (!fails_on)
        return false;
    if (!fails_at || seen < fails_at || (seen > fails_at && !fails_on))
        return false;
    errno = ENOMEM;
    return true;
}

/* ---- what is interposed ---- */

/* Not __libc_malloc: a sanitizer has its own. */
#define EXPORT __attribute__((visibility("default")))
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

EXPORT void *malloc(size_t bytes)
{
    static __typeof__(&malloc) next;

    if (!next)
        next = NEXT(malloc);
    return fails(__builtin_return_address(0)) ? NULL : next(bytes);
}

EXPORT void *calloc(size_t count, size_t bytes)
{
    static __typeof__(&calloc) next;

    if (!next)
        next = NEXT(calloc);
    return fails(__builtin_return_address(0)) ? NULL : next(count, bytes);
}

EXPORT void *realloc(void *memory, size_t bytes)
{
    static __typeof__(&realloc) next;

    if (!next)
        next = NEXT(realloc);
    return fails(__builtin_return_address(0)) ? NULL : next(memory, bytes);
}

EXPORT char *strdup(const char *text)
{
    static __typeof__(&strdup) next;

    if (!next)
        next = NEXT(strdup);
    return fails(__builtin_return_address(0)) ? NULL : next(text);
}

EXPORT char *strndup(const char *text, size_t most)
{
    static __typeof__(&strndup) next;

    if (!next)
        next = NEXT(strndup);
    return fails(__builtin_return_address(0)) ? NULL : next(text, most);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument)
{
    static __typeof__(&pthread_create) next;

    if (!next)
        next = NEXT(pthread_create);
    return fails(__builtin_return_address(0)) ? EAGAIN : next(thread, attributes, function, argument);
}
