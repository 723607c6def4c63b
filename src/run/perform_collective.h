/* Collectives, while a program runs: what a part's thread does about them. meet.h says why nobody waits in a circle. */
#ifndef TU__RUN_PERFORM_COLLECTIVE_H
#define TU__RUN_PERFORM_COLLECTIVE_H

#include "compile/collectives.h"
#include "run/program.h"

/* Says that what the part brings is computed, or will be when its device's event says so. */
tu_status tu__collective_post(tu_program *program, tu__partition *part, uint32_t membership);
/* Waits for the others, adds up this rank's share for everybody, and waits until they have too. */
tu_status tu__collective_run(tu_program *program, tu__partition *part, uint32_t membership);

#endif
