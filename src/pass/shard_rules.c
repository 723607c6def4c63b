/* The table of shard rules: for every operation, what each axis of its operands becomes.
 *
 * An axis of an operand becomes an axis of the result, or is summed over, or its elements are mixed in a way that
 * needs all of them (a maximum, a sort, a window). This decides what a shard can compute if that axis contains the
 * samples: if it is kept, the shard's rows of the result; if it is summed over, a partial sum; if it is mixed,
 * nothing, and the pass fails. If a replicated operand has the same axis at full size, a shard reads only its
 * rows of it.
 *
 * Axes that are summed over have different numbers (SUMMED - i), so that the pass can check that two operands
 * agree. */
#include "pass/shard_rules.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "graph/attrs.h"

enum {
    MIXED = -1,
    SUMMED = -2, /* and below: SUMMED - i */
};

static tu_shape shape_of(const tu__sharding *s, uint32_t input) {
    return tu_edge_type(s->graph, s->node->inputs[input]).shape;
}

static tu_shape result_of(const tu__sharding *s) {
    return s->node->outputs[0].shape;
}

static bool has_axis(int64_t mask, int axis) {
    return mask >> axis & 1;
}

/* Returns the attribute `axis`, which is the first attribute of every operation that has it. */
static int axis_of(const tu__node *node) {
    int64_t axis;
    memcpy(&axis, node->attrs, sizeof axis);
    return (int)axis;
}

/* ---- Mapping an axis of an operand to an axis of the result, MIXED, or SUMMED ---- */

static int keep_axis(const tu__sharding *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis;
}

static int mix_axis(const tu__sharding *s, uint32_t input, int axis) {
    (void)s, (void)input, (void)axis;
    return MIXED;
}

/* Aligns at the last axis, like broadcasting. */
static int align_last_axes(const tu__sharding *s, uint32_t input, int axis) {
    return axis + (int)(result_of(s).rank - shape_of(s, input).rank);
}

static int keep_except_axis_attr(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    return axis == axis_of(s->node) ? MIXED : axis;
}

static int keep_except_last(const tu__sharding *s, uint32_t input, int axis) {
    return axis == shape_of(s, input).rank - 1 ? MIXED : axis;
}

/* Returns the new index of an axis after the axes in the mask are reduced; unchanged if the result keeps them. */
static int renumber(int64_t mask, bool keeps_axes, int axis) {
    return keeps_axes ? axis : axis - __builtin_popcountll((uint64_t)mask & ((UINT64_C(1) << axis) - 1));
}

static int sum_or_renumber(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__sum_attrs *a = tu__attrs(s->node, sum); /* mean, max and min have the same attributes */
    return has_axis(a->axes, axis) ? SUMMED - axis : renumber(a->axes, a->keep, axis);
}

static int mix_or_renumber(const tu__sharding *s, uint32_t input, int axis) {
    int to = sum_or_renumber(s, input, axis);
    return to <= SUMMED ? MIXED : to;
}

static int map_arg_reduce(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__argmax_attrs *a = tu__attrs(s->node, argmax);
    return axis == a->axis ? MIXED : renumber(INT64_C(1) << a->axis, a->keep, axis);
}

/* Images [n,h,w,c]: images and channels are independent. */
static int map_pool(const tu__sharding *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis == 0 || axis == 3 ? axis : MIXED;
}

/* Offsets [n,2]: one pair per image. */
static int map_crop(const tu__sharding *s, uint32_t input, int axis) {
    return input == 0 ? map_pool(s, input, axis) : axis == 0 ? 0 : MIXED;
}

/* True if the first axis of the operands contains blocks of several networks. */
static bool is_stacked(const tu__sharding *s) {
    tu__field field = tu__first_field(s->node->op, s->node->attrs);
    for (; field.attr; field = tu__next_field(field))
        if (strcmp(field.attr->name, "members") == 0) return tu__field_i64(field, 0) > 0;
    return false;
}

static int map_conv(const tu__sharding *s, uint32_t input, int axis) {
    if (is_stacked(s)) return MIXED;
    return input == 0 && axis == 0 ? 0 : MIXED;
}

static int map_matmul_int8(const tu__sharding *s, uint32_t input, int axis) {
    (void)s;
    return (int)input == axis ? axis : MIXED; /* rows of a, columns of b */
}

/* Sums and a residual [..., c], factors and bias [c]. */
static int map_requantize(const tu__sharding *s, uint32_t input, int axis) {
    return input == 0 || input == 3 ? keep_except_last(s, input, axis) : MIXED;
}

/* Images [n,h,w,c] -> [n,c]. */
static int map_mean_int8(const tu__sharding *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis == 0 ? 0 : axis == 3 ? 1 : MIXED;
}

static int map_conv_dw(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    return axis == 0 && !is_stacked(s) ? SUMMED : MIXED;
}

/* a [..., m, k] b [..., k, n] -> [..., m, n], either stored transposed */
static int map_matmul(const tu__sharding *s, uint32_t input, int axis) {
    const struct tu__matmul_attrs *a = tu__attrs(s->node, matmul);
    int rank = (int)shape_of(s, input).rank, result = (int)result_of(s).rank;
    if (axis < rank - 2) return align_last_axes(s, input, axis);
    bool is_row = (axis == rank - 2) != (bool)(input == 0 ? a->transpose_a : a->transpose_b);
    if (input == 0) return is_row ? result - 2 : SUMMED;
    return is_row ? SUMMED : result - 1;
}

/* Matrices [..., n, m]: matrices are independent. */
static int keep_except_matrix(const tu__sharding *s, uint32_t input, int axis) {
    return axis >= shape_of(s, input).rank - 2 ? MIXED : axis;
}

static int map_gather(const tu__sharding *s, uint32_t input, int axis) {
    int axis_attr = axis_of(s->node), indices = (int)shape_of(s, 1).rank;
    if (input == 1) return axis_attr + axis;
    return axis == axis_attr ? MIXED : axis < axis_attr ? axis : axis - 1 + indices;
}

/* base, indices, updates; the transpose of gather */
static int map_scatter(const tu__sharding *s, uint32_t input, int axis) {
    int axis_attr = axis_of(s->node), indices = (int)shape_of(s, 1).rank;
    if (input == 0) return axis == axis_attr ? MIXED : axis;
    if (input == 1) return SUMMED - axis;
    if (axis >= axis_attr && axis < axis_attr + indices) return SUMMED - (axis - axis_attr);
    return axis < axis_attr ? axis : axis - indices + 1;
}

static int map_take_along(const tu__sharding *s, uint32_t input, int axis) {
    return input == 0 ? keep_except_axis_attr(s, input, axis) : axis;
}

static int map_put_along(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    return axis == axis_of(s->node) ? SUMMED : axis;
}

/* Class indices [...] for logits [..., k]; probabilities have the logits' shape. */
static int map_cross_entropy(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    return axis == shape_of(s, 0).rank - 1 ? MIXED : axis;
}

/* x [..., c], gamma [c], beta [c]; or x, gamma, mean, variance, dy */
static int map_batch_norm(const tu__sharding *s, uint32_t input, int axis) {
    if (is_stacked(s)) return MIXED;
    return input == 0 || input == 4 ? keep_except_last(s, input, axis) : MIXED;
}

static int map_layer_norm(const tu__sharding *s, uint32_t input, int axis) {
    bool is_statistic = s->node->op->code == TU__OP_LAYER_NORM_GRAD && (input == 2 || input == 3);
    int64_t axes = s->node->op->code == TU__OP_LAYER_NORM ? tu__attrs(s->node, layer_norm)->axes
                                                          : tu__attrs(s->node, layer_norm_grad)->axes;
    if (is_statistic) return axis;
    if (input != 0 && input != 4) return MIXED;
    return axis < shape_of(s, input).rank - axes ? axis : MIXED;
}

/* x [b, t, 3, h, d] -> y [b, t, h, d], l [b, h, t]: samples are independent. */
static int map_attention(const tu__sharding *s, uint32_t input, int axis) {
    (void)s, (void)input;
    return axis == 0 ? 0 : MIXED;
}

static int map_transpose(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__transpose_attrs *a = tu__attrs(s->node, transpose);
    int to = 0;
    while (a->permutation[to] != axis) to++;
    return to;
}

static int map_slice(const tu__sharding *s, uint32_t input, int axis) {
    const struct tu__slice_attrs *a = tu__attrs(s->node, slice);
    bool is_full_range =
        a->begin[axis] == 0 && a->end[axis] == shape_of(s, input).dim[axis] && a->step[axis] == 1;
    return is_full_range ? axis : MIXED;
}

static int map_pad(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    const struct tu__pad_attrs *a = tu__attrs(s->node, pad);
    return a->before[axis] || a->after[axis] || a->between[axis] ? MIXED : axis;
}

static int map_flip(const tu__sharding *s, uint32_t input, int axis) {
    (void)input;
    return has_axis(tu__attrs(s->node, flip)->axes, axis) ? MIXED : axis;
}

/* The sample axis stays one if an axis of the result starts at the same element and is a multiple of the samples: it
 * may be merged with or split from the axes after it, but not those before it. */
static int map_reshape(const tu__sharding *s, uint32_t input, int axis) {
    tu_shape from = shape_of(s, input), to = result_of(s);
    int64_t before_axis = 1, before_result_axis = 1;
    for (int i = 0; i < axis; i++) before_axis *= from.dim[i];
    for (int i = 0; i < to.rank; before_result_axis *= to.dim[i++])
        if (before_result_axis == before_axis && to.dim[i] % s->samples == 0) return i;
    return MIXED;
}

/* ---- The table ---- */

typedef struct axis_rule {
    tu__opcode op;
    int (*map_axis)(const tu__sharding *s, uint32_t input, int axis);
    const char *reason; /* why it cannot be sharded along a mixed axis: "… over samples" */
    int other_outputs;  /* layout of the outputs after the first, if it differs from the first's */
} axis_rule;

static const axis_rule rules[] = {
    {TU__OP_STOP_GRADIENT, keep_axis, NULL, 0},
    {TU__OP_COPY, keep_axis, NULL, 0},
    {TU__OP_ONE_HOT, keep_axis, NULL, 0},
    {TU__OP_RANDOM, keep_axis, NULL, 0},
    {TU__OP_RANDOM_MEMBERS, mix_axis, "draws numbers for several networks", 0},
    {TU__OP_ASSIGN, mix_axis, "stores samples in a variable", 0},
    {TU__OP_CUSTOM, mix_axis, "is a custom operation over all samples", 0},

    {TU__OP_SUM, sum_or_renumber, NULL, 0},
    {TU__OP_MEAN, sum_or_renumber, NULL, 0},
    {TU__OP_REDUCE_MAX, mix_or_renumber, "takes the maximum over samples", 0},
    {TU__OP_REDUCE_MIN, mix_or_renumber, "takes the minimum over samples", 0},
    {TU__OP_PROD, mix_or_renumber, "takes the product over samples", 0},
    {TU__OP_LOGSUMEXP, mix_or_renumber, "takes logsumexp over samples", 0},
    {TU__OP_ARGMAX, map_arg_reduce, "takes the argmax over samples", 0},
    {TU__OP_ARGMIN, map_arg_reduce, "takes the argmin over samples", 0},
    {TU__OP_CUMSUM, keep_except_axis_attr, "takes the cumulative sum over samples", 0},
    {TU__OP_TOP_K, keep_except_axis_attr, "sorts samples", 0},

    {TU__OP_GATHER, map_gather, "selects samples", 0},
    {TU__OP_SCATTER_ADD, map_scatter, "adds to samples", 0},
    {TU__OP_TAKE_ALONG, map_take_along, "selects samples", 0},
    {TU__OP_PUT_ALONG, map_put_along, NULL, 0},

    {TU__OP_MATMUL, map_matmul, NULL, 0},
    {TU__OP_INVERSE, keep_except_matrix, "uses samples as rows of a matrix", 0},
    {TU__OP_SOLVE, keep_except_matrix, "uses samples as rows of a matrix", 0},
    {TU__OP_CHOLESKY, keep_except_matrix, "uses samples as rows of a matrix", 0},
    {TU__OP_TRIANGULAR_SOLVE, keep_except_matrix, "uses samples as rows of a matrix", 0},
    {TU__OP_BAND, keep_except_matrix, "uses samples as rows of a matrix", 0},

    {TU__OP_CONV2D, map_conv, "slides over samples", 0},
    {TU__OP_CONV2D_DX, map_conv, "slides over samples", 0},
    {TU__OP_CONV2D_DW, map_conv_dw, "slides over samples", 0},
    {TU__OP_MAX_POOL, map_pool, "slides over samples", 0},
    {TU__OP_MAX_POOL_GRAD, map_pool, "slides over samples", 0},
    {TU__OP_MAX_POOL_PICK, map_pool, "slides over samples", 0},
    {TU__OP_AVG_POOL, map_pool, "slides over samples", 0},
    {TU__OP_AVG_POOL_GRAD, map_pool, "slides over samples", 0},
    {TU__OP_RESIZE, map_pool, "slides over samples", 0},
    {TU__OP_RESIZE_GRAD, map_pool, "slides over samples", 0},
    {TU__OP_CROP, map_crop, "slides over samples", 0},
    {TU__OP_CROP_GRAD, map_crop, "slides over samples", 0},

    {TU__OP_QUANTIZE, keep_axis, NULL, 0},
    {TU__OP_DEQUANTIZE, keep_axis, NULL, 0},
    {TU__OP_CONV2D_INT8, map_conv, "slides over samples", 0},
    {TU__OP_MATMUL_INT8, map_matmul_int8, "adds products of samples", 0},
    {TU__OP_REQUANTIZE, map_requantize, "uses samples as channels", 0},
    {TU__OP_REQUANTIZE_ADD, map_requantize, "uses samples as channels", 0},
    {TU__OP_ADD_INT8, keep_axis, NULL, 0},
    {TU__OP_MEAN_INT8, map_mean_int8, "takes the mean over samples", 0},

    {TU__OP_BATCH_NORM, map_batch_norm, "uses samples as channels", TU__PER_SHARD},
    {TU__OP_BATCH_NORM_GRAD, map_batch_norm, "uses samples as channels", TU__PARTIAL},
    {TU__OP_LAYER_NORM, map_layer_norm, "normalises over samples", 0},
    {TU__OP_LAYER_NORM_GRAD, map_layer_norm, "normalises over samples", TU__PARTIAL},
    {TU__OP_LRN, keep_except_last, "normalises over samples", 0},
    {TU__OP_LRN_GRAD, keep_except_last, "normalises over samples", 0},
    {TU__OP_SOFTMAX, keep_except_axis_attr, "normalises over samples", 0},
    {TU__OP_LOG_SOFTMAX, keep_except_axis_attr, "normalises over samples", 0},
    {TU__OP_CROSS_ENTROPY, map_cross_entropy, "uses samples as classes", 0},
    {TU__OP_CROSS_ENTROPY_GRAD, map_cross_entropy, "uses samples as classes", 0},

    {TU__OP_ATTENTION, map_attention, "attends to other samples", 0},
    {TU__OP_ATTENTION_GRAD, map_attention, "attends to other samples", 0},

    {TU__OP_RESHAPE, map_reshape, "merges the sample axis with an axis before it", 0},
    {TU__OP_BROADCAST, align_last_axes, NULL, 0},
    {TU__OP_TRANSPOSE, map_transpose, NULL, 0},
    {TU__OP_SLICE, map_slice, "selects samples", 0},
    {TU__OP_PAD, map_pad, "pads the sample axis", 0},
    {TU__OP_CONCAT, keep_except_axis_attr, "concatenates samples", 0},
    {TU__OP_FLIP, map_flip, "reverses the samples", 0},
    {TU__OP_ROLL, keep_except_axis_attr, "rolls the sample axis", 0},
};

/* All pointwise operations have the same rule, and so have all collectives. */
static const axis_rule *find_rule(const tu__op *op) {
    static const axis_rule pointwise = {.map_axis = align_last_axes};
    static const axis_rule collective = {.map_axis = mix_axis, .reason = "is already a collective"};
    static const axis_rule none = {.map_axis = mix_axis, .reason = "has no shard rule"};
    if (op->traits & TU__POINTWISE) return &pointwise;
    if (op->traits & TU__COLLECTIVE) return &collective;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == op->code) return &rules[i];
    return &none;
}

/* ---- Applying a rule ---- */

static tu_status fail_not_shardable(const tu__sharding *s, uint32_t input, const char *reason) {
    if (!s->strategy)
        return tu_fail(TU_UNSUPPORTED,
                       "the batch size of this model cannot be changed: %s '%s' %s (axis %d of input %" PRIu32
                       ", %s)",
                       s->node->op->name, s->node->name, reason, s->in[input], input,
                       tu__type_string(tu_edge_type(s->graph, s->node->inputs[input])));
    return tu_fail(TU_UNSUPPORTED,
                   "strategy '%s' does not support this network: %s '%s' %s (axis %d of input %" PRIu32
                   ", %s), and the samples are %s; use strategy 'single'%s",
                   s->strategy, s->node->op->name, s->node->name, reason, s->in[input], input,
                   tu__type_string(tu_edge_type(s->graph, s->node->inputs[input])),
                   s->invariant ? "in different shards" : "on different devices",
                   s->invariant ? " without invariant" : "");
}

/* Finds the result axis of the samples, on which all sharded operands must agree, and the first such operand. */
static tu_status find_target(const tu__sharding *s, const axis_rule *rule, int *target,
                             uint32_t *first_sharded) {
    bool has_target = false;
    for (uint32_t i = 0; i < s->node->input_count; i++) {
        if (s->in[i] < 0) continue;
        int to = rule->map_axis(s, i, s->in[i]);
        if (to == MIXED) return fail_not_shardable(s, i, rule->reason);
        if (has_target && to != *target)
            return fail_not_shardable(s, i, "has samples along two different axes");
        if (!has_target) *first_sharded = i;
        *target = to;
        has_target = true;
    }
    return has_target ? TU_OK : tu_fail(TU_INTERNAL, "'%s' has no sharded operand", s->node->name);
}

/* Returns the axis of a replicated operand that maps to the same axis as the samples, at full size. */
static int matching_axis(const tu__sharding *s, const axis_rule *rule, uint32_t input, int target,
                         int64_t size) {
    tu_shape shape = shape_of(s, input);
    for (int axis = 0; axis < shape.rank; axis++)
        if (shape.dim[axis] == size && size > 1 && rule->map_axis(s, input, axis) == target) return axis;
    return TU__REPLICATED;
}

static int operand_layout(const tu__sharding *s, const axis_rule *rule, uint32_t input, int target,
                          uint32_t first_sharded) {
    if (s->in[input] >= 0) return s->in[input];
    if (s->in[input] == TU__PER_SHARD && s->node->op->code == TU__OP_BATCH_NORM_GRAD) return TU__PER_SHARD;
    bool is_base = s->node->op->code == TU__OP_SCATTER_ADD && input == 0;
    if (is_base && target <= SUMMED) return TU__ONCE;
    return matching_axis(s, rule, input, target, shape_of(s, first_sharded).dim[s->in[first_sharded]]);
}

/* Returns the divisor of a mean: the number of elements of the whole batch per element of the result. */
static double elements_per_result(const tu__sharding *s) {
    return (double)tu_shape_elements(shape_of(s, 0)) / (double)tu_shape_elements(result_of(s));
}

tu_status tu__apply_shard_rule(tu__sharding *s) {
    const axis_rule *rule = find_rule(s->node->op);
    int target = MIXED;
    uint32_t first_sharded = 0;
    TU_TRY(find_target(s, rule, &target, &first_sharded));
    for (uint32_t i = 0; i < s->node->input_count; i++)
        s->read[i] = operand_layout(s, rule, i, target, first_sharded);
    s->out[0] = target <= SUMMED ? TU__PARTIAL : target;
    for (uint32_t i = 1; i < TU__MAX_SHARD_OUTPUTS; i++)
        s->out[i] = rule->other_outputs ? rule->other_outputs : s->out[0];
    s->is_mean = s->node->op->code == TU__OP_MEAN && s->out[0] == TU__PARTIAL;
    s->divisor = s->is_mean ? elements_per_result(s) : 1;
    return TU_OK;
}

int tu__reshape_source_axis(const tu_graph *graph, const tu__node *node, int64_t samples, int to) {
    tu__sharding s = {.graph = graph, .node = node, .samples = samples};
    tu_shape from = shape_of(&s, 0);
    for (int axis = 0; axis < from.rank; axis++)
        if (from.dim[axis] > 1 && from.dim[axis] % samples == 0 && map_reshape(&s, 0, axis) == to)
            return axis;
    return TU__REPLICATED;
}
