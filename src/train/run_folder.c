/* Creates, opens and locks run folders. See run_folder.h.
 *
 * The lock is an flock, which the kernel releases when the process ends, so a crash never leaves a folder locked. */
#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/disk.h"
#include "base/open_file.h"
#include "base/pattern.h"
#include "base/save.h"

enum { MAX_RUN_NUMBER = 100000 };

tu__path tu__path_in(const char *folder, const char *format, ...) {
    tu__path path;
    int length = snprintf(path.text, sizeof path.text, "%s/", folder);
    if (length < 0 || (size_t)length >= sizeof path.text) return path;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path.text + length, sizeof path.text - (size_t)length, format, arguments);
    va_end(arguments);
    return path;
}

bool tu__run_folder_has_run(const char *path) {
    if (strlen(path) > TU__MAX_FOLDER_LENGTH) return false;
    return tu__file_exists(path, "config.json");
}

static tu_status set_path(const char *path, tu__run_folder *folder) {
    *folder = (tu__run_folder){0};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (length == 0) return tu_fail(TU_INVALID, "the path of the run folder is empty");
    if (length > TU__MAX_FOLDER_LENGTH)
        return tu_fail(TU_INVALID, "run folder '%.60s…': the path is longer than %d characters", path,
                       TU__MAX_FOLDER_LENGTH);
    memcpy(folder->path, path, length);
    return TU_OK;
}

/* ---- The lock ---- */

/* Takes the lock; returns 0 or an errno. `tutti runs` takes a shared lock for a moment to see whether a process trains; a
 * process that trains lets nobody take one. So EWOULDBLOCK while shared locks are possible means: try again. */
static int take_lock(int fd) {
    enum { MOST_TRIES = 10000 };
    const struct timespec millisecond = {0, 1000000};
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == MOST_TRIES || flock(fd, LOCK_SH | LOCK_NB) != 0) return errno;
        flock(fd, LOCK_UN);
        nanosleep(&millisecond, NULL);
    }
    return 0;
}

static tu_status lock_folder(tu__run_folder *folder) {
    tu__path path = tu__path_in(folder->path, "lock");
    int fd = tu__open_to_write(folder->path, "lock", O_RDWR | O_CREAT);
    if (fd < 0)
        return tu_fail(TU_IO, "cannot lock the run folder: cannot open '%s': %s", path.text,
                       tu__file_reason(errno));
    int reason = take_lock(fd);
    if (reason == 0) {
        folder->lock = fd;
        return TU_OK;
    }
    close(fd);
    if (reason == EWOULDBLOCK)
        return tu_fail(TU_INVALID,
                       "run folder '%s' is in use by another process: wait for it, or choose another --out",
                       folder->path);
    return tu_fail(TU_IO, "cannot lock the run folder with '%s': %s", path.text, strerror(reason));
}

void tu__run_folder_close(tu__run_folder *folder) {
    if (folder->lock > 0) close(folder->lock);
    folder->lock = 0;
}

static const char *const subfolders[] = {"graphs", "checkpoints"};
enum { SUBFOLDERS = sizeof subfolders / sizeof *subfolders };

/* Removes the temporary files of saves that a killed process did not finish. */
static void remove_unfinished(const char *path) {
    tu__remove_unfinished(path, "");
    for (size_t i = 0; i < SUBFOLDERS; i++) tu__remove_unfinished(path, subfolders[i]);
}

/* Without the lock, another process may own the folder. */
void tu__run_folder_discard(tu__run_folder *folder) {
    if (folder->created && folder->lock > 0 && !tu__run_folder_has_run(folder->path)) {
        for (size_t i = 0; i < SUBFOLDERS; i++) tu__remove_folder(folder->path, subfolders[i]);
        tu__remove_folder(NULL, folder->path);
    }
    tu__run_folder_close(folder);
}

/* ---- Creating ---- */

/* Flushes the parent directory, so that a new folder survives a power failure. */
static void flush_parent(const char *path) {
    char parent[sizeof(tu__path)];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == parent) slash++;
    if (slash) *slash = '\0';
    int fd = tu__disk_in_use()->open(AT_FDCWD, slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return; /* a directory without read permission cannot be flushed */
    tu__disk_in_use()->fsync(fd);
    tu__disk_in_use()->close(fd);
}

static tu_status create_folder(const char *path, bool *created) {
    *created = tu__disk_in_use()->mkdir(AT_FDCWD, path, 0777) == 0;
    if (*created) flush_parent(path);
    if (*created || errno == EEXIST) return TU_OK;
    return tu_fail(TU_IO, "cannot create the folder '%s': %s; choose a writable path with --out", path,
                   strerror(errno));
}

/* Creates the missing parent folders of `path`. */
static tu_status create_parents(const char *path) {
    char part[TU__MAX_FOLDER_LENGTH + 1];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        bool created;
        *slash = '\0';
        TU_TRY(create_folder(part, &created));
        *slash = '/';
    }
    return TU_OK;
}

/* Files that a process may leave behind if it dies before writing config.json, in the folder and in checkpoints:
 * initial weights, but no training result. */
static const char leftover_files[] =
    ".,..,lock,graphs,checkpoints,kernels.txt,events.out.*," TU__SAVE_UNFINISHED "*";
static const char leftover_checkpoints[] = ".,..,step-0.safetensors," TU__SAVE_UNFINISHED "*";

typedef struct entry_name {
    char text[256];
} entry_name;

/* Returns the first entry of a folder that does not match the pattern; "" if all match. */
static entry_name find_unexpected(DIR *folder, const char *pattern) {
    entry_name name = {""};
    for (struct dirent *entry; !*name.text && (entry = readdir(folder));)
        if (!tu__pattern_matches(pattern, entry->d_name))
            snprintf(name.text, sizeof name.text, "%s", entry->d_name);
    return name;
}

static tu_status check_checkpoints(const char *path) {
    DIR *folder = tu__list_folder(path, "checkpoints");
    if (!folder) return TU_OK; /* other errors are reported when the folder is used */
    entry_name unexpected = find_unexpected(folder, leftover_checkpoints);
    closedir(folder);
    if (!*unexpected.text) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%s' contains 'checkpoints/%s' but no config.json: it was left by a run whose config.json is missing; restore that file, or choose another --out",
        path, unexpected.text);
}

static tu_status check_unused(const char *path) {
    if (tu__run_folder_has_run(path))
        return tu_fail(TU_INVALID,
                       "'%s' already contains a run: continue it with --resume, or choose another --out",
                       path);
    DIR *folder = tu__list_folder(path, "");
    if (!folder && errno == ENOTDIR)
        return tu_fail(TU_INVALID, "'%s' is a file: expected a new or empty folder for --out", path);
    if (!folder) return tu_fail(TU_INVALID, "cannot use '%s' as run folder: %s", path, strerror(errno));
    entry_name unexpected = find_unexpected(folder, leftover_files);
    closedir(folder);
    TU_TRY(check_checkpoints(path));
    if (!*unexpected.text) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%s' is not empty (it contains '%s') and not a run folder: expected a new or empty folder for --out",
        path, unexpected.text);
}

tu_status tu__run_folder_create_subfolders(const tu__run_folder *folder) {
    for (size_t i = 0; i < SUBFOLDERS; i++) {
        bool created;
        TU_TRY(create_folder(tu__path_in(folder->path, "%s", subfolders[i]).text, &created));
    }
    return TU_OK;
}

static tu_status create_named(const char *path, tu__run_folder *folder) {
    bool created;
    TU_TRY(set_path(path, folder));
    TU_TRY(create_parents(folder->path));
    TU_TRY(create_folder(folder->path, &created));
    folder->created = created;
    if (!created) TU_TRY(check_unused(folder->path));
    tu_status locked = lock_folder(folder);
    if (locked != TU_OK && created) tu__disk_in_use()->rmdir(AT_FDCWD, folder->path); /* if it is empty */
    TU_TRY(locked);
    tu_status status =
        created
            ? TU_OK
            : check_unused(
                  folder->path); /* another process may have started a run there before the lock was taken */
    if (status == TU_OK && !created) remove_unfinished(folder->path); /* of a start that was killed */
    if (status != TU_OK) tu__run_folder_discard(folder);
    return status;
}

/* Derives a file name from `word`: "resnet20" from "nets/resnet20.c". Takes the last component of a path without its
 * extension and replaces characters other than letters, digits, dots, dashes and underscores. */
static void file_name_of(const char *word, char *name, size_t size) {
    const char *slash = strrchr(word, '/');
    snprintf(name, size, "%s", slash && slash[1] ? slash + 1 : word);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = '\0';
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c)) *c = '-';
}

static tu_status create_numbered(const char *model, const char *dataset, tu__run_folder *folder) {
    char model_name[128], set_name[128], path[512];
    file_name_of(model, model_name, sizeof model_name);
    file_name_of(dataset, set_name, sizeof set_name);
    for (int number = 1; number <= MAX_RUN_NUMBER; number++) {
        bool created;
        snprintf(path, sizeof path, "runs/%s-%s-%d", model_name, set_name, number);
        TU_TRY(create_parents(path));
        TU_TRY(create_folder(path, &created));
        if (!created) continue;
        tu_status status = create_named(path, folder);
        folder->created = true;
        return status;
    }
    return tu_fail(TU_INVALID, "'runs' already contains %d runs of %s on %s: choose a name with --out",
                   MAX_RUN_NUMBER, model_name, set_name);
}

tu_status tu__run_folder_create(const char *path, const char *model, const char *dataset,
                                tu__run_folder *folder) {
    *folder = (tu__run_folder){0};
    return path ? create_named(path, folder) : create_numbered(model, dataset, folder);
}

tu_status tu__run_folder_open(const char *path, tu__run_folder *folder) {
    TU_TRY(set_path(path, folder));
    if (!tu__run_folder_has_run(folder->path))
        return tu_fail(
            TU_NOT_FOUND,
            "'%s' is not a run folder (it has no config.json): expected a folder created by 'tutti train'",
            folder->path);
    TU_TRY(lock_folder(folder));
    remove_unfinished(folder->path);
    return TU_OK;
}
