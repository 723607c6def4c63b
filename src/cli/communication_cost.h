/* Time and bytes of communication between the devices of all processes that share a batch. */
#ifndef TU__CLI_COMMUNICATION_COST_H
#define TU__CLI_COMMUNICATION_COST_H

#include "cli/workload.h"

struct communication_cost { /* times are per step, averaged over the devices */
    double ms;              /* duration of copies from other devices, and collectives */
    double overlapped;      /* fraction of `ms` in which the device also computed; 0 to 1 */
    double waiting_ms;      /* time spent waiting for other devices */
    uint64_t bytes;         /* bytes received or passed to collectives per step, summed over all devices */
    uint64_t devices;       /* of all processes */
    /* Bus bandwidth of all-reduces as NCCL's tests define it: 2 (n - 1) / n times the bytes of a device, per second of
     * `ms`; 0: unknown. */
    double bus_gb_per_s;
};

/* Runs `steps` more steps with tracing and sums up the traces of all processes (`group` NULL: one). */
tu_status measure_communication(struct workload *work, int64_t steps, tu_process_group *group,
                                struct communication_cost *communication);

#endif
