/* Device-side CUDA for kernels compiled for the host: CUDA's keywords, built-in variables, barriers, shuffles and
 * intrinsics, in plain C++.
 *
 * The fake NVRTC puts half.h and this text before a kernel's source. It includes nothing, so that kernels cannot use
 * what the real compiler would not provide, and hundreds of instances compile quickly. The threads of a block are
 * fibers of grid.cpp; barriers and shuffles call it through the functions in `emulated`.
 */
#ifndef EMULATED_DEVICE_CUH
#define EMULATED_DEVICE_CUH

#define __CUDACC_RTC__ 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
/* Blocks run one after another, so static memory serves as shared memory. Statics without an initialiser are in
 * .bss, which the grid fills with 0xff before each block. (`extern __shared__` is rewritten by the fake NVRTC:
 * nvrtc.cpp.) */
#define __shared__ static

typedef decltype(sizeof 0) size_t;

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };

/* Filled by grid.cpp; grid.h has the same structure. */
struct emulated_state {
    uint3 thread, block;
    dim3 block_size, grid_size;
    void *shared;
    void (*barrier)(int line);
    /* Waits for the other lanes of `mask`, then returns the value that lane `source` passed. */
    unsigned long long (*exchange)(unsigned mask, unsigned long long value, int source, int line);
    /* Waits for them too, then returns a bit for each lane of `mask` that passed a value other than 0. */
    unsigned (*vote)(unsigned mask, int value, int line);
};
/* In .data, because .bss is shared memory. */
extern "C" __attribute__((visibility("default"), section(".data"))) emulated_state emulated = {};

#define threadIdx emulated.thread
#define blockIdx emulated.block
#define blockDim emulated.block_size
#define gridDim emulated.grid_size
#define warpSize 32

/* ---- Synchronisation ---- */

#define __syncthreads() emulated.barrier(__LINE__)
#define __syncwarp(...) emulated_syncwarp(__LINE__, ##__VA_ARGS__)
inline void emulated_syncwarp(int line, unsigned mask = 0xffffffffu) { emulated.vote(mask, 0, line); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

inline int emulated_lane() {
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    return (int)(thread & 31u);
}
template <typename T> inline T emulated_shuffle(int line, unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = emulated.exchange(mask, bits, source, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename T> inline T emulated_shfl(int line, unsigned mask, T x, int source, int width = 32) {
    int lane = emulated_lane();
    return emulated_shuffle(line, mask, x, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <typename T> inline T emulated_shfl_xor(int line, unsigned mask, T x, int bits, int width = 32) {
    int lane = emulated_lane(), source = lane ^ bits;
    return emulated_shuffle(line, mask, x, source > (lane | (width - 1)) ? lane : source);
}
template <typename T> inline T emulated_shfl_down(int line, unsigned mask, T x, unsigned by, int width = 32) {
    int lane = emulated_lane(), source = lane + (int)by;
    return emulated_shuffle(line, mask, x, source > (lane | (width - 1)) ? lane : source);
}
template <typename T> inline T emulated_shfl_up(int line, unsigned mask, T x, unsigned by, int width = 32) {
    int lane = emulated_lane(), source = lane - (int)by;
    return emulated_shuffle(line, mask, x, source < (lane & ~(width - 1)) ? lane : source);
}
#define __shfl_sync(...) emulated_shfl(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated_shfl_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulated_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated_shfl_up(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, value) emulated.vote(mask, (value) != 0, __LINE__)
#define __any_sync(mask, value) (emulated.vote(mask, (value) != 0, __LINE__) != 0)
#define __all_sync(mask, value) (emulated.vote(mask, (value) == 0, __LINE__) == 0)

/* ---- Bits ---- */

template <typename To, typename From> inline To emulated_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "the same number of bits");
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y = y << 1 | (x >> i & 1u);
    return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31u)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31u));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) y |= (unsigned)(bytes >> 8 * (which >> 4 * i & 7u) & 0xffu) << 8 * i;
    return y;
}

/* ---- Conversions ---- */

inline float __double2float_rz(double x) {
    float f = (float)x;
    double back = (double)f, size = back < 0 ? -back : back, wanted = x < 0 ? -x : x;
    if (!(size > wanted)) return f;
    return __uint_as_float(__float_as_uint(f) - 1u); /* one step towards zero; from infinity to the largest number */
}
inline int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)__builtin_floorf(x); }
inline int __double2int_rn(double x) { return (int)__builtin_rint(x); }
inline long long __double2ll_rn(double x) { return (long long)__builtin_rint(x); }
inline long long __float2ll_rn(float x) { return (long long)__builtin_rintf(x); }

/* ---- Arithmetic ---- */

#define EMULATED_FUNCTION(name)                                                                              \
    extern "C" double name(double);                                                                          \
    extern "C" float name##f(float);                                                                         \
    inline float name(float x) {                                                                             \
        return name##f(x);                                                                                   \
    }
EMULATED_FUNCTION(acos) EMULATED_FUNCTION(acosh) EMULATED_FUNCTION(asin) EMULATED_FUNCTION(asinh)
EMULATED_FUNCTION(atan) EMULATED_FUNCTION(atanh) EMULATED_FUNCTION(cbrt) EMULATED_FUNCTION(ceil)
EMULATED_FUNCTION(cos) EMULATED_FUNCTION(cosh) EMULATED_FUNCTION(erf) EMULATED_FUNCTION(erfc)
EMULATED_FUNCTION(exp) EMULATED_FUNCTION(exp2) EMULATED_FUNCTION(expm1) EMULATED_FUNCTION(fabs)
EMULATED_FUNCTION(floor) EMULATED_FUNCTION(lgamma) EMULATED_FUNCTION(log) EMULATED_FUNCTION(log10)
EMULATED_FUNCTION(log1p) EMULATED_FUNCTION(log2) EMULATED_FUNCTION(nearbyint) EMULATED_FUNCTION(rint)
EMULATED_FUNCTION(round) EMULATED_FUNCTION(sin) EMULATED_FUNCTION(sinh) EMULATED_FUNCTION(sqrt)
EMULATED_FUNCTION(tan) EMULATED_FUNCTION(tanh) EMULATED_FUNCTION(tgamma) EMULATED_FUNCTION(trunc)
#undef EMULATED_FUNCTION
#define EMULATED_FUNCTION(name)                                                                              \
    extern "C" double name(double, double);                                                                  \
    extern "C" float name##f(float, float);                                                                  \
    inline float name(float x, float y) {                                                                    \
        return name##f(x, y);                                                                                \
    }
EMULATED_FUNCTION(atan2) EMULATED_FUNCTION(copysign) EMULATED_FUNCTION(fdim) EMULATED_FUNCTION(fmax)
EMULATED_FUNCTION(fmin) EMULATED_FUNCTION(fmod) EMULATED_FUNCTION(hypot) EMULATED_FUNCTION(nextafter)
EMULATED_FUNCTION(pow) EMULATED_FUNCTION(remainder)
#undef EMULATED_FUNCTION
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
extern "C" double frexp(double, int *);
extern "C" float frexpf(float, int *);
extern "C" void sincos(double, double *, double *);
extern "C" void sincosf(float, float *, float *);
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline double sinpi(double x) { return sin(x * 3.14159265358979323846); }
inline double cospi(double x) { return cos(x * 3.14159265358979323846); }
inline float sinpif(float x) { return (float)sinpi((double)x); }
inline float cospif(float x) { return (float)cospi((double)x); }
inline void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }
inline void sincospi(double x, double *s, double *c) { *s = sinpi(x), *c = cospi(x); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return x < 0 ? -x : x; }

#define EMULATED_FUNCTION(T)                                                                                 \
    inline T min(T a, T b) {                                                                                 \
        return b < a ? b : a;                                                                                \
    }                                                                                                        \
    inline T max(T a, T b) {                                                                                 \
        return a < b ? b : a;                                                                                \
    }
EMULATED_FUNCTION(int) EMULATED_FUNCTION(unsigned) EMULATED_FUNCTION(long) EMULATED_FUNCTION(unsigned long)
EMULATED_FUNCTION(long long) EMULATED_FUNCTION(unsigned long long)
#undef EMULATED_FUNCTION
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

template <typename T> inline bool isnan(T x) { return x != x; }
template <typename T> inline bool isinf(T x) { return __builtin_isinf(x); }
template <typename T> inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <typename T> inline bool signbit(T x) { return __builtin_signbit(x); }

inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

/* ---- Memory ---- */

template <typename T> inline T __ldg(const T *at) { return *at; }
template <typename T> inline T __ldcs(const T *at) { return *at; }
template <typename T> inline T __ldcg(const T *at) { return *at; }
template <typename T> inline void __stcs(T *at, T x) { *at = x; }
template <typename T> inline void __stcg(T *at, T x) { *at = x; }

/* Only for integers: the order of float additions would change the result. */
#define EMULATED_FUNCTION(T)                                                                                 \
    inline T atomicAdd(T *at, T x) {                                                                         \
        T old = *at;                                                                                         \
        *at = old + x;                                                                                       \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicMin(T *at, T x) {                                                                         \
        T old = *at;                                                                                         \
        *at = x < old ? x : old;                                                                             \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicMax(T *at, T x) {                                                                         \
        T old = *at;                                                                                         \
        *at = x > old ? x : old;                                                                             \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicExch(T *at, T x) {                                                                        \
        T old = *at;                                                                                         \
        *at = x;                                                                                             \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicAnd(T *at, T x) {                                                                         \
        T old = *at;                                                                                         \
        *at = old & x;                                                                                       \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicOr(T *at, T x) {                                                                          \
        T old = *at;                                                                                         \
        *at = old | x;                                                                                       \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicXor(T *at, T x) {                                                                         \
        T old = *at;                                                                                         \
        *at = old ^ x;                                                                                       \
        return old;                                                                                          \
    }                                                                                                        \
    inline T atomicCAS(T *at, T expected, T x) {                                                             \
        T old = *at;                                                                                         \
        if (old == expected) *at = x;                                                                        \
        return old;                                                                                          \
    }
EMULATED_FUNCTION(int) EMULATED_FUNCTION(unsigned) EMULATED_FUNCTION(unsigned long long)
#undef EMULATED_FUNCTION
inline unsigned atomicInc(unsigned *at, unsigned max_value) {
    unsigned old = *at;
    *at = old >= max_value ? 0 : old + 1;
    return old;
}

/* ---- Calling a kernel with an array of parameters, as cuLaunchKernel does ---- */

template <int... I> struct emulated_indices {};
template <int N, int... I> struct emulated_count : emulated_count<N - 1, N - 1, I...> {};
template <int... I> struct emulated_count<0, I...> { typedef emulated_indices<I...> indices; };

template <typename... A, int... I>
inline void emulated_apply(void (*kernel)(A...), void **parameters, emulated_indices<I...>) {
    kernel(*(A *)parameters[I]...);
}
template <typename... A> inline void emulated_call(void (*kernel)(A...), void **parameters) {
    emulated_apply(kernel, parameters, typename emulated_count<sizeof...(A)>::indices());
}
/* Returns the size of parameter `index`; 0 past the last. */
template <typename... A> inline size_t emulated_size(void (*)(A...), int index) {
    const size_t sizes[] = {sizeof(A)..., 0};
    return index < (int)sizeof...(A) ? sizes[index] : 0;
}
extern "C" __attribute__((visibility("hidden"))) char __bss_start[];
extern "C" __attribute__((visibility("hidden"))) char _end[];

/* The symbols that module.cpp looks up in the library. */
#define EMULATED_KERNEL(...)                                                                                 \
    extern "C" __attribute__((visibility("default"))) void emulated_run(void **parameters) {                 \
        emulated_call(__VA_ARGS__, parameters);                                                              \
    }                                                                                                        \
    extern "C" __attribute__((visibility("default"))) size_t emulated_parameter(int index) {                 \
        return emulated_size(__VA_ARGS__, index);                                                            \
    }                                                                                                        \
    extern "C" __attribute__((visibility("default"))) void emulated_statics(char **first, char **end) {      \
        *first = __bss_start, *end = _end;                                                                   \
    }

#endif
