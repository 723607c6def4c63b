/* Matrix multiplication and linear algebra (ops/matmul.c, ops/linalg.c) compute the right values. */
#include "unit/evaluate.h"

#include "base/alloc.h"
#include "graph/graph.h"

static tu_value pseudo_random(tu_graph *g, tu_shape shape, uint32_t seed) {
    int64_t count = tu_shape_elements(shape);
    double *list = malloc((size_t)count * sizeof *list);
    assert_non_null(list);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        list[i] = (double)(seed >> 8) * 0x1p-23 - 1;
    }
    tu_value value = constant_of(g, TU_F64, shape, list);
    free(list);
    return value;
}

static void matmul_of_small_matrices(void **state) {
    (void)state;
    tu_value a = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 3)); /* 0 1 2 / 3 4 5 */
    tu_value b = counting_constant(a.graph, TU_F32, TU_SHAPE(3, 2));     /* 0 1 / 2 3 / 4 5 */
    assert_computes(tu_matmul(a, b), TU_SHAPE(2, 2), 10, 13, 28, 40);
    assert_computes(tu_matmul(a, a, .transpose_b = true), TU_SHAPE(2, 2), 5, 14, 14, 50);
    assert_computes(tu_matmul(b, b, .transpose_a = true), TU_SHAPE(2, 2), 20, 26, 26, 35);
    assert_computes(tu_matmul(a, b, .transpose_a = true, .transpose_b = true), TU_SHAPE(3, 3), 3, 9, 15, 4,
                    14, 24, 5, 19, 33);
}

static void batch_axes_of_matmul_broadcast(void **state) {
    (void)state;
    tu_value a = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 1, 1, 2)); /* (0 1), (2 3) */
    tu_value b = counting_constant(a.graph, TU_F32, TU_SHAPE(3, 2, 1));        /* (0 1), (2 3), (4 5) */
    assert_computes(tu_matmul(a, b), TU_SHAPE(2, 3, 1, 1), 1, 3, 5, 3, 13, 23);
}

static void integer_matmul_saturates(void **state) {
    (void)state;
    tu_value a = tu_fill(new_graph(), TU_U8, TU_SHAPE(1, 2), 20);
    assert_computes(tu_matmul(a, a, .transpose_b = true), TU_SHAPE(1, 1), 255);
}

/* The kernel multiplies in blocks (BLOCK in matmul.c), but adds the K products of an element in ascending order. So
 * its result equals that of a naive loop bit for bit. K is larger than two blocks. */
static void blocked_matmul_equals_a_naive_loop(void **state) {
    (void)state;
    enum { M = 5, K = 131, N = 37 };
    for (int form = 0; form < 4; form++) {
        bool transpose_a = form & 1, transpose_b = form & 2;
        tu_value a = pseudo_random(new_graph(), transpose_a ? TU_SHAPE(K, M) : TU_SHAPE(M, K), 1);
        tu_value b = pseudo_random(a.graph, transpose_b ? TU_SHAPE(N, K) : TU_SHAPE(K, N), 2);
        tu_value y = tu_matmul(a, b, .transpose_a = transpose_a, .transpose_b = transpose_b);
        double *x = computed(a), *z = computed(b), expected[M * N];
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0;
                for (int p = 0; p < K; p++)
                    sum += x[transpose_a ? p * M + i : i * K + p] * z[transpose_b ? j * K + p : p * N + j];
                expected[i * N + j] = sum;
            }
        assert_computes_array(y, TU_SHAPE(M, N), M * N, expected, 0);
        free(x);
        free(z);
    }
}

static void flops_are_counted(void **state) {
    (void)state;
    tu_value a = counting_constant(new_graph(), TU_F32, TU_SHAPE(4, 2, 3)),
             b = counting_constant(a.graph, TU_F32, TU_SHAPE(5, 3));
    const tu__node *node = tu__node_of(tu_matmul(a, b, .transpose_b = true));
    assert_int_equal(node->op->flops(node, (tu_type[]){tu_value_type(a), tu_value_type(b)}),
                     4 * 2 * 2 * 3 * 5);
    /* 2^73 FLOPs, more than an int64_t can hold: clamped */
    tu_value huge = tu_fill(a.graph, TU_U8, TU_SHAPE(INT64_C(1) << 24, INT64_C(1) << 24), 0);
    node = tu__node_of(tu_matmul(huge, huge));
    assert_true(node->op->flops(node, (tu_type[]){tu_value_type(huge), tu_value_type(huge)}) == INT64_MAX);
    /* Two matrices with n = 3. FLOPs of each: inverse 2n^3, Cholesky n^3/3, solve 2n^3/3 + 2n^3, triangular n^3. */
    tu_value square = tu_fill(a.graph, TU_F32, TU_SHAPE(2, 3, 3), 0);
    node = tu__node_of(tu_inverse(square));
    assert_int_equal(node->op->flops(node, (tu_type[]){tu_value_type(square)}), 2 * 2 * 27);
    node = tu__node_of(tu_cholesky(square));
    assert_int_equal(node->op->flops(node, (tu_type[]){tu_value_type(square)}), 2 * 9);
    node = tu__node_of(tu_solve(square, square));
    assert_int_equal(node->op->flops(node, (tu_type[]){tu_value_type(square), tu_value_type(square)}),
                     2 * (18 + 54));
    node = tu__node_of(tu_triangular_solve(square, square));
    assert_int_equal(node->op->flops(node, (tu_type[]){tu_value_type(square), tu_value_type(square)}),
                     2 * 27);
}

static const double tolerance = 1e-14;

static void inverse_of_small_matrices(void **state) {
    (void)state;
    tu_value a = constant_of(new_graph(), TU_F64, TU_SHAPE(2, 2, 2), (double[]){0, 2, 4, 0, 1, 2, 3, 4});
    assert_computes_within(tolerance, tu_inverse(a), TU_SHAPE(2, 2, 2), 0, 0.25, 0.5, 0, -2, 1, 1.5, -0.5);
    tu_value one = tu_fill(a.graph, TU_F32, TU_SHAPE(1, 1), 4);
    assert_computes(tu_inverse(one), TU_SHAPE(1, 1), 0.25);
}

static void solve_of_small_systems(void **state) {
    (void)state;
    tu_value a = constant_of(new_graph(), TU_F64, TU_SHAPE(3, 3), (double[]){0, 2, 1, 1, 1, 1, 2, 0, 3});
    tu_value b = constant_of(a.graph, TU_F64, TU_SHAPE(3, 2), (double[]){7, 1, 6, 0, 11, 5});
    tu_value x = tu_solve(a, b);
    assert_computes_within(tolerance, tu_matmul(a, x), TU_SHAPE(3, 2), 7, 1, 6, 0, 11, 5);
    assert_computes_within(tolerance, x, TU_SHAPE(3, 2), 1, -2, 2, -1, 3, 3);
}

static void cholesky_factors_of_the_lower_triangle(void **state) {
    (void)state;
    tu_value a = constant_of(new_graph(), TU_F64, TU_SHAPE(3, 3), (double[]){4, 99, 99, 2, 5, 99, -6, 5, 26});
    assert_computes_within(tolerance, tu_cholesky(a), TU_SHAPE(3, 3), 2, 0, 0, 1, 2, 0, -3, 4, 1);
}

static void triangular_solve_reads_only_its_triangle(void **state) {
    (void)state;
    tu_value a = constant_of(new_graph(), TU_F64, TU_SHAPE(2, 2), (double[]){2, 3, 5, 4});
    tu_value b = constant_of(a.graph, TU_F64, TU_SHAPE(2, 1), (double[]){2, 8});
    assert_computes(tu_triangular_solve(a, b), TU_SHAPE(2, 1), 1, 0.75);                  /* 2 0 / 5 4 */
    assert_computes(tu_triangular_solve(a, b, .upper = true), TU_SHAPE(2, 1), -2, 2);     /* 2 3 / 0 4 */
    assert_computes(tu_triangular_solve(a, b, .transpose = true), TU_SHAPE(2, 1), -4, 2); /* 2 5 / 0 4 */
    assert_computes(tu_triangular_solve(a, b, .upper = true, .transpose = true), TU_SHAPE(2, 1), 1, 1.25);
}

static void band_keeps_diagonals(void **state) {
    (void)state;
    tu_value x = tu_fill(new_graph(), TU_I32, TU_SHAPE(3, 4), 1);
    assert_computes(tu_band(x, -1, 0), TU_SHAPE(3, 4), 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0);
    assert_computes(tu_band(x, 0, -7), TU_SHAPE(3, 4), 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1);
    assert_computes(tu_band(x, 1, 1), TU_SHAPE(3, 4), 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1);
    assert_computes(tu_band(x, 0, 0), TU_SHAPE(3, 4), 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0);
    assert_computes(tu_band(x, INT64_MAX, INT64_MAX), TU_SHAPE(3, 4), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
}

/* Makes the 1st, 2nd, … allocation of a run fail until a run succeeds. Each failure is reported without a leak. */
static void failed_allocations_during_a_run_are_reported(void **state) {
    (void)state;
    const double data[9] = {2, 1, 0, -1, 3, 1, 0, 1, 4}; /* inputs, so that the compiler cannot fold them */
    tu_value a = tu_input(new_graph(), "a", TU_F64, TU_SHAPE(3, 3));
    const tu_feed feed = {a, data};
    tu_value y = tu_solve(a, tu_inverse(tu_matmul(a, a, .transpose_a = true, .transpose_b = true)));
    tu_program *program = NULL;
    tu_state *variables = NULL;
    assert_int_equal(tu_compile(a.graph, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(a.graph, &variables), TU_OK);
    double out[9];
    assert_int_equal(tu_run(program, variables, 1, &feed, (void *[]){out}), TU_OK);
    int64_t live = tu__alloc_live();
    tu_status status = TU_NO_MEMORY;
    uint64_t nth = 0;
    while (status != TU_OK) {
        tu__alloc_fail_at(++nth);
        status = tu_run(program, variables, 1, &feed, (void *[]){out});
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        assert_int_equal(tu__alloc_live(), live);
    }
    /* At least 4 allocations failed before: 2 transposed operands and 2 copies for Gaussian elimination. */
    assert_true(nth > 4);
    tu_program_free(program);
    tu_state_free(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_of_small_matrices),
        cmocka_unit_test(batch_axes_of_matmul_broadcast),
        cmocka_unit_test(integer_matmul_saturates),
        cmocka_unit_test(blocked_matmul_equals_a_naive_loop),
        cmocka_unit_test(flops_are_counted),
        cmocka_unit_test(inverse_of_small_matrices),
        cmocka_unit_test(solve_of_small_systems),
        cmocka_unit_test(cholesky_factors_of_the_lower_triangle),
        cmocka_unit_test(triangular_solve_reads_only_its_triangle),
        cmocka_unit_test(band_keeps_diagonals),
        cmocka_unit_test(failed_allocations_during_a_run_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, free_last_graph);
}
