/* Tracing the first steps of a run: when it begins, when it ends, and what is told of it. */
#ifndef TU__TRAIN_TRACE_STEPS_H
#define TU__TRAIN_TRACE_STEPS_H

#include "train/trainer.h"

/* Steps until the trace begins or ends; `otherwise` where that is farther away, or nothing is to be traced. */
int64_t tu__trace_steps_until(const tu__trainer *trainer, int64_t otherwise);
/* Between two steps: begins the trace where it is due. */
tu_status tu__trace_steps_begin(tu__trainer *trainer);
/* After a step; `last` when no other follows: writes the trace where that is due. A trace that cannot be written is a
 * notice, the run goes on. */
void tu__trace_steps_end(tu__trainer *trainer, bool last);

#endif
