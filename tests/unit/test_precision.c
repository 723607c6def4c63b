/* The pass `precision`: half precision where it is faster, f32 where it is needed, and at most one cast per value. */
#include "interpret.h"

static tu__unit network(const char *name, tu_graph **graph, tu_value *loss, tu__precision precision) {
    tu_network_graph model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_graph_new(graph), TU_OK);
    assert_int_equal(
        tu_network_build(*graph, name, &model, .batch = 4, .height = 8, .width = 8, .base = 4, .classes = 3),
        TU_OK);
    assert_int_equal(tu_add_sgd(model.loss, 0.1, 0.9), TU_OK);
    *loss = model.loss;
    return unit_after("precision", *graph, 1, loss, precision, 0, NULL);
}

static tu_dtype input_type(const tu_graph *graph, const tu__node *node, uint32_t i) {
    return graph->nodes[node->inputs[i].node]->outputs[node->inputs[i].output].dtype;
}

/* ---- Classes ---- */

static void matmuls_are_half_and_variables_are_f32(void **state) {
    (void)state;
    static const char *const names[] = {"mlp", "tutorial-cnn", "resnet20"};
    for (size_t k = 0; k < 3; k++) {
        tu_graph *g;
        tu_value loss;
        tu__unit unit = network(names[k], &g, &loss, TU__PRECISION_BF16);
        for (uint32_t i = 0; i < unit.graph->node_count; i++) {
            const tu__node *node = unit.graph->nodes[i];
            switch (node->op->code) {
            case TU__OP_CONV2D:
            case TU__OP_CONV2D_DX:
            case TU__OP_CONV2D_DW:
            case TU__OP_MATMUL:
            case TU__OP_RELU:
            case TU__OP_MAX_POOL:
            case TU__OP_MAX_POOL_GRAD:
            case TU__OP_LRN:
            case TU__OP_LRN_GRAD: assert_int_equal(node->outputs[0].dtype, TU_BF16); break;
            case TU__OP_BATCH_NORM:
            case TU__OP_BATCH_NORM_GRAD:
                assert_int_equal(node->outputs[0].dtype, TU_BF16);
                assert_int_equal(node->outputs[1].dtype, TU_F32);
                assert_int_equal(input_type(unit.graph, node, 1), TU_F32);
                break;
            case TU__OP_CROSS_ENTROPY: assert_int_equal(input_type(unit.graph, node, 0), TU_F32); break;
            case TU__OP_VARIABLE:
            case TU__OP_ASSIGN:
            case TU__OP_SOFTMAX: assert_int_not_equal(node->outputs[0].dtype, TU_BF16); break;
            default: break;
            }
        }
        assert_int_equal(unit.graph->nodes[unit.fetch[0].node]->outputs[0].dtype, TU_F32);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

/* All arithmetic that leads to an assignment, on tensors of its shape, is f32. */
static void updates_are_f32(void **state) {
    (void)state;
    tu_graph *g;
    tu_value loss;
    tu__unit unit = network("tutorial-cnn", &g, &loss, TU__PRECISION_F16);
    size_t checked_nodes = 0;
    for (uint32_t i = 0; i < unit.graph->node_count; i++) {
        const tu__node *node = unit.graph->nodes[i];
        if (strncmp(node->name, "optimizer/", 10) != 0) continue;
        for (uint32_t k = 0; k < node->output_count; k++)
            assert_int_not_equal(node->outputs[k].dtype, TU_F16);
        for (uint32_t k = 0; k < node->input_count; k++)
            assert_int_not_equal(input_type(unit.graph, node, k), TU_F16);
        checked_nodes++;
    }
    assert_true(checked_nodes > 20);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* Without momentum the learning rate multiplies the gradient itself, which must be f32 then. */
static void gradients_are_cast_before_the_update(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4, 5)), w = tu_variable(g, "w", TU_F32, TU_SHAPE(3, 5));
    tu_value loss = tu_mean(tu_square(tu_matmul(x, w, .transpose_b = true))), dw;
    assert_int_equal(tu_gradients(loss, 1, &w, &dw), TU_OK);
    tu_value step = tu_name(tu_scale(dw, 0.1), "small_step");
    tu_assign(w, tu_sub(w, step));
    tu__unit unit = unit_after("precision", g, 1, &loss, TU__PRECISION_BF16, 0, NULL);
    const tu__node *node = tu__find_node(unit.graph, "small_step");
    assert_non_null(node);
    assert_int_equal(node->outputs[0].dtype, TU_F32);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void pointwise_operations_that_only_f32_operations_read_are_f32(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4, 5)), target = tu_input(g, "t", TU_F32, TU_SHAPE(4, 3));
    tu_value y = tu_dense(x, .units = 3);
    tu_value difference = tu_name(tu_sub(y, target), "difference");
    tu_value loss = tu_mean(tu_square(difference));
    tu__unit unit = unit_after("precision", g, 1, &loss, TU__PRECISION_F16, 0, NULL);
    assert_int_equal(tu__find_node(unit.graph, "difference")->outputs[0].dtype, TU_F32);
    /* Casts of x, of the weights, and of their product. */
    assert_int_equal(count_nodes(unit.graph, TU__OP_CAST), 3);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* Only the sign of the relu's result matters, so it is not cast, and the gradient decides about the type. */
static void the_gradient_of_a_relu_has_the_type_of_the_gradient_after_it(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(4, 5)), w = tu_input(g, "w", TU_F32, TU_SHAPE(5, 5));
    tu_value half = tu_matmul(x, w), full = tu_exp(x);
    tu_value fetch[2] = {tu_name(tu__apply(RELU_GRAD, NULL, half, full), "of_f32"),
                         tu_matmul(tu_name(tu__apply(RELU_GRAD, NULL, full, half), "of_half"), w)};
    tu__unit unit = unit_after("precision", g, 2, fetch, TU__PRECISION_F16, 0, NULL);
    const tu__node *of_f32 = tu__find_node(unit.graph, "of_f32"),
                   *of_half = tu__find_node(unit.graph, "of_half");
    assert_int_equal(of_f32->outputs[0].dtype, TU_F32);
    assert_int_equal(input_type(unit.graph, of_f32, 0), TU_F16);
    assert_int_equal(of_half->outputs[0].dtype, TU_F16);
    assert_int_equal(input_type(unit.graph, of_half, 0), TU_F32);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* ---- Residual streams ---- */

/* A stream that begins in f32, as the sum of two embeddings does, stays f32, and so does its gradient. */
static void an_f32_residual_stream_and_its_gradient_are_f32(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tu_dtype dtype;
    } expected[] = {
        {"h0/add", TU_F32},
        {"h3/add_1", TU_F32},
        {"h2/attn/c_proj/add", TU_F32}, /* a bias that only the stream reads: no rounding in between */
        {"h2/mlp/c_proj/add", TU_F32},
        {"h2/attn/c_proj/matmul", TU_BF16},
        {"h2/mlp/c_fc/add", TU_BF16},
        {"h2/mlp/c_fc/gelu_tanh", TU_BF16},
        {"h1/attn/attention", TU_BF16},
        {"h1/ln_2/layer_norm", TU_F32},
        {"h1/ln_2/layer_norm/bf16", TU_BF16},
        {"grad/h1/ln_2/layer_norm/layer_norm_grad", TU_F32},
        {"grad/h1/ln_2/layer_norm/add", TU_F32},
        {"grad/h1/mlp/c_proj/matmul/matmul", TU_BF16}};
    tu_graph *g;
    tu_network_graph model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_set_training(g, true);
    assert_int_equal(
        tu_network_build(g, "char-gpt", &model, .batch = 2, .context = 4, .base = 8, .classes = 5), TU_OK);
    assert_int_equal(tu_add_sgd(model.loss, 0.1, 0), TU_OK);
    tu__unit unit = unit_after("precision", g, 1, &model.loss, TU__PRECISION_BF16, 0, NULL);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const tu__node *node = tu__find_node(unit.graph, expected[i].name);
        if (!node) fail_msg("there is no %s", expected[i].name);
        if (node->outputs[0].dtype != expected[i].dtype)
            fail_msg("%s is %s", node->name, tu_dtype_name(node->outputs[0].dtype));
    }
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void a_half_residual_stream_stays_half(void **state) {
    (void)state;
    static const char *const names[] = {"resnet20", "wide-resnet-16-4"};
    for (size_t k = 0; k < 2; k++) {
        tu_graph *g;
        tu_value loss;
        tu__unit unit = network(names[k], &g, &loss, TU__PRECISION_BF16);
        size_t sums = 0;
        for (uint32_t i = 0; i < unit.graph->node_count; i++) {
            const tu__node *node = unit.graph->nodes[i];
            if (node->op->code != TU__OP_ADD || node->outputs[0].shape.rank != 4) continue;
            if (strncmp(node->name, "optimizer/", 10) == 0) continue;
            assert_int_equal(node->outputs[0].dtype, TU_BF16);
            sums++;
        }
        assert_true(sums >= 12); /* in both directions */
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

/* Also for a batch of one sample, whose shape a bias may have: the types must not depend on the batch size. */
static void only_sums_of_activations_of_one_shape_are_widened(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(1, 5)), row = tu_input(g, "row", TU_F32, TU_SHAPE(5));
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(5, 5)),
             bias = tu_variable(g, "b", TU_F32, TU_SHAPE(1, 5));
    tu_value half = tu_matmul(x, w), noise = tu_random_uniform(g, TU_F32, TU_SHAPE(1, 5), -1, 1);
    const struct {
        tu_value sum;
        tu_dtype dtype;
    } list[] = {{tu_add(x, half), TU_F32},     {tu_add(half, tu_scale(x, 2)), TU_F32},
                {tu_add(half, half), TU_F16},  {tu_add(half, row), TU_F16},
                {tu_add(half, bias), TU_F16},  {tu_add(tu_neg(bias), half), TU_F16},
                {tu_add(half, noise), TU_F16}, {tu_mul(x, half), TU_F16},
                {tu_sub(half, x), TU_F16}};
    enum { COUNT = sizeof list / sizeof *list };
    tu_value fetch[COUNT];
    for (int i = 0; i < COUNT; i++) fetch[i] = tu_matmul(list[i].sum, w);
    tu__unit unit = unit_after("precision", g, COUNT, fetch, TU__PRECISION_F16, 0, NULL);
    for (int i = 0; i < COUNT; i++) {
        const tu__node *node = tu__find_node(unit.graph, tu_value_name(list[i].sum));
        assert_non_null(node);
        assert_int_equal(node->outputs[0].dtype, list[i].dtype);
    }
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void types_other_than_f32_are_not_changed(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F64, TU_SHAPE(4, 4)), n = tu_input(g, "n", TU_I32, TU_SHAPE(4, 4));
    tu_value fetch[] = {tu_matmul(x, x), tu_matmul(n, n), tu_cast(n, TU_F32)};
    tu__unit unit = unit_after("precision", g, 3, fetch, TU__PRECISION_BF16, 0, NULL);
    assert_same_results(g, fetch, &unit, 0);
    assert_int_equal(unit.graph->node_count, 5);
    tu__unit_end(&unit);
    tu_graph_free(g);
}

/* ---- Casts ---- */

static void a_value_is_cast_at_most_once_per_direction(void **state) {
    (void)state;
    tu_graph *g;
    tu_value loss;
    tu__unit unit = network("resnet20", &g, &loss, TU__PRECISION_BF16);
    for (uint32_t i = 0; i < unit.graph->node_count; i++) {
        const tu__node *a = unit.graph->nodes[i];
        if (a->op->code != TU__OP_CAST) continue;
        const tu__node *source = unit.graph->nodes[a->inputs[0].node];
        assert_true(source->op->code != TU__OP_CAST); /* and no cast is undone by another */
        assert_true(source->op->code != TU__OP_FILL);
        for (uint32_t k = i + 1; k < unit.graph->node_count; k++) {
            const tu__node *b = unit.graph->nodes[k];
            bool same = b->op->code == TU__OP_CAST && b->inputs[0].node == a->inputs[0].node &&
                        b->inputs[0].output == a->inputs[0].output;
            assert_false(same);
        }
    }
    tu__unit_end(&unit);
    tu_graph_free(g);
}

static void results_change_only_by_rounding(void **state) {
    (void)state;
    static const char *const names[] = {"mlp", "tutorial-cnn"};
    for (size_t k = 0; k < 2; k++) {
        tu_graph *g;
        tu_value loss;
        tu__unit unit = network(names[k], &g, &loss, TU__PRECISION_BF16);
        assert_same_results(g, &loss, &unit, 0.08); /* rounding errors of 2^-9 in about twenty layers */
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

static void f32_and_tf32_leave_the_graph_unchanged(void **state) {
    (void)state;
    tu_graph *g;
    tu_value loss;
    static const tu__precision precisions[] = {TU__PRECISION_AS_BUILT, TU__PRECISION_TF32};
    for (int i = 0; i < 2; i++) {
        tu__unit unit = network("mlp", &g, &loss, precisions[i]);
        assert_int_equal(count_nodes(unit.graph, TU__OP_CAST), 0);
        assert_same_results(g, &loss, &unit, 0);
        tu__unit_end(&unit);
        tu_graph_free(g);
    }
}

static void precisions_are_parsed_by_name(void **state) {
    (void)state;
    tu__precision precision;
    assert_int_equal(tu__precision_parse("f16", &precision), TU_OK);
    assert_int_equal(precision, TU__PRECISION_F16);
    assert_int_equal(tu__precision_parse("tf32", &precision), TU_OK);
    assert_int_equal(precision, TU__PRECISION_TF32);
    assert_int_equal(tu__precision_parse(NULL, &precision), TU_OK);
    assert_int_equal(precision, TU__PRECISION_AS_BUILT);
    assert_int_equal(tu__precision_parse("f8", &precision), TU_INVALID);
    assert_string_equal(tu_message(), "precision 'f8': expected f32, tf32, bf16 or f16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmuls_are_half_and_variables_are_f32),
        cmocka_unit_test(updates_are_f32),
        cmocka_unit_test(gradients_are_cast_before_the_update),
        cmocka_unit_test(pointwise_operations_that_only_f32_operations_read_are_f32),
        cmocka_unit_test(the_gradient_of_a_relu_has_the_type_of_the_gradient_after_it),
        cmocka_unit_test(an_f32_residual_stream_and_its_gradient_are_f32),
        cmocka_unit_test(a_half_residual_stream_stays_half),
        cmocka_unit_test(only_sums_of_activations_of_one_shape_are_widened),
        cmocka_unit_test(types_other_than_f32_are_not_changed),
        cmocka_unit_test(a_value_is_cast_at_most_once_per_direction),
        cmocka_unit_test(results_change_only_by_rounding),
        cmocka_unit_test(f32_and_tf32_leave_the_graph_unchanged),
        cmocka_unit_test(precisions_are_parsed_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
