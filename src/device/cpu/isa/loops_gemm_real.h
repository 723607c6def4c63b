/* The loops of loops_gemm.h for one type. Before including it, define REAL, BITS, VECTOR_BYTES, NAME(x) and FMA (see
 * loops_gemm_tile.h), and TRANSPOSE(from, from_row, to, to_row), which transposes TRANSPOSED rows of 4 columns into
 * 4 rows of TRANSPOSED columns. */

#define ELEMENT REAL
#define TARGET
#include "device/cpu/isa/loops_gemm_tile.h"
#undef ELEMENT
#undef TARGET

/* ---- Packing ---- */

/* Transposes 4 x 4 elements. */
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
    for (; j + TRANSPOSED <= columns; j += TRANSPOSED) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4)
            TRANSPOSE(source + j * column_step + k, column_step, panel + k * width + j, width);
        for (; k < depth; k++)
            for (int64_t i = j; i < j + TRANSPOSED; i++) panel[k * width + i] = source[i * column_step + k];
    }
    for (; j < columns; j++)
        for (int64_t k = 0; k < depth; k++) panel[k * width + j] = source[j * column_step + k];
}

/* Packs rows of `run` to 2 * `run` - 1 columns by two copies of `run` elements that may overlap. */
static inline __attribute__((always_inline)) void NAME(pack_overlapping)(const int64_t run, int64_t depth,
                                                                         int64_t columns, const REAL *from,
                                                                         int64_t step, REAL *to,
                                                                         int64_t width) {
    for (int64_t k = 0; k < depth; k++, from += step, to += width) {
        memcpy(to, from, (size_t)run * sizeof *to);
        memcpy(to + columns - run, from + columns - run, (size_t)run * sizeof *to);
    }
}

/* Packs rows of less than 16 columns. */
static void NAME(pack_narrow)(int64_t depth, int64_t columns, const REAL *from, int64_t step, REAL *to,
                              int64_t width) {
    if (columns >= 8)
        NAME(pack_overlapping)(8, depth, columns, from, step, to, width);
    else if (columns >= 4)
        NAME(pack_overlapping)(4, depth, columns, from, step, to, width);
    else if (columns >= 2)
        NAME(pack_overlapping)(2, depth, columns, from, step, to, width);
    else if (columns == 1)
        NAME(pack_overlapping)(1, depth, columns, from, step, to, width);
}

static void NAME(pack_rows)(int64_t depth, int64_t columns, const REAL *from, int64_t step, REAL *to,
                            int64_t width) {
    int64_t wide = columns / 16 * 16;
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < wide; j += 16)
            memcpy(to + k * width + j, from + k * step + j, 16 * sizeof *to);
    NAME(pack_narrow)(depth, columns - wide, from + wide, step, to + wide, width);
}

static void NAME(pack)(int64_t depth, int64_t columns, const void *source, int64_t k_step,
                       int64_t column_step, void *panel, int64_t width) {
    if (column_step == 1)
        NAME(pack_rows)(depth, columns, source, k_step, panel, width);
    else
        NAME(pack_transposed)(depth, columns, source, column_step, panel, width);
    if (columns == width) return;
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = columns; j < width; j++) ((REAL *)panel)[k * width + j] = 0;
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
    .element_bytes = sizeof(REAL),
    .operand_bytes = sizeof(REAL),
    .vector_elements = NAME(WIDTH),
    .max_vectors = MAX_VECTORS,
    .max_rows = ROWS_BY_VECTORS,
    .tile = NAME(dispatch_tile),
    .pack = NAME(pack),
    .sum_transposed = NAME(sum_transposed),
};
