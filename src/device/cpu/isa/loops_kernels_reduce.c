/* Inner loops of reductions: along columns, along a row, and the positions of extremes.
 *
 * A sequential f32 sum of n numbers loses precision as n grows. Here a block is summed first, in four parallel
 * vectors, and the blocks are added: the error grows with the block size and the number of blocks. NaN is the result
 * of a maximum or minimum if there is one, so that a NaN is not hidden. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

enum {
    BLOCK = 64,    /* rows of a column, or vectors of a row */
    SHORT_ROW = 32 /* elements */
};

LANES_INLINE lanes initial_value(cpu_reduction op) {
    return op == CPU_SUM ? (lanes){0} : op == CPU_MAX ? lanes_splat(-INFINITY) : lanes_splat(INFINITY);
}

LANES_INLINE lanes combine(cpu_reduction op, lanes so_far, lanes x) {
    return op == CPU_SUM   ? so_far + x
           : op == CPU_MAX ? lanes_max_keep_nan(so_far, x)
                           : lanes_min_keep_nan(so_far, x);
}

/* The terms of a reduction: elements or their squares. Squares are rounded before they are added, as if they came
 * from memory: this file is compiled without FMA contraction (CMakeLists.txt). */
typedef enum term { TERM_ELEMENT, TERM_SQUARE } term;

LANES_INLINE lanes term_of(term kind, lanes x) {
    return kind == TERM_SQUARE ? x * x : x;
}

/* Reduces the rows of one block for one vector of columns, of which `n` are valid; row 0 starts at element
 * `offset`. */
LANES_INLINE lanes reduce_block(cpu_reduction op, term kind, bool is_bf16, int64_t rows, int64_t stride,
                                int64_t n, const void *x, int64_t offset) {
    lanes a = initial_value(op), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 3 < rows; i += 4, offset += 4 * stride) {
        a = combine(op, a, term_of(kind, lanes_load_upto(is_bf16, x, offset, offset + n)));
        b = combine(op, b, term_of(kind, lanes_load_upto(is_bf16, x, offset + stride, offset + stride + n)));
        c = combine(op, c,
                    term_of(kind, lanes_load_upto(is_bf16, x, offset + 2 * stride, offset + 2 * stride + n)));
        d = combine(op, d,
                    term_of(kind, lanes_load_upto(is_bf16, x, offset + 3 * stride, offset + 3 * stride + n)));
    }
    for (; i < rows; i++, offset += stride)
        a = combine(op, a, term_of(kind, lanes_load_upto(is_bf16, x, offset, offset + n)));
    return combine(op, combine(op, a, b), combine(op, c, d));
}

LANES_INLINE void columns(cpu_reduction op, bool is_bf16, int64_t rows, int64_t c, int64_t stride,
                          const void *x, float *out) {
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t block = rows - first < BLOCK ? rows - first : BLOCK;
        for (int64_t k = 0; k < c; k += LANES) {
            lanes so_far =
                reduce_block(op, TERM_ELEMENT, is_bf16, block, stride, c - k, x, first * stride + k);
            if (first > 0) so_far = combine(op, lanes_load_upto(false, out, k, c), so_far);
            lanes_store_upto(false, out, k, c, so_far);
        }
    }
}

/* Treats a row as a column of vectors; an incomplete vector comes last. */
LANES_INLINE lanes reduce_row(cpu_reduction op, term kind, bool is_bf16, int64_t n, const void *x) {
    int64_t registers = n / LANES;
    lanes so_far = initial_value(op);
    for (int64_t first = 0; first < registers; first += BLOCK) {
        int64_t block = registers - first < BLOCK ? registers - first : BLOCK;
        so_far = combine(op, so_far, reduce_block(op, kind, is_bf16, block, LANES, LANES, x, first * LANES));
    }
    int64_t offset = registers * LANES;
    if (offset == n) return so_far;
    lanes last_vector = term_of(kind, lanes_load_some(is_bf16, x, offset, n - offset));
    return combine(op, so_far, lanes_upto(offset, n, last_vector, initial_value(op)));
}

LANES_INLINE float row(cpu_reduction op, bool is_bf16, int64_t n, const void *x) {
    lanes reduced = reduce_row(op, TERM_ELEMENT, is_bf16, n, x);
    return op == CPU_SUM   ? lanes_reduce_sum(reduced)
           : op == CPU_MAX ? lanes_reduce_max(reduced)
                           : lanes_reduce_min(reduced);
}

static float row_of_squares(int64_t n, const float *x) {
    return lanes_reduce_sum(reduce_row(CPU_SUM, TERM_SQUARE, false, n, x));
}

LANES_INLINE float element(bool is_bf16, const void *x, int64_t i) {
    if (!is_bf16) return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Returns an integer that orders (number, position): the upper half contains the number's bits in ascending order,
 * the lower half the negated position i, so that the first of equal numbers is the largest. */
LANES_INLINE int64_t rank_of(cpu_reduction op, float number, int64_t i) {
    float x = number + 0.0f; /* -0 equals 0 */
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t order = bits ^ ((bits >> 31) & INT32_MAX);
    if (op == CPU_MIN) order = ~order;
    order = x != x ? INT32_MAX : order;
    return (int64_t)((uint64_t)(uint32_t)order << 32 | (UINT32_MAX - (uint32_t)i));
}

/* Returns the position of the extreme in a short row (ten classes, for example), without branches on the numbers. */
LANES_INLINE int64_t index_in_short_row(cpu_reduction op, bool is_bf16, int64_t n, const void *x) {
    int64_t highest = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        int64_t rank = rank_of(op, element(is_bf16, x, i), i);
        highest = rank > highest ? rank : highest;
    }
    return (int64_t)(UINT32_MAX - (uint32_t)highest);
}

/* Returns the first element equal to the extreme, or the first NaN if the extreme is NaN. */
LANES_INLINE int64_t index_of(cpu_reduction op, bool is_bf16, int64_t n, const void *x) {
    if (n <= SHORT_ROW) return index_in_short_row(op, is_bf16, n, x);
    float extreme = row(op, is_bf16, n, x);
    bool nan = extreme != extreme;
    int64_t i = 0;
    while (i < n - 1) {
        float current = element(is_bf16, x, i);
        if (nan ? current != current : current == extreme) break;
        i++;
    }
    return i;
}

LANES_INLINE void finish(bool is_bf16, int64_t n, const float *x, float divisor, void *out) {
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store_upto(is_bf16, out, i, n, lanes_load_upto(false, x, i, n) / divisor);
}

LANES_INLINE void merge(cpu_reduction op, int64_t n, const float *x, float *so_far) {
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store_upto(false, so_far, i, n,
                         combine(op, lanes_load_upto(false, so_far, i, n), lanes_load_upto(false, x, i, n)));
}

/* ---- The table ---- */

#define REDUCTION_LOOPS(name, op)                                                                            \
    static void columns_##name##_f32(int64_t rows, int64_t c, int64_t stride, const void *x, float *out) {   \
        columns(op, false, rows, c, stride, x, out);                                                         \
    }                                                                                                        \
    static void columns_##name##_bf16(int64_t rows, int64_t c, int64_t stride, const void *x, float *out) {  \
        columns(op, true, rows, c, stride, x, out);                                                          \
    }                                                                                                        \
    static float row_##name##_f32(int64_t n, const void *x) {                                                \
        return row(op, false, n, x);                                                                         \
    }                                                                                                        \
    static float row_##name##_bf16(int64_t n, const void *x) {                                               \
        return row(op, true, n, x);                                                                          \
    }                                                                                                        \
    static void merge_##name(int64_t n, const float *x, float *so_far) {                                     \
        merge(op, n, x, so_far);                                                                             \
    }

#define INDEX_LOOPS(name, op)                                                                                \
    static int64_t index_of_##name##_f32(int64_t n, const void *x) {                                         \
        return index_of(op, false, n, x);                                                                    \
    }                                                                                                        \
    static int64_t index_of_##name##_bf16(int64_t n, const void *x) {                                        \
        return index_of(op, true, n, x);                                                                     \
    }

REDUCTION_LOOPS(sum, CPU_SUM)
REDUCTION_LOOPS(max, CPU_MAX)
REDUCTION_LOOPS(min, CPU_MIN)
INDEX_LOOPS(max, CPU_MAX)
INDEX_LOOPS(min, CPU_MIN)

static void finish_f32(int64_t n, const float *x, float divisor, void *out) {
    finish(false, n, x, divisor, out);
}
static void finish_bf16(int64_t n, const float *x, float divisor, void *out) {
    finish(true, n, x, divisor, out);
}

const struct cpu_reduce_loops LOOP(cpu_reduce_loops) = {
    .columns = {[CPU_SUM] = {columns_sum_f32, columns_sum_bf16},
                [CPU_MAX] = {columns_max_f32, columns_max_bf16},
                [CPU_MIN] = {columns_min_f32, columns_min_bf16}},
    .row = {[CPU_SUM] = {row_sum_f32, row_sum_bf16},
            [CPU_MAX] = {row_max_f32, row_max_bf16},
            [CPU_MIN] = {row_min_f32, row_min_bf16}},
    .row_of_squares = row_of_squares,
    .index_of_max = {index_of_max_f32, index_of_max_bf16},
    .index_of_min = {index_of_min_f32, index_of_min_bf16},
    .finish = {finish_f32, finish_bf16},
    .merge = {[CPU_SUM] = merge_sum, [CPU_MAX] = merge_max, [CPU_MIN] = merge_min},
};
