/* Reading the nodes of a graph: for devices, placement functions and tools.
 *
 * A node is identified by its index: nodes are counted from 0 in the order they were made, and a node's inputs have
 * lower indices. A device gets node indices (tu_partition in device.h) and reads each node with these functions:
 *
 *     tu_edge inputs[2];
 *     int64_t stride[2];
 *     bool is_convolution = strcmp(tu_node_operation(graph, node), "conv2d") == 0;
 *     if (is_convolution && tu_node_inputs(graph, node, 2, inputs) == 2 &&
 *         tu_node_attribute(graph, node, "stride", 2, stride) == TU_OK)
 *         …
 */
#ifndef TUTTI_NODE_H
#define TUTTI_NODE_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Output `output` of node `node`. Frozen: it gets no more fields. */
typedef struct tu_edge {
    uint32_t node, output;
} tu_edge;

/* Returns the number of nodes. */
TU_API uint32_t tu_node_count(const tu_graph *graph);
/* Returns the name of the operation, such as "conv2d", or of the node. */
TU_API const char *tu_node_operation(const tu_graph *graph, uint32_t node);
TU_API const char *tu_node_name(const tu_graph *graph, uint32_t node);
/* Writes up to `capacity` inputs. Returns how many the node has. */
TU_API uint32_t tu_node_inputs(const tu_graph *graph, uint32_t node, uint32_t capacity, tu_edge *inputs);
TU_API uint32_t tu_node_outputs(const tu_graph *graph, uint32_t node);
/* Returns the type of a value. */
TU_API tu_type tu_edge_type(const tu_graph *graph, tu_edge edge);
/* Reads an attribute by its name into `cells`: `count` words of 8 bytes, each an int64_t or a double. */
TU_API tu_status tu_node_attribute(const tu_graph *graph, uint32_t node, const char *name, size_t count,
                                   void *cells);
/* Computes one node with its reference kernel, on dense host tensors. A new device can support every operation this
 * way. */
TU_API tu_status tu_node_evaluate(const tu_graph *graph, uint32_t node, uint64_t seed, const void *const *in,
                                  void *const *out);

#ifdef __cplusplus
}
#endif
#endif
