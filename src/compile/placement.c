/* Opens devices and implements the callbacks of the pass `place`, which sees only graphs and names: `supports` calls
 * the device's `supports` function, or assumes the default for devices without one. */
#include "compile/placement.h"

#include <string.h>

static tu_status supports(void *context, size_t device, const tu_graph *graph, uint32_t node) {
    const tu__device_list *list = context;
    const tu__device *d = list->devices[device];
    if (d->api->supports) return d->api->supports(d->instance, graph, node);
    if (d->api->host_memory || graph->nodes[node]->op->code != TU__OP_CUSTOM) return TU_OK;
    return tu_fail(TU_UNSUPPORTED,
                   "custom operations run only on devices that compute in host memory, such as the CPU");
}

static bool is_host(void *context, size_t device) {
    const tu__device_list *list = context;
    return list->devices[device]->api->host_memory;
}

static void set_unit_devices(tu__device_list *list, tu__unit *unit) {
    for (size_t i = 0; i < *list->count; i++) list->names[i] = list->devices[i]->name;
    unit->devices = list->names;
    unit->device_count = *list->count;
}

/* Returns the number of threads for a CPU that is added to GPUs. Each GPU has a compute thread on the host and may
 * have a copy thread; a parallel loop over all cores would wait for the worker that shares a core with them. So the
 * CPU gets the remaining cores. */
static int count_remaining_cores(const tu__device_list *list) {
    int gpu_threads = 0;
    tu_device_info info = TU_SIZED(tu_device_info);
    for (size_t i = 0; i < *list->count; i++)
        if (!list->devices[i]->api->host_memory) gpu_threads += 2;
    if (list->options.threads || !gpu_threads) return list->options.threads;
    for (size_t i = 0, count = tu_device_count(); i < count && tu_device(i, &info) == TU_OK; i++)
        if (strcmp(info.name, "cpu:0") == 0) return info.cores > gpu_threads ? info.cores - gpu_threads : 1;
    return 0;
}

tu_status tu__device_list_add(tu__device_list *list, tu__unit *unit, const char *name) {
    if (*list->count == TU__MAX_DEVICES)
        return tu_fail(TU_UNSUPPORTED, "a program can have at most %d devices", TU__MAX_DEVICES);
    tu__device *opened[TU__MAX_DEVICES];
    size_t added;
    tu_open_options options = list->options;
    if (strcmp(name, "cpu:0") == 0) options.threads = count_remaining_cores(list);
    TU_TRY(tu__devices_open(name, &options, TU__MAX_DEVICES, opened, &added));
    if (added > 1) {
        tu__devices_close(added, opened);
        return tu_fail(TU_INVALID, "'%s' names %zu devices: expected one", name, added);
    }
    list->devices[(*list->count)++] = opened[0];
    set_unit_devices(list, unit);
    return TU_OK;
}

static tu_status add_host(void *context, tu__unit *unit) {
    return tu__device_list_add(context, unit, "cpu:0");
}

bool tu__device_list_has_all(const char *devices) {
    for (const char *spec = devices ? devices : "all"; *spec;) {
        size_t length = strcspn(spec, ",");
        if (length == 3 && strncmp(spec, "all", 3) == 0) return true;
        spec += length + (spec[length] == ',');
    }
    return false;
}

tu_status tu__placement_init(tu__device_list *list, tu__placement_options *placement, tu__unit *unit,
                             const char *devices, const tu_open_options *options,
                             const tu_compile_options *compile_options) {
    list->options = options ? *options : (tu_open_options){0};
    TU_TRY(tu__devices_open(devices, &list->options, TU__MAX_DEVICES, list->devices, list->count));
    *placement = (tu__placement_options){.patterns = compile_options->place,
                                         .choose_device = compile_options->place_by,
                                         .choose_context = compile_options->place_context,
                                         .strict = compile_options->strict_placement,
                                         .context = list,
                                         .supports = supports,
                                         .is_host = is_host,
                                         .add_host = tu__device_list_has_all(devices) ? add_host : NULL};
    set_unit_devices(list, unit);
    unit->placement = placement;
    return tu__replication_init(list, unit, compile_options);
}
