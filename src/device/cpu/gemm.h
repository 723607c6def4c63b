/* Our own matrix product: batches of c [m, n] = a [m, k] b [k, n], each operand as it lies or transposed. */
#ifndef TU__DEVICE_CPU_GEMM_H
#define TU__DEVICE_CPU_GEMM_H

#include <stddef.h>

#include "device/cpu/isa/loops_gemm.h"

/* How a product is shared out: see gemm.c. */
typedef struct cpu_gemm_split {
    int64_t row_parts, column_parts; /* of c, a part a worker */
    int64_t chunks;                  /* of k */
    int64_t panels, row_blocks;      /* of a part: columns and rows that are packed at once */
} cpu_gemm_split;

typedef struct cpu_gemm {
    const cpu_gemm_loops *loops;
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* a is stored [k, m], b [n, k] */
    int64_t batch;
    const int64_t *a_at,
        *b_at; /* where the matrices of the batch begin, in elements; c's follow each other */
    int threads;
    cpu_gemm_split split; /* cpu_gemm_plan()'s to fill in, when all the rest is there */
} cpu_gemm;

void cpu_gemm_plan(cpu_gemm *gemm);
size_t cpu_gemm_workspace(const cpu_gemm *gemm);

typedef struct cpu_gemm_operands {
    const void *a, *b, *bias; /* bias [n], or NULL */
    void *c, *workspace;
    bool relu;
} cpu_gemm_operands;
void cpu_gemm_run(const cpu_gemm *gemm, const cpu_gemm_operands *operands);

#endif
