/* What a graph costs: counted from its types and operations alone. */
#ifndef TU__GRAPH_SUMMARY_H
#define TU__GRAPH_SUMMARY_H

#include "graph/graph.h"

/* Floating-point operations of one evaluation of a node; INT64_MAX when they are more. `in` has room for the types
 * of all its inputs. */
int64_t tu__node_flops(const tu_graph *graph, const tu__node *node, tu_type *in);

/* Bytes of a node's outputs were they kept: none for what lives elsewhere (variables, constants, views). */
int64_t tu__node_activation_bytes(const tu__node *node);

#endif
