/* Bounds for workers that the kernel enforces: the host memory, processes and threads of all workers of a
 * tenant's user together (worker-memory, worker-processes). These workers have a cgroup below the one that
 * the configuration names, or below divvyd's own; or a worker joins the cgroup of its program.
 * Both versions of cgroups are supported, also side by side. */
#ifndef DVD_WORKERS_CGROUPS_H
#define DVD_WORKERS_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum dvd_bound { DV_BOUND_MEMORY, DV_BOUND_PROCESSES, DV_BOUND_COUNT };

struct dvd_cgroups_bound {
    uint64_t most; /* 0: not bounded */
    bool kept;     /* there is a directory in which each kind has its cgroup */
    bool v2;
    int directory;
};

struct dvd_cgroups {
    struct dvd_cgroups_bound bounds[DV_BOUND_COUNT];
    char why_not[512];   /* why demanded bounds cannot be enforced; empty: they can */
    char unbounded[512]; /* why optional bounds are not enforced; empty: they are */
};

/* The kernel's files about cgroups; tests use others. */
struct dvd_cgroups_sources {
    const char *mounts; /* as /proc/self/mounts */
    const char *own;    /* as /proc/self/cgroup */
};
extern const struct dvd_cgroups_sources dvd_cgroups_kernel;

/* The wanted bounds. */
struct dvd_cgroups_wish {
    uint64_t memory, processes;                     /* 0: not bounded */
    bool memory_if_possible, processes_if_possible; /* otherwise workers run without it */
    const char *cgroup;                             /* its name; NULL: divvyd's own */
    pid_t member;                                   /* the cgroup exists only while this process is in it; 0: always */
};

/* Whether version 2 would enforce the bounds. */
bool dvd_cgroups_unified(const struct dvd_cgroups_sources *sources);

/* Prepares the wanted bounds, for the first time (from all zeros) or again; why_not says whether they can be
 * enforced. Bounded workers get the new bounds. Processes in divvyd's own cgroup may have to move below it.
 * Returns whether running workers have to join again, because there are cgroups where there were none. */
bool dvd_cgroups_open(struct dvd_cgroups *cgroups, const struct dvd_cgroups_sources *sources,
                      const struct dvd_cgroups_wish *wish);
/* Accepts one that is all zeros, too. */
void dvd_cgroups_close(struct dvd_cgroups *cgroups);

/* Whether anything is bounded. */
bool dvd_cgroups_wanted(const struct dvd_cgroups *cgroups);
/* Puts a worker into the cgroup of its kind (a file name). Returns 0 or a negative errno. */
int dvd_cgroups_join(const struct dvd_cgroups *cgroups, const char *kind, pid_t worker);
/* Puts a worker into the cgroups of its program, in every hierarchy: `program` is its /proc/PID/cgroup.
 * Returns 0, or a negative errno with the reason. */
int dvd_cgroups_follow(const struct dvd_cgroups_sources *sources, const char *program, pid_t worker, char *text,
                       size_t bytes);
/* Removes cgroups of this kind that are empty. */
void dvd_cgroups_tidy(const struct dvd_cgroups *cgroups, const char *kind);
/* How many processes of this kind the kernel has killed for lack of memory. */
uint64_t dvd_cgroups_starved(const struct dvd_cgroups *cgroups, const char *kind);

#endif
