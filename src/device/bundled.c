/* Plug-ins that come with the engine: found beside it, wherever it was installed or built.
 *
 * Nobody should have to say where the CUDA device is. It lies in the folder of libtutti.so, or in its subfolder tutti/,
 * where a Debian package has plug-ins; a program that has the engine linked in statically, as the tests have, finds it
 * beside itself or one folder up, where the build puts it. The engine asks for a file and tries nothing else, so that a
 * machine without the plug-in pays for a few looks. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"

/* Cuts a path's last name off; false where there is none. */
static bool go_up(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

/* The file this code is in, as a whole path: the shared library, or (`*is_program`) the program itself. */
static bool own_file(char path[PATH_MAX], bool *is_program) {
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((const void *)&tu__cpu_api, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return false;
    *is_program = !map->l_name[0];
    return realpath(*is_program ? "/proc/self/exe" : info.dli_fname, path) != NULL;
}

bool tu__bundled_plugin(const char *file, size_t capacity, char *path) {
    char folder[PATH_MAX];
    bool is_program;
    if (!own_file(folder, &is_program)) return false;
    static const char *const subfolders[] = {"", "tutti/"};
    for (int tries = is_program ? 2 : 1; tries && go_up(folder); tries--)
        for (size_t i = 0; i < sizeof subfolders / sizeof *subfolders; i++) {
            int length = snprintf(path, capacity, "%s/%s%s", folder, subfolders[i], file);
            if (length > 0 && (size_t)length < capacity && access(path, F_OK) == 0) return true;
        }
    return false;
}
