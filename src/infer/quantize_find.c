/* Finds the layers of a frozen graph that can be quantized, and the values to calibrate. */
#include <string.h>

#include "graph/ops/window.h"
#include "infer/quantizer.h"

enum { MAX_TERMS = 1 << 16 }; /* of a sum of int8 products: see conv2d_int8 */

static const tu__node *input_of(const tu_graph *graph, const tu__node *node, uint32_t index) {
    return graph->nodes[node->inputs[index].node];
}

/* True if the node, or a reshape or broadcast of it, is a constant. */
static bool is_constant(const tu__node *node) {
    return node->op->code == TU__OP_CONSTANT || node->op->code == TU__OP_FILL;
}

static bool is_f32(const tu__node *node) {
    return node->outputs[0].dtype == TU_F32;
}

/* ---- Readers ---- */

static tu_status find_readers(tu__quantizer *q) {
    const tu_graph *g = q->graph;
    uint32_t *read_count = tu__arena_alloc(&q->arena, ((size_t)g->node_count + 1) * sizeof *read_count);
    q->only_reader = tu__arena_alloc(&q->arena, ((size_t)g->node_count + 1) * sizeof *q->only_reader);
    if (!read_count || !q->only_reader) return TU_NO_MEMORY;
    for (uint32_t id = 0; id < g->node_count; id++)
        for (uint32_t i = 0; i < g->nodes[id]->input_count; i++) {
            read_count[g->nodes[id]->inputs[i].node]++;
            q->only_reader[g->nodes[id]->inputs[i].node] = id;
        }
    for (uint32_t i = 0; i < g->result_count; i++) read_count[g->results[i].value.node] += 2;
    for (uint32_t id = 0; id < g->node_count; id++)
        if (read_count[id] != 1) q->only_reader[id] = TU_NO_NODE;
    return TU_OK;
}

/* Returns the only reader of a node's value if it has this operation and keeps the value's type; else NULL. */
static const tu__node *reader_with_op(const tu__quantizer *q, uint32_t id, tu__opcode op) {
    const uint32_t reader_id = q->only_reader[id];
    if (reader_id == TU_NO_NODE || q->layer_of[reader_id] != UINT32_MAX) return NULL;
    const tu__node *reader = q->graph->nodes[reader_id], *node = q->graph->nodes[id];
    const bool keeps_type =
        is_f32(reader) && tu_shape_equal(reader->outputs[0].shape, node->outputs[0].shape);
    return reader->op->code == op && keeps_type ? reader : NULL;
}

/* ---- Layers ---- */

static bool is_product(const tu_graph *graph, const tu__node *node) {
    const bool is_conv = node->op->code == TU__OP_CONV2D && tu__attrs(node, conv2d)->groups == 1;
    const bool is_matmul = node->op->code == TU__OP_MATMUL && !tu__attrs(node, matmul)->transpose_a;
    if (!(is_conv || is_matmul) || !is_f32(node)) return false;
    const tu__node *weights = input_of(graph, node, 1);
    const tu_shape shape = weights->outputs[0].shape;
    if (weights->op->code != TU__OP_CONSTANT || is_constant(input_of(graph, node, 0))) return false;
    if (is_matmul && (shape.rank != 2 || input_of(graph, node, 0)->outputs[0].shape.rank != 2)) return false;
    const int64_t channels = node->outputs[0].shape.dim[node->outputs[0].shape.rank - 1];
    return tu_shape_elements(shape) / channels <= MAX_TERMS;
}

/* Returns the addition of a constant with one number per channel after the node. */
static const tu__node *find_bias(const tu__quantizer *q, uint32_t id) {
    const tu__node *add = reader_with_op(q, id, TU__OP_ADD);
    if (!add) return NULL;
    const tu__node *other = input_of(q->graph, add, add->inputs[0].node == id ? 1 : 0);
    const tu_shape shape = other->outputs[0].shape, result = add->outputs[0].shape;
    const int64_t channels = result.dim[result.rank - 1];
    const bool is_per_channel =
        tu_shape_elements(shape) == channels && shape.rank >= 1 && shape.dim[shape.rank - 1] == channels;
    return other->op->code == TU__OP_CONSTANT && is_per_channel ? add : NULL;
}

bool tu__is_residual_addition(const tu_graph *graph, const tu__node *node) {
    if (node->op->code != TU__OP_ADD || !is_f32(node)) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const tu__node *operand = input_of(graph, node, i);
        if (is_constant(operand) || !tu_shape_equal(operand->outputs[0].shape, node->outputs[0].shape))
            return false;
    }
    return node->inputs[0].node != node->inputs[1].node;
}

static void extend_layer(const tu__quantizer *q, tu__layer *layer) {
    const tu__node *bias = find_bias(q, layer->last);
    if (bias) layer->last = layer->bias = bias->id;
    const tu__node *add = reader_with_op(q, layer->last, TU__OP_ADD);
    if (add && tu__is_residual_addition(q->graph, add)) {
        layer->residual = add->inputs[add->inputs[0].node == layer->last ? 1 : 0].node;
        layer->last = layer->add = add->id;
    }
    const tu__node *relu = reader_with_op(q, layer->last, TU__OP_RELU);
    if (relu) layer->last = layer->relu = relu->id;
}

static tu_status find_layers(tu__quantizer *q) {
    const tu_graph *g = q->graph;
    const size_t count = (size_t)g->node_count + 1;
    q->layers = tu__arena_alloc(&q->arena, count * sizeof *q->layers);
    q->layer_of = tu__arena_alloc(&q->arena, count * sizeof *q->layer_of);
    if (!q->layers || !q->layer_of) return TU_NO_MEMORY;
    for (uint32_t id = 0; id < g->node_count; id++) q->layer_of[id] = UINT32_MAX;
    for (uint32_t id = 0; id < g->node_count; id++) {
        if (!is_product(g, g->nodes[id])) continue;
        tu__layer layer = {id, TU_NO_NODE, TU_NO_NODE, TU_NO_NODE, id, TU_NO_NODE};
        extend_layer(q, &layer);
        const uint32_t nodes[4] = {layer.product, layer.bias, layer.add, layer.relu};
        for (int i = 0; i < 4; i++)
            if (nodes[i] != TU_NO_NODE) q->layer_of[nodes[i]] = (uint32_t)q->layer_count;
        q->layers[q->layer_count++] = layer;
    }
    if (q->layer_count) return TU_OK;
    return tu_fail(
        TU_UNSUPPORTED,
        "the graph has no layer that can be quantized: expected convolutions or matrix products of f32 "
        "with constant weights");
}

/* ---- Values to calibrate ---- */

bool tu__is_mean_over_pixels(const tu_graph *graph, const tu__node *node) {
    const int64_t height_and_width = 1 << 1 | 1 << 2;
    return node->op->code == TU__OP_MEAN && is_f32(node) &&
           input_of(graph, node, 0)->outputs[0].shape.rank == 4 &&
           tu__attrs(node, mean)->axes == height_and_width && !tu__attrs(node, mean)->keep;
}

static void measure(tu__quantizer *q, uint32_t id) {
    if (q->measure_of[id] != UINT32_MAX) return;
    q->measure_of[id] = (uint32_t)q->measured_count;
    q->measured[q->measured_count++] = id;
}

/* Measures what may become u8: inputs, residuals and values of layers, means, and additions with their relu. */
static tu_status choose_measured(tu__quantizer *q) {
    const tu_graph *g = q->graph;
    const size_t count = (size_t)g->node_count + 1;
    q->measured = tu__arena_alloc(&q->arena, count * sizeof *q->measured);
    q->measure_of = tu__arena_alloc(&q->arena, count * sizeof *q->measure_of);
    if (!q->measured || !q->measure_of) return TU_NO_MEMORY;
    for (uint32_t id = 0; id < g->node_count; id++) q->measure_of[id] = UINT32_MAX;
    for (size_t i = 0; i < q->layer_count; i++) {
        const tu__layer *layer = &q->layers[i];
        measure(q, g->nodes[layer->product]->inputs[0].node);
        if (layer->residual != TU_NO_NODE) measure(q, layer->residual);
        measure(q, layer->last);
    }
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tu__node *node = g->nodes[id];
        if (tu__is_mean_over_pixels(g, node)) measure(q, id);
        if (!tu__is_residual_addition(g, node)) continue;
        const uint32_t reader = q->only_reader[id];
        const bool has_relu = reader != TU_NO_NODE && g->nodes[reader]->op->code == TU__OP_RELU;
        measure(q, has_relu ? reader : id);
    }
    return TU_OK;
}

tu_status tu__quantizer_find(tu__quantizer *q) {
    TU_TRY(find_readers(q));
    TU_TRY(find_layers(q));
    return choose_measured(q);
}
