/* Update rules of the optimizers: the next value of a variable from its gradient and the learning rate.
 *
 * A rule is a function of tu__variable_update. Its state (velocity, mean square) is in slots, variables under
 * "optimizer/" that the rule creates and assigns. optimizer.c does the rest: choosing variables, weight decay,
 * clipping, the guard. */
#ifndef TU__OPTIM_UPDATE_RULES_H
#define TU__OPTIM_UPDATE_RULES_H

#include <tutti/train.h>

#include "base/shared.h"
#include "optim/guard.h"

typedef struct tu__variable_update {
    const tu_optimizer_options *options; /* with the rule's defaults filled in */
    const tu__guard *guard;
    tu_value variable;
    tu_value gradient;   /* clipped; includes weight decay if the rule has decay_in_gradient */
    tu_value rate;       /* the learning rate: a scalar of the variable's type */
    double weight_decay; /* of this variable */
} tu__variable_update;

typedef struct tu__update_rule {
    const char *name;
    bool decay_in_gradient; /* optimizer.c adds weight_decay * variable to the gradient */
    double momentum, beta2; /* defaults */
    tu_value (*next)(const tu__variable_update *u);
} tu__update_rule;

/* Returns the rule of this name (NULL: "momentum"). Sets the message and returns NULL if it is unknown. */
TU__SHARED const tu__update_rule *tu__update_rule_find(const char *name);

#endif
