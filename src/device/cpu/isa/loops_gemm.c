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

#ifdef MANY_REGISTERS
#define MOST_VECTORS 4
#define MOST_ROWS 24
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 24, 14, 8, 6 }
#define TILES                                                                                                \
    TILE(1, 1)                                                                                               \
    TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1) TILE(7, 1) TILE(8, 1) TILE(9, 1) TILE(10, 1)      \
        TILE(11, 1) TILE(12, 1) TILE(13, 1) TILE(14, 1) TILE(15, 1) TILE(16, 1) TILE(17, 1) TILE(18, 1)      \
            TILE(19, 1) TILE(20, 1) TILE(21, 1) TILE(22, 1) TILE(23, 1) TILE(24, 1) TILE(1, 2) TILE(2, 2)    \
                TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2) TILE(7, 2) TILE(8, 2) TILE(9, 2) TILE(10, 2)     \
                    TILE(11, 2) TILE(12, 2) TILE(13, 2) TILE(14, 2) TILE(1, 3) TILE(2, 3) TILE(3, 3)         \
                        TILE(4, 3) TILE(5, 3) TILE(6, 3) TILE(7, 3) TILE(8, 3) TILE(1, 4) TILE(2, 4)         \
                            TILE(3, 4) TILE(4, 4) TILE(5, 4) TILE(6, 4)
#else
#define MOST_VECTORS 2
#define MOST_ROWS 10
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 10, 6 }
#define TILES                                                                                                \
    TILE(1, 1)                                                                                               \
    TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1) TILE(7, 1) TILE(8, 1) TILE(9, 1) TILE(10, 1)      \
        TILE(1, 2) TILE(2, 2) TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2)
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

extern struct cpu_loops_gemm LOOP(cpu_loops_gemm);
struct cpu_loops_gemm LOOP(cpu_loops_gemm) = {.f32 = &loops_f32, .f64 = &loops_f64};
