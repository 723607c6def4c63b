/* Building graphs: names, scopes, errors, options. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

/* Asserts that the graph's error has this status and a message that contains all of these words. */
static void assert_graph_error(tu_graph *g, tu_status status, const char *const *words) {
    assert_int_equal(tu_graph_status(g), status);
    for (; *words; words++)
        if (!strstr(tu_message(), *words)) fail_msg("'%s' is not in the message: %s", *words, tu_message());
}
#define ASSERT_GRAPH_ERROR(g, status, ...)                                                                   \
    assert_graph_error(g, status, (const char *const[]){__VA_ARGS__, NULL})

static void names_are_scoped_and_unique(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 3)), a = {0}, b = {0};
    tu_scope(g, "outer") tu_scope(g, "inner") {
        a = tu_relu(x);
        b = tu_relu(x);
    }
    assert_string_equal(tu_value_name(a), "outer/inner/relu");
    assert_string_equal(tu_value_name(b), "outer/inner/relu_1");
    assert_string_equal(tu_value_name(tu_relu(x)), "relu");
    assert_int_equal(tu_find(g, "outer/inner/relu_1").node, b.node);
    assert_string_equal(tu_value_name(tu_name(b, "second")), "second");
    assert_int_equal(tu_find(g, "second").node, b.node);
    assert_int_equal(tu_graph_verify(g), TU_OK);
    tu_graph_free(g);
}

static void a_thousand_nodes_of_one_name_get_unique_suffixes(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(1));
    for (int i = 0; i < 1000; i++) x = tu_neg(x);
    assert_string_equal(tu_value_name(x), "neg_999");
    assert_int_equal(tu_graph_verify(g), TU_OK);
    tu_graph_free(g);
}

static void a_graph_keeps_its_first_error(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 3)), y = tu_input(g, "y", TU_F32, TU_SHAPE(4)),
             sum = {0};
    tu_scope(g, "net") sum = tu_add(x, y);
    assert_false(tu_ok(sum));
    assert_false(tu_ok(tu_relu(sum)));
    assert_false(tu_ok(tu_matmul(x, x))); /* a second error does not replace the first */
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "add", "net/add", "f32[2,3]", "f32[4]", "broadcast");
    tu_program *program;
    assert_int_equal(tu_compile(g, &program, .fetch = &x, .fetch_count = 1), TU_INVALID);
    assert_non_null(strstr(tu_message(), "net/add"));
    tu_graph_free(g);
}

static void variables_with_the_same_name_are_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_variable(g, "w", TU_F32, TU_SHAPE(2));
    assert_false(tu_ok(tu_variable(g, "w", TU_F32, TU_SHAPE(2))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "variable", "'w'", "already used");
    tu_graph_free(g);
}

static void invalid_names_are_rejected(void **state) {
    (void)state;
    static const char *const names[] = {"", "/a", "a/", "a//b", "a b", "tab\t"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tu_graph *g = new_graph();
        assert_false(tu_ok(tu_input(g, names[i], TU_F32, TU_SHAPE(1))));
        ASSERT_GRAPH_ERROR(g, TU_INVALID, "input", "visible characters");
        tu_graph_free(g);
    }
}

static void invalid_inputs_and_variables_are_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    assert_false(tu_ok(tu_input(g, "x", TU_F32, TU_SHAPE(2, 0))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "input", "'x'", "[2,0]", "at least 1");
    tu_graph_free(g);
    g = new_graph();
    assert_false(tu_ok(tu_input(g, "x", TU_F32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "input", "at most 8");
    tu_graph_free(g);
    g = new_graph();
    assert_false(tu_ok(tu_input(g, "x", (tu_dtype)77, TU_SHAPE(1))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "input", "unknown element type");
    tu_graph_free(g);
    g = new_graph();
    assert_false(tu_ok(tu_input(g, "x", TU_F32, TU_SHAPE(1 << 30, 1 << 30))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "2^48");
    tu_graph_free(g);
    g = new_graph();
    assert_false(tu_ok(
        tu_input(g, "sample_ordinal", TU_F32, TU_SHAPE(2, 3)))); /* reserved: the engine feeds this input */
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "sample_ordinal", "i64[samples]");
    tu_graph_free(g);
    g = new_graph();
    assert_false(tu_ok(tu_variable(g, "w", TU_I32, TU_SHAPE(2), .init = {TU_INIT_NORMAL, .b = 1})));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "variable", "floating-point");
    tu_graph_free(g);
}

static void values_of_two_graphs_cannot_be_combined(void **state) {
    (void)state;
    tu_graph *g = new_graph(), *h = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_input(h, "y", TU_F32, TU_SHAPE(2));
    assert_false(tu_ok(tu_add(x, y)));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "add", "another graph");
    assert_int_equal(tu_graph_status(h), TU_OK);
    tu_graph_free(g);
    tu_graph_free(h);
}

static void uninitialised_values_are_errors_not_crashes(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), nothing = {0};
    assert_false(tu_ok(tu_mul(x, nothing)));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "mul", "uninitialised tu_value");
    assert_false(tu_ok(tu_relu(nothing)));
    assert_false(tu_ok(tu_softmax(nothing, -1)));
    assert_false(tu_ok(tu_dense(nothing, .units = 3)));
    tu_graph_free(g);
}

static void an_unknown_name_is_an_error(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    assert_false(tu_ok(tu_find(g, "conv9/weights")));
    ASSERT_GRAPH_ERROR(g, TU_NOT_FOUND, "conv9/weights");
    tu_graph_free(g);
}

static void a_second_assignment_is_rejected(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(2));
    tu_assign(w, tu_neg(w));
    assert_false(tu_ok(tu_assign(w, tu_abs(w))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "assign", "'w'", "already");
    tu_graph_free(g);
    g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    assert_false(tu_ok(tu_assign(x, x)));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "assign", "'x'", "expected a variable");
    tu_graph_free(g);
    g = new_graph();
    w = tu_variable(g, "w", TU_F32, TU_SHAPE(2));
    assert_false(tu_ok(tu_assign(w, tu_fill(g, TU_F32, TU_SHAPE(3), 0))));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "assign", "f32[2]", "f32[3]");
    tu_graph_free(g);
}

static void options_of_an_older_header_are_accepted(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    /* An older header without .keep: memory beyond its struct_size must not be read. */
    tu_reduce_options old = {
        .struct_size = offsetof(tu_reduce_options, keep), .axes = TU_AXES(1), .keep = true};
    tu_value y = tu_sum_with(tu_input(g, "x", TU_F32, TU_SHAPE(2, 3)), &old);
    assert_true(tu_shape_equal(tu_value_shape(y), TU_SHAPE(2)));
    tu_graph_free(g);
}

static void results_are_found_by_name(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
    tu_value y = tu_output(tu_exp(x), "y");
    assert_int_equal(tu_find_output(g, "y").node, y.node);
    assert_false(tu_ok(tu_output(x, "y")));
    ASSERT_GRAPH_ERROR(g, TU_INVALID, "already has a result 'y'");
    tu_graph_free(g);
}

static void trainable_variables_exclude_frozen_ones(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4, 3));
    tu_batch_norm(tu_dense(x, .units = 5));
    tu_step(g);
    tu_value values[8];
    assert_int_equal(tu_trainable(g, 8, values), 4); /* weights, bias, gamma, beta */
    assert_string_equal(tu_value_name(values[0]), "dense/weights");
    assert_int_equal(tu_trainable(g, 2, values), 4);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_scoped_and_unique),
        cmocka_unit_test(a_thousand_nodes_of_one_name_get_unique_suffixes),
        cmocka_unit_test(a_graph_keeps_its_first_error),
        cmocka_unit_test(variables_with_the_same_name_are_rejected),
        cmocka_unit_test(invalid_names_are_rejected),
        cmocka_unit_test(invalid_inputs_and_variables_are_rejected),
        cmocka_unit_test(values_of_two_graphs_cannot_be_combined),
        cmocka_unit_test(uninitialised_values_are_errors_not_crashes),
        cmocka_unit_test(an_unknown_name_is_an_error),
        cmocka_unit_test(a_second_assignment_is_rejected),
        cmocka_unit_test(options_of_an_older_header_are_accepted),
        cmocka_unit_test(results_are_found_by_name),
        cmocka_unit_test(trainable_variables_exclude_frozen_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
