/* The engine's allocator: malloc with counters and fault injection. See alloc.h. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "base/status.h"

static atomic_uint_least64_t allocations;
static atomic_int_least64_t live;
static atomic_uint_least64_t fail_countdown; /* 0: never fail; 1: fail from now on */

static int should_fail(void) {
    uint64_t remaining = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    if (remaining == 0) return 0;
    if (remaining == 1) return 1;
    atomic_store_explicit(&fail_countdown, remaining - 1, memory_order_relaxed);
    return 0;
}

/* Counts a new block and returns it. If `block` is NULL, sets the out-of-memory message. */
static void *count_block(void *block, size_t bytes, const char *purpose) {
    if (!block) {
        tu__fail_memory(purpose, bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return block;
}

void *tu__alloc(size_t bytes, const char *purpose) {
    return count_block(should_fail() ? NULL : calloc(1, bytes ? bytes : 1), bytes, purpose);
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
    void *grown = should_fail() ? NULL : realloc(block, bytes ? bytes : 1);
    if (!grown) {
        tu__fail_memory(purpose, bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return grown;
}

void tu__free(void *block) {
    if (!block) return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(block);
}

/* Large blocks use huge pages: a step touches more memory than the TLB covers with 4 KiB pages, and TLB misses are
 * twice as expensive under a hypervisor. The remainder that does not fill a huge page uses small pages, so that no
 * memory is wasted. */
enum { CACHE_LINE = 64, PAGE = 4096, HUGE_PAGE = 2 << 20 };

static size_t alignment_of(size_t bytes) {
    if (bytes >= HUGE_PAGE) return HUGE_PAGE;
    return bytes >= TU__PINNABLE_BYTES ? PAGE : CACHE_LINE;
}

static void *allocate_aligned(size_t bytes) {
    void *block;
    if (posix_memalign(&block, alignment_of(bytes), bytes ? bytes : CACHE_LINE)) return NULL;
#ifdef MADV_HUGEPAGE
    size_t huge_bytes = bytes & ~(size_t)(HUGE_PAGE - 1);
    if (huge_bytes) (void)madvise(block, huge_bytes, MADV_HUGEPAGE); /* a failure only costs speed */
#endif
    return block;
}

void *tu__alloc_aligned(size_t bytes, const char *purpose) {
    return count_block(should_fail() ? NULL : allocate_aligned(bytes), bytes, purpose);
}

void tu__free_aligned(void *block) {
    tu__free(block);
}

uint64_t tu__alloc_count(void) {
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

int64_t tu__alloc_live(void) {
    return atomic_load_explicit(&live, memory_order_relaxed);
}

void tu__alloc_fail_at(uint64_t nth) {
    atomic_store_explicit(&fail_countdown, nth, memory_order_relaxed);
}
