/* Linear algebra by LAPACK: inverse, solve, cholesky, triangular_solve, f32 and f64. In a build without LAPACK the
 * lowering rules return TU_UNSUPPORTED, and the reference kernels are used.
 *
 * LAPACK is column-major: it sees our row-major A [n, n] as A^T, and our B [n, k] as the k x n matrix B^T. Nothing
 * is transposed in memory; these identities are used instead:
 *
 *     inverse           (A^T)^-1 = (A^-1)^T, which is A^-1 in row-major order
 *     solve             A X = B is X^T A^T = B^T; with A^T = P L U, X^T = B^T U^-1 L^-1 P^-1: two triangular systems
 *                       from the right, and exchanges of columns of X^T, rows of X
 *     cholesky          the lower triangle of A is the upper one of A^T; A^T = U^T U, and U is L^T, in row-major
 *                       order L
 *     triangular_solve  T X = B is X^T T^T = B^T: from the right, upper and lower exchanged
 *
 * The matrices of a batch are divided among the workers; each worker has scratch of its own. If matrices are
 * unusable, the message of graph/ops/linalg.c is reported for the first of them. */
#include "device/cpu/ranges.h"

#ifdef TU_LAPACK

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/text.h"

/* Fortran passes the lengths of strings after all other arguments. */
void sgetrf_(const int *m, const int *n, float *a, const int *lda, int *pivots, int *info);
void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *pivots, int *info);
void sgetri_(const int *n, float *a, const int *lda, const int *pivots, float *work, const int *lwork,
             int *info);
void dgetri_(const int *n, double *a, const int *lda, const int *pivots, double *work, const int *lwork,
             int *info);
void spotrf_(const char *uplo, const int *n, float *a, const int *lda, int *info, size_t);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t);
void strsm_(const char *side, const char *uplo, const char *trans, const char *diag, const int *m,
            const int *n, const float *alpha, const float *a, const int *lda, float *b, const int *ldb,
            size_t, size_t, size_t, size_t);
void dtrsm_(const char *side, const char *uplo, const char *trans, const char *diag, const int *m,
            const int *n, const double *alpha, const double *a, const int *lda, double *b, const int *ldb,
            size_t, size_t, size_t, size_t);

enum { BLOCK_COLUMNS = 64 }; /* of getri's work space: LAPACK's block size */

typedef struct linalg_data linalg_data;

/* Why a matrix is unusable: its index in the batch (-1: all are usable), and the pivot's index and value. */
typedef struct pivot_error {
    int64_t matrix, pivot;
    double value;
} pivot_error;

struct linalg_data {
    int64_t count;
    int n, k; /* matrices [n, n], right sides [n, k] */
    bool is_f64;
    bool upper, transpose;
    size_t element_bytes;
    const char *operation, *name, *type, *defect; /* for the message */
    int64_t workers;
    size_t worker_bytes;
    /* Processes one matrix; false for a pivot of zero or NaN. */
    bool (*run_matrix)(const linalg_data *d, const void *a, const void *b, void *out, void *scratch,
                       pivot_error *error);
};

static size_t matrix_bytes(const linalg_data *d) {
    return (size_t)d->n * (size_t)d->n * d->element_bytes;
}

static size_t right_side_bytes(const linalg_data *d) {
    return (size_t)d->n * (size_t)d->k * d->element_bytes;
}

/* ---- LAPACK for both types ---- */

static void factor_lu(const linalg_data *d, void *a, int *pivots) {
    int info;
    if (d->is_f64)
        dgetrf_(&d->n, &d->n, a, &d->n, pivots, &info);
    else
        sgetrf_(&d->n, &d->n, a, &d->n, pivots, &info);
}

static void invert_lu(const linalg_data *d, void *a, const int *pivots, void *work) {
    int info, size = d->n * BLOCK_COLUMNS;
    if (d->is_f64)
        dgetri_(&d->n, a, &d->n, pivots, work, &size, &info);
    else
        sgetri_(&d->n, a, &d->n, pivots, work, &size, &info);
}

/* Returns 0, or the number of the pivot that is not positive, starting at 1. */
static int factor_cholesky(const linalg_data *d, void *a) {
    int info;
    if (d->is_f64)
        dpotrf_("U", &d->n, a, &d->n, &info, 1);
    else
        spotrf_("U", &d->n, a, &d->n, &info, 1);
    return info;
}

/* Computes b op(a)^-1 in place, with b as a k x n matrix. */
static void solve_from_right(const linalg_data *d, const char *uplo, const char *trans, const char *diag,
                             const void *a, void *b) {
    const double one = 1;
    const float one_f32 = 1;
    if (d->is_f64)
        dtrsm_("R", uplo, trans, diag, &d->k, &d->n, &one, a, &d->n, b, &d->k, 1, 1, 1, 1);
    else
        strsm_("R", uplo, trans, diag, &d->k, &d->n, &one_f32, a, &d->n, b, &d->k, 1, 1, 1, 1);
}

/* ---- One matrix ---- */

static double diagonal(const linalg_data *d, const void *a, int64_t i) {
    int64_t index = i * d->n + i;
    return d->is_f64 ? ((const double *)a)[index] : (double)((const float *)a)[index];
}

/* False if a pivot is zero or NaN. (A NaN elsewhere spreads into the result.) */
static bool has_valid_pivots(const linalg_data *d, const void *a, bool from_last, pivot_error *error) {
    for (int64_t step = 0; step < d->n; step++) {
        int64_t i = from_last ? d->n - 1 - step : step;
        double pivot = diagonal(d, a, i);
        if (fabs(pivot) > 0) continue;
        error->pivot = i;
        error->value = pivot;
        return false;
    }
    return true;
}

static size_t pivot_bytes(const linalg_data *d) {
    return cpu_round_up_to_line((size_t)d->n * sizeof(int));
}

static bool invert(const linalg_data *d, const void *a, const void *b, void *out, void *scratch,
                   pivot_error *error) {
    (void)b;
    if (out != a) memcpy(out, a, matrix_bytes(d));
    factor_lu(d, out, scratch);
    if (!has_valid_pivots(d, out, false, error)) return false;
    invert_lu(d, out, scratch, (char *)scratch + pivot_bytes(d));
    return true;
}

static void swap_rows(const linalg_data *d, void *x, int64_t i, int64_t j) {
    char *first = (char *)x + (size_t)i * (size_t)d->k * d->element_bytes;
    char *second = (char *)x + (size_t)j * (size_t)d->k * d->element_bytes;
    for (size_t byte = 0; byte < (size_t)d->k * d->element_bytes; byte++) {
        char saved = first[byte];
        first[byte] = second[byte];
        second[byte] = saved;
    }
}

static bool solve(const linalg_data *d, const void *a, const void *b, void *out, void *scratch,
                  pivot_error *error) {
    int *pivots = scratch;
    void *factors = (char *)scratch + pivot_bytes(d);
    memcpy(factors, a, matrix_bytes(d));
    factor_lu(d, factors, pivots);
    if (!has_valid_pivots(d, factors, false, error)) return false;
    if (out != b) memcpy(out, b, right_side_bytes(d));
    solve_from_right(d, "U", "N", "N", factors, out);
    solve_from_right(d, "L", "N", "U", factors, out);
    for (int64_t i = d->n - 1; i >= 0; i--)
        if (pivots[i] - 1 != i) swap_rows(d, out, i, pivots[i] - 1);
    return true;
}

static bool cholesky(const linalg_data *d, const void *a, const void *b, void *out, void *scratch,
                     pivot_error *error) {
    (void)b, (void)scratch;
    if (out != a) memcpy(out, a, matrix_bytes(d));
    int failed = factor_cholesky(d, out);
    if (failed > 0) {
        error->pivot = failed - 1;
        error->value = diagonal(d, out, failed - 1);
        return false;
    }
    for (int64_t i = 0; i + 1 < d->n; i++)
        memset((char *)out + (size_t)(i * d->n + i + 1) * d->element_bytes, 0,
               (size_t)(d->n - 1 - i) * d->element_bytes);
    return true;
}

static bool substitute(const linalg_data *d, const void *a, const void *b, void *out, void *scratch,
                       pivot_error *error) {
    (void)scratch;
    bool is_lower = d->upper == d->transpose;
    if (!has_valid_pivots(d, a, !is_lower, error)) return false;
    if (out != b) memcpy(out, b, right_side_bytes(d));
    solve_from_right(d, d->upper ? "L" : "U", d->transpose ? "T" : "N", "N", a, out);
    return true;
}

/* ---- The batch ---- */

/* Returns a worker's scratch: the first unusable matrix of its range, followed by the scratch of `run_matrix`. */
static pivot_error *worker_result(const tu__kernel *k, int64_t worker) {
    const linalg_data *d = k->data;
    return (pivot_error *)(void *)((char *)k->workspace + (size_t)worker * d->worker_bytes);
}

static void matrix_range(void *context, int64_t first, int64_t last, int worker) {
    const tu__kernel *k = context;
    const linalg_data *d = k->data;
    pivot_error *error = worker_result(k, worker);
    bool has_right_sides = k->read_count > 1;
    size_t out_bytes = has_right_sides ? right_side_bytes(d) : matrix_bytes(d);
    for (int64_t i = first; i < last; i++) {
        const char *a = (const char *)k->in[0] + (size_t)i * matrix_bytes(d);
        const char *b = has_right_sides ? (const char *)k->in[1] + (size_t)i * right_side_bytes(d) : NULL;
        if (d->run_matrix(d, a, b, (char *)k->out[0] + (size_t)i * out_bytes, (char *)error + 64, error))
            continue;
        error->matrix = i;
        return;
    }
}

static tu_status run_matrices(const tu__kernel *k) {
    const linalg_data *d = k->data;
    for (int64_t worker = 0; worker < d->workers; worker++) worker_result(k, worker)->matrix = -1;
    tu__parallel_for(d->count, cpu_grain(d->count, (int64_t)d->n * d->n * d->n, d->workers), matrix_range,
                     (void *)k);
    for (int64_t worker = 0; worker < d->workers; worker++) {
        const pivot_error *error = worker_result(k, worker);
        if (error->matrix >= 0)
            return tu_fail(
                TU_NUMERIC, "%s '%s' %s: matrix %" PRId64 " of the batch is %s (pivot %" PRId64 " is %g)",
                d->operation, d->name, d->type, error->matrix, d->defect, error->pivot, error->value);
    }
    return TU_OK;
}

/* ---- Lowering rules ---- */

/* Returns the scratch per matrix: pivots, and factors or getri's work space, if the operation needs them. */
static size_t scratch_bytes(const linalg_data *d) {
    size_t work = (size_t)d->n * BLOCK_COLUMNS * d->element_bytes;
    if (d->run_matrix == invert) return pivot_bytes(d) + cpu_round_up_to_line(work);
    if (d->run_matrix == solve) return pivot_bytes(d) + cpu_round_up_to_line(matrix_bytes(d));
    return 0;
}

/* The result may reuse the memory of the last input: the right-hand sides, or the matrices. */
static tu_status lower_linalg(tu__selection *s, const tu__node *node, linalg_data plan) {
    tu_type a = cpu_input_type(s, node, 0), x = node->outputs[0];
    int64_t n = a.shape.dim[a.shape.rank - 1], k_sides = x.shape.dim[x.shape.rank - 1];
    if (n > INT_MAX / BLOCK_COLUMNS || k_sides > INT_MAX) return TU_UNSUPPORTED; /* LAPACK's integers */
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run_matrices);
    linalg_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
    if (!d) return TU_NO_MEMORY;
    *d = plan;
    d->count = tu_shape_elements(a.shape) / (n * n);
    d->n = (int)n;
    d->k = (int)k_sides;
    d->is_f64 = a.dtype == TU_F64;
    d->element_bytes = tu_dtype_size(a.dtype);
    d->operation = node->op->name;
    d->name = tu__arena_string(&s->arena, node->name);
    d->type = tu__arena_string(&s->arena, tu__type_string(a));
    if (!d->name || !d->type) return TU_NO_MEMORY;
    d->workers = cpu_of(s)->threads < d->count ? cpu_of(s)->threads : d->count;
    d->worker_bytes = 64 + scratch_bytes(d);
    k->workspace_bytes = d->worker_bytes * (size_t)d->workers;
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, (int)node->input_count - 1);
}

tu_status cpu_lower_inverse(tu__selection *s, const tu__node *node) {
    return lower_linalg(s, node, (linalg_data){.run_matrix = invert, .defect = "singular"});
}

tu_status cpu_lower_solve(tu__selection *s, const tu__node *node) {
    return lower_linalg(s, node, (linalg_data){.run_matrix = solve, .defect = "singular"});
}

tu_status cpu_lower_cholesky(tu__selection *s, const tu__node *node) {
    return lower_linalg(s, node, (linalg_data){.run_matrix = cholesky, .defect = "not positive definite"});
}

tu_status cpu_lower_triangular_solve(tu__selection *s, const tu__node *node) {
    const struct tu__triangular_solve_attrs *a = tu__attrs(node, triangular_solve);
    return lower_linalg(
        s, node,
        (linalg_data){
            .run_matrix = substitute, .defect = "singular", .upper = a->upper, .transpose = a->transpose});
}

#else

tu_status cpu_lower_inverse(tu__selection *s, const tu__node *node) {
    (void)s, (void)node;
    return TU_UNSUPPORTED;
}

tu_status cpu_lower_solve(tu__selection *s, const tu__node *node) {
    return cpu_lower_inverse(s, node);
}

tu_status cpu_lower_cholesky(tu__selection *s, const tu__node *node) {
    return cpu_lower_inverse(s, node);
}

tu_status cpu_lower_triangular_solve(tu__selection *s, const tu__node *node) {
    return cpu_lower_inverse(s, node);
}

#endif
