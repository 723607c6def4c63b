/* Inner loops of reductions: along columns, along a row, and the positions of extremes.
 *
 * A sequential f32 sum of n numbers loses precision as n grows. Here a block is summed first, in four parallel
 * vectors, and the blocks are added: the error grows with the block size and the number of blocks. NaN is the result
 * of a maximum or minimum if there is one, so that a bad value is not hidden. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

enum {
    BLOCK = 64,    /* rows of a column, or vectors of a row */
    SHORT_ROW = 32 /* elements */
};

LANES_INLINE lanes start(cpu_folding f) {
    return f == CPU_SUM ? (lanes){0} : f == CPU_MAX ? lanes_of(-INFINITY) : lanes_of(INFINITY);
}

LANES_INLINE lanes fold(cpu_folding f, lanes so_far, lanes x) {
    return f == CPU_SUM ? so_far + x : f == CPU_MAX ? lanes_larger(so_far, x) : lanes_smaller(so_far, x);
}

/* What is reduced: elements or their squares. Squares are rounded before they are added, as if they came from
 * memory: this file is compiled without FMA contraction (CMakeLists.txt). */
typedef enum term { TERM_ELEMENT, TERM_SQUARE } term;

LANES_INLINE lanes term_of(term what, lanes x) {
    return what == TERM_SQUARE ? x * x : x;
}

/* Reduces the rows of one block for one vector of columns, of which `n` are valid; row 0 is at element `at`. */
LANES_INLINE lanes fold_block(cpu_folding f, term what, bool half, int64_t rows, int64_t stride, int64_t n,
                              const void *x, int64_t at) {
    lanes a = start(f), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 3 < rows; i += 4, at += 4 * stride) {
        a = fold(f, a, term_of(what, lanes_load_upto(half, x, at, at + n)));
        b = fold(f, b, term_of(what, lanes_load_upto(half, x, at + stride, at + stride + n)));
        c = fold(f, c, term_of(what, lanes_load_upto(half, x, at + 2 * stride, at + 2 * stride + n)));
        d = fold(f, d, term_of(what, lanes_load_upto(half, x, at + 3 * stride, at + 3 * stride + n)));
    }
    for (; i < rows; i++, at += stride) a = fold(f, a, term_of(what, lanes_load_upto(half, x, at, at + n)));
    return fold(f, fold(f, a, b), fold(f, c, d));
}

LANES_INLINE void columns(cpu_folding f, bool half, int64_t rows, int64_t c, int64_t stride, const void *x,
                          float *out) {
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t block = rows - first < BLOCK ? rows - first : BLOCK;
        for (int64_t k = 0; k < c; k += LANES) {
            lanes so_far = fold_block(f, TERM_ELEMENT, half, block, stride, c - k, x, first * stride + k);
            if (first > 0) so_far = fold(f, lanes_load_upto(false, out, k, c), so_far);
            lanes_store_upto(false, out, k, c, so_far);
        }
    }
}

/* Treats a row as a column of vectors; an incomplete vector comes last. */
LANES_INLINE lanes fold_row(cpu_folding f, term what, bool half, int64_t n, const void *x) {
    int64_t registers = n / LANES;
    lanes so_far = start(f);
    for (int64_t first = 0; first < registers; first += BLOCK) {
        int64_t block = registers - first < BLOCK ? registers - first : BLOCK;
        so_far = fold(f, so_far, fold_block(f, what, half, block, LANES, LANES, x, first * LANES));
    }
    int64_t at = registers * LANES;
    if (at == n) return so_far;
    lanes rest = term_of(what, lanes_load_some(half, x, at, n - at));
    return fold(f, so_far, lanes_upto(at, n, rest, start(f)));
}

LANES_INLINE float row(cpu_folding f, bool half, int64_t n, const void *x) {
    lanes folded = fold_row(f, TERM_ELEMENT, half, n, x);
    return f == CPU_SUM ? lanes_sum(folded) : f == CPU_MAX ? lanes_largest(folded) : lanes_smallest(folded);
}

static float row_of_squares(int64_t n, const float *x) {
    return lanes_sum(fold_row(CPU_SUM, TERM_SQUARE, false, n, x));
}

LANES_INLINE float element(bool half, const void *x, int64_t i) {
    if (!half) return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Returns an integer that orders (number, position): the upper half contains the number's bits in ascending order,
 * the lower half the negated position i, so that the first of equal numbers is the largest. */
LANES_INLINE int64_t rank_of(cpu_folding f, float number, int64_t i) {
    float x = number + 0.0f; /* -0 equals 0 */
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t order = bits ^ ((bits >> 31) & INT32_MAX);
    if (f == CPU_MIN) order = ~order;
    order = x != x ? INT32_MAX : order;
    return (int64_t)((uint64_t)(uint32_t)order << 32 | (UINT32_MAX - (uint32_t)i));
}

/* Returns the position of the extreme in a short row (ten classes, for example), without branches on the numbers. */
LANES_INLINE int64_t index_in_short_row(cpu_folding f, bool half, int64_t n, const void *x) {
    int64_t highest = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        int64_t rank = rank_of(f, element(half, x, i), i);
        highest = rank > highest ? rank : highest;
    }
    return (int64_t)(UINT32_MAX - (uint32_t)highest);
}

/* Returns the first element equal to the extreme, or the first NaN if the extreme is NaN. */
LANES_INLINE int64_t index_of(cpu_folding f, bool half, int64_t n, const void *x) {
    if (n <= SHORT_ROW) return index_in_short_row(f, half, n, x);
    float extreme = row(f, half, n, x);
    bool nan = extreme != extreme;
    int64_t i = 0;
    while (i < n - 1) {
        float here = element(half, x, i);
        if (nan ? here != here : here == extreme) break;
        i++;
    }
    return i;
}

LANES_INLINE void finish(bool half, int64_t n, const float *x, float divisor, void *out) {
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store_upto(half, out, i, n, lanes_load_upto(false, x, i, n) / divisor);
}

LANES_INLINE void merge(cpu_folding f, int64_t n, const float *x, float *so_far) {
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store_upto(false, so_far, i, n,
                         fold(f, lanes_load_upto(false, so_far, i, n), lanes_load_upto(false, x, i, n)));
}

/* ---- The table ---- */

#define FOLDING(name, f)                                                                                     \
    static void columns_##name##_f32(int64_t rows, int64_t c, int64_t stride, const void *x, float *out) {   \
        columns(f, false, rows, c, stride, x, out);                                                          \
    }                                                                                                        \
    static void columns_##name##_bf16(int64_t rows, int64_t c, int64_t stride, const void *x, float *out) {  \
        columns(f, true, rows, c, stride, x, out);                                                           \
    }                                                                                                        \
    static float row_##name##_f32(int64_t n, const void *x) {                                                \
        return row(f, false, n, x);                                                                          \
    }                                                                                                        \
    static float row_##name##_bf16(int64_t n, const void *x) {                                               \
        return row(f, true, n, x);                                                                           \
    }                                                                                                        \
    static void merge_##name(int64_t n, const float *x, float *so_far) {                                     \
        merge(f, n, x, so_far);                                                                              \
    }

#define PLACE(name, f)                                                                                       \
    static int64_t index_of_##name##_f32(int64_t n, const void *x) {                                         \
        return index_of(f, false, n, x);                                                                     \
    }                                                                                                        \
    static int64_t index_of_##name##_bf16(int64_t n, const void *x) {                                        \
        return index_of(f, true, n, x);                                                                      \
    }

FOLDING(sum, CPU_SUM)
FOLDING(max, CPU_MAX)
FOLDING(min, CPU_MIN)
PLACE(max, CPU_MAX)
PLACE(min, CPU_MIN)

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
