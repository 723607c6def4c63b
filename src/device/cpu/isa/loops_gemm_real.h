/* The loops of loops_gemm.h for one type of numbers: included with REAL, BITS, VECTOR_BYTES, NAME(x) and FMA defined
 * (see loops_gemm_tile.h). */

#define ELEMENT REAL
#define TARGET
#include "device/cpu/isa/loops_gemm_tile.h"
#undef ELEMENT
#undef TARGET

/* A square of 4 x 4: rows of the source become columns of the panel. */
static inline void NAME(transpose_square)(const REAL *from, int64_t from_row, REAL *to, int64_t to_row) {
    REAL x[4][4];
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++) x[k][j] = from[j * from_row + k];
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < 4; j++) to[k * to_row + j] = x[k][j];
}

static void NAME(pack_transposed)(int64_t depth, int64_t columns, const REAL *source, int64_t column_step,
                                  REAL *panel, int64_t width) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4)
            NAME(transpose_square)(source + j * column_step + k, column_step, panel + k * width + j, width);
        for (; k < depth; k++)
            for (int64_t i = j; i < j + 4; i++) panel[k * width + i] = source[i * column_step + k];
    }
    for (; j < columns; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * width + j] = source[j * column_step + k];
    for (; j < width; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * width + j] = 0;
}

static void NAME(pack)(int64_t depth, int64_t columns, const void *source, int64_t k_step,
                       int64_t column_step, void *panel, int64_t width) {
    const REAL *from = source;
    REAL *to = panel;
    if (column_step != 1) {
        NAME(pack_transposed)(depth, columns, from, column_step, to, width);
        return;
    }
    for (int64_t k = 0; k < depth; k++) {
        for (int64_t j = 0; j < columns; j++) to[k * width + j] = from[k * k_step + j];
        for (int64_t j = columns; j < width; j++) to[k * width + j] = 0;
    }
}

static void NAME(sum_transposed)(int64_t count, const void *parts, int64_t stride, int64_t row, int64_t first,
                                 int64_t last, int64_t columns, void *out, int64_t out_row) {
    for (int64_t i = first; i < last; i++) {
        const REAL *from = (const REAL *)parts + i * row;
        for (int64_t j = 0; j < columns; j++) {
            REAL sum = from[j];
            for (int64_t s = 1; s < count; s++) sum += from[s * stride + j];
            ((REAL *)out)[j * out_row + i] = sum;
        }
    }
}

static const cpu_gemm_loops NAME(loops) = {
    .bytes = sizeof(REAL),
    .operand_bytes = sizeof(REAL),
    .vector = NAME(WIDTH),
    .most_vectors = MOST_VECTORS,
    .most_rows = ROWS_BY_VECTORS,
    .tile = NAME(any_tile),
    .pack = NAME(pack),
    .sum_transposed = NAME(sum_transposed),
};
