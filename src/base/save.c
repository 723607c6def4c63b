/* Atomic saves. See save.h for the guarantees.
 *
 * The order of calls matters: write, flush the file, rename, flush the folder. If the rename came before the first
 * flush, power loss could leave the new name with missing bytes. Without the second flush, it could undo a save that
 * succeeded. */
#include "base/save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/disk.h"
#include "base/open_file.h"

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

/* ---- Temporary files ---- */

static bool is_unfinished(int folder, const char *name) {
    struct stat info;
    return strncmp(name, TU__SAVE_UNFINISHED, strlen(TU__SAVE_UNFINISHED)) == 0 &&
           fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

/* Removes temporary files that nobody has locked. Closes the list, which may be NULL. */
static void remove_unlocked(DIR *list) {
    if (!list) return;
    for (const struct dirent *entry; (entry = readdir(list));) {
        if (!is_unfinished(dirfd(list), entry->d_name)) continue;
        int fd = openat(dirfd(list), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            tu__disk_in_use()->unlink(dirfd(list), entry->d_name);
        if (fd >= 0) close(fd);
    }
    closedir(list);
}

void tu__remove_unfinished(const char *folder, const char *name) {
    remove_unlocked(tu__list_folder(folder, name));
}

static void remove_unfinished_at(int folder) {
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !list) close(fd);
    remove_unlocked(list);
}

/* Locks a new temporary file, so that nobody takes it for a killed process's. Returns false if another process did so
 * before: it removes the file. */
static bool lock_temp_file(int fd) {
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return fstat(fd, &info) != 0 || info.st_nlink > 0;
}

/* Creates the temporary file in the target's folder. Its name is short, so that a target with a name of maximum
 * length can be saved. */
static int create_temp_file(tu__save *save, mode_t mode) {
    static atomic_uint serial;
    for (int tries = 0; tries < 1000; tries++) {
        snprintf(save->temp_name, sizeof save->temp_name, TU__SAVE_UNFINISHED "%ld-%u", (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        int fd = tu__disk_in_use()->open(save->folder, save->temp_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                                         mode);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0 || lock_temp_file(fd)) return fd;
        tu__disk_in_use()->close(fd);
        tu__disk_in_use()->unlink(save->folder, save->temp_name);
    }
    return -1;
}

static bool flush_folder(int folder) {
    int fd = tu__disk_in_use()->open(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return errno == EACCES; /* a writable but unreadable folder cannot be flushed */
    return close_file(fd, flush_to_disk(fd));
}

/* ---- Opening: a new file, a replacement of an existing file, or in place ---- */

/* Opens the folder of the file and stores the file's name in it. */
static bool open_folder(tu__save *save, const char *folder, const char *name) {
    const char *last;
    save->folder = tu__open_parent(folder, name, &last);
    if (save->folder < 0) return false;
    if (strlen(last) > NAME_MAX || !*last) {
        errno = *last ? ENAMETOOLONG : EISDIR;
        return false;
    }
    memcpy(save->target, last, strlen(last) + 1);
    return true;
}

static bool open_new_file(tu__save *save) {
    save->fd = create_temp_file(save, 0666);
    return save->fd >= 0;
}

static bool open_in_place(tu__save *save) {
    save->fd = tu__disk_in_use()->open(AT_FDCWD, save->path, O_WRONLY | O_CLOEXEC, 0);
    return save->fd >= 0;
}

/* The new file keeps the permissions of the one it replaces. */
static bool open_replacement(tu__save *save, mode_t mode) {
    /* Renaming would replace even a read-only file, so check the permission. */
    if (faccessat(save->folder, save->target, W_OK, 0) != 0) return false;
    return open_new_file(save) && fchmod(save->fd, mode & 0777) == 0;
}

static bool open_target(tu__save *save) {
    struct stat info;
    char resolved[PATH_MAX];
    if (stat(save->path, &info) != 0)
        return errno == ENOENT && open_folder(save, NULL, save->path) && open_new_file(save);
    if (S_ISREG(info.st_mode))
        return realpath(save->path, resolved) && open_folder(save, NULL, resolved) &&
               open_replacement(save, info.st_mode);
    if (!S_ISDIR(info.st_mode)) return open_in_place(save);
    errno = EISDIR;
    return false;
}

/* Anything but a regular file is replaced as if it were not there, except a folder, which a file cannot replace. */
static bool open_beneath(tu__save *save, const char *folder, const char *name) {
    struct stat info;
    if (!open_folder(save, folder, name)) return false;
    bool exists = fstatat(save->folder, save->target, &info, AT_SYMLINK_NOFOLLOW) == 0;
    return exists && S_ISREG(info.st_mode) ? open_replacement(save, info.st_mode) : open_new_file(save);
}

/* ---- The interface ---- */

static void close_folder(tu__save *save) {
    if (save->folder >= 0) close(save->folder);
    save->folder = -1;
}

/* Ends the save and removes the temporary file. Keeps `reason`. */
static void discard_temp_file(tu__save *save) {
    if (save->fd >= 0) {
        tu__disk_in_use()->close(save->fd);
        if (save->temp_name[0]) tu__disk_in_use()->unlink(save->folder, save->temp_name);
    }
    save->fd = -1;
    close_folder(save);
}

static tu_status fail_save(tu__save *save) {
    if (!save->reason) save->reason = errno ? errno : EIO;
    discard_temp_file(save);
    return tu_fail(TU_IO, "cannot save '%s': %s", save->path, tu__file_reason(save->reason));
}

tu_status tu__save_begin_in(tu__save *save, const char *folder, const char *name) {
    save->path[0] = save->target[0] = save->temp_name[0] = '\0';
    save->fd = save->folder = -1;
    save->reason = EINVAL; /* reported by a commit after a failed begin */
    if (!name || !*name) return tu_fail(TU_INVALID, "cannot save a file: the path is NULL or empty");
    if (strlen(name) + (folder ? strlen(folder) + 1 : 0) >= PATH_MAX)
        return tu_fail(TU_INVALID, "cannot save '%.60s...': the path is longer than %d characters",
                       folder ? folder : name, PATH_MAX - 1);
    memcpy(save->path, tu__file_path(folder, name).text, sizeof save->path);
    save->reason = 0;
    if (!(folder ? open_beneath(save, folder, name) : open_target(save))) return fail_save(save);
    if (!folder && save->temp_name[0]) remove_unfinished_at(save->folder);
    return TU_OK;
}

tu_status tu__save_begin(tu__save *save, const char *path) {
    return tu__save_begin_in(save, NULL, path);
}

tu_status tu__save_append(tu__save *save, const void *bytes, size_t size) {
    if (save->reason || !write_all(save->fd, bytes, size)) return fail_save(save);
    return TU_OK;
}

bool tu__save_write_at(const tu__save *save, const void *bytes, size_t size, off_t offset, int *reason) {
    const unsigned char *from = bytes;
    while (size > 0) {
        ssize_t written = tu__disk_in_use()->pwrite(save->fd, from, size, offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            *reason = written == 0 ? EIO : errno;
            return false;
        }
        from += written;
        offset += written;
        size -= (size_t)written;
    }
    return true;
}

void *tu__save_map(const tu__save *save, size_t size) {
    if (!save->temp_name[0]) {
        errno = ENODEV;
        return NULL;
    }
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, save->fd, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

tu_status tu__save_commit(tu__save *save) {
    if (save->reason) return fail_save(save);
    if (!save->temp_name[0]) { /* a device or a pipe: nothing to flush or rename */
        bool closed = close_file(save->fd, true);
        save->fd = -1;
        return closed ? TU_OK : fail_save(save);
    }
    /* Closing reports what a network file system could not write; the copy keeps the lock until the file has its name. */
    int lock = fcntl(save->fd, F_DUPFD_CLOEXEC, 0);
    bool ok = flush_to_disk(save->fd);
    ok = close_file(save->fd, ok);
    save->fd = -1;
    ok = ok && tu__disk_in_use()->rename(save->folder, save->temp_name, save->target) == 0;
    if (!ok) {
        save->reason = errno;
        tu__disk_in_use()->unlink(save->folder, save->temp_name);
    }
    if (lock >= 0) close(lock);
    if (!ok) return fail_save(save);
    if (!flush_folder(save->folder)) return fail_save(save);
    close_folder(save);
    return TU_OK;
}

void tu__save_abandon(tu__save *save) {
    if (save->fd >= 0 && !save->reason) save->reason = ECANCELED;
    discard_temp_file(save);
}

tu_status tu__file_save_in(const char *folder, const char *name, const void *bytes, size_t size) {
    tu__save save;
    TU_TRY(tu__save_begin_in(&save, folder, name));
    TU_TRY(tu__save_append(&save, bytes, size));
    return tu__save_commit(&save);
}

tu_status tu_file_save(const char *path, const void *bytes, size_t size) {
    return tu__file_save_in(NULL, path, bytes, size);
}
