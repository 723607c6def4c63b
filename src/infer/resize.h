/* Rewrites a graph with another size of one axis: that of the samples (rebatch.c) or of the positions (incremental.c).
 *
 * The shard rules of data parallelism (pass/shard_rules.h) say which axis of each value it is. The new graph has the same
 * nodes, with another number of rows along this axis in every attribute that is a shape. */
#ifndef TU__INFER_RESIZE_H
#define TU__INFER_RESIZE_H

#include "base/arena.h"
#include "pass/pass.h"

typedef struct tu__resize {
    tu__rewrite r;
    tu__arena arena;
    int64_t before, after; /* samples or positions; a value may have several rows for each */
    int *axis;             /* per output of the old graph; TU__REPLICATED: none */
} tu__resize;

/* Starts with no axis known. The caller sets the arena's purpose, `before` and `after`, and calls tu__resize_end after a
 * success. */
tu_status tu__resize_begin(tu__resize *z, const tu_graph *graph);
/* Finishes the graph if `status` is TU_OK, and frees everything else. */
tu_status tu__resize_end(tu__resize *z, tu_status status, tu_graph **resized);

/* Returns where the axis of a value is stored. */
int *tu__resize_axis(const tu__resize *z, tu__edge edge);
/* Returns a node's attributes with the new number of rows along `axis` of its first output. NULL: out of memory. */
const void *tu__resize_attributes(tu__resize *z, const tu__node *node, int axis);
/* Makes the node of the new graph from a request of tu__rewrite_request, with these attributes. */
tu_status tu__resize_make(tu__resize *z, const tu__node *node, int axis, tu__node_request *request);

#endif
