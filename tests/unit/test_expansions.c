/* An expansion computes the same as its operation.
 *
 * For each operation with an expansion, a function below applies it to small f64 tensors with all options that the
 * expansion uses. The reference kernels compute each node and its expansion, and all outputs are compared. */
#include "unit/interpret.h"

#include <stdio.h>

#define TOLERANCE 1e-12
#define F64(name, ...) tu_input(g, name, TU_F64, TU_SHAPE(__VA_ARGS__))
#define I32(...)                                                                                             \
    (const int32_t[]) {                                                                                      \
        __VA_ARGS__                                                                                          \
    }
#define I64(...)                                                                                             \
    (const int64_t[]) {                                                                                      \
        __VA_ARGS__                                                                                          \
    }

/* ---- Expanding and comparing ---- */

#define MAX_OPERANDS 8

/* Adds the node's expansion to its graph and checks the output types. */
static void expand(tu_graph *g, const tu__node *node, tu_value *out) {
    tu_value in[MAX_OPERANDS];
    assert_true(node->input_count <= MAX_OPERANDS && node->output_count <= MAX_OPERANDS);
    for (uint32_t i = 0; i < node->input_count; i++) in[i] = tu__input_of(g, node, i);
    node->op->expand(g, node, in, out);
    if (tu_graph_status(g) != TU_OK) fail_msg("the expansion of '%s': %s", node->name, tu_message());
    for (uint32_t i = 0; i < node->output_count; i++) {
        assert_true(tu_ok(out[i]));
        assert_int_equal(tu_value_dtype(out[i]), node->outputs[i].dtype);
        assert_true(tu_shape_equal(tu_value_shape(out[i]), node->outputs[i].shape));
    }
}

/* Asserts equality up to the tolerance, relative for numbers above 1. */
static void assert_near(const tu__node *node, uint32_t output, const tu__tensor *expected,
                        const tu__tensor *got) {
    for (int64_t i = 0; i < tu_shape_elements(expected->type.shape); i++) {
        double difference = fabs(expected->data[i] - got->data[i]);
        if (!(difference <= TOLERANCE * fmax(1, fabs(expected->data[i]))))
            fail_msg("'%s', output %u, element %lld: the operation gives %.17g, its expansion %.17g",
                     node->name, output, (long long)i, expected->data[i], got->data[i]);
    }
}

/* Compares every node of the operation with its expansion; returns the number of these nodes. Frees the graph. */
static uint32_t compare_with_expansions(tu_graph *g, tu__opcode code) {
    if (tu_graph_status(g) != TU_OK) fail_msg("%s", tu_message());
    uint32_t count = g->node_count, compared = 0;
    tu_value(*expanded)[MAX_OPERANDS] = calloc(count + 1, sizeof *expanded);
    assert_non_null(expanded);
    for (uint32_t i = 0; i < count; i++)
        if (g->nodes[i]->op->code == code) expand(g, g->nodes[i], expanded[i]);
    interpretation it = interpret(g);
    for (uint32_t i = 0; i < count; i++) {
        const tu__node *node = g->nodes[i];
        if (node->op->code != code) continue;
        for (uint32_t k = 0; k < node->output_count; k++) {
            tu__edge other = {expanded[i][k].node, expanded[i][k].output};
            assert_near(node, k, value_in(&it, (tu__edge){i, k}), value_in(&it, other));
        }
        compared++;
    }
    interpretation_free(&it);
    free(expanded);
    tu_graph_free(g);
    return compared;
}

/* ---- The operations ---- */

static void build_softmax(tu_graph *g) {
    tu_value x = F64("x", 3, 4, 5), wide = tu_scale(F64("wide", 2, 7), 300);
    for (int axis = 0; axis < 3; axis++) tu_softmax(x, axis);
    tu_softmax(wide, -1); /* an exponential of 600 overflows */
    tu_softmax(F64("one", 1), 0);
    tu_softmax(F64("single", 3, 1), 1);
}

static void build_log_softmax(tu_graph *g) {
    tu_value x = F64("x", 3, 4, 5), wide = tu_scale(F64("wide", 2, 7), 300);
    for (int axis = 0; axis < 3; axis++) tu_log_softmax(x, axis);
    tu_log_softmax(wide, -1);
    tu_log_softmax(F64("one", 1), 0);
    tu_log_softmax(F64("single", 3, 1), 1);
}

static void build_cross_entropy(tu_graph *g) {
    static const double smoothing[] = {0, 0.1, 0.9};
    tu_value logits = F64("logits", 6, 5), block = F64("block", 2, 3, 4), row = F64("row", 3);
    /* The first and last class, and rows masked by indices below and above the range. */
    tu_value classes = tu_constant(g, TU_I32, TU_SHAPE(6), I32(0, 4, -1, 2, 5, INT32_MIN));
    tu_value numbers = tu_constant(g, TU_I64, TU_SHAPE(2, 3), I64(3, -7, 0, 4, 1, INT64_C(1) << 40));
    tu_value masked = tu_constant(g, TU_I64, TU_SCALAR, I64(3)),
             one = tu_constant(g, TU_I32, TU_SCALAR, I32(1));
    tu_value single = F64("single", 2, 1), weight = F64("weight", 2, 1);
    tu_value shares = tu_softmax(F64("shares", 6, 5), -1);
    tu_value any = F64("any", 2, 3, 4); /* probabilities that do not add up to 1 */
    for (size_t i = 0; i < sizeof smoothing / sizeof *smoothing; i++) {
        tu_cross_entropy(logits, classes, .smoothing = smoothing[i]);
        tu_cross_entropy(logits, shares, .smoothing = smoothing[i]);
        tu_cross_entropy(block, numbers, .smoothing = smoothing[i]);
        tu_cross_entropy(block, any, .smoothing = smoothing[i]);
        tu_cross_entropy(row, one, .smoothing = smoothing[i]);
        tu_cross_entropy(row, masked, .smoothing = smoothing[i]);
        tu_cross_entropy(row, tu_softmax(row, 0), .smoothing = smoothing[i]);
        tu_cross_entropy(single, weight, .smoothing = smoothing[i]);
        tu_cross_entropy(tu_scale(logits, 300), classes, .smoothing = smoothing[i]);
    }
}

static void build_cross_entropy_grad(tu_graph *g) {
    tu_value logits = F64("logits", 6, 5), row = F64("row", 3);
    tu_value classes = tu_constant(g, TU_I32, TU_SHAPE(6), I32(0, 4, -1, 2, 5, INT32_MIN));
    tu__apply(CROSS_ENTROPY_GRAD, NULL, logits, classes);
    tu__apply(CROSS_ENTROPY_GRAD, NULL, tu_scale(logits, 300), classes);
    tu__apply(CROSS_ENTROPY_GRAD, NULL, row, tu_constant(g, TU_I64, TU_SCALAR, I64(1)));
    tu__apply(CROSS_ENTROPY_GRAD, NULL, row, tu_constant(g, TU_I64, TU_SCALAR, I64(INT64_MAX)));
}

/* A normalisation over all axes but the last, or over `axes` trailing ones. */
typedef struct normalization {
    tu_shape shape;
    int64_t axes;
    double epsilon;
} normalization;

#define EACH_NORMALIZATION(n, list)                                                                          \
    for (const normalization *n = (list); n < (list) + sizeof(list) / sizeof *(list); n++)

static tu_value named_input(tu_graph *g, const char *name, ptrdiff_t index, tu_shape shape) {
    char unique[32];
    snprintf(unique, sizeof unique, "%s%td", name, index);
    return tu_input(g, unique, TU_F64, shape);
}

/* Adds the forward operation on new inputs and, if `gradient`, its gradient operation on the saved statistics. */
static void normalize(tu_graph *g, ptrdiff_t index, const normalization *n, bool batch, bool gradient) {
    tu_shape parameter = tu_shape_of((size_t)n->axes, n->shape.dim + n->shape.rank - n->axes);
    tu_value x = named_input(g, "x", index, n->shape), gamma = named_input(g, "gamma", index, parameter);
    tu_value beta = named_input(g, "beta", index, parameter);
    tu_value y = batch ? tu_batch_normalize(x, gamma, beta, .epsilon = n->epsilon)
                       : tu_layer_normalize(x, gamma, beta, .epsilon = n->epsilon, .axes = n->axes);
    if (!gradient) return;
    tu_value in[] = {x, gamma, tu_output_of(y, 1), tu_output_of(y, 2), named_input(g, "dy", index, n->shape)};
    tu__opcode op = batch ? TU__OP_BATCH_NORM_GRAD : TU__OP_LAYER_NORM_GRAD;
    assert_true(tu_ok(tu__apply_list(op, tu__node_of(y)->attrs, 5, in)));
}

static void build_batch_norms(tu_graph *g, bool gradient) {
    const normalization list[] = {
        {TU_SHAPE(7, 3), 1, 1e-5},          {TU_SHAPE(2, 3, 2, 4), 1, 1e-3}, {TU_SHAPE(5, 1), 1, 0.5},
        {TU_SHAPE(2, 2, 2, 2, 3), 1, 1e-5}, {TU_SHAPE(1, 4), 1, 1e-5}, /* a set of one: the variance is 0 */
        {TU_SHAPE(2, 3), 1, 1e-5},
    };
    EACH_NORMALIZATION(n, list) normalize(g, n - list, n, true, gradient);
}

static void build_layer_norms(tu_graph *g, bool gradient) {
    const normalization list[] = {
        {TU_SHAPE(4, 6), 1, 1e-5},    {TU_SHAPE(2, 3, 4), 1, 1e-3}, {TU_SHAPE(2, 3, 4), 2, 1e-5},
        {TU_SHAPE(2, 3, 4), 3, 1e-5}, {TU_SHAPE(5), 1, 0.5},        {TU_SHAPE(3, 1), 1, 1e-5},
        {TU_SHAPE(1, 1), 2, 1e-5},    {TU_SHAPE(4, 2), 1, 1e-5},
    };
    EACH_NORMALIZATION(n, list) normalize(g, n - list, n, false, gradient);
}

static void build_batch_norm(tu_graph *g) {
    build_batch_norms(g, false);
}
static void build_batch_norm_grad(tu_graph *g) {
    build_batch_norms(g, true);
}
static void build_layer_norm(tu_graph *g) {
    build_layer_norms(g, false);
}
static void build_layer_norm_grad(tu_graph *g) {
    build_layer_norms(g, true);
}

/* Radii smaller and larger than the number of channels; the gradient operation has the same attributes. */
static void build_lrns(tu_graph *g, bool gradient) {
    static const struct tu__lrn_attrs list[] = {
        {0, 1, 1, 0.5}, {1, 1, 1, 0.5},     {2, 2, 1e-4, 0.75}, {3, 0.5, 2, 1},
        {4, 1, 1, 0.5}, {9, 1, 0.3, -0.25}, {1, 1, 0, 0.5},     {1048576, 1, 1, 0},
    };
    tu_value x[] = {F64("x", 3, 5), F64("y", 2, 2, 3, 4), F64("z", 4), F64("w", 3, 1)};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t k = 0; k < sizeof x / sizeof *x; k++) {
            tu_shape shape = tu_value_shape(x[k]);
            if (gradient)
                tu__apply(LRN_GRAD, &list[i], x[k], named_input(g, "dy", (ptrdiff_t)(10 * i + k), shape));
            else
                tu__apply(LRN, &list[i], x[k]);
        }
}

static void build_lrn(tu_graph *g) {
    build_lrns(g, false);
}
static void build_lrn_grad(tu_graph *g) {
    build_lrns(g, true);
}

static void build_attentions(tu_graph *g, bool gradient) {
    static const struct tu__attention_attrs list[] = {{0, 0}, {1, 0}, {1, 0.5}};
    const tu_shape shapes[] = {TU_SHAPE(2, 5, 3, 2, 4), TU_SHAPE(1, 1, 3, 1, 3), TU_SHAPE(1, 7, 3, 3, 1)};
    for (int i = 0; i < 9; i++) {
        tu_value x = named_input(g, "x", i, shapes[i / 3]);
        const struct tu__attention_grad_attrs same = {list[i % 3].causal, list[i % 3].scale};
        tu_value y = tu__apply(ATTENTION, &list[i % 3], x);
        if (!gradient) continue;
        tu_value dy = named_input(g, "dy", i, tu_value_shape(y));
        assert_true(tu_ok(tu__apply(ATTENTION_GRAD, &same, x, y, tu_output_of(y, 1), dy)));
    }
}

static void build_attention(tu_graph *g) {
    build_attentions(g, false);
}
static void build_attention_grad(tu_graph *g) {
    build_attentions(g, true);
}

static const struct {
    tu__opcode code;
    void (*build)(tu_graph *g);
} covered[] = {
    {TU__OP_SOFTMAX, build_softmax},
    {TU__OP_LOG_SOFTMAX, build_log_softmax},
    {TU__OP_CROSS_ENTROPY, build_cross_entropy},
    {TU__OP_CROSS_ENTROPY_GRAD, build_cross_entropy_grad},
    {TU__OP_BATCH_NORM, build_batch_norm},
    {TU__OP_BATCH_NORM_GRAD, build_batch_norm_grad},
    {TU__OP_LAYER_NORM, build_layer_norm},
    {TU__OP_LAYER_NORM_GRAD, build_layer_norm_grad},
    {TU__OP_LRN, build_lrn},
    {TU__OP_LRN_GRAD, build_lrn_grad},
    {TU__OP_ATTENTION, build_attention},
    {TU__OP_ATTENTION_GRAD, build_attention_grad},
};
enum { COVERED = sizeof covered / sizeof *covered };

/* ---- Tests ---- */

static void every_expansion_is_compared(void **state) {
    (void)state;
    for (int code = 0; code < TU__OP_COUNT; code++) {
        const tu__op *op = tu__op_get((tu__opcode)code);
        bool found = false;
        for (size_t i = 0; i < COVERED; i++) found |= covered[i].code == op->code;
        if (found != (op->expand != NULL))
            fail_msg("%s %s: change the list in this file", op->name,
                     found ? "is compared but has no expansion" : "has an expansion that is not compared");
    }
}

static void expansions_agree_with_their_operations(void **state) {
    (void)state;
    for (size_t i = 0; i < COVERED; i++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        covered[i].build(g);
        assert_true(compare_with_expansions(g, covered[i].code) > 0);
    }
}

/* A device that expands an unsupported operation must not get the same operation again. */
static void expansions_use_only_other_operations(void **state) {
    (void)state;
    for (size_t i = 0; i < COVERED; i++) {
        tu_graph *g;
        tu_value out[MAX_OPERANDS];
        assert_int_equal(tu_graph_new(&g), TU_OK);
        covered[i].build(g);
        uint32_t count = g->node_count;
        for (uint32_t k = 0; k < count; k++)
            if (g->nodes[k]->op->code == covered[i].code) expand(g, g->nodes[k], out);
        for (uint32_t k = count; k < g->node_count; k++)
            assert_int_not_equal(g->nodes[k]->op->code, covered[i].code);
        tu_graph_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_expansion_is_compared),
        cmocka_unit_test(expansions_agree_with_their_operations),
        cmocka_unit_test(expansions_use_only_other_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
