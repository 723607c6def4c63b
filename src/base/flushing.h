/* Flushing of subnormal floating-point numbers to zero (FTZ and DAZ), a setting of the calling thread.
 *
 * Some processors are a hundred times slower with subnormal numbers. Training produces them: a momentum whose
 * gradient is zero shrinks by its factor in every step, and rounding keeps it from reaching zero. */
#ifndef TU__BASE_FLUSHING_H
#define TU__BASE_FLUSHING_H

#ifdef __SSE2__

#include <xmmintrin.h>

enum { TU__FLUSH_ALL = 0x8040 }; /* FTZ (results) and DAZ (operands) */

static inline unsigned tu__flushing(void) {
    return _mm_getcsr() & TU__FLUSH_ALL;
}

static inline void tu__set_flushing(unsigned bits) {
    unsigned mode = _mm_getcsr(), wanted = (mode & ~(unsigned)TU__FLUSH_ALL) | bits;
    if (mode != wanted) _mm_setcsr(wanted);
}

#else /* other processors keep subnormal numbers */

enum { TU__FLUSH_ALL = 0 };

static inline unsigned tu__flushing(void) {
    return 0;
}

static inline void tu__set_flushing(unsigned bits) {
    (void)bits;
}

#endif

#endif
