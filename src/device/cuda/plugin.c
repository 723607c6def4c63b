/* The function table through which the engine uses GPUs, and the plug-in's entry point.
 *
 * Functions of the table may be called from any thread, so each first makes the context current (cuda_make_current),
 * which costs about ten nanoseconds. */
#include <string.h>

#include "device/cuda/ops/ops.h"
#include "device/cuda/runtime/combine.h"
#include "device/cuda/runtime/cuda.h"

/* ---- Memory ---- */

static tu_status allocate(tu_device_instance *device, size_t bytes, void **address) {
    cuda_device *d = cuda_device_of(device);
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
    cuda.cuCtxSetCurrent(d->context);
    cuda_memory_free(d->memory, cuda_address(address));
}

static tu_status reserve(tu_device_instance *device, uint64_t bytes) {
    const cuda_device *d = cuda_device_of(device);
    TU_TRY(cuda_make_current(d));
    tu_status status = cuda_memory_reserve(d->memory, bytes);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", d->name, tu_message());
}

static tu_status pin(tu_device_instance *device, void *host, size_t bytes) {
    return cuda_pin(cuda_device_of(device), host, bytes);
}

static void unpin(tu_device_instance *device, void *host) {
    cuda_unpin(cuda_device_of(device), host);
}

static tu_status upload(tu_device_instance *device, void *to, const void *host, size_t bytes) {
    return cuda_upload(cuda_device_of(device), to, host, bytes);
}

static tu_status upload_begin(tu_device_instance *device, void *to, const void *host, size_t bytes,
                              void *event) {
    return cuda_upload_begin(cuda_device_of(device), to, host, bytes, event);
}

static tu_status download(tu_device_instance *device, void *host, const void *from, size_t bytes) {
    return cuda_download(cuda_device_of(device), host, from, bytes);
}

static tu_status download_begin(tu_device_instance *device, void *host, const void *from, size_t bytes,
                                void *after, void *event) {
    return cuda_download_begin(cuda_device_of(device), host, from, bytes, after, event);
}

static tu_status copy(tu_device_instance *device, void *to, tu_device_instance *other,
                      const tu_device_api *other_api, const void *from, size_t bytes) {
    if (other_api->host_memory) return upload(device, to, from, bytes);
    if (strcmp(other_api->kind, "gpu") != 0) return TU_UNSUPPORTED;
    return cuda_copy_from(cuda_device_of(device), to, cuda_device_of(other), from, bytes);
}

static tu_status event_new(tu_device_instance *device, void **event) {
    return cuda_event_new(cuda_device_of(device), event);
}

static void event_free(tu_device_instance *device, void *event) {
    if (!cuda_is_abandoned(cuda_device_of(device))) cuda_event_free(cuda_device_of(device), event);
}

static tu_status event_record(tu_device_instance *device, void *event) {
    return cuda_event_record(cuda_device_of(device), event);
}

static tu_status event_wait(tu_device_instance *device, void *event) {
    return cuda_event_wait(cuda_device_of(device), event);
}

static tu_status event_synchronize(tu_device_instance *device, void *event) {
    return cuda_event_synchronize(cuda_device_of(device), event);
}

static tu_status event_query(tu_device_instance *device, void *event, bool *happened) {
    return cuda_event_query(cuda_device_of(device), event, happened);
}

/* ---- Plans: ops/select.c, runtime/plan.c ---- */

static tu_status select_kernels(tu_device_instance *device, const tu_partition *partition, tu_plan **plan) {
    return cuda_select(cuda_device_of(device), partition, plan);
}

static tu_status supports(tu_device_instance *device, const tu_graph *graph, uint32_t node) {
    (void)device; /* all GPUs support the same operations */
    return cuda_supports(graph->nodes[node]);
}

static tu_status build(tu_device_instance *device, tu_plan *plan, const tu_binding *binding) {
    return cuda_build(cuda_device_of(device), plan, binding);
}

static void plan_free(tu_device_instance *device, tu_plan *plan) {
    if (!cuda_is_abandoned(cuda_device_of(device))) cuda_plan_free(cuda_device_of(device), plan);
}

static tu_status launch(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count) {
    return cuda_launch_plan(cuda_device_of(device), plan, first, count);
}

static tu_status trace(tu_device_instance *device, tu_plan *plan, uint32_t position, double *start,
                       double *seconds) {
    return cuda_trace(cuda_device_of(device), plan, position, start, seconds);
}

static tu_status synchronize(tu_device_instance *device) {
    const cuda_device *d = cuda_device_of(device);
    TU_TRY(cuda_make_current(d));
    return cuda_synchronize(d);
}

static tu_status combine(tu_device_instance *device, const tu_combination *combination) {
    cuda_device *d = cuda_device_of(device);
    TU_TRY(cuda_make_current(d));
    return cuda_combine(d, combination, d->stream);
}

static tu_status enable_peer_access(tu_device_instance *device, tu_device_instance *other) {
    return cuda_enable_peer_access(cuda_device_of(device), cuda_device_of(other));
}

static void set_timeout(tu_device_instance *device, double seconds) {
    cuda_device_of(device)->timeout_seconds = seconds;
}

static void abandon(tu_device_instance *device) {
    cuda_abandon(cuda_device_of(device));
}

static uint64_t overhead(tu_device_instance *device) {
    return cuda_device_of(device)->overhead_bytes;
}

static const tu_device_api api = {
    .abi = TU_DEVICE_ABI,
    .struct_size = sizeof(tu_device_api),
    .kind = "gpu",
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .copy = copy,
    .select = select_kernels,
    .build = build,
    .plan_free = plan_free,
    .launch = launch,
    .synchronize = synchronize,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .trace = trace,
    .overhead = overhead,
    .supports = supports,
    .event_synchronize = event_synchronize,
    .combine = combine,
    .submit = cuda_submit_list,
    .pin = pin,
    .unpin = unpin,
    .upload_begin = upload_begin,
    .download_begin = download_begin,
    .enable_peer_access = enable_peer_access,
    .reserve = reserve,
    .set_timeout = set_timeout,
    .abandon = abandon,
    .event_query = event_query,
};

/* The plugin uses the engine's internal structures, so it works only with the version it was built with. */
TU_API const tu_device_api *tu_device_plugin(void);
const tu_device_api *tu_device_plugin(void) {
    static tu_device_api rejected;
    if (strcmp(tu_version(), TU_VERSION) == 0) return &api;
    rejected.kind = "gpu"; /* abi 0: the engine rejects the plugin with a message that names its path */
    return &rejected;
}
