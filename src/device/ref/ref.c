/* The reference device: runs any graph, one node after another, with the operations' reference kernels.
 *
 * The inputs of each operation are converted to double, computed, and rounded to the element type. So the results
 * are those of an ideal device, and the other devices are tested against them. The code is simple rather than
 * fast. */
#include <tutti/device.h>

#include "base/alloc.h"
#include "device/host_memory.h"
#include "device/node_plan.h"

struct tu_device_instance {
    int index;
};

static tu_status describe(tu_device_instance *device, int index, tu_device_info *info) {
    (void)device;
    if (index > 0) return tu_fail(TU_NOT_FOUND, "there is one reference device, ref:0");
    *info = (tu_device_info){.name = "ref:0",
                             .kind = "ref",
                             .description = "reference: every operation and type in plain C, computed in f64",
                             .cores = 1};
    return TU_OK;
}

static tu_status open_device(const tu_open_options *options, tu_device_instance **device) {
    *device = tu__alloc(sizeof **device, "a device");
    if (!*device) return TU_NO_MEMORY;
    (*device)->index = options->index;
    return TU_OK;
}

static void close_device(tu_device_instance *device) {
    tu__free(device);
}

enum { MAX_TENSORS = 64 };

/* Returns the addresses of a kernel's buffers, in `inline_list` if they fit (all but very wide concatenations). */
static void **buffer_addresses(const tu_executable *e, const uint32_t *buffers, uint32_t count,
                               void **inline_list) {
    void **list =
        count <= MAX_TENSORS ? inline_list : tu__alloc_array(count, sizeof *list, "an operation's tensors");
    for (uint32_t i = 0; list && i < count; i++) list[i] = e->binding.buffers[buffers[i]];
    return list;
}

static tu_status run_kernel(const tu_executable *e, const tu_kernel *k) {
    void *inline_in[MAX_TENSORS], *inline_out[MAX_TENSORS];
    void **in = buffer_addresses(e, k->reads, k->read_count, inline_in);
    void **out = buffer_addresses(e, k->writes, k->write_count, inline_out);
    tu_status status = TU_NO_MEMORY;
    if (in && out)
        status =
            tu_node_evaluate(e->plan->graph, k->nodes[0], *e->binding.seed, (const void *const *)in, out);
    if (in != inline_in) tu__free(in);
    if (out != inline_out) tu__free(out);
    return status;
}

static tu_status launch(tu_device_instance *device, tu_executable *e, uint32_t first, uint32_t count) {
    (void)device;
    for (uint32_t i = first; i < first + count; i++)
        TU_TRY(run_kernel(e, &e->plan->plan.kernels[e->binding.order[i]]));
    return TU_OK;
}

extern const tu_device_api tu__ref_api;
const tu_device_api tu__ref_api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof(tu_device_api),
    .kind = "ref",
    .host_memory = true,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .allocate = tu__host_allocate,
    .release = tu__host_release,
    .copy = tu__host_copy,
    .lower = tu__node_plan_lower,
    .plan_free = tu__node_plan_free,
    .build = tu__node_plan_build,
    .executable_free = tu__node_executable_free,
    .launch = launch,
};
