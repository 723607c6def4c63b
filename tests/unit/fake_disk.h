/* Fake disks (base/disk.h), to test the state after a full disk or a power failure.
 *
 * A failing disk fails the Nth call, or writes less than requested:
 *
 *     fake_disk_fail_at(nth, ENOSPC);
 *     tu_status status = …;
 *     fake_disk_remove();
 *
 * A recording disk passes calls on to the system and records them. Afterwards the folder can be rebuilt, elsewhere,
 * as a power failure after any of the calls could have left it:
 *
 *     fake_disk_record(folder);              // an absolute path; its present contents are regarded as flushed
 *     …                                      // fake_disk_calls: number of calls so far
 *     fake_disk_remove();
 *     for (unsigned n = 0; n <= fake_disk_calls; n++)
 *         for (int choice = 0; choice < FAKE_DISK_CHOICES; choice++) {
 *             fake_disk_crash(n, choice, after);
 *             …
 *         }
 *     fake_disk_forget();
 *
 * The model guarantees only what POSIX does: contents are safe once their file was flushed, names once their folder
 * was. Before that each may be lost, partly or completely written, and a file may even be longer than its contents,
 * filled with zeros. */
#ifndef TUTTI_FAKE_DISK_H
#define TUTTI_FAKE_DISK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "base/disk.h"

/* ---- Counting and failing calls ---- */

static unsigned fake_disk_calls;
static struct {
    unsigned at; /* index of the call that fails, from 1; 0: none */
    int error;
    bool forever; /* all later calls fail too, except those that clean up */
    size_t most;  /* maximum bytes per write; 0: no limit */
    bool recording;
} fake_disk_plan;

static inline bool fake_disk_must_fail(bool undoes) {
    fake_disk_calls++;
    unsigned at = fake_disk_plan.at;
    bool now = at && (fake_disk_calls == at || (fake_disk_plan.forever && fake_disk_calls > at && !undoes));
    if (now) errno = fake_disk_plan.error;
    return now;
}

/* ---- Recording ---- */

typedef enum fake_disk_kind {
    FAKE_CREATE, /* creates `inode` as `path` */
    FAKE_WRITE,  /* writes `bytes` to `inode` at `offset` */
    FAKE_RESIZE, /* resizes `inode` to `offset` bytes */
    FAKE_FLUSH,  /* flushes `inode`; -1: the folder `path` */
    FAKE_RENAME, /* renames `path` to `to` */
    FAKE_UNLINK,
    FAKE_FOLDER, /* creates the folder `path` */
    FAKE_NOTHING /* a call that changes nothing (close, a read-only open, one that failed) */
} fake_disk_kind;

typedef struct fake_disk_event {
    fake_disk_kind kind;
    char path[512], to[512];
    int inode;
    size_t offset, size;
    unsigned char *bytes;
} fake_disk_event;

enum { FAKE_DISK_MOST = 8192, FAKE_DISK_DESCRIPTORS = 1024 };

static fake_disk_event *fake_disk_events; /* events before `fake_disk_first` create the initial contents */
static unsigned fake_disk_count, fake_disk_first;
static int fake_disk_inodes;
static char fake_disk_root[512];
static struct {
    int inode;
    size_t offset;
    bool append, folder;
    char path[512];
} fake_disk_open_files[FAKE_DISK_DESCRIPTORS];

static inline fake_disk_event *fake_disk_note(fake_disk_kind kind, const char *path) {
    assert_true(fake_disk_count < FAKE_DISK_MOST);
    fake_disk_event *event = &fake_disk_events[fake_disk_count++];
    *event = (fake_disk_event){.kind = kind, .inode = -1};
    if (path) snprintf(event->path, sizeof event->path, "%s", path);
    size_t length = strlen(event->path);
    if (length > 1 && event->path[length - 1] == '/') event->path[length - 1] = '\0';
    return event;
}

/* State of the files during a replay. A file has two contents: those that a reader sees, and those that are safe. */
typedef struct fake_disk_bytes {
    unsigned char *data;
    size_t size;
} fake_disk_bytes;

typedef struct fake_disk_name {
    char path[512];
    int inode; /* -1: a folder; -2: removed */
} fake_disk_name;

typedef struct fake_disk_names {
    fake_disk_name list[512];
    int count;
} fake_disk_names;

typedef struct fake_disk_model {
    fake_disk_bytes seen[FAKE_DISK_MOST], safe[FAKE_DISK_MOST];
    fake_disk_names names, safe_names;
    unsigned pending[FAKE_DISK_MOST]; /* changes of names that are not flushed yet, in order */
    int pending_count;
} fake_disk_model;

static inline void fake_disk_set_name(fake_disk_names *names, const char *path, int inode) {
    int i = 0;
    while (i < names->count && strcmp(names->list[i].path, path) != 0) i++;
    if (i == names->count) {
        assert_true(names->count < 512);
        names->count++;
    }
    snprintf(names->list[i].path, sizeof names->list[i].path, "%s", path);
    names->list[i].inode = inode;
}

static inline int fake_disk_inode_of(const fake_disk_names *names, const char *path) {
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->list[i].path, path) == 0) return names->list[i].inode;
    return -2;
}

static inline void fake_disk_apply_name(fake_disk_names *names, const fake_disk_event *event) {
    if (event->kind == FAKE_CREATE || event->kind == FAKE_FOLDER)
        fake_disk_set_name(names, event->path, event->inode);
    if (event->kind == FAKE_RENAME) {
        int inode = fake_disk_inode_of(names, event->path);
        if (inode == -2) return; /* its creation was lost */
        fake_disk_set_name(names, event->path, -2);
        fake_disk_set_name(names, event->to, inode);
    }
    if (event->kind == FAKE_UNLINK) fake_disk_set_name(names, event->path, -2);
}

static inline void fake_disk_set_bytes(fake_disk_bytes *file, size_t offset, const void *bytes, size_t size) {
    size_t end = offset + size > file->size ? offset + size : file->size;
    unsigned char *data = calloc(end ? end : 1, 1);
    assert_non_null(data);
    if (file->size) memcpy(data, file->data, file->size);
    if (size) memcpy(data + offset, bytes, size);
    free(file->data);
    *file = (fake_disk_bytes){data, end};
}

static inline bool fake_disk_in_folder(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/' && !strchr(path + length + 1, '/');
}

static inline void fake_disk_flush_folder(fake_disk_model *model, const char *folder) {
    int kept = 0;
    for (int i = 0; i < model->pending_count; i++) {
        const fake_disk_event *change = &fake_disk_events[model->pending[i]];
        if (fake_disk_in_folder(change->path, folder))
            fake_disk_apply_name(&model->safe_names, change);
        else
            model->pending[kept++] = model->pending[i];
    }
    model->pending_count = kept;
}

static inline void fake_disk_replay(fake_disk_model *model, unsigned index) {
    const fake_disk_event *event = &fake_disk_events[index];
    fake_disk_bytes *seen = event->inode >= 0 ? &model->seen[event->inode] : NULL;
    switch (event->kind) {
    case FAKE_WRITE:
        assert_non_null(seen);
        fake_disk_set_bytes(seen, event->offset, event->bytes, event->size);
        break;
    case FAKE_RESIZE:
        assert_non_null(seen);
        if (event->offset > seen->size) fake_disk_set_bytes(seen, event->offset, NULL, 0);
        seen->size = event->offset;
        break;
    case FAKE_FLUSH:
        if (!seen) {
            fake_disk_flush_folder(model, event->path);
            break;
        }
        model->safe[event->inode].size = 0;
        fake_disk_set_bytes(&model->safe[event->inode], 0, seen->data, seen->size);
        break;
    case FAKE_NOTHING: break;
    default: fake_disk_apply_name(&model->names, event); model->pending[model->pending_count++] = index;
    }
}

/* ---- Replaced system calls ---- */

/* Returns the path of a name in a folder, a descriptor or AT_FDCWD. Uses a buffer a call, of which there are two. */
static inline const char *fake_disk_path(int folder, const char *name) {
    static char paths[2][512];
    static int next;
    if (folder == AT_FDCWD) return name;
    char link[64], *path = paths[next = !next];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, path, sizeof paths[0] - 1);
    assert_true(length > 0);
    path[length] = '\0';
    if (strcmp(name, ".") == 0) return path;
    assert_true((size_t)length + strlen(name) + 2 < sizeof paths[0]);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
    return path;
}

/* Returns the inode of a path according to the recorded events. */
static inline int fake_disk_lookup(const char *path) {
    static fake_disk_names names;
    names.count = 0;
    for (unsigned i = 0; i < fake_disk_count; i++) fake_disk_apply_name(&names, &fake_disk_events[i]);
    return fake_disk_inode_of(&names, path);
}

static inline void fake_disk_note_open(const char *path, int flags, int fd) {
    assert_true(fd < FAKE_DISK_DESCRIPTORS);
    int inode = fd < 0 ? -2 : fake_disk_lookup(path);
    bool creates = fd >= 0 && inode == -2 && (flags & O_CREAT);
    bool empties = fd >= 0 && inode >= 0 && (flags & O_TRUNC);
    fake_disk_kind kind = FAKE_NOTHING;
    if (creates) kind = FAKE_CREATE;
    if (empties) kind = FAKE_RESIZE;
    fake_disk_event *event = fake_disk_note(kind, path);
    if (creates) inode = fake_disk_inodes++;
    event->inode = inode;
    if (fd < 0) return;
    fake_disk_open_files[fd].inode = inode;
    fake_disk_open_files[fd].offset = 0;
    fake_disk_open_files[fd].append = (flags & O_APPEND) != 0;
    fake_disk_open_files[fd].folder = (flags & O_DIRECTORY) != 0;
    snprintf(fake_disk_open_files[fd].path, sizeof fake_disk_open_files[fd].path, "%s", path);
}

static inline int fake_disk_open(int folder, const char *name, int flags, mode_t mode) {
    int fd = fake_disk_must_fail(false) ? -1 : openat(folder, name, flags, mode);
    int error = errno;
    if (fake_disk_plan.recording) fake_disk_note_open(fake_disk_path(folder, name), flags, fd);
    errno = error;
    return fd;
}

static inline size_t fake_disk_size_now(int inode) {
    size_t size = 0;
    for (unsigned i = 0; i < fake_disk_count; i++) {
        const fake_disk_event *event = &fake_disk_events[i];
        if (event->inode != inode) continue;
        if (event->kind == FAKE_WRITE && event->offset + event->size > size)
            size = event->offset + event->size;
        if (event->kind == FAKE_RESIZE) size = event->offset;
    }
    return size;
}

static inline void fake_disk_note_write(int fd, const void *bytes, ssize_t written) {
    if (!fake_disk_plan.recording) return;
    fake_disk_event *event = fake_disk_note(written < 0 ? FAKE_NOTHING : FAKE_WRITE, NULL);
    if (written < 0) return;
    event->inode = fake_disk_open_files[fd].inode;
    assert_true(event->inode >= 0);
    if (fake_disk_open_files[fd].append) fake_disk_open_files[fd].offset = fake_disk_size_now(event->inode);
    event->offset = fake_disk_open_files[fd].offset;
    event->size = (size_t)written;
    event->bytes = malloc(event->size + 1);
    assert_non_null(event->bytes);
    memcpy(event->bytes, bytes, event->size);
    fake_disk_open_files[fd].offset += event->size;
}

static inline ssize_t fake_disk_write(int fd, const void *bytes, size_t size) {
    bool failed = fake_disk_must_fail(false);
    if (fake_disk_plan.most && size > fake_disk_plan.most) size = fake_disk_plan.most;
    ssize_t written = failed ? -1 : write(fd, bytes, size);
    int error = errno;
    fake_disk_note_write(fd, bytes, written);
    errno = error;
    return written;
}

static inline ssize_t fake_disk_pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    bool failed = fake_disk_must_fail(false);
    if (fake_disk_plan.most && size > fake_disk_plan.most) size = fake_disk_plan.most;
    ssize_t written = failed ? -1 : pwrite(fd, bytes, size, offset);
    int error = errno;
    if (fake_disk_plan.recording) {
        size_t position = fake_disk_open_files[fd].offset;
        fake_disk_open_files[fd].offset = (size_t)offset;
        fake_disk_note_write(fd, bytes, written);
        fake_disk_open_files[fd].offset = position;
    }
    errno = error;
    return written;
}

static inline int fake_disk_fsync(int fd) {
    int result = fake_disk_must_fail(false) ? -1 : fsync(fd);
    if (fake_disk_plan.recording) {
        bool folder = fake_disk_open_files[fd].folder;
        fake_disk_event *event =
            fake_disk_note(result ? FAKE_NOTHING : FAKE_FLUSH, fake_disk_open_files[fd].path);
        event->inode = folder ? -1 : fake_disk_open_files[fd].inode;
    }
    return result;
}

static inline int fake_disk_close(int fd) {
    bool failed = fake_disk_must_fail(true);
    int error = errno;
    int result = close(fd); /* the descriptor is closed even if the call fails */
    if (fake_disk_plan.recording) fake_disk_note(FAKE_NOTHING, NULL);
    if (failed) errno = error;
    return failed ? -1 : result;
}

static inline int fake_disk_rename(int folder, const char *from, const char *to) {
    int result = fake_disk_must_fail(false) ? -1 : renameat(folder, from, folder, to);
    if (fake_disk_plan.recording) {
        fake_disk_event *event =
            fake_disk_note(result ? FAKE_NOTHING : FAKE_RENAME, fake_disk_path(folder, from));
        snprintf(event->to, sizeof event->to, "%s", fake_disk_path(folder, to));
    }
    return result;
}

static inline int fake_disk_unlink(int folder, const char *name) {
    int result = fake_disk_must_fail(true) ? -1 : unlinkat(folder, name, 0);
    if (fake_disk_plan.recording)
        fake_disk_note(result ? FAKE_NOTHING : FAKE_UNLINK, fake_disk_path(folder, name));
    return result;
}

static inline int fake_disk_truncate(int fd, off_t size) {
    int result = fake_disk_must_fail(false) ? -1 : ftruncate(fd, size);
    if (fake_disk_plan.recording) {
        fake_disk_event *event =
            fake_disk_note(result ? FAKE_NOTHING : FAKE_RESIZE, fake_disk_open_files[fd].path);
        event->inode = fake_disk_open_files[fd].inode;
        event->offset = (size_t)size;
    }
    return result;
}

static inline int fake_disk_mkdir(int folder, const char *name, mode_t mode) {
    int result = fake_disk_must_fail(false) ? -1 : mkdirat(folder, name, mode);
    if (fake_disk_plan.recording)
        fake_disk_note(result ? FAKE_NOTHING : FAKE_FOLDER, fake_disk_path(folder, name));
    return result;
}

static inline int fake_disk_rmdir(int folder, const char *name) {
    int result = fake_disk_must_fail(true) ? -1 : unlinkat(folder, name, AT_REMOVEDIR);
    if (fake_disk_plan.recording)
        fake_disk_note(result ? FAKE_NOTHING : FAKE_UNLINK, fake_disk_path(folder, name));
    return result;
}

static const tu__disk fake_disk = {
    .open = fake_disk_open,
    .write = fake_disk_write,
    .fsync = fake_disk_fsync,
    .close = fake_disk_close,
    .rename = fake_disk_rename,
    .unlink = fake_disk_unlink,
    .truncate = fake_disk_truncate,
    .mkdir = fake_disk_mkdir,
    .rmdir = fake_disk_rmdir,
    .pwrite = fake_disk_pwrite,
};

/* ---- Interface for tests ---- */

/* Makes the `nth` call from now (1 is the next) fail with `error`. */
static inline void fake_disk_fail_at(unsigned nth, int error) {
    fake_disk_calls = 0;
    memset(&fake_disk_plan, 0, sizeof fake_disk_plan);
    fake_disk_plan.at = nth;
    fake_disk_plan.error = error;
    tu__disk_replace(&fake_disk);
}

/* Also makes all later calls fail, except close and unlink: a disk that stays full. */
static inline void fake_disk_fail_from(unsigned nth, int error) {
    fake_disk_fail_at(nth, error);
    fake_disk_plan.forever = true;
}

/* Limits every write to `most` bytes. */
static inline void fake_disk_short_writes(size_t most) {
    fake_disk_fail_at(0, 0);
    fake_disk_plan.most = most;
}

static inline void fake_disk_remove(void) {
    tu__disk_replace(NULL);
}

static inline void fake_disk_note_existing(const char *folder) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char path[512];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_int_equal(stat(path, &info), 0);
        if (S_ISDIR(info.st_mode)) {
            fake_disk_note(FAKE_FOLDER, path);
            fake_disk_note_existing(path);
            continue;
        }
        int inode = fake_disk_inodes++;
        fake_disk_note(FAKE_CREATE, path)->inode = inode;
        fake_disk_event *event = fake_disk_note(FAKE_WRITE, NULL);
        event->inode = inode;
        event->size = (size_t)info.st_size;
        event->bytes = malloc(event->size + 1);
        FILE *file = fopen(path, "rb");
        assert_true(event->bytes && file && fread(event->bytes, 1, event->size, file) == event->size);
        fclose(file);
        fake_disk_note(FAKE_FLUSH, NULL)->inode = inode;
    }
    closedir(dir);
    fake_disk_note(FAKE_FLUSH, folder);
}

static inline void fake_disk_record(const char *folder) {
    fake_disk_fail_at(0, 0);
    fake_disk_plan.recording = true;
    fake_disk_events = calloc(FAKE_DISK_MOST, sizeof *fake_disk_events);
    assert_non_null(fake_disk_events);
    fake_disk_count = 0;
    fake_disk_inodes = 0;
    snprintf(fake_disk_root, sizeof fake_disk_root, "%s", folder);
    fake_disk_note_existing(folder);
    fake_disk_first = fake_disk_count;
}

static inline void fake_disk_forget(void) {
    for (unsigned i = 0; i < fake_disk_count; i++) free(fake_disk_events[i].bytes);
    free(fake_disk_events);
    fake_disk_events = NULL;
    fake_disk_count = 0;
}

/* Ways in which unflushed contents may survive. */
enum { FAKE_BYTES_LOST, FAKE_BYTES_TORN, FAKE_BYTES_ZEROED, FAKE_BYTES_KEPT, FAKE_DISK_CHOICES = 8 };

static inline void fake_disk_survivor(fake_disk_bytes seen, fake_disk_bytes safe, int choice, FILE *file) {
    size_t same = 0;
    while (same < seen.size && same < safe.size && seen.data[same] == safe.data[same]) same++;
    if (choice == FAKE_BYTES_LOST) {
        if (safe.size) fwrite(safe.data, 1, safe.size, file);
        return;
    }
    size_t kept = choice == FAKE_BYTES_KEPT ? seen.size : same + (seen.size - same) / 2;
    if (kept) fwrite(seen.data, 1, kept, file);
    if (choice == FAKE_BYTES_ZEROED)
        for (size_t i = kept; i < seen.size; i++) fputc(0, file);
}

static inline void fake_disk_build(const fake_disk_model *model, const fake_disk_names *names, int choice,
                                   const char *folder) {
    for (int folders = 1; folders >= 0; folders--)
        for (int i = 0; i < names->count; i++) {
            int inode = names->list[i].inode;
            if (inode == -2 || (inode == -1) != folders) continue;
            char path[1100];
            assert_true(strncmp(names->list[i].path, fake_disk_root, strlen(fake_disk_root)) == 0);
            snprintf(path, sizeof path, "%s%s", folder, names->list[i].path + strlen(fake_disk_root));
            if (folders) {
                mkdir(path, 0777);
                continue;
            }
            FILE *file = fopen(path, "wb");
            if (!file) continue; /* its folder was lost */
            fake_disk_survivor(model->seen[inode], model->safe[inode], choice, file);
            fclose(file);
        }
}

/* Fills the empty folder `folder` with what a power failure after `calls` calls may leave. Even choices lose all
 * unflushed names, odd ones keep them; choice / 2 selects what happens to unflushed contents. */
static inline void fake_disk_crash(unsigned calls, int choice, const char *folder) {
    fake_disk_model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    for (unsigned i = 0; i < fake_disk_first + calls; i++) {
        fake_disk_replay(model, i);
        if (i + 1 == fake_disk_first) { /* the initial contents are safe */
            model->pending_count = 0;
            model->safe_names = model->names;
        }
    }
    fake_disk_build(model, choice % 2 ? &model->names : &model->safe_names, choice / 2, folder);
    for (int i = 0; i < fake_disk_inodes; i++) {
        free(model->seen[i].data);
        free(model->safe[i].data);
    }
    free(model);
}

#endif
