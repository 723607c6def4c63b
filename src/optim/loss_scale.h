/* Loss scaling: gradients in half precision that neither vanish nor overflow.
 *
 * f16 has no number between 0 and 6e-8; gradients of a mean loss are often smaller. So the loss is multiplied by a
 * scale before it is differentiated, and the gradients are divided by it before anything is made of them. How large a
 * scale the gradients bear is found out while training (Micikevicius et al. 2018): a step whose gradients are not
 * finite is left out and halves it, and a long row of good steps doubles it. */
#ifndef TU__OPTIM_LOSS_SCALE_H
#define TU__OPTIM_LOSS_SCALE_H

#include "optim/gradients.h"

typedef struct tu__loss_scale {
    tu_value kept, good_steps; /* variables: the scale of the step before, and for how many it has held */
    tu_value now;              /* the scale of this step; invalid, with all others: there is none */
    tu_value inverse;          /* of it */
} tu__loss_scale;

tu__loss_scale tu__no_loss_scale(tu_graph *graph);
/* The variables "loss_scale", `first` at the start, and "good_steps", and what they come to in this step. */
tu__loss_scale tu__loss_scale_new(tu_graph *graph, double first);
/* Divides the gradients of now * loss by the scale. */
void tu__unscale_gradients(const tu__loss_scale *scale, const tu__gradients *list);
/* Whether values that are not finite may be the scale's fault: a scale of 1 has none. */
tu_value tu__scale_too_large(const tu__loss_scale *scale);
/* What the next step begins with: `finite` says whether this one's values were, `applied` whether it counted, which
 * after a bad step none does. At a scale of 1 a step that is not finite changes nothing: it is the bad one. */
void tu__loss_scale_update(const tu__loss_scale *scale, tu_value finite, tu_value applied);

#endif
