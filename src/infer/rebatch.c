/* Gives a graph another batch size.
 *
 * The shard rules of data parallelism (pass/shard_rules.h) say which axis of a value has the samples. The new graph has
 * the same nodes, with another number of rows along this axis in every attribute that is a shape. A value may have
 * several rows per sample. */
#include "infer/rebatch.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "pass/pass.h"
#include "pass/shard_rules.h"

typedef struct rebatcher {
    tu__rewrite r;
    tu__arena arena;
    int64_t samples, new_samples;
    int *axis; /* per output of the old graph: the axis of the samples, or TU__REPLICATED */
} rebatcher;

static int *axis_of(const rebatcher *b, tu__edge edge) {
    return &b->axis[b->r.first_output[edge.node] + edge.output];
}

static bool is_batched(const tu__node *node) {
    return node->op->code == TU__OP_INPUT && tu__attrs(node, input)->batched;
}

static tu_status find_samples(const tu_graph *graph, int64_t *samples) {
    *samples = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (!is_batched(graph->nodes[i])) continue;
        int64_t rows = graph->nodes[i]->outputs[0].shape.dim[0];
        if (*samples && rows != *samples)
            return tu_fail(TU_UNSUPPORTED,
                           "input '%s' has %lld samples, another one %lld: expected the same number",
                           graph->nodes[i]->name, (long long)rows, (long long)*samples);
        *samples = rows;
    }
    return *samples ? TU_OK : tu_fail(TU_UNSUPPORTED, "the graph has no batch input: see tu_batch_input");
}

/* Returns the attributes with the new number of rows along `axis`. NULL if out of memory. */
static const void *new_attributes(rebatcher *b, const tu__node *node, int axis) {
    size_t bytes = node->op->attr_bytes ? node->op->attr_bytes : 1;
    unsigned char *attrs = tu__arena_copy(&b->arena, node->attrs, bytes);
    if (!attrs || axis < 0) return attrs;
    int64_t rows = node->outputs[0].shape.dim[axis] / b->samples * b->new_samples;
    for (tu__field f = tu__first_field(node->op, attrs); f.attr; f = tu__next_field(f))
        if (f.attr->kind == TU__ATTR_SHAPE) {
            tu_shape shape = tu__field_shape(f, 0);
            shape.dim[axis] = rows;
            memcpy(attrs + (f.cells - attrs), &shape, sizeof shape); /* the field is const */
        }
    if (node->op->code == TU__OP_SLICE) ((struct tu__slice_attrs *)(void *)attrs)->end[axis] = rows;
    return attrs;
}

/* Makes the node of the new graph, with samples along `axis` of its first output. */
static tu_status make_node(rebatcher *b, const tu__node *node, int axis, tu_value *inputs) {
    tu__node_request request = tu__rewrite_request(&b->r, node, inputs);
    request.attrs = new_attributes(b, node, axis);
    if (!request.attrs) return TU_NO_MEMORY;
    tu_value made = tu__rewrite_make(&b->r, node, &request);
    TU_TRY(tu_graph_status(b->r.to));
    tu__rewrite_map_all(&b->r, node, made);
    return TU_OK;
}

/* A value without samples of its own that is read along the axis of the samples can be made with other rows if all rows
 * are equal. */
static tu_status widen_operand(rebatcher *b, const tu__node *node, uint32_t input, int axis,
                               tu_value *value) {
    const tu__node *source = b->r.from->nodes[node->inputs[input].node];
    tu_shape from = source->input_count ? tu_edge_type(b->r.from, source->inputs[0]).shape : TU_SCALAR;
    int64_t source_axis = axis - (source->outputs[0].shape.rank - from.rank);
    bool is_repeated = source->op->code == TU__OP_FILL || (source->op->code == TU__OP_BROADCAST &&
                                                           (source_axis < 0 || from.dim[source_axis] == 1));
    if (!is_repeated)
        return tu_fail(
            TU_UNSUPPORTED,
            "the batch size of this model cannot be changed: %s '%s' combines samples with '%s' %s, which "
            "has a row for each of %lld samples",
            node->op->name, node->name, source->name, tu__type_string(source->outputs[0]),
            (long long)b->samples);
    tu_value inputs[1];
    tu__node_request request = tu__rewrite_request(&b->r, source, inputs);
    request.attrs = new_attributes(b, source, axis);
    if (!request.attrs) return TU_NO_MEMORY;
    *value = tu__rewrite_insert(&b->r, source->name, "/rows", &request);
    return tu_graph_status(b->r.to);
}

static tu_status apply_rule(rebatcher *b, const tu__node *node, tu__sharding *s, int *in) {
    for (uint32_t i = 0; i < node->input_count; i++) in[i] = *axis_of(b, node->inputs[i]);
    TU_TRY(tu__apply_shard_rule(s));
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (s->out[i] < 0)
            return tu_fail(TU_UNSUPPORTED,
                           "the batch size of this model cannot be changed: %s '%s' combines all samples",
                           node->op->name, node->name);
        *axis_of(b, (tu__edge){node->id, i}) = s->out[i];
    }
    return TU_OK;
}

/* Makes a node with a batched operand. */
static tu_status make_batched(rebatcher *b, const tu__node *node, tu_value *inputs) {
    int *layouts = tu__arena_alloc(&b->arena, 2 * ((size_t)node->input_count + 1) * sizeof *layouts);
    if (!layouts) return TU_NO_MEMORY;
    tu__sharding s = {.graph = b->r.from,
                      .node = node,
                      .samples = b->samples,
                      .in = layouts,
                      .read = layouts + node->input_count + 1};
    TU_TRY(apply_rule(b, node, &s, layouts));
    tu__node_request request = tu__rewrite_request(&b->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (layouts[i] < 0 && s.read[i] >= 0) TU_TRY(widen_operand(b, node, i, s.read[i], &inputs[i]));
    request.attrs = new_attributes(b, node, s.out[0]);
    if (!request.attrs) return TU_NO_MEMORY;
    tu_value made = tu__rewrite_make(&b->r, node, &request);
    TU_TRY(tu_graph_status(b->r.to));
    tu__rewrite_map_all(&b->r, node, made);
    return TU_OK;
}

static tu_status rebatch_node(rebatcher *b, const tu__node *node) {
    bool has_samples = false;
    for (uint32_t i = 0; i < node->input_count; i++)
        has_samples = has_samples || *axis_of(b, node->inputs[i]) >= 0;
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu_status status;
    if (has_samples) {
        status = make_batched(b, node, inputs);
    } else {
        int axis = is_batched(node) ? 0 : TU__REPLICATED;
        for (uint32_t i = 0; i < node->output_count; i++) *axis_of(b, (tu__edge){node->id, i}) = axis;
        status = make_node(b, node, axis, inputs);
    }
    tu__free(inputs);
    return status;
}

/* Every result must have the samples along its first axis, so that batches can be divided and joined. */
static tu_status check_results(const rebatcher *b) {
    const tu_graph *graph = b->r.from;
    for (uint32_t i = 0; i < graph->result_count; i++) {
        tu__edge edge = graph->results[i].value;
        if (*axis_of(b, edge) == 0 && tu_edge_type(graph, edge).shape.dim[0] == b->samples) continue;
        return tu_fail(TU_UNSUPPORTED,
                       "result '%s' %s of the model has no row per sample: expected [samples, ...]",
                       graph->results[i].name, tu__type_string(tu_edge_type(graph, edge)));
    }
    return TU_OK;
}

static tu_status rebatch_nodes(rebatcher *b) {
    const tu_graph *graph = b->r.from;
    size_t outputs = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) outputs += graph->nodes[i]->output_count;
    b->axis = tu__arena_alloc(&b->arena, (outputs + 1) * sizeof *b->axis);
    if (!b->axis) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) TU_TRY(rebatch_node(b, graph->nodes[i]));
    return check_results(b);
}

tu_status tu__rebatch(const tu_graph *graph, int64_t samples, tu_graph **rebatched) {
    *rebatched = NULL;
    rebatcher b = {.arena = {.purpose = "another batch size"}, .new_samples = samples};
    TU_TRY(find_samples(graph, &b.samples));
    TU_TRY(tu__rewrite_begin(&b.r, graph));
    tu__unit unit = {0};
    tu_status status = rebatch_nodes(&b);
    if (status == TU_OK)
        status = tu__rewrite_finish(&b.r, &unit);
    else
        tu__rewrite_abandon(&b.r);
    tu__arena_free(&b.arena);
    *rebatched = unit.graph;
    return status;
}
