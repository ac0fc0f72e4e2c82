/* Making and removing the private vendor directory (see icd_directory.h). */
#include "src/arbiter/workers/icd_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
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
static int read_icd(const char *path, char library[DV_MAX_ICD_BYTES])
{
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0)
        return -errno;
    if (!S_ISREG(info.st_mode))
        return -EINVAL;
    if (info.st_size >= DV_MAX_ICD_BYTES)
        return -EFBIG;
    ssize_t length = read(fd, library, DV_MAX_ICD_BYTES - 1);
    if (length < 0)
        return -errno;
    library[length] = '\0';
    library[strcspn(library, "\r\n")] = '\0';
    return library[0] ? 0 : -ENODATA;
}

/* The directory as it is to become. */
struct vendors {
    const char *directory;
    int count;
    char names[DV_MAX_VENDORS][NAME_MAX + 1];
};

static bool says_so_already(const char *path, const char *library)
{
    char old[DV_MAX_ICD_BYTES];
    return read_icd(path, old) == 0 && strcmp(old, library) == 0;
}

/* A worker may be reading the directory just now, so a correct file is left alone, and another is
 * replaced atomically. */
static int write_icd(struct vendors *vendors, const char *name, const char *library)
{
    char path[DV_MAX_PATH], new_path[DV_MAX_PATH];
    char line[DV_MAX_ICD_BYTES + 1];
    char *own = vendors->names[vendors->count];

    /* numbered, because files of one name can come from several directories */
    int own_length = snprintf(own, NAME_MAX + 1, "%02d-%s", vendors->count, name);
    int path_length = snprintf(path, sizeof path, "%s/%s", vendors->directory, own);
    int new_length = snprintf(new_path, sizeof new_path, "%s/new", vendors->directory);
    if (own_length > NAME_MAX || (size_t)path_length >= sizeof path || (size_t)new_length >= sizeof new_path)
        return -ENAMETOOLONG;
    vendors->count++;
    if (says_so_already(path, library))
        return 0;
    int length = snprintf(line, sizeof line, "%s\n", library);
    unlink(new_path);
    DV_AUTO_CLOSE int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    if (write(fd, line, (size_t)length) != length)
        return -EIO;
    return rename(new_path, path) < 0 ? -errno : 0;
}

/* Returns 1 when the file was taken, 0 when it was skipped. */
static int take_icd(struct vendors *vendors, const char *path, char *error, size_t error_bytes)
{
    char library[DV_MAX_ICD_BYTES];
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

    int status = read_icd(path, library);
    if (status < 0) {
        dv_warning("skipping %s: %s", path, strerror(-status));
        return 0;
    }
    if (strstr(library, OWN_LIBRARY))
        return 0; /* a worker that used divvy would wait for itself */
    status = write_icd(vendors, name, library);
    if (status < 0) {
        snprintf(error, error_bytes, "cannot copy %s to %s: %s", path, vendors->directory, strerror(-status));
        return status;
    }
    return 1;
}

static int take_directory(struct vendors *vendors, const char *source, char *error, size_t error_bytes)
{
    struct dirent **entries = NULL;
    int status = 0;

    int count = scandir(source, &entries, NULL, alphasort);
    if (count < 0) {
        dv_warning("cannot read %s, where drivers are announced: %s", source, strerror(errno));
        return 0;
    }
    for (int i = 0; i < count; i++) {
        char path[DV_MAX_PATH];
        int length = snprintf(path, sizeof path, "%s/%s", source, entries[i]->d_name);
        if (status >= 0 && vendors->count < DV_MAX_VENDORS && is_icd_name(entries[i]->d_name) && length > 0 &&
            (size_t)length < sizeof path)
            status = take_icd(vendors, path, error, error_bytes);
        free(entries[i]);
    }
    free(entries);
    return status < 0 ? status : 0;
}

static bool is_wanted(const struct vendors *vendors, const char *name)
{
    for (int i = 0; i < vendors->count; i++)
        if (strcmp(vendors->names[i], name) == 0)
            return true;
    return false;
}

static void remove_others(const struct vendors *vendors)
{
    AUTO_CLOSEDIR DIR *open_directory = opendir(vendors->directory);
    struct dirent *entry;

    while (open_directory && (entry = readdir(open_directory)))
        if (is_icd_name(entry->d_name) && !is_wanted(vendors, entry->d_name))
            unlinkat(dirfd(open_directory), entry->d_name, 0);
}

void dvd_vendors_remove(const char *directory)
{
    struct vendors none = {.directory = directory};

    remove_others(&none);
    rmdir(directory);
}

int dvd_vendors_prepare(const char *directory, const struct dvd_config *config, char *error, size_t error_bytes)
{
    const char *source = getenv("DIVVY_VENDORS");
    struct vendors vendors = {.directory = directory};
    int status = 0;

    if (mkdir(directory, 0755) < 0 && errno != EEXIST) {
        status = -errno;
        snprintf(error, error_bytes, "cannot make %s: %s", directory, strerror(-status));
        return status;
    }
    if (!config->file || config->file->vendors_count == 0)
        status = take_directory(&vendors, source && source[0] ? source : DV_VENDORS_PUBLIC, error, error_bytes);
    for (uint64_t i = 0;
         config->file && i < config->file->vendors_count && status >= 0 && vendors.count < DV_MAX_VENDORS; i++)
        status = take_icd(&vendors, config->file->vendors[i], error, error_bytes);
    if (status < 0)
        return status;
    remove_others(&vendors);
    return vendors.count;
}

/* The next .icd file of a directory that can be read, and the driver it names. */
static bool next_icd(DIR *directory, const char *name, char path[DV_MAX_PATH], char library[DV_MAX_ICD_BYTES])
{
    struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        int length = snprintf(path, DV_MAX_PATH, "%s/%s", name, entry->d_name);
        if (is_icd_name(entry->d_name) && length < DV_MAX_PATH && read_icd(path, library) == 0)
            return true;
    }
    return false;
}

size_t dvd_vendors_list_libraries(const char *directory, char *list, size_t bytes)
{
    AUTO_CLOSEDIR DIR *open_directory = opendir(directory);
    char path[DV_MAX_PATH];
    char library[DV_MAX_ICD_BYTES];
    size_t used = 0;

    while (next_icd(open_directory, directory, path, library)) {
        if (library[0] != '/' || strncmp(library, "/usr/", 5) == 0 || strncmp(library, "/lib", 4) == 0)
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
    char path[DV_MAX_PATH];
    char other[DV_MAX_ICD_BYTES];

    while (next_icd(open_directory, directory, path, other))
        if (strcmp(library, other) == 0)
            return true;
    return false;
}

void dvd_vendors_list_exposed(const char *directory, char *list, size_t bytes)
{
    AUTO_CLOSEDIR DIR *public_directory = opendir(DV_VENDORS_PUBLIC);
    char path[DV_MAX_PATH];
    char library[DV_MAX_ICD_BYTES];
    size_t used = 0;

    list[0] = '\0';
    while (next_icd(public_directory, DV_VENDORS_PUBLIC, path, library)) {
        if (!directory_names(directory, library))
            continue;
        int more = snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", path);
        if (more < 0 || (size_t)more >= bytes - used)
            return; /* the list is long enough */
        used += (size_t)more;
    }
}
