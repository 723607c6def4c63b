/* Captures a plan's kernels on several streams.
 *
 * streams.c assigns each kernel to a stream. While a CUDA graph is captured, the side streams join the capture by
 * waiting for an event of the device's main stream, wait for each other's kernels with events, and are joined to the
 * main stream at the end. The captured graph contains only kernels and their dependencies, no streams or events.
 * Results are bitwise the same as with one stream, and a replay is still one call.
 */
#include "base/alloc.h"
#include "device/cuda/runtime/plan.h"

/* ---- Assigning kernels to streams ---- */

/* Estimates a kernel's run time. The constants are rough: only the ratio to the launch time matters. */
static double guess_seconds(const tu__kernel_plan *p, const tu__kernel *k) {
    const double launch = 2e-6, bytes_a_second = 3e12, flops_a_second = 3e13;
    double bytes = (double)k->bytes_moved;
    for (uint32_t i = 0; !k->bytes_moved && i < k->read_count; i++)
        bytes += (double)p->buffers[k->reads[i]].bytes;
    for (uint32_t i = 0; !k->bytes_moved && i < k->write_count; i++)
        bytes += (double)p->buffers[k->writes[i]].bytes;
    return launch + bytes / bytes_a_second + (double)k->flops / flops_a_second;
}

static cuda_extent extent_of(const void *address, size_t bytes, bool written) {
    return (cuda_extent){(uintptr_t)address, (uintptr_t)address + bytes, written};
}

static tu_status describe(const tu__kernel_plan *p, const tu__kernel *k, tu__arena *arena, cuda_work *work) {
    uint32_t count = k->read_count + k->write_count + 1, n = 0;
    cuda_extent *extents = tu__arena_alloc(arena, count * sizeof *extents);
    if (!extents) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < k->read_count; i++)
        extents[n++] = extent_of(k->in[i], p->buffers[k->reads[i]].bytes, false);
    for (uint32_t i = 0; i < k->write_count; i++)
        extents[n++] = extent_of(k->out[i], p->buffers[k->writes[i]].bytes, true);
    if (k->workspace_bytes) extents[n++] = extent_of(k->workspace, k->workspace_bytes, true);
    *work = (cuda_work){.extents = extents, .extent_count = n, .seconds = guess_seconds(p, k)};
    return TU_OK;
}

static tu_status deal(tu__kernel_plan *p, bool *deals) {
    const cuda_runtime *runtime = p->runtime;
    tu__arena arena = {.purpose = "kernels on streams"};
    cuda_work *work = tu__arena_alloc(&arena, p->kernel_count * sizeof *work);
    tu_status status = work ? TU_OK : TU_NO_MEMORY;
    for (uint32_t i = 0; i < p->kernel_count && status == TU_OK; i++)
        status = describe(p, p->kernels[p->order[i]], &arena, &work[i]);
    *deals = status == TU_OK && cuda_deal(p->kernel_count, work, runtime->places);
    tu__arena_free(&arena);
    return status;
}

/* True if a kernel's node has control dependencies. Those are not visible in the memory that kernels read and write,
 * so such a plan keeps its kernels in order on one stream. */
static bool has_bonds(const tu__kernel_plan *p) {
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        const tu__kernel *k = p->kernels[i];
        for (uint32_t n = 0; n < k->node_count; n++)
            if (p->selection.graph->nodes[k->nodes[n]]->after_count) return true;
    }
    return false;
}

static tu_status make_streams(cuda_device *device) {
    for (int s = 1; s < CUDA_STREAMS; s++) {
        if (!device->side[s]) CUDA_TRY(cuStreamCreate, &device->side[s], CU_STREAM_NON_BLOCKING);
        if (!device->joined[s]) CUDA_TRY(cuEventCreate, &device->joined[s], CU_EVENT_DISABLE_TIMING);
    }
    if (!device->joined[0]) CUDA_TRY(cuEventCreate, &device->joined[0], CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static tu_status make_events(const tu__kernel_plan *p) {
    const cuda_runtime *runtime = p->runtime;
    for (uint32_t i = 0; i < p->kernel_count; i++)
        if (runtime->places[i].waited_for && !runtime->made[i])
            CUDA_TRY(cuEventCreate, &runtime->made[i], CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static tu_status reserve(tu__kernel_plan *p) {
    cuda_runtime *runtime = p->runtime;
    size_t count = p->kernel_count;
    if (!runtime->places)
        runtime->places = tu__arena_alloc(&p->selection.arena, count * sizeof *runtime->places);
    if (!runtime->made) runtime->made = tu__arena_alloc(&p->selection.arena, count * sizeof *runtime->made);
    return runtime->places && runtime->made ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_spread_plan(cuda_device *device, tu__kernel_plan *p) {
    cuda_runtime *runtime = p->runtime;
    runtime->spread = false;
    if (device->streams == 1 || p->kernel_count < 2 || has_bonds(p)) return TU_OK;
    TU_TRY(reserve(p));
    bool deals;
    TU_TRY(deal(p, &deals));
    if (!deals) return TU_OK;
    TU_TRY(make_streams(device));
    TU_TRY(make_events(p));
    runtime->spread = true;
    return TU_OK;
}

void cuda_spread_free(tu__kernel_plan *p) {
    const cuda_runtime *runtime = p->runtime;
    for (uint32_t i = 0; runtime->made && i < p->kernel_count; i++)
        if (runtime->made[i]) cuda.cuEventDestroy(runtime->made[i]);
}

/* ---- Enqueueing ---- */

/* Makes a stream the one that kernels and libraries enqueue into. Used for the duration of one kernel. */
static tu_status use_stream(cuda_device *device, CUstream stream) {
    if (device->stream == stream) return TU_OK;
    device->stream = stream;
    if (device->dnn) DNN_TRY(cudnnSetStream, device->dnn, stream);
    if (device->solver) SOLVER_TRY(cusolverDnSetStream, device->solver, stream);
    return TU_OK;
}

typedef struct fork {
    CUstream streams[CUDA_STREAMS]; /* [0]: the device's main stream */
    bool used[CUDA_STREAMS];
    uint32_t first;
} fork;

static tu_status enqueue_place(cuda_device *device, const tu__kernel_plan *p, fork *f, uint32_t i) {
    const cuda_runtime *runtime = p->runtime;
    const cuda_place *place = &runtime->places[i];
    CUstream stream = f->streams[place->stream];
    if (!f->used[place->stream]) CUDA_TRY(cuStreamWaitEvent, stream, device->joined[0], 0);
    f->used[place->stream] = true;
    for (int s = 0; s < CUDA_STREAMS; s++) /* kernels launched before this range have finished when it starts */
        if (place->waits[s] >= (int)f->first)
            CUDA_TRY(cuStreamWaitEvent, stream, runtime->made[place->waits[s]], 0);
    TU_TRY(use_stream(device, stream));
    TU_TRY(cuda_enqueue_one(p, i));
    if (place->waited_for) CUDA_TRY(cuEventRecord, runtime->made[i], stream);
    return TU_OK;
}

static tu_status join(const cuda_device *device, const fork *f) {
    for (int s = 1; s < CUDA_STREAMS; s++) {
        if (!f->used[s]) continue;
        CUDA_TRY(cuEventRecord, device->joined[s], f->streams[s]);
        CUDA_TRY(cuStreamWaitEvent, f->streams[0], device->joined[s], 0);
    }
    return TU_OK;
}

tu_status cuda_enqueue_spread(cuda_device *device, tu__kernel_plan *p, uint32_t first, uint32_t count) {
    fork f = {.streams = {device->stream}, .used = {true}, .first = first};
    for (int s = 1; s < CUDA_STREAMS; s++) f.streams[s] = device->side[s];
    CUDA_TRY(cuEventRecord, device->joined[0], device->stream);
    tu_status status = TU_OK;
    for (uint32_t i = first; i < first + count && status == TU_OK; i++)
        status = enqueue_place(device, p, &f, i);
    tu_status back = use_stream(device, f.streams[0]);
    if (status == TU_OK) status = back;
    return status == TU_OK ? join(device, &f) : status;
}
