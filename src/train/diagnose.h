/* Naming the culprit of a step that was not finite. */
#ifndef TU__TRAIN_DIAGNOSE_H
#define TU__TRAIN_DIAGNOSE_H

#include <tutti/run.h>

#include "train/settings.h"

typedef struct tu__finding {
    char text[512]; /* "variable 'w'", "input 'images'", "operation 'conv2' (conv2d)"; "": nothing found */
    int64_t sample; /* of an input: the first along its first axis that is not finite; else -1 */
} tu__finding;

/* Computes the graph again, on the state and feeds that gave values that are not finite, with every intermediate value
 * to be looked at. Changes nothing of the state. */
tu_status tu__diagnose(tu_graph *graph, const tu__settings *settings, tu_state *state, size_t feed_count,
                       const tu_feed *feeds, tu__finding *finding);

#endif
