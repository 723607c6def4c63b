/* Compiling a user's C file into a shared object. */
#ifndef TU__NETWORK_COMPILE_H
#define TU__NETWORK_COMPILE_H

#include <limits.h>

#include <tutti/status.h>

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

typedef struct tu__compiled {
    char folder[PATH_MAX / 2]; /* a new folder in $TMPDIR or /tmp */
    char object[PATH_MAX];     /* the shared object in it */
} tu__compiled;

/* Compiles the file with $CC (default: cc). If it fails, the message contains the compiler's output. */
tu_status tu__compile(const char *source, tu__compiled *compiled);
/* Deletes the object and the folder. An object that was loaded stays usable. */
void tu__compiled_remove(const tu__compiled *compiled);

#endif
