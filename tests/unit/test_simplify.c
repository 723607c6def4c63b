/* The pass `simplify`: fewer nodes, the same bits. */
#include "interpret.h"

typedef struct simplified {
    tu_graph *graph;
    tu__unit unit;
} simplified;

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return graph;
}

/* Simplifies the graph of one value and checks the result; takes ownership of the graph. */
static simplified simplify(tu_value value) {
    if (!tu_ok(value)) fail_msg("%s", tu_message());
    simplified s = {.graph = value.graph};
    s.unit = unit_after("simplify", value.graph, 1, &value, TU__PRECISION_AS_BUILT, 0, NULL);
    assert_same_results(value.graph, &value, &s.unit, 0);
    return s;
}

static void free_simplified(simplified *s) {
    tu__unit_end(&s->unit);
    tu_graph_free(s->graph);
}

static const tu__node *fetched(const simplified *s) {
    return s->unit.graph->nodes[s->unit.fetch[0].node];
}

/* Checks that the value becomes the input x, and that no other node is left. */
static void assert_becomes_x(tu_value value) {
    simplified s = simplify(value);
    assert_int_equal(s.unit.graph->node_count, 1);
    assert_string_equal(fetched(&s)->name, "x");
    free_simplified(&s);
}

/* Checks that the value becomes this operation, in a graph of `nodes` nodes. */
static void assert_becomes(tu_value value, tu__opcode op, uint32_t nodes) {
    simplified s = simplify(value);
    if (fetched(&s)->op->code != op || s.unit.graph->node_count != nodes)
        fail_msg("became %s and %u nodes", fetched(&s)->op->name, s.unit.graph->node_count);
    free_simplified(&s);
}

static tu_value new_input(tu_dtype dtype, tu_shape shape) {
    return tu_input(new_graph(), "x", dtype, shape);
}

static tu_value new_matrix(void) {
    return new_input(TU_F32, TU_SHAPE(3, 4));
}

/* ---- Identities ---- */

static void identities_are_removed(void **state) {
    (void)state;
    tu_value x;
    x = new_matrix(), assert_becomes_x(tu_shift(x, 0));
    x = new_matrix(), assert_becomes_x(tu_add(tu_number(x, 0), x));
    x = new_matrix(), assert_becomes_x(tu_sub(x, tu_number(x, 0)));
    x = new_matrix(), assert_becomes_x(tu_scale(x, 1));
    x = new_matrix(), assert_becomes_x(tu_mul(tu_fill(x.graph, TU_F32, TU_SHAPE(4), 1), x));
    x = new_matrix(), assert_becomes_x(tu_div(x, tu_number(x, 1)));
    x = new_matrix(), assert_becomes_x(tu_neg(tu_neg(x)));
    x = new_matrix(), assert_becomes_x(tu_reshape(tu_reshape(x, TU_SHAPE(2, 6)), TU_SHAPE(3, 4)));
    x = new_matrix(), assert_becomes_x(tu_transpose(tu_transpose(x)));
    x = new_matrix(), assert_becomes_x(tu_slice(x, 1, 0, TU_END, 1));
    x = new_matrix(), assert_becomes_x(tu_pad(x, 0, 0, 0, 5));
    x = new_matrix(), assert_becomes_x(tu_broadcast(x, TU_SHAPE(3, 4)));
    x = new_matrix(), assert_becomes_x(tu_concat(&x, 1, 0));
    x = new_matrix(), assert_becomes_x(tu_cast(tu_cast(x, TU_F64), TU_F32));
    x = new_matrix(), assert_becomes_x(tu_stop_gradient(tu_copy(x)));
    x = new_matrix(),
    assert_becomes_x(tu_select(tu_fill(x.graph, TU_BOOL, TU_SCALAR, 1), x, tu_number(x, 3)));
    x = new_matrix(), assert_becomes_x(tu_select(tu_greater(x, tu_number(x, 0)), x, x));
    x = new_input(TU_U8, TU_SHAPE(5)), assert_becomes_x(tu_cast(tu_cast(x, TU_BF16), TU_U8));
}

static void rewrites_that_change_results_are_not_applied(void **state) {
    (void)state;
    tu_value x;
    x = new_matrix(), assert_becomes(tu_scale(x, 0), TU__OP_MUL, 3); /* x may be infinite */
    x = new_input(TU_U8, TU_SHAPE(5)), assert_becomes(tu_neg(tu_neg(x)), TU__OP_NEG, 3);
    x = new_matrix(), assert_becomes(tu_cast(tu_cast(x, TU_BF16), TU_F32), TU__OP_CAST, 3); /* loses bits */
    x = new_matrix(), assert_becomes(tu_shift(tu_shift(x, 1), 2), TU__OP_ADD, 5);
    x = new_matrix(), assert_becomes(tu_scale(tu_scale(x, 0.3), 0.7), TU__OP_MUL, 5);
    x = new_matrix(), assert_becomes(tu_scale(tu_scale(x, 4), 0.25), TU__OP_MUL, 5); /* 4 x may overflow */
    x = new_input(TU_F32, TU_SHAPE(4)), assert_becomes(tu_add(x, tu_fill(x.graph, TU_F32, TU_SHAPE(3, 4), 0)),
                                                       TU__OP_ADD, 3); /* it broadcasts x */
}

static void chains_are_combined_into_one_operation(void **state) {
    (void)state;
    tu_value x;
    x = new_matrix(), assert_becomes(tu_scale(tu_scale(x, 4), -2), TU__OP_MUL, 3);
    x = new_matrix(), assert_becomes(tu_div(tu_scale(x, 0.5), tu_number(x, 8)), TU__OP_MUL, 3);
    x = new_matrix(),
    assert_becomes(tu_reshape(tu_reshape(x, TU_SHAPE(2, 6)), TU_SHAPE(12)), TU__OP_RESHAPE, 2);
    x = new_input(TU_F32, TU_SHAPE(2, 3, 4));
    assert_becomes(tu_transpose(tu_transpose(x, 1, 2, 0), 0, 2, 1), TU__OP_TRANSPOSE, 2);
    x = new_input(TU_F16, TU_SHAPE(5)), assert_becomes(tu_cast(tu_cast(x, TU_F64), TU_I32), TU__OP_CAST, 2);
    x = new_input(TU_F32, TU_SHAPE(4));
    assert_becomes(tu_broadcast(tu_broadcast(x, TU_SHAPE(3, 4)), TU_SHAPE(2, 3, 4)), TU__OP_BROADCAST, 2);
}

/* Graph files written before relu_grad was an operation contain a comparison and a select. */
static void comparisons_with_the_result_of_a_relu_become_its_gradient(void **state) {
    (void)state;
    tu_value x = new_matrix(), y = tu_relu(x), dy = tu_input(x.graph, "dy", TU_F32, TU_SHAPE(4));
    assert_becomes(tu_select(tu_greater_than(y, 0), dy, tu_number(dy, 0)), TU__OP_RELU_GRAD, 4);
    x = new_matrix(), y = tu_relu(x), dy = tu_input(x.graph, "dy", TU_F64, TU_SHAPE(3, 4));
    assert_becomes(tu_select(tu_greater_than(y, 0), dy, tu_number(dy, 0)), TU__OP_RELU_GRAD, 4);
    x = new_matrix(), y = tu_relu(x); /* not the gradient of a relu */
    assert_becomes(tu_select(tu_greater_than(y, 0), x, tu_number(x, 1)), TU__OP_SELECT, 6);
    x = new_matrix(), y = tu_relu(x);
    assert_becomes(tu_select(tu_greater_than(y, 1), x, tu_number(x, 0)), TU__OP_SELECT, 6);
    x = new_matrix(), y = tu_relu(x);
    assert_becomes(tu_select(tu_greater_than(y, 0), x, tu_number(x, -0.0)), TU__OP_SELECT, 6);
    x = new_matrix();
    assert_becomes(tu_select(tu_greater_than(x, 0), x, tu_number(x, 0)), TU__OP_SELECT, 4);
}

static tu_value softmax_minus_one_hot(tu_value x, int axis, bool keep_order) {
    tu_value labels = tu_input(x.graph, "labels", TU_I32, TU_SHAPE(3)),
             target = tu_one_hot(labels, 4, TU_F32);
    tu_value p = tu_softmax(x, axis), sum = tu_sum(target, .axes = TU_AXES(-1), .keep = true);
    return tu_sub(keep_order ? tu_mul(p, sum) : tu_mul(sum, p), target);
}

/* The same for cross_entropy_grad. */
static void softmax_minus_one_hot_becomes_the_gradient_of_cross_entropy(void **state) {
    (void)state;
    assert_becomes(softmax_minus_one_hot(new_matrix(), -1, true), TU__OP_CROSS_ENTROPY_GRAD, 3);
    assert_becomes(softmax_minus_one_hot(new_matrix(), -1, false), TU__OP_CROSS_ENTROPY_GRAD, 3);
    assert_becomes(softmax_minus_one_hot(new_matrix(), 0, true), TU__OP_SUB, 7);
}

/* An explicit broadcast before a pointwise operation is dropped, since the operation broadcasts itself. */
static void broadcasts_before_pointwise_operations_are_removed(void **state) {
    (void)state;
    tu_value x = new_matrix(), bias = tu_input(x.graph, "b", TU_F32, TU_SHAPE(4));
    assert_becomes(tu_add(x, tu_broadcast(bias, TU_SHAPE(3, 4))), TU__OP_ADD, 3);
    x = new_matrix();
    simplified s = simplify(tu_maximum(x, tu_fill(x.graph, TU_F32, TU_SHAPE(3, 4), 0.5)));
    const tu__node *fill = s.unit.graph->nodes[fetched(&s)->inputs[1].node];
    assert_int_equal(fill->op->code, TU__OP_FILL);
    assert_int_equal(fill->outputs[0].shape.rank, 0);
    free_simplified(&s);
    x = new_input(TU_F32, TU_SHAPE(4)),
    bias = tu_broadcast(x, TU_SHAPE(3, 4)); /* here it determines the shape */
    assert_becomes(tu_tanh(bias), TU__OP_TANH, 3);
}

/* ---- Constants ---- */

static void constants_are_folded(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    float list[] = {1, 2, 3, 4};
    tu_value c = tu_constant(g, TU_F32, TU_SHAPE(2, 2), list);
    assert_becomes(tu_matmul(tu_exp(c), tu_transpose(c)), TU__OP_CONSTANT, 1);
    g = new_graph();
    c = tu_constant(g, TU_F32, TU_SHAPE(2, 2), list);
    assert_becomes(tu_sub(c, c), TU__OP_FILL, 1); /* all elements are equal */
    g = new_graph();
    assert_becomes(tu_sqrt(tu_fill(g, TU_F32, TU_SHAPE(1000, 1000), 2)), TU__OP_FILL, 1); /* any size */
}

static void large_results_are_not_folded(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    float list[256];
    for (int i = 0; i < 256; i++) list[i] = (float)i;
    tu_value c = tu_constant(g, TU_F32, TU_SHAPE(256, 1), list);
    assert_becomes(tu_broadcast(c, TU_SHAPE(256, 65)), TU__OP_BROADCAST, 2);
    g = new_graph();
    c = tu_constant(g, TU_F32, TU_SHAPE(256, 1), list);
    assert_becomes(tu_broadcast(c, TU_SHAPE(256, 64)), TU__OP_CONSTANT, 1); /* 64 KiB */
}

static void large_integers_stay_exact(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    int64_t list[] = {INT64_C(9007199254740993), 1}; /* 2^53 + 1 */
    tu_value c = tu_constant(g, TU_I64, TU_SHAPE(2), list);
    assert_becomes(tu_reshape(c, TU_SHAPE(1, 2)), TU__OP_RESHAPE, 2);
}

/* A singular matrix is reported by the run, where the user sees it. */
static void operations_that_fail_are_not_folded(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    float singular[] = {1, 2, 2, 4};
    tu_value value = tu_inverse(tu_constant(g, TU_F32, TU_SHAPE(2, 2), singular));
    tu__unit unit = unit_after("simplify", g, 1, &value, TU__PRECISION_AS_BUILT, 0, NULL);
    assert_int_equal(count_nodes(unit.graph, TU__OP_INVERSE), 1);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* ---- Equal nodes ---- */

static void equal_operations_are_merged(void **state) {
    (void)state;
    tu_value x = new_matrix(), y = tu_input(x.graph, "y", TU_F32, TU_SHAPE(3, 4));
    tu_value both = tu_mul(tu_exp(tu_add(x, y)), tu_exp(tu_add(y, x)));
    assert_becomes(both, TU__OP_MUL, 5);
    x = new_matrix(), y = tu_input(x.graph, "y", TU_F32, TU_SHAPE(3, 4));
    assert_becomes(tu_mul(tu_sub(x, y), tu_sub(y, x)), TU__OP_MUL, 5); /* differ */
    x = new_matrix();
    assert_becomes(tu_mul(tu_sum(x, .axes = TU_AXES(0)), tu_sum(x, .axes = TU_AXES(0), .keep = true)),
                   TU__OP_MUL, 4); /* different attributes */
}

static void maxima_with_swapped_operands_are_not_merged(void **state) {
    (void)state;
    tu_value x = new_matrix(), y = tu_input(x.graph, "y", TU_F32, TU_SHAPE(3, 4));
    assert_becomes(tu_mul(tu_maximum(x, y), tu_maximum(y, x)), TU__OP_MUL, 5);
}

static void random_operations_are_never_merged(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value a = tu_random_uniform(g, TU_F32, TU_SHAPE(3), 0, 1),
             b = tu_random_uniform(g, TU_F32, TU_SHAPE(3), 0, 1);
    assert_becomes(tu_add(a, b), TU__OP_ADD, 4);
}

static void recomputed_nodes_are_never_merged(void **state) {
    (void)state;
    tu_value x = new_matrix(), h = x, dx;
    tu_recompute(x.graph) h = tu_exp(x);
    assert_int_equal(tu_gradients(tu_sum(tu_square(h)), 1, &x, &dx), TU_OK);
    tu_value fetch[] = {tu_sum(h), dx};
    tu__unit unit = unit_after("simplify", x.graph, 2, fetch, TU__PRECISION_AS_BUILT, 0, NULL);
    assert_int_equal(count_nodes(unit.graph, TU__OP_EXP), 2);
    assert_same_results(x.graph, fetch, &unit, 0);
    tu__unit_end(&unit);
    tu_graph_free(x.graph);
}

static void nodes_pinned_to_different_devices_are_not_merged(void **state) {
    (void)state;
    tu_value x = new_matrix(), a = x, b = x;
    tu_with_device(x.graph, "cpu:0.0") a = tu_exp(x);
    tu_with_device(x.graph, "cpu:0.1") b = tu_exp(x);
    assert_becomes(tu_add(a, b), TU__OP_ADD, 4);
}

/* ---- Needed nodes ---- */

static void only_needed_nodes_are_kept(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), w = tu_variable(g, "w", TU_F32, TU_SHAPE(3));
    tu_value y = tu_tanh(x), next = tu_assign(w, tu_add(w, x));
    tu_output(tu_exp(x), "unfetched");
    tu_output(y, "y");
    tu__unit unit;
    assert_int_equal(tu__unit_begin(&unit, g, 1, &y, false), TU_OK);
    assert_int_equal(tu__run_passes(&unit, "simplify"), TU_OK);
    assert_int_equal(unit.graph->node_count, 2);
    assert_int_equal(unit.graph->result_count, 1);
    assert_string_equal(unit.graph->results[0].name, "y");
    tu__unit_end(&unit);

    assert_int_equal(tu__unit_begin(&unit, g, 1, &y, true), TU_OK);
    assert_int_equal(tu__run_passes(&unit, "simplify"), TU_OK);
    assert_int_equal(count_nodes(unit.graph, TU__OP_ASSIGN), 1);
    assert_int_equal(unit.graph->node_count, 5);
    tu__unit_end(&unit);

    /* A fetched assignment in a program without updates becomes the assigned value. */
    assert_int_equal(tu__unit_begin(&unit, g, 1, &next, false), TU_OK);
    assert_int_equal(tu__run_passes(&unit, "simplify"), TU_OK);
    assert_int_equal(unit.graph->nodes[unit.fetch[0].node]->op->code, TU__OP_ADD);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void nodes_keep_their_names(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_scope(g, "deep") tu_scope(g, "down") y = tu_name(tu_tanh(tu_shift(x, 0)), "result");
    simplified s = simplify(y);
    assert_string_equal(fetched(&s)->name, "deep/down/result");
    free_simplified(&s);
}

/* ---- Whole networks ---- */

static void check_network(const char *name) {
    tu_graph *g = new_graph();
    tu_network_graph model = TU_SIZED(tu_network_graph);
    assert_int_equal(
        tu_network_build(g, name, &model, .batch = 2, .height = 8, .width = 8, .base = 4, .classes = 3),
        TU_OK);
    assert_int_equal(tu_add_sgd(model.loss, 0.1, 0.9), TU_OK);
    tu_value fetch[] = {model.loss, model.logits};
    tu__unit unit = unit_after("simplify", g, 2, fetch, TU__PRECISION_AS_BUILT, 0, NULL);
    assert_true(unit.graph->node_count < g->node_count);
    assert_same_results(g, fetch, &unit, 0);
    uint32_t nodes_after_first_run = unit.graph->node_count;
    assert_int_equal(tu__pass_simplify(&unit), TU_OK); /* a second run changes nothing */
    assert_int_equal(unit.graph->node_count, nodes_after_first_run);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void networks_compute_the_same_bits(void **state) {
    (void)state;
    check_network("mlp");
    check_network("tutorial-cnn");
    check_network("resnet20");
}

static void unknown_passes_are_rejected(void **state) {
    (void)state;
    tu_value x = new_matrix();
    tu__unit unit;
    assert_int_equal(tu__unit_begin(&unit, x.graph, 1, &x, false), TU_OK);
    assert_int_equal(tu__run_passes(&unit, "fuse"), TU_NOT_FOUND);
    assert_string_equal(tu_message(),
                        "unknown pass 'fuse': expected simplify, replicate, precision, place or partition");
    tu__unit_end(&unit);
    tu_graph_free(x.graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identities_are_removed),
        cmocka_unit_test(rewrites_that_change_results_are_not_applied),
        cmocka_unit_test(chains_are_combined_into_one_operation),
        cmocka_unit_test(comparisons_with_the_result_of_a_relu_become_its_gradient),
        cmocka_unit_test(softmax_minus_one_hot_becomes_the_gradient_of_cross_entropy),
        cmocka_unit_test(broadcasts_before_pointwise_operations_are_removed),
        cmocka_unit_test(constants_are_folded),
        cmocka_unit_test(large_results_are_not_folded),
        cmocka_unit_test(large_integers_stay_exact),
        cmocka_unit_test(operations_that_fail_are_not_folded),
        cmocka_unit_test(equal_operations_are_merged),
        cmocka_unit_test(maxima_with_swapped_operands_are_not_merged),
        cmocka_unit_test(random_operations_are_never_merged),
        cmocka_unit_test(recomputed_nodes_are_never_merged),
        cmocka_unit_test(nodes_pinned_to_different_devices_are_not_merged),
        cmocka_unit_test(only_needed_nodes_are_kept),
        cmocka_unit_test(nodes_keep_their_names),
        cmocka_unit_test(networks_compute_the_same_bits),
        cmocka_unit_test(unknown_passes_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
