/* Tensor cores: a warp multiplies a 16 by K matrix with a K by 8 one and accumulates in f32.
 *
 * Wraps the instruction mma.sync (PTX manual, "Warp-level matrix instructions"). With g = lane / 4 and t = lane % 4,
 * the registers of a lane hold the following words; a word contains one element of K (tf32, K = 8) or two adjacent
 * ones (bf16, f16: K = 16):
 *
 *     a[0], a[1]   rows g and g + 8, word t          a[2], a[3]   the same rows, word t + 4
 *     b[0], b[1]   column g, words t and t + 4
 *     sum          [0], [1]: row g, columns 2t and 2t + 1;   [2], [3]: row g + 8
 *
 * Needs compute capability 8.0. The emulated GPU computes the same sums with shuffles.
 */
#ifndef TU_MMA
#define TU_MMA

#include "prelude.cuh"

/* Elements per word, and the depth K of one instruction. */
template <typename T> struct mma_word { enum { ELEMENTS = 2, K = 16 }; };
template <> struct mma_word<f32> { enum { ELEMENTS = 1, K = 8 }; };

/* Rounds f32 to tf32 (10-bit mantissa), to nearest. Infinities and NaN are unchanged. */
__device__ inline u32 tf32_bits(float x) {
#ifndef TU_EMULATED
    u32 rounded_bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded_bits) : "f"(x));
    return rounded_bits;
#else
    u32 bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
#endif
}

/* Loads b for two adjacent tiles of columns from a row-major matrix in shared memory, K rows of 16 columns. Two-byte
 * types are transposed on the way, f32 is rounded to tf32. Rows start at multiples of 16 bytes. */
__device__ inline void mma_load_columns(u32 (&b)[2][2], const u16 *rows, int pitch) {
    int lane = threadIdx.x & 31;
#ifndef TU_EMULATED
    u32 address = (u32)__cvta_generic_to_shared(rows + lane % 16 * pitch + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"(address)
                 : "memory");
#else
    for (int tile = 0; tile < 2; tile++)
        for (int half = 0; half < 2; half++) {
            const u16 *first = rows + (2 * (lane % 4) + 8 * half) * pitch + 8 * tile + lane / 4;
            b[tile][half] = first[0] | (u32)first[pitch] << 16;
        }
#endif
}
__device__ inline void mma_load_columns(u32 (&b)[2][2], const u32 *rows, int pitch) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            b[tile][half] = tf32_bits(__uint_as_float(rows[(lane % 4 + 4 * half) * pitch + 8 * tile + lane / 4]));
}

/* Loads a from a row-major matrix of two-byte elements in shared memory, 16 rows of 16 columns. Rows start at multiples of
 * 16 bytes. */
__device__ inline void mma_load_rows(u32 (&a)[4], const u16 *rows, int pitch) {
    int lane = threadIdx.x & 31;
#ifndef TU_EMULATED
    u32 address = (u32)__cvta_generic_to_shared(rows + lane % 16 * pitch + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
#else
    for (int i = 0; i < 4; i++)
        a[i] = *(const u32 *)(const void *)(rows + (lane / 4 + i % 2 * 8) * pitch + i / 2 * 8 + lane % 4 * 2);
#endif
}

/* Loads b for two adjacent tiles of columns from the transposed matrix: 16 rows (columns of b) of 16 elements along K. */
__device__ inline void mma_load_transposed(u32 (&b)[2][2], const u16 *rows, int pitch) {
    int lane = threadIdx.x & 31;
#ifndef TU_EMULATED
    u32 address = (u32)__cvta_generic_to_shared(rows + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"(address)
                 : "memory");
#else
    for (int i = 0; i < 4; i++)
        b[i / 2][i % 2] = *(const u32 *)(const void *)(rows + (lane / 4 + i / 2 * 8) * pitch + i % 2 * 8 + lane % 4 * 2);
#endif
}

/* Rounds two numbers to a word of two elements, `low` at the lower address. */
template <typename T> __device__ inline u32 mma_pack(float low, float high) {
    return (u32)narrow<T>(low).bits | (u32)narrow<T>(high).bits << 16;
}
#ifndef TU_EMULATED
template <> __device__ inline u32 mma_pack<bf16>(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
template <> __device__ inline u32 mma_pack<f16>(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
#endif

/* The same of relu(low) and relu(high); relu of NaN is NaN. */
template <typename T> __device__ inline u32 mma_pack_relu(float low, float high) {
    return mma_pack<T>(low < 0.0f ? 0.0f : low, high < 0.0f ? 0.0f : high);
}
#ifndef TU_EMULATED
template <> __device__ inline u32 mma_pack_relu<bf16>(float low, float high) {
    u32 word;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
template <> __device__ inline u32 mma_pack_relu<f16>(float low, float high) {
    u32 word;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
#endif

/* Loads four matrices of 8 rows of 16 bytes from shared memory: lane 8m + r passes the address of row r of matrix m, and
 * gets word lane % 4 of row lane / 4 of every matrix. */
__device__ inline void mma_load_matrices(u32 (&words)[4], const u32 *row) {
#ifndef TU_EMULATED
    u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
#else
    int lane = threadIdx.x & 31;
    for (int matrix = 0; matrix < 4; matrix++)
        words[matrix] = ((const u32 *)__shfl_sync(0xffffffffu, (u64)row, 8 * matrix + lane / 4))[lane % 4];
#endif
}

#ifndef TU_EMULATED
template <typename T> struct mma_instruction;
#define MMA(type, shape, kinds)                                                                              \
    template <> struct mma_instruction<type> {                                                               \
        static __device__ inline void run(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {           \
            asm("mma.sync.aligned." shape ".row.col.f32." kinds ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "  \
                "{%8, %9}, {%0, %1, %2, %3};"                                                                \
                : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                     \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                         \
        }                                                                                                    \
    };
MMA(bf16, "m16n8k16", "bf16.bf16")
MMA(f16, "m16n8k16", "f16.f16")
MMA(f32, "m16n8k8", "tf32.tf32")
#undef MMA
template <typename T> __device__ inline void mma(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    mma_instruction<T>::run(sum, a, b);
}
#else
template <typename T> __device__ inline float mma_element(u32 word, int i);
template <> __device__ inline float mma_element<f32>(u32 word, int) { return __uint_as_float(word); }
template <> __device__ inline float mma_element<bf16>(u32 word, int i) { return widen(bf16{(u16)(word >> 16 * i)}); }
template <> __device__ inline float mma_element<f16>(u32 word, int i) { return widen(f16{(u16)(word >> 16 * i)}); }

template <typename T> __device__ inline void mma(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    int lane = threadIdx.x & 31, group = lane / 4, lane_word = lane % 4;
    for (int word = 0; word < 8; word++) { /* in the order of a row */
        int high = word / 4, from = word % 4;
        u32 rows[2], columns[2];
        for (int i = 0; i < 2; i++) rows[i] = __shfl_sync(0xffffffffu, a[2 * high + i], 4 * group + from);
        for (int i = 0; i < 2; i++) columns[i] = __shfl_sync(0xffffffffu, b[high], 4 * (2 * lane_word + i) + from);
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < mma_word<T>::ELEMENTS; e++)
                sum[i] += mma_element<T>(rows[i / 2], e) * mma_element<T>(columns[i % 2], e);
    }
}
#endif

#endif
