/* The engine's own allocator: malloc with counters and a switch that makes it fail. See alloc.h for why. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "base/status.h"

static atomic_uint_least64_t handed_out;
static atomic_int_least64_t live;
static atomic_uint_least64_t countdown; /* 0: never fail; 1: fail now and stay failing */

static int must_fail(void) {
    uint64_t left = atomic_load_explicit(&countdown, memory_order_relaxed);
    if (left == 0) return 0;
    if (left == 1) return 1;
    atomic_store_explicit(&countdown, left - 1, memory_order_relaxed);
    return 0;
}

/* Counts a new block; where there is none, fails. */
static void *hand_out(void *block, size_t bytes, const char *purpose) {
    if (!block) {
        tu__fail_memory(purpose, bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&handed_out, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return block;
}

void *tu__alloc(size_t bytes, const char *purpose) {
    return hand_out(must_fail() ? NULL : calloc(1, bytes ? bytes : 1), bytes, purpose);
}

void *tu__alloc_array(size_t count, size_t size, const char *purpose) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        tu__fail_memory(purpose, SIZE_MAX);
        return NULL;
    }
    return tu__alloc(bytes, purpose);
}

void *tu__realloc(void *block, size_t bytes, const char *purpose) {
    if (!block) return tu__alloc(bytes, purpose);
    void *grown = must_fail() ? NULL : realloc(block, bytes ? bytes : 1);
    if (!grown) {
        tu__fail_memory(purpose, bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&handed_out, 1, memory_order_relaxed);
    return grown;
}

void tu__free(void *block) {
    if (!block) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(block);
}

/* Large blocks ask for large pages: a step walks through more memory than the processor keeps addresses of small ones
 * for, and under a hypervisor each address missing costs twice. What does not fill a large page gets small ones, so
 * that no more is taken than was asked for. */
enum { LINE = 64, PAGE = 4096, LARGE_PAGE = 2 << 20 };

static size_t alignment_of(size_t bytes) {
    if (bytes >= LARGE_PAGE) return LARGE_PAGE;
    return bytes >= TU__PINNABLE_BYTES ? PAGE : LINE;
}

static void *allocate_aligned(size_t bytes) {
    void *block;
    if (posix_memalign(&block, alignment_of(bytes), bytes ? bytes : LINE)) return NULL;
#ifdef MADV_HUGEPAGE
    size_t whole = bytes & ~(size_t)(LARGE_PAGE - 1);
    if (whole) (void)madvise(block, whole, MADV_HUGEPAGE); /* as good without */
#endif
    return block;
}

void *tu__alloc_aligned(size_t bytes, const char *purpose) {
    return hand_out(must_fail() ? NULL : allocate_aligned(bytes), bytes, purpose);
}

void tu__free_aligned(void *block) {
    tu__free(block);
}

uint64_t tu__alloc_count(void) {
    return atomic_load_explicit(&handed_out, memory_order_relaxed);
}

int64_t tu__alloc_live(void) {
    return atomic_load_explicit(&live, memory_order_relaxed);
}

void tu__alloc_fail_at(uint64_t nth) {
    atomic_store_explicit(&countdown, nth, memory_order_relaxed);
}
