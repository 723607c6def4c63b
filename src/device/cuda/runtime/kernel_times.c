/* Kernel times, measured by events on the GPU and converted to the host's clock.
 *
 * Events are recorded before every kernel and after the last kernel of a launch. A kernel ends where the next one
 * begins. An origin event, whose host time is known, relates the two clocks. It is recorded again every second, since
 * the driver reports differences as floats with 24 bits. Timed kernels run on one stream.
 */

#include "base/clock.h"
#include "device/cuda/runtime/executable.h"

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
static tu_status record_origin(const cuda_queue *queue, cuda_times *t) {
    enum { TRIES = 10 };
    const double short_enough = 30e-6;
    CUDA_TRY(cuStreamSynchronize, queue->stream);
    double waited = 1;
    for (int i = 0; i < TRIES && waited > short_enough; i++) {
        double start = tu__now();
        CUDA_TRY(cuEventRecord, t->origin, queue->stream);
        CUDA_TRY(cuEventSynchronize, t->origin);
        waited = tu__now() - start;
        t->origin_time = start + waited / 2;
    }
    return TU_OK;
}

tu_status cuda_times_align(cuda_kernels *k) {
    const double interval = 1; /* second */
    if (!k->timed || tu__now() - k->times->origin_time < interval) return TU_OK;
    return record_origin(k->queue, k->times);
}

static tu_status create_events(cuda_times *t) {
    for (uint32_t i = 0; i < t->count; i++) {
        if (!t->begins[i]) CUDA_TRY(cuEventCreate, &t->begins[i], CU_EVENT_DEFAULT);
        if (!t->ends[i]) CUDA_TRY(cuEventCreate, &t->ends[i], CU_EVENT_DEFAULT);
    }
    if (!t->origin) CUDA_TRY(cuEventCreate, &t->origin, CU_EVENT_DEFAULT);
    return TU_OK;
}

static cuda_times *allocate_times(cuda_kernels *k) {
    uint32_t count = k->bound.count;
    cuda_times *t = tu__arena_alloc(&k->arena, sizeof *t);
    if (!t) return NULL;
    t->count = count;
    t->begins = tu__arena_alloc(&k->arena, count * sizeof *t->begins);
    t->ends = tu__arena_alloc(&k->arena, count * sizeof *t->ends);
    t->is_last = tu__arena_alloc(&k->arena, count);
    t->launched = tu__arena_alloc(&k->arena, count);
    return t->begins && t->ends && t->is_last && t->launched ? t : NULL;
}

static tu_status begin_timing(cuda_kernels *k) {
    if (!k->times) k->times = allocate_times(k);
    if (!k->times) return TU_NO_MEMORY;
    TU_TRY(create_events(k->times));
    TU_TRY(record_origin(k->queue, k->times));
    k->timed = true;
    return TU_OK;
}

void cuda_times_free(cuda_kernels *k) {
    const cuda_times *t = k->times;
    for (uint32_t i = 0; t && i < t->count; i++) {
        if (t->begins[i]) cuda.cuEventDestroy(t->begins[i]);
        if (t->ends[i]) cuda.cuEventDestroy(t->ends[i]);
    }
    if (t && t->origin) cuda.cuEventDestroy(t->origin);
}

/* During a capture the event becomes a node of the graph, recorded at each replay. */
static tu_status record(const cuda_queue *queue, CUevent event) {
    if (queue->capturing)
        CUDA_TRY(cuEventRecordWithFlags, event, queue->stream, CU_EVENT_RECORD_EXTERNAL);
    else
        CUDA_TRY(cuEventRecord, event, queue->stream);
    return TU_OK;
}

tu_status cuda_mark_begin(const cuda_kernels *k, uint32_t position) {
    if (!k->timed) return TU_OK;
    k->times->launched[position] = true;
    k->times->is_last[position] = false;
    return record(k->queue, k->times->begins[position]);
}

tu_status cuda_mark_end(const cuda_kernels *k, uint32_t position) {
    if (!k->timed) return TU_OK;
    k->times->is_last[position] = true;
    return record(k->queue, k->times->ends[position]);
}

static tu_status read_times(const cuda_times *t, uint32_t position, double *start, double *seconds) {
    if (!t->launched[position]) return TU_OK;
    float from_origin = 0, milliseconds = 0;
    CUevent end = t->is_last[position] ? t->ends[position] : t->begins[position + 1];
    CUDA_TRY(cuEventElapsedTime, &from_origin, t->origin, t->begins[position]);
    CUDA_TRY(cuEventElapsedTime, &milliseconds, t->begins[position], end);
    *start = t->origin_time + 1e-3 * (double)from_origin;
    *seconds = 1e-3 * (double)milliseconds;
    return TU_OK;
}

/* The first call starts the timing; times are available from the next launch on. Collectives are not timed. */
tu_status cuda_times_of(const cuda_device *device, tu_executable *executable, uint32_t position,
                        double *start, double *seconds) {
    *start = *seconds = 0;
    if (executable->kind != CUDA_KERNELS) return TU_OK;
    cuda_kernels *k = &executable->kernels;
    if (position >= k->bound.count)
        return tu_fail(TU_INVALID, "kernel %u does not exist: the plan has %u kernels", position,
                       k->bound.count);
    TU_TRY(cuda_make_current(device));
    return k->timed ? read_times(k->times, position, start, seconds) : begin_timing(k);
}
