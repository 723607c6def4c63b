/* Matrix products and their gradients: transposed, batched, broadcast over the batch; with bias and ReLU. */
#include "sweep/sweep.h"

typedef struct product {
    /* Batch sizes of a and b: equal, or one of them 1; 0: a matrix without batch axis. */
    int64_t batch[2], m, n, k;
    bool transpose_a, transpose_b;
} product;

static tu_value multiply(const void *context, const tu_value *operands) {
    const product *p = context;
    return tu_matmul(operands[0], operands[1], .transpose_a = p->transpose_a, .transpose_b = p->transpose_b);
}

static tu_shape matrices(int64_t batch, int64_t rows, int64_t columns, bool transpose) {
    int64_t dims[3] = {batch, transpose ? columns : rows, transpose ? rows : columns};
    return tu_shape_of(batch ? 3 : 2, batch ? dims : dims + 1);
}

static int64_t items(const product *p) {
    int64_t largest = p->batch[0] > p->batch[1] ? p->batch[0] : p->batch[1];
    return largest ? largest : 1;
}

/* Returns how many products of the batch a gradient adds; in half types each of several is rounded before. */
static int64_t repeats(const product *p, int operand) {
    return p->batch[operand] > 1 ? 1 : items(p);
}

static void expect_product(sweep *s, const product *p, bool epilogue) {
    sweep_note(s, " batch %lld,%lld m%lld n%lld k%lld%s%s", (long long)p->batch[0], (long long)p->batch[1],
               (long long)p->m, (long long)p->n, (long long)p->k, p->transpose_a ? " a^T" : "",
               p->transpose_b ? " b^T" : "");
    tu_value operands[2] = {sweep_input(s, matrices(p->batch[0], p->m, p->k, p->transpose_a)),
                            sweep_input(s, matrices(p->batch[1], p->k, p->n, p->transpose_b))};
    tu_value y, y_magnitude, gradients[2], magnitudes[2];
    sweep_differentiate(s, multiply, p, 2, operands, &y, &y_magnitude, gradients, magnitudes);
    if (epilogue) {
        tu_value bias = sweep_input(s, TU_SHAPE(p->n));
        tu_value magnitude = {0};
        if (sweep_is_oracle(s)) magnitude = tu_add(y_magnitude, tu_abs(bias));
        sweep_expect_product(s, "product with bias and relu", tu_relu(tu_add(y, bias)), p->k + 1,
                             sweep_is_half(s), &magnitude);
    } else {
        sweep_expect_product(s, "product", y, p->k, false, &y_magnitude);
    }
    sweep_expect_product(s, "gradient of a", gradients[0], p->n * repeats(p, 0),
                         sweep_is_half(s) && repeats(p, 0) > 1, &magnitudes[0]);
    sweep_expect_product(s, "gradient of b", gradients[1], p->m * repeats(p, 1),
                         sweep_is_half(s) && repeats(p, 1) > 1, &magnitudes[1]);
}

void sweep_product(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 6000000 : 400000;
    product p;
    do {
        int64_t batch = sweep_one_in(s, 2) ? 0 : sweep_size(s, 24), kind = sweep_between(s, 0, 4);
        p = (product){.batch = {batch, batch},
                      .m = sweep_size(s, 260),
                      .n = sweep_size(s, 260),
                      .k = sweep_size(s, 260),
                      .transpose_a = sweep_one_in(s, 2),
                      .transpose_b = sweep_one_in(s, 2)};
        if (kind < 2) p.batch[kind] = batch && sweep_one_in(s, 2) ? 1 : 0; /* broadcast, by size or by rank */
    } while (items(&p) * p.m * p.n * p.k > max_work);
    expect_product(s, &p, sweep_one_in(s, 3));
}

/* Sizes that networks use, for which libraries are tested best. */
void sweep_usual_product(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 20000000 : 2000000;
    product p;
    do {
        int64_t batch = sweep_one_in(s, 2) ? 0 : sweep_between(s, 1, 8);
        p = (product){.batch = {batch, sweep_one_in(s, 4) ? 0 : batch},
                      .m = 16 * sweep_between(s, 1, 32),
                      .n = 16 * sweep_between(s, 1, 32),
                      .k = 16 * sweep_between(s, 1, 32),
                      .transpose_a = sweep_one_in(s, 2),
                      .transpose_b = sweep_one_in(s, 2)};
    } while (items(&p) * p.m * p.n * p.k > max_work);
    expect_product(s, &p, sweep_one_in(s, 3));
}

void sweep_known_broadcast_product(sweep *s);
void sweep_known_broadcast_product(sweep *s) {
    static const product p = {
        .batch = {3, 0}, .m = 93, .n = 67, .k = 63, .transpose_a = true, .transpose_b = true};
    expect_product(s, &p, false);
}

void sweep_known_broadcast_left(sweep *s);
void sweep_known_broadcast_left(sweep *s) {
    static const product p = {
        .batch = {1, 3}, .m = 93, .n = 67, .k = 63, .transpose_a = true, .transpose_b = true};
    expect_product(s, &p, false);
}

void sweep_known_odd_depth(sweep *s);
void sweep_known_odd_depth(sweep *s) {
    static const product p = {.m = 257, .n = 5, .k = 63, .transpose_a = true};
    expect_product(s, &p, true);
}

void sweep_known_odd_sizes(sweep *s);
void sweep_known_odd_sizes(sweep *s) {
    static const product p = {.m = 63, .n = 53, .k = 41, .transpose_a = true};
    expect_product(s, &p, false);
}
