/* The state file (see state.h). */
#include "src/arbiter/restart/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/base/log.h"
#include "src/base/cleanup.h"
#include "src/base/rundir.h"

/* There are records for all sessions, each of another tenant, and for the tenants that are remembered. */
static_assert(DV_STATE_SESSIONS >= DV_MAX_SESSIONS && DV_STATE_TENANTS >= DV_MAX_SESSIONS + DV_MAX_TENANTS_GONE,
              "there is room for all");

/* ---- records ---- */

static _Atomic uint32_t *used_word(const struct dvd_state_table *table, uint32_t index)
{
    return (_Atomic uint32_t *)(void *)(table->records + (size_t)index * table->record_bytes);
}

static bool give_back(struct dvd_state_table *table, uint32_t index)
{
    if (table->free_count == table->free_capacity) {
        uint32_t capacity = table->free_capacity ? table->free_capacity * 2 : 64;
        uint32_t *grown = realloc(table->free, capacity * sizeof *grown);
        if (!grown)
            return false; /* this record is lost until the next start */
        table->free = grown;
        table->free_capacity = capacity;
    }
    table->free[table->free_count++] = index;
    return true;
}

void *dvd_state_add(struct dvd_state_table *table)
{
    uint32_t index;

    if (!table->records)
        return NULL;
    if (table->free_count)
        index = table->free[--table->free_count];
    else if (table->touched < table->capacity)
        index = table->touched++;
    else
        return NULL;
    void *record = table->records + (size_t)index * table->record_bytes;
    memset(record, 0, table->record_bytes);
    return record;
}

void dvd_state_commit(void *record)
{
    if (record)
        atomic_store_explicit((_Atomic uint32_t *)record, 1, memory_order_release);
}

void dvd_state_drop(struct dvd_state_table *table, void *record)
{
    if (!record)
        return;
    atomic_store_explicit((_Atomic uint32_t *)record, 0, memory_order_release);
    give_back(table, dvd_state_index(table, record));
}

uint32_t dvd_state_index(const struct dvd_state_table *table, const void *record)
{
    return (uint32_t)((size_t)((const uint8_t *)record - table->records) / table->record_bytes);
}

void *dvd_state_at(const struct dvd_state_table *table, uint32_t index)
{
    if (index >= table->touched || atomic_load(used_word(table, index)) != 1)
        return NULL;
    return table->records + (size_t)index * table->record_bytes;
}

struct dv_state_share dvd_state_share_of(const struct dv_share *share)
{
    return (struct dv_state_share){.request_ppm = share->request_ppm,
                                   .limit_ppm = share->limit_ppm,
                                   .weight = share->weight,
                                   .class = (uint32_t)share->class};
}

bool dvd_state_share_to(const struct dv_state_share *record, struct dv_share *share)
{
    *share = (struct dv_share){.request_ppm = record->request_ppm,
                               .limit_ppm = record->limit_ppm,
                               .weight = record->weight,
                               .class = (enum dv_class)record->class};
    return share->limit_ppm >= DV_PPM / 100 && share->limit_ppm <= DV_PPM && share->request_ppm <= share->limit_ppm &&
           share->weight >= 1 && share->weight <= DV_WEIGHT_MAX && record->class < DV_CLASS_COUNT;
}

/* ---- the file ---- */

static void read_boot_id(char boot[40])
{
    DV_AUTO_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    memset(boot, 0, 40);
    if (fd >= 0 && read(fd, boot, 36) < 0)
        boot[0] = '\0';
}

static struct dvd_state_table lay_out(uint8_t *file, uint64_t offset, size_t record_bytes, uint32_t capacity)
{
    return (struct dvd_state_table){
        .records = file + offset, .record_bytes = (uint32_t)record_bytes, .capacity = capacity};
}

/* Finds the last record in use and lists the holes before it. */
static void find_used(struct dvd_state_table *table)
{
    for (uint32_t i = 0; i < table->capacity; i++)
        if (atomic_load(used_word(table, i)) == 1)
            table->touched = i + 1;
    for (uint32_t i = 0; i < table->touched; i++)
        if (atomic_load(used_word(table, i)) != 1)
            give_back(table, i);
}

/* Reading a hole of the file would not make it larger, but mapping it page by page takes time: the
 * tables are searched only as far as the file has data. */
static void find_all_used(struct dvd_state *state, int fd)
{
    struct dvd_state_table *tables[] = {&state->tenants, &state->tenant_devices, &state->sessions, &state->leases};
    uint8_t *file = (uint8_t *)state->header;

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct dvd_state_table table = *tables[i];
        off_t begin = table.records - file, end = begin + (off_t)table.capacity * table.record_bytes;
        off_t last = begin;
        for (off_t data = lseek(fd, begin, SEEK_DATA); data >= 0 && data < end;) {
            last = lseek(fd, data, SEEK_HOLE);
            data = last < 0 || last >= end ? -1 : lseek(fd, last, SEEK_DATA);
        }
        if (last < 0 || last > end)
            last = end;
        table.capacity = (uint32_t)((last - begin + table.record_bytes - 1) / table.record_bytes);
        find_used(&table);
        table.capacity = tables[i]->capacity;
        *tables[i] = table;
    }
}

static bool is_ours(const struct dv_state_header *header, const char boot[40])
{
    return header->magic == DV_STATE_MAGIC && header->version == DV_STATE_VERSION &&
           memcmp(header->boot, boot, 40) == 0 && header->device_count <= DV_MAX_DEVICES;
}

/* Opens it for divvyd's user only. A link, or a file of another user, is refused. */
static int open_file(const char *directory)
{
    char path[DV_RUNDIR_BYTES + sizeof "/" DV_STATE_NAME];
    struct stat info;

    snprintf(path, sizeof path, "%s/" DV_STATE_NAME, directory);
    DV_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &info) < 0)
        return -errno;
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
        return -EPERM;
    if ((uint64_t)info.st_size != DV_STATE_BYTES && (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)DV_STATE_BYTES) < 0))
        return -errno;
    return dv_take_fd(&fd);
}

int dvd_state_open(struct dvd_state *state, const char *directory, bool *inherited)
{
    char boot[40];

    *state = (struct dvd_state){0};
    *inherited = false;
    DV_AUTO_CLOSE int fd = open_file(directory);
    if (fd < 0)
        return fd;
    uint8_t *file = mmap(NULL, DV_STATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (file == MAP_FAILED)
        return -errno;
    state->header = (struct dv_state_header *)(void *)file;
    state->tenants = lay_out(file, DV_STATE_TENANTS_AT, sizeof(struct dv_state_tenant), DV_STATE_TENANTS);
    state->tenant_devices =
        lay_out(file, DV_STATE_TENANT_DEVICES_AT, sizeof(struct dv_state_tenant_device), DV_STATE_TENANT_DEVICES);
    state->sessions = lay_out(file, DV_STATE_SESSIONS_AT, sizeof(struct dv_state_session), DV_STATE_SESSIONS);
    state->leases = lay_out(file, DV_STATE_LEASES_AT, sizeof(struct dv_state_lease), DV_STATE_LEASES);
    read_boot_id(boot);
    *inherited = is_ours(state->header, boot);
    if (*inherited) {
        find_all_used(state, fd);
        return 0;
    }
    if (state->header->magic == DV_STATE_MAGIC && memcmp(state->header->boot, boot, sizeof boot) == 0)
        dv_warning("%s/" DV_STATE_NAME " has the format %u of another release, and this divvyd has %u: sessions of the "
                   "divvyd before it end",
                   directory, state->header->version, DV_STATE_VERSION);
    /* makes it all holes again, whatever was there */
    if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)DV_STATE_BYTES) < 0) {
        dvd_state_close(state);
        return -errno;
    }
    memcpy(state->header->boot, boot, sizeof boot);
    state->header->version = DV_STATE_VERSION;
    state->header->magic = DV_STATE_MAGIC;
    return 0;
}

static void clear_table(struct dvd_state_table *table)
{
    for (uint32_t i = 0; i < table->touched; i++)
        atomic_store(used_word(table, i), 0);
    table->touched = table->free_count = 0;
}

void dvd_state_clear(struct dvd_state *state)
{
    clear_table(&state->leases);
    clear_table(&state->sessions);
    clear_table(&state->tenant_devices);
    clear_table(&state->tenants);
}

void dvd_state_close(struct dvd_state *state)
{
    struct dvd_state_table *tables[] = {&state->tenants, &state->tenant_devices, &state->sessions, &state->leases};

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        free(tables[i]->free);
    if (state->header)
        munmap(state->header, DV_STATE_BYTES);
    *state = (struct dvd_state){0};
}

void dvd_state_remove(const char *directory)
{
    char path[DV_RUNDIR_BYTES + sizeof "/" DV_STATE_NAME];

    snprintf(path, sizeof path, "%s/" DV_STATE_NAME, directory);
    unlink(path);
}
