/* Runs collectives, on the compute thread of a partition. collectives.h says why they cannot deadlock. */
#ifndef TU__RUN_PERFORM_COLLECTIVE_H
#define TU__RUN_PERFORM_COLLECTIVE_H

#include "run/execution.h"

/* Signals that the values of the partition are computed, or will be when its device event completes. */
tu_status tu__collective_post(tu__execution *e, tu__part *part, const tu__collective *c);
/* Waits until all ranks have posted, reduces this rank's slice for all of them, and waits until all ranks have done
 * so. */
tu_status tu__collective_run(tu__execution *e, tu__part *part, const tu__collective *c);

#endif
