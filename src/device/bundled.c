/* Finds plug-ins that are installed with the engine.
 *
 * The CUDA plug-in is in the folder of libtutti.so, or in its subfolder tutti/ (Debian packages). If the engine is
 * linked statically, as in the tests, the plug-in is in the folder of the program or one folder up, where the build
 * puts it. The engine checks only these paths, so a machine without the plug-in loses no time. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"

/* Removes the last component of a path; false if there is none. */
static bool remove_last_component(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

/* Returns the absolute path of the file with this code: the shared library, or (`*is_program`) the program itself. */
static bool path_of_this_code(char path[PATH_MAX], bool *is_program) {
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((const void *)&tu__cpu_api, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return false;
    *is_program = !map->l_name[0];
    return realpath(*is_program ? "/proc/self/exe" : info.dli_fname, path) != NULL;
}

bool tu__bundled_plugin(const char *file, size_t capacity, char *path) {
    char folder[PATH_MAX];
    bool is_program;
    if (!path_of_this_code(folder, &is_program)) return false;
    static const char *const subfolders[] = {"", "tutti/"};
    for (int tries = is_program ? 2 : 1; tries && remove_last_component(folder); tries--)
        for (size_t i = 0; i < sizeof subfolders / sizeof *subfolders; i++) {
            int length = snprintf(path, capacity, "%s/%s%s", folder, subfolders[i], file);
            if (length > 0 && (size_t)length < capacity && access(path, F_OK) == 0) return true;
        }
    return false;
}
