/* A graph as TensorFlow's GraphDef, which TensorBoard draws: nodes with name, operation, inputs, device, and the
 * shapes of their outputs, which it writes along the edges. Scopes in names become the boxes of the picture. */
#include <stdio.h>

#include <tutti/device.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "io/event_messages.h"
#include "io/protobuf.h"

/* "name", or "name:1" for an output that is not the first. */
static void put_input(tu__text *node, const tu_graph *graph, tu_edge edge) {
    if (edge.output == 0) {
        tu__pb_string(node, 3, tu_node_name(graph, edge.node));
        return;
    }
    tu__text name = {0};
    tu__text_printf(&name, "%s:%u", tu_node_name(graph, edge.node), edge.output);
    tu__pb_message(node, 3, &name); /* a string and a message look the same */
}

static void put_inputs(tu__text *node, const tu_graph *graph, uint32_t index) {
    uint32_t count = tu_node_inputs(graph, index, 0, NULL);
    tu_edge *inputs = tu__alloc_array(count, sizeof *inputs, "a graph for TensorBoard");
    if (!inputs) {
        node->failed = true;
        return;
    }
    tu_node_inputs(graph, index, count, inputs);
    for (uint32_t i = 0; i < count; i++) put_input(node, graph, inputs[i]);
    tu__free(inputs);
}

static void put_shape(tu__text *list, tu_shape shape) {
    tu__text message = {0};
    for (int64_t i = 0; i < shape.rank; i++) {
        tu__text dim = {0};
        tu__pb_integer(&dim, 1, shape.dim[i]);
        tu__pb_message(&message, 2, &dim);
    }
    tu__pb_message(list, 7, &message);
}

/* attr["_output_shapes"] = list of shapes. */
static void put_output_shapes(tu__text *node, const tu_graph *graph, uint32_t index) {
    tu__text attr = {0}, value = {0}, list = {0};
    for (uint32_t i = 0; i < tu_node_outputs(graph, index); i++)
        put_shape(&list, tu_edge_type(graph, (tu_edge){index, i}).shape);
    tu__pb_message(&value, 1, &list);
    tu__pb_string(&attr, 1, "_output_shapes");
    tu__pb_message(&attr, 2, &value);
    tu__pb_message(node, 5, &attr);
}

void tu__event_put_graph(tu__text *message, const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        tu__text node = {0};
        const char *device = graph->nodes[i]->device;
        tu__pb_string(&node, 1, tu_node_name(graph, i));
        tu__pb_string(&node, 2, tu_node_operation(graph, i));
        put_inputs(&node, graph, i);
        if (device) tu__pb_string(&node, 4, device);
        put_output_shapes(&node, graph, i);
        tu__pb_message(message, 1, &node);
    }
    tu__text versions = {0};
    tu__pb_integer(&versions, 1,
                   22); /* producer: a version of TensorFlow's graphs that every TensorBoard reads */
    tu__pb_message(message, 4, &versions);
}
