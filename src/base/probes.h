/* Probes for tracers such as bpftrace and SystemTap (sys/sdt.h). Without a tracer a probe is one no-op; in a build
 * without that header there are none. docs/operators.md lists them. */
#ifndef DV_BASE_PROBES_H
#define DV_BASE_PROBES_H

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define DV_PROBE3(name, a, b, c) DTRACE_PROBE3(divvy, name, a, b, c)
#else
#define DV_PROBE3(name, a, b, c)                                                                                       \
    do {                                                                                                               \
        (void)(a), (void)(b), (void)(c);                                                                               \
    } while (0)
#endif

#endif
