/* Layers: strides and dilations per axis, activations, and .given_weights. */
#include "unit/evaluate.h"
#include "unit/graph_error.h"

#include "graph/graph.h"

static size_t variables_of(const tu_graph *g) {
    size_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++) count += g->nodes[i]->op->code == TU__OP_VARIABLE;
    return count;
}

static void strides_and_dilations_may_differ_per_axis(void **state) {
    (void)state;
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(1, 9, 12, 1));
    tu_value y = tu_conv2d(x, .filters = 2, .size = 2, .padding = TU_VALID, .strides = {3, 2}, .name = "a");
    assert_true(tu_shape_equal(tu_value_shape(y), TU_SHAPE(1, 3, 6, 2)));
    y = tu_conv2d(x, .filters = 2, .size = 2, .padding = TU_VALID, .dilations = {1, 5}, .name = "b");
    assert_true(tu_shape_equal(tu_value_shape(y), TU_SHAPE(1, 8, 7, 2)));
    y = tu_conv2d(x, .filters = 2, .size = 2, .padding = TU_VALID, .strides = {0, 2}, .name = "c");
    assert_true(tu_shape_equal(tu_value_shape(y), TU_SHAPE(1, 8, 6, 2)));
    y = tu_conv2d(x, .filters = 2, .size = 2, .padding = TU_VALID, .stride = 3, .dilation = 2, .name = "d");
    assert_true(tu_shape_equal(tu_value_shape(y), TU_SHAPE(1, 3, 4, 2)));
}

static void stride_and_strides_exclude_each_other(void **state) {
    (void)state;
#define IMAGES first_input(TU_F32, TU_SHAPE(2, 7, 6, 4))
    assert_graph_error(tu_conv2d(IMAGES, .filters = 8, .size = 3, .stride = 2, .strides = {2, 1}),
                       "conv2d of 'in0' f32[2,7,6,4]", "either .stride", "or .strides");
    assert_graph_error(tu_conv2d(IMAGES, .filters = 8, .size = 3, .dilation = 2, .dilations = {0, 1}),
                       "conv2d of 'in0'", "either .dilation", "or .dilations");
    assert_graph_error(tu_conv2d(IMAGES, .filters = 8, .size = 3, .strides = {1, -1}), "stride[1] is -1");
}

/* Options of an older header end before the new fields; the memory after them is not read. */
static void options_of_an_older_header_have_no_strides(void **state) {
    (void)state;
    tu_conv2d_options options = {.struct_size = offsetof(tu_conv2d_options, strides),
                                 .filters = 2,
                                 .size = 2,
                                 .stride = 3,
                                 .padding = TU_VALID};
    memset((char *)&options + options.struct_size, 0xff, sizeof options - options.struct_size);
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(1, 9, 12, 1));
    assert_true(tu_shape_equal(tu_value_shape(tu_conv2d_with(x, &options)), TU_SHAPE(1, 3, 4, 2)));
}

static void activations_are_applied(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F64, TU_SHAPE(3), (double[]){-2, 0, 3});
    assert_computes_within(1e-15, tu_activate(x, TU_ELU), TU_SHAPE(3), expm1(-2.0), 0, 3);
    assert_computes_within(1e-15, tu_activate(x, TU_LEAKY_RELU), TU_SHAPE(3), -0.02, 0, 3);
}

static void layers_use_given_weights(void **state) {
    (void)state;
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 2)); /* 0 1 / 2 3 */
    tu_value w = counting_constant(x.graph, TU_F32, TU_SHAPE(3, 2));     /* 0 1 / 2 3 / 4 5 */
    tu_value b = counting_constant(x.graph, TU_F32, TU_SHAPE(3));
    assert_computes(tu_dense(x, .given_weights = w, .given_bias = b), TU_SHAPE(2, 3), 1, 4, 7, 3, 14, 25);
    assert_computes(tu_dense(x, .units = 3, .given_weights = w, .no_bias = true), TU_SHAPE(2, 3), 1, 3, 5, 3,
                    13, 23);
    tu_value images = tu_reshape(x, TU_SHAPE(1, 2, 2, 1));
    tu_value filter = tu_fill(x.graph, TU_F32, TU_SHAPE(2, 2, 1, 1), 1);
    assert_computes(tu_conv2d(images, .given_weights = filter,
                              .given_bias = tu_fill(x.graph, TU_F32, TU_SHAPE(2), 10), .padding = TU_VALID),
                    TU_SHAPE(1, 1, 2, 2), 12, 12, 14, 14);
    tu_value words = constant_of(x.graph, TU_I32, TU_SHAPE(2), (double[]){2, 0});
    assert_computes(tu_embedding(words, .given_weights = w), TU_SHAPE(2, 2), 4, 5, 0, 1);
    assert_int_equal(variables_of(x.graph), 0);
}

/* An embedding's table is also the weights of the last layer: the gradient of the variable is the sum of both
 * uses. */
static void tied_weights_get_both_gradients(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value words = constant_of(g, TU_I64, TU_SHAPE(2), (double[]){1, 2}), dw;
    tu_value x =
        tu_embedding(words, .entries = 3, .width = 2, .weights = {TU_INIT_CONSTANT, .a = 1}, .name = "words");
    tu_value w = tu_find(g, "words/weights");
    tu_value logits = tu_dense(x, .given_weights = w, .no_bias = true);
    assert_int_equal(variables_of(g), 1);
    assert_int_equal(tu_gradients(tu_sum(logits), 1, &w, &dw), TU_OK);
    /* Every entry gets a gradient of 2 from the dense layer, and the two words 3 more from the embedding. */
    assert_computes(dw, TU_SHAPE(3, 2), 2, 2, 5, 5, 5, 5);
}

static void given_weights_of_another_type_are_rejected(void **state) {
    (void)state;
    tu_value x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_F32, TU_SHAPE(3, 5));
    assert_graph_error(tu_dense(x, .given_weights = w), "dense of 'in0' f32[5,4]",
                       ".given_weights is 'in1' f32[3,5]", "expected f32[3,4]");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_F32, TU_SHAPE(3, 4));
    assert_graph_error(tu_dense(x, .units = 2, .given_weights = w), "f32[3,4], expected f32[2,4]");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_BF16, TU_SHAPE(3, 4));
    assert_graph_error(tu_dense(x, .given_weights = w), "bf16[3,4], expected f32[3,4]");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_F32, TU_SCALAR);
    assert_graph_error(tu_dense(x, .given_weights = w), ".units is 0, expected at least 1");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_F32, TU_SHAPE(3, 4));
    assert_graph_error(tu_dense(x, .weights = {.kind = TU_INIT_CONSTANT}, .given_weights = w),
                       "either .weights");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_F32, TU_SHAPE(3));
    assert_graph_error(tu_dense(x, .units = 3, .no_bias = true, .given_bias = w), ".given_bias without");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = next_input(TU_F32, TU_SHAPE(4));
    assert_graph_error(tu_dense(x, .units = 3, .given_bias = w), ".given_bias is 'in1' f32[4]",
                       "expected f32[3]");
    x = IMAGES, w = next_input(TU_F32, TU_SHAPE(3, 2, 2, 5));
    assert_graph_error(tu_conv2d(x, .given_weights = w), "conv2d of 'in0'",
                       "f32[3,2,2,5], expected f32[3,2,2,4]");
    x = first_input(TU_I32, TU_SHAPE(5)), w = next_input(TU_F32, TU_SHAPE(3, 2, 2));
    assert_graph_error(tu_embedding(x, .given_weights = w), "embedding of 'in0' i32[5]", "f32[3,2,2]",
                       "expected f32[3,2]");
    x = first_input(TU_F32, TU_SHAPE(5, 4)), w = tu_reshape(x, TU_SHAPE(7));
    assert_graph_error(tu_dense(x, .units = 3, .given_weights = w), "reshape"); /* the first error is kept */
#undef IMAGES
}

static int free_both(void **state) {
    tu_graph_free(error_graph);
    error_graph = NULL;
    return free_last_graph(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_and_dilations_may_differ_per_axis),
        cmocka_unit_test(stride_and_strides_exclude_each_other),
        cmocka_unit_test(options_of_an_older_header_have_no_strides),
        cmocka_unit_test(activations_are_applied),
        cmocka_unit_test(layers_use_given_weights),
        cmocka_unit_test(tied_weights_get_both_gradients),
        cmocka_unit_test(given_weights_of_another_type_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, free_both);
}
