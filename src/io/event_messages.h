/* Messages of event files that have their own source file: histograms and graphs. */
#ifndef TU__IO_EVENT_MESSAGES_H
#define TU__IO_EVENT_MESSAGES_H

#include <tutti/graph.h>

#include "base/text.h"

/* Appends a HistogramProto. Ignores non-finite numbers. */
void tu__event_write_histogram(tu__text *message, size_t count, const float *numbers);
/* Appends a GraphDef. */
void tu__event_write_graphdef(tu__text *message, const tu_graph *graph);

#endif
