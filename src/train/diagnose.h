/* Finds the first non-finite value of a failed training step. */
#ifndef TU__TRAIN_DIAGNOSE_H
#define TU__TRAIN_DIAGNOSE_H

#include <tutti/run.h>

#include "train/run_folder.h"

typedef struct tu__finding {
    char text[512]; /* "variable 'w'", "input 'images'", "operation 'conv2' (conv2d)"; "": nothing found */
    int64_t sample; /* for an input: index of its first sample with a non-finite element; else -1 */
} tu__finding;

/* Recomputes the graph with the state and feeds of the failed step and inspects all intermediate values. Does not
 * change the state, and uses the devices of this process alone. */
tu_status tu__diagnose(tu_graph *graph, const tu__run_config *config, tu_state *state, size_t feed_count,
                       const tu_feed *feeds, tu__finding *finding);

#endif
