/* The three forms a graph is printed in. tu_graph_print in print.c chooses among them. */
#ifndef TU__GRAPH_PRINT_H
#define TU__GRAPH_PRINT_H

#include "base/json.h"
#include "base/text.h"
#include "graph/graph.h"

void tu__print_text(tu__text *text, const tu_graph *graph);
/* `out` must not be failed: memory for the order of the nodes may run out, which sets its flag. */
void tu__print_dot(tu__text *text, const tu_graph *graph);
void tu__print_json(tu_json *json, const tu_graph *graph);

/* One line of the text form: "%12 conv1/conv2d = conv2d(%3, %11) stride=[1,1] : f32[128,24,24,64]". */
void tu__print_node(tu__text *text, const tu__node *node);

/* A number with as few digits as read back to it; also "nan", "inf", "-inf". */
void tu__print_number(tu__text *text, double number);

#endif
