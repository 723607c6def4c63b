/* Matrix products: batches of c [m, n] = a [m, k] b [k, n], each operand optionally stored transposed. */
#ifndef TU__DEVICE_CPU_GEMM_H
#define TU__DEVICE_CPU_GEMM_H

#include <stddef.h>

#include "device/cpu/isa/loops_gemm.h"

/* How a matrix product is divided among workers and caches: see gemm.c. */
typedef struct cpu_gemm_split {
    int64_t grid_rows, grid_columns; /* the grid over c: one cell per worker */
    int64_t chunks;                  /* number of chunks into which k is divided */
    int64_t panels, row_blocks;      /* per cell: groups of columns and rows that are packed together */
} cpu_gemm_split;

typedef struct cpu_gemm {
    const cpu_gemm_loops *loops;
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* a is stored [k, m], b [n, k] */
    int64_t batch;
    const int64_t *a_offsets,
        *b_offsets; /* offsets of the batch's matrices, in elements; those of c are contiguous */
    int threads;
    cpu_gemm_split split; /* set by cpu_gemm_plan() from the other fields */
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
