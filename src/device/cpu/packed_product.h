/* Products with packed weights: c [rows, columns] = a [rows, depth] b, where b is packed into panels
 * (packed_panels.h), and convolutions as such products: the rows of a are then gathered from images. */
#ifndef TU__DEVICE_CPU_PACKED_PRODUCT_H
#define TU__DEVICE_CPU_PACKED_PRODUCT_H

#include "device/cpu/conv_direct.h"

typedef struct cpu_product {
    const cpu_gemm_loops *loops;         /* of f32, or of pairs of bf16 numbers */
    const struct cpu_round_loops *round; /* of pairs */
    int64_t rows, depth, columns;
    /* A row of a has the values of `image` (one group) under the filter at one pixel of y; otherwise a is dense, and of
     * bf16 the depth is even. */
    bool gathers;
    cpu_convolution image;
    int threads;
    /* Set by cpu_product_plan: how c is divided into work items, and how many workers there are */
    int64_t row_blocks, column_blocks, workers;
} cpu_product;

void cpu_product_plan(cpu_product *p);
/* Returns the most rows of a work item, if there are enough rows for all threads. */
int64_t cpu_product_block_rows(const cpu_product *p);
/* Returns how often an element of c is written. */
int64_t cpu_product_chunks(const cpu_product *p);
size_t cpu_product_workspace(const cpu_product *p);

typedef struct cpu_product_operands {
    const void *a, *b;           /* b: packed */
    const void *bias, *residual; /* [columns] and [rows, columns], added in this order; or NULL */
    void *c, *workspace;
    bool relu;
} cpu_product_operands;
void cpu_product_run(const cpu_product *p, const cpu_product_operands *operands);

#endif
