/* Mistakes in reductions are refused by name, type and expectation. */
#include "unit/refused_call.h"

#include "graph/graph.h"

#define MATRIX TENSOR(TU_F32, 2, 3)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)

/* tu_sum and its kin, by the name that messages give them. */
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

/* The beginning of each one's message about the input "x" of type `type`, when its builder refuses. */
static const char *builder_prefix(const struct reduction *r, const char *type) {
    static char prefix[64];
    snprintf(prefix, sizeof prefix, "%s of 'x' %s: ", r->name, type);
    return prefix;
}

static void axes_must_exist(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        const char *prefix = builder_prefix(r, "f32[2,3]");
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(2))), prefix,
                "axis 2 does not exist", "expected one in [-2, 2)");
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(0, -3))), prefix,
                "axis -3 does not exist", "expected one in [-2, 2)");
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(INT32_MIN), .keep = true)),
                prefix, "axis -2147483648 does not exist");
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(INT32_MAX))), prefix,
                "axis 2147483647 does not exist");
        REFUSED(r->build(SCALAR, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(0))),
                builder_prefix(r, "f32[]"), "axis 0 does not exist", "expected one in [0, 0)");
    }
}

static void an_axis_is_listed_once(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        const char *prefix = builder_prefix(r, "f32[2,3]");
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(1, 0, 1))), prefix,
                "axis 1 is listed twice", "expected each once");
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = TU_AXES(1, -1))), prefix,
                "axis -1 is listed twice");
    }
}

static void a_list_of_axes_ends(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++)
        REFUSED(r->build(MATRIX, TU_OPTIONS(tu_reduce_options, .axes = {.count = TU_MAX_RANK + 1})),
                builder_prefix(r, "f32[2,3]"), "9 axes are listed", "expected at most 8");
}

static void elements_of_the_wrong_type_are_refused(void **state) {
    (void)state;
    static const tu_dtype whole[] = {TU_I32, TU_I64, TU_U8};
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        REFUSED(r->build(TENSOR(TU_BOOL, 2, 3), NULL), r->name, "bool[2,3]", "expected", "tu_cast");
        for (size_t i = 0; i < sizeof whole / sizeof *whole && r->floats_only; i++)
            REFUSED(r->build(TENSOR(whole[i], 2, 3), NULL), r->name, tu_dtype_name(whole[i]),
                    "expected floats (f32, f64, bf16, f16)", "tu_cast");
    }
    REFUSED(tu_sum(TENSOR(TU_BOOL, 4)), "sum 'sum' of bool[4]",
            "the elements are bool, expected numbers: convert with tu_cast");
    REFUSED(tu_mean(TENSOR(TU_I32, 4)), "mean 'mean' of i32[4]", "the elements are i32, expected floats");
    REFUSED(tu_variance(TENSOR(TU_U8, 4)), "variance of 'x' u8[4]: expected floats");
}

/* Attributes that no builder gives but a file may hold. */
static void a_mask_of_axes_fits_the_rank(void **state) {
    (void)state;
    static const tu__opcode codes[] = {TU__OP_SUM,        TU__OP_MEAN, TU__OP_REDUCE_MAX,
                                       TU__OP_REDUCE_MIN, TU__OP_PROD, TU__OP_LOGSUMEXP};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const char *name = tu__op_get(codes[i])->name;
#define RAW(x, axes, keep) tu__apply_list(codes[i], &(struct tu__sum_attrs){axes, keep}, 1, (tu_value[]){x})
        REFUSED(RAW(MATRIX, 4, 0), name, "of f32[2,3]", "bit mask 0x4", "no bit beyond those of rank 2");
        REFUSED(RAW(MATRIX, INT64_MIN, 0), name, "bit mask 0x8000000000000000", "rank 2");
        REFUSED(RAW(MATRIX, -1, 0), name, "bit mask 0xffffffffffffffff", "rank 2");
        REFUSED(RAW(SCALAR, 1, 0), name, "of f32[]", "bit mask 0x1", "rank 0");
        REFUSED(RAW(MATRIX, 0, 0), name, "no axis is reduced, expected at least one of 2");
        REFUSED(RAW(MATRIX, 1, 2), name, "keep is 2, expected 0 or 1");
        REFUSED(RAW(MATRIX, 1, INT64_MIN), name, "keep is -9223372036854775808");
#undef RAW
    }
}

static void an_invalid_operand_stays_silent(void **state) {
    (void)state;
    for (const struct reduction *r = reductions; r < reductions_end; r++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value bad = tu_sum(MATRIX, .axes = TU_AXES(7));
        assert_false(tu_ok(r->build(bad, NULL)));
        assert_false(tu_ok(r->build((tu_value){0}, NULL)));
        assert_int_equal(tu_graph_status(g), TU_INVALID);
        assert_non_null(strstr(tu_message(), "axis 7"));
        tu_graph_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_must_exist),
        cmocka_unit_test(an_axis_is_listed_once),
        cmocka_unit_test(a_list_of_axes_ends),
        cmocka_unit_test(elements_of_the_wrong_type_are_refused),
        cmocka_unit_test(a_mask_of_axes_fits_the_rank),
        cmocka_unit_test(an_invalid_operand_stays_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
