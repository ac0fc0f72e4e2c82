/* Making and removing the private vendor directory (see vendors.h). */
#include "src/arbiter/vendors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/bounds.h"
#include "src/base/cleanup.h"
#include "src/base/log.h"

#define OWN_LIBRARY "libdivvy-opencl"

static void close_directory(DIR **directory)
{
    if (*directory)
        closedir(*directory);
}
#define AUTO_CLOSEDIR __attribute__((cleanup(close_directory)))

static bool is_icd_name(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && name[0] != '.' && strcmp(name + length - 4, ".icd") == 0;
}

/* The one line that an .icd file holds: a driver's file name. */
static int read_icd(const char *path, char library[DV_LIMIT_ICD_BYTES])
{
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0)
        return -errno;
    if (!S_ISREG(info.st_mode))
        return -EINVAL;
    if (info.st_size >= DV_LIMIT_ICD_BYTES)
        return -EFBIG;
    ssize_t length = read(fd, library, DV_LIMIT_ICD_BYTES - 1);
    if (length < 0)
        return -errno;
    library[length] = '\0';
    library[strcspn(library, "\r\n")] = '\0';
    return library[0] ? 0 : -ENODATA;
}

static int write_icd(const char *directory, int number, const char *name, const char *library)
{
    char path[DV_LIMIT_PATH];
    char line[DV_LIMIT_ICD_BYTES + 1];

    /* numbered, for files of one name may come from several directories */
    int path_length = snprintf(path, sizeof path, "%s/%02d-%s", directory, number, name);
    if (path_length < 0 || (size_t)path_length >= sizeof path)
        return -ENAMETOOLONG;
    int length = snprintf(line, sizeof line, "%s\n", library);
    DV_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    return write(fd, line, (size_t)length) == length ? 0 : -EIO;
}

/* Returns 1 when the file was taken, 0 when it was passed over. */
static int take_icd(const char *directory, int number, const char *path, char *error,
                    size_t error_bytes)
{
    char library[DV_LIMIT_ICD_BYTES];
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

    int status = read_icd(path, library);
    if (status < 0) {
        dv_warning("passing over %s: %s", path, strerror(-status));
        return 0;
    }
    if (strstr(library, OWN_LIBRARY))
        return 0; /* a worker that used divvy would wait for itself */
    status = write_icd(directory, number, name, library);
    if (status < 0) {
        snprintf(error, error_bytes, "cannot copy %s to %s: %s", path, directory,
                 strerror(-status));
        return status;
    }
    return 1;
}

static int take_directory(const char *directory, const char *source, char *error,
                          size_t error_bytes)
{
    struct dirent **entries = NULL;
    int taken = 0;

    int count = scandir(source, &entries, NULL, alphasort);
    if (count < 0) {
        dv_warning("cannot read %s, where drivers are announced: %s", source, strerror(errno));
        return 0;
    }
    for (int i = 0; i < count; i++) {
        char path[DV_LIMIT_PATH];
        int length = snprintf(path, sizeof path, "%s/%s", source, entries[i]->d_name);
        if (taken >= 0 && taken < DV_LIMIT_VENDORS && is_icd_name(entries[i]->d_name) &&
            length > 0 && (size_t)length < sizeof path) {
            int status = take_icd(directory, taken, path, error, error_bytes);
            taken = status < 0 ? status : taken + status;
        }
        free(entries[i]);
    }
    free(entries);
    return taken;
}

void dv_vendors_remove(const char *directory)
{
    AUTO_CLOSEDIR DIR *open_directory = opendir(directory);
    struct dirent *entry;

    if (!open_directory)
        return;
    while ((entry = readdir(open_directory)))
        if (is_icd_name(entry->d_name))
            unlinkat(dirfd(open_directory), entry->d_name, 0);
    rmdir(directory);
}

int dv_vendors_prepare(const char *directory, const struct dv_config *config, char *error,
                       size_t error_bytes)
{
    const char *source = getenv("DIVVY_VENDORS");
    int taken = 0;

    dv_vendors_remove(directory);
    if (mkdir(directory, 0755) < 0) {
        int status = -errno;
        snprintf(error, error_bytes, "cannot make %s: %s", directory, strerror(-status));
        return status;
    }
    if (!config->file || config->file->vendors_count == 0)
        return take_directory(directory, source && source[0] ? source : DV_VENDORS_PUBLIC, error,
                              error_bytes);
    for (uint64_t i = 0; i < config->file->vendors_count; i++) {
        int status = take_icd(directory, taken, config->file->vendors[i], error, error_bytes);
        if (status < 0)
            return status;
        taken += status;
    }
    return taken;
}

/* The next .icd file of a directory that can be read, and the driver it names. */
static bool next_icd(DIR *directory, const char *name, char path[DV_LIMIT_PATH],
                     char library[DV_LIMIT_ICD_BYTES])
{
    struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        int length = snprintf(path, DV_LIMIT_PATH, "%s/%s", name, entry->d_name);
        if (is_icd_name(entry->d_name) && length < DV_LIMIT_PATH && read_icd(path, library) == 0)
            return true;
    }
    return false;
}

size_t dv_vendors_list_libraries(const char *directory, char *list, size_t bytes)
{
    AUTO_CLOSEDIR DIR *open_directory = opendir(directory);
    char path[DV_LIMIT_PATH];
    char library[DV_LIMIT_ICD_BYTES];
    size_t used = 0;

    while (next_icd(open_directory, directory, path, library)) {
        if (library[0] != '/' || strncmp(library, "/usr/", 5) == 0 ||
            strncmp(library, "/lib", 4) == 0)
            continue;
        size_t more = strlen(library) + 1;
        if (used + more + 1 > bytes)
            break;
        memcpy(list + used, library, more);
        used += more;
    }
    return used;
}

static bool directory_names(const char *directory, const char *library)
{
    AUTO_CLOSEDIR DIR *open_directory = opendir(directory);
    char path[DV_LIMIT_PATH];
    char other[DV_LIMIT_ICD_BYTES];

    while (next_icd(open_directory, directory, path, other))
        if (strcmp(library, other) == 0)
            return true;
    return false;
}

void dv_vendors_list_exposed(const char *directory, char *list, size_t bytes)
{
    AUTO_CLOSEDIR DIR *public_directory = opendir(DV_VENDORS_PUBLIC);
    char path[DV_LIMIT_PATH];
    char library[DV_LIMIT_ICD_BYTES];
    size_t used = 0;

    list[0] = '\0';
    while (next_icd(public_directory, DV_VENDORS_PUBLIC, path, library)) {
        if (!directory_names(directory, library))
            continue;
        int more = snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", path);
        if (more < 0 || (size_t)more >= bytes - used)
            return; /* long enough to make the point */
        used += (size_t)more;
    }
}
