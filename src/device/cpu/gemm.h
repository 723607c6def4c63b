/* Our own matrix product: batches of c [m, n] = a [m, k] b [k, n], each operand as it lies or transposed. */
#ifndef TU__DEVICE_CPU_GEMM_H
#define TU__DEVICE_CPU_GEMM_H

#include <stddef.h>

#include "device/cpu/isa/loops_gemm.h"

typedef struct cpu_gemm {
    const cpu_gemm_loops *loops;
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* a is stored [k, m], b [n, k] */
    int64_t batch;
    const int64_t *a_at,
        *b_at; /* where the matrices of the batch begin, in elements; c's follow each other */
    int threads;
} cpu_gemm;

size_t cpu_gemm_workspace(const cpu_gemm *gemm);

typedef struct cpu_gemm_operands {
    const void *a, *b, *bias; /* bias [n], or NULL */
    void *c, *workspace;
    bool relu;
} cpu_gemm_operands;
void cpu_gemm_run(const cpu_gemm *gemm, const cpu_gemm_operands *operands);

#endif
