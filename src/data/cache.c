/* The cache folder. See cache.h. */
#include "data/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/disk.h"
#include "base/open_file.h"
#include "base/save.h"
#include "data/progress.h"

tu_status tu__join_path(const char *folder, const char *name, tu__path *path) {
    char joined[PATH_MAX];
    int length = snprintf(joined, sizeof joined, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_MAX)
        return tu_fail(TU_INVALID, "the path '%.60s.../%.60s' is longer than %d characters", folder, name,
                       PATH_MAX - 1);
    memcpy(path->text, joined, sizeof joined);
    return TU_OK;
}

/* The XDG specification says to ignore a folder that is not absolute. */
tu_status tu__cache_folder(tu__path *folder) {
    const char *tutti_data = getenv("TUTTI_DATA"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (tutti_data && *tutti_data) {
        if (strlen(tutti_data) >= PATH_MAX)
            return tu_fail(TU_INVALID, "TUTTI_DATA is longer than %d characters", PATH_MAX - 1);
        snprintf(folder->text, sizeof folder->text, "%s", tutti_data);
        return TU_OK;
    }
    if (cache && *cache == '/') return tu__join_path(cache, "tutti", folder);
    if (home && *home) return tu__join_path(home, ".cache/tutti", folder);
    return tu_fail(TU_NOT_FOUND, "no folder for data sets: set the environment variable TUTTI_DATA to one");
}

tu_status tu__make_folders(const char *path) {
    char prefix[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof prefix) return tu_fail(TU_INVALID, "the path '%.60s...' is too long", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        snprintf(prefix, i + 1, "%s", path);
        if (tu__disk_in_use()->mkdir(AT_FDCWD, prefix, 0777) == 0 || errno == EEXIST) continue;
        int reason = errno;
        if (access(prefix, F_OK) == 0)
            continue; /* on a read-only file system mkdir fails with EROFS even if the folder exists */
        return tu_fail(TU_IO, "cannot create the folder '%s': %s; set TUTTI_DATA to a writable folder",
                       prefix, strerror(reason));
    }
    return TU_OK;
}

static tu_status wait_for_lock(const char *path, const tu_dataset_options *options, int lock) {
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) return TU_OK;
    tu__report_progress(options, "waiting for another process that downloads or converts data", 0, 0);
    while (flock(lock, LOCK_EX) != 0)
        if (errno != EINTR) return tu_fail(TU_IO, "cannot lock '%s': %s", path, strerror(errno));
    return TU_OK;
}

tu_status tu__lock_folder(const char *folder, const tu_dataset_options *options, int *lock) {
    tu__path path;
    *lock = -1;
    TU_TRY(tu__join_path(folder, ".lock", &path));
    int fd = tu__open_to_write(folder, ".lock", O_RDWR | O_CREAT);
    if (fd < 0)
        return tu_fail(TU_IO, "cannot write '%s': %s; set TUTTI_DATA to a writable folder", path.text,
                       tu__file_reason(errno));
    tu_status status = wait_for_lock(path.text, options, fd);
    if (status != TU_OK) {
        close(fd);
        return status;
    }
    tu__remove_unfinished(folder, "");
    *lock = fd;
    return TU_OK;
}
