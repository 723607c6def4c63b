/* The function table through which the engine uses GPUs, and the plug-in's entry point.
 *
 * Functions of the table may be called from any thread, so each first makes the context current (cuda_make_current),
 * which costs about ten nanoseconds. */
#include "device/cuda/ops/ops.h"
#include "device/cuda/runtime/cuda.h"
#include "device/kit/kit.h"

/* ---- Memory ---- */

static tu_status allocate(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    cuda_device *d = cuda_device_of(device);
    if (on_host) return cuda_pinned_allocate(d, bytes, address);
    TU_TRY(cuda_make_current(d));
    CUdeviceptr block = 0;
    tu_status status = cuda_memory_allocate(d->memory, bytes, &block);
    if (status != TU_OK) return tu_fail(status, "%s: %s", d->name, tu_message());
    *address = cuda_pointer(block);
    return TU_OK;
}

static void release(tu_device_instance *device, void *address) {
    const cuda_device *d = cuda_device_of(device);
    if (!address || cuda_is_abandoned(d)) return;
    if (cuda_pinned_free(d, address)) return;
    cuda.cuCtxSetCurrent(d->context);
    cuda_memory_free(d->memory, cuda_address(address));
}

static tu_status copy(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                      size_t bytes) {
    return cuda_copy_memory(cuda_device_of(device), queue, to, from, bytes);
}

static tu_status reserve(tu_device_instance *device, uint64_t bytes) {
    const cuda_device *d = cuda_device_of(device);
    TU_TRY(cuda_make_current(d));
    tu_status status = cuda_memory_reserve(d->memory, bytes);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", d->name, tu_message());
}

/* ---- Programs: ops/select.c, runtime/plan.c, runtime/executable.c ---- */

static tu_status lower(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    return cuda_lower(cuda_device_of(device), partition, plan);
}

static tu_status supports(tu_device_instance *device, const tu_graph *graph, uint32_t node) {
    (void)device; /* all GPUs support the same operations */
    return cuda_supports(graph->nodes[node]);
}

static void plan_free(tu_device_instance *device, tu_plan *plan) {
    if (!cuda_is_abandoned(cuda_device_of(device))) cuda_plan_free(cuda_device_of(device), plan);
}

static tu_status build(tu_device_instance *device, tu_queue *queue, tu_plan *plan, const tu_binding *binding,
                       tu_executable **executable) {
    return cuda_build(cuda_device_of(device), queue, plan, binding, executable);
}

static void executable_free(tu_device_instance *device, tu_executable *executable) {
    if (!cuda_is_abandoned(cuda_device_of(device))) cuda_executable_free(cuda_device_of(device), executable);
}

static tu_status launch(tu_device_instance *device, tu_executable *executable, uint32_t first,
                        uint32_t count) {
    return cuda_launch_executable(cuda_device_of(device), executable, first, count);
}

static tu_status times(tu_device_instance *device, tu_executable *executable, uint32_t position,
                       double *start, double *seconds) {
    return cuda_times_of(cuda_device_of(device), executable, position, start, seconds);
}

static void abandon(tu_device_instance *device) {
    cuda_abandon(cuda_device_of(device));
}

/* ---- Queues: runtime/queue.c, runtime/timeout.c ---- */

static tu_status queue_new(tu_device_instance *device, uint32_t event_count, tu_queue **queue) {
    return cuda_queue_new(cuda_device_of(device), event_count, queue);
}

static void queue_free(tu_device_instance *device, tu_queue *queue) {
    if (!cuda_is_abandoned(cuda_device_of(device))) cuda_queue_free(queue);
}

/* ---- Several devices: runtime/peer_access.c, runtime/collective.c, runtime/submit.c ---- */

static tu_status peer_access(tu_device_instance *device, tu_device_instance *other) {
    return cuda_enable_peer_access(cuda_device_of(device), cuda_device_of(other));
}

static tu_status build_collective(tu_device_instance *device, tu_queue *queue,
                                  const tu_collective *collective, tu_executable **executable) {
    return cuda_build_collective(cuda_device_of(device), queue, collective, executable);
}

static tu_status build_list(tu_device_instance *device, const tu_list_binding *binding,
                            tu_executable **executable) {
    (void)device; /* that of the first queue */
    return cuda_build_list(binding, executable);
}

static tu_status submit(tu_device_instance *device, tu_executable *executable,
                        const tu_submission *submission) {
    (void)device; /* that of the first queue */
    return cuda_submit_list(executable, submission);
}

static const tu_device_api api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof(tu_device_api),
    .kind = "gpu",
    .accelerator = true,
    .parallel = true,
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .lower = lower,
    .plan_free = plan_free,
    .build = build,
    .executable_free = executable_free,
    .launch = launch,
    .supports = supports,
    .times = times,
    .reserve = reserve,
    .abandon = abandon,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .record = cuda_record,
    .wait = cuda_wait,
    .synchronize = cuda_synchronize,
    .peer_access = peer_access,
    .build_collective = build_collective,
    .build_list = build_list,
    .submit = submit,
};

TU_API const tu_device_api *tu_device_plugin(void);
const tu_device_api *tu_device_plugin(void) {
    return tu_kit_plugin(&api);
}
