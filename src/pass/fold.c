/* Constant folding: computes a node whose inputs are all constant, with the operation's reference kernel.
 *
 * The device `ref` runs the same kernels, so there folding does not change a bit of the results. Results of up to 64
 * KiB are kept as constants. In a frozen graph they may have any size, but no more elements than the inputs, which may be
 * freed then; large ones become shared data. A result with equal elements becomes a fill node, which stores one number. Pointwise
 * operations on fills, and operations that only move the elements of a fill, are computed for one element and give a
 * fill of any size. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "pass/simplify.h"

enum {
    MAX_BYTES = 65536,      /* size of a result */
    MAX_ELEMENTS = 1 << 17, /* elements of all inputs: folding must cost less than it saves */
    MAX_FLOPS = 1 << 24,    /* floating-point operations */
};

/* Replaces the node by a fill with `number`. */
static tu__outcome replace_by_fill(tu__candidate *c, double number) {
    c->replacement = tu__simplify_fill(c, c->origin->outputs[0], number);
    return TU__REPLACED;
}

/* ---- Fills ---- */

static bool inputs_are_fills(const tu__candidate *c, double *numbers, uint32_t max) {
    if (c->input_count == 0 || c->input_count > max) return false;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (!tu__is_fill(c->inputs[i], &numbers[i])) return false;
    return true;
}

/* Returns a node outside any graph that describes the candidate, as reference kernels expect one. */
static tu__node candidate_node(const tu__candidate *c) {
    return (tu__node){.op = tu__op_get(c->op),
                      .name = c->origin->name,
                      .input_count = c->input_count,
                      .output_count = 1,
                      .outputs = c->origin->outputs,
                      .attrs = c->attrs};
}

static tu__outcome fold_one_element(tu__candidate *c, double *numbers) {
    tu__tensor in[3], out = {.type = {.dtype = c->origin->outputs[0].dtype, .shape = TU_SCALAR}};
    double result = 0;
    out.data = &result;
    for (uint32_t i = 0; i < c->input_count; i++)
        in[i] = (tu__tensor){.type = {.dtype = tu_value_dtype(c->inputs[i]), .shape = TU_SCALAR},
                             .data = &numbers[i]};
    tu__node node = candidate_node(c);
    tu__reference_call call = {.node = &node, .attrs = c->attrs, .in = in, .out = &out};
    if (node.op->reference(&call) != TU_OK) return TU__KEPT;
    return replace_by_fill(c, tu__round_to(out.type.dtype, result));
}

/* True if all elements of the result are elements of the input. */
static bool only_moves_elements(tu__opcode op) {
    switch (op) {
    case TU__OP_RESHAPE:
    case TU__OP_BROADCAST:
    case TU__OP_TRANSPOSE:
    case TU__OP_SLICE:
    case TU__OP_FLIP:
    case TU__OP_STOP_GRADIENT:
    case TU__OP_COPY: return true;
    default: return false;
    }
}

static tu__outcome fold_fills(tu__candidate *c) {
    double numbers[3];
    if (!inputs_are_fills(c, numbers, 3)) return TU__KEPT;
    if (tu__op_get(c->op)->traits & TU__POINTWISE) return fold_one_element(c, numbers);
    return only_moves_elements(c->op) ? replace_by_fill(c, numbers[0]) : TU__KEPT;
}

/* ---- Constants ---- */

static bool is_constant_or_fill(tu_value value) {
    tu__opcode code = tu__node_of(value)->op->code;
    return code == TU__OP_CONSTANT || code == TU__OP_FILL;
}

static bool can_fold(const tu__candidate *c) {
    const tu__op *op = tu__op_get(c->op);
    if (c->input_count == 0 || c->origin->output_count != 1 || op->code == TU__OP_CUSTOM) return false;
    if (op->traits & TU__COLLECTIVE) return false; /* the other ranks' values are not known */
    if (op->traits & (TU__RANDOM | TU__EFFECT)) return false;
    int64_t elements = 0, weights = 0; /* of all inputs, and of those that are constants */
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (!is_constant_or_fill(c->inputs[i])) return false;
        int64_t count = tu_shape_elements(tu_value_shape(c->inputs[i]));
        elements += count;
        if (tu__candidate_source(c, i)->op->code == TU__OP_CONSTANT) weights += count;
    }
    tu_type out = c->origin->outputs[0];
    bool is_small = tu_type_bytes(out) <= MAX_BYTES && elements <= MAX_ELEMENTS;
    return is_small ||
           (c->r->from->is_frozen && elements <= 2 * weights && tu_shape_elements(out.shape) <= weights);
}

static bool is_cheap(const tu__candidate *c, const tu__tensor *in) {
    const tu__op *op = tu__op_get(c->op);
    if (!op->flops || c->r->from->is_frozen) return true;
    tu_type types[8]; /* an operation with a `flops` function has at most five inputs */
    if (c->input_count > 8) return false;
    for (uint32_t i = 0; i < c->input_count; i++) types[i] = in[i].type;
    tu__node node = candidate_node(c);
    return op->flops(&node, types) <= MAX_FLOPS;
}

/* Integers from 2^53 on may not be exact as doubles. */
static bool is_exact_in_doubles(const tu__tensor *t) {
    int64_t count = tu_shape_elements(t->type.shape);
    for (int64_t i = 0; t->type.dtype == TU_I64 && i < count; i++)
        if (!(fabs(t->data[i]) < 0x1p53)) return false;
    return true;
}

static tu_status alloc_tensor(tu__tensor *t, tu_type type) {
    t->type = type;
    t->data = tu__alloc_array((size_t)tu_shape_elements(type.shape), sizeof *t->data, "a constant");
    return t->data ? TU_OK : TU_NO_MEMORY;
}

static tu_status load_input(tu__tensor *t, tu_value value) {
    const tu__node *node = tu__node_of(value);
    TU_TRY(alloc_tensor(t, node->outputs[0]));
    int64_t count = tu_shape_elements(t->type.shape);
    double number;
    if (tu__is_fill(value, &number))
        for (int64_t i = 0; i < count; i++) t->data[i] = number;
    else
        tu__load_array(t->type.dtype, node->data, count, t->data);
    return TU_OK;
}

static bool is_uniform(const tu__tensor *t) {
    int64_t count = tu_shape_elements(t->type.shape);
    for (int64_t i = 1; i < count; i++)
        if (memcmp(&t->data[i], &t->data[0], sizeof(double)) != 0) return false;
    return true;
}

static tu_status replace_by_constant(tu__candidate *c, const tu__tensor *out) {
    if (is_uniform(out)) {
        replace_by_fill(c, out->data[0]);
        return tu_graph_status(c->r->to);
    }
    size_t bytes = tu_type_bytes(out->type);
    tu__shared_data *data = tu__shared_data_new(bytes, "a constant");
    if (!data) return TU_NO_MEMORY;
    tu__store_array(out->type.dtype, out->data, tu_shape_elements(out->type.shape), data->data);
    struct tu__constant_attrs attrs = {.dtype = out->type.dtype, .shape = out->type.shape};
    tu__node_request request = {.op = TU__OP_CONSTANT,
                                .attrs = &attrs,
                                .data = data->data,
                                .shared = c->r->to->is_frozen || bytes > MAX_BYTES ? data : NULL,
                                .device = c->origin->device};
    tu_status status = tu__simplify_make(c, NULL, &request, &c->replacement);
    tu__shared_data_release(data);
    return status;
}

/* `tensors`: the inputs, then the output. */
static tu_status fold_tensors(tu__candidate *c, tu__tensor *tensors, tu__outcome *outcome) {
    tu__tensor *out = &tensors[c->input_count];
    bool is_exact = true;
    for (uint32_t i = 0; i < c->input_count; i++) {
        TU_TRY(load_input(&tensors[i], c->inputs[i]));
        is_exact = is_exact && is_exact_in_doubles(&tensors[i]);
    }
    if (!is_exact || !is_cheap(c, tensors)) return TU_OK;
    TU_TRY(alloc_tensor(out, c->origin->outputs[0]));
    tu__node node = candidate_node(c);
    tu__reference_call call = {.node = &node, .attrs = c->attrs, .in = tensors, .out = out};
    tu_status status = node.op->reference(&call);
    if (status != TU_OK) return status == TU_NO_MEMORY ? status : TU_OK;
    tu__round_array(out->type.dtype, out->data, tu_shape_elements(out->type.shape));
    if (!is_exact_in_doubles(out)) return TU_OK;
    *outcome = TU__REPLACED;
    return replace_by_constant(c, out);
}

tu_status tu__simplify_by_folding(tu__candidate *c, tu__outcome *outcome) {
    *outcome = fold_fills(c);
    if (*outcome != TU__KEPT || !can_fold(c)) return TU_OK;
    tu__tensor *tensors = tu__alloc_array((size_t)c->input_count + 1, sizeof *tensors, "folding a constant");
    if (!tensors) return TU_NO_MEMORY;
    tu_status status = fold_tensors(c, tensors, outcome);
    for (uint32_t i = 0; i <= c->input_count; i++) tu__free(tensors[i].data);
    tu__free(tensors);
    return status;
}
