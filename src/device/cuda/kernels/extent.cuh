/* Splits indices by sizes, in 32 bits if they fit, else in 64, and defines the words that elements are copied as.
 * Kernels are templates on the index type, u32 or u64: tensors of 2^31 elements and more are rare and use true
 * divisions; all others multiply and shift. */
#ifndef TU_EXTENT
#define TU_EXTENT

#include "prelude.cuh"
#include "extent_args.h"

/* Replaces n by n / size and returns the remainder. */
__device__ inline u32 divmod_in_place(u32 &n, const extent &e) { return divmod_in_place(n, e.divmod); }
__device__ inline u64 divmod_in_place(u64 &n, const extent &e) {
    u64 q = n / (u64)e.size, r = n - q * (u64)e.size;
    n = q;
    return r;
}

/* Copies depend only on the size of an element: 1, 2, 4 or 8 bytes, or 16 for several at once. */
typedef pack<u64, 2> u128;

/* A word filled with one element: `pattern` is that element, repeated over 8 bytes. */
template <typename T> struct repeating {
    static __device__ inline T of(u64 pattern) { return (T)pattern; }
};
template <> struct repeating<u128> {
    static __device__ inline u128 of(u64 pattern) { return u128{{pattern, pattern}}; }
};

#endif
