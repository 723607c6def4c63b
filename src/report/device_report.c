/* Reports the devices of a program: what a device list like "cpu:0/2" stands for, and notices for the user. */
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "run/program.h"

/* True if the CPU is used because "all" was requested and there is no usable GPU. */
static bool is_instead_of_gpus(const tu_program *program, size_t index) {
    if (!program->uses_all || strcmp(program->devices[index]->api->kind, "cpu") != 0) return false;
    for (size_t i = 0; i < program->device_count; i++)
        if (program->devices[i]->api->accelerator) return false;
    return true;
}

/* Joins the notices that are not NULL; NULL if all are. The text lives until the next call in this thread. */
static const char *join_notices(size_t count, const char *const *notices) {
    static _Thread_local char joined[2400];
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (notices[i] && used < sizeof joined)
            used +=
                (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", used ? "; " : "", notices[i]);
    return used ? joined : NULL;
}

/* Returns the number of threads (of cores, for devices that report no threads) and the device's own notice. */
static tu_status inspect(const tu__device *device, int *threads, const char **notice) {
    tu_device_info info = TU_SIZED(tu_device_info);
    TU_TRY(tu__device_describe(device->api, device->instance, device->options.index, &info));
    *threads = info.threads ? info.threads : info.cores;
    *notice = info.notice;
    return TU_OK;
}

/* True if the device computes anything in f16. A CPU next to GPUs may not. */
static bool computes_f16(const tu_program *program, size_t index) {
    const tu_graph *g = program->unit.graph;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->outputs[0].dtype == TU_F16 && g->nodes[i]->op->code != TU__OP_COPY &&
            tu__partition_of(&program->unit, i) == index)
            return true;
    return false;
}

/* Returns a notice if a CPU computes f16: it only has the reference kernels, in which a matmul is 80 times
 * slower than in f32. The graph of a model has its casts already. */
static const char *slow_type_notice(const tu_program *program, size_t index) {
    bool is_slow = (program->unit.precision == TU__PRECISION_F16 || program->unit.graph->is_frozen) &&
                   strcmp(program->devices[index]->api->kind, "cpu") == 0 && computes_f16(program, index);
    return is_slow
               ? "f16 on a CPU is computed by the reference device's kernels, which are slow: bf16 or f32 is "
                 "faster"
               : NULL;
}

size_t tu_program_device_count(const tu_program *program) {
    return program->device_count;
}

tu_status tu_program_device(const tu_program *program, size_t index, tu_device_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_device_report, report));
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND,
                       "device index %zu is out of range: the program has %zu devices, counted from 0", index,
                       program->device_count);
    const tu__device *device = program->devices[index];
    tu_device_report full = {.device = device->name, .spec = device->spec};
    const char *own_notice;
    TU_TRY(inspect(device, &full.threads, &own_notice));
    const char *const notices[] = {is_instead_of_gpus(program, index) ? tu__unused_gpu_reason() : NULL,
                                   own_notice, slow_type_notice(program, index),
                                   index == 0 && program->host_notice[0] ? program->host_notice : NULL,
                                   index == 0 ? program->unit.replication.unequal_devices : NULL};
    full.notice = join_notices(sizeof notices / sizeof *notices, notices);
    TU__COPY_SIZED(report, full);
    return TU_OK;
}
