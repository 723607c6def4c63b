/* Measures communication with a trace of a few steps. See communication_cost.h. */
#include "cli/communication_cost.h"

#include <stdlib.h>

/* Sums over the devices and steps of a process. */
struct sums {
    double seconds, overlapped, waiting;
    uint64_t bytes, devices;
};

static struct sums sum_trace(const struct workload *work) {
    struct sums s = {0};
    tu_trace_report r = TU_SIZED(tu_trace_report);
    for (; s.devices < tu_program_device_count(work->step) &&
           tu_trace_device(work->step, s.devices, &r) == TU_OK;
         s.devices++) {
        s.seconds += r.copying + r.collective;
        s.overlapped += r.overlapped;
        s.waiting += r.waiting + r.lost_to_copies + r.collective_waiting;
        s.bytes += r.received_bytes + r.collective_bytes;
    }
    return s;
}

/* Adds the sums of all processes. */
static tu_status add_processes(tu_process_group *group, struct sums *s) {
    tu_process_info info = TU_SIZED(tu_process_info);
    if (!group) return TU_OK;
    TU_TRY(tu_process_group_describe(group, &info));
    struct sums *all = calloc(info.size, sizeof *all);
    if (!all) return tu_fail(TU_NO_MEMORY, "bench: out of memory");
    tu_status status = tu_process_group_gather(group, s, sizeof *s, all);
    *s = (struct sums){0};
    for (uint32_t r = 0; r < info.size && status == TU_OK; r++) {
        s->seconds += all[r].seconds;
        s->overlapped += all[r].overlapped;
        s->waiting += all[r].waiting;
        s->bytes += all[r].bytes;
        s->devices += all[r].devices;
    }
    free(all);
    return status;
}

tu_status measure_communication(struct workload *work, int64_t steps, tu_process_group *group,
                                struct communication_cost *communication) {
    TU_TRY(tu_program_trace_begin(work->step));
    TU_TRY(workload_steps(work, steps));
    tu_program_trace_end(work->step);
    struct sums s = sum_trace(work);
    TU_TRY(add_processes(group, &s));
    double device_steps = (double)steps * (double)s.devices, devices = (double)s.devices;
    *communication = (struct communication_cost){.ms = 1e3 * s.seconds / device_steps,
                                                 .overlapped = s.seconds > 0 ? s.overlapped / s.seconds : 0,
                                                 .waiting_ms = 1e3 * s.waiting / device_steps,
                                                 .bytes = s.bytes / (uint64_t)steps,
                                                 .devices = s.devices};
    if (s.seconds > 0 && devices > 1)
        communication->bus_gb_per_s = 1e-9 * 2 * (devices - 1) / devices * (double)s.bytes / s.seconds;
    return TU_OK;
}
