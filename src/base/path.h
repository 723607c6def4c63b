/* A path in a structure, so that functions can return one and callers need no buffer sizes. */
#ifndef TU__BASE_PATH_H
#define TU__BASE_PATH_H

#include <limits.h>

typedef struct tu__path {
    char text[PATH_MAX];
} tu__path;

#endif
