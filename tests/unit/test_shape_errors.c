/* Invalid arguments of reshape, broadcast, transpose, slice, pad, concat and flip fail with a message that contains
 * the operation, the input types and the expected value. */
#include "unit/graph_error.h"

#include "graph/graph.h"

static tu_value matrix(void) {
    return first_input(TU_F32, TU_SHAPE(2, 3));
}

static void reshape_to_another_number_of_elements_is_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(2, 4)), "reshape node 'reshape' (input f32[2,3]",
                       "[2,4]", "expected 6");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(-1, 4)), "reshape", "f32[2,3]", "[-1,4]",
                       "or one of them -1");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(-1, -1)), "reshape", "[-1,-1]", "or one of them -1");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(0, 6)), "reshape", "[0,6]", "at least 1");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(-1, 0)), "reshape", "[-1,0]", "at least 1");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(-2, -3)), "reshape", "[-2,-3]", "at least 1");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 2, 3)), "reshape", "f32[2,3]",
                       "at most 8");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(INT64_MAX, 3, -1)), "reshape", "f32[2,3]");
    assert_graph_error(tu_reshape(matrix(), TU_SHAPE(INT64_MIN, 3)), "reshape", "f32[2,3]");
    assert_graph_error(tu_reshape(matrix(), (tu_shape){.rank = 100}), "reshape", "f32[2,3]", "at most 8");
}

static void flatten_of_a_scalar_is_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_flatten(first_input(TU_F32, TU_SCALAR)), "flatten of 'in0' f32[]",
                       "at least one axis");
}

static void expand_axis_and_squeeze_axis_check_the_axis(void **state) {
    (void)state;
    assert_graph_error(tu_expand_axis(matrix(), 3), "expand_axis of 'in0' f32[2,3]",
                       "new axis 3: expected -3 to 2");
    assert_graph_error(tu_expand_axis(matrix(), -4), "expand_axis", "new axis -4: expected -3 to 2");
    assert_graph_error(tu_expand_axis(first_input(TU_I32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 0),
                       "expand_axis", "i32[1,1,1,1,1,1,1,1]", "at most 8 axes");
    assert_graph_error(tu_squeeze_axis(matrix(), 2), "squeeze_axis of 'in0' f32[2,3]", "axis 2",
                       "expected -2 to 1");
    assert_graph_error(tu_squeeze_axis(matrix(), 1), "squeeze_axis of 'in0' f32[2,3]", "axis 1 has size 3",
                       "expected 1");
}

static void broadcast_repeats_only_axes_of_size_1(void **state) {
    (void)state;
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(4, 3)), "broadcast node 'broadcast' (input f32[2,3]",
                       "[4,3]", "replace a 1");
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(3)), "broadcast", "f32[2,3]", "[3]");
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(2, 1)), "broadcast", "f32[2,3]", "[2,1]");
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(0, 2, 3)), "broadcast", "[0,2,3]");
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(-1, 2, 3)), "broadcast", "[-1,2,3]");
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 2, 3)), "broadcast",
                       "[invalid shape]");
    assert_graph_error(tu_broadcast(matrix(), TU_SHAPE(INT64_MAX, 2, 3)), "broadcast", "f32[2,3]");
}

static void transpose_needs_a_permutation(void **state) {
    (void)state;
    assert_graph_error(tu_transpose(matrix(), 0), "transpose of 'in0' f32[2,3]", "1 axes are listed",
                       "expected all 2");
    assert_graph_error(tu_transpose(matrix(), 0, 1, 2), "transpose of 'in0' f32[2,3]", "3 axes are listed");
    assert_graph_error(tu_transpose(matrix(), 0, 0), "transpose node 'transpose' (input f32[2,3]",
                       "[0,0] is not a permutation");
    assert_graph_error(tu_transpose(matrix(), 0, 2), "transpose", "f32[2,3]", "[0,2] is not a permutation",
                       "each axis from 0 to 1 once");
    assert_graph_error(tu_transpose(matrix(), -3, 0), "transpose", "[-3,0] is not a permutation");
    assert_graph_error(tu_transpose_with(first_input(TU_F32, TU_SHAPE(3)), (tu_axes){0}),
                       "transpose of 'in0' f32[3]", "swap the last two");
    assert_graph_error(tu_transpose_with(matrix(), (tu_axes){.count = 4000000000u}), "transpose",
                       "4000000000 axes");
}

static void slices_must_be_within_their_axis(void **state) {
    (void)state;
    assert_graph_error(tu_slice(matrix(), 2, 0, 1, 1), "slice of 'in0' f32[2,3]", "axis 2",
                       "expected -2 to 1");
    assert_graph_error(tu_slice(matrix(), 1, 3, TU_END, 1), "slice of 'in0' f32[2,3]", "begin 3, end 3",
                       "end <= 3");
    assert_graph_error(tu_slice(matrix(), 1, 2, 2, 1), "slice", "begin 2, end 2", "begin < end");
    assert_graph_error(tu_slice(matrix(), 1, 2, 1, 1), "slice", "begin 2, end 1");
    assert_graph_error(tu_slice(matrix(), 1, 0, 4, 1), "slice", "end 4", "end <= 3");
    assert_graph_error(tu_slice(matrix(), 1, -4, TU_END, 1), "slice", "begin -4", "count from the end");
    assert_graph_error(tu_slice(matrix(), 1, 0, -3, 1), "slice", "begin 0");
    assert_graph_error(tu_slice(matrix(), 1, 0, 3, 0), "slice", "step 0", "step >= 1");
    assert_graph_error(tu_slice(matrix(), 1, 0, 3, -1), "slice", "step -1", "step >= 1");
    assert_graph_error(tu_slice(matrix(), 1, INT64_MIN, INT64_MIN, INT64_MIN), "slice", "f32[2,3]");
}

static void negative_padding_is_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_pad(matrix(), -3, 1, 1, 0), "pad of 'in0' f32[2,3]", "axis -3", "expected -2 to 1");
    assert_graph_error(tu_pad(matrix(), 1, -1, 1, 0), "pad node 'pad' (input f32[2,3]", "before -1",
                       "at least 0");
    assert_graph_error(tu_pad(matrix(), 1, 0, -2, 0), "pad node 'pad' (input f32[2,3]", "after -2",
                       "at least 0");
    assert_graph_error(tu_pad(matrix(), 0, INT64_MAX, 1, 0), "pad", "f32[2,3]", "2^48");
    assert_graph_error(tu_pad(matrix(), 0, INT64_C(1) << 50, 1, 0), "pad", "f32[2,3]", "too large");
}

static void inputs_of_concat_must_agree(void **state) {
    (void)state;
    tu_value x = matrix();
    tu_value parts[] = {x, next_input(TU_F32, TU_SHAPE(2, 4))};
    assert_graph_error(tu_concat(parts, 2, 0), "concat node 'concat' (inputs f32[2,3], f32[2,4]",
                       "input 1 is f32[2,4]", "except at axis 0");
    parts[0] = matrix();
    parts[1] = next_input(TU_F64, TU_SHAPE(2, 3));
    assert_graph_error(tu_concat(parts, 2, 0), "concat", "f64[2,3]", "equal element types");
    parts[0] = matrix();
    parts[1] = next_input(TU_F32, TU_SHAPE(3));
    assert_graph_error(tu_concat(parts, 2, 1), "concat", "f32[3]", "input 1");
    parts[0] = parts[1] = matrix();
    assert_graph_error(tu_concat(parts, 2, 2), "concat", "f32[2,3]", "axis 2", "expected -2 to 1");
    parts[0] = first_input(TU_F32, TU_SCALAR);
    assert_graph_error(tu_concat(parts, 1, 0), "concat", "f32[]", "axis 0");
    parts[0] = matrix();
    assert_graph_error(tu_concat((tu_value[]){parts[0], {0}}, 2, 0), "concat",
                       "input 1 is an uninitialised tu_value");
}

static void concat_of_nothing_is_rejected(void **state) {
    (void)state;
    tu_value nothing = tu_concat(NULL, 0, 0);
    assert_false(tu_ok(nothing));
    assert_non_null(strstr(tu_message(), "concat: count is 0, expected at least one value"));
}

static void flip_checks_its_axes(void **state) {
    (void)state;
    assert_graph_error(tu_flip(matrix(), 2), "flip of 'in0' f32[2,3]", "axis 2", "expected -2 to 1");
    assert_graph_error(tu_flip(matrix(), 1, -1), "flip of 'in0' f32[2,3]", "axis -1 is listed twice");
}

/* Attribute values that builders never set but a graph file may contain. */
static void attributes_not_in_canonical_form_are_rejected(void **state) {
    (void)state;
    assert_graph_error(tu__apply(TRANSPOSE, (&(struct tu__transpose_attrs){{1, 0, 2}}), matrix()),
                       "transpose");
    assert_graph_error(
        tu__apply(TRANSPOSE, (&(struct tu__transpose_attrs){{INT64_MIN, INT64_MAX}}), matrix()), "transpose");
    assert_graph_error(tu__apply(SLICE, (&(struct tu__slice_attrs){{0}, {2, 3}, {1, 0}}), matrix()), "slice",
                       "axis 1", "step >= 1");
    assert_graph_error(tu__apply(SLICE, (&(struct tu__slice_attrs){{0}, {2, 4}, {1, 1}}), matrix()), "slice",
                       "axis 1: begin 0, end 4");
    assert_graph_error(tu__apply(SLICE, (&(struct tu__slice_attrs){{-1, 0}, {2, 3}, {1, 1}}), matrix()),
                       "slice", "axis 0: begin -1");
    assert_graph_error(tu__apply(SLICE, (&(struct tu__slice_attrs){{0}, {2, 3}, {1, 1, 1}}), matrix()),
                       "slice", "zero beyond the 2 axes");
    assert_graph_error(tu__apply(PAD, (&(struct tu__pad_attrs){.between = {0, -1}}), matrix()), "pad",
                       "between -1");
    assert_graph_error(tu__apply(PAD, (&(struct tu__pad_attrs){.between = {INT64_MAX, 0}}), matrix()), "pad",
                       "2^48");
    assert_graph_error(tu__apply(PAD, (&(struct tu__pad_attrs){.between = {0, INT64_MAX}}), matrix()), "pad",
                       "2^48");
    assert_graph_error(tu__apply(PAD, (&(struct tu__pad_attrs){.before = {0, 0, 1}}), matrix()), "pad",
                       "zero beyond the 2 axes");
    assert_graph_error(tu__apply(CONCAT, (&(struct tu__concat_attrs){INT64_MIN}), matrix()), "concat",
                       "axis");
    assert_graph_error(tu__apply(FLIP, (&(struct tu__flip_attrs){4}), matrix()), "flip", "bit mask 0x4",
                       "bits below the rank 2");
    assert_graph_error(tu__apply(FLIP, (&(struct tu__flip_attrs){-1}), matrix()), "flip",
                       "bits below the rank 2");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_value invalid = tu_reshape(matrix(), TU_SHAPE(7));
    char message[512];
    snprintf(message, sizeof message, "%s", tu_message());
    assert_false(tu_ok(tu_reshape(invalid, TU_SHAPE(7))));
    assert_false(tu_ok(tu_flatten(invalid)));
    assert_false(tu_ok(tu_broadcast(invalid, TU_SHAPE(7))));
    assert_false(tu_ok(tu_transpose(invalid, 1, 0)));
    assert_false(tu_ok(tu_expand_axis(invalid, 0)));
    assert_false(tu_ok(tu_squeeze_axis(invalid, 0)));
    assert_false(tu_ok(tu_slice(invalid, 0, 0, 1, 1)));
    assert_false(tu_ok(tu_pad(invalid, 0, 1, 1, 0)));
    assert_false(tu_ok(tu_concat(&invalid, 1, 0)));
    assert_false(tu_ok(tu_flip(invalid, 0)));
    assert_graph_error(invalid, message); /* the first error is kept */
    assert_false(tu_ok(tu_slice((tu_value){0}, 0, 0, 1, 1)));
    assert_false(tu_ok(tu_broadcast((tu_value){0}, TU_SHAPE(1))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape_to_another_number_of_elements_is_rejected),
        cmocka_unit_test(flatten_of_a_scalar_is_rejected),
        cmocka_unit_test(expand_axis_and_squeeze_axis_check_the_axis),
        cmocka_unit_test(broadcast_repeats_only_axes_of_size_1),
        cmocka_unit_test(transpose_needs_a_permutation),
        cmocka_unit_test(slices_must_be_within_their_axis),
        cmocka_unit_test(negative_padding_is_rejected),
        cmocka_unit_test(inputs_of_concat_must_agree),
        cmocka_unit_test(concat_of_nothing_is_rejected),
        cmocka_unit_test(flip_checks_its_axes),
        cmocka_unit_test(attributes_not_in_canonical_form_are_rejected),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
