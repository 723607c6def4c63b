/* Plans: builds kernels, and replays them as CUDA graphs.
 *
 * The first launch of a range of kernels enqueues them one by one, because libraries load modules at first use. The
 * second launch captures the same calls into a graph, and later launches replay it: one driver call for a whole step.
 * A graph contains addresses and the seed. If either changes, it is captured again.
 *
 * Once a trace has been requested, the graph is captured with events between the kernels, which cost a microsecond
 * each (kernel_times.c). Kernels that do not fill the GPU are captured on several streams if the estimate says it is
 * faster (capture_streams.c).
 */
#include "device/cuda/runtime/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

cuda_runtime *cuda_runtime_of(tu__kernel_plan *plan) {
    if (!plan->runtime) plan->runtime = tu__arena_alloc(&plan->selection.arena, sizeof(cuda_runtime));
    return plan->runtime;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static cuda_function *request(tu__selection *s, const char *unit, const char *source,
                              const char *expression) {
    cuda_runtime *runtime = cuda_runtime_of(s->plan);
    if (!runtime) return NULL;
    for (cuda_function *f = runtime->functions; f; f = f->next)
        if (same_text(f->unit, unit) && same_text(f->source, source) &&
            strcmp(f->expression, expression) == 0)
            return f;
    cuda_function *f = tu__arena_alloc(&s->arena, sizeof *f);
    if (!f) return NULL;
    f->unit = unit ? tu__arena_string(&s->arena, unit) : NULL;
    f->source = source ? tu__arena_string(&s->arena, source) : NULL;
    f->expression = tu__arena_string(&s->arena, expression);
    if ((unit && !f->unit) || (source && !f->source) || !f->expression) return NULL;
    f->next = runtime->functions;
    runtime->functions = f;
    return f;
}

cuda_function *cuda_request(tu__selection *s, const char *unit, const char *format, ...) {
    char expression[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expression, sizeof expression, format, arguments);
    va_end(arguments);
    return request(s, unit, NULL, expression);
}

cuda_function *cuda_request_source(tu__selection *s, const char *source, const char *expression) {
    return request(s, NULL, source, expression);
}

void cuda_forbid_capture(tu__selection *s) {
    cuda_runtime *runtime = cuda_runtime_of(s->plan);
    if (runtime) runtime->capture_forbidden = true;
}

bool cuda_allows_tf32(const tu__selection *s) {
    return s->plan->partition->tf32;
}

const char *cuda_type(tu_dtype dtype) {
    static const char *const names[TU_DTYPE_COUNT] = {
        [TU_F32] = "f32", [TU_F64] = "f64", [TU_BF16] = "bf16", [TU_F16] = "f16",
        [TU_I32] = "i32", [TU_I64] = "i64", [TU_U8] = "u8",     [TU_BOOL] = "truth"};
    return names[dtype];
}

bool cuda_is_wide(tu_dtype dtype) {
    return dtype == TU_F64 || dtype == TU_I32 || dtype == TU_I64;
}

/* With 2^(l-1) < divisor <= 2^l and multiplier = ceil(2^(31+l) / divisor), n * multiplier >> (31+l) is n / divisor
 * for every n below 2^31. */
fast_divmod cuda_fast_divmod(uint32_t divisor) {
    if (divisor <= 1) return (fast_divmod){.value = 1};
    uint32_t l = 32 - (uint32_t)__builtin_clz(divisor - 1);
    uint64_t power = (uint64_t)1 << (31 + l);
    return (fast_divmod){divisor, (uint32_t)((power + divisor - 1) / divisor), l - 1};
}

/* Requests the kernels that multi-step calls need; any plan may be used in one. */
tu_status cuda_request_rings(tu__kernel_plan *p) {
    cuda_runtime *runtime = cuda_runtime_of(p);
    if (!runtime) return TU_NO_MEMORY;
    runtime->ring_in = cuda_request(&p->selection, "ring", "ring_in");
    runtime->ring_out = cuda_request(&p->selection, "ring", "ring_out");
    return runtime->ring_in && runtime->ring_out ? TU_OK : TU_NO_MEMORY;
}

/* ---- Building ---- */

static void destroy_segment_graphs(cuda_runtime *runtime) {
    for (cuda_segment *s = runtime->segments; s; s = s->next) {
        if (s->exec) cuda.cuGraphExecDestroy(s->exec);
        s->exec = NULL;
    }
}

tu_status cuda_build(cuda_device *device, tu_plan *plan, const tu_binding *binding) {
    tu__kernel_plan *p = (tu__kernel_plan *)plan;
    TU_TRY(cuda_make_current(device));
    cuda_runtime *runtime = cuda_runtime_of(p);
    if (!runtime) return TU_NO_MEMORY;
    destroy_segment_graphs(runtime);
    cuda_submit_free(runtime);
    tu__kernel_plan_bind(p, binding);
    if (!runtime->compiled) TU_TRY(cuda_compile(device, runtime->functions));
    runtime->compiled = true;
    return cuda_assign_plan_streams(device, p);
}

void cuda_plan_free(cuda_device *device, tu_plan *plan) {
    tu__kernel_plan *p = (tu__kernel_plan *)plan;
    cuda_runtime *runtime = p->runtime;
    if (runtime) { /* also for a lost GPU: then these calls fail without effect */
        cuda.cuCtxSetCurrent(device->context);
        cuda.cuStreamSynchronize(device->stream);
        destroy_segment_graphs(runtime);
        cuda_submit_free(runtime);
        cuda_times_free(runtime);
        cuda_free_stream_events(p);
    }
    tu__kernel_plan_free(p);
}

/* ---- Functions for `run` ---- */

cuda_grid cuda_grid_for(const tu__kernel *k, int64_t count) {
    enum { THREADS = 256, BLOCKS_PER_MULTIPROCESSOR = 8 }; /* 2048 threads: the maximum per multiprocessor */
    int64_t blocks = (count + THREADS - 1) / THREADS,
            limit = (int64_t)cuda_of(k)->multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
    return (cuda_grid){.blocks = {(unsigned)(blocks < limit ? blocks : limit)}, .threads = THREADS};
}

/* More than 48 KiB of dynamic shared memory must be enabled with a function attribute. */
static tu_status enable_shared_memory(CUfunction function, unsigned bytes) {
    enum { DEFAULT_SHARED = 48 * 1024 };
    if (bytes > DEFAULT_SHARED)
        CUDA_TRY(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
    return TU_OK;
}

tu_status cuda_launch(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                      const void *arguments) {
    if (grid.blocks[0] == 0) return TU_OK;
    unsigned y = grid.blocks[1] ? grid.blocks[1] : 1, z = grid.blocks[2] ? grid.blocks[2] : 1;
    TU_TRY(enable_shared_memory(function->handle, grid.shared));
    union { /* the driver only reads the parameter, but its type is not const */
        const void *constant;
        void *parameter;
    } argument = {arguments};
    void *parameters[] = {argument.parameter};
    tu_status status = CUDA_CALL(cuLaunchKernel, function->handle, grid.blocks[0], y, z, grid.threads, 1, 1,
                                 grid.shared, cuda_of(k)->stream, parameters, NULL);
    return status == TU_OK
               ? TU_OK
               : tu_fail(status, "%s: kernel %s with %u x %u x %u blocks of %u threads: %s", cuda_of(k)->name,
                         function->expression, grid.blocks[0], y, z, grid.threads, tu_message());
}

tu_status cuda_copy(const tu__kernel *k, void *to, const void *from, size_t bytes) {
    if (bytes) CUDA_TRY(cuMemcpyDtoDAsync, cuda_address(to), cuda_address(from), bytes, cuda_of(k)->stream);
    return TU_OK;
}

tu_status cuda_clear(const tu__kernel *k, void *to, size_t bytes) {
    if (bytes) CUDA_TRY(cuMemsetD8Async, cuda_address(to), 0, bytes, cuda_of(k)->stream);
    return TU_OK;
}

/* ---- Launching ---- */

tu_status cuda_enqueue_one(const tu__kernel_plan *p, uint32_t position) {
    const tu__kernel *k = p->kernels[p->order[position]];
    tu_status status = k->run(k);
    if (status == TU_OK) return TU_OK;
    return tu_fail(status, "%s '%s': %s", k->name, p->selection.graph->nodes[k->nodes[0]]->name,
                   tu_message());
}

tu_status cuda_enqueue(cuda_device *device, tu__kernel_plan *p, uint32_t first, uint32_t count) {
    const cuda_runtime *runtime = p->runtime;
    if (device->capturing && runtime->uses_streams && !runtime->timed)
        return cuda_enqueue_on_streams(device, p, first, count);
    for (uint32_t i = first; i < first + count; i++) {
        TU_TRY(cuda_mark_begin(device, runtime, i));
        TU_TRY(cuda_enqueue_one(p, i));
    }
    return count ? cuda_mark_end(device, runtime, first + count - 1) : TU_OK;
}

/* Captures a graph. After a failure the capture is still ended, or the stream would stay unusable. */
static tu_status capture(cuda_device *device, tu_status (*enqueue)(cuda_device *device, void *context),
                         void *context, CUgraphExec *exec) {
    CUgraph graph = NULL;
    char message[1024] = "";
    CUDA_TRY(cuStreamBeginCapture, device->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    device->capturing = true;
    tu_status status = enqueue(device, context);
    device->capturing = false;
    if (status != TU_OK) snprintf(message, sizeof message, "%s", tu_message());
    tu_status ended = CUDA_CALL(cuStreamEndCapture, device->stream, &graph);
    if (status == TU_OK && ended != TU_OK) cuda.cuStreamEndCapture(device->stream, &graph);
    if (status == TU_OK) status = ended;
    if (status == TU_OK) status = CUDA_CALL(cuGraphInstantiate, exec, graph, 0);
    if (graph) cuda.cuGraphDestroy(graph);
    return status == TU_OK || !*message ? status : tu_fail(status, "%s", message);
}

tu_status cuda_capture(cuda_device *device, tu_status (*enqueue)(cuda_device *device, void *context),
                       void *context, CUgraphExec *exec) {
    cuda_capture_lock();
    tu_status status = capture(device, enqueue, context, exec);
    cuda_capture_unlock();
    return status;
}

typedef struct range {
    tu__kernel_plan *plan;
    uint32_t first, count;
} range;

static tu_status enqueue_range(cuda_device *device, void *context) {
    const range *r = context;
    return cuda_enqueue(device, r->plan, r->first, r->count);
}

static cuda_segment *segment_of(tu__kernel_plan *p, uint32_t first, uint32_t count) {
    cuda_runtime *runtime = p->runtime;
    for (cuda_segment *s = runtime->segments; s; s = s->next)
        if (s->first == first && s->count == count) return s;
    cuda_segment *s = tu__arena_alloc(&p->selection.arena, sizeof *s);
    if (!s) return NULL;
    s->first = first;
    s->count = count;
    s->next = runtime->segments;
    runtime->segments = s;
    return s;
}

static uint64_t seed_of(const tu__kernel_plan *p) {
    return p->kernel_count ? *p->kernels[0]->seed : 0;
}

static tu_status replay(cuda_device *device, tu__kernel_plan *p, cuda_segment *s) {
    const cuda_runtime *runtime = p->runtime;
    if (s->exec && (s->seed != seed_of(p) || s->timed != runtime->timed)) {
        CUDA_TRY(cuStreamSynchronize, device->stream); /* the graph may still be running */
        cuda.cuGraphExecDestroy(s->exec);
        s->exec = NULL;
    }
    if (!s->exec) {
        range r = {p, s->first, s->count};
        s->seed = seed_of(p);
        s->timed = runtime->timed;
        TU_TRY(cuda_capture(device, enqueue_range, &r, &s->exec));
    }
    CUDA_TRY(cuGraphLaunch, s->exec, device->stream);
    return TU_OK;
}

static tu_status launch_segment(cuda_device *device, tu__kernel_plan *p, uint32_t first, uint32_t count) {
    cuda_runtime *runtime = p->runtime;
    cuda_segment *s = segment_of(p, first, count);
    if (!s) return TU_NO_MEMORY;
    if (first == 0) TU_TRY(cuda_times_align(device, runtime));
    if (s->warm && !runtime->capture_forbidden) return replay(device, p, s);
    TU_TRY(cuda_enqueue(device, p, first, count));
    s->warm = true;
    return TU_OK;
}

tu_status cuda_launch_plan(cuda_device *device, tu_plan *plan, uint32_t first, uint32_t count) {
    if (count == 0) return TU_OK;
    TU_TRY(cuda_make_current(device));
    return launch_segment(device, (tu__kernel_plan *)plan, first, count);
}
