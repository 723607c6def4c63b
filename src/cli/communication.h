/* What devices that share a batch spend on each other: measured by a trace of a few steps, of which nothing is kept. */
#ifndef CLI_COMMUNICATION_H
#define CLI_COMMUNICATION_H

#include "cli/workload.h"

struct communication { /* milliseconds of a step, means of all devices */
    double ms;         /* copies from other devices, and collectives at which values are summed */
    double overlapped; /* share of that during which the device computed something else; 0 to 1 */
    double waiting_ms; /* for others to come */
    uint64_t bytes;    /* that arrive or are brought to collectives in a step, of all devices together */
};

tu_status communication_measure(struct workload *work, int64_t steps, struct communication *spent);

#endif
