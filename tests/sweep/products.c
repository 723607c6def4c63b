/* Matrix products (matmul) and their gradients: transposed, batched, broadcast over the batch; with bias and ReLU. */
#include "sweep/sweep.h"

typedef struct matmul_case {
    /* Batch sizes of a and b: equal, or one of them 1; 0: a matrix without batch axis. */
    int64_t batch[2], m, n, k;
    bool transpose_a, transpose_b;
} matmul_case;

static tu_value multiply(const void *context, const tu_value *operands) {
    const matmul_case *p = context;
    return tu_matmul(operands[0], operands[1], .transpose_a = p->transpose_a, .transpose_b = p->transpose_b);
}

static tu_shape matrix_shape(int64_t batch, int64_t rows, int64_t columns, bool transpose) {
    int64_t dims[3] = {batch, transpose ? columns : rows, transpose ? rows : columns};
    return tu_shape_of(batch ? 3 : 2, batch ? dims : dims + 1);
}

static int64_t batch_size(const matmul_case *p) {
    int64_t largest = p->batch[0] > p->batch[1] ? p->batch[0] : p->batch[1];
    return largest ? largest : 1;
}

/* Returns how many matrix products of the batch a gradient adds. If there are several, 16-bit types round each of
 * them before the addition. */
static int64_t added_products(const matmul_case *p, int operand) {
    return p->batch[operand] > 1 ? 1 : batch_size(p);
}

static void expect_matmul(sweep *s, const matmul_case *p, bool epilogue) {
    sweep_note(s, " batch %lld,%lld m%lld n%lld k%lld%s%s", (long long)p->batch[0], (long long)p->batch[1],
               (long long)p->m, (long long)p->n, (long long)p->k, p->transpose_a ? " a^T" : "",
               p->transpose_b ? " b^T" : "");
    tu_value operands[2] = {sweep_input(s, matrix_shape(p->batch[0], p->m, p->k, p->transpose_a)),
                            sweep_input(s, matrix_shape(p->batch[1], p->k, p->n, p->transpose_b))};
    tu_value y, y_magnitude, gradients[2], magnitudes[2];
    sweep_differentiate(s, multiply, p, 2, operands, &y, &y_magnitude, gradients, magnitudes);
    if (epilogue) {
        tu_value bias = sweep_input(s, TU_SHAPE(p->n));
        tu_value magnitude = {0};
        if (sweep_is_oracle(s)) magnitude = tu_add(y_magnitude, tu_abs(bias));
        sweep_expect_dot_products(s, "matmul with bias and relu", tu_relu(tu_add(y, bias)), p->k + 1,
                                  sweep_is_16_bit(s), &magnitude);
    } else {
        sweep_expect_dot_products(s, "matmul", y, p->k, false, &y_magnitude);
    }
    sweep_expect_dot_products(s, "gradient of a", gradients[0], p->n * added_products(p, 0),
                              sweep_is_16_bit(s) && added_products(p, 0) > 1, &magnitudes[0]);
    sweep_expect_dot_products(s, "gradient of b", gradients[1], p->m * added_products(p, 1),
                              sweep_is_16_bit(s) && added_products(p, 1) > 1, &magnitudes[1]);
}

void sweep_matmul(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 6000000 : 400000;
    matmul_case p;
    do {
        int64_t batch = sweep_one_in(s, 2) ? 0 : sweep_size(s, 24), kind = sweep_random_int(s, 0, 4);
        p = (matmul_case){.batch = {batch, batch},
                          .m = sweep_size(s, 260),
                          .n = sweep_size(s, 260),
                          .k = sweep_size(s, 260),
                          .transpose_a = sweep_one_in(s, 2),
                          .transpose_b = sweep_one_in(s, 2)};
        if (kind < 2) p.batch[kind] = batch && sweep_one_in(s, 2) ? 1 : 0; /* broadcast, by size or by rank */
    } while (batch_size(&p) * p.m * p.n * p.k > max_work);
    expect_matmul(s, &p, sweep_one_in(s, 3));
}

/* Sizes that networks use, for which libraries are tested best. */
void sweep_network_matmul(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 20000000 : 2000000;
    matmul_case p;
    do {
        int64_t batch = sweep_one_in(s, 2) ? 0 : sweep_random_int(s, 1, 8);
        p = (matmul_case){.batch = {batch, sweep_one_in(s, 4) ? 0 : batch},
                          .m = 16 * sweep_random_int(s, 1, 32),
                          .n = 16 * sweep_random_int(s, 1, 32),
                          .k = 16 * sweep_random_int(s, 1, 32),
                          .transpose_a = sweep_one_in(s, 2),
                          .transpose_b = sweep_one_in(s, 2)};
    } while (batch_size(&p) * p.m * p.n * p.k > max_work);
    expect_matmul(s, &p, sweep_one_in(s, 3));
}

void sweep_regression_broadcast_product(sweep *s);
void sweep_regression_broadcast_product(sweep *s) {
    static const matmul_case p = {
        .batch = {3, 0}, .m = 93, .n = 67, .k = 63, .transpose_a = true, .transpose_b = true};
    expect_matmul(s, &p, false);
}

void sweep_regression_broadcast_left(sweep *s);
void sweep_regression_broadcast_left(sweep *s) {
    static const matmul_case p = {
        .batch = {1, 3}, .m = 93, .n = 67, .k = 63, .transpose_a = true, .transpose_b = true};
    expect_matmul(s, &p, false);
}

void sweep_regression_odd_depth(sweep *s);
void sweep_regression_odd_depth(sweep *s) {
    static const matmul_case p = {.m = 257, .n = 5, .k = 63, .transpose_a = true};
    expect_matmul(s, &p, true);
}

void sweep_regression_odd_sizes(sweep *s);
void sweep_regression_odd_sizes(sweep *s) {
    static const matmul_case p = {.m = 63, .n = 53, .k = 41, .transpose_a = true};
    expect_matmul(s, &p, false);
}
