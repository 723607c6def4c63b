/* Products and convolutions for one instruction set: which vectors, which tiles.
 *
 * A tile of r rows and v vectors keeps r * v sums in registers and reads v vectors of b and r single elements of a for
 * its r * v multiply-adds. The sums must cover the latency of the multiply-add (4 cycles times 2 units: at least 8 of
 * them), and the loads (2 a cycle) must not outnumber the multiply-adds. With 32 registers 6 x 4 (28 of them, 10 loads
 * for 24 multiply-adds) is the widest; rows of fewer vectors, which narrow matrices have, get more of them. With 16
 * registers 6 x 2 leaves one for the broadcast. */
#include "device/cpu/isa/loops_gemm.h"

#include "device/cpu/isa/loops.h"

#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL PRAGMA(clang loop unroll(full))
#else
#define UNROLL PRAGMA(GCC unroll 32)
#endif

#if defined __AVX512F__
#include <immintrin.h>
#define VECTOR_BYTES 64
#define FMA_F32 _mm512_fmadd_ps
#define FMA_F64 _mm512_fmadd_pd
#define MANY_REGISTERS 1
#elif defined __AVX2__ && defined __FMA__
#include <immintrin.h>
#define VECTOR_BYTES 32
#define FMA_F32 _mm256_fmadd_ps
#define FMA_F64 _mm256_fmadd_pd
#elif defined __ARM_NEON
#include <arm_neon.h>
#define VECTOR_BYTES 16
#define FMA_F32(x, y, z) vfmaq_f32(z, x, y)
#define FMA_F64(x, y, z) vfmaq_f64(z, x, y)
#define MANY_REGISTERS 1
#else
#define VECTOR_BYTES 16
#define FMA_F32(x, y, z) ((x) * (y) + (z))
#define FMA_F64(x, y, z) ((x) * (y) + (z))
#endif

/* TILE(rows, vectors) for rows up to a number, from the number before. */
/* clang-format off */
#define TO_6(v) TILE(1, v) TILE(2, v) TILE(3, v) TILE(4, v) TILE(5, v) TILE(6, v)
#define TO_8(v) TILE(7, v) TILE(8, v)
#define TO_10(v) TILE(9, v) TILE(10, v)
#define TO_14(v) TILE(11, v) TILE(12, v) TILE(13, v) TILE(14, v)
#define TO_24(v) TILE(15, v) TILE(16, v) TILE(17, v) TILE(18, v) TILE(19, v) TILE(20, v) TILE(21, v) TILE(22, v) \
                 TILE(23, v) TILE(24, v)
/* clang-format on */

#ifdef MANY_REGISTERS
#define MOST_VECTORS 4
#define MOST_ROWS 24
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 24, 14, 8, 6 }
/* clang-format off */
#define TILES                                                                                                \
    TO_6(1) TO_8(1) TO_10(1) TO_14(1) TO_24(1)  TO_6(2) TO_8(2) TO_10(2) TO_14(2)  TO_6(3) TO_8(3)  TO_6(4)
/* clang-format on */
#else
#define MOST_VECTORS 2
#define MOST_ROWS 10
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 10, 6 }
#define TILES TO_6(1) TO_8(1) TO_10(1) TO_6(2)
#endif

#define REAL float
#define BITS int32_t
#define NAME(x) x##_f32
#define FMA FMA_F32
#include "device/cpu/isa/loops_gemm_real.h"
#undef REAL
#undef BITS
#undef NAME
#undef FMA

#define REAL double
#define BITS int64_t
#define NAME(x) x##_f64
#define FMA FMA_F64
#include "device/cpu/isa/loops_gemm_real.h"

/* ---- Endings of results that are in memory already ---- */

static void end_f32(int64_t rows, int64_t columns, void *data, const void *bias_data, bool relu) {
    const float *restrict bias = bias_data;
    for (int64_t r = 0; r < rows; r++) {
        float *restrict x = (float *)data + r * columns;
        if (bias)
            for (int64_t j = 0; j < columns; j++) x[j] += bias[j];
        if (relu)
            for (int64_t j = 0; j < columns; j++) x[j] = x[j] < 0 ? 0 : x[j];
    }
}

static inline float widen(uint16_t x) {
    union {
        uint32_t bits;
        float number;
    } u = {(uint32_t)x << 16};
    return u.number;
}

/* To nearest, halves to even; NaN stays one. */
static inline uint16_t narrow(float x) {
    union {
        float number;
        uint32_t bits;
    } u = {x};
    uint32_t rounded = (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16, nan = u.bits >> 16 | 0x40;
    return (uint16_t)((u.bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static void end_bf16(int64_t rows, int64_t columns, void *data, const void *bias_data, bool relu) {
    const uint16_t *restrict bias = bias_data;
    for (int64_t r = 0; r < rows; r++) {
        uint16_t *restrict x = (uint16_t *)data + r * columns;
        if (bias)
            for (int64_t j = 0; j < columns; j++) x[j] = narrow(widen(x[j]) + widen(bias[j]));
        if (relu) /* numbers below zero lie between the smallest, 0x8001, and minus infinity, 0xff80 */
            for (int64_t j = 0; j < columns; j++) x[j] = x[j] > 0x8000 && x[j] <= 0xff80 ? 0 : x[j];
    }
}

extern struct cpu_loops_gemm LOOP(cpu_loops_gemm);
struct cpu_loops_gemm LOOP(cpu_loops_gemm) = {
    .f32 = &loops_f32, .f64 = &loops_f64, .end_f32 = end_f32, .end_bf16 = end_bf16};
