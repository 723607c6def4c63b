/* precision: mixed precision. Runs a graph built in f32 in bf16 or f16 where that is faster, and in f32 where half
 * precision would be too inaccurate.
 *
 * Convolutions and matmuls take half the time in half precision, and the operations between them half the
 * memory traffic; both accumulate in f32 inside their kernels. Sums over many elements, exponentials and the small
 * steps of an optimizer need a longer mantissa. So every operation has a class, in the table below:
 *
 *   TO_HALF      its f32 inputs are cast to half, its output is half: matmul and convolution
 *   LIKE_INPUTS  half if any input is half already: pointwise operations, pooling, LRN, operations that move elements;
 *                exception: the sum of two activations, below
 *   NORM         activations are half if the input is; parameters and statistics are f32: also attention
 *   IN_F32       f32: softmax and losses, exponentials, linear algebra and the matmuls in its gradients, reductions
 *                to one number
 *   AS_BUILT     the types it was built with: leaves, variables, assignments, casts, random numbers, custom
 *                operations
 *
 * Four rules consider the neighbours of an operation:
 *   - a sum of two activations of the same shape is IN_F32 if one of them is f32: a residual stream x + f(x) that begins
 *     in f32 stays f32, and so does its gradient, which is a sum too. The errors of rounding the stream in every block
 *     would add up. torch.autocast does the same. An activation is computed from an input of the graph: biases are not,
 *     whatever the batch size, and are added as LIKE_INPUTS;
 *   - variables and their updates are f32 (master weights): pointwise operations on tensors of the variable's shape
 *     that lead to an assignment are IN_F32; a gradient is cast to f32 where it enters them;
 *   - a reduction whose result is reduced further to one number is IN_F32 too;
 *   - a pointwise operation that only IN_F32 ones read is IN_F32, since rounding its result would save nothing.
 *
 * A value is cast at most once per direction, however many nodes read it. Fetched values keep the type they were
 * built with. Values of types other than f32 are not changed. */
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "pass/pass.h"

/* ---- Classes ---- */

typedef enum precision_class { AS_BUILT, LIKE_INPUTS, TO_HALF, NORM, IN_F32 } precision_class;

/* Pointwise operations that are not listed are LIKE_INPUTS; all others are AS_BUILT. */
static const struct {
    tu__opcode op;
    precision_class class;
} classes[] = {
    {TU__OP_CONV2D, TO_HALF},
    {TU__OP_CONV2D_DX, TO_HALF},
    {TU__OP_CONV2D_DW, TO_HALF},
    {TU__OP_MATMUL, TO_HALF}, /* unless its attribute `exact` is set: see class_of */

    {TU__OP_MAX_POOL, LIKE_INPUTS},
    {TU__OP_MAX_POOL_GRAD, LIKE_INPUTS},
    {TU__OP_MAX_POOL_PICK, LIKE_INPUTS},
    {TU__OP_AVG_POOL, LIKE_INPUTS},
    {TU__OP_AVG_POOL_GRAD, LIKE_INPUTS},
    {TU__OP_LRN, LIKE_INPUTS},
    {TU__OP_LRN_GRAD, LIKE_INPUTS},
    {TU__OP_SUM, LIKE_INPUTS}, /* unless the result is one number: see class_of */
    {TU__OP_MEAN, LIKE_INPUTS},
    {TU__OP_REDUCE_MAX, LIKE_INPUTS},
    {TU__OP_REDUCE_MIN, LIKE_INPUTS},
    {TU__OP_GATHER, LIKE_INPUTS},
    {TU__OP_TAKE_ALONG, LIKE_INPUTS},
    {TU__OP_RESHAPE, LIKE_INPUTS},
    {TU__OP_BROADCAST, LIKE_INPUTS},
    {TU__OP_TRANSPOSE, LIKE_INPUTS},
    {TU__OP_SLICE, LIKE_INPUTS},
    {TU__OP_PAD, LIKE_INPUTS},
    {TU__OP_CONCAT, LIKE_INPUTS},
    {TU__OP_FLIP, LIKE_INPUTS},
    {TU__OP_RESIZE, LIKE_INPUTS},
    {TU__OP_RESIZE_GRAD, LIKE_INPUTS},
    {TU__OP_CROP, LIKE_INPUTS},
    {TU__OP_CROP_GRAD, LIKE_INPUTS},
    {TU__OP_BAND, LIKE_INPUTS},
    {TU__OP_STOP_GRADIENT, LIKE_INPUTS},
    {TU__OP_COPY, LIKE_INPUTS},

    {TU__OP_BATCH_NORM, NORM},
    {TU__OP_BATCH_NORM_GRAD, NORM},
    {TU__OP_LAYER_NORM, NORM},
    {TU__OP_LAYER_NORM_GRAD, NORM},

    {TU__OP_ATTENTION, NORM},
    {TU__OP_ATTENTION_GRAD, NORM},

    {TU__OP_EXP, IN_F32},
    {TU__OP_EXPM1, IN_F32},
    {TU__OP_LOG, IN_F32},
    {TU__OP_LOG1P, IN_F32},
    {TU__OP_POW, IN_F32},
    {TU__OP_RECIPROCAL, IN_F32},
    {TU__OP_RSQRT, IN_F32},
    {TU__OP_SOFTMAX, IN_F32},
    {TU__OP_LOG_SOFTMAX, IN_F32},
    {TU__OP_CROSS_ENTROPY, IN_F32},
    {TU__OP_CROSS_ENTROPY_GRAD, IN_F32},
    {TU__OP_LOGSUMEXP, IN_F32},
    {TU__OP_PROD, IN_F32},
    {TU__OP_CUMSUM, IN_F32},
    {TU__OP_ARGMAX, IN_F32},
    {TU__OP_ARGMIN, IN_F32},
    {TU__OP_TOP_K, IN_F32},
    {TU__OP_SCATTER_ADD, IN_F32},
    {TU__OP_PUT_ALONG, IN_F32},
    {TU__OP_INVERSE, IN_F32},
    {TU__OP_SOLVE, IN_F32},
    {TU__OP_CHOLESKY, IN_F32},
    {TU__OP_TRIANGULAR_SOLVE, IN_F32},

    {TU__OP_CAST, AS_BUILT},
};

static bool is_pointwise(const tu__node *node) {
    return node->op->traits & TU__POINTWISE;
}

static precision_class class_in_table(const tu__node *node) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].op == node->op->code) return classes[i].class;
    return is_pointwise(node) ? LIKE_INPUTS : AS_BUILT;
}

typedef struct precision {
    tu__rewrite r;
    tu_dtype half;
    precision_class *class; /* per node of the old graph */
    bool *is_marked;        /* per node: scratch of the rules below */
    bool *is_narrow;        /* per node: it computes in half precision; of the nodes visited so far */
    tu__edge *narrowed,
        *widened; /* per output of the old graph: its cast to half, to f32; TU_NO_NODE: none yet */
} precision;

static tu_type type_at(const tu_graph *graph, tu__edge edge) {
    return graph->nodes[edge.node]->outputs[edge.output];
}

static bool is_reduction(const tu__node *node) {
    tu__opcode code = node->op->code;
    return code == TU__OP_SUM || code == TU__OP_MEAN || code == TU__OP_REDUCE_MAX ||
           code == TU__OP_REDUCE_MIN;
}

/* Returns the class by operation only. If an input is of a float type other than f32, the user has chosen the
 * types. */
static precision_class class_of(const tu_graph *graph, const tu__node *node) {
    precision_class class = class_in_table(node);
    bool has_f32_input = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu_dtype dtype = type_at(graph, node->inputs[i]).dtype;
        if (tu_dtype_is_float(dtype) && dtype != TU_F32) return AS_BUILT;
        has_f32_input = has_f32_input || dtype == TU_F32;
    }
    if (!has_f32_input) return AS_BUILT;
    if (is_reduction(node) && tu_shape_elements(node->outputs[0].shape) == 1) return IN_F32;
    if (node->op->code == TU__OP_MATMUL && tu__attrs(node, matmul)->exact) return IN_F32;
    return class;
}

/* True if the node only tests the sign of an input, in whichever type that has: the result of a relu in the relu's
 * gradient. Such an input is not cast, since small numbers round to zero in half precision, and has no influence on
 * the type that the node computes in. */
static bool only_tests_sign(const tu__node *node, uint32_t input) {
    return node->op->code == TU__OP_RELU_GRAD && input == 0;
}

/* ---- Rules that consider neighbours ---- */

/* True if a pointwise node may be part of the computation of a variable's new value. */
static bool in_update(const tu__node *node, tu_shape shape) {
    return is_pointwise(node) &&
           (node->outputs[0].shape.rank == 0 || tu_shape_equal(node->outputs[0].shape, shape));
}

/* Makes the pointwise operations of updates IN_F32; `is_marked`: the node is part of an update. */
static void mark_updates(precision *p) {
    const tu_graph *graph = p->r.from;
    for (uint32_t id = graph->node_count; id-- > 0;) {
        const tu__node *node = graph->nodes[id];
        bool is_assign = node->op->code == TU__OP_ASSIGN;
        if (!is_assign && !(p->class[id] == IN_F32 && p->is_marked[id])) continue;
        for (uint32_t i = is_assign ? 1 : 0; i < node->input_count; i++) {
            const tu__node *source = graph->nodes[node->inputs[i].node];
            if (!in_update(source, node->outputs[0].shape) || p->class[source->id] == AS_BUILT) continue;
            p->class[source->id] = IN_F32;
            p->is_marked[source->id] = true;
        }
    }
}

static bool reads_in_f32(precision_class reader) {
    return reader == IN_F32 || reader == AS_BUILT;
}

/* Makes LIKE_INPUTS nodes IN_F32 if all their readers need f32; a fetch does. `is_marked`: all readers seen so far
 * need f32. A view keeps the type of its input, so that the cast comes after it, where it can be fused with the
 * reader. */
static void widen_before_f32_readers(precision *p) {
    const tu_graph *graph = p->r.from;
    for (uint32_t i = 0; i < graph->node_count; i++) p->is_marked[i] = true;
    for (uint32_t id = graph->node_count; id-- > 0;) {
        const tu__node *node = graph->nodes[id];
        bool is_widened = p->class[id] == LIKE_INPUTS && p->is_marked[id] && node->outputs[0].dtype == TU_F32;
        bool is_view = node->op->traits & TU__VIEW;
        if (is_widened && is_pointwise(node)) p->class[id] = IN_F32;
        for (uint32_t i = 0; i < node->input_count; i++)
            if ((!reads_in_f32(p->class[id]) && !(is_widened && is_view)) || only_tests_sign(node, i))
                p->is_marked[node->inputs[i].node] = false;
    }
}

/* Makes a reduction IN_F32 if another reduction, to a single number, reads it. */
static void widen_partial_reductions(precision *p) {
    const tu_graph *graph = p->r.from;
    for (uint32_t id = graph->node_count; id-- > 0;) {
        const tu__node *node = graph->nodes[id];
        if (p->class[id] != IN_F32 || !is_reduction(node)) continue;
        uint32_t source = node->inputs[0].node;
        if (p->class[source] == LIKE_INPUTS && is_reduction(graph->nodes[source])) p->class[source] = IN_F32;
    }
}

/* True if the value is half. Normalisations and attention have f32 statistics, behind their first output. */
static bool is_half(const precision *p, tu__edge from) {
    return type_at(p->r.from, from).dtype == TU_F32 && p->is_narrow[from.node] &&
           (p->class[from.node] != NORM || from.output == 0);
}

static bool has_half_input(const precision *p, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (is_half(p, node->inputs[i]) && !only_tests_sign(node, i)) return true;
    return false;
}

/* True if the node computes in half precision. */
static bool computes_in_half(const precision *p, const tu__node *node) {
    switch (p->class[node->id]) {
    case TO_HALF: return true;
    case LIKE_INPUTS: return has_half_input(p, node);
    case NORM: return is_half(p, node->inputs[0]);
    default: return false;
    }
}

/* True if the node adds two activations; `is_marked`: the node is computed from an input of the graph. */
static bool adds_activations(const precision *p, const tu__node *node) {
    if (node->op->code != TU__OP_ADD) return false;
    for (uint32_t i = 0; i < 2; i++)
        if (!tu_shape_equal(type_at(p->r.from, node->inputs[i]).shape, node->outputs[0].shape) ||
            !p->is_marked[node->inputs[i].node])
            return false;
    return true;
}

/* Makes sums of an f32 and a half activation IN_F32. */
static void widen_streams(precision *p) {
    const tu_graph *graph = p->r.from;
    for (uint32_t id = 0; id < graph->node_count; id++) {
        const tu__node *node = graph->nodes[id];
        p->is_marked[id] = node->op->code == TU__OP_INPUT;
        for (uint32_t i = 0; i < node->input_count && !p->is_marked[id]; i++)
            p->is_marked[id] = p->is_marked[node->inputs[i].node];
        if (p->class[id] == LIKE_INPUTS && adds_activations(p, node) &&
            is_half(p, node->inputs[0]) != is_half(p, node->inputs[1]))
            p->class[id] = IN_F32;
        p->is_narrow[id] = computes_in_half(p, node);
    }
}

static tu_status classify(precision *p) {
    const tu_graph *graph = p->r.from;
    p->class = tu__alloc_array((size_t)graph->node_count + 1, sizeof *p->class, "a pass");
    p->is_marked = tu__alloc_array((size_t)graph->node_count + 1, sizeof *p->is_marked, "a pass");
    p->is_narrow = tu__alloc_array((size_t)graph->node_count + 1, sizeof *p->is_narrow, "a pass");
    if (!p->class || !p->is_marked || !p->is_narrow) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) p->class[i] = class_of(graph, graph->nodes[i]);
    mark_updates(p);
    widen_partial_reductions(p);
    widen_streams(p);
    widen_before_f32_readers(p);
    return TU_OK;
}

/* ---- Casts ---- */

static tu_value read_as(precision *p, tu__edge from, tu_dtype dtype, const tu__node *reader);

/* Casts a value. A reshaped value is narrowed before it is reshaped: readers of either form then share one cast, which
 * can be fused with the kernel that computes the value. */
static tu_value make_cast(precision *p, tu__edge from, tu_value value, tu_dtype dtype,
                          const tu__node *reader) {
    const tu__node *source = p->r.from->nodes[from.node];
    bool reshapes = source->op->code == TU__OP_RESHAPE && dtype == p->half;
    if (reshapes) value = read_as(p, source->inputs[0], dtype, reader);
    struct tu__cast_attrs cast = {.dtype = dtype};
    struct tu__fill_attrs fill = {.dtype = dtype, .shape = source->outputs[from.output].shape};
    tu__node_request request = {.op = TU__OP_CAST, .attrs = &cast, .inputs = &value, .input_count = 1};
    if (source->op->code == TU__OP_FILL) { /* another fill, instead of a cast */
        fill.number = tu__round_to(dtype, tu__attrs(source, fill)->number);
        request = (tu__node_request){.op = TU__OP_FILL, .attrs = &fill};
    }
    if (reshapes)
        request = (tu__node_request){
            .op = TU__OP_RESHAPE, .attrs = source->attrs, .inputs = &value, .input_count = 1};
    request.device = source->device || !reader ? source->device : reader->device;
    tu__text suffix = {0};
    if (from.output) tu__text_printf(&suffix, ":%u", from.output);
    tu__text_printf(&suffix, "/%s", tu_dtype_name(dtype));
    tu_value new_value = suffix.failed
                             ? tu__graph_fail(p->r.to, TU_NO_MEMORY, "%s", tu_message())
                             : tu__rewrite_insert(&p->r, source->name, tu__text_string(&suffix), &request);
    tu__text_free(&suffix);
    return new_value;
}

/* Returns a value built as f32 in the type `dtype`: f32 or the half type. */
static tu_value read_as(precision *p, tu__edge from, tu_dtype dtype, const tu__node *reader) {
    tu_value value = tu__rewrite_value(&p->r, from);
    if (!tu_ok(value) || tu_value_dtype(value) == dtype) return value;
    tu__edge *cast =
        (dtype == p->half ? p->narrowed : p->widened) + p->r.first_output[from.node] + from.output;
    if (cast->node == TU_NO_NODE) {
        tu_value new_value = make_cast(p, from, value, dtype, reader);
        *cast = (tu__edge){new_value.node, new_value.output};
    }
    return tu__value(p->r.to, cast->node, cast->output);
}

/* ---- Rewriting ---- */

/* True if an input of such a node is half: for a normalisation only the activations, x and dy (input 4 of
 * gradients); for an attention all but the logarithms. */
static bool input_is_half(const precision *p, const tu__node *node, uint32_t input) {
    if (node->op->code == TU__OP_ATTENTION_GRAD) return input != 2;
    return p->class[node->id] != NORM || input == 0 || input == 4;
}

static tu_status convert_node(precision *p, const tu__node *node, tu_value *inputs) {
    tu__node_request request = tu__rewrite_request(&p->r, node, inputs);
    bool narrow = p->is_narrow[node->id] = computes_in_half(p, node);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (type_at(p->r.from, node->inputs[i]).dtype == TU_F32 && !only_tests_sign(node, i))
            inputs[i] =
                read_as(p, node->inputs[i], narrow && input_is_half(p, node, i) ? p->half : TU_F32, node);
    tu_value new_value = tu__rewrite_make(&p->r, node, &request);
    TU_TRY(tu_graph_status(p->r.to));
    if (!tu_ok(new_value)) return tu_fail(TU_INTERNAL, "precision dropped an input of '%s'", node->name);
    tu__rewrite_map_all(&p->r, node, new_value);
    return TU_OK;
}

static tu_status convert_nodes(precision *p) {
    const tu_graph *graph = p->r.from;
    for (uint32_t id = 0; id < graph->node_count; id++) {
        const tu__node *node = graph->nodes[id];
        tu_value *inputs =
            tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
        tu_status status = inputs ? convert_node(p, node, inputs) : TU_NO_MEMORY;
        tu__free(inputs);
        TU_TRY(status);
    }
    return TU_OK;
}

/* Gives fetched values the type they were built with. */
static void widen_results(precision *p, size_t count, const tu__edge *edges) {
    for (size_t i = 0; i < count; i++)
        if (type_at(p->r.from, edges[i]).dtype == TU_F32)
            tu__rewrite_map(&p->r, edges[i], read_as(p, edges[i], TU_F32, NULL));
}

static tu_status alloc_casts(precision *p) {
    const tu_graph *graph = p->r.from;
    uint32_t count = graph->node_count;
    size_t outputs = count ? p->r.first_output[count - 1] + graph->nodes[count - 1]->output_count : 0;
    p->narrowed = tu__alloc_array(outputs + 1, sizeof *p->narrowed, "a pass");
    p->widened = tu__alloc_array(outputs + 1, sizeof *p->widened, "a pass");
    if (!p->narrowed || !p->widened) return TU_NO_MEMORY;
    for (size_t i = 0; i < outputs; i++) p->narrowed[i] = p->widened[i] = (tu__edge){.node = TU_NO_NODE};
    return TU_OK;
}

tu_status tu__pass_precision(tu__unit *unit) {
    if (unit->precision == TU__PRECISION_AS_BUILT || unit->precision == TU__PRECISION_TF32) return TU_OK;
    precision p = {.half = unit->precision == TU__PRECISION_BF16 ? TU_BF16 : TU_F16};
    TU_TRY(tu__rewrite_begin(&p.r, unit->graph));
    tu_status status = classify(&p);
    if (status == TU_OK) status = alloc_casts(&p);
    if (status == TU_OK) status = convert_nodes(&p);
    if (status == TU_OK) {
        widen_results(&p, unit->fetch_count, unit->fetch);
        widen_results(&p, unit->kept_count, unit->kept);
        status = tu__rewrite_finish(&p.r, unit);
    } else {
        tu__rewrite_abandon(&p.r);
    }
    tu__free(p.class);
    tu__free(p.is_marked);
    tu__free(p.is_narrow);
    tu__free(p.narrowed);
    tu__free(p.widened);
    return status == TU_OK ? tu__unit_drop_dead(unit) : status;
}
