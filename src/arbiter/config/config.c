/* Reading the configuration (see config.h): libcyaml reads the file by a schema, and check.c the rest. */
#include "src/arbiter/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "src/arbiter/config/check.h"
#include "src/arbiter/config/schema.h"
#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/wire/session/shm.h"

#define GIB (UINT64_C(1) << 30)

static uint64_t machine_memory(void)
{
    struct sysinfo info;

    return sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 8 * GIB;
}

static uint64_t default_arena(void)
{
    uint64_t ram = machine_memory();

    /* Sparse memory costs nothing until it is touched, so it can be more than the machine has. */
    uint64_t bytes = (2 * ram + GIB - 1) / GIB * GIB;
    if (bytes < DV_SHM_BYTES_MIN)
        bytes = GIB;
    return bytes > DV_SHM_BYTES_MAX ? DV_SHM_BYTES_MAX : bytes;
}

/* A worker of a CPU device has a thread for each processor. */
static uint64_t default_processes(unsigned sessions)
{
    uint64_t count = (uint64_t)sessions * ((uint64_t)get_nprocs() + DV_WORKER_PROCESSES_BESIDE);

    if (count < DV_WORKER_PROCESSES_USUAL)
        return DV_WORKER_PROCESSES_USUAL;
    return count > DV_WORKER_PROCESSES_MAX ? DV_WORKER_PROCESSES_MAX : count;
}

/* For absent keys. */
static void fill_defaults(struct dvd_config *config)
{
    if (!config->worker_memory_bytes)
        config->worker_memory_bytes = machine_memory() / 4 * 3;
    if (!config->worker_processes)
        config->worker_processes = default_processes(config->sessions_per_user);
}

/* The whole file as text. */
static int read_file(const char *path, char **data)
{
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0)
        return -errno;
    if (!S_ISREG(info.st_mode))
        return -EINVAL;
    if (info.st_size > DV_MAX_CONFIG_BYTES)
        return -EFBIG;
    DV_AUTO_FREE char *text = malloc((size_t)info.st_size + 1);
    if (!text)
        return -ENOMEM;
    ssize_t length = read(fd, text, (size_t)info.st_size);
    if (length < 0)
        return -errno;
    text[length] = '\0';
    *data = text;
    text = NULL;
    return 0;
}

int dvd_config_load(struct dvd_config *config, const char *path, bool must_exist, char *error, size_t error_bytes)
{
    DV_AUTO_FREE char *data = NULL;
    struct dv_yaml_complaint complaint = {0};
    const cyaml_config_t settings = dv_yaml_settings(&complaint);

    *config = (struct dvd_config){.arena_bytes = default_arena(),
                                  .sessions_per_user = DV_MAX_SESSIONS_PER_UID,
                                  .cache_bytes = DV_CACHE_BYTES_USUAL,
                                  .restart_ns = DV_RESTART_USUAL_NS,
                                  .worker_uid_first = DV_WORKER_UID_FIRST,
                                  .worker_uid_last = DV_WORKER_UID_LAST};
    fill_defaults(config);
    int status = path ? read_file(path, &data) : 0;
    if (!path || (status == -ENOENT && !must_exist))
        return 0;
    if (!data) {
        snprintf(error, error_bytes, "cannot read the configuration %s: %s", path,
                 status == -EINVAL ? "it is not a regular file" : strerror(-status));
        return status;
    }
    cyaml_err_t result = cyaml_load_data((const uint8_t *)data, strlen(data), &settings, &dvd_file_schema,
                                         (cyaml_data_t **)&config->file, NULL);
    if (result != CYAML_OK) {
        config->file = NULL;
        if (!complaint.what[0])
            snprintf(complaint.what, sizeof complaint.what, "%s", cyaml_strerror(result));
        dvd_config_explain(&complaint, path, data, error, error_bytes);
        return -EINVAL;
    }
    if (!config->file) /* nothing but comments */
        return 0;
    config->worker_memory_bytes = config->worker_processes = 0;
    status = dvd_config_check(config, &(struct dvd_position){path, data, 0, error, error_bytes});
    fill_defaults(config);
    if (status < 0)
        dvd_config_fini(config);
    return status;
}

int dvd_config_set_mode(struct dvd_config *config, const char *path, bool of_user, uid_t owner, char *error,
                        size_t error_bytes)
{
    bool is_accepted = of_user || (config->file && config->file->allow_unsandboxed);

    config->of_user = of_user;
    config->owner = owner;
    if (config->sandbox == DV_SANDBOX_BY_MODE)
        config->sandbox = of_user ? DV_SANDBOX_IF_POSSIBLE : DV_SANDBOX_YES;
    if (is_accepted || config->sandbox == DV_SANDBOX_YES)
        return 0;
    snprintf(error, error_bytes,
             "%s: with `sandbox: %s` programs can run native code on this machine, restricted only by file "
             "permissions; leave out `sandbox`, or accept this with `allow-unsandboxed-workers: yes`",
             path, config->sandbox == DV_SANDBOX_NO ? "no" : "if-possible");
    return -EINVAL;
}

static dv_ns usual_deadline(enum dv_class class)
{
    return class == DV_CLASS_LATENCY ? DV_DEADLINE_USUAL_LATENCY_NS : DV_DEADLINE_USUAL_NS;
}

/* A user's own daemon has no deadline by default: that user can end the programs. */
struct dvd_ledger_terms dvd_config_ledger_terms(const struct dvd_config *config)
{
    struct dvd_ledger_terms terms = {.keeps_order = config->devices_fixed};

    for (int i = 0; i < DV_CLASS_COUNT; i++) {
        dv_ns given = config->deadline_ns[i];
        terms.memory_deadline_ns[i] = given == DV_DEADLINE_NONE ? 0 : given;
        terms.deadline_ns[i] =
            given || config->of_user ? terms.memory_deadline_ns[i] : usual_deadline((enum dv_class)i);
    }
    return terms;
}

void dvd_config_fini(struct dvd_config *config)
{
    struct dv_yaml_complaint complaint = {0};
    const cyaml_config_t settings = dv_yaml_settings(&complaint);

    if (config->file)
        cyaml_free(&settings, &dvd_file_schema, config->file, 0);
    config->file = NULL;
}
