/* Tests of file names by their suffix.
 *
 * Header-only because the command-line tool uses it too and can link only the library's public functions. */
#ifndef TU__BASE_FILE_NAME_H
#define TU__BASE_FILE_NAME_H

#include <stdbool.h>
#include <string.h>

/* True if `name` ends with `suffix` and is longer than it. */
static inline bool tu__ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

/* True if `model` is the path of a C file or shared object for tu_model_load rather than the name of a model. */
static inline bool tu__names_code(const char *model) {
    return tu__ends_with(model, ".c") || tu__ends_with(model, ".so");
}

#endif
