/* A list of trained variables and their gradients, used by tu_add_optimizer, tu_add_accumulation and tu_add_apply. */
#ifndef TU__OPTIM_GRADIENTS_H
#define TU__OPTIM_GRADIENTS_H

#include <tutti/graph.h>

#include "optim/guard.h"

typedef struct tu__gradients {
    size_t count;
    tu_value *variables, *gradients; /* allocated as one block, at `variables` */
} tu__gradients;

/* Allocates a list for `count` variables and gradients, without setting them. */
tu_status tu__gradients_new(size_t count, tu__gradients *list);
void tu__gradients_free(tu__gradients *list);

/* Lists all trainable variables whose names do not match the pattern `freeze` (NULL: none), with the gradients of
 * `loss`. Fails if the pattern matches no variable, or if no variable is left to train. */
tu_status tu__gradients_of(tu_value loss, const char *freeze, tu__gradients *list);

/* Builds the sum of squares of all gradients: an f64 scalar, non-finite if any gradient is. */
tu_value tu__squared_norm(const tu__gradients *list);

/* Leaves all scopes, so that names are absolute. Pass `*saved_scope` to tu__restore_scopes to restore them. */
tu_status tu__leave_scopes(tu_graph *graph, char **saved_scope);
tu_status tu__restore_scopes(tu_graph *graph, char *saved_scope);

/* True if a node is a variable of the network, i.e. not added by training ("optimizer/…", "average/…", "gradient/…",
 * "step"). */
bool tu__is_network_variable(const tu_graph *graph, uint32_t node);

#endif
