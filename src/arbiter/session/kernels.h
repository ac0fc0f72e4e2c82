/* The kernels of a session, and whether they can go to the device in parts, as its worker says in the shared memory.
 * For display only. */
#ifndef DVD_SESSION_KERNELS_H
#define DVD_SESSION_KERNELS_H

#include <stdint.h>

#include "src/wire/session/shm.h"

struct dvd_session;

/* A kernel, checked. */
struct dvd_kernel {
    enum dv_cut_verdict verdict;
    enum dv_whole_reason reason; /* of the last launch that was not cut */
    uint64_t launches, cut_launches, parts;
    char name[DV_MAX_TRACED_NAME];
};

/* More are not shown. */
#define DVD_KERNELS_SHOWN 128

/* Reads the first kernels of a session. Returns how many. */
unsigned dvd_session_read_kernels(const struct dvd_session *session, struct dvd_kernel found[DVD_KERNELS_SHOWN]);
const char *dvd_cut_verdict_word(enum dv_cut_verdict verdict);
/* Why a kernel stays whole, in words; empty: there is no reason. */
const char *dvd_whole_reason_text(enum dv_whole_reason reason);

#endif
