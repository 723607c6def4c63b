/* What the name of a file says about it.
 *
 * A header alone: library and command both ask, and the command links nothing of the library but its public functions. */
#ifndef TU__BASE_FILE_NAME_H
#define TU__BASE_FILE_NAME_H

#include <stdbool.h>
#include <string.h>

/* Whether something stands before `epilogue`, and the name ends with it. */
static inline bool tu__ends_with(const char *name, const char *epilogue) {
    size_t length = strlen(name), tail = strlen(epilogue);
    return length > tail && strcmp(name + length - tail, epilogue) == 0;
}

/* Whether a model is named by a file of code, which would be compiled or loaded (tu_model_load), rather than by its name. */
static inline bool tu__names_code(const char *model) {
    return tu__ends_with(model, ".c") || tu__ends_with(model, ".so");
}

#endif
