/* Assigns kernels to streams.
 *
 * A kernel with few blocks leaves most of the GPU idle. Each kernel is assigned, in order, to the stream on which it
 * can start first by estimated times; a long kernel, which fills the GPU, stays on stream 0. Dependencies are
 * derived from addresses, not values: buffers whose lifetimes do not overlap share memory, so two kernels may
 * conflict although no value passes between them.
 */
#include "device/cuda/runtime/streams.h"

enum { MAX_KERNELS = 4096 }; /* all pairs are compared */

static const double long_kernel = 12e-6; /* seconds; longer kernels have enough blocks to fill the GPU */
static const double wait_cost = 1.5e-6;  /* seconds to wait for another stream */
static const double max_ratio = 0.75;    /* of the serial time: estimates may be wrong by that much */

typedef struct scheduler {
    uint32_t count;
    const cuda_work *work;
    cuda_stream_assignment *assignments;
    double end_of_stream[CUDA_STREAMS];
    int last_waited[CUDA_STREAMS][CUDA_STREAMS]; /* [s][o]: latest kernel of o that s waited for */
} scheduler;

static bool conflicts_with(const cuda_work *a, const cuda_work *b) {
    for (uint32_t i = 0; i < a->extent_count; i++)
        for (uint32_t k = 0; k < b->extent_count; k++) {
            const cuda_extent *x = &a->extents[i], *y = &b->extents[k];
            if ((x->written || y->written) && x->from < y->to && y->from < x->to) return true;
        }
    return false;
}

/* Finds per stream the latest earlier kernel that conflicts. Earlier kernels of that stream precede it. */
static void find_waits(const scheduler *d, uint32_t index, int waits[CUDA_STREAMS]) {
    for (int s = 0; s < CUDA_STREAMS; s++) waits[s] = CUDA_NO_KERNEL;
    for (uint32_t i = index; i-- > 0;) {
        int stream = d->assignments[i].stream;
        if (waits[stream] == CUDA_NO_KERNEL && conflicts_with(&d->work[i], &d->work[index]))
            waits[stream] = (int)i;
    }
}

static double start_time_on(const scheduler *d, const double *ends, const int waits[CUDA_STREAMS],
                            int stream) {
    double start = d->end_of_stream[stream];
    for (int s = 0; s < CUDA_STREAMS; s++) {
        if (waits[s] == CUDA_NO_KERNEL || s == stream) continue;
        double ready = ends[waits[s]] + wait_cost;
        if (ready > start) start = ready;
    }
    return start;
}

static int choose_stream(const scheduler *d, uint32_t index, const double *ends,
                         const int waits[CUDA_STREAMS]) {
    int best = 0;
    if (d->work[index].seconds > long_kernel) return 0;
    for (int s = 1; s < CUDA_STREAMS; s++)
        if (start_time_on(d, ends, waits, s) < start_time_on(d, ends, waits, best)) best = s;
    return best;
}

/* Stores an assignment. Leaves out waits that an earlier kernel of the same stream has made. */
static void assign(scheduler *d, uint32_t index, int stream, const int waits[CUDA_STREAMS]) {
    cuda_stream_assignment *p = &d->assignments[index];
    p->stream = stream;
    for (int s = 0; s < CUDA_STREAMS; s++) {
        bool needed = s != stream && waits[s] > d->last_waited[stream][s];
        p->waits[s] = needed ? waits[s] : CUDA_NO_KERNEL;
        if (!needed) continue;
        d->last_waited[stream][s] = waits[s];
        d->assignments[waits[s]].waited_for = true;
    }
}

static double assign_all(scheduler *d, double *ends) {
    double last = 0;
    for (uint32_t i = 0; i < d->count; i++) {
        int waits[CUDA_STREAMS];
        find_waits(d, i, waits);
        int stream = choose_stream(d, i, ends, waits);
        ends[i] = d->end_of_stream[stream] = start_time_on(d, ends, waits, stream) + d->work[i].seconds;
        if (ends[i] > last) last = ends[i];
        assign(d, i, stream, waits);
    }
    return last;
}

static void assign_to_one_stream(uint32_t count, cuda_stream_assignment *assignments) {
    for (uint32_t i = 0; i < count; i++) {
        assignments[i] = (cuda_stream_assignment){.stream = 0};
        for (int s = 0; s < CUDA_STREAMS; s++) assignments[i].waits[s] = CUDA_NO_KERNEL;
    }
}

bool cuda_assign_streams(uint32_t count, const cuda_work *work, cuda_stream_assignment *assignments) {
    static _Thread_local double ends[MAX_KERNELS];
    assign_to_one_stream(count, assignments);
    if (count > MAX_KERNELS) return false;
    scheduler d = {.count = count, .work = work, .assignments = assignments};
    for (int a = 0; a < CUDA_STREAMS; a++)
        for (int b = 0; b < CUDA_STREAMS; b++) d.last_waited[a][b] = CUDA_NO_KERNEL;
    double parallel = assign_all(&d, ends), serial = 0;
    for (uint32_t i = 0; i < count; i++) serial += work[i].seconds;
    if (parallel < max_ratio * serial) return true;
    assign_to_one_stream(count, assignments);
    return false;
}
