/* Read access to a graph for device plug-ins, through functions that do not depend on the engine's structures. */
#include <string.h>

#include <tutti/custom.h>
#include <tutti/node.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/sized.h"
#include "base/status.h"
#include "graph/attrs.h"
#include "graph/graph.h"

uint32_t tu_node_count(const tu_graph *graph) {
    return graph->node_count;
}

const char *tu_node_operation(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->op->name;
}

const char *tu_node_name(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->name;
}

uint32_t tu_node_inputs(const tu_graph *graph, uint32_t node, uint32_t capacity, tu_edge *inputs) {
    const tu__node *n = graph->nodes[node];
    for (uint32_t i = 0; i < n->input_count && i < capacity; i++) inputs[i] = n->inputs[i];
    return n->input_count;
}

uint32_t tu_node_outputs(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->output_count;
}

tu_type tu_edge_type(const tu_graph *graph, tu_edge edge) {
    return graph->nodes[edge.node]->outputs[edge.output];
}

/* ---- Attributes ---- */

static tu__field find_field(const tu__node *node, const char *name) {
    tu__field f = tu__first_field(node->op, node->attrs);
    while (f.attr && strcmp(f.attr->name, name) != 0) f = tu__next_field(f);
    return f;
}

static tu_status fail_to_find(const tu__node *node, const char *name) {
    return tu_fail(TU_NOT_FOUND, "%s '%s' has no attribute '%s'", node->op->name, node->name, name);
}

static void fill_attribute(tu__field field, tu_attribute *attribute) {
    const void *cells = field.cells;
    bool is_real = field.attr->kind == TU__ATTR_F64, is_shape = field.attr->kind == TU__ATTR_SHAPE;
    tu_attribute full = {.name = field.attr->name,
                         .kind = (tu_attribute_kind)field.attr->kind,
                         .count = field.attr->count,
                         .integers = is_real || is_shape ? NULL : cells,
                         .reals = is_real ? cells : NULL,
                         .shapes = is_shape ? cells : NULL,
                         .choice = tu__field_choice(field, 0)};
    TU__COPY_SIZED(attribute, full);
}

uint32_t tu_node_attribute_count(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->op->attr_count;
}

tu_status tu_node_attribute_at(const tu_graph *graph, uint32_t node, uint32_t index,
                               tu_attribute *attribute) {
    TU_TRY(TU__CHECK_SIZED(tu_attribute, attribute));
    const tu__node *n = graph->nodes[node];
    if (index >= n->op->attr_count)
        return tu_fail(TU_NOT_FOUND, "%s '%s' has no attribute %u: it has %u", n->op->name, n->name, index,
                       n->op->attr_count);
    tu__field f = tu__first_field(n->op, n->attrs);
    for (uint32_t i = 0; i < index; i++) f = tu__next_field(f);
    fill_attribute(f, attribute);
    return TU_OK;
}

tu_status tu_node_find_attribute(const tu_graph *graph, uint32_t node, const char *name,
                                 tu_attribute *attribute) {
    TU_TRY(TU__CHECK_SIZED(tu_attribute, attribute));
    tu__field f = find_field(graph->nodes[node], name);
    if (!f.attr) return fail_to_find(graph->nodes[node], name);
    fill_attribute(f, attribute);
    return TU_OK;
}

tu_status tu_node_attribute(const tu_graph *graph, uint32_t node, const char *name, size_t count,
                            void *cells) {
    tu__field f = find_field(graph->nodes[node], name);
    if (!f.attr) return fail_to_find(graph->nodes[node], name);
    size_t size = tu__field_bytes(f);
    memcpy(cells, f.cells, count < size / 8 ? 8 * count : size);
    return TU_OK;
}

/* ---- Operations ---- */

uint32_t tu_node_traits(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->op->traits;
}

const char *tu_node_expression(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->op->expression;
}

const void *tu_node_constant(const tu_graph *graph, uint32_t node, size_t *bytes) {
    const tu__node *n = graph->nodes[node];
    bool is_constant = n->op->code == TU__OP_CONSTANT;
    if (bytes) *bytes = is_constant ? tu_type_bytes(n->outputs[0]) : 0;
    return is_constant ? n->data : NULL;
}

const tu_custom_op *tu_node_custom(const tu_graph *graph, uint32_t node) {
    return graph->nodes[node]->custom;
}

/* ---- Evaluating one node with its reference kernel: convert to f64, compute, round back ---- */

static void free_tensors(tu__tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; tensors && i < count; i++) tu__free(tensors[i].data);
    tu__free(tensors);
}

/* Allocates f64 tensors for the inputs and then the outputs, and converts the inputs. */
static tu__tensor *convert_to_f64(const tu_graph *graph, const tu__node *n, const void *const *in) {
    uint32_t count = n->input_count + n->output_count;
    tu__tensor *t = tu__alloc_array(count, sizeof *t, "an operation's tensors");
    for (uint32_t i = 0; t && i < count; i++) {
        bool is_input = i < n->input_count;
        t[i].type = is_input ? tu_edge_type(graph, n->inputs[i]) : n->outputs[i - n->input_count];
        int64_t elements = tu_shape_elements(t[i].type.shape);
        t[i].data = tu__alloc_array((size_t)elements, sizeof(double), n->name);
        if (!t[i].data) {
            free_tensors(t, count);
            return NULL;
        }
        if (is_input) tu__load_array(t[i].type.dtype, in[i], elements, t[i].data);
    }
    return t;
}

tu_status tu_node_evaluate(const tu_graph *graph, uint32_t node, uint64_t seed, const void *const *in,
                           void *const *out) {
    const tu__node *n = graph->nodes[node];
    tu__tensor *t = convert_to_f64(graph, n, in);
    if (!t) return TU_NO_MEMORY;
    tu__reference_call call = {
        .node = n, .attrs = n->attrs, .in = t, .out = t + n->input_count, .seed = seed};
    tu_status status = n->op->reference(&call);
    for (uint32_t i = 0; i < n->output_count && status == TU_OK; i++) {
        const tu__tensor *r = &call.out[i];
        tu__store_array(r->type.dtype, r->data, tu_shape_elements(r->type.shape), out[i]);
    }
    free_tensors(t, n->input_count + n->output_count);
    return status;
}
