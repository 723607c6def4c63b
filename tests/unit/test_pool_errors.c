/* Invalid arguments of pooling fail with a message that contains the operation, the input types and the expected
 * value. */
#include "unit/expect_error.h"

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define IMAGES TENSOR(TU_F32, 2, 7, 6, 4)

static void operands_of_the_wrong_rank_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_max_pool(TENSOR(TU_F32, 7, 6, 4)), "max_pool", "f32[7,6,4]", "rank 3, expected 4",
                 "[n,h,w,c]");
    EXPECT_ERROR(tu_avg_pool(TENSOR(TU_F32, 7)), "avg_pool", "f32[7]", "rank 1, expected 4", "[n,h,w,c]");
    EXPECT_ERROR(tu_global_avg_pool(TENSOR(TU_F32, 7)), "global_avg_pool of 'x' f32[7]",
                 "rank is 1, expected 4");
    EXPECT_ERROR(tu_global_max_pool(TENSOR(TU_F32, 7, 6)), "global_max_pool of 'x' f32[7,6]",
                 "rank is 2, expected 4");
}

static void operands_of_the_wrong_type_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_avg_pool(TENSOR(TU_U8, 2, 7, 6, 4)), "avg_pool", "u8[2,7,6,4]", "expected a float type",
                 "tu_cast");
    EXPECT_ERROR(tu_max_pool(TENSOR(TU_BOOL, 2, 7, 6, 4)), "max_pool", "bool", "expected numbers");
}

static void windows_and_strides_must_be_positive(void **state) {
    (void)state;
    EXPECT_ERROR(tu_max_pool(IMAGES, .window = {-2, 2}), "window size[0] is -2, expected at least 1");
    EXPECT_ERROR(tu_max_pool(IMAGES, .window = {2, 2}, .stride = {1, -1}),
                 "stride[1] is -1, expected at least 1");
    EXPECT_ERROR(tu_avg_pool(IMAGES, .window = {INT64_MIN, 2}), "window size[0] is -9223372036854775808");
}

static void windows_must_fit_and_not_contain_only_padding(void **state) {
    (void)state;
    EXPECT_ERROR(tu_max_pool(IMAGES, .window = {8, 2}, .padding = TU_VALID),
                 "the window's height of 8 is larger than the input's 7");
    EXPECT_ERROR(tu_max_pool(IMAGES, .window = {2, 2}, .padding = TU_EXPLICIT, .pad = {0, 0, 2, 0}),
                 "pad[2] is 2, expected less than the window size 2", "only padding");
    EXPECT_ERROR(tu_avg_pool(IMAGES, .window = {2, 2}, .padding = TU_EXPLICIT, .pad = {0, 3, 0, 0}),
                 "pad[1] is 3");
    EXPECT_ERROR(tu_avg_pool(IMAGES, .padding = TU_EXPLICIT, .pad = {-1, 0, 0, 0}), "pad[0] is -1");
}

static void unknown_or_contradictory_padding_is_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_max_pool(IMAGES, .padding = (tu_padding)3), "max_pool of 'x' f32[2,7,6,4]",
                 "padding is 3");
    EXPECT_ERROR(tu_avg_pool(IMAGES, .pad = {1, 1, 1, 1}), "avg_pool of 'x'", "pad[0] is 1", "TU_EXPLICIT");
}

/* Attribute values that builders never set but a graph file may contain. */
#define TWOS .window = {2, 2}, .stride = {2, 2}
#define BIG INT64_MAX

static tu_value raw_avg_grad(tu_graph *g, struct tu__avg_pool_grad_attrs attrs) {
    return tu__apply(AVG_POOL_GRAD, &attrs, TENSOR(TU_F32, 2, 3, 3, 4));
}

static tu_value raw_max_grad(tu_graph *g, tu_type dy) {
    struct tu__max_pool_grad_attrs attrs = {TWOS};
    return tu__apply(MAX_POOL_GRAD, &attrs, TENSOR(TU_F32, 2, 6, 6, 4),
                     tu_input(g, "dy", dy.dtype, dy.shape));
}

static tu_value raw_max_pick(tu_graph *g, tu_type u) {
    struct tu__max_pool_pick_attrs attrs = {TWOS};
    return tu__apply(MAX_POOL_PICK, &attrs, TENSOR(TU_F32, 2, 6, 6, 4), tu_input(g, "u", u.dtype, u.shape));
}

static void attributes_of_gradient_operations_are_checked(void **state) {
    (void)state;
    EXPECT_ERROR(raw_avg_grad(g, (struct tu__avg_pool_grad_attrs){0}), "avg_pool_grad",
                 "window size[0] is 0");
    EXPECT_ERROR(raw_avg_grad(g, (struct tu__avg_pool_grad_attrs){TWOS}), "height is 0");
    EXPECT_ERROR(raw_avg_grad(g, (struct tu__avg_pool_grad_attrs){TWOS, .size = {8, 6}}),
                 "gives an output of 4 x 3", "but y is 3 x 3");
    EXPECT_ERROR(
        raw_avg_grad(g, (struct tu__avg_pool_grad_attrs){TWOS, .size = {BIG, 6}, .pad = {1, 1, 1, 1}}),
        "too large");
    EXPECT_ERROR(raw_avg_grad(g, (struct tu__avg_pool_grad_attrs){TWOS, .size = {2, 6}, .pad = {2, 2, 0, 0}}),
                 "pad[0] is 2");
    EXPECT_ERROR(raw_max_grad(g, (tu_type){TU_F32, TU_SHAPE(2, 3, 4, 4)}), "max_pool_grad",
                 "operand 1 is f32[2,3,4,4]", "expected f32[2,3,3,4]");
    EXPECT_ERROR(raw_max_grad(g, (tu_type){TU_F64, TU_SHAPE(2, 3, 3, 4)}), "f64", "expected f32[2,3,3,4]");
    EXPECT_ERROR(raw_max_pick(g, (tu_type){TU_F32, TU_SHAPE(2, 6)}), "max_pool_pick",
                 "expected f32[2,6,6,4]");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value invalid = tu_max_pool(TENSOR(TU_F32, 3));
    assert_false(tu_ok(tu_max_pool(invalid)));
    assert_false(tu_ok(tu_avg_pool(invalid)));
    assert_false(tu_ok(tu_global_avg_pool(invalid)));
    assert_false(tu_ok(tu_global_max_pool(invalid)));
    assert_false(tu_ok(tu_global_max_pool((tu_value){0})));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "rank 1"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_of_the_wrong_rank_are_rejected),
        cmocka_unit_test(operands_of_the_wrong_type_are_rejected),
        cmocka_unit_test(windows_and_strides_must_be_positive),
        cmocka_unit_test(windows_must_fit_and_not_contain_only_padding),
        cmocka_unit_test(unknown_or_contradictory_padding_is_rejected),
        cmocka_unit_test(attributes_of_gradient_operations_are_checked),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
