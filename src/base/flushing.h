/* Whether the processor takes numbers too small to be normal for zeros: a setting of the calling thread alone.
 *
 * Some processors take a hundred times as long for such a number as for any other. Training makes them: momentum that
 * nothing adds to any more shrinks by its factor in every step, and rounding keeps it from ever getting to zero. */
#ifndef TU__BASE_FLUSHING_H
#define TU__BASE_FLUSHING_H

#ifdef __SSE2__

#include <xmmintrin.h>

enum { TU__FLUSH_ALL = 0x8040 }; /* a bit for results, one for operands */

static inline unsigned tu__flushing(void) {
    return _mm_getcsr() & TU__FLUSH_ALL;
}

static inline void tu__set_flushing(unsigned bits) {
    unsigned mode = _mm_getcsr(), wanted = (mode & ~(unsigned)TU__FLUSH_ALL) | bits;
    if (mode != wanted) _mm_setcsr(wanted);
}

#else /* elsewhere they are computed with as they are */

enum { TU__FLUSH_ALL = 0 };

static inline unsigned tu__flushing(void) {
    return 0;
}

static inline void tu__set_flushing(unsigned bits) {
    (void)bits;
}

#endif

#endif
