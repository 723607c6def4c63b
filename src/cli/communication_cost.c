/* Measures communication with a trace of a few steps. See communication_cost.h. */
#include "cli/communication_cost.h"

tu_status measure_communication(struct workload *work, int64_t steps,
                                struct communication_cost *communication) {
    *communication = (struct communication_cost){0};
    TU_TRY(tu_program_trace_begin(work->step));
    TU_TRY(workload_steps(work, steps));
    tu_program_trace_end(work->step);
    tu_trace_report r = TU_SIZED(tu_trace_report);
    double seconds = 0, overlapped = 0, waiting = 0;
    size_t devices = 0;
    for (; devices < tu_program_device_count(work->step) && tu_trace_device(work->step, devices, &r) == TU_OK;
         devices++) {
        seconds += r.copying + r.collective;
        overlapped += r.overlapped;
        waiting += r.waiting + r.lost_to_copies + r.collective_waiting;
        communication->bytes += (r.received_bytes + r.collective_bytes) / (uint64_t)steps;
    }
    double device_steps = (double)steps * (double)devices;
    communication->ms = 1e3 * seconds / device_steps;
    communication->overlapped = seconds > 0 ? overlapped / seconds : 0;
    communication->waiting_ms = 1e3 * waiting / device_steps;
    return TU_OK;
}
