/* Handles the worker's upcalls, which change the application's objects. */
#ifndef DV_CLIENT_OPENCL_UPCALLS_H
#define DV_CLIENT_OPENCL_UPCALLS_H

#include "src/client/opencl/session.h"

extern const struct dvc_upcall_handlers dvc_upcalls;

#endif
