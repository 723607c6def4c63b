/* Dynamic loss scaling for f16, so that gradients neither underflow nor overflow (Micikevicius et al. 2018).
 *
 * f16 has no number between 0 and 6e-8, and gradients of a mean loss are often smaller. So the loss is multiplied by
 * a scale before differentiation, and the gradients are divided by it before use. A step with non-finite gradients is
 * skipped and halves the scale; many finite steps in a row double it. */
#ifndef TU__OPTIM_LOSS_SCALE_H
#define TU__OPTIM_LOSS_SCALE_H

#include "optim/gradients.h"

typedef struct tu__loss_scale {
    tu_value stored,
        good_steps;   /* variables: the scale of the previous step, and the number of finite steps with it */
    tu_value current; /* the scale of this step; all are invalid if there is no loss scale */
    tu_value inverse; /* 1 / current */
} tu__loss_scale;

tu__loss_scale tu__no_loss_scale(tu_graph *graph);
/* Creates the variables "loss_scale", with the initial value `initial`, and "good_steps", and computes this step's
 * scale. */
tu__loss_scale tu__loss_scale_new(tu_graph *graph, double initial);
/* Divides the gradients of the scaled loss by the scale. */
void tu__unscale_gradients(const tu__loss_scale *scale, const tu__gradients *list);
/* Builds a bool: the scale is above 1, so it may be the cause of non-finite values. */
tu_value tu__scale_above_one(const tu__loss_scale *scale);
/* Assigns scale and count for the next step. `finite`: the values of this step are finite; `applied`: the step was
 * applied (never after .stop_at_nonfinite has detected a non-finite step). At a scale of 1 a non-finite step changes
 * neither: the scale is not its cause. */
void tu__loss_scale_update(const tu__loss_scale *scale, tu_value finite, tu_value applied);

#endif
