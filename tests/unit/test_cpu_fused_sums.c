/* Fusion with pointwise operations on the CPU, bit-identical to the unfused operations: sums at the end of a
 * cluster, sums of squares, and selects with a scalar condition. */
#include "cpu_plans.h"

/* ---- Sums at the end of a cluster ---- */

typedef struct sum_case {
    tu_dtype dtype;
    tu_shape shape;
    tu_reduce_options options;
    bool fused; /* false: reduce.c would divide the work differently, so it is not fused */
} sum_case;

/* Compares the sum of -x, which is fused, with that of y, a leaf that contains -x, by a separate kernel. */
static void check_sum(const sum_case *c, int threads) {
    tu_graph *g;
    test_plan b;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", c->dtype, c->shape), y = tu_input(g, "y", c->dtype, c->shape);
    tu_reduce_options options = c->options;
    options.struct_size = sizeof options;
    tu_value fused = tu_mean_with(tu_neg(x), &options), separate = tu_mean_with(y, &options);
    const tu_edge exports[] = {{fused.node, 0}, {separate.node, 0}};
    test_plan_select(&b, g, threads, 2, exports);
    test_plan_bind(&b, false);
    assert_int_equal(b.plan->kernel_count, c->fused ? 2 : 3);
    tu_edge leaf = {x.node, 0}, other = {y.node, 0};
    fill_leaf(tu_edge_type(g, leaf), buffer_of(&b, leaf));
    for (int64_t i = 0; i < tu_shape_elements(c->shape); i++)
        tu__store(c->dtype, buffer_of(&b, other), i, -tu__load(c->dtype, buffer_of(&b, leaf), i));
    test_plan_run(&b);
    assert_memory_equal(buffer_of(&b, exports[0]), buffer_of(&b, exports[1]),
                        tu_type_bytes(tu_edge_type(g, exports[0])));
    test_plan_close(&b);
    tu_graph_free(g);
}

static void a_sum_has_the_same_bits_fused_and_unfused(void **state) {
    (void)state;
    const sum_case cases[] = {
        {TU_F32, TU_SHAPE(1000, 64), {.axes = TU_AXES(0)}, true},
        {TU_F32, TU_SHAPE(7, 33, 9, 70), {.axes = TU_AXES(0, 1, 2)}, true},
        {TU_F32, TU_SHAPE(129, 192), {.axes = TU_AXES(0), .keep = true}, true},
        {TU_F32, TU_SHAPE(4000, 10), {.axes = TU_AXES(0)}, true},
        {TU_BF16, TU_SHAPE(777, 65), {.axes = TU_AXES(0)}, true},
        {TU_F32, TU_SHAPE(300, 77), {.axes = TU_AXES(1)}, true},
        {TU_F32, TU_SHAPE(5, 9000), {.axes = TU_AXES(-1)}, true},
        {TU_BF16, TU_SHAPE(40, 3, 101), {.axes = TU_AXES(1, 2)}, true},
        {TU_F32, TU_SHAPE(100, 100), {.axes = TU_AXES(0, 1)}, true},
        {TU_F32, TU_SHAPE(100, 1000), {.axes = TU_AXES(0, 1)}, false},
        {TU_F32, TU_SHAPE(20, 30, 40), {.axes = TU_AXES(1)}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 4; threads++) check_sum(&cases[i], threads);
}

/* The sum of a norm: compares the sum of x * x, fused, with that of y, a leaf that contains the squares. */
static void check_squares(tu_shape shape, int threads, float last_number) {
    tu_graph *g;
    test_plan b;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, shape), y = tu_input(g, "y", TU_F32, shape);
    tu_reduce_options rows = {.struct_size = sizeof rows, .axes = TU_AXES(-1)};
    tu_value fused = tu_sum_with(tu_square(x), &rows), separate = tu_sum_with(y, &rows);
    const tu_edge exports[] = {{fused.node, 0}, {separate.node, 0}}, leaf = {x.node, 0}, other = {y.node, 0};
    test_plan_select(&b, g, threads, 2, exports);
    test_plan_bind(&b, false);
    assert_int_equal(b.plan->kernel_count, 2);
    float *numbers = buffer_of(&b, leaf), *squares = buffer_of(&b, other);
    int64_t count = tu_shape_elements(shape);
    fill_leaf(tu_edge_type(g, leaf), numbers);
    numbers[count - 1] = last_number;
    for (int64_t i = 0; i < count; i++) squares[i] = numbers[i] * numbers[i];
    test_plan_run(&b);
    assert_memory_equal(buffer_of(&b, exports[0]), buffer_of(&b, exports[1]),
                        tu_type_bytes(tu_edge_type(g, exports[0])));
    test_plan_close(&b);
    tu_graph_free(g);
}

static void a_sum_of_squares_has_the_bits_of_the_sum_of_stored_squares(void **state) {
    (void)state;
    const tu_shape shapes[] = {TU_SHAPE(300, 77), TU_SHAPE(784, 512), TU_SHAPE(5, 9000),
                               TU_SHAPE(3, 2),    TU_SHAPE(1000),     TU_SHAPE(2, 1500)};
    random_state = 11;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int threads = 1; threads <= 3; threads++) {
            check_squares(shapes[i], threads, 0.5f);
            check_squares(shapes[i], threads, 3e38f);
            check_squares(shapes[i], threads, INFINITY);
        }
}

/* ---- Selects with a scalar condition ---- */

/* Guarded updates: the new values if the condition is true, else the old ones. The new value of `v` is read again by
 * the new `w`, guarded or not, so that there is a select whose first operand has another reader, and one whose
 * operand has not. */
static void check_guarded(tu_dtype dtype, tu_dtype stored, bool reads_guarded, bool condition, int threads,
                          bool in_place) {
    tu_graph *g;
    pair both;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_shape shape = TU_SHAPE(90, 310);
    tu_value guard = tu_input(g, "guard", TU_BOOL, TU_SCALAR);
    tu_value w = tu_input(g, "w", dtype, shape), v = tu_input(g, "v", dtype, shape);
    tu_value next = tu_add(tu_scale(v, 0.9), tu_input(g, "g", dtype, shape));
    tu_value next_v = tu_select(guard, next, v);
    tu_value next_w = tu_select(guard, tu_sub(w, tu_scale(reads_guarded ? next_v : next, 0.1)), w);
    const tu_value exports[] = {next_v, stored == dtype ? next_w : tu_cast(next_w, stored)};
    select_pair(&both, g, threads, 2, exports, in_place);
    assert_int_equal(both.fused.plan->kernel_count, reads_guarded ? 1 : 2);
    fill_leaves(&both);
    const tu_edge leaf = {guard.node, 0};
    *(bool *)buffer_of(&both.unfused, leaf) = *(bool *)buffer_of(&both.fused, leaf) = condition;
    test_plan_run(&both.unfused);
    test_plan_run(&both.fused);
    check_nodes(&both.unfused);
    check_bits(&both);
    close_pair(&both);
    tu_graph_free(g);
}

static void a_guard_has_the_same_bits_fused_and_unfused(void **state) {
    (void)state;
    static const tu_dtype types[][2] = {
        {TU_F32, TU_F32}, {TU_F32, TU_BF16}, {TU_BF16, TU_BF16}, {TU_F64, TU_F64}};
    random_state = 5;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int threads = 1; threads <= 3; threads++)
            for (unsigned bits = 0; bits < 8; bits++)
                check_guarded(types[i][0], types[i][1], bits & 1, bits & 2, threads, bits & 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_has_the_same_bits_fused_and_unfused),
        cmocka_unit_test(a_sum_of_squares_has_the_bits_of_the_sum_of_stored_squares),
        cmocka_unit_test(a_guard_has_the_same_bits_fused_and_unfused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
