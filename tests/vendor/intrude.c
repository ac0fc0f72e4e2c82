/* What native code in a worker might try once it does as it likes: each attempt is named, and must
 * fail. The script's action `intrude` runs them all and says on standard error what became of each,
 *
 *     intruder: NAME: refused (REASON)
 *     intruder: NAME: ALLOWED
 *
 * DIVVY_VENDOR_PREY tells what to go for: KEY=VALUE, separated by semicolons. `own` are things that a
 * worker must be able to do; of those "refused" is the failure. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vendor.h"

/* The value of a key in DIVVY_VENDOR_PREY, or "". One thread intrudes, so one buffer is enough. */
static const char *prey(const char *key)
{
    static char value[256];
    const char *at = getenv("DIVVY_VENDOR_PREY");
    size_t length = strlen(key);

    for (; at && *at; at += strcspn(at, ";"), at += *at == ';')
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            at += length + 1;
            snprintf(value, sizeof value, "%.*s", (int)strcspn(at, ";"), at);
            return value;
        }
    return "";
}

static const char *below(const char *key, const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", prey(key), name);
    return path;
}

static struct timeval epoch;
static union {
    char bytes[512];
    int numbers[128];
} zero;

/* All return true when they got what they went for; errno says why not. */

static bool reads(const char *path)
{
    char byte;
    int fd = open(path, O_RDONLY);
    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static bool lists(const char *path)
{
    DIR *directory = opendir(path);
    int entries = 0;

    while (directory && readdir(directory))
        entries++;
    return entries > 2;
}

static bool writes(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    return fd >= 0 && write(fd, "1", 1) == 1;
}

static bool calls(long result)
{
    return result >= 0;
}

static bool connects(int family, const void *address, socklen_t bytes, int type)
{
    int fd = socket(family, type, 0);
    return fd >= 0 && connect(fd, address, bytes) == 0;
}

static bool connects_inet(int type)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(prey("tcp"))),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return connects(AF_INET, &address, sizeof address, type);
}

static bool connects_unix(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return connects(AF_UNIX, &address, sizeof address, type);
}

static bool connects_abstract(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", prey("abstract"));

    return connects(AF_UNIX, &address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length),
                    SOCK_STREAM);
}

static pid_t tenant(void)
{
    return atoi(prey("tenant"));
}

/* A pidfd that the worker holds: of its tenant's process. */
static int held_pidfd(void)
{
    char path[64], target[64];

    for (int fd = 3; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length > 0 && (target[length] = '\0', strstr(target, "pidfd")))
            return fd;
    }
    return -1;
}

static bool signals_held_pidfd(void)
{
    int fd = held_pidfd();

    if (fd < 0) {
        errno = ENOENT;
        return false;
    }
    return calls(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
}

static bool takes_descriptor(void)
{
    return calls(syscall(SYS_pidfd_getfd, held_pidfd(), 0, 0));
}

static bool reads_memory_of_tenant(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    return calls(process_vm_readv(tenant(), &here, 1, &there, 1, 0));
}

static bool sees_other_processes(void)
{
    DIR *directory = opendir("/proc");
    char path[300], name[64] = "";
    bool seen = false;

    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        int fd = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? open(path, O_RDONLY) : -1;
        if (fd >= 0 && read(fd, name, sizeof name - 1) > 0)
            seen |= strncmp(name, "divvy-w", 7) != 0;
        if (fd >= 0)
            close(fd);
    }
    errno = ENOENT;
    return seen;
}

static bool shares_process_group(void)
{
    errno = ENOENT;
    return getpgrp() != getpid();
}

static bool is_root(void)
{
    uid_t real, effective, saved;

    errno = ENOENT;
    return getresuid(&real, &effective, &saved) == 0 && (real == 0 || effective == 0 || saved == 0);
}

static bool takes_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    return calls(syscall(SYS_capset, &header, data));
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &header, data) < 0)
        return true;
    errno = EPERM;
    return data[0].effective || data[0].permitted || data[0].inheritable || data[1].permitted;
}

static bool may_gain_rights(void)
{
    errno = EPERM;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
}

/* A child, if there is one, has nothing to do. */
static bool clones(long pid)
{
    if (pid == 0)
        _exit(0);
    return pid > 0 && waitpid((pid_t)pid, NULL, 0) == pid;
}

static bool clones_namespace(void)
{
    return clones(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
}

static bool clones3_namespace(void)
{
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    return clones(syscall(SYS_clone3, &arguments, sizeof arguments));
}

/* Where it succeeds, the process is another afterwards: so a child tries. */
static bool in_child(bool (*attempt)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(attempt() ? 0 : errno ? errno & 127 : EPERM);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return false;
    errno = WEXITSTATUS(status);
    return errno == 0;
}

static bool is_traced(void)
{
    return calls(ptrace(PTRACE_TRACEME, 0, 0, 0));
}

static bool makes_user_namespace(void)
{
    return calls(unshare(CLONE_NEWUSER));
}

static bool makes_mount_namespace(void)
{
    return calls(unshare(CLONE_NEWNS));
}

static bool raises_limit(int resource)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0 || limit.rlim_max == RLIM_INFINITY)
        return true;
    limit.rlim_max++;
    return setrlimit((__rlimit_resource_t)resource, &limit) == 0;
}

static bool dumps_core(void)
{
    struct rlimit limit = {.rlim_max = 1};

    errno = EPERM;
    return getrlimit(RLIMIT_CORE, &limit) < 0 || limit.rlim_max > 0;
}

static bool becomes_realtime(void)
{
    struct sched_param parameter = {.sched_priority = 1};
    return sched_setscheduler(0, SCHED_FIFO, &parameter) == 0;
}

static bool raises_priority(void)
{
    errno = 0;
    int now = getpriority(PRIO_PROCESS, 0);
    return setpriority(PRIO_PROCESS, 0, now - 5) == 0;
}

static bool fills(const char *path, size_t most)
{
    static char block[1 << 20];
    size_t written = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    signal(SIGXFSZ, SIG_IGN);
    while (fd >= 0 && written < most && write(fd, block, sizeof block) > 0)
        written += sizeof block;
    int error = errno;
    unlink(path);
    if (fd >= 0)
        close(fd);
    errno = error;
    return written >= most;
}

static bool opens_by_handle(void)
{
    struct {
        struct file_handle head;
        char rest[128];
    } handle = {.head.handle_bytes = 128};
    int mount_id;

    return calls(name_to_handle_at(AT_FDCWD, "/usr", &handle.head, &mount_id, 0)) &&
           calls(open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY));
}

/* The root that was: through a directory above the root, or a descriptor that was left open. */
static bool finds_old_root(void)
{
    errno = ENOENT;
    if (access("/../root/.profile", F_OK) == 0 || access("/proc/1/root/home", F_OK) == 0)
        return true;
    for (int fd = 0; fd < 256; fd++)
        if (faccessat(fd, "../../../../etc/passwd", F_OK, 0) == 0)
            return true;
    errno = ENOENT;
    return false;
}

static bool has_network_device(void)
{
    FILE *list = fopen("/proc/net/dev", "r");
    char line[256];
    bool found = false;

    while (list && fgets(line, sizeof line, list))
        found |= strchr(line, ':') && !strstr(line, " lo:") && strncmp(line, "lo:", 3) != 0;
    errno = ENODEV;
    return found;
}

/* Copies a program, small enough, and runs the copy. */
static bool runs_copy(const char *path)
{
    static char block[1 << 16];
    int from = open("/usr/bin/true", O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    ssize_t length;
    int status = 1;

    while (from >= 0 && to >= 0 && (length = read(from, block, sizeof block)) > 0)
        if (write(to, block, (size_t)length) != length)
            return false;
    close(from);
    close(to);
    pid_t child = fork();
    if (child == 0) {
        execl(path, "true", (char *)NULL);
        _exit(errno & 127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
    return status == 0;
}

static bool locks(const char *path)
{
    int fd = open(path, O_RDONLY);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static bool becomes_dumpable(long option)
{
    return calls(syscall(SYS_prctl, option, 1, 0, 0, 0));
}

static bool asks_device(unsigned long request)
{
    int fd = open("/dev/null", O_RDWR);
    /* who is let through hears from the device that there is no such request */
    return fd >= 0 && (ioctl(fd, request, &zero) == 0 || errno == ENOTTY);
}

static bool leads_session(void)
{
    return calls(setsid());
}

static bool locks_own(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open("/cache/mine", O_RDWR | O_CREAT, 0600);
    return fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0;
}

static bool runs_linker(void)
{
    pid_t child = fork();
    int status = 1;

    if (child == 0) {
        int null_fd = open("/dev/null", O_WRONLY);
        dup2(null_fd, STDOUT_FILENO);
        execl("/usr/bin/ld", "ld", "--version", (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void *nothing(void *argument)
{
    return argument;
}

static bool starts_thread(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

#define ATTEMPTS(X)                                                                                                    \
    X("read a file in a home directory", reads(below("home", "secret")))                                               \
    X("list a home directory", lists(prey("home")))                                                                    \
    X("list /home", lists("/home"))                                                                                    \
    X("list /root", lists("/root"))                                                                                    \
    X("read /etc/passwd", reads("/etc/passwd"))                                                                        \
    X("read /etc/shadow", reads("/etc/shadow"))                                                                        \
    X("read another tenant's compiled kernels", reads(prey("cache")))                                                  \
    X("list all tenants' caches", lists(prey("caches")))                                                               \
    X("find divvyd's sockets", calls(access(below("dir", "session.sock"), F_OK)))                                      \
    X("write to /usr", writes("/usr/intruder"))                                                                        \
    X("write to /etc", writes("/etc/intruder"))                                                                        \
    X("write to /", writes("/intruder"))                                                                               \
    X("write to /dev", writes("/dev/intruder"))                                                                        \
    X("write to the vendor directory", writes(below("dir", "vendors/intruder.icd")))                                   \
    X("change a kernel setting", writes("/proc/sys/kernel/hostname"))                                                  \
    X("use the magic keys", writes("/proc/sysrq-trigger"))                                                             \
    X("switch a processor off", writes("/sys/devices/system/cpu/cpu1/online"))                                         \
    X("read the kernel's memory", reads("/proc/kcore"))                                                                \
    X("read the machine's memory", reads("/dev/mem"))                                                                  \
    X("read the kernel's log", reads("/dev/kmsg"))                                                                     \
    X("read a disk", reads("/dev/vda") || reads("/dev/sda") || reads("/dev/nvme0n1"))                                  \
    X("open a terminal", open("/dev/tty", O_RDWR) >= 0 || open("/dev/ptmx", O_RDWR) >= 0)                              \
    X("use another's shared memory file", reads(prey("shm")))                                                          \
    X("find the machine's root directory", finds_old_root())                                                           \
    X("open a file by its handle", opens_by_handle())                                                                  \
    X("make a device node", calls(mknod("/tmp/disk", S_IFBLK | 0600, makedev(254, 0))))                                \
    X("fill more than its scratch space", fills("/tmp/fill", (size_t)512 << 20))                                       \
    X("write a file longer than its cache may be", fills("/cache/fill", (size_t)64 << 20))                             \
    X("change its root directory", calls(chroot("/tmp")))                                                              \
    X("mount", calls(mount("none", "/tmp", "tmpfs", 0, NULL)))                                                         \
    X("make /usr writable", calls(mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL)))                              \
    X("unmount", calls(umount2("/proc", MNT_DETACH)))                                                                  \
    X("pivot its root", calls(syscall(SYS_pivot_root, "/tmp", "/tmp")))                                                \
    X("see other processes", sees_other_processes())                                                                   \
    X("signal its tenant's process", calls(kill(tenant(), 0)))                                                         \
    X("signal its tenant by the descriptor it holds", signals_held_pidfd())                                            \
    X("signal others in its process group", shares_process_group())                                                    \
    X("signal divvyd", calls(kill(atoi(prey("daemon")), 0)))                                                           \
    X("take a descriptor from its tenant", takes_descriptor())                                                         \
    X("open its tenant's process", calls(syscall(SYS_pidfd_open, tenant(), 0)))                                        \
    X("trace its tenant", calls(ptrace(PTRACE_ATTACH, tenant(), 0, 0)))                                                \
    X("be traced", in_child(is_traced))                                                                                \
    X("read its tenant's memory", reads_memory_of_tenant())                                                            \
    X("run as root", is_root())                                                                                        \
    X("become root", calls(setuid(0)))                                                                                 \
    X("join root's group", calls(setgid(0)))                                                                           \
    X("change its groups", calls(syscall(SYS_setgroups, 1, &zero)))                                                    \
    X("hold capabilities", has_capabilities())                                                                         \
    X("take capabilities", takes_capabilities())                                                                       \
    X("gain rights from a program it runs", may_gain_rights())                                                         \
    X("make a user namespace", in_child(makes_user_namespace))                                                         \
    X("make a mount namespace", in_child(makes_mount_namespace))                                                       \
    X("clone into a user namespace", clones_namespace())                                                               \
    X("clone into a user namespace the new way", clones3_namespace())                                                  \
    X("join a namespace", calls(setns(open("/proc/self/ns/net", O_RDONLY), 0)))                                        \
    X("raise its limit of descriptors", raises_limit(RLIMIT_NOFILE))                                                   \
    X("raise its limit of file sizes", raises_limit(RLIMIT_FSIZE))                                                     \
    X("dump core", dumps_core())                                                                                       \
    X("become a realtime process", becomes_realtime())                                                                 \
    X("raise its priority", raises_priority())                                                                         \
    X("connect to a server on this machine", connects_inet(SOCK_STREAM))                                               \
    X("send datagrams", connects_inet(SOCK_DGRAM))                                                                     \
    X("send raw packets", calls(socket(AF_INET, SOCK_RAW, 1)))                                                         \
    X("ask the kernel about networks", calls(socket(AF_NETLINK, SOCK_RAW, 0)))                                         \
    X("reach the host of a virtual machine", calls(socket(40, SOCK_STREAM, 0)))                                        \
    X("listen for connections", calls(socket(AF_INET6, SOCK_STREAM, 0)))                                               \
    X("have a network", has_network_device())                                                                          \
    X("connect to divvyd's control socket", connects_unix(below("dir", "control/control.sock"), SOCK_STREAM))          \
    X("connect to divvyd's session socket", connects_unix(below("dir", "session.sock"), SOCK_SEQPACKET))               \
    X("connect to a socket without a path", connects_abstract())                                                       \
    X("use another's System V memory", calls(shmget(atoi(prey("sysv")), 0, 0)))                                        \
    X("make a message queue", calls(syscall(SYS_msgget, 0x1234, 01600)))                                               \
    X("load a program into the kernel", calls(syscall(SYS_bpf, 0, &zero, sizeof zero)))                                \
    X("measure other processes", calls(syscall(SYS_perf_event_open, &zero, -1, 0, -1, 0)))                             \
    X("handle page faults", calls(syscall(SYS_userfaultfd, 0)))                                                        \
    X("use io_uring", calls(syscall(SYS_io_uring_setup, 8, &zero)))                                                    \
    X("read keys", calls(syscall(SYS_keyctl, 0, -3, 0)))                                                               \
    X("add a key", calls(syscall(SYS_add_key, "user", "intruder", "1", 1, -3)))                                        \
    X("load a kernel module", calls(syscall(SYS_init_module, &zero, 1, "")))                                           \
    X("load another kernel", calls(syscall(SYS_kexec_load, 0, 0, NULL, 0)))                                            \
    X("restart the machine", calls(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef, 0)))                         \
    X("swap to a file", calls(syscall(SYS_swapon, "/tmp/swap", 0)))                                                    \
    X("find a variable of its tenant's", getenv("DIVVY_TEST_SECRET") != NULL)                                          \
    X("set the host's name", calls(sethostname("intruder", 8)))                                                        \
    X("set the clock", calls(settimeofday(&epoch, NULL)))                                                              \
    X("read the system log", calls(syscall(SYS_syslog, 3, &zero, 512)))                                                \
    X("keep accounts of processes", calls(syscall(SYS_acct, NULL)))                                                    \
    X("watch the file system", calls(syscall(SYS_fanotify_init, 0, 0)))                                                \
    X("change how programs run", calls(syscall(SYS_personality, 0x0040000)))                                           \
    X("hang up the terminal", calls(syscall(SYS_vhangup)))                                                             \
    X("read the kernel's symbols", reads("/proc/kallsyms") || reads("/proc/own/kallsyms"))                             \
    X("read interrupts", reads("/proc/interrupts") || reads("/proc/own/interrupts"))                                   \
    X("read the kernel's configuration", reads("/proc/config.gz") || reads("/proc/sys/kernel/osrelease"))              \
    X("read others' keys", reads("/proc/key-users") || reads("/proc/own/key-users"))                                   \
    X("run a program from its scratch space", runs_copy("/tmp/program"))                                               \
    X("lock a file that all see", locks("/usr/bin/ld"))                                                                \
    X("be dumpable", becomes_dumpable(PR_SET_DUMPABLE))                                                                \
    X("be dumpable by a longer number", becomes_dumpable(0x100000000 | PR_SET_DUMPABLE))                               \
    X("ask a device for what no rule names", asks_device(_IOC(_IOC_READ, 'F', 42, 8)))                                 \
    X("type into a terminal", asks_device(TIOCSTI))                                                                    \
    X("ask about a process by its descriptor", asks_device(_IO(0xff, 1)))                                              \
    X("lead a session, with a share of the processors", in_child(leads_session))

#define OWN(X)                                                                                                         \
    X("own: write to its cache", writes("/cache/mine") && reads("/cache/mine"))                                        \
    X("own: write to its scratch space", writes("/tmp/mine") && reads("/tmp/mine"))                                    \
    X("own: read programs and libraries", lists("/usr/lib"))                                                           \
    X("own: run the linker", runs_linker())                                                                            \
    X("own: start a thread", starts_thread())                                                                          \
    X("own: run a program from its cache", runs_copy("/cache/program"))                                                \
    X("own: lock a file of its own", locks_own())                                                                      \
    X("own: find its own process",                                                                                     \
      reads("/proc/self/maps") && reads("/proc/thread-self/stat") && reads("/proc/1/stat") && reads("/proc/mounts"))   \
    X("own: read the memory there is", reads("/proc/meminfo"))                                                         \
    X("own: ask whether a file is a terminal", asks_device(TCGETS))                                                    \
    X("own: read the processors", reads("/proc/cpuinfo"))                                                              \
    X("own: read random bytes", reads("/dev/urandom"))

void dv_intrude(void)
{
    if (is_root()) { /* some of the rest would do real harm */
        fprintf(stderr, "intruder: run as root: ALLOWED\nintruder: done\n");
        return;
    }
#define TRY(name, attempt)                                                                                             \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (attempt)                                                                                                   \
            fprintf(stderr, "intruder: %s: ALLOWED\n", name);                                                          \
        else                                                                                                           \
            fprintf(stderr, "intruder: %s: refused (%s)\n", name, strerror(errno));                                    \
    } while (0);
    ATTEMPTS(TRY)
    OWN(TRY)
#undef TRY
    fprintf(stderr, "intruder: done\n");
}
