/* The atomic save. See save.h for what it promises.
 *
 * The order of calls is the promise: write, flush the file, rename, flush the folder. A rename before the flush could
 * survive a power cut that the bytes did not; without the second flush a save that reported success could be undone.
 *
 * It uses nothing of the library but tu_fail and base/disk.c, so that the command can compile it in for the files it
 * writes. */
#include "base/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/disk.h"

static bool write_all(int fd, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = tu__disk_in_use()->write(fd, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = EIO; /* no system call does this; going on would be for ever */
        if (written <= 0) return false;
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}

/* Flushes to the disk. What has no disk behind it (a pipe, some network folders) says EINVAL, and is as safe as it
 * can be. */
static bool flush_to_disk(int fd) {
    return tu__disk_in_use()->fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
}

/* Closes whatever happens, without losing the errno of an earlier failure. */
static bool close_file(int fd, bool good) {
    int earlier = errno;
    bool closed = tu__disk_in_use()->close(fd) == 0;
    if (!good) errno = earlier;
    return good && closed;
}

/* Length of the folder's part of a path, with its slash; 0 for a bare name. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* A new file in the folder of the target. The name is short, so that any name the folder could hold can be saved. */
static int create_beside(tu__save *save, mode_t mode) {
    static atomic_uint serial;
    for (int tries = 0; tries < 1000; tries++) {
        unsigned number = atomic_fetch_add(&serial, 1);
        int length = snprintf(save->beside, PATH_MAX, "%.*s" TU__SAVE_UNFINISHED "%ld-%u",
                              (int)folder_length(save->target), save->target, (long)getpid(), number);
        if (length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = tu__disk_in_use()->open(save->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static bool flush_folder(const char *path) {
    char folder[PATH_MAX] = ".";
    size_t length = folder_length(path);
    if (length) snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    int fd = tu__disk_in_use()->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return errno == EACCES; /* a folder that may be written but not read cannot be flushed */
    return close_file(fd, flush_to_disk(fd));
}

/* ---- The three ways a target can be ---- */

static bool begin_new(tu__save *save) {
    memcpy(save->target, save->path, sizeof save->target);
    save->fd = create_beside(save, 0666);
    return save->fd >= 0;
}

static bool begin_in_place(tu__save *save) {
    save->fd = tu__disk_in_use()->open(save->path, O_WRONLY | O_CLOEXEC, 0);
    return save->fd >= 0;
}

/* The new file keeps the permissions of the one it replaces. */
static bool begin_replacing(tu__save *save, mode_t mode) {
    /* A file marked read-only is not replaced behind its owner's back. */
    if (access(save->path, W_OK) != 0 || !realpath(save->path, save->target)) return false;
    save->fd = create_beside(save, 0666);
    return save->fd >= 0 && fchmod(save->fd, mode & 0777) == 0;
}

static bool begin(tu__save *save) {
    struct stat info;
    if (stat(save->path, &info) != 0) return errno == ENOENT && begin_new(save);
    if (S_ISREG(info.st_mode)) return begin_replacing(save, info.st_mode);
    if (!S_ISDIR(info.st_mode)) return begin_in_place(save);
    errno = EISDIR;
    return false;
}

/* ---- The interface ---- */

/* Ends a save without its file: the first failure's reason stays. */
static void drop(tu__save *save) {
    if (save->fd < 0) return;
    tu__disk_in_use()->close(save->fd);
    save->fd = -1;
    if (save->beside[0]) tu__disk_in_use()->unlink(save->beside);
}

static tu_status fail_save(tu__save *save) {
    if (!save->reason) save->reason = errno ? errno : EIO;
    drop(save);
    return tu_fail(TU_IO, "cannot save '%s': %s", save->path, strerror(save->reason));
}

tu_status tu__save_begin(tu__save *save, const char *path) {
    save->path[0] = save->target[0] = save->beside[0] = '\0';
    save->fd = -1;
    save->reason = EINVAL; /* of a commit in spite of a begin that refused */
    if (!path || !*path) return tu_fail(TU_INVALID, "cannot save a file without a name: expected a path");
    if (strlen(path) >= PATH_MAX)
        return tu_fail(TU_INVALID, "cannot save '%.60s...': the path is longer than %d characters", path,
                       PATH_MAX - 1);
    memcpy(save->path, path, strlen(path) + 1);
    save->reason = 0;
    return begin(save) ? TU_OK : fail_save(save);
}

tu_status tu__save_append(tu__save *save, const void *bytes, size_t size) {
    if (save->reason || !write_all(save->fd, bytes, size)) return fail_save(save);
    return TU_OK;
}

tu_status tu__save_commit(tu__save *save) {
    if (save->reason) return fail_save(save);
    if (!save->beside[0]) { /* a device or a pipe: there is nothing to flush to or to rename */
        bool closed = close_file(save->fd, true);
        save->fd = -1;
        return closed ? TU_OK : fail_save(save);
    }
    bool good = flush_to_disk(save->fd);
    good = close_file(save->fd, good);
    save->fd = -1;
    if (!good || tu__disk_in_use()->rename(save->beside, save->target) != 0) {
        save->reason = errno;
        tu__disk_in_use()->unlink(save->beside);
        return fail_save(save);
    }
    return flush_folder(save->target) ? TU_OK : fail_save(save);
}

void tu__save_abandon(tu__save *save) {
    if (save->fd >= 0 && !save->reason) save->reason = ECANCELED;
    drop(save);
}

tu_status tu_file_save(const char *path, const void *bytes, size_t size) {
    tu__save save;
    TU_TRY(tu__save_begin(&save, path));
    TU_TRY(tu__save_append(&save, bytes, size));
    return tu__save_commit(&save);
}
