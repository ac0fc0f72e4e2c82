/* The corrected form of a program: the same source, in which the functions that ask for a work-item's place in the
 * range answer as in a launch of the whole range. Parts of launches are launched with it. It is built when it is first
 * needed, on a thread of its own, because most programs do not need it.
 */
#ifndef DV_WORKER_OPENCL_CORRECTION_H
#define DV_WORKER_OPENCL_CORRECTION_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

struct dvk_runtime;
struct dvk_correction;

enum dvk_correction_state {
    DVK_CORRECTION_BUILDING,
    DVK_CORRECTION_READY,
    DVK_CORRECTION_FAILED, /* the vendor does not build it */
};

/* Of a program that has been built with these options. Returns NULL when memory is short. */
struct dvk_correction *dvk_correction_new(struct dvk_runtime *runtime, cl_program original, const char *options,
                                          cl_uint device_count, const cl_device_id *devices);
/* Both accept NULL. */
struct dvk_correction *dvk_correction_ref(struct dvk_correction *correction);
void dvk_correction_unref(struct dvk_correction *correction);
/* Begins to build it at the first call. The main thread is woken when it is built. */
enum dvk_correction_state dvk_correction_state(struct dvk_correction *correction);
cl_program dvk_correction_program(const struct dvk_correction *correction);

#endif
