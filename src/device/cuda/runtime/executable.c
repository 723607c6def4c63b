/* Executables: kernels bound to addresses and a queue, replayed as CUDA graphs.
 *
 * The first launch of a range of kernels enqueues them one by one, because libraries load modules at first use. The
 * second launch captures the same calls into a graph, and later launches replay it: one driver call for a whole step.
 * A graph contains addresses and the seed. If the seed changes, it is captured again. A capture that another thread has
 * invalidated is repeated: what it captured has not run, so nothing is done twice.
 *
 * Once times have been requested, the graph is captured with events between the kernels, which cost a microsecond
 * each (kernel_times.c). Kernels that do not fill the GPU are captured on several streams if the estimate says it is
 * faster (capture_streams.c).
 */
#include "device/cuda/runtime/executable.h"

#include <stdio.h>

#include "base/alloc.h"
#include "device/cuda/runtime/branches.h"
#include "device/cuda/runtime/capture_lock.h"

/* ---- Building ---- */

tu_executable *cuda_executable_new(cuda_executable_kind kind) {
    tu_executable *created = tu__alloc(sizeof *created, "an executable");
    if (created) created->kind = kind;
    return created;
}

static tu_status bind_kernels(cuda_kernels *k, tu__kernel_plan *plan, const tu_binding *binding) {
    k->arena.purpose = "an executable";
    k->runtime = cuda_runtime_of(plan);
    if (!k->runtime) return TU_NO_MEMORY;
    TU_TRY(tu__kernels_bind(plan, binding, k->queue, &k->bound));
    TU_TRY(cuda_compile_plan(k->device, plan));
    TU_TRY(cuda_create_branches(k->queue, k->runtime->branches));
    return cuda_assign_kernel_streams(k);
}

tu_status cuda_build(cuda_device *device, cuda_queue *queue, tu_plan *plan, const tu_binding *binding,
                     tu_executable **executable) {
    TU_TRY(cuda_make_current(device));
    tu_executable *created = cuda_executable_new(CUDA_KERNELS);
    if (!created) return TU_NO_MEMORY;
    created->kernels.device = device;
    created->kernels.queue = queue ? queue : &device->own_queue;
    tu_status status = bind_kernels(&created->kernels, (tu__kernel_plan *)plan, binding);
    if (status == TU_OK)
        *executable = created;
    else
        cuda_executable_free(device, created);
    return status;
}

static void destroy_segment_graphs(const cuda_kernels *k) {
    for (cuda_segment *s = k->segments; s; s = s->next)
        if (s->exec) cuda.cuGraphExecDestroy(s->exec);
}

static void free_kernels(cuda_kernels *k) {
    cuda.cuStreamSynchronize(k->queue->stream);
    destroy_segment_graphs(k);
    cuda_times_free(k);
    cuda_free_stream_events(k);
    tu__kernels_unbind(&k->bound);
    tu__arena_free(&k->arena);
}

/* Also for a lost GPU: then calls of the driver fail without effect. */
void cuda_executable_free(const cuda_device *device, tu_executable *executable) {
    cuda.cuCtxSetCurrent(device->context);
    switch (executable->kind) {
    case CUDA_KERNELS: free_kernels(&executable->kernels); break;
    case CUDA_COLLECTIVE: cuda_collective_free(&executable->collective); break;
    case CUDA_LIST: cuda_submit_free(executable->list); break;
    }
    tu__free(executable);
}

/* ---- Launching ---- */

tu_status cuda_enqueue_one(const cuda_kernels *e, uint32_t position) {
    const tu__kernel *k = &e->bound.kernels[position];
    tu_status status = k->run(k);
    if (status == TU_OK) return TU_OK;
    return tu_fail(status, "%s '%s': %s", k->name, e->bound.plan->selection.graph->nodes[k->nodes[0]]->name,
                   tu_message());
}

tu_status cuda_enqueue(cuda_kernels *k, uint32_t first, uint32_t count) {
    if (k->queue->capturing && k->uses_streams && !k->timed) return cuda_enqueue_on_streams(k, first, count);
    for (uint32_t i = first; i < first + count; i++) {
        TU_TRY(cuda_mark_begin(k, i));
        TU_TRY(cuda_enqueue_one(k, i));
    }
    return count ? cuda_mark_end(k, first + count - 1) : TU_OK;
}

/* Ends a capture in any case, or the stream would stay unusable. */
static tu_status end_capture(CUstream stream, CUgraph *graph, bool *invalidated) {
    const char *function = "cuStreamEndCapture";
    CUresult result = cuda.cuStreamEndCapture(stream, graph);
    *invalidated = result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return cuda_check_driver(cuda_call_fails(function) ? CUDA_ERROR_LAUNCH_FAILED : result, function);
}

/* Captures a graph. Sets `*invalidated` if that failed because the capture was invalidated, by this thread or another. */
static tu_status capture(cuda_queue *queue, tu_status (*enqueue)(void *context), void *context,
                         CUgraphExec *exec, bool *invalidated) {
    CUgraph graph = NULL;
    char message[1024] = "";
    *invalidated = false;
    TU_TRY(cuda_make_current(queue->device)); /* a failed attempt may have left another GPU */
    CUDA_TRY(cuStreamBeginCapture, queue->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    queue->capturing = true;
    tu_status status = enqueue(context);
    queue->capturing = false;
    if (status != TU_OK) snprintf(message, sizeof message, "%s", tu_message());
    tu_status ended = end_capture(queue->stream, &graph, invalidated);
    if (status == TU_LOST) *invalidated = false; /* another process is: nothing can be repeated */
    if (status == TU_OK) status = ended;
    if (status == TU_OK) status = CUDA_CALL(cuGraphInstantiate, exec, graph, 0);
    if (graph) cuda.cuGraphDestroy(graph);
    return status == TU_OK || !*message ? status : tu_fail(status, "%s", message);
}

/* The lock prevents invalidation by the calls that are known to do that. But libraries may also load code when it is
 * first used. */
tu_status cuda_capture(cuda_queue *queue, tu_status (*enqueue)(void *context), void *context,
                       CUgraphExec *exec) {
    enum { ATTEMPTS = 3 };
    bool invalidated = true;
    tu_status status = TU_OK;
    cuda_capture_lock();
    for (int i = 0; i < ATTEMPTS && invalidated; i++)
        status = capture(queue, enqueue, context, exec, &invalidated);
    cuda_capture_unlock();
    return status;
}

typedef struct range {
    cuda_kernels *kernels;
    uint32_t first, count;
} range;

static tu_status enqueue_range(void *context) {
    const range *r = context;
    return cuda_enqueue(r->kernels, r->first, r->count);
}

static cuda_segment *segment_of(cuda_kernels *k, uint32_t first, uint32_t count) {
    for (cuda_segment *s = k->segments; s; s = s->next)
        if (s->first == first && s->count == count) return s;
    cuda_segment *s = tu__arena_alloc(&k->arena, sizeof *s);
    if (!s) return NULL;
    s->first = first;
    s->count = count;
    s->next = k->segments;
    k->segments = s;
    return s;
}

static tu_status replay(cuda_kernels *k, cuda_segment *s) {
    uint64_t seed = *k->bound.seed;
    if (s->exec && (s->seed != seed || s->timed != k->timed)) {
        CUDA_TRY(cuStreamSynchronize, k->queue->stream); /* the graph may still be running */
        cuda.cuGraphExecDestroy(s->exec);
        s->exec = NULL;
    }
    if (!s->exec) {
        range r = {k, s->first, s->count};
        s->seed = seed;
        s->timed = k->timed;
        TU_TRY(cuda_capture(k->queue, enqueue_range, &r, &s->exec));
    }
    CUDA_TRY(cuGraphLaunch, s->exec, k->queue->stream);
    return TU_OK;
}

static tu_status launch_segment(cuda_kernels *k, uint32_t first, uint32_t count) {
    cuda_segment *s = segment_of(k, first, count);
    if (!s) return TU_NO_MEMORY;
    if (first == 0) TU_TRY(cuda_times_align(k));
    if (s->warm && !k->runtime->capture_forbidden) return replay(k, s);
    TU_TRY(cuda_enqueue(k, first, count));
    s->warm = true;
    return TU_OK;
}

tu_status cuda_launch_executable(cuda_device *device, tu_executable *executable, uint32_t first,
                                 uint32_t count) {
    if (count == 0) return TU_OK;
    TU_TRY(cuda_make_current(device));
    switch (executable->kind) {
    case CUDA_KERNELS: return launch_segment(&executable->kernels, first, count);
    case CUDA_COLLECTIVE: return cuda_collective_launch(&executable->collective);
    case CUDA_LIST: break;
    }
    return tu_fail(TU_INVALID, "%s: a command list is submitted, not launched", device->name);
}
