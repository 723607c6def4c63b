/* Compiling a user's C file into a shared object. */
#ifndef TU__MODEL_COMPILE_H
#define TU__MODEL_COMPILE_H

#include <limits.h>

#include <tutti/status.h>

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

typedef struct tu__compiled {
    char folder[PATH_MAX / 2]; /* of its own, in the system's folder for passing files */
    char object[PATH_MAX];     /* the shared object in it */
} tu__compiled;

/* Runs $CC, else cc, on the file. What it says is in the message when it fails. */
tu_status tu__compile(const char *source, tu__compiled *compiled);
/* Removes both from the disk; an object loaded meanwhile stays usable. */
void tu__compiled_remove(const tu__compiled *compiled);

#endif
