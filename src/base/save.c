/* Atomic saves. See save.h for the guarantees.
 *
 * The order of calls matters: write, flush the file, rename, flush the folder. If the rename came before the first
 * flush, power loss could leave the new name with missing bytes. Without the second flush, it could undo a save that
 * succeeded.
 *
 * This file depends only on tu_fail and base/disk.c, so that the command-line tool can compile it in. */
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
        if (written == 0) errno = EIO; /* never happens on a real file; avoids an endless loop */
        if (written <= 0) return false;
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}

/* Flushes a file to disk. Pipes and some network file systems report EINVAL or ENOTSUP, which is not an error. */
static bool flush_to_disk(int fd) {
    return tu__disk_in_use()->fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
}

/* Closes `fd`. If `ok` is false, keeps the errno of the earlier failure. Returns true if all went well. */
static bool close_file(int fd, bool ok) {
    int first_errno = errno;
    bool closed = tu__disk_in_use()->close(fd) == 0;
    if (!ok) errno = first_errno;
    return ok && closed;
}

/* Returns the length of the folder in `path`, including its slash; 0 for a bare file name. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Creates the temporary file in the target's folder. Its name is short, so that a target with a name of maximum
 * length can be saved. */
static int create_temp_file(tu__save *save, mode_t mode) {
    static atomic_uint serial;
    for (int tries = 0; tries < 1000; tries++) {
        unsigned number = atomic_fetch_add(&serial, 1);
        int length = snprintf(save->temp_path, PATH_MAX, "%.*s" TU__SAVE_UNFINISHED "%ld-%u",
                              (int)folder_length(save->target), save->target, (long)getpid(), number);
        if (length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = tu__disk_in_use()->open(save->temp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static bool flush_folder(const char *path) {
    char folder[PATH_MAX] = ".";
    size_t length = folder_length(path);
    if (length) snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    int fd = tu__disk_in_use()->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return errno == EACCES; /* a writable but unreadable folder cannot be flushed */
    return close_file(fd, flush_to_disk(fd));
}

/* ---- Opening: a new file, a replacement of an existing file, or in place ---- */

static bool open_new_file(tu__save *save) {
    memcpy(save->target, save->path, sizeof save->target);
    save->fd = create_temp_file(save, 0666);
    return save->fd >= 0;
}

static bool open_in_place(tu__save *save) {
    save->fd = tu__disk_in_use()->open(save->path, O_WRONLY | O_CLOEXEC, 0);
    return save->fd >= 0;
}

/* The new file keeps the permissions of the one it replaces. */
static bool open_replacement(tu__save *save, mode_t mode) {
    /* Renaming would replace even a read-only file, so check the permission. */
    if (access(save->path, W_OK) != 0 || !realpath(save->path, save->target)) return false;
    save->fd = create_temp_file(save, 0666);
    return save->fd >= 0 && fchmod(save->fd, mode & 0777) == 0;
}

static bool open_target(tu__save *save) {
    struct stat info;
    if (stat(save->path, &info) != 0) return errno == ENOENT && open_new_file(save);
    if (S_ISREG(info.st_mode)) return open_replacement(save, info.st_mode);
    if (!S_ISDIR(info.st_mode)) return open_in_place(save);
    errno = EISDIR;
    return false;
}

/* ---- The interface ---- */

/* Ends the save and removes the temporary file. Keeps `reason`. */
static void discard_temp_file(tu__save *save) {
    if (save->fd < 0) return;
    tu__disk_in_use()->close(save->fd);
    save->fd = -1;
    if (save->temp_path[0]) tu__disk_in_use()->unlink(save->temp_path);
}

static tu_status fail_save(tu__save *save) {
    if (!save->reason) save->reason = errno ? errno : EIO;
    discard_temp_file(save);
    return tu_fail(TU_IO, "cannot save '%s': %s", save->path, strerror(save->reason));
}

tu_status tu__save_begin(tu__save *save, const char *path) {
    save->path[0] = save->target[0] = save->temp_path[0] = '\0';
    save->fd = -1;
    save->reason = EINVAL; /* reported by a commit after a failed begin */
    if (!path || !*path) return tu_fail(TU_INVALID, "cannot save a file: the path is NULL or empty");
    if (strlen(path) >= PATH_MAX)
        return tu_fail(TU_INVALID, "cannot save '%.60s...': the path is longer than %d characters", path,
                       PATH_MAX - 1);
    memcpy(save->path, path, strlen(path) + 1);
    save->reason = 0;
    return open_target(save) ? TU_OK : fail_save(save);
}

tu_status tu__save_append(tu__save *save, const void *bytes, size_t size) {
    if (save->reason || !write_all(save->fd, bytes, size)) return fail_save(save);
    return TU_OK;
}

tu_status tu__save_commit(tu__save *save) {
    if (save->reason) return fail_save(save);
    if (!save->temp_path[0]) { /* a device or a pipe: nothing to flush or rename */
        bool closed = close_file(save->fd, true);
        save->fd = -1;
        return closed ? TU_OK : fail_save(save);
    }
    bool ok = flush_to_disk(save->fd);
    ok = close_file(save->fd, ok);
    save->fd = -1;
    if (!ok || tu__disk_in_use()->rename(save->temp_path, save->target) != 0) {
        save->reason = errno;
        tu__disk_in_use()->unlink(save->temp_path);
        return fail_save(save);
    }
    return flush_folder(save->target) ? TU_OK : fail_save(save);
}

void tu__save_abandon(tu__save *save) {
    if (save->fd >= 0 && !save->reason) save->reason = ECANCELED;
    discard_temp_file(save);
}

tu_status tu_file_save(const char *path, const void *bytes, size_t size) {
    tu__save save;
    TU_TRY(tu__save_begin(&save, path));
    TU_TRY(tu__save_append(&save, bytes, size));
    return tu__save_commit(&save);
}
