/* An arena: many small objects that live and die together.
 *
 * A graph's nodes, names and attributes share one arena, so freeing a graph is freeing a few blocks and no object
 * of it can be leaked or freed twice. */
#ifndef TU__BASE_ARENA_H
#define TU__BASE_ARENA_H

#include <stddef.h>

#include "base/shared.h"

typedef struct tu__arena {
    struct tu__arena_block *blocks; /* newest first */
    const char *purpose;            /* named in the message when memory runs out */
} tu__arena;

/* Zeroed, aligned to 16 bytes; NULL (message set) when memory runs out. */
TU__SHARED void *tu__arena_alloc(tu__arena *arena, size_t bytes);
TU__SHARED void *tu__arena_copy(tu__arena *arena, const void *bytes, size_t size);
TU__SHARED char *tu__arena_string(tu__arena *arena, const char *text);
TU__SHARED void tu__arena_free(tu__arena *arena);

#endif
