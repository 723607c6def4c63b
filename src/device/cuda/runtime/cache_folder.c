/* Finds the cache folder. See cache_folder.h. */
#include "device/cuda/runtime/cache_folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

void cuda_create_parent_folders(const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0777);
        *slash = '/';
    }
}
