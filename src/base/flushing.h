/* Whether the processor takes numbers too small to be normal for zeros: a setting of the calling thread alone.
 *
 * Some processors take a hundred times as long for such a number as for any other. Training makes them: momentum that
 * nothing adds to any more shrinks by its factor in every step, and rounding keeps it from ever getting to zero. */
#ifndef TU__BASE_FLUSHING_H
#define TU__BASE_FLUSHING_H

#include <stdbool.h>

#ifdef __SSE2__

#include <xmmintrin.h>

enum { TU__FLUSH_BITS = 0x8040 }; /* of results and of operands */

static inline bool tu__flushing(void) {
    return (_mm_getcsr() & TU__FLUSH_BITS) == TU__FLUSH_BITS;
}

/* Returns how it was. */
static inline bool tu__set_flushing(bool on) {
    unsigned mode = _mm_getcsr();
    bool before = (mode & TU__FLUSH_BITS) == TU__FLUSH_BITS;
    if (before != on) _mm_setcsr(on ? mode | TU__FLUSH_BITS : mode & ~(unsigned)TU__FLUSH_BITS);
    return before;
}

#else /* elsewhere they are computed with as they are */

static inline bool tu__flushing(void) {
    return false;
}

static inline bool tu__set_flushing(bool on) {
    (void)on;
    return false;
}

#endif

#endif
