/* The null device: plans programs, but computes nothing.
 *
 * Everything before the launch is real, so planning, placement and order can be tested without hardware. It has no
 * memory, only addresses: results are zeros. */
#include <string.h>

#include <tutti/device.h>

#include "base/alloc.h"
#include "device/node_plan.h"

struct tu_device_instance {
    uintptr_t next; /* the next address to return; no memory is behind it */
};

static tu_status describe(tu_device_instance *device, int index, tu_device_info *info) {
    (void)device;
    static const char *const names[] = {"null:0", "null:1", "null:2", "null:3",
                                        "null:4", "null:5", "null:6", "null:7"};
    if (index >= 8) return tu_fail(TU_NOT_FOUND, "there are eight null devices, null:0 to null:7");
    *info = (tu_device_info){.name = names[index],
                             .kind = "null",
                             .description = "plans programs, computes nothing: results are zeros"};
    return TU_OK;
}

static tu_status open_device(const tu_open_options *options, tu_device_instance **device) {
    (void)options;
    *device = tu__alloc(sizeof **device, "a device");
    if (!*device) return TU_NO_MEMORY;
    (*device)->next = 4096;
    return TU_OK;
}

static void close_device(tu_device_instance *device) {
    tu__free(device);
}

static tu_status allocate(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    if (on_host) return TU_UNSUPPORTED;
    *address = (void *)device->next; // NOLINT(performance-no-int-to-ptr): never dereferenced
    device->next += (bytes + 63) & ~(uintptr_t)63;
    return TU_OK;
}

static void release(tu_device_instance *device, void *address) {
    (void)device, (void)address;
}

static tu_status copy(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                      size_t bytes) {
    (void)device, (void)queue, (void)from;
    if (!to.device) memset(to.address, 0, bytes);
    return TU_OK;
}

static tu_status launch(tu_device_instance *device, tu_executable *executable, uint32_t first,
                        uint32_t count) {
    (void)device, (void)executable, (void)first, (void)count;
    return TU_OK;
}

extern const tu_device_api tu__null_api;
const tu_device_api tu__null_api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof(tu_device_api),
    .kind = "null",
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .lower = tu__node_plan_lower,
    .plan_free = tu__node_plan_free,
    .build = tu__node_plan_build,
    .executable_free = tu__node_executable_free,
    .launch = launch,
};
