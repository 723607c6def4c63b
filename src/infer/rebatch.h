/* Another batch size for a graph. */
#ifndef TU__INFER_REBATCH_H
#define TU__INFER_REBATCH_H

#include "graph/graph.h"

/* Makes a copy of `graph` whose batch inputs have `samples` samples. Fails with TU_UNSUPPORTED if a result of the graph
 * depends on several samples of a batch. */
TU__SHARED tu_status tu__rebatch(const tu_graph *graph, int64_t samples, tu_graph **rebatched);

#endif
