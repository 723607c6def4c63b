/* Estimates of a graph's FLOPs and memory from its operations and types. */
#ifndef TU__GRAPH_SUMMARY_H
#define TU__GRAPH_SUMMARY_H

#include "graph/graph.h"

/* Returns the floating-point operations of one evaluation of a node, at most INT64_MAX. `scratch_types` must
 * have space for the types of all its inputs. */
int64_t tu__node_flops(const tu_graph *graph, const tu__node *node, tu_type *scratch_types);

/* Returns the size of a node's outputs; 0 for variables, constants, assignments and views, which need no memory of
 * their own. */
int64_t tu__node_activation_bytes(const tu__node *node);

#endif
