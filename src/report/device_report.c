/* The devices of a program as they were opened: what a list like "cpu:0/2" came to, and what its user should know. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "run/program.h"

/* What a device that cannot be inspected says of its kind. */
static int cores_of(const tu__device *device) {
    tu_device_info info = TU_SIZED(tu_device_info);
    return tu__device_describe(device->api, device->options.index, &info) == TU_OK ? info.cores : 0;
}

/* Whether the CPU computes what was meant for GPUs, if there are any. */
static bool is_instead_of_gpus(const tu_program *program, size_t index) {
    if (!program->asked_for_all || strcmp(program->devices[index]->api->kind, "cpu") != 0) return false;
    for (size_t i = 0; i < program->device_count; i++)
        if (strcmp(program->devices[i]->api->kind, "gpu") == 0) return false;
    return true;
}

/* What a device says itself comes after why it is that one. */
static const char *add_notice(const char *first, const char *second) {
    static _Thread_local char both[1600];
    if (!first || !second) return first ? first : second;
    snprintf(both, sizeof both, "%s; %s", first, second);
    return both;
}

/* What the device itself has to say. */
static tu_status inspect(const tu__device *device, int *threads, const char **notice) {
    *notice = NULL;
    if (device->api->inspect) return device->api->inspect(device->instance, threads, notice);
    *threads = cores_of(device);
    return TU_OK;
}

/* Whether the device computes anything in f16: a processor beside cards may have none of it. */
static bool computes_f16(const tu_program *program, size_t index) {
    const tu_graph *g = program->unit.graph;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i]->outputs[0].dtype == TU_F16 && g->nodes[i]->op->code != TU__OP_COPY &&
            tu__partition_of(&program->unit, i) == index)
            return true;
    return false;
}

/* A processor has no kernels for f16 but the reference's: 80 times slower than f32's, for a product. The line is the same
 * for all parts of a processor, and comes behind what the device says itself. */
tu_status tu__program_note_slow_types(tu_program *program) {
    if (program->unit.precision != TU__PRECISION_F16) return TU_OK;
    program->notices = tu__alloc_array(program->device_count, sizeof *program->notices, "a program");
    if (!program->notices) return TU_NO_MEMORY;
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__device *device = program->devices[i];
        const char *own;
        int threads;
        if (strcmp(device->api->kind, "cpu") != 0 || !computes_f16(program, i)) continue;
        TU_TRY(inspect(device, &threads, &own));
        snprintf(
            program->notices[i].text, sizeof program->notices[i].text,
            "%s%sf16 on a CPU is computed by the reference device's kernels, which are slow: bf16 or f32 is "
            "faster",
            own ? own : "", own ? "; " : "");
    }
    return TU_OK;
}

size_t tu_program_device_count(const tu_program *program) {
    return program->device_count;
}

tu_status tu_program_device(const tu_program *program, size_t index, tu_device_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_device_report, report));
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND, "the program has %zu devices: there is no number %zu",
                       program->device_count, index);
    const tu__device *device = program->devices[index];
    tu_device_report full = {.device = device->name, .spec = device->word};
    TU_TRY(inspect(device, &full.threads, &full.notice));
    if (program->notices && *program->notices[index].text) full.notice = program->notices[index].text;
    if (is_instead_of_gpus(program, index)) full.notice = add_notice(tu__unused_card(), full.notice);
    TU__GIVE_SIZED(report, full);
    return TU_OK;
}
