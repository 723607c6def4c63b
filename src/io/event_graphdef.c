/* Serialises a graph as a TensorFlow GraphDef: name, operation, inputs, device and output shapes of each node.
 * TensorBoard groups nodes by the scopes in their names and shows the shapes as edge labels. */
#include <stdio.h>

#include <tutti/device.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "io/event_messages.h"
#include "io/protobuf.h"

/* Field numbers of graph.proto, node_def.proto, attr_value.proto, tensor_shape.proto and versions.proto in
 * tensorflow/core/framework. */
enum {
    GRAPH_NODE = 1,
    GRAPH_VERSIONS = 4,
    NODE_NAME = 1,
    NODE_OP = 2,
    NODE_INPUT = 3,
    NODE_DEVICE = 4,
    NODE_ATTR = 5,
    MAP_KEY = 1,
    MAP_VALUE = 2,
    ATTR_LIST = 1,
    LIST_SHAPE = 7,
    SHAPE_DIM = 2,
    DIM_SIZE = 1,
    VERSIONS_PRODUCER = 1
};

/* Appends an input: "name", or "name:1" for an output other than the first. */
static void append_input(tu__text *node, const tu_graph *graph, tu_edge edge) {
    if (edge.output == 0) {
        tu__pb_string(node, NODE_INPUT, tu_node_name(graph, edge.node));
        return;
    }
    tu__text name = {0};
    tu__text_printf(&name, "%s:%u", tu_node_name(graph, edge.node), edge.output);
    tu__pb_append_message(node, NODE_INPUT, &name); /* strings and messages have the same wire type */
}

static void append_inputs(tu__text *node, const tu_graph *graph, uint32_t index) {
    uint32_t count = tu_node_inputs(graph, index, 0, NULL);
    tu_edge *inputs = tu__alloc_array(count, sizeof *inputs, "a graph for TensorBoard");
    if (!inputs) {
        node->failed = true;
        return;
    }
    tu_node_inputs(graph, index, count, inputs);
    for (uint32_t i = 0; i < count; i++) append_input(node, graph, inputs[i]);
    tu__free(inputs);
}

static void append_shape(tu__text *list, tu_shape shape) {
    tu__text message = {0};
    for (int64_t i = 0; i < shape.rank; i++) {
        tu__text dim = {0};
        tu__pb_integer(&dim, DIM_SIZE, shape.dim[i]);
        tu__pb_append_message(&message, SHAPE_DIM, &dim);
    }
    tu__pb_append_message(list, LIST_SHAPE, &message);
}

/* Appends attr["_output_shapes"], a list of shapes. */
static void append_output_shapes(tu__text *node, const tu_graph *graph, uint32_t index) {
    tu__text attr = {0}, value = {0}, list = {0};
    for (uint32_t i = 0; i < tu_node_outputs(graph, index); i++)
        append_shape(&list, tu_edge_type(graph, (tu_edge){index, i}).shape);
    tu__pb_append_message(&value, ATTR_LIST, &list);
    tu__pb_string(&attr, MAP_KEY, "_output_shapes");
    tu__pb_append_message(&attr, MAP_VALUE, &value);
    tu__pb_append_message(node, NODE_ATTR, &attr);
}

void tu__event_write_graphdef(tu__text *message, const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        tu__text node = {0};
        const char *device = graph->nodes[i]->device;
        tu__pb_string(&node, NODE_NAME, tu_node_name(graph, i));
        tu__pb_string(&node, NODE_OP, tu_node_operation(graph, i));
        append_inputs(&node, graph, i);
        if (device) tu__pb_string(&node, NODE_DEVICE, device);
        append_output_shapes(&node, graph, i);
        tu__pb_append_message(message, GRAPH_NODE, &node);
    }
    tu__text versions = {0};
    tu__pb_integer(&versions, VERSIONS_PRODUCER, 22); /* accepted by every release of TensorBoard */
    tu__pb_append_message(message, GRAPH_VERSIONS, &versions);
}
