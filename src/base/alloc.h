/* The engine's allocator. All of Tutti's heap memory is allocated here.
 *
 * Tests use it to make the Nth allocation fail for every N, to count the allocations of a step, and to find leaks. */
#ifndef TU__BASE_ALLOC_H
#define TU__BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/shared.h"

/* Returns zeroed memory, or NULL after setting this thread's message ("out of memory: … for <purpose>"). */
TU__SHARED void *tu__alloc(size_t bytes, const char *purpose);
/* Allocates count * size bytes with an overflow check. */
TU__SHARED void *tu__alloc_array(size_t count, size_t size, const char *purpose);
/* Resizes a block; on failure the old block stays valid. New bytes are not zeroed. */
TU__SHARED void *tu__realloc(void *block, size_t bytes, const char *purpose);
TU__SHARED void tu__free(void *block);
/* Allocates memory for tensors: 64-byte aligned, not zeroed, freed by tu__free_aligned. Blocks of at least
 * TU__PINNABLE_BYTES begin on a page boundary and share no page, so that each can be pinned separately. */
enum { TU__PINNABLE_BYTES = 64 << 10 };
TU__SHARED void *tu__alloc_aligned(size_t bytes, const char *purpose);
TU__SHARED void tu__free_aligned(void *block);

/* Return the number of allocations since the process started, and the number of blocks that are not freed yet. */
TU__SHARED uint64_t tu__alloc_count(void);
TU__SHARED int64_t tu__alloc_live(void);

/* For tests, which link the static archive (the shared library does not export it): makes the `nth` allocation from now on
 * (1: the next) and all later ones fail; 0 turns this off. */
void tu__alloc_fail_at(uint64_t nth);

#endif
