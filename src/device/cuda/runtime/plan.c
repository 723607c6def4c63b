/* Plans: the functions that kernels request and how kernels launch them.
 */
#include "device/cuda/runtime/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
        [TU_F32] = "f32", [TU_F64] = "f64", [TU_BF16] = "bf16",  [TU_F16] = "f16", [TU_I32] = "i32",
        [TU_I64] = "i64", [TU_U8] = "u8",   [TU_BOOL] = "truth", [TU_I8] = "i8"};
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

/* ---- Compiling and freeing ---- */

/* Threads that run one program at once may build its plan at the same time. */
tu_status cuda_compile_plan(cuda_device *device, tu__kernel_plan *p) {
    cuda_runtime *runtime = p->runtime;
    pthread_mutex_lock(&device->build_lock);
    tu_status status = runtime->compiled ? TU_OK : cuda_compile(device, runtime->functions);
    runtime->compiled = status == TU_OK;
    pthread_mutex_unlock(&device->build_lock);
    return status;
}

void cuda_plan_free(const cuda_device *device, tu_plan *plan) {
    cuda.cuCtxSetCurrent(device->context); /* kernels may own descriptors of libraries */
    tu__kernel_plan_free((tu__kernel_plan *)plan);
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

/* TUTTI_EARLY=off launches all kernels one after another, to compare. Kernels that are captured on several streams
 * also wait for kernels of other streams, so they do not start early. */
static bool may_start_early(const tu__kernel *k) {
    const char *setting = getenv("TUTTI_EARLY");
    const cuda_queue *queue = k->queue;
    return queue && !queue->forked && !(setting && strcmp(setting, "off") == 0);
}

static tu_status launch_early(CUfunction function, const CUlaunchConfig *config, void **parameters) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig early = *config;
    early.attrs = &attribute;
    early.numAttrs = 1;
    CUDA_TRY(cuLaunchKernelEx, &early, function, parameters, NULL);
    return TU_OK;
}

static tu_status launch(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                        const void *arguments, bool early) {
    if (grid.blocks[0] == 0) return TU_OK;
    unsigned y = grid.blocks[1] ? grid.blocks[1] : 1, z = grid.blocks[2] ? grid.blocks[2] : 1;
    TU_TRY(enable_shared_memory(function->handle, grid.shared));
    union { /* the driver only reads the parameter, but its type is not const */
        const void *constant;
        void *parameter;
    } argument = {arguments};
    void *parameters[] = {argument.parameter};
    const CUlaunchConfig config = {.gridDimX = grid.blocks[0],
                                   .gridDimY = y,
                                   .gridDimZ = z,
                                   .blockDimX = grid.threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = grid.shared,
                                   .hStream = cuda_stream(k)};
    tu_status status = early ? launch_early(function->handle, &config, parameters)
                             : CUDA_CALL(cuLaunchKernel, function->handle, grid.blocks[0], y, z, grid.threads,
                                         1, 1, grid.shared, config.hStream, parameters, NULL);
    return status == TU_OK
               ? TU_OK
               : tu_fail(status, "%s: kernel %s with %u x %u x %u blocks of %u threads: %s", cuda_of(k)->name,
                         function->expression, grid.blocks[0], y, z, grid.threads, tu_message());
}

tu_status cuda_launch(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                      const void *arguments) {
    return launch(k, function, grid, arguments, false);
}

tu_status cuda_launch_early(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                            const void *arguments) {
    return launch(k, function, grid, arguments, may_start_early(k));
}

tu_status cuda_copy(const tu__kernel *k, void *to, const void *from, size_t bytes) {
    if (bytes) CUDA_TRY(cuMemcpyDtoDAsync, cuda_address(to), cuda_address(from), bytes, cuda_stream(k));
    return TU_OK;
}

tu_status cuda_clear(const tu__kernel *k, void *to, size_t bytes) {
    if (bytes) CUDA_TRY(cuMemsetD8Async, cuda_address(to), 0, bytes, cuda_stream(k));
    return TU_OK;
}
