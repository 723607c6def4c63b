/* Reading the nodes of a graph: for devices, placement functions and tools.
 *
 * Nodes are numbered in the order they were made; an input always comes from a lower number. A device is given node
 * numbers (tu_partition in device.h) and reads from here what each of them is:
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

typedef struct tu_edge { /* output `output` of node `node` */
    uint32_t node, output;
} tu_edge;

/* Returns how many nodes the graph has: their numbers are 0 to this, less one. The functions below expect such numbers. */
TU_API uint32_t tu_node_count(const tu_graph *graph);

/* The operation's name ("conv2d"), its inputs, the type of a value, and an attribute by name: `count` cells of
 * 8 bytes, int64_t or double. */
TU_API const char *tu_node_operation(const tu_graph *graph, uint32_t node);
TU_API const char *tu_node_name(const tu_graph *graph, uint32_t node);
TU_API uint32_t tu_node_inputs(const tu_graph *graph, uint32_t node, uint32_t capacity, tu_edge *inputs);
TU_API uint32_t tu_node_outputs(const tu_graph *graph, uint32_t node);
TU_API tu_type tu_edge_type(const tu_graph *graph, tu_edge edge);
TU_API tu_status tu_node_attribute(const tu_graph *graph, uint32_t node, const char *name, size_t count,
                                   void *cells);
/* Computes one node by its reference kernel, on dense host tensors: how a young device can do everything. */
TU_API tu_status tu_node_evaluate(const tu_graph *graph, uint32_t node, uint64_t seed, const void *const *in,
                                  void *const *out);

#ifdef __cplusplus
}
#endif
#endif
