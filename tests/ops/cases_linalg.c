/* Cases of linear algebra. Matrices are well conditioned, so that central differences are as accurate as the
 * gradients. */
#include <math.h>

#include "ops/cases.h"

/* Returns [batch.., n, columns]. */
static tu_shape matrices_shape(tu_shape batch, int64_t n, int64_t columns) {
    batch.dim[batch.rank++] = n;
    batch.dim[batch.rank++] = columns;
    return batch;
}

static tu_shape random_batch_shape(case_run *c) {
    return case_shape(c, case_pick(c, "batch_axes", 3), 1, 3);
}

/* Fills invertible matrices: each row and column has one large element, usually off the diagonal, so that LU must
 * exchange rows. */
static void fill_invertible(case_run *c, double *data, tu_shape shape) {
    int64_t n = shape.dim[shape.rank - 1], count = tu_shape_elements(shape);
    int64_t shift = case_size(c, 0, n - 1);
    for (int64_t index = 0; index < count; index++) {
        int64_t i = index / n % n, j = index % n;
        data[index] = case_uniform(c, -0.4, 0.4) + (j == (i + shift) % n ? 2 : 0);
    }
}

/* Fills matrices whose lower triangle is that of a positive definite matrix. The upper triangle must not be read: it
 * would make the matrix indefinite. */
static void fill_positive_definite(case_run *c, double *data, tu_shape shape) {
    int64_t n = shape.dim[shape.rank - 1], count = tu_shape_elements(shape);
    for (int64_t index = 0; index < count; index++) {
        int64_t i = index / n % n, j = index % n;
        data[index] = j > i ? case_uniform(c, 50, 60) : case_uniform(c, -0.4, 0.4) + (i == j ? (double)n : 0);
    }
}

/* Fills both triangles; the diagonal has elements of magnitude 1 to 2. */
static void fill_triangular(case_run *c, double *data, tu_shape shape) {
    int64_t n = shape.dim[shape.rank - 1], count = tu_shape_elements(shape);
    for (int64_t index = 0; index < count; index++)
        data[index] = index / n % n == index % n ? copysign(case_uniform(c, 1, 2), case_uniform(c, -1, 1))
                                                 : case_uniform(c, -1, 1);
}

OP_CASE(inverse, CASE_LOOSE | CASE_NO_16_BIT) {
    int64_t n = case_size(c, 1, 4);
    case_output(
        c, tu_inverse(case_input_filled(c, matrices_shape(random_batch_shape(c), n, n), fill_invertible)));
}

OP_CASE(solve, CASE_LOOSE | CASE_NO_16_BIT) {
    int64_t n = case_size(c, 1, 4);
    tu_shape batch = random_batch_shape(c);
    tu_value a = case_input_filled(c, matrices_shape(batch, n, n), fill_invertible);
    case_output(c, tu_solve(a, case_input(c, matrices_shape(batch, n, case_size(c, 1, 3)), -1, 1)));
}

OP_CASE(cholesky, CASE_LOOSE | CASE_NO_16_BIT) {
    int64_t n = case_size(c, 1, 4);
    case_output(c, tu_cholesky(case_input_filled(c, matrices_shape(random_batch_shape(c), n, n),
                                                 fill_positive_definite)));
}

OP_CASE(triangular_solve, CASE_LOOSE | CASE_NO_16_BIT) {
    int64_t n = case_size(c, 1, 4);
    tu_shape batch = random_batch_shape(c);
    tu_value a = case_input_filled(c, matrices_shape(batch, n, n), fill_triangular);
    tu_value b = case_input(c, matrices_shape(batch, n, case_size(c, 1, 3)), -1, 1);
    case_output(c, tu_triangular_solve(a, b, .upper = case_pick(c, "upper", 2),
                                       .transpose = case_pick(c, "transpose", 2)));
}

OP_CASE(band, CASE_ALL_CHECKS) {
    tu_shape shape = matrices_shape(random_batch_shape(c), case_size(c, 1, 5), case_size(c, 1, 5));
    int64_t below = case_pick(c, "below", 4) - 1, above = case_pick(c, "above", 4) - 1;
    tu_value y = tu_band(case_input(c, shape, -2, 2), below, above);
    case_output(c, y);
    case_output(c, tu_square(y));
}

OP_CASE(eye, CASE_ALL_CHECKS) {
    int64_t rows = case_size(c, 1, 5), columns = case_size(c, 1, 5);
    tu_value x = case_input(c, TU_SHAPE(rows, columns), -2, 2);
    tu_value eye = tu_eye(case_graph(c), case_dtype(c), rows, columns);
    case_output(c, tu_square(tu_add(x, eye)));
    case_output(c, tu_mul(x, eye));
}

OP_CASE(diagonal, CASE_ALL_CHECKS) {
    int64_t rows = case_size(c, 1, 5), columns = case_size(c, 1, 5);
    int64_t offset = case_pick(c, "offset", 3) ? case_size(c, 1 - rows, columns - 1) : 0;
    tu_value y =
        tu_diagonal(case_input(c, matrices_shape(random_batch_shape(c), rows, columns), -2, 2), offset);
    case_output(c, y);
    case_output(c, tu_square(y));
}

OP_CASE(diagonal_matrix, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 4);
    tu_value y = tu_diagonal_matrix(case_input(c, shape, -2, 2), case_pick(c, "offset", 5) - 2);
    case_output(c, y);
    case_output(c, tu_square(y));
}

/* The negative log-likelihood of a Gaussian process: half the log-determinant and a quadratic form. */
OP_CASE(gaussian_likelihood, CASE_LOOSE | CASE_NO_16_BIT) {
    int64_t n = case_size(c, 1, 4);
    tu_value l = tu_cholesky(case_input_filled(c, TU_SHAPE(n, n), fill_positive_definite));
    tu_value y = tu_triangular_solve(l, case_input(c, TU_SHAPE(n, 1), -1, 1));
    tu_value ones = tu_fill(case_graph(c), case_dtype(c), TU_SHAPE(n, n), 1);
    tu_value diagonal = tu_add(tu_band(l, 0, 0), tu_sub(ones, tu_band(ones, 0, 0)));
    case_output(c, tu_add(tu_sum(tu_log(diagonal)), tu_scale(tu_sum(tu_square(y)), 0.5)));
}
