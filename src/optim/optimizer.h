/* Internal interface of optimizers: options with defaults, and updates from gradients. */
#ifndef TU__OPTIM_OPTIMIZER_H
#define TU__OPTIM_OPTIMIZER_H

#include <tutti/train.h>

#include "optim/gradients.h"
#include "optim/loss_scale.h"
#include "optim/update_rules.h"

typedef struct tu__optimizer {
    tu_optimizer_options options; /* checked, with defaults filled in */
    const tu__update_rule *rule;
} tu__optimizer;

/* With .stop_at_nonfinite, the bool variable that is false after a non-finite step. Graphs and checkpoints of older
 * versions use the second name. */
#define TU__HEALTHY "optimizer/healthy"
#define TU__HEALTHY_OLD_NAME "optimizer/sound"
/* Returns its name in the graph; NULL if the graph has no such variable. */
TU__SHARED const char *tu__healthy_name(const tu_graph *graph);

/* Copies and checks the user's options for updates in `graph`, and fills in defaults. */
tu_status tu__optimizer_init(tu_graph *graph, const tu_optimizer_options *given, tu__optimizer *optimizer);

/* Adds updates of the listed variables, the optimizer's slots, "step" and the moving averages. The guard includes
 * `loss` unless it is invalid. With a loss scale, the gradients must be those of the scaled loss. The graph's scope
 * must be empty. */
tu_status tu__optimize(tu_graph *graph, const tu__optimizer *optimizer, tu_value loss,
                       const tu__loss_scale *scale, const tu__gradients *list, tu_optimizer_values *values);

/* Adds exponential moving averages of all floating-point variables of the network, named "average/…" (average.c). */
tu_status tu__average_variables(tu_graph *graph, const tu__guard *guard, double decay);

#endif
