/* Linear systems, tested by their residual: a x must equal b, within the rounding of the terms that were added. The
 * solution x of an ill-conditioned system may be far from the exact one. */
#include "sweep/sweep.h"

/* One large element per row and column, off the diagonal, so that rows must be exchanged. */
static void fill_invertible(sweep *s, double *data, tu_shape shape) {
    int64_t n = shape.dim[shape.rank - 1], count = tu_shape_elements(shape),
            column_offset = sweep_random_int(s, 0, n - 1);
    for (int64_t i = 0; i < count; i++)
        data[i] = sweep_random_double(s, -1, 1) +
                  (i % n == (i / n % n + column_offset) % n ? 1 + (double)n / 4 : 0);
}

static void fill_positive_definite(sweep *s, double *data, tu_shape shape) {
    int64_t n = shape.dim[shape.rank - 1], count = tu_shape_elements(shape);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / n % n, column = i % n;
        data[i] = column > row ? 50 : sweep_random_double(s, -1, 1) + (row == column ? (double)n : 0);
    }
}

static void fill_triangular(sweep *s, double *data, tu_shape shape) {
    int64_t n = shape.dim[shape.rank - 1], count = tu_shape_elements(shape);
    for (int64_t i = 0; i < count; i++)
        data[i] =
            i / n % n == i % n ? sweep_random_double(s, 1, 2) : sweep_random_double(s, -1, 1) / (double)n;
}

/* Broadcasts the maximum of each column: the norm by which a residual is measured. */
static tu_value largest_of_column(tu_value x) {
    tu_shape shape = tu_value_shape(x);
    tu_value largest = tu_max(x, .axes = {1, {(int32_t)shape.rank - 2}}, .keep = true);
    return tu_broadcast(largest, shape);
}

static void expect_residual(sweep *s, const char *what, tu_value a, tu_value x, tu_value b, int64_t n) {
    tu_value magnitude = largest_of_column(tu_add(tu_matmul(tu_abs(a), tu_abs(x)), tu_abs(b)));
    sweep_expect_equal(s, what, tu_matmul(a, x), b, n, magnitude);
}

static void expect_solution(sweep *s, tu_value a, tu_value b, int64_t n) {
    tu_value x = sweep_device_result(s, tu_solve(a, b));
    if (sweep_is_oracle(s)) expect_residual(s, "solve", a, x, b, n);
}

static void expect_inverse(sweep *s, tu_value a, int64_t n) {
    tu_value x = sweep_device_result(s, tu_inverse(a));
    if (!sweep_is_oracle(s)) return;
    tu_shape shape = tu_value_shape(a);
    tu_value ones = tu_shift(tu_scale(a, 0), 1), one = tu_band(ones, 0, 0);
    (void)shape;
    expect_residual(s, "inverse", a, x, one, n);
}

static void expect_factor(sweep *s, tu_value a, int64_t n) {
    tu_value l = sweep_device_result(s, tu_cholesky(a));
    if (!sweep_is_oracle(s)) return;
    tu_value lower = tu_band(a, -1, 0), product = tu_matmul(l, l, .transpose_b = true);
    tu_value size = tu_add(tu_matmul(tu_abs(l), tu_abs(l), .transpose_b = true), tu_abs(lower));
    sweep_expect_equal(s, "cholesky", tu_band(product, -1, 0), lower, n, largest_of_column(size));
    sweep_expect_equal(s, "its upper triangle", tu_sub(l, tu_band(l, -1, 0)), tu_scale(l, 0), 0,
                       tu_scale(l, 0));
}

static void expect_triangular(sweep *s, tu_value a, tu_value b, int64_t n) {
    bool upper = sweep_one_in(s, 2), transpose = sweep_one_in(s, 2);
    sweep_note(s, "%s%s", upper ? " upper" : " lower", transpose ? " transposed" : "");
    tu_value x = sweep_device_result(s, tu_triangular_solve(a, b, .upper = upper, .transpose = transpose));
    if (!sweep_is_oracle(s)) return;
    tu_value triangle = upper ? tu_band(a, 0, -1) : tu_band(a, -1, 0);
    if (transpose) {
        tu_axes swap = {0};
        int rank = (int)tu_value_shape(a).rank;
        for (int i = 0; i < rank; i++) swap.axis[swap.count++] = i;
        swap.axis[rank - 1] = rank - 2;
        swap.axis[rank - 2] = rank - 1;
        triangle = tu_transpose_with(triangle, swap);
    }
    expect_residual(s, "triangular solve", triangle, x, b, n);
}

void sweep_linear_algebra(sweep *s) {
    static const char *const names[] = {"solve", "inverse", "cholesky", "triangular solve"};
    int64_t kind = sweep_random_int(s, 0, 3), n = sweep_size(s, sweep_one_in(s, 6) ? 129 : 40);
    int64_t batch = sweep_one_in(s, 2) ? 1 : sweep_random_int(s, 2, n > 40 ? 3 : 12),
            columns = sweep_size(s, 37);
    tu_shape matrix = TU_SHAPE(batch, n, n), right = TU_SHAPE(batch, n, columns);
    sweep_note(s, " %s batch %lld n%lld columns %lld", names[kind], (long long)batch, (long long)n,
               (long long)columns);
    switch (kind) {
    case 0: {
        tu_value a = sweep_input_filled(s, matrix, fill_invertible);
        expect_solution(s, a, sweep_input(s, right), n);
        break;
    }
    case 1: expect_inverse(s, sweep_input_filled(s, matrix, fill_invertible), n); break;
    case 2: expect_factor(s, sweep_input_filled(s, matrix, fill_positive_definite), n); break;
    default: {
        tu_value a = sweep_input_filled(s, matrix, fill_triangular);
        expect_triangular(s, a, sweep_input(s, right), n);
        break;
    }
    }
}
