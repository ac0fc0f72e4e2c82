/* What the worker's upcalls do to the objects of the application. */
#ifndef DV_CLIENT_OPENCL_UPCALLS_H
#define DV_CLIENT_OPENCL_UPCALLS_H

#include "src/client/opencl/session.h"

extern const struct dvc_upcall_handlers dvc_upcalls;

#endif
