/* Panels: the layout of a packed matrix [depth, columns] for the tiles of isa/loops_gemm.h. If the loops multiply pairs
 * of bf16 numbers, the rows are of pairs, k and k + 1, and the last one may have a zero. A panel has some vectors of
 * columns, as many as a tile may have, or one less; within it rows follow each other, so that a tile reads memory
 * sequentially. Columns past the last are zeros. */
#ifndef TU__DEVICE_CPU_PACKED_PANELS_H
#define TU__DEVICE_CPU_PACKED_PANELS_H

#include "device/cpu/packed_weights.h"

typedef struct cpu_panel {
    int64_t first, columns, width; /* width: columns rounded up to vectors */
} cpu_panel;

static inline int64_t cpu_panel_vectors(const cpu_gemm_loops *loops, int64_t columns) {
    return (columns + loops->vector_elements - 1) / loops->vector_elements;
}

static inline int64_t cpu_panel_count(const cpu_gemm_loops *loops, int64_t columns) {
    return (cpu_panel_vectors(loops, columns) + loops->max_vectors - 1) / loops->max_vectors;
}

/* Returns the rows of elements for `depth` numbers. */
static inline int64_t cpu_panel_depth(const cpu_gemm_loops *loops, int64_t depth) {
    int64_t numbers = loops->element_bytes / loops->operand_bytes;
    return (depth + numbers - 1) / numbers;
}

/* Returns panel i. It starts at element rows * first of the packed matrix. */
cpu_panel cpu_panel_at(const cpu_gemm_loops *loops, int64_t columns, int64_t i);

/* Returns the elements of a packed matrix: numbers, or pairs. */
static inline int64_t cpu_panel_elements(const cpu_gemm_loops *loops, int64_t depth, int64_t columns) {
    return cpu_panel_depth(loops, depth) * cpu_panel_vectors(loops, columns) * loops->vector_elements;
}

/* Returns the layout of `groups` matrices, whose elements the steps locate in the source. depth_step or column_step
 * must be 1. */
cpu_packed_layout cpu_panel_layout(const cpu_gemm_loops *loops, int64_t groups, int64_t depth,
                                   int64_t columns, int64_t depth_step, int64_t column_step);

/* Computes `rows` consecutive rows of c, in as many tiles as necessary: `tile` has all but their number. tile.next is the
 * panel that is multiplied next, as large as that of this tile: the tiles fetch it together. */
void cpu_multiply_rows(const cpu_gemm_loops *loops, cpu_gemm_tile tile, int64_t rows);

#endif
