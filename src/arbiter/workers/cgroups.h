/* Bounds for workers that the kernel keeps: how much host memory, and how many processes and threads, all
 * workers of a tenant's user have together (worker-memory, worker-processes). Each of them has a cgroup
 * below the one that the configuration names, or below divvyd's own; or a worker goes where its program is.
 * Both versions of cgroups are known, also side by side. */
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
    char why_not[512]; /* bounds are demanded and cannot be kept; empty: they can */
    char unbounded[512]; /* what would be bounded if it could be; empty: it is */
};

/* Where the kernel says what there is; the usual files, but for tests. */
struct dvd_cgroups_sources {
    const char *mounts; /* as /proc/self/mounts */
    const char *own;    /* as /proc/self/cgroup */
};
extern const struct dvd_cgroups_sources dvd_cgroups_kernel;

/* What is wanted. */
struct dvd_cgroups_wish {
    uint64_t memory, processes; /* 0: not bounded */
    bool memory_if_possible, processes_if_possible; /* workers run all the same where it is not */
    const char *cgroup;         /* its name; NULL: divvyd's own */
    pid_t member;               /* of a place that stays only as long as this process is in it; otherwise 0 */
};

/* Whether bounds would be kept by version 2. */
bool dvd_cgroups_unified(const struct dvd_cgroups_sources *sources);

/* Gets ready for what is wanted, first or anew (first of all zeros); whether that can be kept is told by
 * why_not. Workers that are bounded already get the bounds of now. Processes that are in divvyd's own cgroup
 * may have to move below it. Returns whether workers that run would have to join again, as there are
 * cgroups where there were none. */
bool dvd_cgroups_open(struct dvd_cgroups *cgroups, const struct dvd_cgroups_sources *sources,
                     const struct dvd_cgroups_wish *wish);
/* Of one that is all zeros, too. */
void dvd_cgroups_close(struct dvd_cgroups *cgroups);

/* Whether anything is bounded. */
bool dvd_cgroups_wanted(const struct dvd_cgroups *cgroups);
/* Puts a worker where the workers of its kind (a file name) are. Returns 0 or a negative errno. */
int dvd_cgroups_join(const struct dvd_cgroups *cgroups, const char *kind, pid_t worker);
/* Puts a worker into the cgroups of its program, in every hierarchy: `program` is as /proc/PID/cgroup of it.
 * Returns 0, or a negative errno with words. */
int dvd_cgroups_follow(const struct dvd_cgroups_sources *sources, const char *program, pid_t worker, char *text,
                      size_t bytes);
/* Removes what nobody is in any more. */
void dvd_cgroups_tidy(const struct dvd_cgroups *cgroups, const char *kind);
/* How many processes of this kind the kernel has ended for want of memory. */
uint64_t dvd_cgroups_starved(const struct dvd_cgroups *cgroups, const char *kind);

#endif
