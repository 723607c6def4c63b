/* The variables a step trains, with the gradients of its loss: what plain, accumulated and applied updates share. */
#ifndef TU__OPTIM_GRADIENTS_H
#define TU__OPTIM_GRADIENTS_H

#include <tutti/graph.h>

#include "optim/guard.h"

typedef struct tu__gradients {
    size_t count;
    tu_value *variables, *gradients; /* one block, that of `variables` */
} tu__gradients;

/* Room for `count` variables and gradients, none of them set. */
tu_status tu__gradients_new(size_t count, tu__gradients *list);
void tu__gradients_free(tu__gradients *list);

/* All trainable variables whose names do not fit the pattern `freeze` (NULL: none), and d(loss) by them. Refuses a
 * pattern that fits nothing, and a graph with nothing to train. */
tu_status tu__gradients_of(tu_value loss, const char *freeze, tu__gradients *list);

/* The sum of squares over all gradients: an f64 scalar, not finite when any of them is not. */
tu_value tu__squared_norm(const tu__gradients *list);

/* Takes the graph's scope away, so that names below are whole; `*outer` is for tu__leave_root. */
tu_status tu__enter_root(tu_graph *graph, char **outer);
tu_status tu__leave_root(tu_graph *graph, char *outer);

/* Whether a node is a variable of the network: not one that training added ("optimizer/…", "average/…",
 * "gradient/…"), nor the step. */
bool tu__is_network_variable(const tu_graph *graph, uint32_t node);

#endif
