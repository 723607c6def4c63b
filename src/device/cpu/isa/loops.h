/* Inner loops of the CPU device, compiled once per instruction set.
 *
 * Every isa/loops_*.c is compiled several times (src/CMakeLists.txt: baseline, AVX2+FMA, AVX-512), with TU_ISA
 * naming the variant. Each variant fills a table, and cpu_loops_for_this_machine() selects the best one for the
 * processor. The sources are plain C that the compiler vectorises; nothing outside this folder is compiled with
 * these flags. Bits may differ between instruction sets, but never between runs with the same one.
 *
 * Each source file defines one object of the table, named after its structure:
 *
 *     struct cpu_loops_gemm LOOP(cpu_loops_gemm) = {.micro = LOOP(micro), …};      // in loops_gemm.c
 *
 * and loops_table.c combines them. */
#ifndef TU__DEVICE_CPU_ISA_LOOPS_H
#define TU__DEVICE_CPU_ISA_LOOPS_H

#include <stdint.h>

#include "graph/op.h"

/* Appends the variant to a name: LOOP(add) is add_avx512. */
#define LOOP_JOIN_(name, isa) name##_##isa
#define LOOP_JOIN(name, isa) LOOP_JOIN_(name, isa)
#define LOOP(name) LOOP_JOIN(name, TU_ISA)

/* For a loop whose iterations are independent, even if an output overlaps an input exactly: the compiler then needs
 * no overlap check (-fopenmp-simd). */
#define LOOP_INDEPENDENT _Pragma("omp simd")

/* Computes one pointwise operation for a tile of n elements, in f32 or f64. a, b: the operation's attributes. `out`
 * may be one of the inputs. */
typedef void (*cpu_tile_f32)(int64_t n, const float *x, const float *y, const float *z, float a, float b,
                             float *out);
typedef void (*cpu_tile_f64)(int64_t n, const double *x, const double *y, const double *z, double a, double b,
                             double *out);

/* Convert n elements between f32 and the types that are computed in f32 (f32, bf16, f16, u8, i8, bool; NULL for the
 * others), or round them in place as a store and a load would. Indexed by tu_dtype. */
typedef struct cpu_loops_convert {
    void (*load[TU_DTYPE_COUNT])(int64_t n, const void *from, float *to);
    void (*store[TU_DTYPE_COUNT])(int64_t n, const float *from, void *to);
    void (*round[TU_DTYPE_COUNT])(int64_t n, float *x); /* NULL for f32 too: nothing to do */
} cpu_loops_convert;

typedef struct cpu_loops {
    const char *isa;                          /* "baseline", "avx2", "avx512" */
    cpu_tile_f32 pointwise[TU__OP_COUNT];     /* loops_pointwise.c; NULL for other operations */
    cpu_tile_f64 pointwise_f64[TU__OP_COUNT]; /* the same in f64 */
    struct cpu_loops_convert *convert; /* loops_convert.c: bf16, f16, u8, i8 and bool to and from f32 */
    struct cpu_loops_kernels
        *kernels;                /* loops_kernels*.c: LRN, pooling, normalisation, reductions, softmax … */
    struct cpu_loops_gemm *gemm; /* loops_gemm.c: matrix products and convolutions */
    struct cpu_loops_int8 *int8; /* loops_int8.c: integer convolutions and products, and conversions */
    struct cpu_loops_blocks *blocks; /* loops_blocks.c: operands and results of AMX blocks */
} cpu_loops;

const cpu_loops *cpu_loops_for_this_machine(void);

/* True if the dot product of AVX512_BF16 is used, which adds two products of bf16 numbers. */
bool cpu_loops_has_bf16_dot(void);

#endif
