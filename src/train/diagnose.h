/* Naming the culprit of a step that was not finite. */
#ifndef TU__TRAIN_DIAGNOSE_H
#define TU__TRAIN_DIAGNOSE_H

#include <tutti/run.h>

#include "train/settings.h"

/* Computes the graph again, on the state and feeds that gave values that are not finite, with every intermediate value
 * to be looked at. `finding` becomes "variable 'conv1/weights'", "input 'images'" or "'conv2/conv2d' (conv2d)"; "" when
 * nothing was found. Changes nothing of the state. */
enum { TU__FINDING = 512 };
tu_status tu__diagnose(tu_graph *graph, const tu__settings *settings, tu_state *state, size_t feed_count,
                       const tu_feed *feeds, char finding[TU__FINDING]);

#endif
