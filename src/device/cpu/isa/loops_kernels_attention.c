/* Inner loops of attention, on blocks of f32 numbers that stay in the L2 cache.
 *
 * A product computes 4 rows by 2 vectors of columns in registers. Its left operand is read one number at a time, so it
 * may be transposed; its right operand has rows of whole vectors. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

enum { ROWS = 4, VECTORS = 2 };

/* Computes `rows` (at most ROWS, a constant in every call) rows and VECTORS vectors of columns. */
LANES_INLINE void multiply_tile(int rows, const cpu_block_product *p, int64_t row, int64_t column) {
    lanes sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] =
                p->adds ? lanes_load(false, p->c, (row + r) * p->c_row + column + v * LANES) : (lanes){0};
    for (int64_t k = 0; k < p->depth; k++) {
        lanes b[VECTORS];
        for (int v = 0; v < VECTORS; v++) b[v] = lanes_load(false, p->b, k * p->b_row + column + v * LANES);
        for (int r = 0; r < rows; r++) {
            lanes a = lanes_splat(p->a[(row + r) * p->a_row + k * p->a_depth]);
            for (int v = 0; v < VECTORS; v++) sum[r][v] = lanes_multiply_add(a, b[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++)
            lanes_store(false, p->c, (row + r) * p->c_row + column + v * LANES, sum[r][v]);
}

static void multiply(const cpu_block_product *p) {
    for (int64_t column = 0; column < p->columns; column += VECTORS * LANES) {
        int64_t row = 0;
        for (; row + ROWS <= p->rows; row += ROWS) multiply_tile(ROWS, p, row, column);
        for (; row < p->rows; row++) multiply_tile(1, p, row, column);
    }
}

/* Masked lanes get the weight 0: their score is replaced by -infinity before the exponential. */
LANES_INLINE lanes masked(int64_t j, int64_t visible, lanes x) {
    return j >= visible ? lanes_splat(-INFINITY) : lanes_upto(j, visible, x, lanes_splat(-INFINITY));
}

static void soften(int64_t keys, int64_t visible, float scale, float *scores, cpu_running_softmax *row) {
    lanes best = lanes_splat(row->maximum), total = {0};
    for (int64_t j = 0; j < keys; j += LANES) {
        lanes x = masked(j, visible, lanes_load(false, scores, j) * scale);
        lanes_store(false, scores, j, x);
        best = lanes_select(lanes_greater(x, best), x, best);
    }
    float maximum = lanes_reduce_max(best);
    for (int64_t j = 0; j < keys; j += LANES) {
        lanes e = lanes_exp(lanes_load(false, scores, j) - maximum);
        lanes_store(false, scores, j, e);
        total += e;
    }
    row->factor = row->maximum == maximum ? 1 : expf(row->maximum - maximum);
    row->sum = row->sum * row->factor + lanes_reduce_sum(total);
    row->maximum = maximum;
}

static void scale_row(int64_t n, float factor, const float *x, float *y) {
    for (int64_t i = 0; i < n; i += LANES) lanes_store(false, y, i, lanes_load(false, x, i) * factor);
}

static void weigh(int64_t keys, int64_t visible, float scale, float logarithm, float centre, float *scores,
                  float *products) {
    for (int64_t j = 0; j < keys; j += LANES) {
        lanes p = lanes_exp(masked(j, visible, lanes_load(false, scores, j) * scale) - logarithm);
        lanes ds = p * (lanes_load(false, products, j) - centre) * scale;
        lanes_store(false, scores, j, p);
        lanes_store(false, products, j, ds);
    }
}

static float dot(int64_t n, const float *x, const float *y) {
    lanes sum = {0};
    for (int64_t i = 0; i < n; i += LANES)
        sum = lanes_multiply_add(lanes_load(false, x, i), lanes_load(false, y, i), sum);
    return lanes_reduce_sum(sum);
}

const struct cpu_attention_loops LOOP(cpu_attention_loops) = {
    .multiply = multiply, .soften = soften, .scale_row = scale_row, .weigh = weigh, .dot = dot};
