/* Time and bytes of communication between devices that share a batch. */
#ifndef TU__CLI_COMMUNICATION_COST_H
#define TU__CLI_COMMUNICATION_COST_H

#include "cli/workload.h"

struct communication_cost { /* times are per step, averaged over the devices */
    double ms;              /* duration of copies from other devices, and collectives */
    double overlapped;      /* fraction of `ms` in which the device also computed; 0 to 1 */
    double waiting_ms;      /* time spent waiting for other devices */
    uint64_t bytes;         /* bytes received or passed to collectives per step, summed over all devices */
};

/* Runs `steps` more steps with tracing and sums up the trace. */
tu_status measure_communication(struct workload *work, int64_t steps,
                                struct communication_cost *communication);

#endif
