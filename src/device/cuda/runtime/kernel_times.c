/* Kernel times, measured by events on the GPU and converted to the host's clock.
 *
 * Events are recorded before every kernel and after the last kernel of a launch. A kernel ends where the next one
 * begins. An origin event, whose host time is known, relates the two clocks. It is recorded again every second, since
 * the driver reports differences as floats with 24 bits. Timed kernels run on one stream.
 */

#include "base/clock.h"
#include "device/cuda/runtime/plan.h"

typedef struct cuda_times {
    uint32_t count;  /* kernels */
    CUevent *begins; /* per position in the launch order */
    CUevent *ends;
    bool *is_last;  /* per position: last kernel of a launch, whose end has its own event */
    bool *launched; /* per position */
    CUevent origin;
    double origin_time; /* CLOCK_MONOTONIC */
} cuda_times;

/* Records the origin event. Its host time is taken as the middle between the call and its completion, some
 * microseconds. Tries again if the thread was interrupted in between. */
static tu_status record_origin(cuda_device *device, cuda_times *t) {
    enum { TRIES = 10 };
    const double short_enough = 30e-6;
    CUDA_TRY(cuStreamSynchronize, device->stream);
    double waited = 1;
    for (int i = 0; i < TRIES && waited > short_enough; i++) {
        double start = tu__now();
        CUDA_TRY(cuEventRecord, t->origin, device->stream);
        CUDA_TRY(cuEventSynchronize, t->origin);
        waited = tu__now() - start;
        t->origin_time = start + waited / 2;
    }
    return TU_OK;
}

tu_status cuda_times_align(cuda_device *device, cuda_runtime *runtime) {
    const double interval = 1; /* second */
    if (!runtime->timed || tu__now() - runtime->times->origin_time < interval) return TU_OK;
    return record_origin(device, runtime->times);
}

static tu_status create_events(cuda_times *t) {
    for (uint32_t i = 0; i < t->count; i++) {
        if (!t->begins[i]) CUDA_TRY(cuEventCreate, &t->begins[i], CU_EVENT_DEFAULT);
        if (!t->ends[i]) CUDA_TRY(cuEventCreate, &t->ends[i], CU_EVENT_DEFAULT);
    }
    if (!t->origin) CUDA_TRY(cuEventCreate, &t->origin, CU_EVENT_DEFAULT);
    return TU_OK;
}

tu_status cuda_times_begin(cuda_device *device, tu__kernel_plan *p) {
    cuda_runtime *runtime = p->runtime;
    tu__arena *arena = &p->selection.arena;
    if (!runtime->times) {
        cuda_times *t = tu__arena_alloc(arena, sizeof *t);
        if (!t) return TU_NO_MEMORY;
        t->count = p->kernel_count;
        t->begins = tu__arena_alloc(arena, t->count * sizeof *t->begins);
        t->ends = tu__arena_alloc(arena, t->count * sizeof *t->ends);
        t->is_last = tu__arena_alloc(arena, t->count);
        t->launched = tu__arena_alloc(arena, t->count);
        if (!t->begins || !t->ends || !t->is_last || !t->launched) return TU_NO_MEMORY;
        runtime->times = t;
    }
    TU_TRY(create_events(runtime->times));
    TU_TRY(record_origin(device, runtime->times));
    runtime->timed = true;
    return TU_OK;
}

void cuda_times_free(cuda_runtime *runtime) {
    cuda_times *t = runtime->times;
    for (uint32_t i = 0; t && i < t->count; i++) {
        if (t->begins[i]) cuda.cuEventDestroy(t->begins[i]);
        if (t->ends[i]) cuda.cuEventDestroy(t->ends[i]);
    }
    if (t && t->origin) cuda.cuEventDestroy(t->origin);
}

/* During a capture the event becomes a node of the graph, recorded at each replay. */
static tu_status record(const cuda_device *device, CUevent event) {
    if (device->capturing)
        CUDA_TRY(cuEventRecordWithFlags, event, device->stream, CU_EVENT_RECORD_EXTERNAL);
    else
        CUDA_TRY(cuEventRecord, event, device->stream);
    return TU_OK;
}

tu_status cuda_mark_begin(const cuda_device *device, const cuda_runtime *runtime, uint32_t position) {
    if (!runtime->timed) return TU_OK;
    runtime->times->launched[position] = true;
    runtime->times->is_last[position] = false;
    return record(device, runtime->times->begins[position]);
}

tu_status cuda_mark_end(const cuda_device *device, const cuda_runtime *runtime, uint32_t position) {
    if (!runtime->timed) return TU_OK;
    runtime->times->is_last[position] = true;
    return record(device, runtime->times->ends[position]);
}

/* The first call starts the timing; times are available from the next launch on. */
tu_status cuda_trace(cuda_device *device, tu_plan *plan, uint32_t position, double *start, double *seconds) {
    tu__kernel_plan *p = (tu__kernel_plan *)plan;
    cuda_runtime *runtime = p->runtime;
    *start = *seconds = 0;
    if (position >= p->kernel_count)
        return tu_fail(TU_INVALID, "kernel %u does not exist: the plan has %u kernels", position,
                       p->kernel_count);
    TU_TRY(cuda_make_current(device));
    if (!runtime->timed) return cuda_times_begin(device, p);
    const cuda_times *t = runtime->times;
    if (!t->launched[position]) return TU_OK;
    float from_origin = 0, milliseconds = 0;
    CUevent end = t->is_last[position] ? t->ends[position] : t->begins[position + 1];
    CUDA_TRY(cuEventElapsedTime, &from_origin, t->origin, t->begins[position]);
    CUDA_TRY(cuEventElapsedTime, &milliseconds, t->begins[position], end);
    *start = t->origin_time + 1e-3 * (double)from_origin;
    *seconds = 1e-3 * (double)milliseconds;
    return TU_OK;
}
