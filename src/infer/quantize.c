/* Builds the quantized graph.
 *
 * Every value of the frozen graph has up to two forms in the new graph: f32, and u8 with a scale and a zero point. Nodes
 * are visited in order; each is made in the form that its readers want, and the other form is made by a conversion when
 * the first reader needs it.
 *
 * A layer with a scale s_x of its input, s_w per channel of its weights and s_y of its value is
 *
 *     sums = conv2d_int8(x, weights)                                  in units of s_x * s_w
 *     y    = requantize(sums, s_x * s_w / s_y, bias [, residual])     relu: y is at least its zero point
 *
 * The value of a matrix product that only f32 operations read, such as logits, is computed from the sums in f32, without
 * rounding to u8. That of a convolution is always rounded: writing a quarter of the bytes saves more than it costs. */
#include "infer/quantize.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "infer/quantizer.h"
#include "pass/pass.h"

#define COVERAGE 0.9999 /* of TU__PERCENTILE */

typedef struct scaling { /* of a u8 value */
    double scale;
    int64_t zero;
} scaling;

typedef struct builder {
    const tu__quantizer *q;
    const tu_graph *graph;
    double coverage;
    const bool *keep; /* per layer; NULL: none */
    tu__arena arena;
    tu__rewrite r;
    /* Per node: a reader wants its value as u8; it is part of a node made before; its u8 value (graph NULL: none). */
    bool *is_wanted, *is_made;
    tu_value *bytes;
    scaling *scalings;
} builder;

static bool is_quantized(const builder *b, uint32_t layer) {
    return layer != UINT32_MAX && !(b->keep && b->keep[layer]);
}

/* Returns the relu that is the only reader of an addition outside of layers; NULL if there is none. */
static const tu__node *relu_after(const builder *b, uint32_t id) {
    const uint32_t reader = b->q->only_reader[id];
    if (reader == TU_NO_NODE || b->q->layer_of[reader] != UINT32_MAX) return NULL;
    return b->graph->nodes[reader]->op->code == TU__OP_RELU ? b->graph->nodes[reader] : NULL;
}

/* ---- Which values are wanted as u8 ---- */

static bool is_wanted_after_relu(const builder *b, uint32_t id) {
    const tu__node *relu = relu_after(b, id);
    return b->is_wanted[id] || (relu && b->is_wanted[relu->id]);
}

static void want_inputs(builder *b, const tu__node *node) {
    const uint32_t layer = b->q->layer_of[node->id];
    if (is_quantized(b, layer)) {
        const tu__layer *l = &b->q->layers[layer];
        if (node->id == l->product) b->is_wanted[node->inputs[0].node] = true;
        if (node->id == l->add) b->is_wanted[l->residual] = true;
        if (node->id == l->last && b->graph->nodes[l->product]->op->code == TU__OP_CONV2D)
            b->is_wanted[node->id] = true;
        return;
    }
    const bool passes_on = node->op->code == TU__OP_MAX_POOL || node->op->code == TU__OP_RESHAPE ||
                           tu__is_mean_over_pixels(b->graph, node);
    if (passes_on && b->is_wanted[node->id]) b->is_wanted[node->inputs[0].node] = true;
    if (layer == UINT32_MAX && tu__is_residual_addition(b->graph, node) && is_wanted_after_relu(b, node->id))
        b->is_wanted[node->inputs[0].node] = b->is_wanted[node->inputs[1].node] = true;
}

static tu_status prepare(builder *b) {
    const size_t count = (size_t)b->graph->node_count + 1;
    b->is_wanted = tu__arena_alloc(&b->arena, count * sizeof *b->is_wanted);
    b->is_made = tu__arena_alloc(&b->arena, count * sizeof *b->is_made);
    b->bytes = tu__arena_alloc(&b->arena, count * sizeof *b->bytes);
    b->scalings = tu__arena_alloc(&b->arena, count * sizeof *b->scalings);
    if (!b->is_wanted || !b->is_made || !b->bytes || !b->scalings) return TU_NO_MEMORY;
    for (uint32_t id = b->graph->node_count; id-- > 0;) want_inputs(b, b->graph->nodes[id]);
    return TU_OK;
}

/* ---- The two forms of a value ---- */

static scaling measured_scaling(const builder *b, uint32_t id) {
    double low, high;
    tu__histogram_range(&b->q->histograms[b->q->measure_of[id]], b->coverage, &low, &high);
    double scale = fmin(fmax((high - low) / UINT8_MAX, 0x1p-40), 0x1p40);
    if (high <= low) scale = 1; /* all values are zero */
    return (scaling){scale, (int64_t)fmin(nearbyint(-low / scale), UINT8_MAX)};
}

static void set_bytes(builder *b, uint32_t id, tu_value value, scaling s) {
    b->bytes[id] = value;
    b->scalings[id] = s;
}

static bool has_bytes(const builder *b, uint32_t id) {
    return b->bytes[id].graph != NULL;
}

static double single(double x) {
    const volatile float nearest = (float)x; /* volatile: see graph/ops/quantized.c */
    return (double)nearest;
}

static tu_value insert(builder *b, const tu__node *base, const char *suffix, tu__opcode op, const void *attrs,
                       size_t count, const tu_value *inputs) {
    return tu__rewrite_insert(
        &b->r, base->name, suffix,
        &(tu__node_request){.op = op, .attrs = attrs, .inputs = inputs, .input_count = count});
}

/* Makes a node that replaces one of the old graph, under its name. */
static tu_value make(builder *b, const tu__node *node, tu__opcode op, const void *attrs, size_t count,
                     const tu_value *inputs) {
    return tu__rewrite_make(
        &b->r, node, &(tu__node_request){.op = op, .attrs = attrs, .inputs = inputs, .input_count = count});
}

/* Returns the u8 form of a measured value. */
static tu_value bytes_of(builder *b, uint32_t id) {
    if (has_bytes(b, id)) return b->bytes[id];
    const scaling s = measured_scaling(b, id);
    const tu_value x = tu__rewrite_value(&b->r, (tu__edge){id, 0});
    const struct tu__quantize_attrs attrs = {.factor = single(1 / s.scale), .zero = s.zero};
    set_bytes(b, id, insert(b, b->graph->nodes[id], "/quantized", TU__OP_QUANTIZE, &attrs, 1, &x), s);
    return b->bytes[id];
}

/* Makes sure that the value has its f32 form. */
static tu_value numbers_of(builder *b, uint32_t id) {
    const tu__edge edge = {id, 0};
    if (tu__rewrite_value(&b->r, edge).node == TU_NO_NODE && has_bytes(b, id)) {
        const struct tu__dequantize_attrs attrs = {.factor = single(b->scalings[id].scale),
                                                   .zero = b->scalings[id].zero};
        tu__rewrite_map(
            &b->r, edge,
            insert(b, b->graph->nodes[id], "/dequantized", TU__OP_DEQUANTIZE, &attrs, 1, &b->bytes[id]));
    }
    return tu__rewrite_value(&b->r, edge);
}

static tu_status copy(builder *b, const tu__node *node) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i].output == 0) numbers_of(b, node->inputs[i].node);
    TU_TRY(tu_graph_status(b->r.to));
    return tu__rewrite_copy(&b->r, node);
}

/* ---- Layers ---- */

static tu_value constant(builder *b, const tu__node *base, const char *suffix, tu_type type,
                         const void *elements) {
    tu__shared_data *data = tu__shared_data_new(tu_type_bytes(type), base->name);
    if (!data) return tu__graph_fail(b->r.to, TU_NO_MEMORY, "%s", tu_message());
    memcpy(data->data, elements, tu_type_bytes(type));
    const struct tu__constant_attrs attrs = {.dtype = type.dtype, .shape = type.shape};
    const tu_value value =
        tu__rewrite_insert(&b->r, base->name, suffix,
                           &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = data});
    tu__shared_data_release(data);
    return value;
}

/* Makes a constant with the factors s_x * s_w / s_y. */
static tu_value make_factors(builder *b, const tu__node *product, const tu__quantized_weights *w,
                             double input_scale, double result_scale) {
    float *factors = tu__alloc_array((size_t)w->channels, sizeof *factors, "factors of a layer");
    if (!factors) return tu__graph_fail(b->r.to, TU_NO_MEMORY, "%s", tu_message());
    for (int64_t c = 0; c < w->channels; c++) factors[c] = (float)(input_scale * w->scales[c] / result_scale);
    const tu_value value =
        constant(b, product, "/factors", (tu_type){TU_F32, TU_SHAPE(w->channels)}, factors);
    tu__free(factors);
    return value;
}

static tu_value make_sums(builder *b, const tu__node *product, const tu__quantized_weights *w) {
    const uint32_t x = product->inputs[0].node;
    const tu_value weights =
        constant(b, b->graph->nodes[product->inputs[1].node], "/int8", w->type, w->weights);
    const tu_value inputs[2] = {bytes_of(b, x), weights};
    if (product->op->code == TU__OP_MATMUL) {
        const struct tu__matmul_int8_attrs attrs = {.zero = b->scalings[x].zero};
        return make(b, product, TU__OP_MATMUL_INT8, &attrs, 2, inputs);
    }
    const struct tu__conv2d_attrs *a = tu__attrs(product, conv2d);
    const struct tu__conv2d_int8_attrs attrs = {.stride = {a->stride[0], a->stride[1]},
                                                .pad = {a->pad[0], a->pad[1], a->pad[2], a->pad[3]},
                                                .dilation = {a->dilation[0], a->dilation[1]},
                                                .groups = a->groups,
                                                .zero = b->scalings[x].zero};
    return make(b, product, TU__OP_CONV2D_INT8, &attrs, 2, inputs);
}

/* Makes the value of the layer as u8. */
static void requantize(builder *b, const tu__layer *l, const tu__quantized_weights *w, tu_value sums) {
    const tu__node *product = b->graph->nodes[l->product];
    const scaling x = b->scalings[product->inputs[0].node], y = measured_scaling(b, l->last);
    tu_value inputs[4] = {sums, make_factors(b, product, w, x.scale, y.scale),
                          constant(b, product, "/bias", (tu_type){TU_I32, TU_SHAPE(w->channels)}, w->bias)};
    const int64_t low = l->relu == TU_NO_NODE ? 0 : y.zero;
    tu_value value;
    if (l->add == TU_NO_NODE) {
        const struct tu__requantize_attrs attrs = {.zero = y.zero, .low = low, .high = UINT8_MAX};
        value = insert(b, product, "/requantized", TU__OP_REQUANTIZE, &attrs, 3, inputs);
    } else {
        inputs[3] = bytes_of(b, l->residual);
        const scaling residual = b->scalings[l->residual];
        const struct tu__requantize_add_attrs attrs = {.zero = y.zero,
                                                       .low = low,
                                                       .high = UINT8_MAX,
                                                       .factor = single(residual.scale / y.scale),
                                                       .residual_zero = residual.zero};
        value = insert(b, product, "/requantized", TU__OP_REQUANTIZE_ADD, &attrs, 4, inputs);
    }
    set_bytes(b, l->last, value, y);
}

/* Makes the value of the layer from its sums, in f32. */
static void compute_in_f32(builder *b, const tu__layer *l, const tu__quantized_weights *w, tu_value sums) {
    const tu__node *product = b->graph->nodes[l->product];
    const struct tu__cast_attrs to_f32 = {.dtype = TU_F32};
    tu_value y = insert(b, product, "/sums", TU__OP_CAST, &to_f32, 1, &sums);
    const tu_value factors = make_factors(b, product, w, b->scalings[product->inputs[0].node].scale, 1);
    y = insert(b, product, "/scaled", TU__OP_MUL, NULL, 2, (tu_value[]){y, factors});
    if (l->bias != TU_NO_NODE) {
        const tu__node *add = b->graph->nodes[l->bias];
        const uint32_t operand = add->inputs[add->inputs[0].node == l->product ? 1 : 0].node;
        y = make(b, add, TU__OP_ADD, NULL, 2, (tu_value[]){y, numbers_of(b, operand)});
    }
    if (l->add != TU_NO_NODE)
        y = make(b, b->graph->nodes[l->add], TU__OP_ADD, NULL, 2,
                 (tu_value[]){y, numbers_of(b, l->residual)});
    if (l->relu != TU_NO_NODE) y = make(b, b->graph->nodes[l->relu], TU__OP_RELU, NULL, 1, &y);
    tu__rewrite_map(&b->r, (tu__edge){l->last, 0}, y);
}

static tu_status build_layer(builder *b, const tu__layer *l) {
    const tu__node *product = b->graph->nodes[l->product];
    bytes_of(b, product->inputs[0].node);
    tu__quantized_weights w;
    TU_TRY(tu__quantize_weights(b->graph, l, b->scalings[product->inputs[0].node].scale, &b->arena, &w));
    const tu_value sums = make_sums(b, product, &w);
    if (b->is_wanted[l->last])
        requantize(b, l, &w, sums);
    else
        compute_in_f32(b, l, &w, sums);
    return tu_graph_status(b->r.to);
}

/* ---- Other operations on u8 ---- */

/* Makes an addition of two u8 values, with the relu after it if there is one. Returns false if an operand has no u8
 * form. */
static bool build_addition(builder *b, const tu__node *node) {
    const uint32_t in[2] = {node->inputs[0].node, node->inputs[1].node};
    if (!has_bytes(b, in[0]) || !has_bytes(b, in[1]) || !is_wanted_after_relu(b, node->id)) return false;
    const tu__node *relu = relu_after(b, node->id);
    const uint32_t last = relu ? relu->id : node->id;
    const scaling y = measured_scaling(b, last);
    const struct tu__add_int8_attrs attrs = {
        .factor = {single(b->scalings[in[0]].scale / y.scale), single(b->scalings[in[1]].scale / y.scale)},
        .input_zero = {b->scalings[in[0]].zero, b->scalings[in[1]].zero},
        .zero = y.zero,
        .low = relu ? y.zero : 0,
        .high = UINT8_MAX};
    set_bytes(b, last,
              make(b, node, TU__OP_ADD_INT8, &attrs, 2, (tu_value[]){b->bytes[in[0]], b->bytes[in[1]]}), y);
    if (relu) b->is_made[relu->id] = true;
    return true;
}

static void build_mean(builder *b, const tu__node *node) {
    const uint32_t x = node->inputs[0].node;
    const int64_t *size = b->graph->nodes[x]->outputs[0].shape.dim;
    const scaling y = measured_scaling(b, node->id);
    const double pixels = (double)size[1] * (double)size[2];
    const struct tu__mean_int8_attrs attrs = {.factor = single(b->scalings[x].scale / (y.scale * pixels)),
                                              .input_zero = b->scalings[x].zero,
                                              .zero = y.zero};
    set_bytes(b, node->id, make(b, node, TU__OP_MEAN_INT8, &attrs, 1, &b->bytes[x]), y);
}

/* Makes the u8 form of a node outside of quantized layers, if its operands have one. */
static bool build_on_bytes(builder *b, const tu__node *node) {
    if (tu__is_residual_addition(b->graph, node) && b->q->layer_of[node->id] == UINT32_MAX)
        return build_addition(b, node);
    if (node->input_count == 0 || node->inputs[0].output != 0 || !has_bytes(b, node->inputs[0].node))
        return false;
    const uint32_t x = node->inputs[0].node;
    const bool is_reshape = node->op->code == TU__OP_RESHAPE && b->is_wanted[node->id];
    if (node->op->code == TU__OP_MAX_POOL || is_reshape) {
        set_bytes(b, node->id, make(b, node, node->op->code, node->attrs, 1, &b->bytes[x]), b->scalings[x]);
        return true;
    }
    if (!tu__is_mean_over_pixels(b->graph, node) || !b->is_wanted[node->id]) return false;
    build_mean(b, node);
    return true;
}

static tu_status build_node(builder *b, const tu__node *node) {
    const uint32_t layer = b->q->layer_of[node->id];
    if (b->is_made[node->id]) return TU_OK;
    if (is_quantized(b, layer))
        return b->q->layers[layer].last == node->id ? build_layer(b, &b->q->layers[layer]) : TU_OK;
    return build_on_bytes(b, node) ? tu_graph_status(b->r.to) : copy(b, node);
}

static tu_status build_nodes(builder *b) {
    TU_TRY(prepare(b));
    for (uint32_t id = 0; id < b->graph->node_count; id++) TU_TRY(build_node(b, b->graph->nodes[id]));
    for (uint32_t i = 0; i < b->graph->result_count; i++)
        if (b->graph->results[i].value.output == 0) numbers_of(b, b->graph->results[i].value.node);
    return tu_graph_status(b->r.to);
}

/* ---- The graph ---- */

static tu_status build_unit(builder *b, tu__unit *unit) {
    TU_TRY(tu__rewrite_begin(&b->r, b->graph));
    const tu_status status = build_nodes(b);
    if (status != TU_OK) {
        tu__rewrite_abandon(&b->r);
        return status;
    }
    TU_TRY(tu__rewrite_finish(&b->r, unit));
    return tu__unit_drop_dead(unit);
}

/* Begins a unit with a copy of the graph, whose named results are needed. */
static tu_status begin_unit(const tu_graph *graph, tu__unit *unit) {
    tu_value *results = tu__alloc_array((size_t)graph->result_count + 1, sizeof *results, "a model");
    if (!results) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->result_count; i++)
        results[i] =
            tu__value((tu_graph *)graph, graph->results[i].value.node, graph->results[i].value.output);
    const tu_status status = tu__unit_begin(unit, graph, graph->result_count, results, false);
    tu__free(results);
    return status;
}

tu_status tu__quantizer_build(const tu__quantizer *q, tu__calibration_method method, const bool *keep,
                              tu_graph **quantized) {
    *quantized = NULL;
    if (!q->batches)
        return tu_fail(TU_INVALID, "the quantizer has seen no batch: calibrate it with at least one");
    builder b = {.q = q,
                 .graph = q->graph,
                 .coverage = method == TU__PERCENTILE ? COVERAGE : 1,
                 .keep = keep,
                 .arena = {.purpose = "a quantized graph"}};
    tu__unit unit;
    TU_TRY(begin_unit(q->graph, &unit));
    tu_status status = build_unit(&b, &unit);
    if (status == TU_OK) {
        *quantized = unit.graph;
        unit.graph = NULL;
    }
    tu__unit_end(&unit);
    tu__arena_free(&b.arena);
    return status;
}
