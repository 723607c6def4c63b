/* Matrix multiplication: out[…, i, j] = sum over p of a[…, i, p] b[…, p, j].
 *
 * a is [..., m, k], or [..., k, m] if transpose_a is set; b is [..., k, n], or [..., n, k] if transpose_b is set. The
 * axes before the last two are a batch and broadcast. With A and B the operands after transposition and G the
 * gradient of the result,
 *
 *     gradient of A = G B^T,   gradient of B = A^T G.
 *
 * The gradient of a transposed operand is the transpose of that. Gradients use the transpose flags, never transpose
 * nodes.
 *
 * The reference kernel sums each element in the order of p, so its bits do not depend on the block size. The inner
 * loop runs along rows of b and out, which compilers vectorise; it adds four values of p per pass over a row of out,
 * and a block of rows of b stays in the cache for all rows of a. Transposed operands are first copied to the
 * untransposed layout.
 */
#include <inttypes.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/rules.h"
#include "graph/walk.h"

typedef struct matmul_sizes {
    int64_t m, k, n;
} matmul_sizes;

/* Returns the sizes of the matmul. `*k_of_b` is k of operand b; the shape rule checks that it equals k of a. */
static matmul_sizes matmul_sizes_of(const struct tu__matmul_attrs *attrs, tu_shape a, tu_shape b,
                                    int64_t *k_of_b) {
    int64_t a_rows = a.dim[a.rank - 2], a_columns = a.dim[a.rank - 1];
    int64_t b_rows = b.dim[b.rank - 2], b_columns = b.dim[b.rank - 1];
    *k_of_b = attrs->transpose_b ? b_columns : b_rows;
    return (matmul_sizes){.m = attrs->transpose_a ? a_columns : a_rows,
                          .k = attrs->transpose_a ? a_rows : a_columns,
                          .n = attrs->transpose_b ? b_rows : b_columns};
}

static tu_shape batch_of(tu_shape shape) {
    return tu_shape_of((size_t)(shape.rank - 2), shape.dim);
}

/* ---- Shape ---- */

tu_status tu__matmul_shape(tu__rule *r) {
    const struct tu__matmul_attrs *attrs = r->attrs;
    tu_shape a = r->in[0].shape, b = r->in[1].shape, shape;
    if (r->in[0].dtype != r->in[1].dtype || r->in[0].dtype == TU_BOOL)
        return tu__rule_fail(r, "expected two operands of equal numeric type: convert with tu_cast");
    if (a.rank < 2 || b.rank < 2)
        return tu__rule_fail(r, "expected operands of at least 2 axes: [..., rows, columns]");
    int64_t k_of_b;
    matmul_sizes p = matmul_sizes_of(attrs, a, b, &k_of_b);
    if (p.k != k_of_b)
        return tu__rule_fail(r,
                             "operand 0%s has %" PRId64 " columns, but operand 1%s has %" PRId64
                             " rows: expected the same number",
                             attrs->transpose_a ? " (transposed)" : "", p.k,
                             attrs->transpose_b ? " (transposed)" : "", k_of_b);
    if (!tu__broadcast_shapes(batch_of(a), batch_of(b), &shape))
        return tu__rule_fail(r, "the batch axes %s and %s do not broadcast: expected equal dimensions or 1",
                             tu__shape_string(batch_of(a)), tu__shape_string(batch_of(b)));
    shape.dim[shape.rank++] = p.m;
    shape.dim[shape.rank++] = p.n;
    if (!tu__shape_valid(shape))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(shape));
    r->out[0] = (tu_type){r->in[0].dtype, shape};
    return TU_OK;
}

int64_t tu__matmul_flops(const tu__node *node, const tu_type *in) {
    int64_t k_of_b, flops;
    matmul_sizes p = matmul_sizes_of(tu__attrs(node, matmul), in[0].shape, in[1].shape, &k_of_b);
    bool overflows = __builtin_mul_overflow(2 * p.k, tu_shape_elements(node->outputs[0].shape), &flops);
    return overflows ? INT64_MAX : flops;
}

/* ---- Gradient ---- */

/* Reshapes [..., m, k] to [product of the leading axes * m, k]. */
static tu_value flatten_batch(tu_value x) {
    if (!tu_ok(x)) return x;
    tu_shape shape = tu_value_shape(x);
    return shape.rank == 2 ? x : tu_reshape(x, TU_SHAPE(-1, shape.dim[shape.rank - 1]));
}

static tu_value gradient_of_a(tu_value b, tu_value g, const struct tu__matmul_attrs *attrs) {
    return attrs->transpose_a ? tu_matmul(b, g, .transpose_a = attrs->transpose_b, .transpose_b = true,
                                          .exact = attrs->exact)
                              : tu_matmul(g, b, .transpose_b = !attrs->transpose_b, .exact = attrs->exact);
}

static tu_value gradient_of_b(tu_value a, tu_value g, const struct tu__matmul_attrs *attrs) {
    return attrs->transpose_b ? tu_matmul(g, a, .transpose_a = true, .transpose_b = attrs->transpose_a,
                                          .exact = attrs->exact)
                              : tu_matmul(a, g, .transpose_a = !attrs->transpose_a, .exact = attrs->exact);
}

void tu__matmul_gradient(tu__vjp *v) {
    const struct tu__matmul_attrs *attrs = tu__attrs(v->node, matmul);
    tu_value g = tu__vjp_gradient(v, 0);
    if (tu__vjp_needs_gradient(v, 0)) tu__vjp_accumulate(v, 0, gradient_of_a(tu__vjp_input(v, 1), g, attrs));
    if (!tu__vjp_needs_gradient(v, 1)) return;
    tu_value a = tu__vjp_input(v, 0);
    /* If b is a single matrix (a layer's weights), reshape the batch into the rows. Then the matmul sums over the
     * batch, and no gradient per sample is needed. */
    if (!attrs->transpose_a && tu_value_shape(tu__input_of(v->graph, v->node, 1)).rank == 2) {
        a = flatten_batch(a);
        g = flatten_batch(g);
    }
    tu__vjp_accumulate(v, 1, gradient_of_b(a, g, attrs));
}

/* ---- Reference kernel ---- */

enum { BLOCK = 64 /* rows of b kept in the cache */, TILE = 16 /* side of the squares of transpose() */ };

static int64_t min_i64(int64_t x, int64_t limit) {
    return x < limit ? x : limit;
}

/* Transposes x [rows, columns] into out [columns, rows], square by square so that both stay in the cache. */
static void transpose(int64_t rows, int64_t columns, const double *x, double *out) {
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < columns; j0 += TILE)
            for (int64_t i = i0; i < min_i64(i0 + TILE, rows); i++)
                for (int64_t j = j0; j < min_i64(j0 + TILE, columns); j++)
                    out[j * rows + i] = x[i * columns + j];
}

/* Computes row [n] += a [count] b [count, n], in the order of the rows of b. */
static void add_rows(int64_t count, int64_t n, const double *a, const double *b, double *restrict row) {
    int64_t p = 0;
    for (; p + 4 <= count; p += 4) {
        const double *b0 = b + p * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
        double a0 = a[p], a1 = a[p + 1], a2 = a[p + 2], a3 = a[p + 3];
        for (int64_t j = 0; j < n; j++) row[j] = row[j] + a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
    }
    for (; p < count; p++)
        for (int64_t j = 0; j < n; j++) row[j] += a[p] * b[p * n + j];
}

/* out [m, n] = a [m, k] b [k, n] */
static void multiply(matmul_sizes s, const double *a, const double *b, double *out) {
    memset(out, 0, (size_t)(s.m * s.n) * sizeof *out);
    for (int64_t p = 0; p < s.k; p += BLOCK)
        for (int64_t i = 0; i < s.m; i++)
            add_rows(min_i64(BLOCK, s.k - p), s.n, a + i * s.k + p, b + p * s.n, out + i * s.n);
}

/* Multiplies every pair of matrices of the batch. scratch_a and scratch_b are space for one transposed matrix each;
 * NULL for operands that are not transposed. */
static void multiply_batch(const tu__reference_call *m, matmul_sizes s, double *scratch_a,
                           double *scratch_b) {
    tu_shape batch = batch_of(m->out[0].type.shape);
    int64_t a_strides[TU_MAX_RANK], b_strides[TU_MAX_RANK];
    tu__broadcast_strides(batch_of(m->in[0].type.shape), batch, a_strides);
    tu__broadcast_strides(batch_of(m->in[1].type.shape), batch, b_strides);
    tu__walk walk = tu__walk_begin(batch, 2, (const int64_t *[]){a_strides, b_strides});
    double *out = m->out[0].data;
    do {
        const double *a = m->in[0].data + walk.offset[0] * s.m * s.k;
        const double *b = m->in[1].data + walk.offset[1] * s.k * s.n;
        if (scratch_a) transpose(s.k, s.m, a, scratch_a);
        if (scratch_b) transpose(s.n, s.k, b, scratch_b);
        multiply(s, scratch_a ? scratch_a : a, scratch_b ? scratch_b : b, out);
        out += s.m * s.n;
    } while (tu__walk_next(&walk));
}

tu_status tu__matmul_reference(const tu__reference_call *m) {
    const struct tu__matmul_attrs *attrs = m->attrs;
    int64_t k_of_b;
    matmul_sizes s = matmul_sizes_of(attrs, m->in[0].type.shape, m->in[1].type.shape, &k_of_b);
    double *scratch_a = NULL, *scratch_b = NULL;
    if (attrs->transpose_a) {
        scratch_a = tu__alloc_array((size_t)(s.m * s.k), sizeof(double), "a transposed matrix");
        if (!scratch_a) return TU_NO_MEMORY;
    }
    if (attrs->transpose_b) {
        scratch_b = tu__alloc_array((size_t)(s.k * s.n), sizeof(double), "a transposed matrix");
        if (!scratch_b) {
            tu__free(scratch_a);
            return TU_NO_MEMORY;
        }
    }
    multiply_batch(m, s, scratch_a, scratch_b);
    tu__free(scratch_a);
    tu__free(scratch_b);
    return TU_OK;
}

/* ---- Builder ---- */

tu_value tu_matmul_with(tu_value a, tu_value b, const tu_matmul_options *options) {
    TU__OPTIONS(tu_matmul_options, o, options);
    struct tu__matmul_attrs attrs = {
        .transpose_a = o.transpose_a, .transpose_b = o.transpose_b, .exact = o.exact};
    return tu__apply(MATMUL, &attrs, a, b);
}
