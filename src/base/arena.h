/* An arena: many small objects that live and die together.
 *
 * A graph's nodes, names and attributes share one arena, so freeing a graph is freeing a few blocks and no object
 * of it can be leaked or freed twice. */
#ifndef TU__BASE_ARENA_H
#define TU__BASE_ARENA_H

#include <stddef.h>

typedef struct tu__arena {
    struct tu__arena_block *blocks; /* newest first */
    const char *purpose;            /* named in the message when memory runs out */
} tu__arena;

/* Zeroed, aligned to 16 bytes; NULL (message set) when memory runs out. */
void *tu__arena_alloc(tu__arena *arena, size_t bytes);
void *tu__arena_copy(tu__arena *arena, const void *bytes, size_t size);
char *tu__arena_string(tu__arena *arena, const char *text);
void tu__arena_free(tu__arena *arena);

#endif
