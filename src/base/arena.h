/* An arena: an allocator for many small objects that are freed together.
 *
 * A graph allocates its nodes, names and attributes from one arena, so that freeing the graph frees a few blocks. */
#ifndef TU__BASE_ARENA_H
#define TU__BASE_ARENA_H

#include <stddef.h>

#include "base/shared.h"

typedef struct tu__arena {
    struct tu__arena_block *blocks; /* newest first */
    const char *purpose;            /* for the out-of-memory message */
} tu__arena;

/* Returns zeroed memory aligned to 16 bytes, or NULL after setting the message if memory runs out. */
TU__SHARED void *tu__arena_alloc(tu__arena *arena, size_t bytes);
TU__SHARED void *tu__arena_copy(tu__arena *arena, const void *bytes, size_t size);
TU__SHARED char *tu__arena_string(tu__arena *arena, const char *text);
TU__SHARED void tu__arena_free(tu__arena *arena);

#endif
