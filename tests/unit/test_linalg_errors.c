/* Invalid arguments of linear algebra fail while the graph is built; singular matrices fail while it runs. */
#include "unit/graph_error.h"

#include <math.h>

#include "base/alloc.h"

/* ---- While building ---- */

static void non_square_matrices_are_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_inverse(first_input(TU_F32, TU_SHAPE(2, 3))),
                       "inverse node 'inverse' (input f32[2,3]", "square");
    assert_graph_error(tu_inverse(first_input(TU_F32, TU_SHAPE(3))), "inverse", "f32[3]", "[..., n, n]");
    assert_graph_error(tu_inverse(first_input(TU_F32, TU_SCALAR)), "inverse", "f32[]", "[..., n, n]");
    assert_graph_error(tu_cholesky(first_input(TU_F64, TU_SHAPE(4, 2, 3))), "cholesky", "f64[4,2,3]",
                       "square");
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_solve(a, a), "solve", "f32[2,3], f32[2,3]", "square");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_triangular_solve(a, a), "triangular_solve", "f32[2,3], f32[2,3]", "square");
    assert_graph_error(tu_band(first_input(TU_F32, TU_SHAPE(3)), 0, 0), "band", "f32[3]",
                       "[..., rows, columns]");
}

static void elements_must_be_f32_or_f64(void **state) {
    (void)state;
    assert_graph_error(tu_inverse(first_input(TU_F16, TU_SHAPE(2, 2))), "inverse", "f16[2,2]",
                       "expected f32 or f64");
    assert_graph_error(tu_cholesky(first_input(TU_I32, TU_SHAPE(2, 2))), "cholesky", "i32[2,2]", "tu_cast");
    tu_value a = first_input(TU_BF16, TU_SHAPE(2, 2));
    assert_graph_error(tu_solve(a, a), "solve", "bf16", "expected f32 or f64");
    a = first_input(TU_BOOL, TU_SHAPE(2, 2));
    assert_graph_error(tu_triangular_solve(a, a), "triangular_solve", "bool", "expected f32 or f64");
    a = first_input(TU_F32, TU_SHAPE(2, 2));
    assert_graph_error(tu_solve(a, next_input(TU_F64, TU_SHAPE(2, 1))), "solve", "f32[2,2], f64[2,1]",
                       "the element types differ");
}

static void right_hand_sides_must_match_the_matrices(void **state) {
    (void)state;
    static const tu_shape wrong[] = {{2, {3, 1}}, {1, {2}}, {3, {1, 2, 1}}, {0, {0}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tu_value a = first_input(TU_F32, TU_SHAPE(2, 2));
        assert_graph_error(tu_solve(a, next_input(TU_F32, wrong[i])), "solve", "f32[2,2], f32[",
                           "[..., n, k]");
        a = first_input(TU_F32, TU_SHAPE(2, 2));
        assert_graph_error(tu_triangular_solve(a, next_input(TU_F32, wrong[i])), "triangular_solve",
                           "[..., n, k]");
    }
    tu_value a = first_input(TU_F32, TU_SHAPE(4, 2, 2));
    assert_graph_error(tu_solve(a, next_input(TU_F32, TU_SHAPE(3, 2, 1))), "solve", "f32[4,2,2], f32[3,2,1]",
                       "equal batch axes");
    a = first_input(TU_F32, TU_SHAPE(4, 2, 2));
    assert_graph_error(tu_solve(a, next_input(TU_F32, TU_SHAPE(1, 2, 1))), "solve", "equal batch axes");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 2)), invalid = tu_inverse(tu_reshape(a, TU_SHAPE(4)));
    assert_false(tu_ok(tu_inverse(invalid)));
    assert_false(tu_ok(tu_solve(a, invalid)));
    assert_false(tu_ok(tu_cholesky(invalid)));
    assert_false(tu_ok(tu_triangular_solve(invalid, a)));
    assert_false(tu_ok(tu_band(invalid, 0, 0)));
    assert_graph_error(invalid, "inverse");
    assert_false(tu_ok(tu_inverse((tu_value){0})));
    a = first_input(TU_F32, TU_SHAPE(2, 2));
    assert_graph_error(tu_solve(a, (tu_value){0}), "solve", "input 1 is an uninitialised tu_value");
}

/* ---- While running ---- */

enum { KIND_INVERSE, KIND_SOLVE, KIND_CHOLESKY, KIND_LOWER, KIND_UPPER };

/* Runs the operation on two 2x2 matrices, the second of which is invalid. */
static tu_status run_pair(int kind, const double second[4], int64_t *live) {
    double matrices[8] = {2, 0, 0, 2, second[0], second[1], second[2], second[3]};
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value a = tu_constant(g, TU_F64, TU_SHAPE(2, 2, 2), matrices), y = a;
    switch (kind) {
    case KIND_INVERSE: y = tu_inverse(a); break;
    case KIND_SOLVE: y = tu_solve(a, a); break;
    case KIND_CHOLESKY: y = tu_cholesky(a); break;
    case KIND_LOWER: y = tu_triangular_solve(a, a); break;
    default: y = tu_triangular_solve(a, a, .upper = true); break;
    }
    tu_name(y, "bad/one");
    tu_program *program = NULL;
    tu_state *variables = NULL;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &variables), TU_OK);
    double out[8];
    tu_run(program, variables, 0, NULL, (void *[]){out}); /* the first run allocates the device's memory */
    *live = tu__alloc_live();
    tu_status status = tu_run(program, variables, 0, NULL, (void *[]){out});
    *live = tu__alloc_live() - *live;
    tu_program_free(program);
    tu_state_free(variables);
    tu_graph_free(g);
    return status;
}

static void assert_fails(int kind, const double second[4], const char *operation, const char *what,
                         const char *pivot) {
    int64_t leaked;
    assert_int_equal(run_pair(kind, second, &leaked), TU_NUMERIC);
    const char *parts[] = {operation, "'bad/one'", "f64[2,2,2]", "matrix 1 of the batch", what, pivot};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(tu_message(), parts[i]))
            fail_msg("\"%s\" does not contain \"%s\"", tu_message(), parts[i]);
    assert_true(leaked <= 0);
}

static void the_error_contains_the_index_of_a_singular_matrix(void **state) {
    (void)state;
    const double rank_one[] = {1, 2, 2, 4}, zero[] = {0, 0, 0, 0}, not_a_number[] = {1, (double)NAN, 1, 1};
    assert_fails(KIND_INVERSE, rank_one, "inverse", "singular", "pivot 1 is 0");
    assert_fails(KIND_SOLVE, rank_one, "solve", "singular", "pivot 1 is 0");
    assert_fails(KIND_INVERSE, zero, "inverse", "singular", "pivot 0 is 0");
    assert_fails(KIND_SOLVE, not_a_number, "solve", "singular", "nan");
}

static void the_error_contains_the_index_of_an_indefinite_matrix(void **state) {
    (void)state;
    const double indefinite[] = {1, 2, 2, 1}, negative[] = {-1, 0, 0, 1},
                 not_a_number[] = {1, 0, (double)NAN, 1};
    assert_fails(KIND_CHOLESKY, indefinite, "cholesky", "not positive definite", "pivot 1 is -3");
    assert_fails(KIND_CHOLESKY, negative, "cholesky", "not positive definite", "pivot 0 is -1");
    assert_fails(KIND_CHOLESKY, not_a_number, "cholesky", "not positive definite", "nan");
}

static void the_error_contains_the_index_of_a_triangular_matrix_with_zero_diagonal(void **state) {
    (void)state;
    const double first[] = {0, 1, 1, 1}, last[] = {1, 1, 1, 0};
    assert_fails(KIND_LOWER, first, "triangular_solve", "singular", "pivot 0 is 0");
    assert_fails(KIND_LOWER, last, "triangular_solve", "singular", "pivot 1 is 0");
    assert_fails(KIND_UPPER, last, "triangular_solve", "singular", "pivot 1 is 0");
    assert_fails(KIND_UPPER, first, "triangular_solve", "singular", "pivot 0 is 0");
}

static void rows_are_exchanged_at_a_zero_pivot(void **state) {
    (void)state;
    const double swap[] = {0, 1, 1, 0};
    int64_t leaked;
    assert_int_equal(run_pair(KIND_INVERSE, swap, &leaked), TU_OK);
    assert_int_equal(run_pair(KIND_SOLVE, swap, &leaked), TU_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(non_square_matrices_are_rejected),
        cmocka_unit_test(elements_must_be_f32_or_f64),
        cmocka_unit_test(right_hand_sides_must_match_the_matrices),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
        cmocka_unit_test(the_error_contains_the_index_of_a_singular_matrix),
        cmocka_unit_test(the_error_contains_the_index_of_an_indefinite_matrix),
        cmocka_unit_test(the_error_contains_the_index_of_a_triangular_matrix_with_zero_diagonal),
        cmocka_unit_test(rows_are_exchanged_at_a_zero_pivot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
