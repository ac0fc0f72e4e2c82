/* A program that treats all descriptors as its own.
 *
 *     descriptors close      closes everything from 3 up after its first context, goes on
 *     descriptors reuse      the same, and opens files that get the same numbers; they stay intact
 *     descriptors exec       starts itself anew after use: no descriptor has come along
 *     descriptors list N     (what exec starts) fails unless exactly N descriptors are open */
#include "tenant.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int count_descriptors(bool print)
{
    DIR *directory = opendir("/proc/self/fd");
    REQUIRE(directory);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory))
            continue;
        count++;
        if (print) {
            char path[300], target[300] = "";
            snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
            if (readlink(path, target, sizeof target - 1) < 0)
                target[0] = 0;
            fprintf(stderr, "     descriptor %s: %s\n", entry->d_name, target);
        }
    }
    closedir(directory);
    return count;
}

/* Closes all, then puts files of our own in their places; OpenCL must use none of them. */
static void take_over(int from, int to, bool reuse)
{
    closefrom(from);
    if (!reuse)
        return;
    for (int fd = from; fd < to; fd++) {
        int opened = memfd_create("own", MFD_CLOEXEC);
        REQUIRE(opened >= 0);
        CHECK(opened == fd);
    }
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    const char *mode = argv[1];
    dv_test_section(mode);
    if (strcmp(mode, "list") == 0) {
        bool same = argc > 2 && count_descriptors(false) == atoi(argv[2]);
        if (!same)
            count_descriptors(true);
        return same ? 0 : 1;
    }
    int before = count_descriptors(false);
    struct tenant tenant = tenant_open();
    tenant_work(&tenant);
    if (strcmp(mode, "exec") == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", before);
        char *arguments[] = {argv[0], "list", number, NULL};
        execv("/proc/self/exe", arguments);
        return 9;
    }
    bool reuse = strcmp(mode, "reuse") == 0;
    enum { LAST = 40 };
    take_over(3, LAST, reuse);
    for (int i = 0; i < 20; i++)
        tenant_work(&tenant);
    /* New objects of every kind, a second context, a build: all without the old descriptors. */
    struct tenant second = tenant_open();
    tenant_work(&second);
    tenant_close(&second);
    tenant_work(&tenant);
    if (reuse)
        for (int fd = 3; fd < LAST; fd++) {
            struct stat info;
            if (!CHECK(fstat(fd, &info) == 0 && info.st_size == 0))
                dv_test_detail("our own file %d was closed or written to", fd);
            CHECK(lseek(fd, 0, SEEK_CUR) == 0);
        }
    tenant_close(&tenant);
    if (reuse)
        for (int fd = 3; fd < LAST; fd++)
            CHECK(fcntl(fd, F_GETFD) >= 0);
    return dv_test_result("descriptors");
}
