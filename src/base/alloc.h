/* The engine's own allocator: every block Tutti takes for itself comes from here.
 *
 * One place makes three things possible: tests that fail the Nth allocation for every N, a count of the
 * allocations a step makes, and a count of the blocks still held when everything was freed. */
#ifndef TU__BASE_ALLOC_H
#define TU__BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/shared.h"

/* Zeroed memory, or NULL with this thread's message set ("out of memory: … for <purpose>"). */
TU__SHARED void *tu__alloc(size_t bytes, const char *purpose);
/* count * size with an overflow check. */
TU__SHARED void *tu__alloc_array(size_t count, size_t size, const char *purpose);
/* Grows a block; the old one stays valid when this fails. New bytes are not zeroed. */
TU__SHARED void *tu__realloc(void *block, size_t bytes, const char *purpose);
TU__SHARED void tu__free(void *block);
/* Tensors: 64-byte aligned, not zeroed. A pair of their own. From TU__PINNABLE_BYTES on a block begins on a page, so that no
 * two of them share one: each can be pinned by itself. */
enum { TU__PINNABLE_BYTES = 64 << 10 };
TU__SHARED void *tu__alloc_aligned(size_t bytes, const char *purpose);
TU__SHARED void tu__free_aligned(void *block);

/* Blocks handed out since the program started, and blocks not yet freed. */
TU__SHARED uint64_t tu__alloc_count(void);
TU__SHARED int64_t tu__alloc_live(void);

/* Makes the `nth` allocation from now on (1 is the next) and all later ones fail; 0 turns this off. For tests, which link
 * the static archive: the shared library does not export it. */
void tu__alloc_fail_at(uint64_t nth);

#endif
