/* The devices of a program as they were opened: what a list like "cpu:0/2" came to, and what its user should know. */
#include <stdio.h>
#include <string.h>

#include "run/program.h"

/* What a device that cannot be inspected says of its kind. */
static int cores_of(const tu__device *device) {
    tu_device_info info;
    return device->api->describe(device->options.index, &info) == TU_OK ? info.cores : 0;
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

static tu_status inspect(const tu__device *device, tu_device_report *report) {
    if (device->api->inspect)
        return device->api->inspect(device->instance, &report->threads, &report->notice);
    report->threads = cores_of(device);
    return TU_OK;
}

tu_status tu_program_device(const tu_program *program, size_t index, tu_device_report *report) {
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND, "the program has %zu devices: there is no number %zu",
                       program->device_count, index);
    const tu__device *device = program->devices[index];
    *report = (tu_device_report){.device = device->name, .word = device->word};
    TU_TRY(inspect(device, report));
    if (is_instead_of_gpus(program, index)) report->notice = add_notice(tu__unused_card(), report->notice);
    return TU_OK;
}
