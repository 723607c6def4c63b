/* Another size of one axis of a graph. See resize.h. */
#include "infer/resize.h"

#include <string.h>

#include "graph/attrs.h"
#include "pass/shard_rules.h"

static tu_status allocate_axes(tu__resize *z, const tu_graph *graph) {
    size_t outputs = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) outputs += graph->nodes[i]->output_count;
    z->axis = tu__arena_alloc(&z->arena, (outputs + 1) * sizeof *z->axis);
    for (size_t i = 0; z->axis && i < outputs; i++) z->axis[i] = TU__REPLICATED;
    return z->axis ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__resize_begin(tu__resize *z, const tu_graph *graph) {
    tu_status status = allocate_axes(z, graph);
    if (status == TU_OK) status = tu__rewrite_begin(&z->r, graph);
    if (status != TU_OK) tu__arena_free(&z->arena);
    return status;
}

tu_status tu__resize_end(tu__resize *z, tu_status status, tu_graph **resized) {
    tu__unit unit = {0};
    if (status == TU_OK)
        status = tu__rewrite_finish(&z->r, &unit);
    else
        tu__rewrite_abandon(&z->r);
    tu__arena_free(&z->arena);
    *resized = unit.graph;
    return status;
}

int *tu__resize_axis(const tu__resize *z, tu__edge edge) {
    return &z->axis[z->r.first_output[edge.node] + edge.output];
}

const void *tu__resize_attributes(tu__resize *z, const tu__node *node, int axis) {
    size_t bytes = node->op->attr_bytes ? node->op->attr_bytes : 1;
    unsigned char *attrs = tu__arena_copy(&z->arena, node->attrs, bytes);
    if (!attrs || axis < 0) return attrs;
    int64_t rows = node->outputs[0].shape.dim[axis] / z->before * z->after;
    for (tu__field f = tu__first_field(node->op, attrs); f.attr; f = tu__next_field(f))
        if (f.attr->kind == TU__ATTR_SHAPE) {
            tu_shape shape = tu__field_shape(f, 0);
            shape.dim[axis] = rows;
            memcpy(attrs + (f.cells - attrs), &shape, sizeof shape); /* the field is const */
        }
    if (node->op->code == TU__OP_SLICE) ((struct tu__slice_attrs *)(void *)attrs)->end[axis] = rows;
    return attrs;
}

tu_status tu__resize_make(tu__resize *z, const tu__node *node, int axis, tu__node_request *request) {
    request->attrs = tu__resize_attributes(z, node, axis);
    if (!request->attrs) return TU_NO_MEMORY;
    tu_value made = tu__rewrite_make(&z->r, node, request);
    TU_TRY(tu_graph_status(z->r.to));
    tu__rewrite_map_all(&z->r, node, made);
    return TU_OK;
}
