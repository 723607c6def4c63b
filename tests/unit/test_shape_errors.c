/* Mistakes with reshape, broadcast, transpose, slice, pad, concat and flip are refused with a message that
 * helps. */
#include "unit/refusal.h"

#include "graph/graph.h"

static tu_value matrix(void) {
    return first_input(TU_F32, TU_SHAPE(2, 3));
}

static void reshape_keeps_the_elements(void **state) {
    (void)state;
    assert_refused(tu_reshape(matrix(), TU_SHAPE(2, 4)), "reshape 'reshape' of f32[2,3]", "[2,4]",
                   "expected 6");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(-1, 4)), "reshape", "f32[2,3]", "[-1,4]", "one may be -1");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(-1, -1)), "reshape", "[-1,-1]", "one may be -1");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(0, 6)), "reshape", "[0,6]", "at least 1");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(-1, 0)), "reshape", "[-1,0]", "at least 1");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(-2, -3)), "reshape", "[-2,-3]", "at least 1");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 2, 3)), "reshape", "f32[2,3]",
                   "at most 8");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(INT64_MAX, 3, -1)), "reshape", "f32[2,3]");
    assert_refused(tu_reshape(matrix(), TU_SHAPE(INT64_MIN, 3)), "reshape", "f32[2,3]");
    assert_refused(tu_reshape(matrix(), (tu_shape){.rank = 100}), "reshape", "f32[2,3]", "at most 8");
}

static void flatten_needs_an_axis(void **state) {
    (void)state;
    assert_refused(tu_flatten(first_input(TU_F32, TU_SCALAR)), "flatten of 'in0' f32[]", "at least one axis");
}

static void new_and_removed_axes_must_exist(void **state) {
    (void)state;
    assert_refused(tu_expand_axis(matrix(), 3), "expand_axis of 'in0' f32[2,3]", "axis 3", "[-3, 2]");
    assert_refused(tu_expand_axis(matrix(), -4), "expand_axis", "axis -4", "[-3, 2]");
    assert_refused(tu_expand_axis(first_input(TU_I32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 0), "expand_axis",
                   "i32[1,1,1,1,1,1,1,1]", "rank 8 at most");
    assert_refused(tu_squeeze_axis(matrix(), 2), "squeeze_axis of 'in0' f32[2,3]", "axis 2", "[-2, 2)");
    assert_refused(tu_squeeze_axis(matrix(), 1), "squeeze_axis of 'in0' f32[2,3]", "axis 1 has size 3",
                   "expected 1");
}

static void broadcast_repeats_ones_only(void **state) {
    (void)state;
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(4, 3)), "broadcast 'broadcast' of f32[2,3]", "[4,3]",
                   "place of a 1");
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(3)), "broadcast", "f32[2,3]", "[3]");
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(2, 1)), "broadcast", "f32[2,3]", "[2,1]");
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(0, 2, 3)), "broadcast", "[0,2,3]");
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(-1, 2, 3)), "broadcast", "[-1,2,3]");
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 2, 3)), "broadcast",
                   "[invalid shape]");
    assert_refused(tu_broadcast(matrix(), TU_SHAPE(INT64_MAX, 2, 3)), "broadcast", "f32[2,3]");
}

static void transpose_lists_each_axis_once(void **state) {
    (void)state;
    assert_refused(tu_transpose(matrix(), 0), "transpose of 'in0' f32[2,3]", "1 axes are listed",
                   "expected all 2");
    assert_refused(tu_transpose(matrix(), 0, 1, 2), "transpose of 'in0' f32[2,3]", "3 axes are listed");
    assert_refused(tu_transpose(matrix(), 0, 0), "transpose 'transpose' of f32[2,3]",
                   "[0,0] is no permutation");
    assert_refused(tu_transpose(matrix(), 0, 2), "transpose", "f32[2,3]", "[0,2] is no permutation",
                   "[0, 2)");
    assert_refused(tu_transpose(matrix(), -3, 0), "transpose", "[-3,0] is no permutation");
    assert_refused(tu_transpose_with(first_input(TU_F32, TU_SHAPE(3)), (tu_axes){0}),
                   "transpose of 'in0' f32[3]", "swap the last two");
    assert_refused(tu_transpose_with(matrix(), (tu_axes){.count = 4000000000u}), "transpose",
                   "4000000000 axes");
}

static void slices_lie_within_their_axis(void **state) {
    (void)state;
    assert_refused(tu_slice(matrix(), 2, 0, 1, 1), "slice of 'in0' f32[2,3]", "axis 2", "[-2, 2)");
    assert_refused(tu_slice(matrix(), 1, 3, TU_END, 1), "slice of 'in0' f32[2,3]", "from 3 to 3", "size 3");
    assert_refused(tu_slice(matrix(), 1, 2, 2, 1), "slice", "from 2 to 2", "begin before end");
    assert_refused(tu_slice(matrix(), 1, 2, 1, 1), "slice", "from 2 to 1");
    assert_refused(tu_slice(matrix(), 1, 0, 4, 1), "slice", "to 4", "size 3");
    assert_refused(tu_slice(matrix(), 1, -4, TU_END, 1), "slice", "from -4", "count from the end");
    assert_refused(tu_slice(matrix(), 1, 0, -3, 1), "slice", "from 0");
    assert_refused(tu_slice(matrix(), 1, 0, 3, 0), "slice", "by 0", "step of at least 1");
    assert_refused(tu_slice(matrix(), 1, 0, 3, -1), "slice", "by -1", "step of at least 1");
    assert_refused(tu_slice(matrix(), 1, INT64_MIN, INT64_MIN, INT64_MIN), "slice", "f32[2,3]");
}

static void padding_is_never_negative(void **state) {
    (void)state;
    assert_refused(tu_pad(matrix(), -3, 1, 1, 0), "pad of 'in0' f32[2,3]", "axis -3", "[-2, 2)");
    assert_refused(tu_pad(matrix(), 1, -1, 1, 0), "pad 'pad' of f32[2,3]", "-1 before", "at least 0");
    assert_refused(tu_pad(matrix(), 1, 0, -2, 0), "pad 'pad' of f32[2,3]", "-2 after", "at least 0");
    assert_refused(tu_pad(matrix(), 0, INT64_MAX, 1, 0), "pad", "f32[2,3]", "2^48");
    assert_refused(tu_pad(matrix(), 0, INT64_C(1) << 50, 1, 0), "pad", "f32[2,3]", "too large");
}

static void parts_of_a_concat_agree(void **state) {
    (void)state;
    tu_value x = matrix();
    tu_value parts[] = {x, next_input(TU_F32, TU_SHAPE(2, 4))};
    assert_refused(tu_concat(parts, 2, 0), "concat 'concat' of f32[2,3] and f32[2,4]", "part 1",
                   "but at axis 0");
    parts[0] = matrix();
    parts[1] = next_input(TU_F64, TU_SHAPE(2, 3));
    assert_refused(tu_concat(parts, 2, 0), "concat", "f64[2,3]", "same element type");
    parts[0] = matrix();
    parts[1] = next_input(TU_F32, TU_SHAPE(3));
    assert_refused(tu_concat(parts, 2, 1), "concat", "f32[3]", "part 1");
    parts[0] = parts[1] = matrix();
    assert_refused(tu_concat(parts, 2, 2), "concat", "f32[2,3]", "axis 2", "[-2, 2)");
    parts[0] = first_input(TU_F32, TU_SCALAR);
    assert_refused(tu_concat(parts, 1, 0), "concat", "f32[]", "axis 0");
    parts[0] = matrix();
    assert_refused(tu_concat((tu_value[]){parts[0], {0}}, 2, 0), "concat", "input 1 is not a value");
}

static void a_concat_has_parts(void **state) {
    (void)state;
    tu_value nothing = tu_concat(NULL, 0, 0);
    assert_false(tu_ok(nothing));
    assert_non_null(strstr(tu_message(), "concat of no parts: expected at least one"));
}

static void flipped_axes_exist_and_differ(void **state) {
    (void)state;
    assert_refused(tu_flip(matrix(), 2), "flip of 'in0' f32[2,3]", "axis 2", "[-2, 2)");
    assert_refused(tu_flip(matrix(), 1, -1), "flip of 'in0' f32[2,3]", "axis -1 is listed twice");
}

/* What a builder never stores may still stand in a file. */
static void foreign_attributes_are_refused(void **state) {
    (void)state;
    assert_refused(tu__apply(TRANSPOSE, (&(struct tu__transpose_attrs){{1, 0, 2}}), matrix()), "transpose");
    assert_refused(tu__apply(TRANSPOSE, (&(struct tu__transpose_attrs){{INT64_MIN, INT64_MAX}}), matrix()),
                   "transpose");
    assert_refused(tu__apply(SLICE, (&(struct tu__slice_attrs){{0}, {2, 3}, {1, 0}}), matrix()), "slice",
                   "axis 1", "step of at least 1");
    assert_refused(tu__apply(SLICE, (&(struct tu__slice_attrs){{0}, {2, 4}, {1, 1}}), matrix()), "slice",
                   "axis 1 from 0 to 4");
    assert_refused(tu__apply(SLICE, (&(struct tu__slice_attrs){{-1, 0}, {2, 3}, {1, 1}}), matrix()), "slice",
                   "axis 0 from -1");
    assert_refused(tu__apply(SLICE, (&(struct tu__slice_attrs){{0}, {2, 3}, {1, 1, 1}}), matrix()), "slice",
                   "zero past the 2 axes");
    assert_refused(tu__apply(PAD, (&(struct tu__pad_attrs){.between = {0, -1}}), matrix()), "pad",
                   "-1 between");
    assert_refused(tu__apply(PAD, (&(struct tu__pad_attrs){.between = {INT64_MAX, 0}}), matrix()), "pad",
                   "2^48");
    assert_refused(tu__apply(PAD, (&(struct tu__pad_attrs){.between = {0, INT64_MAX}}), matrix()), "pad",
                   "2^48");
    assert_refused(tu__apply(PAD, (&(struct tu__pad_attrs){.before = {0, 0, 1}}), matrix()), "pad",
                   "zero past the 2 axes");
    assert_refused(tu__apply(CONCAT, (&(struct tu__concat_attrs){INT64_MIN}), matrix()), "concat", "axis");
    assert_refused(tu__apply(FLIP, (&(struct tu__flip_attrs){4}), matrix()), "flip", "mask 0x4",
                   "bits below 2");
    assert_refused(tu__apply(FLIP, (&(struct tu__flip_attrs){-1}), matrix()), "flip", "bits below 2");
}

static void invalid_values_stay_invalid(void **state) {
    (void)state;
    tu_value bad = tu_reshape(matrix(), TU_SHAPE(7));
    char message[512];
    snprintf(message, sizeof message, "%s", tu_message());
    assert_false(tu_ok(tu_reshape(bad, TU_SHAPE(7))));
    assert_false(tu_ok(tu_flatten(bad)));
    assert_false(tu_ok(tu_broadcast(bad, TU_SHAPE(7))));
    assert_false(tu_ok(tu_transpose(bad, 1, 0)));
    assert_false(tu_ok(tu_expand_axis(bad, 0)));
    assert_false(tu_ok(tu_squeeze_axis(bad, 0)));
    assert_false(tu_ok(tu_slice(bad, 0, 0, 1, 1)));
    assert_false(tu_ok(tu_pad(bad, 0, 1, 1, 0)));
    assert_false(tu_ok(tu_concat(&bad, 1, 0)));
    assert_false(tu_ok(tu_flip(bad, 0)));
    assert_refused(bad, message); /* the first mistake is the one reported */
    assert_false(tu_ok(tu_slice((tu_value){0}, 0, 0, 1, 1)));
    assert_false(tu_ok(tu_broadcast((tu_value){0}, TU_SHAPE(1))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape_keeps_the_elements),
        cmocka_unit_test(flatten_needs_an_axis),
        cmocka_unit_test(new_and_removed_axes_must_exist),
        cmocka_unit_test(broadcast_repeats_ones_only),
        cmocka_unit_test(transpose_lists_each_axis_once),
        cmocka_unit_test(slices_lie_within_their_axis),
        cmocka_unit_test(padding_is_never_negative),
        cmocka_unit_test(parts_of_a_concat_agree),
        cmocka_unit_test(a_concat_has_parts),
        cmocka_unit_test(flipped_axes_exist_and_differ),
        cmocka_unit_test(foreign_attributes_are_refused),
        cmocka_unit_test(invalid_values_stay_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
