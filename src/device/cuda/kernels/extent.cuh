/* Indices split by extents, in 32 bits where they fit and in 64 where they do not, and the words that elements are
 * moved as. A kernel is a template on the type of its indices, u32 or u64: tensors of 2^31 elements and more are rare
 * and pay for a true division; all others multiply and shift. */
#ifndef TU_EXTENT
#define TU_EXTENT

#include "prelude.cuh"
#include "extent_args.h"

/* n becomes n / size; the remainder is returned. */
__device__ inline u32 split_off(u32 &n, const extent &e) { return divide_off(n, e.by); }
__device__ inline u64 split_off(u64 &n, const extent &e) {
    u64 q = n / (u64)e.size, r = n - q * (u64)e.size;
    n = q;
    return r;
}

/* Moving an element asks for its size alone: 1, 2, 4, 8 bytes, or 16 for several at once. */
typedef pack<u64, 2> u128;

/* A word full of one element: `pattern` is that element, repeated over 8 bytes. */
template <typename T> struct repeating {
    static __device__ inline T of(u64 pattern) { return (T)pattern; }
};
template <> struct repeating<u128> {
    static __device__ inline u128 of(u64 pattern) { return u128{{pattern, pattern}}; }
};

#endif
