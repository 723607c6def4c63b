/* Optimizers from inside: settings with their defaults, and the updates they make of gradients. */
#ifndef TU__OPTIM_OPTIMIZER_H
#define TU__OPTIM_OPTIMIZER_H

#include <tutti/train.h>

#include "optim/gradients.h"
#include "optim/loss_scale.h"
#include "optim/update_rules.h"

typedef struct tu__optimizer {
    tu_optimizer_options options; /* defaults filled in, checked */
    const tu__update_rule *rule;
} tu__optimizer;

/* The variable that remembers a bad step, where one stops all later ones. Runs begun before it had this name have it
 * under the old one, in their graphs and checkpoints. */
#define TU__HEALTHY "optimizer/healthy"
#define TU__HEALTHY_BEFORE "optimizer/sound"
/* Its name in the graph; NULL: the graph has none. */
TU__SHARED const char *tu__healthy_name(const tu_graph *graph);

/* Reads and checks a user's settings for updates in `graph`. */
tu_status tu__optimizer_init(tu_graph *graph, const tu_optimizer_options *given, tu__optimizer *settled);

/* Updates of the listed variables, of the optimizer's slots, of "step", and of the moving averages. `loss` is part of
 * the guard; it may be invalid. Where there is a loss scale, the gradients are those of the scaled loss. The graph's
 * scope must be empty. */
tu_status tu__optimize(tu_graph *graph, const tu__optimizer *optimizer, tu_value loss,
                       const tu__loss_scale *scale, const tu__gradients *list, tu_optimizer_values *values);

/* Moving averages of all floating-point variables of the network, under "average/": average.c. */
tu_status tu__average_variables(tu_graph *graph, const tu__guard *guard, double decay);

#endif
