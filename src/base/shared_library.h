/* Opens shared libraries: plug-ins and networks. A statically linked program cannot. */
#ifndef TU__BASE_SHARED_LIBRARY_H
#define TU__BASE_SHARED_LIBRARY_H

#include <dlfcn.h>
#include <stddef.h>

#ifdef TUTTI_STATIC

static inline void *tu__shared_library_open(const char *path) {
    (void)path;
    return NULL;
}

static inline const char *tu__shared_library_error(void) {
    return "this program is statically linked and cannot load shared libraries";
}

#else

/* Returns NULL if it fails; then tu__shared_library_error has the reason. */
static inline void *tu__shared_library_open(const char *path) {
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static inline const char *tu__shared_library_error(void) {
    return dlerror();
}

#endif

#endif
