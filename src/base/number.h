/* Converts elements of every type to doubles and back, for the reference device and for constants.
 *
 * A double represents every value of f32, bf16, f16, i32, u8, i8 and bool exactly, and i64 up to 2^53. Stores round once,
 * directly from the double to the nearest value of the type, ties to even. Values too large for a float type become
 * infinity; NaN stays NaN. Integers are truncated and saturated, and NaN becomes 0. bool is x != 0, so NaN is true.
 *
 * Arrays need no alignment. An unknown type, which a verified graph cannot contain, loads zeros and stores nothing.
 */
#ifndef TU__BASE_NUMBER_H
#define TU__BASE_NUMBER_H

#include <tutti/types.h>

#include "base/shared.h"

/* Returns the type of means, variances and other statistics of values of `dtype`: f32 for bf16 and f16. */
static inline tu_dtype tu__statistics_dtype(tu_dtype dtype) {
    return dtype == TU_BF16 || dtype == TU_F16 ? TU_F32 : dtype;
}

/* Returns the value that storing `x` and loading it again would give. */
TU__SHARED double tu__round_to(tu_dtype dtype, double x);
TU__SHARED void tu__round_array(tu_dtype dtype, double *x, int64_t count);

TU__SHARED double tu__load(tu_dtype dtype, const void *base, int64_t index);
TU__SHARED void tu__store(tu_dtype dtype, void *base, int64_t index, double x);

TU__SHARED void tu__load_array(tu_dtype dtype, const void *source, int64_t count, double *target);
TU__SHARED void tu__store_array(tu_dtype dtype, const double *source, int64_t count, void *target);

#endif
