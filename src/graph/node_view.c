/* Read access to a graph for device plug-ins, through functions that do not depend on the engine's structures. */
#include <string.h>

#include <tutti/node.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/status.h"
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

tu_status tu_node_attribute(const tu_graph *graph, uint32_t node, const char *name, size_t count,
                            void *cells) {
    const tu__node *n = graph->nodes[node];
    const char *value = n->attrs;
    for (uint32_t i = 0; i < n->op->attr_count; i++) {
        const tu__attr *attr = &n->op->attrs[i];
        size_t size = tu__attr_cells(attr);
        if (strcmp(attr->name, name) == 0) {
            memcpy(cells, value, 8 * (size < count ? size : count));
            return TU_OK;
        }
        value += 8 * size;
    }
    return tu_fail(TU_NOT_FOUND, "%s '%s' has no attribute '%s'", n->op->name, n->name, name);
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
