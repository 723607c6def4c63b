/* Common definitions of all kernels: element types, compute types, fast division, reductions over a block.
 *
 * Elements are stored in nine types and computed in two: f32, bf16, f16, u8, i8 and truth in float, which represents
 * them exactly; f64, i32 and i64 in double. widen() loads; narrow<T>() rounds once, to nearest even, as
 * src/base/number.h defines it. No CUDA header is needed, so a machine needs only a driver and NVRTC.
 *
 * Compiled by NVRTC for a GPU, and by a C++ compiler with TU_EMULATED for tests without one.
 */
#ifndef TU_PRELUDE
#define TU_PRELUDE

#ifdef TU_EMULATED
#define __grid_constant__
#endif

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct truth { u8 byte; };
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

template <typename T> struct compute_type_of_element { typedef float type; };
template <> struct compute_type_of_element<f64> { typedef double type; };
template <> struct compute_type_of_element<i32> { typedef double type; };
template <> struct compute_type_of_element<i64> { typedef double type; };
/* The type in which values of T are computed. */
template <typename T> using compute_type = typename compute_type_of_element<T>::type;

/* ---- Loading ---- */

#ifndef TU_EMULATED
__device__ inline float half_to_float(u16 bits) {
    float x;
    asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "h"(bits));
    return x;
}
__device__ inline u16 float_to_half(float x) {
    u16 bits;
    asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

__device__ inline float widen(f32 x) { return x; }
__device__ inline double widen(f64 x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ inline float widen(f16 x) { return half_to_float(x.bits); }
__device__ inline double widen(i32 x) { return (double)x; }
__device__ inline double widen(i64 x) { return (double)x; }
__device__ inline float widen(u8 x) { return (float)x; }
__device__ inline float widen(i8 x) { return (float)x; }
__device__ inline float widen(truth x) { return x.byte ? 1.0f : 0.0f; }

/* ---- Storing ---- */

/* Rounds to odd (sticky last bit), so that the following rounding to 16 bits is not a double rounding. */
__device__ inline float to_odd(double x) {
    float f = __double2float_rz(x);
    u32 bits = __float_as_uint(f);
    if ((double)f != x && x == x && (bits & 0x7fffffffu) < 0x7f800000u) bits |= 1u;
    return __uint_as_float(bits);
}

template <typename T> struct storing;
template <> struct storing<f32> {
    static __device__ inline f32 of(float x) { return x; }
    static __device__ inline f32 of(double x) { return (float)x; }
};
template <> struct storing<f64> {
    static __device__ inline f64 of(float x) { return (double)x; }
    static __device__ inline f64 of(double x) { return x; }
};
template <> struct storing<bf16> {
    static __device__ inline bf16 of(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(TU_EMULATED)
        u16 short_bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(short_bits) : "f"(x));
        return bf16{short_bits};
#endif
        u32 bits = __float_as_uint(x);
        if (x != x) return bf16{(u16)((bits >> 16) | 0x40u)};
        return bf16{(u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
    }
    static __device__ inline bf16 of(double x) { return of(to_odd(x)); }
};
template <> struct storing<f16> {
    static __device__ inline f16 of(float x) { return f16{float_to_half(x)}; }
    static __device__ inline f16 of(double x) { return of(to_odd(x)); }
};
/* Integers are truncated and saturated; NaN becomes 0. */
template <> struct storing<i32> {
    static __device__ inline i32 of(double x) {
        return x != x ? 0 : x <= -2147483648.0 ? (i32)0x80000000 : x >= 2147483647.0 ? 0x7fffffff : (i32)x;
    }
    static __device__ inline i32 of(float x) { return of((double)x); }
};
template <> struct storing<i64> {
    static __device__ inline i64 of(double x) {
        return x != x                      ? 0
               : x <= -9223372036854775808.0 ? (i64)0x8000000000000000ull
               : x >= 9223372036854775808.0  ? 0x7fffffffffffffffll
                                             : (i64)x;
    }
    static __device__ inline i64 of(float x) { return of((double)x); }
};
template <> struct storing<u8> {
    static __device__ inline u8 of(double x) { return x != x || x <= 0 ? 0 : x >= 255 ? 255 : (u8)x; }
    static __device__ inline u8 of(float x) { return of((double)x); }
};
template <> struct storing<i8> {
    static __device__ inline i8 of(double x) { return x != x ? 0 : x <= -128 ? -128 : x >= 127 ? 127 : (i8)x; }
    static __device__ inline i8 of(float x) { return of((double)x); }
};
template <> struct storing<truth> {
    static __device__ inline truth of(float x) { return truth{(u8)(x != 0)}; }
    static __device__ inline truth of(double x) { return truth{(u8)(x != 0)}; }
};
template <typename T, typename C> __device__ inline T narrow(C x) { return storing<T>::of(x); }
/* Returns the value after storing x as T and loading it again. */
template <typename T, typename C> __device__ inline C rounded(C x) { return (C)widen(narrow<T>(x)); }

/* ---- Pack: N elements in one aligned word ---- */

template <typename T, int N> struct alignas(sizeof(T) * N) pack { T element[N]; };

/* ---- Index of a thread in the grid, and number of threads of the grid ---- */

__device__ inline i64 global_thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline i64 grid_thread_count() { return (i64)gridDim.x * blockDim.x; }

/* ---- Division by a number known in advance (src/device/cuda/runtime/cuda.h), for operands below 2^31 ---- */

struct fast_divmod { u32 value, multiplier, shift; }; /* value: the divisor */
__device__ inline u32 divide(u32 n, fast_divmod d) { return d.value == 1 ? n : __umulhi(n, d.multiplier) >> d.shift; }
/* Replaces n by n / d and returns the remainder. */
__device__ inline u32 divmod_in_place(u32 &n, fast_divmod d) {
    u32 q = divide(n, d), r = n - q * d.value;
    n = q;
    return r;
}

/* ---- Reductions over the threads of a warp and of a block, in a fixed order ---- */

template <typename C, typename F> __device__ inline C warp_reduce(C x, F f) {
    for (int distance = 16; distance; distance >>= 1) x = f(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
/* All threads of the block get the result. `shared`: shared memory for 32 values; blockDim.x must be a multiple of
 * 32. */
template <typename C, typename F> __device__ inline C block_reduce(C x, F f, C *shared) {
    x = warp_reduce(x, f);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = shared[0];
    for (int i = 1; i < warps; i++) x = f(x, shared[i]);
    return x;
}
struct adding { template <typename C> __device__ C operator()(C a, C b) const { return a + b; } };
/* NaN wins, as in the reference kernels. */
struct larger { template <typename C> __device__ C operator()(C a, C b) const { return a > b || a != a ? a : b; } };
struct smaller { template <typename C> __device__ C operator()(C a, C b) const { return a < b || a != a ? a : b; } };

#endif
