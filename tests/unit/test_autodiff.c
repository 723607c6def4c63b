/* Differentiation, beyond the gradients of single operations: requested values, skipped work, recomputation,
 * errors. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

static size_t count_nodes(const tu_graph *g, tu__opcode op) {
    size_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++) count += g->nodes[i]->op->code == op;
    return count;
}

static double run_scalar(tu_graph *g, tu_value fetch, size_t feeds, const tu_feed *feed) {
    tu_program *program;
    tu_state *state;
    double value;
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &fetch, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state, .seed = 1), TU_OK);
    assert_int_equal(tu_run(program, state, feeds, feed, (void *[]){&value}), TU_OK);
    tu_program_free(program);
    tu_state_free(state);
    return value;
}

static void independent_values_have_gradient_zero(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SCALAR), y = tu_input(g, "y", TU_F64, TU_SCALAR), wrt[] = {x, y},
             d[2];
    assert_int_equal(tu_gradients(tu_square(x), 2, wrt, d), TU_OK);
    double three = 3;
    assert_true(run_scalar(g, d[0], 1, (tu_feed[]){{x, &three}}) == 6);
    assert_true(run_scalar(g, d[1], 1, (tu_feed[]){{x, &three}}) == 0);
    tu_graph_free(g);
}

static void gradients_with_respect_to_intermediate_values_and_the_scalar(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SCALAR), middle = tu_square(x), s = tu_mul(middle, middle);
    tu_value wrt[] = {x, middle, s, x}, d[4];
    assert_int_equal(tu_gradients(s, 4, wrt, d), TU_OK);
    double two = 2;
    const tu_feed feed = {x, &two};
    assert_true(run_scalar(g, d[0], 1, &feed) == 32); /* 4 x^3 */
    assert_true(run_scalar(g, d[1], 1, &feed) == 8);  /* 2 middle */
    assert_true(run_scalar(g, d[2], 1, &feed) == 1);
    assert_true(run_scalar(g, d[3], 1, &feed) == 32); /* requested twice */
    tu_graph_free(g);
}

static void only_requested_gradients_are_computed(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SHAPE(2, 3)), w = tu_input(g, "w", TU_F64, TU_SHAPE(3, 4)), d;
    tu_value s = tu_sum(tu_matmul(x, w));
    size_t before = count_nodes(g, TU__OP_MATMUL);
    assert_int_equal(tu_gradients(s, 1, &w, &d), TU_OK);
    assert_int_equal(count_nodes(g, TU__OP_MATMUL), before + 1); /* for w, not for x */
    tu_graph_free(g);
}

static void stop_gradient_makes_a_value_constant(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SCALAR), d;
    assert_int_equal(tu_gradients(tu_mul(x, tu_stop_gradient(x)), 1, &x, &d), TU_OK);
    double three = 3;
    assert_true(run_scalar(g, d, 1, (tu_feed[]){{x, &three}}) == 3);
    tu_graph_free(g);
}

static void marked_values_are_recomputed_in_the_backward_pass(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SCALAR), kept = tu_square(x), y = {0}, d;
    tu_recompute(g) y = tu_sin(tu_tanh(kept));
    tu_value s = tu_square(y);
    uint32_t forward = g->node_count;
    assert_int_equal(tu_gradients(s, 1, &x, &d), TU_OK);
    size_t recomputed_count = 0;
    for (uint32_t i = forward; i < g->node_count; i++) {
        const tu__node *node = g->nodes[i];
        recomputed_count += (node->flags & TU__NODE_RECOMPUTED) != 0;
        for (uint32_t k = 0; k < node->input_count; k++) /* the backward pass uses no marked value */
            if (node->inputs[k].node < forward)
                assert_false(g->nodes[node->inputs[k].node]->flags & TU__NODE_RECOMPUTE);
    }
    assert_int_equal(recomputed_count, 2); /* tanh and sin are recomputed, square is not */
    assert_int_equal(tu_graph_verify(g), TU_OK);
    tu_graph_free(g);
}

static void recomputed_random_numbers_are_the_same(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    enum { N = 64 };
    tu_value x = tu_batch_input(g, "x", TU_F64, TU_SHAPE(N)), y = {0}, d;
    tu_recompute(g) y = tu_dropout(tu_scale(x, 1), 0.5);
    /* d/dx of sum(y^2)/2 with x = 1 is y * keep / 0.5 = y * 2 where kept: it equals 2 y. */
    assert_int_equal(tu_gradients(tu_scale(tu_sum(tu_square(y)), 0.5), 1, &x, &d), TU_OK);
    double ones[N], forward[N], backward[N];
    for (int i = 0; i < N; i++) ones[i] = 1;
    tu_program *program;
    tu_state *s;
    tu_value fetch[] = {y, d};
    assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = fetch, .fetch_count = 2), TU_OK);
    assert_int_equal(tu_state_new(g, &s, .seed = 5), TU_OK);
    assert_int_equal(tu_run(program, s, 1, (tu_feed[]){{x, ones}}, (void *[]){forward, backward}), TU_OK);
    int kept = 0;
    for (int i = 0; i < N; i++) {
        assert_true(backward[i] == 2 * forward[i]);
        kept += forward[i] != 0;
    }
    assert_true(kept > 16 && kept < 48);
    tu_program_free(program);
    tu_state_free(s);
    tu_graph_free(g);
}

static void only_float_scalars_can_be_differentiated(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SHAPE(2)), d;
    assert_int_equal(tu_gradients(x, 1, &x, &d), TU_INVALID);
    assert_non_null(strstr(tu_message(), "f64[2]"));
    assert_non_null(strstr(tu_message(), "scalar"));
    tu_graph_free(g);
    g = new_graph();
    tu_value i = tu_input(g, "i", TU_I32, TU_SHAPE(2));
    x = tu_input(g, "x", TU_F64, TU_SHAPE(2));
    assert_int_equal(tu_gradients(tu_sum(x), 1, &i, &d), TU_INVALID);
    assert_non_null(strstr(tu_message(), "'i' i32[2]"));
    tu_graph_free(g);
}

static tu_status opaque_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}
static tu_status opaque_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    return TU_OK;
}

static void differentiating_an_operation_without_gradient_fails(void **state) {
    (void)state;
    static const tu_custom_op opaque = {.struct_size = sizeof opaque,
                                        .name = "opaque",
                                        .outputs = 1,
                                        .shape = opaque_shape,
                                        .run = opaque_run};
    assert_int_equal(tu_custom_register(&opaque), TU_OK);
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SCALAR), d;
    assert_int_equal(tu_gradients(tu_custom("opaque", 1, &x), 1, &x, &d), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "opaque"));
    assert_non_null(strstr(tu_message(), "tu_stop_gradient"));
    tu_graph_free(g);
}

static void gradient_nodes_are_named_after_their_forward_node(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_input(g, "x", TU_F64, TU_SHAPE(2, 3)), y = {0}, d;
    tu_scope(g, "layer") y = tu_tanh(x);
    assert_int_equal(tu_gradients(tu_sum(y), 1, &x, &d), TU_OK);
    assert_non_null(strstr(tu_value_name(d), "grad/layer/tanh/"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(independent_values_have_gradient_zero),
        cmocka_unit_test(gradients_with_respect_to_intermediate_values_and_the_scalar),
        cmocka_unit_test(only_requested_gradients_are_computed),
        cmocka_unit_test(stop_gradient_makes_a_value_constant),
        cmocka_unit_test(marked_values_are_recomputed_in_the_backward_pass),
        cmocka_unit_test(recomputed_random_numbers_are_the_same),
        cmocka_unit_test(only_float_scalars_can_be_differentiated),
        cmocka_unit_test(differentiating_an_operation_without_gradient_fails),
        cmocka_unit_test(gradient_nodes_are_named_after_their_forward_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
