/* The devices of a program as they were opened: what a list like "cpu:0/2" came to, and what its user should know. */
#include "run/program.h"

/* What a device that cannot be inspected says of its kind. */
static int cores_of(const tu__device *device) {
    tu_device_info info;
    return device->api->describe(device->options.index, &info) == TU_OK ? info.cores : 0;
}

tu_status tu_program_device(const tu_program *program, size_t index, tu_device_report *report) {
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND, "the program has %zu devices: there is no number %zu",
                       program->device_count, index);
    const tu__device *device = program->devices[index];
    *report = (tu_device_report){.device = device->name, .word = device->word};
    if (device->api->inspect)
        return device->api->inspect(device->instance, &report->threads, &report->notice);
    report->threads = cores_of(device);
    return TU_OK;
}
