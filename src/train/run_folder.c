/* Making, finding and locking run folders. See run_folder.h.
 *
 * The lock is flock's: it goes with the process, however that ends, so a crash never leaves a folder locked. */
#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/disk.h"
#include "base/pattern.h"
#include "base/save.h"

enum { MAX_NUMBERS = 100000 };

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

bool tu__run_folder_holds_run(const char *path) {
    if (strlen(path) > TU__LONGEST_FOLDER) return false;
    return access(tu__path_in(path, "config.json").text, F_OK) == 0;
}

static tu_status take_path(const char *path, tu__run_folder *folder) {
    *folder = (tu__run_folder){0};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (length == 0) return tu_fail(TU_INVALID, "a run folder without a name: expected a path");
    if (length > TU__LONGEST_FOLDER)
        return tu_fail(TU_INVALID, "run folder '%.60s…': its path is longer than %d characters", path,
                       TU__LONGEST_FOLDER);
    memcpy(folder->path, path, length);
    return TU_OK;
}

/* ---- The lock ---- */

static tu_status lock_folder(tu__run_folder *folder) {
    tu__path path = tu__path_in(folder->path, "lock");
    int fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return tu_fail(TU_IO, "cannot lock the run folder: '%s': %s", path.text, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        folder->lock = fd;
        return TU_OK;
    }
    int reason = errno;
    close(fd);
    if (reason == EWOULDBLOCK)
        return tu_fail(
            TU_INVALID,
            "run folder '%s' is in use: another process trains there; wait for it, or give another --out",
            folder->path);
    return tu_fail(TU_IO, "cannot lock the run folder: '%s': %s", path.text, strerror(reason));
}

void tu__run_folder_close(tu__run_folder *folder) {
    if (folder->lock > 0) close(folder->lock);
    folder->lock = 0;
}

/* Removes what a process that was killed in the middle of a save left beside the file it was to replace. */
static void sweep(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, TU__SAVE_UNFINISHED, strlen(TU__SAVE_UNFINISHED)) == 0)
            tu__disk_in_use()->unlink(tu__path_in(path, "%s", entry->d_name).text);
    closedir(folder);
}

static void remove_with_files(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            tu__disk_in_use()->unlink(tu__path_in(path, "%s", entry->d_name).text);
    closedir(folder);
    rmdir(path);
}

/* Without the lock the folder may be somebody else's by now. */
void tu__run_folder_discard(tu__run_folder *folder) {
    if (folder->made && folder->lock > 0 && !tu__run_folder_holds_run(folder->path)) {
        remove_with_files(tu__path_in(folder->path, "graphs").text);
        remove_with_files(tu__path_in(folder->path, "checkpoints").text);
        remove_with_files(folder->path);
    }
    tu__run_folder_close(folder);
}

/* ---- Making ---- */

/* A folder that was just made stays after a power cut once the folder around it is on the disk. */
static void flush_parent(const char *path) {
    char parent[sizeof(tu__path)];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == parent) slash++;
    if (slash) *slash = '\0';
    int fd = tu__disk_in_use()->open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return; /* a folder that may be written but not read cannot be flushed */
    tu__disk_in_use()->fsync(fd);
    tu__disk_in_use()->close(fd);
}

static tu_status make_folder(const char *path, bool *made) {
    *made = tu__disk_in_use()->mkdir(path, 0777) == 0;
    if (*made) flush_parent(path);
    if (*made || errno == EEXIST) return TU_OK;
    return tu_fail(TU_IO, "cannot make the folder '%s': %s; give --out a path that can be written", path,
                   strerror(errno));
}

/* The folders around `path`, as far as they are missing. */
static tu_status make_parents(const char *path) {
    char part[TU__LONGEST_FOLDER + 1];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        bool made;
        *slash = '\0';
        TU_TRY(make_folder(part, &made));
        *slash = '/';
    }
    return TU_OK;
}

/* What a process that died before it wrote config.json may have left, in its folder and in checkpoints: the weights it
 * was to begin with, but nothing it learned. */
static const char left_in_folder[] =
    ".,..,lock,graphs,checkpoints,kernels.txt,events.out.*," TU__SAVE_UNFINISHED "*";
static const char left_in_checkpoints[] = ".,..,step-0.safetensors," TU__SAVE_UNFINISHED "*";

typedef struct entry_name {
    char text[256];
} entry_name;

/* The first entry of a folder that does not fit the pattern; "" where all do. */
static entry_name find_strange(DIR *folder, const char *pattern) {
    entry_name name = {""};
    for (struct dirent *entry; !*name.text && (entry = readdir(folder));)
        if (!tu__pattern_fits(pattern, entry->d_name))
            snprintf(name.text, sizeof name.text, "%s", entry->d_name);
    return name;
}

static tu_status check_checkpoints(const char *path) {
    DIR *folder = opendir(tu__path_in(path, "checkpoints").text);
    if (!folder) return TU_OK; /* what is no folder, or cannot be read, is met again when it is to be used */
    entry_name strange = find_strange(folder, left_in_checkpoints);
    closedir(folder);
    if (!*strange.text) return TU_OK;
    return tu_fail(TU_INVALID,
                   "'%s' has 'checkpoints/%s' but no config.json: it is what is left of a run; put its "
                   "config.json back, or give another --out",
                   path, strange.text);
}

static tu_status check_unused(const char *path) {
    if (tu__run_folder_holds_run(path))
        return tu_fail(TU_INVALID,
                       "'%s' holds a run already: go on with it by --resume, or give another --out", path);
    DIR *folder = opendir(path);
    if (!folder && errno == ENOTDIR)
        return tu_fail(TU_INVALID, "'%s' is a file: expected a new or empty folder for --out", path);
    if (!folder) return tu_fail(TU_INVALID, "cannot use '%s' as run folder: %s", path, strerror(errno));
    entry_name strange = find_strange(folder, left_in_folder);
    closedir(folder);
    TU_TRY(check_checkpoints(path));
    if (!*strange.text) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%s' is no run folder, and not empty (it has '%s'): expected a new or empty folder for --out", path,
        strange.text);
}

tu_status tu__run_folder_furnish(const tu__run_folder *folder) {
    bool made;
    TU_TRY(make_folder(tu__path_in(folder->path, "graphs").text, &made));
    return make_folder(tu__path_in(folder->path, "checkpoints").text, &made);
}

static tu_status create_named(const char *path, tu__run_folder *folder) {
    bool made;
    TU_TRY(take_path(path, folder));
    TU_TRY(make_parents(folder->path));
    TU_TRY(make_folder(folder->path, &made));
    folder->made = made;
    if (!made) TU_TRY(check_unused(folder->path));
    TU_TRY(lock_folder(folder));
    tu_status status =
        made ? TU_OK : check_unused(folder->path); /* nobody began a run there before the lock */
    if (status != TU_OK) tu__run_folder_discard(folder);
    return status;
}

/* "resnet20" of "nets/resnet20.c": letters, digits, dots and dashes, the last part of a path without its epilogue. */
static void plain_name(const char *word, char *name, size_t size) {
    const char *slash = strrchr(word, '/');
    snprintf(name, size, "%s", slash && slash[1] ? slash + 1 : word);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = '\0';
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c)) *c = '-';
}

static tu_status create_numbered(const char *model, const char *set, tu__run_folder *folder) {
    char model_name[128], set_name[128], path[512];
    plain_name(model, model_name, sizeof model_name);
    plain_name(set, set_name, sizeof set_name);
    for (int number = 1; number <= MAX_NUMBERS; number++) {
        bool made;
        snprintf(path, sizeof path, "runs/%s-%s-%d", model_name, set_name, number);
        TU_TRY(make_parents(path));
        TU_TRY(make_folder(path, &made));
        if (!made) continue;
        tu_status status = create_named(path, folder);
        folder->made = true;
        return status;
    }
    return tu_fail(TU_INVALID, "there are %d runs of %s on %s in 'runs' already: give a name with --out",
                   MAX_NUMBERS, model_name, set_name);
}

tu_status tu__run_folder_create(const char *path, const char *model, const char *set,
                                tu__run_folder *folder) {
    *folder = (tu__run_folder){0};
    return path ? create_named(path, folder) : create_numbered(model, set, folder);
}

tu_status tu__run_folder_open(const char *path, tu__run_folder *folder) {
    TU_TRY(take_path(path, folder));
    if (!tu__run_folder_holds_run(folder->path))
        return tu_fail(TU_NOT_FOUND,
                       "'%s' is no run folder: it has no config.json; expected one that 'tutti train' made",
                       folder->path);
    TU_TRY(lock_folder(folder));
    sweep(folder->path);
    sweep(tu__path_in(folder->path, "graphs").text);
    sweep(tu__path_in(folder->path, "checkpoints").text);
    return TU_OK;
}
