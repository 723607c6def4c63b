/* The digest depends on what a graph computes: it does not depend on the order of nodes or their names, but on every
 * change of the computation. */
#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"

typedef struct digest {
    char text[TU_DIGEST_TEXT];
} digest;

/* Returns the digest and frees the graph. */
static digest digest_of(tu_graph *g) {
    digest d;
    if (tu_graph_digest(g, d.text) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(strlen(d.text), 64);
    assert_int_equal(strspn(d.text, "0123456789abcdef"), 64);
    tu_graph_free(g);
    return d;
}

static void assert_same(digest a, digest b) {
    assert_string_equal(a.text, b.text);
}

static void assert_different(digest a, digest b) {
    assert_string_not_equal(a.text, b.text);
}

/* ---- A network with many parameters ---- */

typedef struct variation {
    const char *input, *variable, *result, *node, *scope;
    double clip, init, fill;
    float constant;
    bool transposed, swapped, frozen, other_output, keep, extra, recompute, placed;
    tu_dtype dtype;
    int64_t batch;
} variation;

static const variation plain = {.input = "x",
                                .variable = "w",
                                .result = "y",
                                .node = "out",
                                .scope = "layer",
                                .clip = 1,
                                .init = 0.5,
                                .fill = 2,
                                .constant = 1,
                                .dtype = TU_F32,
                                .batch = 2};

static tu_graph *build(variation v) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, v.input, v.dtype, TU_SHAPE(v.batch, 3)), y = x;
    tu_value w = tu_variable(g, v.variable, v.dtype, TU_SHAPE(3, 3), .init = {TU_INIT_NORMAL, .b = v.init},
                             .frozen = v.frozen);
    tu_scope(g, v.scope) {
        tu_value c = tu_cast(tu_constant(g, TU_F32, TU_SHAPE(3), (const float[]){v.constant, 2, 3}), v.dtype);
        if (v.recompute) tu_recompute_begin(g);
        tu_with_device(g, v.placed ? "cpu:0" : NULL) y = tu_matmul(x, w, .transpose_b = v.transposed);
        if (v.recompute) tu_recompute_end(g);
        y = v.swapped ? tu_sub(c, y) : tu_sub(y, c);
        y = tu_clip(y, -1, v.clip);
        y = tu_mul(y, tu_number(y, v.fill));
        y = tu_output_of(tu_top_k(y, 2, 1), 0);
        y = tu_sum(y, .axes = TU_AXES(1), .keep = v.keep);
    }
    tu_value k = tu_top_k(x, 1, 0);
    tu_output(tu_cast(tu_output_of(k, v.other_output), TU_F64), "k");
    tu_output(tu_name(y, v.node), v.result);
    if (v.extra) tu_neg(y);
    assert_int_equal(tu_graph_status(g), TU_OK);
    return g;
}

/* The digest of the plain network with one field changed. */
#define VARIED(setting) (v = plain, v setting, digest_of(build(v)))

static void the_same_network_has_the_same_digest(void **state) {
    (void)state;
    assert_same(digest_of(build(plain)), digest_of(build(plain)));
}

static void names_of_operations_do_not_affect_the_digest(void **state) {
    (void)state;
    variation v;
    assert_same(digest_of(build(plain)), VARIED(.node = "other"));
    assert_same(digest_of(build(plain)), VARIED(.scope = "elsewhere"));
    assert_same(digest_of(build(plain)), VARIED(.recompute = true)); /* changes only when it is computed */
    assert_same(digest_of(build(plain)), VARIED(.placed = true));    /* changes only where it is computed */
}

static void every_other_change_affects_the_digest(void **state) {
    (void)state;
    variation v;
    digest d = digest_of(build(plain));
    assert_different(d, VARIED(.input = "z"));
    assert_different(d, VARIED(.variable = "v"));
    assert_different(d, VARIED(.result = "z"));
    assert_different(d, VARIED(.clip = 1.0000000000000002));
    assert_different(d, VARIED(.init = 0.25));
    assert_different(d, VARIED(.fill = 3));
    assert_different(d, VARIED(.constant = 1.0000001f));
    assert_different(d, VARIED(.transposed = true));
    assert_different(d, VARIED(.swapped = true));
    assert_different(d, VARIED(.frozen = true));
    assert_different(d, VARIED(.other_output = true));
    assert_different(d, VARIED(.keep = true));
    assert_different(d, VARIED(.extra = true));
    assert_different(d, VARIED(.dtype = TU_F64));
    assert_different(d, VARIED(.batch = 4));
}

/* ---- The order of nodes ---- */

/* Builds (x * w + b) / exp(u) with its subexpressions in one of six orders. */
static tu_graph *build_in_order(const int *order) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = {0}, w = {0}, b = {0}, u = {0}, e = {0};
    for (int i = 0; i < 3; i++) {
        if (order[i] == 0) {
            x = tu_input(g, "x", TU_F32, TU_SHAPE(2));
            w = tu_variable(g, "w", TU_F32, TU_SHAPE(2));
        } else if (order[i] == 1) {
            b = tu_constant(g, TU_F32, TU_SHAPE(2), (const float[]){1, 2});
        } else {
            u = tu_input(g, "u", TU_F32, TU_SHAPE(2));
            e = tu_exp(u);
        }
    }
    tu_output(tu_div(tu_add(tu_mul(x, w), b), e), "y");
    tu_output(b, "b");
    return g;
}

static void the_order_of_nodes_does_not_affect_the_digest(void **state) {
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    digest first = digest_of(build_in_order(orders[0]));
    for (int i = 1; i < 6; i++) assert_same(first, digest_of(build_in_order(orders[i])));
}

static void the_order_of_results_does_not_affect_the_digest(void **state) {
    (void)state;
    digest d[2];
    for (int i = 0; i < 2; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = tu_input(g, "x", TU_F32, TU_SCALAR);
        tu_output(x, i ? "a" : "b");
        tu_output(x, i ? "b" : "a");
        d[i] = digest_of(g);
    }
    assert_same(d[0], d[1]);
}

/* Two networks that differ only in the names of their results. */
static void names_of_results_affect_the_digest(void **state) {
    (void)state;
    digest d[2];
    for (int i = 0; i < 2; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = tu_input(g, "x", TU_F32, TU_SCALAR), y = tu_neg(x);
        tu_output(i ? x : y, "a");
        tu_output(i ? y : x, "b");
        d[i] = digest_of(g);
    }
    assert_different(d[0], d[1]);
}

/* ---- Custom operations and models ---- */

static tu_status same_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}

static tu_status no_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    (void)call, (void)in, (void)out;
    return TU_OK;
}

static const tu_custom_op one = {
    .struct_size = sizeof one, .name = "digest_test_one", .outputs = 1, .shape = same_shape, .run = no_run};
static const tu_custom_op two = {
    .struct_size = sizeof two, .name = "digest_test_two", .outputs = 1, .shape = same_shape, .run = no_run};

static void names_of_custom_operations_affect_the_digest(void **state) {
    (void)state;
    assert_int_equal(tu_custom_register(&one), TU_OK);
    assert_int_equal(tu_custom_register(&two), TU_OK);
    digest d[2];
    for (int i = 0; i < 2; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = tu_input(g, "x", TU_F32, TU_SCALAR);
        tu_custom(i ? "digest_test_one" : "digest_test_two", 1, &x);
        d[i] = digest_of(g);
    }
    assert_different(d[0], d[1]);
}

static digest model_digest(const char *name, int64_t batch, bool train) {
    tu_graph *g;
    tu_network_graph model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    if (tu_network_build(g, name, &model, .batch = batch) != TU_OK) fail_msg("%s", tu_message());
    if (train && tu_add_sgd(model.loss, 0.1, 0.9) != TU_OK) fail_msg("%s", tu_message());
    return digest_of(g);
}

static void models_have_different_digests(void **state) {
    (void)state;
    assert_same(model_digest("mlp", 2, true), model_digest("mlp", 2, true));
    assert_different(model_digest("mlp", 2, true), model_digest("mlp", 2, false));
    assert_different(model_digest("mlp", 2, true), model_digest("mlp", 3, true));
    assert_different(model_digest("tutorial-cnn", 2, true), model_digest("resnet20", 2, true));
}

static void a_graph_with_an_error_has_no_digest(void **state) {
    (void)state;
    tu_graph *g;
    char text[TU_DIGEST_TEXT] = "before";
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_find(g, "nothing");
    assert_int_equal(tu_graph_digest(g, text), TU_NOT_FOUND);
    assert_string_equal(text, "");
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_network_has_the_same_digest),
        cmocka_unit_test(names_of_operations_do_not_affect_the_digest),
        cmocka_unit_test(every_other_change_affects_the_digest),
        cmocka_unit_test(the_order_of_nodes_does_not_affect_the_digest),
        cmocka_unit_test(the_order_of_results_does_not_affect_the_digest),
        cmocka_unit_test(names_of_results_affect_the_digest),
        cmocka_unit_test(names_of_custom_operations_affect_the_digest),
        cmocka_unit_test(models_have_different_digests),
        cmocka_unit_test(a_graph_with_an_error_has_no_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
