/* Finds the cache folder. See cache_folder.h. */
#include "device/cuda/runtime/cache_folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open_file.h"

enum { MAX_BYTES = 1 << 28 };

bool cuda_cache_path(const char *name, char *path, size_t capacity) {
    const char *configured = getenv("TUTTI_KERNELS"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = -1;
    if (configured)
        length = *configured ? snprintf(path, capacity, "%s/%s", configured, name) : -1;
    else if (cache && *cache == '/')
        length = snprintf(path, capacity, "%s/tutti/kernels/%s", cache, name);
    else if (home && *home == '/')
        length = snprintf(path, capacity, "%s/.cache/tutti/kernels/%s", home, name);
    return length > 0 && (size_t)length < capacity;
}

bool cuda_cache_read(const char *name, tu__text *text) {
    char path[PATH_MAX];
    struct stat info;
    int fd;
    *text = (tu__text){0};
    if (!cuda_cache_path(name, path, sizeof path) || tu__open_file(NULL, path, &fd, &info) != TU_OK)
        return false;
    close(fd);
    bool is_own = (info.st_uid == geteuid() || info.st_uid == 0) && !(info.st_mode & S_IWOTH);
    bool is_read = is_own && tu__read_file(NULL, path, MAX_BYTES, text) == TU_OK;
    if (!is_read) tu__text_free(text);
    return is_read;
}

void cuda_create_parent_folders(const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
}
