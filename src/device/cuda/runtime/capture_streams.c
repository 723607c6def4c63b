/* Captures the kernels of an executable on several streams.
 *
 * streams.c assigns each kernel to a stream. While a CUDA graph is captured, the side streams join the capture by
 * waiting for an event of the queue's stream, wait for each other's kernels with events, and are joined to that stream
 * at the end. The captured graph contains only kernels and their dependencies, no streams or events.
 * Results are bitwise the same as with one stream, and a replay is still one call.
 */
#include "base/alloc.h"
#include "device/cuda/runtime/executable.h"

/* ---- Assigning kernels to streams ---- */

/* Estimates a kernel's run time. The constants are rough: only the ratio to the launch time matters. */
static double estimate_seconds(const tu__kernel_plan *p, const tu__kernel *k) {
    const double launch = 2e-6, bytes_per_second = 3e12, flops_per_second = 3e13;
    double bytes = (double)k->bytes_moved;
    for (uint32_t i = 0; !k->bytes_moved && i < k->read_count; i++)
        bytes += (double)p->buffers[k->reads[i]].bytes;
    for (uint32_t i = 0; !k->bytes_moved && i < k->write_count; i++)
        bytes += (double)p->buffers[k->writes[i]].bytes;
    return launch + bytes / bytes_per_second + (double)k->flops / flops_per_second;
}

static cuda_extent extent_of(const void *address, size_t bytes, bool written) {
    return (cuda_extent){(uintptr_t)address, (uintptr_t)address + bytes, written};
}

static tu_status describe_work(const tu__kernel_plan *p, const tu__kernel *k, tu__arena *arena,
                               cuda_work *work) {
    uint32_t count = k->read_count + k->write_count + 1, n = 0;
    cuda_extent *extents = tu__arena_alloc(arena, count * sizeof *extents);
    if (!extents) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < k->read_count; i++)
        extents[n++] = extent_of(k->in[i], p->buffers[k->reads[i]].bytes, false);
    for (uint32_t i = 0; i < k->write_count; i++)
        extents[n++] = extent_of(k->out[i], p->buffers[k->writes[i]].bytes, true);
    if (k->workspace_bytes) extents[n++] = extent_of(k->workspace, k->workspace_bytes, true);
    *work = (cuda_work){.extents = extents, .extent_count = n, .seconds = estimate_seconds(p, k)};
    return TU_OK;
}

static tu_status assign_streams(const cuda_kernels *k, bool *is_faster) {
    uint32_t count = k->bound.count;
    tu__arena arena = {.purpose = "kernels on streams"};
    cuda_work *work = tu__arena_alloc(&arena, count * sizeof *work);
    tu_status status = work ? TU_OK : TU_NO_MEMORY;
    for (uint32_t i = 0; i < count && status == TU_OK; i++)
        status = describe_work(k->bound.plan, &k->bound.kernels[i], &arena, &work[i]);
    *is_faster = status == TU_OK && cuda_assign_streams(count, work, k->assignments);
    tu__arena_free(&arena);
    return status;
}

/* True if a kernel's node has control dependencies. Those are not visible in the memory that kernels read and write,
 * so such a plan keeps its kernels in order on one stream. */
static bool has_control_deps(const tu__kernel_plan *p) {
    for (uint32_t i = 0; i < p->kernel_count; i++) {
        const tu__kernel *k = p->kernels[i];
        for (uint32_t n = 0; n < k->node_count; n++)
            if (p->selection.graph->nodes[k->nodes[n]]->after_count) return true;
    }
    return false;
}

static tu_status create_side_streams(cuda_queue *queue) {
    for (int s = 1; s < CUDA_STREAMS; s++) {
        if (!queue->side_streams[s])
            CUDA_TRY(cuStreamCreate, &queue->side_streams[s], CU_STREAM_NON_BLOCKING);
        if (!queue->join_events[s]) CUDA_TRY(cuEventCreate, &queue->join_events[s], CU_EVENT_DISABLE_TIMING);
    }
    if (!queue->join_events[0]) CUDA_TRY(cuEventCreate, &queue->join_events[0], CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static tu_status create_kernel_events(const cuda_kernels *k) {
    for (uint32_t i = 0; i < k->bound.count; i++)
        if (k->assignments[i].waited_for)
            CUDA_TRY(cuEventCreate, &k->kernel_done[i], CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

static tu_status allocate_assignments(cuda_kernels *k) {
    size_t count = k->bound.count;
    k->assignments = tu__arena_alloc(&k->arena, count * sizeof *k->assignments);
    k->kernel_done = tu__arena_alloc(&k->arena, count * sizeof *k->kernel_done);
    return k->assignments && k->kernel_done ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_assign_kernel_streams(cuda_kernels *k) {
    if (k->device->streams == 1 || k->bound.count < 2 || has_control_deps(k->bound.plan)) return TU_OK;
    TU_TRY(allocate_assignments(k));
    bool is_faster;
    TU_TRY(assign_streams(k, &is_faster));
    if (!is_faster) return TU_OK;
    TU_TRY(create_side_streams(k->queue));
    TU_TRY(create_kernel_events(k));
    k->uses_streams = true;
    return TU_OK;
}

void cuda_free_stream_events(cuda_kernels *k) {
    for (uint32_t i = 0; k->kernel_done && i < k->bound.count; i++)
        if (k->kernel_done[i]) cuda.cuEventDestroy(k->kernel_done[i]);
}

/* ---- Enqueueing ---- */

typedef struct fork {
    CUstream streams[CUDA_STREAMS]; /* [0]: the queue's stream */
    bool used[CUDA_STREAMS];
    uint32_t first;
} fork;

static tu_status enqueue_assigned(cuda_kernels *k, fork *fork_state, uint32_t i) {
    const cuda_stream_assignment *assignment = &k->assignments[i];
    CUstream stream = fork_state->streams[assignment->stream];
    if (!fork_state->used[assignment->stream])
        CUDA_TRY(cuStreamWaitEvent, stream, k->queue->join_events[0], 0);
    fork_state->used[assignment->stream] = true;
    for (int s = 0; s < CUDA_STREAMS;
         s++) /* kernels launched before this range have finished when it starts */
        if (assignment->waits[s] >= (int)fork_state->first)
            CUDA_TRY(cuStreamWaitEvent, stream, k->kernel_done[assignment->waits[s]], 0);
    k->queue->active = stream;
    TU_TRY(cuda_enqueue_one(k, i));
    if (assignment->waited_for) CUDA_TRY(cuEventRecord, k->kernel_done[i], stream);
    return TU_OK;
}

static tu_status join_streams(const cuda_queue *queue, const fork *fork_state) {
    for (int s = 1; s < CUDA_STREAMS; s++) {
        if (!fork_state->used[s]) continue;
        CUDA_TRY(cuEventRecord, queue->join_events[s], fork_state->streams[s]);
        CUDA_TRY(cuStreamWaitEvent, fork_state->streams[0], queue->join_events[s], 0);
    }
    return TU_OK;
}

tu_status cuda_enqueue_on_streams(cuda_kernels *k, uint32_t first, uint32_t count) {
    cuda_queue *queue = k->queue;
    fork fork_state = {.streams = {queue->stream}, .used = {true}, .first = first};
    for (int s = 1; s < CUDA_STREAMS; s++) fork_state.streams[s] = queue->side_streams[s];
    CUDA_TRY(cuEventRecord, queue->join_events[0], queue->stream);
    tu_status status = TU_OK;
    queue->forked = true;
    for (uint32_t i = first; i < first + count && status == TU_OK; i++)
        status = enqueue_assigned(k, &fork_state, i);
    queue->active = queue->stream;
    queue->forked = false;
    return status == TU_OK ? join_streams(queue, &fork_state) : status;
}
