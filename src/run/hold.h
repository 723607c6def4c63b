/* Meetings, while a program runs: what a part's thread does about them. meet.h says why nobody waits in a circle. */
#ifndef TU__RUN_HOLD_H
#define TU__RUN_HOLD_H

#include "run/meet.h"
#include "run/program.h"

/* Says that what the part brings is computed, or will be when its device's event says so. */
tu_status tu__meeting_bring(tu_program *program, tu__part *part, uint32_t attendance);
/* Waits for the others, adds up this rank's share for everybody, and waits until they have too. */
tu_status tu__meeting_hold(tu_program *program, tu__part *part, uint32_t attendance);

#endif
