/* Tensor cores of compute capability 9.0: a warpgroup, four warps, multiplies 64 rows of a with N rows of b, both in shared
 * memory, and accumulates in f32.
 *
 *     wgmma_release();                   // each thread, after its writes to shared memory
 *     __syncthreads();
 *     wgmma_begin();
 *     wgmma_multiply<T, N>(sums, a, b);  // sums[row of a][row of b] += a · b over 64 elements
 *     wgmma_commit();                    // ends a group of products
 *     …                                  // anything that touches neither sums nor a and b
 *     wgmma_wait<0>();                   // all groups but the last 0 are done: their a and b may be overwritten
 *     wgmma_keep(sums);                  // before sums are read
 *
 * Wraps the instruction wgmma.mma_async (PTX manual, "Asynchronous warpgroup level matrix instructions"). It reads shared
 * memory past the order of ordinary accesses, so that writes must be released first. a and b begin at multiples of 1024 bytes
 * and have rows of 128 bytes: 64 elements. The eight 16-byte words of a row are permuted: word w of row r is stored at
 * (w ^ r) % 8, so that eight rows of one word lie in different banks. This is the layout "128-byte swizzle" of the manual.
 *
 * Warp w of the group holds rows 16w to 16w + 15. With g = lane / 4 and t = lane % 4, sums[4j] and [4j + 1] of a lane belong to
 * row g and columns 8j + 2t and 8j + 2t + 1, sums[4j + 2] and [4j + 3] to row g + 8.
 *
 * Compiled for sm_90a (runtime/compile.c). The emulated GPU computes the same sums from the same layout.
 */
#ifndef TU_WGMMA
#define TU_WGMMA

#include "prelude.cuh"

enum { WGMMA_ROW = 32 /* 4-byte words of a row of a and b */ };

/* Returns where 16-byte word `word` of a row is, in 4-byte words. Eight rows further it is 8 * WGMMA_ROW words further. */
__device__ inline int wgmma_word(int row, int word) { return row * WGMMA_ROW + ((word ^ row) & 7) * 4; }

#ifndef TU_EMULATED

__device__ inline void wgmma_release() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int GROUPS> __device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(GROUPS) : "memory");
}
/* Keeps the compiler from moving reads of the sums before this point. */
template <int SUMS> __device__ inline void wgmma_keep(float (&sums)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(sums[i]) : : "memory");
}

/* Describes a matrix to the instruction: its address and the distance of groups of eight rows in units of 16 bytes, and the
 * swizzle. The second half is the same for all. */
__device__ inline u32 wgmma_describe(const u32 *rows) {
    return ((u32)__cvta_generic_to_shared(rows) & 0x3ffff) >> 4 | 1u << 16;
}
__device__ inline u64 wgmma_descriptor(u32 half) { return (u64)(1024 >> 4 | 1u << 30) << 32 | half; }

template <typename T, int N> struct wgmma_instruction;
#define WGMMA_REGISTERS_10(tens)                                                                             \
    "%" tens "0, %" tens "1, %" tens "2, %" tens "3, %" tens "4, %" tens "5, %" tens "6, %" tens "7, %" tens \
    "8, %" tens "9"
#define WGMMA_REGISTERS_30(a, b, c) WGMMA_REGISTERS_10(a) ", " WGMMA_REGISTERS_10(b) ", " WGMMA_REGISTERS_10(c)
#define WGMMA_SUMS_8(i)                                                                                      \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define WGMMA_SUMS_32(i) WGMMA_SUMS_8(i), WGMMA_SUMS_8(i + 8), WGMMA_SUMS_8(i + 16), WGMMA_SUMS_8(i + 24)
#define WGMMA(type, kinds, n, registers, descriptors, ...)                                                   \
    template <> struct wgmma_instruction<type, n> {                                                          \
        static __device__ inline void run(float (&sums)[n / 2], u64 a, u64 b) {                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." kinds " {" registers              \
                         "}, " descriptors ", 1, 1, 1, 0, 0;"                                                \
                         : __VA_ARGS__                                                                       \
                         : "l"(a), "l"(b)                                                                    \
                         : "memory");                                                                        \
        }                                                                                                    \
    };
#define WGMMA_REGISTERS_32 WGMMA_REGISTERS_30("", "1", "2") ", %30, %31"
#define WGMMA_REGISTERS_64                                                                                   \
    WGMMA_REGISTERS_30("", "1", "2") ", " WGMMA_REGISTERS_30("3", "4", "5") ", %60, %61, %62, %63"
WGMMA(bf16, "bf16.bf16", 64, WGMMA_REGISTERS_32, "%32, %33", WGMMA_SUMS_32(0))
WGMMA(f16, "f16.f16", 64, WGMMA_REGISTERS_32, "%32, %33", WGMMA_SUMS_32(0))
WGMMA(bf16, "bf16.bf16", 128, WGMMA_REGISTERS_64, "%64, %65", WGMMA_SUMS_32(0), WGMMA_SUMS_32(32))
WGMMA(f16, "f16.f16", 128, WGMMA_REGISTERS_64, "%64, %65", WGMMA_SUMS_32(0), WGMMA_SUMS_32(32))
#undef WGMMA

/* Adds the products over 64 elements: 16 per instruction, which are 32 bytes of a row. All threads of a warp pass the same
 * addresses. */
template <typename T, int N> __device__ inline void wgmma_multiply(float (&sums)[N / 2], const u32 *a, const u32 *b) {
    u32 rows = wgmma_describe(a), columns = wgmma_describe(b);
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_instruction<T, N>::run(sums, wgmma_descriptor(rows + 2 * k), wgmma_descriptor(columns + 2 * k));
}

#else

inline void wgmma_release() {}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
template <int GROUPS> inline void wgmma_wait() {}
template <int SUMS> inline void wgmma_keep(float (&)[SUMS]) {}

template <typename T> inline void wgmma_load_row(float (&elements)[64], const u32 *rows, int row) {
    for (int i = 0; i < 64; i++) elements[i] = widen(((const T *)(rows + wgmma_word(row, i / 8)))[i % 8]);
}
template <typename T, int N> inline void wgmma_multiply(float (&sums)[N / 2], const u32 *a, const u32 *b) {
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    float rows[2][64], column[64];
    for (int half = 0; half < 2; half++) wgmma_load_row<T>(rows[half], a, row + 8 * half);
    for (int j = 0; j < N / 4; j++) {
        wgmma_load_row<T>(column, b, j / 2 * 8 + lane % 4 * 2 + j % 2);
        for (int half = 0; half < 2; half++) {
            float *sum = &sums[j / 2 * 4 + half * 2 + j % 2];
            for (int i = 0; i < 64; i++) *sum += rows[half][i] * column[i];
        }
    }
}

#endif

#endif
