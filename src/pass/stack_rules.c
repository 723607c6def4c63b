/* The rules of stacking: for every operation, the nodes that compute it for all members at once.
 *
 * Most operations become one node of the same kind: pointwise ones with operands aligned after the member axis, those
 * with axes with their axes shifted by one, others over the rows or images of all members. An operation without a rule, or
 * with attributes that differ and that its rule does not cover, becomes N nodes on slices, whose results are joined; so a
 * rule only makes a stack faster. `ref` computes every rule's nodes element by element in the order of the single
 * operation: the same bits. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/attrs.h"
#include "pass/stack.h"

/* ---- Values and nodes ---- */

static int64_t members_of(const tu__stacker *s) {
    return (int64_t)s->stack->count;
}

static tu_type old_type(const tu__stacker *s, const tu__node *node, uint32_t input) {
    return tu_edge_type(s->r.from, node->inputs[input]);
}

static bool input_is_stacked(const tu__stacker *s, const tu__node *node, uint32_t input) {
    return s->is_stacked[s->r.first_output[node->inputs[input].node] + node->inputs[input].output];
}

static tu_value stacked_input(tu__stacker *s, const tu__node *node, uint32_t input) {
    return tu__stack_value(s, node, node->inputs[input]);
}

/* Returns a request for a node that belongs to `node`: with its device, group and flags. */
static tu__node_request request_for(const tu__node *node, tu__opcode op, const void *attrs,
                                    const tu_value *inputs, size_t count) {
    return (tu__node_request){.op = op,
                              .attrs = attrs,
                              .inputs = inputs,
                              .input_count = count,
                              .custom = op == TU__OP_CUSTOM ? node->custom : NULL,
                              .flags = node->flags,
                              .device = node->device,
                              .group = node->group};
}

/* Makes a node that the members do not have. */
static tu_value insert(tu__stacker *s, const tu__node *node, const char *suffix, tu__opcode op,
                       const void *attrs, const tu_value *inputs, size_t count) {
    tu__node_request request = request_for(node, op, attrs, inputs, count);
    return tu__rewrite_insert(&s->r, node->name, suffix, &request);
}

/* Makes the node that has the name of the old one. */
static tu_value make(tu__stacker *s, const tu__node *node, const void *attrs, const tu_value *inputs) {
    tu__node_request request = request_for(node, node->op->code, attrs, inputs, node->input_count);
    return tu__rewrite_make(&s->r, node, &request);
}

static tu_value reshape(tu__stacker *s, const tu__node *node, tu_value x, tu_shape shape) {
    if (!tu_ok(x) || tu_shape_equal(tu_value_shape(x), shape)) return x;
    struct tu__reshape_attrs attrs = {shape};
    return insert(s, node, "/rows", TU__OP_RESHAPE, &attrs, &x, 1);
}

static tu_shape prepend(int64_t size, tu_shape shape) {
    tu_shape to = {.rank = shape.rank + 1};
    to.dim[0] = size;
    for (int64_t i = 0; i < shape.rank && i + 1 < TU_MAX_RANK; i++) to.dim[i + 1] = shape.dim[i];
    return to;
}

/* Returns [members, 1, …, 1, dims of `shape`] with `rank` axes after the first. */
static tu_shape aligned(const tu__stacker *s, tu_shape shape, int64_t rank) {
    tu_shape to = {.rank = rank + 1};
    int64_t ones = rank - shape.rank;
    to.dim[0] = members_of(s);
    for (int64_t i = 0; i < rank && i + 1 < TU_MAX_RANK; i++)
        to.dim[i + 1] = i < ones ? 1 : shape.dim[i - ones];
    return to;
}

static void map_outputs(tu__stacker *s, const tu__node *node, tu_value first) {
    tu__rewrite_map_all(&s->r, node, first);
}

/* Returns a copy of the attributes, for a rule to change. */
static void *copy_attributes(tu__stacker *s, const tu__node *node) {
    size_t bytes = node->op->attr_bytes ? node->op->attr_bytes : 1;
    void *copy = tu__arena_alloc(s->arena, bytes);
    if (!copy) tu__graph_fail(s->r.to, TU_NO_MEMORY, "%s", tu_message());
    if (copy && node->op->attr_bytes) memcpy(copy, node->attrs, node->op->attr_bytes);
    return copy;
}

/* Makes the node with all operands stacked, and maps its outputs. */
static tu_status make_stacked(tu__stacker *s, const tu__node *node, const void *attrs) {
    tu_value *inputs = tu__arena_alloc(s->arena, ((size_t)node->input_count + 1) * sizeof *inputs);
    if (!inputs) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = stacked_input(s, node, i);
    map_outputs(s, node, make(s, node, attrs, inputs));
    return TU_OK;
}

/* ---- Leaves and assignments ---- */

static tu_status stack_input(tu__stacker *s, const tu__node *node) {
    struct tu__input_attrs attrs = *tu__attrs(node, input);
    tu_shape stacked = prepend(members_of(s), attrs.shape);
    if (attrs.batched)
        attrs.shape.dim[0] *= members_of(s);
    else
        attrs.shape = stacked;
    map_outputs(s, node, reshape(s, node, make(s, node, &attrs, NULL), stacked));
    return TU_OK;
}

static tu_status stack_variable(tu__stacker *s, const tu__node *node) {
    const struct tu__variable_attrs *old = tu__attrs(node, variable);
    struct tu__variable_attrs attrs = {.dtype = old->dtype,
                                       .shape = prepend(members_of(s), old->shape),
                                       .init = TU_INIT_ZEROS,
                                       .frozen = old->frozen};
    map_outputs(s, node, make(s, node, &attrs, NULL));
    return TU_OK;
}

static tu_status stack_fill(tu__stacker *s, const tu__node *node) {
    const struct tu__fill_attrs *old = tu__attrs(node, fill);
    uint32_t cell = offsetof(struct tu__fill_attrs, number) / 8;
    tu_value numbers = tu__stack_number(s, node, cell, (tu_dtype)old->dtype);
    if (!tu_ok(numbers)) return tu_graph_status(s->r.to);
    tu_value value = reshape(s, node, numbers, aligned(s, TU_SCALAR, old->shape.rank));
    struct tu__broadcast_attrs attrs = {prepend(members_of(s), old->shape)};
    if (tu_ok(value) && !tu_shape_equal(tu_value_shape(value), attrs.shape))
        value = insert(s, node, "/filled", TU__OP_BROADCAST, &attrs, &value, 1);
    map_outputs(s, node, value);
    return TU_OK;
}

static tu_status stack_constant(tu__stacker *s, const tu__node *node) {
    map_outputs(s, node, tu__stack_data(s, node));
    return TU_OK;
}

static tu_status stack_direct(tu__stacker *s, const tu__node *node) {
    return make_stacked(s, node, node->attrs);
}

/* ---- Operations with axes ---- */

/* Reduces a scalar, which has no axes, over an axis of size 1. */
static tu_status reduce_scalars(tu__stacker *s, const tu__node *node) {
    struct tu__sum_attrs attrs = {.axes = 2}; /* all reductions have the same attributes */
    tu_value x = reshape(s, node, stacked_input(s, node, 0), TU_SHAPE(members_of(s), 1));
    map_outputs(s, node, make(s, node, &attrs, &x));
    return TU_OK;
}

/* Shifts the attribute `axis`, or the bit mask `axes`, which is the first attribute. */
static tu_status stack_with_axis(tu__stacker *s, const tu__node *node) {
    bool is_mask = node->op->attrs[0].kind == TU__ATTR_AXES;
    if (is_mask && old_type(s, node, 0).shape.rank == 0 && node->op->code != TU__OP_FLIP)
        return reduce_scalars(s, node);
    int64_t *attrs = copy_attributes(s, node);
    if (attrs) attrs[0] = is_mask ? attrs[0] << 1 : attrs[0] + 1;
    return make_stacked(s, node, attrs);
}

static tu_status stack_transpose(tu__stacker *s, const tu__node *node) {
    const struct tu__transpose_attrs *old = tu__attrs(node, transpose);
    struct tu__transpose_attrs attrs = {{0}};
    for (int64_t i = 0; i < node->outputs[0].shape.rank; i++)
        attrs.permutation[i + 1] = old->permutation[i] + 1;
    return make_stacked(s, node, &attrs);
}

static tu_status stack_slice(tu__stacker *s, const tu__node *node) {
    const struct tu__slice_attrs *old = tu__attrs(node, slice);
    struct tu__slice_attrs attrs = {{0}, {members_of(s)}, {1}};
    for (int64_t i = 0; i < node->outputs[0].shape.rank; i++) {
        attrs.begin[i + 1] = old->begin[i];
        attrs.end[i + 1] = old->end[i];
        attrs.step[i + 1] = old->step[i];
    }
    return make_stacked(s, node, &attrs);
}

static tu_status stack_pad(tu__stacker *s, const tu__node *node) {
    const struct tu__pad_attrs *old = tu__attrs(node, pad);
    struct tu__pad_attrs attrs = {.number = old->number};
    for (int64_t i = 0; i < node->outputs[0].shape.rank; i++) {
        attrs.before[i + 1] = old->before[i];
        attrs.after[i + 1] = old->after[i];
        attrs.between[i + 1] = old->between[i];
    }
    return make_stacked(s, node, &attrs);
}

static tu_status stack_reshape(tu__stacker *s, const tu__node *node) {
    struct tu__reshape_attrs attrs = {prepend(members_of(s), node->outputs[0].shape)};
    return make_stacked(s, node, &attrs);
}

static tu_status stack_broadcast(tu__stacker *s, const tu__node *node) {
    tu_shape from = old_type(s, node, 0).shape, to = node->outputs[0].shape;
    tu_value x = reshape(s, node, stacked_input(s, node, 0), aligned(s, from, to.rank));
    struct tu__broadcast_attrs attrs = {prepend(members_of(s), to)};
    map_outputs(s, node, make(s, node, &attrs, &x));
    return TU_OK;
}

/* ---- Pointwise operations: operands are aligned after the member axis ---- */

static tu_value pointwise_operand(tu__stacker *s, const tu__node *node, uint32_t input) {
    tu_value x = tu__rewrite_value(&s->r, node->inputs[input]);
    if (!input_is_stacked(s, node, input)) return x;
    return reshape(s, node, x, aligned(s, old_type(s, node, input).shape, node->outputs[0].shape.rank));
}

static tu_status stack_pointwise(tu__stacker *s, const tu__node *node) {
    tu_value inputs[3];
    for (uint32_t i = 0; i < node->input_count; i++) inputs[i] = pointwise_operand(s, node, i);
    map_outputs(s, node, make(s, node, node->attrs, inputs));
    return TU_OK;
}

/* The bounds as values: x < low ? low : x > high ? high : x */
static tu_status stack_clip(tu__stacker *s, const tu__node *node) {
    if (!s->differs) return stack_pointwise(s, node);
    tu_dtype dtype = node->outputs[0].dtype;
    tu_shape shape = aligned(s, TU_SCALAR, node->outputs[0].shape.rank);
    tu_value x = stacked_input(s, node, 0);
    tu_value low = tu__stack_number(s, node, offsetof(struct tu__clip_attrs, low) / 8, dtype);
    tu_value high = tu__stack_number(s, node, offsetof(struct tu__clip_attrs, high) / 8, dtype);
    low = reshape(s, node, low, shape);
    high = reshape(s, node, high, shape);
    if (!tu_ok(low) || !tu_ok(high)) return tu_graph_status(s->r.to);
    tu_value is_above = insert(s, node, "/above", TU__OP_GREATER, NULL, (tu_value[]){x, high}, 2);
    tu_value bounded = insert(s, node, "/high", TU__OP_SELECT, NULL, (tu_value[]){is_above, high, x}, 3);
    tu_value is_below = insert(s, node, "/below", TU__OP_LESS, NULL, (tu_value[]){x, low}, 2);
    map_outputs(s, node,
                insert(s, node, "/low", TU__OP_SELECT, NULL, (tu_value[]){is_below, low, bounded}, 3));
    return TU_OK;
}

/* ---- Products: the member axis is the first batch axis ---- */

static tu_status stack_matmul(tu__stacker *s, const tu__node *node) {
    tu_value inputs[2];
    for (uint32_t i = 0; i < 2; i++) inputs[i] = pointwise_operand(s, node, i);
    map_outputs(s, node, make(s, node, node->attrs, inputs));
    return TU_OK;
}

/* ---- Operations over rows or images: all members' one after another ---- */

static tu_shape merge_first(tu_shape shape) {
    tu_shape to = {.rank = shape.rank - 1};
    to.dim[0] = shape.dim[0] * shape.dim[1];
    for (int64_t i = 1; i < to.rank; i++) to.dim[i] = shape.dim[i + 1];
    return to;
}

static tu_status make_over_rows(tu__stacker *s, const tu__node *node, const void *attrs) {
    tu_value inputs[5];
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu_value x = stacked_input(s, node, i);
        if (!tu_ok(x)) return tu_graph_status(s->r.to);
        inputs[i] = reshape(s, node, x, merge_first(tu_value_shape(x)));
    }
    tu_value made = make(s, node, attrs, inputs);
    for (uint32_t i = 0; tu_ok(made) && i < node->output_count; i++)
        tu__rewrite_map(&s->r, (tu__edge){node->id, i},
                        reshape(s, node, tu__value(s->r.to, made.node, i),
                                prepend(members_of(s), node->outputs[i].shape)));
    return TU_OK;
}

static tu_status stack_rows(tu__stacker *s, const tu__node *node) {
    return make_over_rows(s, node, node->attrs);
}

/* Convolutions and batch normalisation: images and channels have a block per member. */
static tu_status stack_with_members(tu__stacker *s, const tu__node *node) {
    unsigned char *attrs = copy_attributes(s, node);
    if (!attrs) return TU_NO_MEMORY;
    for (tu__field f = tu__first_field(node->op, attrs); f.attr; f = tu__next_field(f))
        if (strcmp(f.attr->name, "members") == 0) {
            int64_t before = tu__field_i64(f, 0), members = members_of(s) * (before ? before : 1);
            memcpy(attrs + (f.cells - attrs), &members, sizeof members);
        }
    return make_over_rows(s, node, attrs);
}

/* ---- Cross-entropy ---- */

/* Returns a number per member, as a value that broadcasts to `rank` axes after the member axis. */
static tu_value f64_fill(tu__stacker *s, const tu__node *node, double number) {
    struct tu__fill_attrs attrs = {.dtype = TU_F64, .number = number};
    return insert(s, node, "/number", TU__OP_FILL, &attrs, NULL, 0);
}

static tu_value binary(tu__stacker *s, const tu__node *node, tu__opcode op, tu_value a, tu_value b) {
    return insert(s, node, "/smoothing", op, NULL, (tu_value[]){a, b}, 2);
}

static tu_value as_f64(tu__stacker *s, const tu__node *node, tu_value x) {
    struct tu__cast_attrs attrs = {.dtype = TU_F64};
    return insert(s, node, "/wide", TU__OP_CAST, &attrs, &x, 1);
}

static bool has_classes(const tu__stacker *s, const tu__node *node) {
    tu_dtype dtype = old_type(s, node, 1).dtype;
    return dtype == TU_I32 || dtype == TU_I64;
}

/* Returns the smoothed target distribution in f64: (1 - smoothing) target + smoothing / k; 0 in masked rows. */
static tu_value smoothed_target(tu__stacker *s, const tu__node *node, tu_value labels, tu_value smoothing,
                                int64_t k) {
    bool sparse = has_classes(s, node);
    struct tu__one_hot_attrs one_hot = {k, TU_F64};
    tu_value target =
        sparse ? insert(s, node, "/target", TU__OP_ONE_HOT, &one_hot, &labels, 1) : as_f64(s, node, labels);
    tu_value rest = binary(s, node, TU__OP_SUB, f64_fill(s, node, 1), smoothing);
    tu_value share = binary(s, node, TU__OP_DIV, smoothing, f64_fill(s, node, (double)k));
    tu_value smoothed = binary(s, node, TU__OP_ADD, binary(s, node, TU__OP_MUL, rest, target), share);
    if (!sparse || !tu_ok(smoothed)) return smoothed;
    tu_value label = as_f64(s, node, labels);
    tu_value inside =
        binary(s, node, TU__OP_AND, binary(s, node, TU__OP_GREATER_EQUAL, label, f64_fill(s, node, 0)),
               binary(s, node, TU__OP_LESS, label, f64_fill(s, node, (double)k)));
    tu_shape rows = old_type(s, node, 1).shape, column = prepend(members_of(s), rows);
    column.dim[column.rank++] = 1;
    return insert(s, node, "/target", TU__OP_SELECT, NULL,
                  (tu_value[]){reshape(s, node, inside, column), smoothed, f64_fill(s, node, 0)}, 3);
}

/* With label smoothing that differs, composed of other operations in f64, so that only the result is rounded. A target of 0
 * adds nothing, also if the logarithm is infinite. */
static tu_status stack_cross_entropy(tu__stacker *s, const tu__node *node) {
    if (!s->differs) return make_stacked(s, node, node->attrs);
    tu_shape logits = old_type(s, node, 0).shape;
    tu_value smoothing =
        tu__stack_number(s, node, offsetof(struct tu__cross_entropy_attrs, smoothing) / 8, TU_F64);
    smoothing = reshape(s, node, smoothing, aligned(s, TU_SCALAR, logits.rank));
    tu_value target =
        smoothed_target(s, node, stacked_input(s, node, 1), smoothing, logits.dim[logits.rank - 1]);
    struct tu__log_softmax_attrs softmax = {logits.rank};
    tu_value wide = as_f64(s, node, stacked_input(s, node, 0));
    tu_value logarithm = insert(s, node, "/logarithm", TU__OP_LOG_SOFTMAX, &softmax, &wide, 1);
    tu_value term = binary(s, node, TU__OP_MUL, target, logarithm);
    tu_value counts = binary(s, node, TU__OP_NOT_EQUAL, target, f64_fill(s, node, 0));
    term = insert(s, node, "/term", TU__OP_SELECT, NULL, (tu_value[]){counts, term, f64_fill(s, node, 0)}, 3);
    struct tu__sum_attrs sum = {.axes = INT64_C(1) << logits.rank};
    tu_value total = insert(s, node, "/sum", TU__OP_SUM, &sum, &term, 1);
    tu_value loss = insert(s, node, "/loss", TU__OP_NEG, NULL, &total, 1);
    struct tu__cast_attrs cast = {.dtype = node->outputs[0].dtype};
    map_outputs(s, node, insert(s, node, "/loss", TU__OP_CAST, &cast, &loss, 1));
    return TU_OK;
}

/* ---- Random numbers ---- */

static bool cell_differs(const tu__stacker *s, const tu__node *node, size_t offset) {
    const char *cell = (const char *)node->attrs + offset;
    for (size_t m = 1; m < s->stack->count; m++) {
        const char *other = (const char *)s->members[m]->nodes[node->id]->attrs + offset;
        if (memcmp(cell, other, sizeof(int64_t)) != 0) return true;
    }
    return false;
}

/* Returns f64[members]: a parameter of the distribution. */
static tu_value parameter(tu__stacker *s, const tu__node *node, size_t offset, double number) {
    if (cell_differs(s, node, offset)) return tu__stack_number(s, node, (uint32_t)(offset / 8), TU_F64);
    struct tu__fill_attrs attrs = {.dtype = TU_F64, .shape = TU_SHAPE(members_of(s)), .number = number};
    return insert(s, node, "/parameter", TU__OP_FILL, &attrs, NULL, 0);
}

static tu_status stack_random(tu__stacker *s, const tu__node *node) {
    const struct tu__random_attrs *old = tu__attrs(node, random);
    struct tu__random_members_attrs attrs = {
        .dtype = old->dtype, .shape = old->shape, .distribution = old->distribution, .key = old->key};
    if (cell_differs(s, node, offsetof(struct tu__random_attrs, distribution)) ||
        cell_differs(s, node, offsetof(struct tu__random_attrs, key)))
        return tu_fail(TU_INVALID, "random '%s': the networks draw different numbers for it", node->name);
    const tu_value inputs[] = {stacked_input(s, node, 0), tu__stack_seeds(s),
                               parameter(s, node, offsetof(struct tu__random_attrs, a), old->a),
                               parameter(s, node, offsetof(struct tu__random_attrs, b), old->b)};
    tu__node_request request = request_for(node, TU__OP_RANDOM_MEMBERS, &attrs, inputs, 4);
    map_outputs(s, node, tu__rewrite_make(&s->r, node, &request));
    return TU_OK;
}

/* ---- Indexing ---- */

/* Returns the indices into the rows of all members: member * rows + index; -1, which selects nothing, if the index is
 * out of range. */
static tu_value offset_indices(tu__stacker *s, const tu__node *node, tu_value indices, int64_t rows) {
    struct tu__cast_attrs wide = {.dtype = TU_I64};
    int64_t *first = tu__arena_alloc(s->arena, s->stack->count * sizeof *first);
    if (!first) return tu__graph_fail(s->r.to, TU_NO_MEMORY, "%s", tu_message());
    for (int64_t m = 0; m < members_of(s); m++) first[m] = m * rows;
    indices = insert(s, node, "/index", TU__OP_CAST, &wide, &indices, 1);
    struct tu__constant_attrs offsets = {.dtype = TU_I64, .shape = TU_SHAPE(members_of(s))};
    tu__node_request request = request_for(node, TU__OP_CONSTANT, &offsets, NULL, 0);
    request.data = first;
    tu_value offset = tu__rewrite_insert(&s->r, node->name, "/offset", &request);
    if (!tu_ok(indices) || !tu_ok(offset)) return indices;
    offset = reshape(s, node, offset, aligned(s, TU_SCALAR, tu_value_shape(indices).rank - 1));
    struct tu__fill_attrs fill = {.dtype = TU_I64};
    tu_value zero = insert(s, node, "/zero", TU__OP_FILL, &fill, NULL, 0);
    fill.number = (double)rows;
    tu_value limit = insert(s, node, "/limit", TU__OP_FILL, &fill, NULL, 0);
    fill.number = -1;
    tu_value none = insert(s, node, "/none", TU__OP_FILL, &fill, NULL, 0);
    tu_value is_low = insert(s, node, "/low", TU__OP_LESS, NULL, (tu_value[]){indices, zero}, 2);
    tu_value is_high = insert(s, node, "/high", TU__OP_GREATER_EQUAL, NULL, (tu_value[]){indices, limit}, 2);
    tu_value is_out = insert(s, node, "/out", TU__OP_OR, NULL, (tu_value[]){is_low, is_high}, 2);
    tu_value shifted = insert(s, node, "/row", TU__OP_ADD, NULL, (tu_value[]){indices, offset}, 2);
    return insert(s, node, "/rows", TU__OP_SELECT, NULL, (tu_value[]){is_out, none, shifted}, 3);
}

static tu_status stack_each(tu__stacker *s, const tu__node *node);

static tu_status stack_gather(tu__stacker *s, const tu__node *node) {
    struct tu__gather_attrs attrs = *tu__attrs(node, gather);
    tu_value inputs[2] = {tu__rewrite_value(&s->r, node->inputs[0]),
                          tu__rewrite_value(&s->r, node->inputs[1])};
    if (!input_is_stacked(s, node, 1)) { /* the same rows of every table */
        attrs.axis++;
        map_outputs(s, node, make(s, node, &attrs, inputs));
        return TU_OK;
    }
    if (attrs.axis != 0) return stack_each(s, node);
    if (input_is_stacked(s, node, 0)) {
        inputs[1] = offset_indices(s, node, inputs[1], old_type(s, node, 0).shape.dim[0]);
        inputs[0] = reshape(s, node, inputs[0], merge_first(tu_value_shape(inputs[0])));
    }
    map_outputs(s, node, make(s, node, &attrs, inputs));
    return TU_OK;
}

static tu_status stack_scatter_add(tu__stacker *s, const tu__node *node) {
    if (tu__attrs(node, scatter_add)->axis != 0) return stack_each(s, node);
    tu_value base = stacked_input(s, node, 0), indices = stacked_input(s, node, 1);
    if (!tu_ok(base) || !tu_ok(indices)) return tu_graph_status(s->r.to);
    tu_shape shape = tu_value_shape(base);
    const tu_value inputs[3] = {reshape(s, node, base, merge_first(shape)),
                                offset_indices(s, node, indices, shape.dim[1]), stacked_input(s, node, 2)};
    map_outputs(s, node, reshape(s, node, make(s, node, node->attrs, inputs), shape));
    return TU_OK;
}

/* ---- Every other operation: a node per member, on slices ---- */

static tu_value slice_member(tu__stacker *s, const tu__node *node, tu_value x, int64_t member) {
    if (!tu_ok(x)) return x;
    tu_shape shape = tu_value_shape(x);
    struct tu__slice_attrs attrs = {{member}, {member + 1}, {1}};
    for (int64_t i = 1; i < shape.rank; i++) attrs.end[i] = shape.dim[i], attrs.step[i] = 1;
    tu_value slice = insert(s, node, "/slice", TU__OP_SLICE, &attrs, &x, 1);
    return reshape(s, node, slice, tu_shape_of((size_t)shape.rank - 1, shape.dim + 1));
}

static tu_value make_member(tu__stacker *s, const tu__node *node, int64_t member, tu_value *inputs) {
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu_value x = tu__rewrite_value(&s->r, node->inputs[i]);
        inputs[i] = input_is_stacked(s, node, i) ? slice_member(s, node, x, member) : x;
    }
    return insert(s, node, "/member", node->op->code, s->members[member]->nodes[node->id]->attrs, inputs,
                  node->input_count);
}

static tu_status join(tu__stacker *s, const tu__node *node, uint32_t output, tu_value *parts) {
    for (int64_t m = 0; m < members_of(s); m++) {
        if (!tu_ok(parts[m])) return tu_graph_status(s->r.to);
        parts[m].output = output;
        parts[m] = reshape(s, node, parts[m], prepend(1, node->outputs[output].shape));
    }
    struct tu__concat_attrs attrs = {0};
    tu_value joined = insert(s, node, "/joined", TU__OP_CONCAT, &attrs, parts, (size_t)members_of(s));
    tu__rewrite_map(&s->r, (tu__edge){node->id, output}, joined);
    return TU_OK;
}

/* Attributes that differ are compiled in: keeps those of each place. */
static tu_status keep_own_attributes(tu__stacker *s, const tu__node *node) {
    tu__arena *arena = &s->stack->arena;
    const void **own = tu__arena_alloc(arena, s->stack->count * sizeof *own);
    if (!own) return TU_NO_MEMORY;
    for (size_t m = 0; m < s->stack->count; m++) {
        own[m] = tu__arena_copy(arena, s->members[m]->nodes[node->id]->attrs, node->op->attr_bytes);
        if (!own[m]) return TU_NO_MEMORY;
    }
    s->stack->own_attrs[node->id] = own;
    return TU_OK;
}

static tu_status stack_each(tu__stacker *s, const tu__node *node) {
    size_t count = s->stack->count;
    if (s->differs) TU_TRY(keep_own_attributes(s, node));
    tu_value *made = tu__arena_alloc(s->arena, 2 * count * sizeof *made);
    tu_value *inputs = tu__arena_alloc(s->arena, ((size_t)node->input_count + 1) * sizeof *inputs);
    if (!made || !inputs) return TU_NO_MEMORY;
    for (size_t m = 0; m < count; m++) made[m] = make_member(s, node, (int64_t)m, inputs);
    for (uint32_t i = 0; i < node->output_count; i++) {
        memcpy(made + count, made, count * sizeof *made);
        TU_TRY(join(s, node, i, made + count));
    }
    return TU_OK;
}

/* ---- The table ---- */

typedef struct stack_rule {
    tu__opcode op;
    tu_status (*make)(tu__stacker *s, const tu__node *node);
    bool covers_differences; /* attributes may differ; without, such a node becomes one per member */
} stack_rule;

static const stack_rule rules[] = {
    {TU__OP_INPUT, stack_input, false},
    {TU__OP_VARIABLE, stack_variable, false},
    {TU__OP_CONSTANT, stack_constant, true},
    {TU__OP_FILL, stack_fill, true},
    {TU__OP_ASSIGN, stack_direct, false},
    {TU__OP_COPY, stack_direct, false},
    {TU__OP_STOP_GRADIENT, stack_direct, false},

    {TU__OP_CLIP, stack_clip, true},
    {TU__OP_SUM, stack_with_axis, false},
    {TU__OP_MEAN, stack_with_axis, false},
    {TU__OP_REDUCE_MAX, stack_with_axis, false},
    {TU__OP_REDUCE_MIN, stack_with_axis, false},
    {TU__OP_PROD, stack_with_axis, false},
    {TU__OP_LOGSUMEXP, stack_with_axis, false},
    {TU__OP_ARGMAX, stack_with_axis, false},
    {TU__OP_ARGMIN, stack_with_axis, false},
    {TU__OP_CUMSUM, stack_with_axis, false},
    {TU__OP_TOP_K, stack_with_axis, false},
    {TU__OP_TAKE_ALONG, stack_with_axis, false},
    {TU__OP_PUT_ALONG, stack_with_axis, false},
    {TU__OP_SOFTMAX, stack_with_axis, false},
    {TU__OP_LOG_SOFTMAX, stack_with_axis, false},
    {TU__OP_CONCAT, stack_with_axis, false},
    {TU__OP_FLIP, stack_with_axis, false},
    {TU__OP_ROLL, stack_with_axis, false},
    {TU__OP_TRANSPOSE, stack_transpose, false},
    {TU__OP_SLICE, stack_slice, false},
    {TU__OP_PAD, stack_pad, false},
    {TU__OP_RESHAPE, stack_reshape, false},
    {TU__OP_BROADCAST, stack_broadcast, false},

    {TU__OP_MATMUL, stack_matmul, false},
    {TU__OP_INVERSE, stack_direct, false},
    {TU__OP_SOLVE, stack_direct, false},
    {TU__OP_CHOLESKY, stack_direct, false},
    {TU__OP_TRIANGULAR_SOLVE, stack_direct, false},
    {TU__OP_BAND, stack_direct, false},

    {TU__OP_CONV2D, stack_with_members, false},
    {TU__OP_CONV2D_DX, stack_with_members, false},
    {TU__OP_CONV2D_DW, stack_with_members, false},
    {TU__OP_BATCH_NORM, stack_with_members, false},
    {TU__OP_BATCH_NORM_GRAD, stack_with_members, false},
    {TU__OP_MAX_POOL, stack_rows, false},
    {TU__OP_MAX_POOL_GRAD, stack_rows, false},
    {TU__OP_MAX_POOL_PICK, stack_rows, false},
    {TU__OP_AVG_POOL, stack_rows, false},
    {TU__OP_AVG_POOL_GRAD, stack_rows, false},
    {TU__OP_RESIZE, stack_rows, false},
    {TU__OP_RESIZE_GRAD, stack_rows, false},
    {TU__OP_CROP, stack_rows, false},
    {TU__OP_CROP_GRAD, stack_rows, false},

    {TU__OP_LRN, stack_direct, false},
    {TU__OP_LRN_GRAD, stack_direct, false},
    {TU__OP_CROSS_ENTROPY, stack_cross_entropy, true},
    {TU__OP_CROSS_ENTROPY_GRAD, stack_direct, false},
    {TU__OP_ONE_HOT, stack_direct, false},
    {TU__OP_QUANTIZE, stack_direct, false},
    {TU__OP_DEQUANTIZE, stack_direct, false},
    {TU__OP_GATHER, stack_gather, false},
    {TU__OP_SCATTER_ADD, stack_scatter_add, false},
    {TU__OP_RANDOM, stack_random, true},
};

static const stack_rule *find_rule(const tu__op *op) {
    static const stack_rule pointwise = {.make = stack_pointwise}, each = {.make = stack_each};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == op->code) return &rules[i];
    return op->traits & TU__POINTWISE ? &pointwise : &each;
}

tu_status tu__stack_node(tu__stacker *s, const tu__node *node) {
    const stack_rule *rule = find_rule(node->op);
    bool is_bound = (node->op->traits & (TU__LEAF | TU__EFFECT | TU__RANDOM)) != 0;
    if (s->differs && is_bound && !rule->covers_differences)
        return tu_fail(TU_INVALID, "%s '%s' cannot be stacked: its attributes differ between the networks",
                       node->op->name, node->name);
    if (s->differs && !rule->covers_differences) return stack_each(s, node);
    return rule->make(s, node);
}
