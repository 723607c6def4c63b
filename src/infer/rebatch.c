/* Gives a graph another batch size: resizes the axis that has the samples (resize.h). A value may have several rows per
 * sample. */
#include "infer/rebatch.h"

#include "base/alloc.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "infer/resize.h"
#include "pass/shard_rules.h"

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

/* A value without samples of its own that is read along the axis of the samples can be made with other rows if all rows
 * are equal. */
static tu_status widen_operand(tu__resize *b, const tu__node *node, uint32_t input, int axis,
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
            (long long)b->before);
    tu_value inputs[1];
    tu__node_request request = tu__rewrite_request(&b->r, source, inputs);
    request.attrs = tu__resize_attributes(b, source, axis);
    if (!request.attrs) return TU_NO_MEMORY;
    *value = tu__rewrite_insert(&b->r, source->name, "/rows", &request);
    return tu_graph_status(b->r.to);
}

static tu_status apply_rule(tu__resize *b, const tu__node *node, tu__sharding *s, int *in) {
    for (uint32_t i = 0; i < node->input_count; i++) in[i] = *tu__resize_axis(b, node->inputs[i]);
    TU_TRY(tu__apply_shard_rule(s));
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (s->out[i] < 0)
            return tu_fail(TU_UNSUPPORTED,
                           "the batch size of this model cannot be changed: %s '%s' combines all samples",
                           node->op->name, node->name);
        *tu__resize_axis(b, (tu__edge){node->id, i}) = s->out[i];
    }
    return TU_OK;
}

/* Makes a node with a batched operand. */
static tu_status make_batched(tu__resize *b, const tu__node *node, tu_value *inputs) {
    int *layouts = tu__arena_alloc(&b->arena, 2 * ((size_t)node->input_count + 1) * sizeof *layouts);
    if (!layouts) return TU_NO_MEMORY;
    tu__sharding s = {.graph = b->r.from,
                      .node = node,
                      .samples = b->before,
                      .in = layouts,
                      .read = layouts + node->input_count + 1};
    TU_TRY(apply_rule(b, node, &s, layouts));
    tu__node_request request = tu__rewrite_request(&b->r, node, inputs);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (layouts[i] < 0 && s.read[i] >= 0) TU_TRY(widen_operand(b, node, i, s.read[i], &inputs[i]));
    return tu__resize_make(b, node, s.out[0], &request);
}

static tu_status rebatch_node(tu__resize *b, const tu__node *node) {
    bool has_samples = false;
    for (uint32_t i = 0; i < node->input_count; i++)
        has_samples = has_samples || *tu__resize_axis(b, node->inputs[i]) >= 0;
    tu_value *inputs =
        tu__alloc_array((size_t)node->input_count + 1, sizeof *inputs, "an operation's inputs");
    if (!inputs) return TU_NO_MEMORY;
    tu_status status;
    if (has_samples) {
        status = make_batched(b, node, inputs);
    } else {
        int axis = is_batched(node) ? 0 : TU__REPLICATED;
        for (uint32_t i = 0; i < node->output_count; i++) *tu__resize_axis(b, (tu__edge){node->id, i}) = axis;
        tu__node_request request = tu__rewrite_request(&b->r, node, inputs);
        status = tu__resize_make(b, node, axis, &request);
    }
    tu__free(inputs);
    return status;
}

/* Every result must have the samples along its first axis, so that batches can be divided and joined. */
static tu_status check_results(const tu__resize *b) {
    const tu_graph *graph = b->r.from;
    for (uint32_t i = 0; i < graph->result_count; i++) {
        tu__edge edge = graph->results[i].value;
        if (*tu__resize_axis(b, edge) == 0 && tu_edge_type(graph, edge).shape.dim[0] == b->before) continue;
        return tu_fail(TU_UNSUPPORTED,
                       "result '%s' %s of the model has no row per sample: expected [samples, ...]",
                       graph->results[i].name, tu__type_string(tu_edge_type(graph, edge)));
    }
    return TU_OK;
}

static tu_status rebatch_nodes(tu__resize *b) {
    const tu_graph *graph = b->r.from;
    for (uint32_t i = 0; i < graph->node_count; i++) TU_TRY(rebatch_node(b, graph->nodes[i]));
    return check_results(b);
}

tu_status tu__rebatch(const tu_graph *graph, int64_t samples, tu_graph **rebatched) {
    *rebatched = NULL;
    tu__resize b = {.arena = {.purpose = "another batch size"}, .after = samples};
    TU_TRY(find_samples(graph, &b.before));
    TU_TRY(tu__resize_begin(&b, graph));
    return tu__resize_end(&b, rebatch_nodes(&b), rebatched);
}
