/* Linear algebra on small matrices: inverse, solve, cholesky, triangular_solve, band.
 *
 * The last two axes are the matrix, the axes before them a batch. Element types: f32 and f64; any for band.
 *
 * Gradients, with G for the gradient of the result (M. Giles, "Collected matrix derivative results for forward and
 * reverse mode algorithmic differentiation", 2008; I. Murray, "Differentiation of the Cholesky decomposition", 2016):
 *
 *     Y = A^-1       gradient of A = -Y^T G Y^T
 *     A X = B        gradient of B = A^-T G =: H;  gradient of A = -H X^T
 *     T X = B        the same with A = T, restricted to the triangle of T that is read
 *     L L^T = A      S = L^-T P(L^T G) L^-1;  gradient of A = P(S + S^T)
 *
 * where P keeps the lower triangle and halves its diagonal.
 *
 * cholesky reads only the lower triangle of A and assumes that A is symmetric. An element below the diagonal
 * represents two elements of the symmetric matrix and gets the sum of their gradients; an element above it gets none.
 * This agrees with finite differences, also for second derivatives: the gradients use only operations of this file
 * and matmuls. These matmuls are marked exact, because an inverse amplifies rounding errors by the condition
 * number: if a graph is compiled for bf16, f16 or tf32, its linear algebra and its gradients keep the type they were
 * built with.
 *
 * A run fails with TU_NUMERIC if a matrix cannot be inverted or factored. The message contains the node, the index of
 * the matrix in the batch, and the pivot.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Shapes ---- */

static tu_status check_square(const tu__rule *r) {
    tu_type a = r->in[0];
    if (a.dtype != TU_F32 && a.dtype != TU_F64)
        return tu__rule_fail(r, "the matrices are %s, expected f32 or f64: convert with tu_cast",
                             tu_dtype_name(a.dtype));
    if (a.shape.rank < 2 || a.shape.dim[a.shape.rank - 1] != a.shape.dim[a.shape.rank - 2])
        return tu__rule_fail(r, "expected square matrices: [..., n, n]");
    return TU_OK;
}

static tu_status square_shape(tu__rule *r) {
    TU_TRY(check_square(r));
    r->out[0] = r->in[0];
    return TU_OK;
}

/* Infers the type of x in a x = b, for a [..., n, n] and b [..., n, k] with equal batch axes. */
static tu_status system_shape(tu__rule *r) {
    TU_TRY(check_square(r));
    tu_type a = r->in[0], b = r->in[1];
    if (a.dtype != b.dtype)
        return tu__rule_fail(r, "the element types differ, expected equal ones: convert with tu_cast");
    tu_type expected = a;
    if (b.shape.rank == a.shape.rank) expected.shape.dim[a.shape.rank - 1] = b.shape.dim[a.shape.rank - 1];
    if (!tu_shape_equal(b.shape, expected.shape))
        return tu__rule_fail(
            r, "the shapes do not match: expected matrices [..., n, n] and right-hand sides [..., n, k] with "
               "equal batch axes");
    r->out[0] = b;
    return TU_OK;
}

tu_status tu__inverse_shape(tu__rule *r) {
    return square_shape(r);
}

tu_status tu__cholesky_shape(tu__rule *r) {
    return square_shape(r);
}

tu_status tu__solve_shape(tu__rule *r) {
    return system_shape(r);
}

tu_status tu__triangular_solve_shape(tu__rule *r) {
    return system_shape(r);
}

tu_status tu__band_shape(tu__rule *r) {
    if (r->in[0].shape.rank < 2) return tu__rule_fail(r, "expected matrices: [..., rows, columns]");
    r->out[0] = r->in[0];
    return TU_OK;
}

/* ---- Floating-point operations ---- */

/* A batch of n x n matrices with k right-hand sides each. */
typedef struct systems {
    int64_t count, n, k;
} systems;

static systems systems_of(tu_shape a, tu_shape x) {
    int64_t n = a.dim[a.rank - 1];
    return (systems){tu_shape_elements(a) / (n * n), n, x.dim[x.rank - 1]};
}

/* Converts a count to an integer, at most INT64_MAX. */
static int64_t saturate_to_i64(double flops) {
    return flops < 0x1p62 ? (int64_t)flops : INT64_MAX;
}

int64_t tu__inverse_flops(const tu__node *node, const tu_type *in) {
    systems s = systems_of(in[0].shape, node->outputs[0].shape);
    return saturate_to_i64((double)s.count * 2 * (double)s.n * (double)s.n * (double)s.n);
}

int64_t tu__solve_flops(const tu__node *node, const tu_type *in) {
    systems s = systems_of(in[0].shape, node->outputs[0].shape);
    return saturate_to_i64((double)s.count * (double)s.n * (double)s.n *
                           (2.0 / 3 * (double)s.n + 2 * (double)s.k));
}

int64_t tu__cholesky_flops(const tu__node *node, const tu_type *in) {
    systems s = systems_of(in[0].shape, node->outputs[0].shape);
    return saturate_to_i64((double)s.count * (double)s.n * (double)s.n * (double)s.n / 3);
}

int64_t tu__triangular_solve_flops(const tu__node *node, const tu_type *in) {
    systems s = systems_of(in[0].shape, node->outputs[0].shape);
    return saturate_to_i64((double)s.count * (double)s.n * (double)s.n * (double)s.k);
}

/* ---- Gaussian elimination: the reference kernels of inverse and solve ---- */

/* The index and value of a pivot at which factoring failed. */
typedef struct failed_pivot {
    int64_t index;
    double value;
} failed_pivot;

static tu_status fail_pivot(const tu__reference_call *m, const char *what, int64_t matrix,
                            failed_pivot pivot) {
    return tu_fail(TU_NUMERIC, "%s '%s' %s: matrix %" PRId64 " of the batch is %s (pivot %" PRId64 " is %g)",
                   m->node->op->name, m->node->name, tu__type_string(m->in[0].type), matrix, what,
                   pivot.index, pivot.value);
}

static void swap_rows(double *x, int64_t columns, int64_t i, int64_t j) {
    for (int64_t c = 0; c < columns; c++) {
        double saved = x[i * columns + c];
        x[i * columns + c] = x[j * columns + c];
        x[j * columns + c] = saved;
    }
}

/* row i of x -= factor * row j */
static void subtract_row(double *x, int64_t columns, int64_t i, int64_t j, double factor) {
    for (int64_t c = 0; c < columns; c++) x[i * columns + c] -= factor * x[j * columns + c];
}

/* Returns the row from p on with the largest element in column p. NaN is the largest, so that it becomes the pivot
 * and the elimination fails. */
static int64_t pivot_row(const double *a, int64_t n, int64_t p) {
    int64_t best = p;
    for (int64_t i = p + 1; i < n; i++)
        if (!(fabs(a[i * n + p]) <= fabs(a[best * n + p])) && !isnan(a[best * n + p])) best = i;
    return best;
}

/* Solves a x = b for one matrix by Gaussian elimination with partial pivoting. Overwrites a [n, n]; x [n, k] contains
 * b on entry and the solution on return. Returns false at a pivot of zero or NaN. */
static bool eliminate(systems s, double *a, double *x, failed_pivot *failed) {
    for (int64_t p = 0; p < s.n; p++) {
        int64_t best = pivot_row(a, s.n, p);
        double pivot = a[best * s.n + p];
        if (!(fabs(pivot) > 0)) {
            *failed = (failed_pivot){p, pivot};
            return false;
        }
        if (best != p) {
            swap_rows(a, s.n, p, best);
            swap_rows(x, s.k, p, best);
        }
        for (int64_t i = p + 1; i < s.n; i++) {
            double factor = a[i * s.n + p] / pivot;
            subtract_row(a, s.n, i, p, factor);
            subtract_row(x, s.k, i, p, factor);
        }
    }
    for (int64_t p = s.n - 1; p >= 0; p--) {
        for (int64_t j = p + 1; j < s.n; j++) subtract_row(x, s.k, p, j, a[p * s.n + j]);
        for (int64_t c = 0; c < s.k; c++) x[p * s.k + c] /= a[p * s.n + p];
    }
    return true;
}

/* Solves all systems. `x` contains the right-hand sides on entry and the solutions on return. */
static tu_status solve_batch(const tu__reference_call *m, systems s, double *x) {
    size_t matrix = (size_t)(s.n * s.n);
    double *a = tu__alloc_array(matrix, sizeof *a, "a matrix being factored");
    if (!a) return TU_NO_MEMORY;
    tu_status status = TU_OK;
    for (int64_t b = 0; b < s.count && status == TU_OK; b++) {
        memcpy(a, m->in[0].data + (size_t)b * matrix, matrix * sizeof *a);
        failed_pivot failed;
        if (!eliminate(s, a, x + b * s.n * s.k, &failed)) status = fail_pivot(m, "singular", b, failed);
    }
    tu__free(a);
    return status;
}

tu_status tu__inverse_reference(const tu__reference_call *m) {
    systems s = systems_of(m->in[0].type.shape, m->out[0].type.shape);
    double *x = m->out[0].data;
    for (int64_t b = 0; b < s.count; b++)
        for (int64_t i = 0; i < s.n; i++)
            for (int64_t j = 0; j < s.n; j++) x[(b * s.n + i) * s.n + j] = i == j;
    return solve_batch(m, s, x);
}

tu_status tu__solve_reference(const tu__reference_call *m) {
    systems s = systems_of(m->in[0].type.shape, m->in[1].type.shape);
    memcpy(m->out[0].data, m->in[1].data, (size_t)(s.count * s.n * s.k) * sizeof(double));
    return solve_batch(m, s, m->out[0].data);
}

/* A matrix product inside a gradient, which compilation for a lower precision must not change. */
static tu_value exact_matmul(tu_value a, tu_value b, bool transpose_a, bool transpose_b) {
    return tu_matmul(a, b, .transpose_a = transpose_a, .transpose_b = transpose_b, .exact = true);
}

void tu__inverse_gradient(tu__vjp *v) {
    tu_value y = tu__vjp_output(v, 0), g = tu__vjp_gradient(v, 0);
    tu_value left = exact_matmul(y, g, true, false);
    tu__vjp_accumulate(v, 0, tu_neg(exact_matmul(left, y, false, true)));
}

void tu__solve_gradient(tu__vjp *v) {
    tu_value transposed = tu_transpose_with(tu__vjp_input(v, 0), (tu_axes){0});
    tu_value h = tu_solve(transposed, tu__vjp_gradient(v, 0));
    if (tu__vjp_needs_gradient(v, 0))
        tu__vjp_accumulate(v, 0, tu_neg(exact_matmul(h, tu__vjp_output(v, 0), false, true)));
    tu__vjp_accumulate(v, 1, h);
}

/* ---- Cholesky ---- */

/* Computes l [n, n] with l l^T = a, row by row. Reads and writes only the lower triangles. Returns false at a pivot
 * that is not positive. */
static bool factor_cholesky(int64_t n, const double *a, double *l, failed_pivot *failed) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double remainder = a[i * n + j];
            for (int64_t p = 0; p < j; p++) remainder -= l[i * n + p] * l[j * n + p];
            if (j < i) {
                l[i * n + j] = remainder / l[j * n + j];
            } else if (remainder > 0) {
                l[i * n + i] = sqrt(remainder);
            } else {
                *failed = (failed_pivot){i, remainder};
                return false;
            }
        }
    return true;
}

tu_status tu__cholesky_reference(const tu__reference_call *m) {
    systems s = systems_of(m->in[0].type.shape, m->out[0].type.shape);
    int64_t matrix = s.n * s.n;
    memset(m->out[0].data, 0, (size_t)(s.count * matrix) * sizeof(double));
    for (int64_t b = 0; b < s.count; b++) {
        failed_pivot failed;
        if (!factor_cholesky(s.n, m->in[0].data + b * matrix, m->out[0].data + b * matrix, &failed))
            return fail_pivot(m, "not positive definite", b, failed);
    }
    return TU_OK;
}

/* The function P of the comment at the top: the lower triangle with its diagonal halved. */
static tu_value lower_triangle_half_diagonal(tu_value x) {
    return tu_sub(tu_band(x, -1, 0), tu_scale(tu_band(x, 0, 0), 0.5));
}

void tu__cholesky_gradient(tu__vjp *v) {
    tu_value l = tu__vjp_output(v, 0), g = tu__vjp_gradient(v, 0);
    tu_value p = lower_triangle_half_diagonal(exact_matmul(l, g, true, false));
    tu_value left = tu_triangular_solve(l, p, .transpose = true); /* L^-T P */
    tu_value s = tu_triangular_solve(l, tu_transpose_with(left, (tu_axes){0}), .transpose = true); /* S^T */
    tu__vjp_accumulate(v, 0, lower_triangle_half_diagonal(tu_add(s, tu_transpose_with(s, (tu_axes){0}))));
}

/* ---- Triangular systems ---- */

/* Solves a x = b, or a^T x = b, for one triangular matrix. x [n, k] contains b on entry and the solution on return.
 * The matrix to solve is lower triangular if `upper` and `transpose` are equal; then rows are solved from the top. */
static bool substitute(systems s, const struct tu__triangular_solve_attrs *attrs, const double *a, double *x,
                       failed_pivot *failed) {
    bool lower = !attrs->upper == !attrs->transpose;
    int64_t row_step = attrs->transpose ? 1 : s.n, column_step = attrs->transpose ? s.n : 1;
    for (int64_t step = 0; step < s.n; step++) {
        int64_t i = lower ? step : s.n - 1 - step;
        double pivot = a[i * s.n + i];
        if (!(fabs(pivot) > 0)) {
            *failed = (failed_pivot){i, pivot};
            return false;
        }
        for (int64_t solved = 0; solved < step; solved++) {
            int64_t j = lower ? solved : s.n - 1 - solved;
            subtract_row(x, s.k, i, j, a[i * row_step + j * column_step]);
        }
        for (int64_t c = 0; c < s.k; c++) x[i * s.k + c] /= pivot;
    }
    return true;
}

tu_status tu__triangular_solve_reference(const tu__reference_call *m) {
    systems s = systems_of(m->in[0].type.shape, m->in[1].type.shape);
    double *x = m->out[0].data;
    memcpy(x, m->in[1].data, (size_t)(s.count * s.n * s.k) * sizeof(double));
    for (int64_t b = 0; b < s.count; b++) {
        failed_pivot failed;
        if (!substitute(s, m->attrs, m->in[0].data + b * s.n * s.n, x + b * s.n * s.k, &failed))
            return fail_pivot(m, "singular", b, failed);
    }
    return TU_OK;
}

void tu__triangular_solve_gradient(tu__vjp *v) {
    const struct tu__triangular_solve_attrs *attrs = tu__attrs(v->node, triangular_solve);
    tu_value h = tu_triangular_solve(tu__vjp_input(v, 0), tu__vjp_gradient(v, 0), .upper = attrs->upper,
                                     .transpose = !attrs->transpose);
    tu__vjp_accumulate(v, 1, h);
    if (!tu__vjp_needs_gradient(v, 0)) return;
    tu_value x = tu__vjp_output(v, 0);
    tu_value full_gradient =
        attrs->transpose ? exact_matmul(x, h, false, true) : exact_matmul(h, x, false, true);
    tu__vjp_accumulate(v, 0, tu_neg(tu_band(full_gradient, attrs->upper ? 0 : -1, attrs->upper ? -1 : 0)));
}

/* ---- Band ---- */

tu_status tu__band_reference(const tu__reference_call *m) {
    const struct tu__band_attrs *attrs = m->attrs;
    tu_shape shape = m->in[0].type.shape;
    int64_t columns = shape.dim[shape.rank - 1], rows = shape.dim[shape.rank - 2];
    int64_t all_rows = tu_shape_elements(shape) / columns;
    for (int64_t row = 0; row < all_rows; row++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t below = row % rows - j; /* index of the diagonal below the main one; negative: above */
            bool in_band =
                (attrs->below < 0 || below <= attrs->below) && (attrs->above < 0 || -below <= attrs->above);
            m->out[0].data[row * columns + j] = in_band ? m->in[0].data[row * columns + j] : 0;
        }
    return TU_OK;
}

void tu__band_gradient(tu__vjp *v) {
    tu__vjp_accumulate(v, 0, tu__apply(BAND, v->node->attrs, tu__vjp_gradient(v, 0)));
}

/* ---- Builders ---- */

tu_value tu_inverse(tu_value a) {
    return tu__apply(INVERSE, NULL, a);
}

tu_value tu_solve(tu_value a, tu_value b) {
    return tu__apply(SOLVE, NULL, a, b);
}

tu_value tu_cholesky(tu_value a) {
    return tu__apply(CHOLESKY, NULL, a);
}

tu_value tu_triangular_solve_with(tu_value a, tu_value b, const tu_triangular_options *options) {
    TU__OPTIONS(tu_triangular_options, o, options);
    struct tu__triangular_solve_attrs attrs = {.upper = o.upper, .transpose = o.transpose};
    return tu__apply(TRIANGULAR_SOLVE, &attrs, a, b);
}

tu_value tu_band(tu_value x, int64_t below, int64_t above) {
    struct tu__band_attrs attrs = {.below = below < 0 ? -1 : below, .above = above < 0 ? -1 : above};
    return tu__apply(BAND, &attrs, x);
}
