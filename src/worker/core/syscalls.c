/* The system calls of a caged worker (see cage.h). What a vendor's driver on a CPU or GPU uses to
 * compute, compile and keep its compiled kernels; nothing that reaches other processes, the network,
 * mounts, keys, the clock or the kernel's own configuration. Calls are named, not numbered: the list
 * holds on every architecture, and names that one of them lacks are passed over. */
#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "src/worker/core/cage.h"

static const char *const allowed[] = {
    /* files that the view holds */
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2",
    "pwritev2", "open", "openat", "openat2", "creat", "close", "close_range", "stat", "fstat",
    "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2", "lseek",
    "getdents", "getdents64", "readlink", "readlinkat", "mkdir", "mkdirat", "rename", "renameat",
    "renameat2", "unlink", "unlinkat", "rmdir", "link", "linkat", "symlink", "symlinkat", "chmod",
    "fchmod", "fchmodat", "utime", "utimes", "utimensat", "futimesat", "truncate", "ftruncate",
    "fallocate", "fadvise64", "fsync", "fdatasync", "flock", "fcntl", "dup", "dup2", "dup3", "pipe",
    "pipe2", "umask", "getcwd", "chdir", "fchdir", "copy_file_range", "sendfile", "readahead",
    "memfd_create", "ioctl",
    /* waiting */
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait",
    "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2", "signalfd4", "timerfd_create",
    "timerfd_settime", "timerfd_gettime", "nanosleep", "clock_nanosleep", "pause", "alarm",
    "setitimer", "getitimer", "timer_create", "timer_settime", "timer_gettime", "timer_delete",
    "timer_getoverrun", "restart_syscall", "futex", "futex_waitv", "membarrier",
    /* memory */
    "mmap", "munmap", "mprotect", "mremap", "madvise", "msync", "mincore", "mlock", "mlock2",
    "munlock", "mlockall", "munlockall", "brk", "pkey_alloc", "pkey_free", "pkey_mprotect", "mbind",
    "get_mempolicy", "set_mempolicy", "migrate_pages", "move_pages",
    /* its own processes and threads: a compiler's linker is one */
    "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "kill", "tkill",
    "tgkill", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "sigaltstack", "set_tid_address",
    "set_robust_list", "get_robust_list", "rseq", "getpid", "gettid", "getppid", "getpgid", "getpgrp",
    "getsid", "setpgid", "setsid", "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid",
    "getgroups", "capget", "prctl", "arch_prctl", "getrlimit", "setrlimit", "prlimit64", "getrusage",
    "times", "getpriority", "setpriority", "sched_yield", "sched_getaffinity", "sched_setaffinity",
    "sched_getparam", "sched_setparam", "sched_getscheduler", "sched_setscheduler", "sched_getattr",
    "sched_setattr", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
    "getcpu", "ioprio_get",
    /* the machine and the time, to read */
    "uname", "sysinfo", "getrandom", "clock_gettime", "clock_getres", "gettimeofday", "time",
    /* the channel to divvyd, which is open already */
    "sendmsg", "recvmsg", "sendto", "recvfrom", "sendmmsg", "recvmmsg", "shutdown", "getsockopt",
    "setsockopt", "getsockname", "getpeername",
};

static int allow(scmp_filter_ctx filter, const char *name)
{
    int number = seccomp_syscall_resolve_name(name);

    if (number == __NR_SCMP_ERROR)
        return -ENOENT;
    return number < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
}

/* Those of which only some uses are allowed. */
static int allow_in_part(scmp_filter_ctx filter)
{
    const uint64_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
    int status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces, 0));

    /* its flags are in memory, where no filter sees them: the C library then uses clone */
    if (status == 0)
        status = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (status == 0)
        status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                                  SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    return status;
}

int dv_cage_restrict_calls(const char *more, char *text, size_t bytes)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int status = filter ? 0 : -ENOMEM;

    for (size_t i = 0; status == 0 && i < sizeof allowed / sizeof allowed[0]; i++)
        if ((status = allow(filter, allowed[i])) == -ENOENT)
            status = 0;
    for (; status == 0 && *more; more += strlen(more) + 1) {
        status = allow(filter, more);
        if (status < 0) {
            snprintf(text, bytes, "there is no system call '%s' (from `calls` of a device's cage)",
                     more);
            seccomp_release(filter);
            return status;
        }
    }
    if (status == 0)
        status = allow_in_part(filter);
    if (status == 0) /* what this guards against stays within one process, which is one tenant's */
        status = seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    if (status == 0) /* the kernel's own word for what is wrong: see dv_cage_is_refused */
        status = seccomp_attr_set(filter, SCMP_FLTATR_API_SYSRAWRC, 1);
    if (status == 0)
        status = seccomp_load(filter);
    if (status < 0)
        snprintf(text, bytes, "cannot restrict the worker's system calls: %s", strerror(-status));
    seccomp_release(filter);
    return status;
}
