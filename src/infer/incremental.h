/* The graph for a few new positions of a sequence, from the graph for a whole context. */
#ifndef TU__INFER_INCREMENTAL_H
#define TU__INFER_INCREMENTAL_H

#include "graph/graph.h"

/* Names of the input with the position of the first new token, i32, and of the variables with keys and values. */
#define TU__POSITION "position"
#define TU__CACHE "cache/"

/* Makes a copy of `graph`, whose only input is tokens i32[1, context], for `count` tokens i32[1, count] at the positions
 * position … position + count - 1. Earlier keys and values are in frozen variables "cache/…", to which the graph assigns
 * those of the new tokens; before the first token they must be zero. Fails with TU_UNSUPPORTED if an operation other than a
 * causal attention combines positions. Of the results only "logits" is
 * kept, if there is one. */
TU__SHARED tu_status tu__incremental(const tu_graph *graph, int64_t count, tu_graph **incremental);

#endif
