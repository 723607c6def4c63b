/* The atomic save. See save.h for what it promises.
 *
 * It uses nothing of the library but tu_fail, so that the command can compile it in for the files it writes. */
#include "base/save.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_uint countdown; /* 0: never fail; 1: the next system call fails */

void tu__save_fail_at(unsigned nth) {
    atomic_store(&countdown, nth);
}

/* True, with errno set, when a test asked this step to fail. */
static bool must_fail(void) {
    unsigned left = atomic_load(&countdown);
    if (left == 0) return false;
    atomic_store(&countdown, left - 1);
    if (left > 1) return false;
    errno = ENOSPC;
    return true;
}

static bool write_all(int fd, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = must_fail() ? -1 : write(fd, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}

/* Flushes to the disk. What has no disk behind it (a pipe, some network folders) says EINVAL, and is as safe as it
 * can be. */
static bool flush_to_disk(int fd) {
    if (must_fail()) return false;
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
}

/* Closes whatever happens, without losing the errno of an earlier failure. */
static bool close_file(int fd, bool good) {
    int earlier = errno;
    bool failed = must_fail();
    if (close(fd) != 0) failed = true;
    if (!good) errno = earlier;
    return good && !failed;
}

static bool write_in_place(const char *path, const void *bytes, size_t size) {
    int fd = must_fail() ? -1 : open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    return close_file(fd, write_all(fd, bytes, size));
}

/* Length of the folder's part of a path, with its slash; 0 for a bare name. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* A new file in the folder of `path`. The name is short, so that any name the folder could hold can be saved. */
static int create_beside(const char *path, mode_t mode, char beside[PATH_MAX]) {
    static atomic_uint serial;
    for (int tries = 0; tries < 1000; tries++) {
        unsigned number = atomic_fetch_add(&serial, 1);
        int length = snprintf(beside, PATH_MAX, "%.*s.tutti-%ld-%u", (int)folder_length(path), path,
                              (long)getpid(), number);
        if (length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = must_fail() ? -1 : open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static bool flush_folder(const char *path) {
    char folder[PATH_MAX] = ".";
    size_t length = folder_length(path);
    if (length) snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    int fd = must_fail() ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES; /* a folder that may be written but not read cannot be flushed */
    return close_file(fd, flush_to_disk(fd));
}

/* `old` is the file that is replaced, or NULL: the new one keeps its permissions. */
static bool replace(const char *path, const struct stat *old, const void *bytes, size_t size) {
    char beside[PATH_MAX];
    int fd = create_beside(path, 0666, beside);
    if (fd < 0) return false;
    bool good = !old || fchmod(fd, old->st_mode & 0777) == 0;
    good = good && write_all(fd, bytes, size) && flush_to_disk(fd);
    good = close_file(fd, good);
    good = good && !must_fail() && rename(beside, path) == 0;
    if (!good) {
        int reason = errno;
        unlink(beside);
        errno = reason;
        return false;
    }
    return flush_folder(path);
}

static bool save(const char *path, const void *bytes, size_t size) {
    struct stat info;
    if (stat(path, &info) != 0) return errno == ENOENT && replace(path, NULL, bytes, size);
    if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return false;
    }
    if (!S_ISREG(info.st_mode)) return write_in_place(path, bytes, size);
    if (access(path, W_OK) != 0)
        return false; /* a file marked read-only is not replaced behind its owner's back */
    char resolved[PATH_MAX];
    return realpath(path, resolved) && replace(resolved, &info, bytes, size);
}

tu_status tu__save_file(const char *path, const void *bytes, size_t size) {
    if (!path || !*path) return tu_fail(TU_INVALID, "cannot save a file without a name: expected a path");
    if (strlen(path) >= PATH_MAX)
        return tu_fail(TU_INVALID, "cannot save '%.60s...': the path is longer than %d characters", path,
                       PATH_MAX - 1);
    if (save(path, bytes, size)) return TU_OK;
    return tu_fail(TU_IO, "cannot save '%s': %s", path, strerror(errno));
}
