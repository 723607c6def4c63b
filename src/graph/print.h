/* The three output formats of tu_graph_print (print.c): text, DOT and JSON. */
#ifndef TU__GRAPH_PRINT_H
#define TU__GRAPH_PRINT_H

#include "base/json.h"
#include "base/text.h"
#include "graph/graph.h"

void tu__print_text(tu__text *text, const tu_graph *graph);
/* Sets text->failed if memory runs out. */
void tu__print_dot(tu__text *text, const tu_graph *graph);
void tu__print_json(tu_json *json, const tu_graph *graph);

/* Prints one line of the text format: "%12 conv1/conv2d = conv2d(%3, %11) stride=[1,1] : f32[128,24,24,64]". */
void tu__print_node(tu__text *text, const tu__node *node);

/* Prints a number with the fewest digits (15 to 17) that read back to it, or "nan", "inf", "-inf". */
void tu__print_number(tu__text *text, double number);

#endif
