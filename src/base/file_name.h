/* Tests of file names. */
#ifndef TU__BASE_FILE_NAME_H
#define TU__BASE_FILE_NAME_H

#include <stdbool.h>
#include <string.h>

/* Returns true if the name is longer than `suffix` and ends with it. */
static inline bool tu__ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

#endif
