/* Traces the first steps of a run. */
#ifndef TU__TRAIN_TRACE_STEPS_H
#define TU__TRAIN_TRACE_STEPS_H

#include "train/trainer.h"

/* Returns the number of steps until the trace starts or ends; `limit` if that is farther away or nothing is
 * traced. */
int64_t tu__trace_steps_until(const tu__trainer *trainer, int64_t limit);
/* Starts the trace if it is due. Called between two steps. */
tu_status tu__trace_steps_begin(tu__trainer *trainer);
/* Ends and writes the trace if that is due. Called after a step; `last`: no step follows. If the trace cannot be
 * written, a notice reports it and the run continues. */
void tu__trace_steps_end(tu__trainer *trainer, bool last);

#endif
