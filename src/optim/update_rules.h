/* The optimizers' rules: how one variable moves, given its gradient and the rate.
 *
 * A rule is a short function over tu__update that returns the variable's next value. What it remembers from step to
 * step lies in slots, variables of the optimizer's own: it asks for one by name, and gives it its next value.
 * Everything around it (which variables, decay, clipping, the guard) is optimizer.c's. */
#ifndef TU__OPTIM_UPDATE_RULES_H
#define TU__OPTIM_UPDATE_RULES_H

#include <tutti/train.h>

#include "base/shared.h"
#include "optim/guard.h"

typedef struct tu__update {
    const tu_optimizer_options *options; /* with the rule's defaults filled in */
    const tu__guard *guard;
    tu_value variable;
    tu_value gradient;   /* clipped; with the decay added, where the rule wants it there */
    tu_value rate;       /* a scalar of the variable's type */
    double weight_decay; /* of this variable */
} tu__update;

typedef struct tu__update_rule {
    const char *name;
    bool adds_decay;        /* weight_decay * variable is added to the gradient before the rule sees it */
    double momentum, beta2; /* what a zero stands for */
    tu_value (*next)(const tu__update *u);
} tu__update_rule;

/* NULL is "momentum". An unknown name gives NULL, and a message. */
TU__SHARED const tu__update_rule *tu__update_rule_find(const char *name);

#endif
