/* The table of shard rules: for every operation, where each axis of its operands goes.
 *
 * An axis of an operand becomes an axis of the result, or is summed over, or its elements are mixed in a way that needs
 * all of them: a maximum, a sort, a window. From this alone follows what a part of the batch can do: with the samples
 * along an axis that is kept, its own rows of the result; along one that is summed over, a summand of the whole result;
 * along one that is mixed, nothing, and then the network is refused. Operands that are whole join in: where they have the
 * same axis, at full size, a part reads its own rows of them.
 *
 * An axis that is summed over is known by a number of its own, so that two operands agree on which one it is. */
#include "pass/shard_rules.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

enum {
    MIXED = -1,
    SUMMED = -2, /* and below: SUMMED - i */
};

static tu_shape shape_of(const tu__shard *s, uint32_t input) {
    return tu_edge_type(s->graph, s->node->inputs[input]).shape;
}

static tu_shape result_of(const tu__shard *s) {
    return s->node->outputs[0].shape;
}

static bool has_axis(int64_t mask, int axis) {
    return mask >> axis & 1;
}

/* The attribute `axis`, which is the first of every operation that has it. */
static int axis_of(const tu__node *node) {
    int64_t axis;
    memcpy(&axis, node->attrs, sizeof axis);
    return (int)axis;
}

/* ---- Where an axis of an operand goes: an axis of the result, MIXED, or SUMMED ---- */

static int keep(const tu__shard *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis;
}

static int mix(const tu__shard *s, uint32_t input, int axis) {
    (void)s, (void)input, (void)axis;
    return MIXED;
}

/* Aligned at the last axis, as broadcasting does. */
static int align(const tu__shard *s, uint32_t input, int axis) {
    return axis + (int)(result_of(s).rank - shape_of(s, input).rank);
}

static int keep_but_own_axis(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    return axis == axis_of(s->node) ? MIXED : axis;
}

static int keep_but_last(const tu__shard *s, uint32_t input, int axis) {
    return axis == shape_of(s, input).rank - 1 ? MIXED : axis;
}

/* The number of an axis when those of the mask have gone. */
static int renumber(int64_t mask, bool kept, int axis) {
    return kept ? axis : axis - __builtin_popcountll((uint64_t)mask & ((UINT64_C(1) << axis) - 1));
}

static int sum_or_renumber(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__sum_attrs *a = tu__attrs(s->node, sum); /* mean and the extremes have the same */
    return has_axis(a->axes, axis) ? SUMMED - axis : renumber(a->axes, a->keep, axis);
}

static int mix_or_renumber(const tu__shard *s, uint32_t input, int axis) {
    int to = sum_or_renumber(s, input, axis);
    return to <= SUMMED ? MIXED : to;
}

static int find_position(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__argmax_attrs *a = tu__attrs(s->node, argmax);
    return axis == a->axis ? MIXED : renumber(INT64_C(1) << a->axis, a->keep, axis);
}

/* Images [n,h,w,c]: every one by itself, and every channel. */
static int pool(const tu__shard *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis == 0 || axis == 3 ? axis : MIXED;
}

/* Offsets [n,2] say where in each image. */
static int crop(const tu__shard *s, uint32_t input, int axis) {
    return input == 0 ? pool(s, input, axis) : axis == 0 ? 0 : MIXED;
}

static int convolve(const tu__shard *s, uint32_t input, int axis) {
    (void)s;
    return input == 0 && axis == 0 ? 0 : MIXED;
}

static int convolve_to_filter(const tu__shard *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis == 0 ? SUMMED : MIXED;
}

/* a [..., m, k] b [..., k, n] -> [..., m, n], either stored transposed */
static int multiply(const tu__shard *s, uint32_t input, int axis) {
    const struct tu__matmul_attrs *a = tu__attrs(s->node, matmul);
    int rank = (int)shape_of(s, input).rank, result = (int)result_of(s).rank;
    if (axis < rank - 2) return align(s, input, axis);
    bool is_row = (axis == rank - 2) != (bool)(input == 0 ? a->transpose_a : a->transpose_b);
    if (input == 0) return is_row ? result - 2 : SUMMED;
    return is_row ? SUMMED : result - 1;
}

/* Matrices [..., n, m]: each by itself. */
static int keep_but_matrix(const tu__shard *s, uint32_t input, int axis) {
    return axis >= shape_of(s, input).rank - 2 ? MIXED : axis;
}

static int gather(const tu__shard *s, uint32_t input, int axis) {
    int own = axis_of(s->node), indices = (int)shape_of(s, 1).rank;
    if (input == 1) return own + axis;
    return axis == own ? MIXED : axis < own ? axis : axis - 1 + indices;
}

/* base, indices, updates; the transpose of gather */
static int scatter(const tu__shard *s, uint32_t input, int axis) {
    int own = axis_of(s->node), indices = (int)shape_of(s, 1).rank;
    if (input == 0) return axis == own ? MIXED : axis;
    if (input == 1) return SUMMED - axis;
    if (axis >= own && axis < own + indices) return SUMMED - (axis - own);
    return axis < own ? axis : axis - indices + 1;
}

static int take_along(const tu__shard *s, uint32_t input, int axis) {
    return input == 0 ? keep_but_own_axis(s, input, axis) : axis;
}

static int put_along(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    return axis == axis_of(s->node) ? SUMMED : axis;
}

/* Class numbers [...] beside logits [..., k]; probabilities have the logits' shape. */
static int cross_entropy(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    return axis == shape_of(s, 0).rank - 1 ? MIXED : axis;
}

/* x [..., c], gamma [c], beta [c]; or x, gamma, mean, variance, dy */
static int batch_norm(const tu__shard *s, uint32_t input, int axis) {
    return input == 0 || input == 4 ? keep_but_last(s, input, axis) : MIXED;
}

static int layer_norm(const tu__shard *s, uint32_t input, int axis) {
    bool of_sets = s->node->op->code == TU__OP_LAYER_NORM_GRAD && (input == 2 || input == 3);
    int64_t axes = s->node->op->code == TU__OP_LAYER_NORM ? tu__attrs(s->node, layer_norm)->axes
                                                          : tu__attrs(s->node, layer_norm_grad)->axes;
    if (of_sets) return axis;
    if (input != 0 && input != 4) return MIXED;
    return axis < shape_of(s, input).rank - axes ? axis : MIXED;
}

static int transpose(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__transpose_attrs *a = tu__attrs(s->node, transpose);
    int to = 0;
    while (a->permutation[to] != axis) to++;
    return to;
}

static int slice(const tu__shard *s, uint32_t input, int axis) {
    const struct tu__slice_attrs *a = tu__attrs(s->node, slice);
    bool all = a->begin[axis] == 0 && a->end[axis] == shape_of(s, input).dim[axis] && a->step[axis] == 1;
    return all ? axis : MIXED;
}

static int pad(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__pad_attrs *a = tu__attrs(s->node, pad);
    return a->before[axis] || a->after[axis] || a->between[axis] ? MIXED : axis;
}

static int flip(const tu__shard *s, uint32_t input, int axis) {
    (void)input;
    return has_axis(tu__attrs(s->node, flip)->axes, axis) ? MIXED : axis;
}

/* Samples stay samples where an axis of the result begins at the same element and holds whole samples: axes behind may
 * join or leave, those before may not. */
static int reshape(const tu__shard *s, uint32_t input, int axis) {
    tu_shape from = shape_of(s, input), to = result_of(s);
    int64_t before = 1, passed = 1;
    for (int i = 0; i < axis; i++) before *= from.dim[i];
    for (int i = 0; i < to.rank; passed *= to.dim[i++])
        if (passed == before && to.dim[i] % s->samples == 0) return i;
    return MIXED;
}

/* ---- The table ---- */

typedef struct axis_rule {
    tu__opcode op;
    int (*axis_to)(const tu__shard *s, uint32_t input, int axis);
    const char *mixes; /* what it does along an axis that is mixed: "… over samples" */
    int others;        /* outputs after the first, where they are not cut as that is */
} axis_rule;

static const axis_rule rules[] = {
    {TU__OP_STOP_GRADIENT, keep, NULL, 0},
    {TU__OP_COPY, keep, NULL, 0},
    {TU__OP_ONE_HOT, keep, NULL, 0},
    {TU__OP_RANDOM, keep, NULL, 0},
    {TU__OP_ASSIGN, mix, "keeps samples in a variable", 0},
    {TU__OP_CUSTOM, mix, "is a function of the user's over all samples", 0},
    {TU__OP_ALL_REDUCE, mix, "is a collective of devices already", 0},

    {TU__OP_SUM, sum_or_renumber, NULL, 0},
    {TU__OP_MEAN, sum_or_renumber, NULL, 0},
    {TU__OP_REDUCE_MAX, mix_or_renumber, "takes the maximum over samples", 0},
    {TU__OP_REDUCE_MIN, mix_or_renumber, "takes the minimum over samples", 0},
    {TU__OP_PROD, mix_or_renumber, "takes the product over samples", 0},
    {TU__OP_LOGSUMEXP, mix_or_renumber, "takes logsumexp over samples", 0},
    {TU__OP_ARGMAX, find_position, "finds the largest of the samples", 0},
    {TU__OP_ARGMIN, find_position, "finds the smallest of the samples", 0},
    {TU__OP_CUMSUM, keep_but_own_axis, "adds up sample after sample", 0},
    {TU__OP_TOP_K, keep_but_own_axis, "orders samples", 0},

    {TU__OP_GATHER, gather, "picks samples", 0},
    {TU__OP_SCATTER_ADD, scatter, "adds to samples", 0},
    {TU__OP_TAKE_ALONG, take_along, "picks samples", 0},
    {TU__OP_PUT_ALONG, put_along, NULL, 0},

    {TU__OP_MATMUL, multiply, NULL, 0},
    {TU__OP_INVERSE, keep_but_matrix, "takes samples as rows of a matrix", 0},
    {TU__OP_SOLVE, keep_but_matrix, "takes samples as rows of a matrix", 0},
    {TU__OP_CHOLESKY, keep_but_matrix, "takes samples as rows of a matrix", 0},
    {TU__OP_TRIANGULAR_SOLVE, keep_but_matrix, "takes samples as rows of a matrix", 0},
    {TU__OP_BAND, keep_but_matrix, "takes samples as rows of a matrix", 0},

    {TU__OP_CONV2D, convolve, "slides over samples", 0},
    {TU__OP_CONV2D_DX, convolve, "slides over samples", 0},
    {TU__OP_CONV2D_DW, convolve_to_filter, "slides over samples", 0},
    {TU__OP_MAX_POOL, pool, "slides over samples", 0},
    {TU__OP_MAX_POOL_GRAD, pool, "slides over samples", 0},
    {TU__OP_MAX_POOL_PICK, pool, "slides over samples", 0},
    {TU__OP_AVG_POOL, pool, "slides over samples", 0},
    {TU__OP_AVG_POOL_GRAD, pool, "slides over samples", 0},
    {TU__OP_RESIZE, pool, "slides over samples", 0},
    {TU__OP_RESIZE_GRAD, pool, "slides over samples", 0},
    {TU__OP_CROP, crop, "slides over samples", 0},
    {TU__OP_CROP_GRAD, crop, "slides over samples", 0},

    {TU__OP_BATCH_NORM, batch_norm, "takes samples as channels", TU__PER_SHARD},
    {TU__OP_BATCH_NORM_GRAD, batch_norm, "takes samples as channels", TU__PARTIAL},
    {TU__OP_LAYER_NORM, layer_norm, "normalises over samples", 0},
    {TU__OP_LAYER_NORM_GRAD, layer_norm, "normalises over samples", TU__PARTIAL},
    {TU__OP_LRN, keep_but_last, "normalises over samples", 0},
    {TU__OP_LRN_GRAD, keep_but_last, "normalises over samples", 0},
    {TU__OP_SOFTMAX, keep_but_own_axis, "normalises over samples", 0},
    {TU__OP_LOG_SOFTMAX, keep_but_own_axis, "normalises over samples", 0},
    {TU__OP_CROSS_ENTROPY, cross_entropy, "takes samples as classes", 0},

    {TU__OP_RESHAPE, reshape, "puts samples together with what stood before them", 0},
    {TU__OP_BROADCAST, align, NULL, 0},
    {TU__OP_TRANSPOSE, transpose, NULL, 0},
    {TU__OP_SLICE, slice, "picks samples", 0},
    {TU__OP_PAD, pad, "adds samples", 0},
    {TU__OP_CONCAT, keep_but_own_axis, "joins samples with others", 0},
    {TU__OP_FLIP, flip, "turns the order of samples around", 0},
    {TU__OP_ROLL, keep_but_own_axis, "moves samples", 0},
};

/* Pointwise operations share one. */
static const axis_rule *find_rule(const tu__op *op) {
    static const axis_rule pointwise = {.axis_to = align};
    static const axis_rule none = {.axis_to = mix, .mixes = "has no rule for samples in parts"};
    if (op->traits & TU__POINTWISE) return &pointwise;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == op->code) return &rules[i];
    return &none;
}

/* ---- Applying a rule ---- */

static tu_status refuse(const tu__shard *s, uint32_t input, const char *what) {
    return tu_fail(TU_UNSUPPORTED,
                   "strategy '%s' cannot serve this network: %s '%s' %s (axis %d of its input %" PRIu32
                   ", %s), and these are %s; use strategy 'single'%s",
                   s->strategy, s->node->op->name, s->node->name, what, s->in[input], input,
                   tu__type_string(tu_edge_type(s->graph, s->node->inputs[input])),
                   s->invariant ? "in different parts" : "on different devices",
                   s->invariant ? " without invariant" : "");
}

/* Where the samples go, as all cut operands agree; and the first of these. */
static tu_status find_target(const tu__shard *s, const axis_rule *rule, int *target, uint32_t *leader) {
    bool found = false;
    for (uint32_t i = 0; i < s->node->input_count; i++) {
        if (s->in[i] < 0) continue;
        int to = rule->axis_to(s, i, s->in[i]);
        if (to == MIXED) return refuse(s, i, rule->mixes);
        if (found && to != *target) return refuse(s, i, "meets samples along two axes");
        if (!found) *leader = i;
        *target = to;
        found = true;
    }
    return found ? TU_OK : tu_fail(TU_INTERNAL, "'%s' has no cut operand to divide it by", s->node->name);
}

/* The axis of a whole operand that goes where the samples do, at full size. */
static int matching_axis(const tu__shard *s, const axis_rule *rule, uint32_t input, int target,
                         int64_t size) {
    tu_shape shape = shape_of(s, input);
    for (int axis = 0; axis < shape.rank; axis++)
        if (shape.dim[axis] == size && size > 1 && rule->axis_to(s, input, axis) == target) return axis;
    return TU__REPLICATED;
}

static int read_of(const tu__shard *s, const axis_rule *rule, uint32_t input, int target, uint32_t leader) {
    if (s->in[input] >= 0) return s->in[input];
    if (s->in[input] == TU__PER_SHARD && s->node->op->code == TU__OP_BATCH_NORM_GRAD) return TU__PER_SHARD;
    bool is_base = s->node->op->code == TU__OP_SCATTER_ADD && input == 0;
    if (is_base && target <= SUMMED) return TU__ONCE;
    return matching_axis(s, rule, input, target, shape_of(s, leader).dim[s->in[leader]]);
}

/* What a mean divides by: the elements that it folds into one, of the whole batch. */
static double folded_elements(const tu__shard *s) {
    return (double)tu_shape_elements(shape_of(s, 0)) / (double)tu_shape_elements(result_of(s));
}

tu_status tu__shard_node(tu__shard *s) {
    const axis_rule *rule = find_rule(s->node->op);
    int target = MIXED;
    uint32_t leader = 0;
    TU_TRY(find_target(s, rule, &target, &leader));
    for (uint32_t i = 0; i < s->node->input_count; i++) s->read[i] = read_of(s, rule, i, target, leader);
    s->out[0] = target <= SUMMED ? TU__PARTIAL : target;
    for (uint32_t i = 1; i < TU__MAX_SHARD_OUTPUTS; i++) s->out[i] = rule->others ? rule->others : s->out[0];
    s->is_mean = s->node->op->code == TU__OP_MEAN && s->out[0] == TU__PARTIAL;
    s->divisor = s->is_mean ? folded_elements(s) : 1;
    return TU_OK;
}

int tu__reshape_source_axis(const tu_graph *graph, const tu__node *node, int64_t samples, int to) {
    tu__shard s = {.graph = graph, .node = node, .samples = samples};
    tu_shape from = shape_of(&s, 0);
    for (int axis = 0; axis < from.rank; axis++)
        if (from.dim[axis] > 1 && from.dim[axis] % samples == 0 && reshape(&s, 0, axis) == to) return axis;
    return TU__REPLICATED;
}
