/* The system calls of a sandboxed worker (see sandbox.h): those that a vendor's driver on a CPU or GPU uses
 * to compute, compile and keep its compiled kernels; nothing that reaches other processes, the network,
 * mounts, keys, the clock or the kernel's own configuration. Calls are named, not numbered: the list
 * holds on every architecture, and names that one of them lacks are passed over. */
#include <errno.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "src/worker/core/sandbox.h"

/* Each with the code that needs it: PoCL with LLVM, hwloc and the linker it runs; Mesa's, NVIDIA's, AMD's
 * and Intel's drivers; the C library, jemalloc and sanitizers. */
static const char *const allowed[] = {
    /* files that the view holds: libraries and devices to read, compiled kernels to keep */
    "read", "write", "readv", "writev", "pread64", "pwrite64",               /* all */
    "preadv", "pwritev", "preadv2", "pwritev2",                              /* LLVM's and the C library's I/O */
    "open", "openat", "openat2", "creat", "close", "close_range",            /* all; posix_spawn */
    "stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs",    /* the dynamic linker, LLVM */
    "access", "faccessat", "faccessat2", "lseek",                            /* the same */
    "getdents", "getdents64", "readlink", "readlinkat", "getcwd",            /* hwloc in /sys, drivers in /dev */
    "mkdir", "mkdirat", "rename", "renameat", "renameat2",                   /* caches: made aside, then renamed */
    "unlink", "unlinkat", "rmdir", "link", "linkat", "symlink", "symlinkat", /* and removed */
    "chmod", "fchmod", "fchmodat", "umask",                                  /* the linker's output is a program */
    "utime", "utimes", "utimensat", "futimesat",                             /* last uses of cache files */
    "truncate", "ftruncate", "fallocate", "fadvise64",                       /* LLVM maps its output files */
    "fsync", "fdatasync", "copy_file_range", "sendfile", "readahead",        /* LLVM's copies; caches */
    "fcntl",                                                                 /* locks on caches, flags */
    "dup", "dup2", "dup3", "pipe", "pipe2", "chdir", "fchdir",               /* to run a linker; drivers' threads */
    "memfd_create",                                                          /* memory that drivers share */
    /* waiting: drivers for devices and their threads, the worker for its client and divvyd */
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "eventfd", "eventfd2", "signalfd4", /* NVIDIA's and AMD's events */
    "timerfd_create", "timerfd_settime", "timerfd_gettime", "nanosleep", "clock_nanosleep", "pause", "alarm",
    "setitimer", "getitimer", "timer_create", "timer_settime", "timer_gettime", "timer_delete",
    "timer_getoverrun",                                      /* timeouts; the probe's alarm */
    "restart_syscall", "futex", "futex_waitv", "membarrier", /* threads */
    /* memory */
    "mmap", "munmap", "mprotect", "mremap", "madvise", "msync", "mincore", "brk", /* all */
    "mlock", "mlock2", "munlock", "mlockall", "munlockall",                       /* pinned memory, within its limit */
    "pkey_alloc", "pkey_free", "pkey_mprotect",              /* compilers that run what they make */
    "mbind", "get_mempolicy", "set_mempolicy", "move_pages", /* hwloc and AMD: near which processor */
    /* its own processes and threads: a compiler's linker is one */
    "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", /* the linker */
    "kill", "tkill", "tgkill", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "sigaltstack", /* abort, crashes, threads */
    "set_tid_address", "set_robust_list", "rseq", "arch_prctl",               /* the C library starts threads */
    "getpid", "gettid", "getppid", "getpgid", "getpgrp", "getsid", "setpgid", /* posix_spawn */
    "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "capget", "getrlimit", "setrlimit",
    "prlimit64", "getrusage", "times", /* how much stack; time of kernels */
    "getpriority", "sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_getscheduler",
    "sched_getattr", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
    "getcpu", /* threads of CPU devices */
    /* the machine and the time, to read */
    "uname", "sysinfo", "getrandom", "clock_gettime", "clock_getres", "gettimeofday", "time",
    /* the channel to divvyd, which is open already, and pairs of a driver's own */
    "recvmsg", "sendto", "recvfrom", "recvmmsg", "shutdown", "getsockopt", "setsockopt", "getsockname", "getpeername",
    /* not among them: flock, by which tenants could signal each other on files that all see; setsid,
     * because the kernel divides processor time among sessions; sendmsg, which sends descriptors, because
     * the receiver waits when it closes one; setpriority and the like, because a thread that hardly runs
     * does not release its locks in the kernel */
};

/* Requests of ioctl: those of the C library for files. The configuration names those of drivers. */
static const uint32_t usual_ioctls[] = {TCGETS,  TIOCGWINSZ, FIONREAD, /* is it a terminal, how much is there */
                                        FIONBIO, FIOCLEX,    FIONCLEX};

/* Options of prctl: names, and queries. Not PR_SET_DUMPABLE: a worker's memory is not for others. */
static const uint32_t usual_prctls[] = {
    PR_SET_NAME,         PR_GET_NAME,         PR_SET_VMA,      /* of threads and memory */
    PR_SET_PDEATHSIG,    PR_GET_PDEATHSIG,    PR_GET_DUMPABLE, /* drivers' helpers */
    PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP,     PR_CAPBSET_READ,
    PR_SET_TIMERSLACK,   PR_GET_TIMERSLACK,   PR_SET_THP_DISABLE, PR_GET_THP_DISABLE};

static int allow(scmp_filter_ctx filter, const char *name)
{
    int number = seccomp_syscall_resolve_name(name);

    if (number == __NR_SCMP_ERROR)
        return -ENOENT;
    return number < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
}

/* The kernel looks at no more than 32 bits of it. */
static int allow_value(scmp_filter_ctx filter, int call, unsigned argument, uint32_t mask, uint32_t bits)
{
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1, SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, mask, bits));
}

static int allow_ioctls(scmp_filter_ctx filter, const struct dv_sandbox_settings *sandbox)
{
    int status = 0;

    for (size_t i = 0; status == 0 && i < sizeof usual_ioctls / sizeof usual_ioctls[0]; i++)
        status = allow_value(filter, SCMP_SYS(ioctl), 1, UINT32_MAX, usual_ioctls[i]);
    for (uint32_t i = 0; status == 0 && i < sandbox->ioctl_count; i++)
        status = sandbox->ioctls[i].mask
                     ? allow_value(filter, SCMP_SYS(ioctl), 1, sandbox->ioctls[i].mask, sandbox->ioctls[i].bits)
                     : allow(filter, "ioctl");
    return status;
}

/* Calls of which only some uses are allowed. */
static int allow_in_part(scmp_filter_ctx filter, const struct dv_sandbox_settings *sandbox)
{
    const uint64_t namespaces =
        CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    int status =
        seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces, 0));

    /* its flags are in memory, where no filter sees them: the C library then uses clone */
    if (status == 0)
        status = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (status == 0)
        status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    for (size_t i = 0; status == 0 && i < sizeof usual_prctls / sizeof usual_prctls[0]; i++)
        status = allow_value(filter, SCMP_SYS(prctl), 0, UINT32_MAX, usual_prctls[i]);
    return status == 0 ? allow_ioctls(filter, sandbox) : status;
}

int dvk_sandbox_restrict_calls(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    const char *more = sandbox->calls;
    int status = filter ? 0 : -ENOMEM;

    for (size_t i = 0; status == 0 && i < sizeof allowed / sizeof allowed[0]; i++)
        if ((status = allow(filter, allowed[i])) == -ENOENT)
            status = 0;
    for (; status == 0 && *more; more += strlen(more) + 1) {
        status = allow(filter, more);
        if (status < 0) {
            snprintf(text, bytes, "there is no system call '%s' (from `calls` of a device's sandbox)", more);
            seccomp_release(filter);
            return status;
        }
    }
    if (status == 0)
        status = allow_in_part(filter, sandbox);
    if (status == 0) /* what this guards against stays within one process, which is one tenant's */
        status = seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    if (status == 0) /* the kernel's own error code: see dvk_sandbox_is_refused */
        status = seccomp_attr_set(filter, SCMP_FLTATR_API_SYSRAWRC, 1);
    if (status == 0)
        status = seccomp_load(filter);
    if (status < 0)
        snprintf(text, bytes, "cannot restrict the worker's system calls: %s", strerror(-status));
    seccomp_release(filter);
    return status;
}
