/* Batch normalisation of the CPU device with fused relus, additions and their gradients: bit-identical to the unfused
 * operations. */
#include "cpu_plans.h"

static int kernels_named(const test_plan *b, const char *name) {
    int count = 0;
    for (uint32_t i = 0; i < b->plan->kernel_count; i++) count += strcmp(b->plan->kernels[i].name, name) == 0;
    return count;
}

static tu_value batch_normalize_input(tu_graph *g, tu_value x, int index) {
    tu_shape s = tu_value_shape(x);
    tu_shape parameter = TU_SHAPE(s.dim[s.rank - 1]);
    return tu_batch_normalize(x, numbered_input(g, "gamma", index, parameter),
                              numbered_input(g, "beta", index, parameter));
}

static void check_residual_block(tu_dtype dtype, int64_t channels, int threads, bool in_place) {
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_shape shape = TU_SHAPE(3, 15, 11, channels);
    tu_value x = tu_input(g, "x", dtype, shape), weight = tu_input(g, "w", dtype, shape);
    tu_value inner = tu_relu(batch_normalize_input(g, x, 0));
    tu_value y = tu_relu(tu_add(batch_normalize_input(g, inner, 1), x));
    tu_value dx = {0};
    tu_gradients(tu_sum(tu_mul(y, weight)), 1, &x, &dx);
    const tu_value exports[] = {y, dx};
    select_pair(&both, g, threads, 2, exports, in_place);
    assert_int_equal(kernels_named(&both.fused, "batch_norm+relu"), 1);
    assert_int_equal(kernels_named(&both.fused, "batch_norm+add+relu"), 1);
    assert_int_equal(kernels_named(&both.fused, "relu_grad+batch_norm_grad"), 1);
    assert_int_equal(kernels_named(&both.fused, "batch_norm_grad"), 1);
    assert_int_equal(kernels_named(&both.unfused, "batch_norm"), 2);
    assert_int_equal(kernels_named(&both.unfused, "batch_norm_grad"), 2);
    run_and_compare_bits(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void a_residual_block_has_the_same_bits_fused_and_unfused(void **state) {
    (void)state;
    static const int64_t channels[] = {1, 5, 16, 70};
    random_state = 3;
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= 3; threads++) {
            check_residual_block(TU_F32, channels[i], threads, i & 1);
            check_residual_block(TU_BF16, channels[i], threads, !(i & 1));
        }
}

/* If the addition were fused, the kernel would depend on its own statistics. */
static void additions_that_depend_on_the_statistics_are_not_fused(void **state) {
    (void)state;
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(6, 7, 16)), y = batch_normalize_input(g, x, 0);
    tu_value mean = {.graph = g, .node = y.node, .output = 1};
    tu_value z = tu_relu(tu_add(y, tu_mul(x, mean)));
    select_pair(&both, g, 2, 1, &z, false);
    assert_int_equal(kernels_named(&both.fused, "batch_norm"), 1);
    run_and_compare_bits(&both);
    close_pair(&both);
    tu_graph_free(g);
}

/* If another node reads the gradient of the relu, it is stored, and the mask is computed from the relu's result. */
static void gradients_with_other_readers_are_not_fused(void **state) {
    (void)state;
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_shape shape = TU_SHAPE(6, 7, 16);
    tu_value x = tu_input(g, "x", TU_F32, shape), weight = tu_input(g, "w", TU_F32, shape);
    tu_value before = batch_normalize_input(g, x, 0);
    tu_value y = tu_relu(before), wrt[] = {x, before}, gradients[2] = {{0}};
    tu_gradients(tu_sum(tu_mul(y, weight)), 2, wrt, gradients);
    select_pair(&both, g, 2, 2, gradients, true);
    assert_int_equal(kernels_named(&both.fused, "batch_norm_grad"), 1);
    run_and_compare_bits(&both);
    close_pair(&both);
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_block_has_the_same_bits_fused_and_unfused),
        cmocka_unit_test(additions_that_depend_on_the_statistics_are_not_fused),
        cmocka_unit_test(gradients_with_other_readers_are_not_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
