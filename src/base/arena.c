/* The arena allocator: bump allocation in blocks whose size doubles up to LARGEST_BLOCK. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

struct tu__arena_block {
    struct tu__arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

static struct tu__arena_block *block_for(tu__arena *arena, size_t bytes) {
    struct tu__arena_block *newest = arena->blocks;
    if (newest && newest->size - newest->used >= bytes) return newest;
    size_t size = newest ? newest->size * 2 : FIRST_BLOCK;
    if (size > LARGEST_BLOCK) size = LARGEST_BLOCK;
    if (size < bytes) size = bytes;
    struct tu__arena_block *block =
        tu__alloc(sizeof *block + size, arena->purpose ? arena->purpose : "an arena");
    if (!block) return NULL;
    block->size = size;
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

void *tu__arena_alloc(tu__arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        tu__fail_memory(arena->purpose ? arena->purpose : "an arena", bytes);
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    struct tu__arena_block *block = block_for(arena, bytes);
    if (!block) return NULL;
    void *out = block->bytes + block->used;
    block->used += bytes;
    return out;
}

void *tu__arena_copy(tu__arena *arena, const void *bytes, size_t size) {
    void *out = tu__arena_alloc(arena, size);
    if (out && size) memcpy(out, bytes, size);
    return out;
}

char *tu__arena_string(tu__arena *arena, const char *text) {
    return tu__arena_copy(arena, text, strlen(text) + 1);
}

void tu__arena_free(tu__arena *arena) {
    while (arena->blocks) {
        struct tu__arena_block *block = arena->blocks;
        arena->blocks = block->next;
        tu__free(block);
    }
}
