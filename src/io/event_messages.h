/* The two messages of event files that take more than a line: histograms and graphs. */
#ifndef TU__IO_EVENT_MESSAGES_H
#define TU__IO_EVENT_MESSAGES_H

#include <tutti/graph.h>

#include "base/text.h"

/* HistogramProto. Numbers that are not finite are left out of everything: they have no place on its axis. */
void tu__event_put_histogram(tu__text *message, size_t count, const float *numbers);
/* GraphDef. */
void tu__event_put_graph(tu__text *message, const tu_graph *graph);

#endif
