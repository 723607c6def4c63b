/* Invalid arguments of reductions fail with a message that contains the operation, the input types and the expected
 * value. */
#include "unit/expect_error.h"

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define MATRIX TENSOR(TU_F32, 2, 3)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)

/* The reductions, with their names in messages. */
static const struct reduction {
    const char *name;
    tu_value (*build)(tu_value x, const tu_reduce_options *options);
    bool floats_only;
} reductions[] = {
    {"sum", tu_sum_with, false},          {"mean", tu_mean_with, true},
    {"reduce_max", tu_max_with, false},   {"reduce_min", tu_min_with, false},
    {"prod", tu_prod_with, false},        {"logsumexp", tu_logsumexp_with, true},
    {"variance", tu_variance_with, true},
};

static const struct reduction *const reductions_end = reductions + sizeof reductions / sizeof *reductions;

/* Returns the beginning of the message if the builder rejects its input "x" of type `type`. */
static const char *builder_prefix(const struct reduction *r, const char *type) {
    static char prefix[64];
    snprintf(prefix, sizeof prefix, "%s of 'x' %s: ", r->name, type);
    return prefix;
}

static void out_of_range_axes_are_rejected(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        const char *prefix = builder_prefix(r, "f32[2,3]");
        EXPECT_ERROR(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(2))), prefix,
                     "axis 2 is out of range", "expected -2 to 1");
        EXPECT_ERROR(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(0, -3))), prefix,
                     "axis -3 is out of range", "expected -2 to 1");
        EXPECT_ERROR(
            r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(INT32_MIN), .keep = true)), prefix,
            "axis -2147483648 is out of range");
        EXPECT_ERROR(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(INT32_MAX))), prefix,
                     "axis 2147483647 is out of range");
        EXPECT_ERROR(r->build(SCALAR, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(0))),
                     builder_prefix(r, "f32[]"), "axis 0 is out of range", "a scalar has no axes");
    }
}

static void axes_listed_twice_are_rejected(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        const char *prefix = builder_prefix(r, "f32[2,3]");
        EXPECT_ERROR(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(1, 0, 1))), prefix,
                     "axis 1 is listed twice");
        EXPECT_ERROR(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(1, -1))), prefix,
                     "axis -1 is listed twice");
    }
}

static void too_many_axes_are_rejected(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++)
        EXPECT_ERROR(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = {.count = TU_MAX_RANK + 1})),
                     builder_prefix(r, "f32[2,3]"), "9 axes are listed", "expected at most 8");
}

static void elements_of_the_wrong_type_are_rejected(void **state) {
    (void)state;
    static const tu_dtype integers[] = {TU_I32, TU_I64, TU_U8, TU_I8};
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        EXPECT_ERROR(r->build(TENSOR(TU_BOOL, 2, 3), NULL), r->name, "bool[2,3]", "expected", "tu_cast");
        for (size_t i = 0; i < sizeof integers / sizeof *integers && r->floats_only; i++)
            EXPECT_ERROR(r->build(TENSOR(integers[i], 2, 3), NULL), r->name, tu_dtype_name(integers[i]),
                         "expected floats (f32, f64, bf16, f16)", "tu_cast");
    }
    EXPECT_ERROR(tu_sum(TENSOR(TU_BOOL, 4)), "sum node 'sum' (input bool[4]",
                 "the elements are bool, expected numbers: convert with tu_cast");
    EXPECT_ERROR(tu_mean(TENSOR(TU_I32, 4)), "mean node 'mean' (input i32[4]",
                 "the elements are i32, expected floats");
    EXPECT_ERROR(tu_variance(TENSOR(TU_U8, 4)), "variance of 'x' u8[4]: expected floats");
}

/* Attribute values that builders never set but a graph file may contain. */
static void invalid_axes_attributes_are_rejected(void **state) {
    (void)state;
    static const tu__opcode codes[] = {TU__OP_SUM,        TU__OP_MEAN, TU__OP_REDUCE_MAX,
                                       TU__OP_REDUCE_MIN, TU__OP_PROD, TU__OP_LOGSUMEXP};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const char *name = tu__op_get(codes[i])->name;
#define RAW(x, axes, keep) tu__apply_list(codes[i], &(struct tu__sum_attrs){axes, keep}, 1, (tu_value[]){x})
        EXPECT_ERROR(RAW(MATRIX, 4, 0), name, "(input f32[2,3])", "bit mask 0x4",
                     "expected only bits below the rank 2");
        EXPECT_ERROR(RAW(MATRIX, INT64_MIN, 0), name, "bit mask 0x8000000000000000", "rank 2");
        EXPECT_ERROR(RAW(MATRIX, -1, 0), name, "bit mask 0xffffffffffffffff", "rank 2");
        EXPECT_ERROR(RAW(SCALAR, 1, 0), name, "(input f32[])", "bit mask 0x1", "rank 0");
        EXPECT_ERROR(RAW(MATRIX, 0, 0), name,
                     "the set of axes is empty, expected at least one of the 2 axes");
        EXPECT_ERROR(RAW(MATRIX, 1, 2), name, "keep is 2, expected 0 or 1");
        EXPECT_ERROR(RAW(MATRIX, 1, INT64_MIN), name, "keep is -9223372036854775808");
#undef RAW
    }
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value invalid = tu_sum(MATRIX, .axes = TU_AXES(7));
        assert_false(tu_ok(r->build(invalid, NULL)));
        assert_false(tu_ok(r->build((tu_value){0}, NULL)));
        assert_int_equal(tu_graph_status(g), TU_INVALID);
        assert_non_null(strstr(tu_message(), "axis 7"));
        tu_graph_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_range_axes_are_rejected),
        cmocka_unit_test(axes_listed_twice_are_rejected),
        cmocka_unit_test(too_many_axes_are_rejected),
        cmocka_unit_test(elements_of_the_wrong_type_are_rejected),
        cmocka_unit_test(invalid_axes_attributes_are_rejected),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
