/* The operations of ops/shape.c and ops/index.c move every element to the right position. */
#include "unit/evaluate.h"

#include "graph/graph.h"

static tu_value two_by_three(void) {
    return counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 3)); /* 0 1 2 / 3 4 5 */
}

static void reshape_keeps_the_order(void **state) {
    (void)state;
    assert_computes(tu_reshape(two_by_three(), TU_SHAPE(3, 2)), TU_SHAPE(3, 2), 0, 1, 2, 3, 4, 5);
    assert_computes(tu_reshape(two_by_three(), TU_SHAPE(1, -1, 2)), TU_SHAPE(1, 3, 2), 0, 1, 2, 3, 4, 5);
    assert_computes(tu_flatten(counting_constant(new_graph(), TU_I64, TU_SHAPE(1, 2, 2))), TU_SHAPE(1, 4), 0,
                    1, 2, 3);
    assert_computes(tu_flatten(counting_constant(new_graph(), TU_U8, TU_SHAPE(2))), TU_SHAPE(2, 1), 0, 1);
    assert_computes(tu_reshape(counting_constant(new_graph(), TU_F16, TU_SHAPE(1, 1)), TU_SCALAR), TU_SCALAR,
                    0);
    assert_computes(tu_expand_axis(two_by_three(), 1), TU_SHAPE(2, 1, 3), 0, 1, 2, 3, 4, 5);
    assert_computes(tu_expand_axis(two_by_three(), -1), TU_SHAPE(2, 3, 1), 0, 1, 2, 3, 4, 5);
    assert_computes(tu_squeeze_axis(tu_expand_axis(two_by_three(), 0), -3), TU_SHAPE(2, 3), 0, 1, 2, 3, 4, 5);
}

static void broadcast_repeats_elements(void **state) {
    (void)state;
    tu_value column = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 1));
    assert_computes(tu_broadcast(column, TU_SHAPE(2, 2, 3)), TU_SHAPE(2, 2, 3), 0, 0, 0, 1, 1, 1, 0, 0, 0, 1,
                    1, 1);
    tu_value one = tu_fill(new_graph(), TU_I32, TU_SCALAR, 7);
    assert_computes(tu_broadcast(one, TU_SHAPE(3)), TU_SHAPE(3), 7, 7, 7);
}

static void transpose_permutes_axes(void **state) {
    (void)state;
    assert_computes(tu_transpose(two_by_three(), 1, 0), TU_SHAPE(3, 2), 0, 3, 1, 4, 2, 5);
    assert_computes(tu_transpose_with(two_by_three(), (tu_axes){0}), TU_SHAPE(3, 2), 0, 3, 1, 4, 2, 5);
    /* Axis i of the result is axis permutation[i] of x: [2,3,2] by (2,0,1) is [2,2,3]. */
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 3, 2));
    assert_computes(tu_transpose(x, 2, 0, 1), TU_SHAPE(2, 2, 3), 0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11);
    assert_computes(tu_transpose(x, -1, -3, -2), TU_SHAPE(2, 2, 3), 0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11);
}

static void slice_selects_elements(void **state) {
    (void)state;
    assert_computes(tu_slice(two_by_three(), 1, 0, TU_END, 2), TU_SHAPE(2, 2), 0, 2, 3, 5);
    assert_computes(tu_slice(two_by_three(), -1, -2, -1, 1), TU_SHAPE(2, 1), 1, 4);
    assert_computes(tu_slice(two_by_three(), 0, 1, 2, 5), TU_SHAPE(1, 3), 3, 4, 5);
    assert_computes(tu_slice(counting_constant(new_graph(), TU_F32, TU_SHAPE(10)), 0, 1, 9, 3), TU_SHAPE(3),
                    1, 4, 7);
    assert_computes(tu_slice(counting_constant(new_graph(), TU_F32, TU_SHAPE(10)), 0, 1, TU_END, INT64_MAX),
                    TU_SHAPE(1), 1);
}

static void pad_adds_elements_around_and_between(void **state) {
    (void)state;
    assert_computes(tu_pad(two_by_three(), 1, 1, 2, 9), TU_SHAPE(2, 6), 9, 0, 1, 2, 9, 9, 9, 3, 4, 5, 9, 9);
    assert_computes(tu_pad(two_by_three(), -2, 0, 1, -1), TU_SHAPE(3, 3), 0, 1, 2, 3, 4, 5, -1, -1, -1);
    struct tu__pad_attrs with_gaps = {.between = {0, 2}, .before = {1, 0}};
    assert_computes(tu__apply(PAD, &with_gaps, two_by_three()), TU_SHAPE(3, 7), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    1, 0, 0, 2, 3, 0, 0, 4, 0, 0, 5);
    struct tu__pad_attrs one_element = {
        .between = {INT64_MAX - 3}}; /* one element has no gaps, however large */
    assert_computes(tu__apply(PAD, &one_element, tu_fill(new_graph(), TU_F32, TU_SHAPE(1), 4)), TU_SHAPE(1),
                    4);
}

static void concat_joins_along_an_axis(void **state) {
    (void)state;
    tu_value x = two_by_three(), y = tu_fill(x.graph, TU_F32, TU_SHAPE(2, 1), 8);
    assert_computes(tu_concat((tu_value[]){x, y, x}, 3, 1), TU_SHAPE(2, 7), 0, 1, 2, 8, 0, 1, 2, 3, 4, 5, 8,
                    3, 4, 5);
    assert_computes(tu_concat((tu_value[]){x, x}, 2, -2), TU_SHAPE(4, 3), 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5);
}

static void flip_reverses_axes(void **state) {
    (void)state;
    assert_computes(tu_flip(two_by_three(), 1), TU_SHAPE(2, 3), 2, 1, 0, 5, 4, 3);
    assert_computes(tu_flip(two_by_three(), 0), TU_SHAPE(2, 3), 3, 4, 5, 0, 1, 2);
    assert_computes(tu_flip_with(two_by_three(), (tu_axes){0}), TU_SHAPE(2, 3), 5, 4, 3, 2, 1, 0);
}

static tu_value indices(tu_graph *g, tu_shape shape, const double *list) {
    return constant_of(g, TU_I64, shape, list);
}

static void gather_reads_slices_along_an_axis(void **state) {
    (void)state;
    tu_value x = two_by_three(), positions = indices(x.graph, TU_SHAPE(2, 2), (double[]){1, 0, -1, 2});
    assert_computes(tu_gather(x, positions, 0), TU_SHAPE(2, 2, 3), 3, 4, 5, 0, 1, 2, 0, 0, 0, 0, 0, 0);
    assert_computes(tu_gather(x, positions, 1), TU_SHAPE(2, 2, 2), 1, 0, 0, 2, 4, 3, 0, 5);
    assert_computes(tu_gather(x, tu_fill(x.graph, TU_I32, TU_SCALAR, 1), -1), TU_SHAPE(2), 1, 4);
}

static void scatter_add_adds_slices_along_an_axis(void **state) {
    (void)state;
    tu_value x = two_by_three(), positions = indices(x.graph, TU_SHAPE(4), (double[]){1, 1, 7, -1});
    tu_value updates = tu_fill(x.graph, TU_F32, TU_SHAPE(4, 3), 10);
    assert_computes(tu_scatter_add(x, positions, updates, 0), TU_SHAPE(2, 3), 0, 1, 2, 23, 24, 25);
    tu_value column_updates = tu_fill(x.graph, TU_F32, TU_SHAPE(2, 4), 10);
    assert_computes(tu_scatter_add(x, positions, column_updates, 1), TU_SHAPE(2, 3), 0, 21, 2, 3, 24, 5);
}

static void take_along_reads_elements(void **state) {
    (void)state;
    tu_value x = two_by_three(), positions = indices(x.graph, TU_SHAPE(2, 2), (double[]){2, 0, 3, 1});
    assert_computes(tu_take_along(x, positions, 1), TU_SHAPE(2, 2), 2, 0, 0, 4);
    tu_value row_indices = indices(x.graph, TU_SHAPE(1, 3), (double[]){1, -5, 0});
    assert_computes(tu_take_along(x, row_indices, 0), TU_SHAPE(1, 3), 3, 0, 2);
}

static void put_along_adds_elements_into_zeros(void **state) {
    (void)state;
    tu_value x = two_by_three(), positions = indices(x.graph, TU_SHAPE(2, 3), (double[]){3, 3, -1, 0, 4, 1});
    assert_computes(tu_put_along(positions, x, 1, 4), TU_SHAPE(2, 4), 0, 0, 0, 1, 3, 5, 0, 0);
    assert_computes(tu_put_along(positions, x, 0, 1), TU_SHAPE(1, 3), 3, 0, 0);
}

static void one_hot_sets_one_element(void **state) {
    (void)state;
    tu_value positions = indices(new_graph(), TU_SHAPE(3), (double[]){2, -1, 0});
    assert_computes(tu_one_hot(positions, 3, TU_F32), TU_SHAPE(3, 3), 0, 0, 1, 0, 0, 0, 1, 0, 0);
    assert_computes(tu_one_hot(positions, 2, TU_BOOL), TU_SHAPE(3, 2), 0, 0, 0, 0, 1, 0);
}

static void indices_far_out_of_range_are_ignored(void **state) {
    (void)state;
    tu_value x = two_by_three();
    int64_t out_of_range[] = {INT64_MIN, INT64_MAX, INT64_C(1) << 62, -(INT64_C(1) << 53)};
    tu_value positions = tu_constant(x.graph, TU_I64, TU_SHAPE(4), out_of_range);
    assert_computes(tu_gather(x, positions, 1), TU_SHAPE(2, 4), 0, 0, 0, 0, 0, 0, 0, 0);
    assert_computes(tu_scatter_add(x, positions, tu_fill(x.graph, TU_F32, TU_SHAPE(2, 4), 9), 1),
                    TU_SHAPE(2, 3), 0, 1, 2, 3, 4, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape_keeps_the_order),
        cmocka_unit_test(broadcast_repeats_elements),
        cmocka_unit_test(transpose_permutes_axes),
        cmocka_unit_test(slice_selects_elements),
        cmocka_unit_test(pad_adds_elements_around_and_between),
        cmocka_unit_test(concat_joins_along_an_axis),
        cmocka_unit_test(flip_reverses_axes),
        cmocka_unit_test(gather_reads_slices_along_an_axis),
        cmocka_unit_test(scatter_add_adds_slices_along_an_axis),
        cmocka_unit_test(take_along_reads_elements),
        cmocka_unit_test(put_along_adds_elements_into_zeros),
        cmocka_unit_test(one_hot_sets_one_element),
        cmocka_unit_test(indices_far_out_of_range_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, free_last_graph);
}
