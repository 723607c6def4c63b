/* Parallel loops over a thread pool, over OpenMP, or over pthreads in builds without it. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/flushing.h"
#include "base/thread_pool.h"

/* Static checkers may define _OPENMP without having the compiler's omp.h. */
#if defined(_OPENMP) && __has_include(<omp.h>)
#include <omp.h>
#define USE_OPENMP 1
#endif

static _Thread_local int thread_count = 1;
static _Thread_local tu__thread_pool *used_pool;
static _Thread_local int begin_depth; /* tu__parallel_begin calls without their tu__parallel_end so far */
static _Thread_local unsigned
    flushing_before; /* the thread's setting before the outermost tu__parallel_begin */

void tu__parallel_set_threads(int threads) {
    thread_count = threads < 1 ? 1 : threads;
#ifdef USE_OPENMP
    omp_set_dynamic(0); /* also for oneDNN's loops: OpenMP must not use fewer threads on a busy machine */
    omp_set_num_threads(thread_count);
#endif
}

tu__parallel_setting tu__parallel_begin(int threads) {
    tu__parallel_setting before = {.thread_count = thread_count, .flushing = tu__flushing()};
    if (!begin_depth++) flushing_before = before.flushing;
    tu__set_flushing(TU__FLUSH_ALL);
#ifdef USE_OPENMP
    before.threads = omp_get_max_threads();
    before.dynamic = omp_get_dynamic();
#endif
    tu__parallel_set_threads(threads);
    return before;
}

void tu__parallel_end(tu__parallel_setting before) {
    thread_count = before.thread_count;
    tu__set_flushing(before.flushing);
    begin_depth--;
#ifdef USE_OPENMP
    omp_set_num_threads(before.threads);
    omp_set_dynamic(before.dynamic);
#endif
}

int tu__parallel_threads(void) {
    return thread_count;
}

int tu__parallel_ranges(int64_t count, int64_t grain) {
    if (count <= 0) return 0;
    if (grain < 1) grain = 1;
    int64_t max_ranges = (count + grain - 1) / grain;
    return max_ranges < thread_count ? (int)max_ranges : thread_count;
}

/* Returns the start of range `i` of `ranges`. The first count % ranges ranges are longer by one. */
static int64_t range_start(int64_t count, int ranges, int i) {
    int64_t size = count / ranges, extra = count % ranges;
    return i * size + (i < extra ? i : extra);
}

/* ---- Thread pools ---- */

void tu__parallel_use_pool(tu__thread_pool *pool) {
    used_pool = pool;
}

bool tu__parallel_uses_pool(void) {
    return used_pool;
}

typedef struct pool_loop {
    tu__parallel_body body;
    void *context;
    int64_t count;
    int ranges;
    unsigned flushing;
} pool_loop;

static void run_pool_range(void *context, int range) {
    const pool_loop *loop = context;
    tu__set_flushing(loop->flushing);
    loop->body(loop->context, range_start(loop->count, loop->ranges, range),
               range_start(loop->count, loop->ranges, range + 1), range);
}

static void run_in_pool(int64_t count, int ranges, tu__parallel_body body, void *context) {
    pool_loop loop = {body, context, count, ranges, tu__flushing()};
    tu__thread_pool_run(used_pool, ranges, run_pool_range, &loop);
}

/* ---- Other threads ---- */

#ifdef USE_OPENMP

static void run_in_threads(int64_t count, int ranges, tu__parallel_body body, void *context) {
    unsigned flushing = tu__flushing(), flushing_after = begin_depth ? flushing_before : flushing;
    /* Always use a team of `thread_count` threads: libgomp ends and starts threads whenever the team size changes. */
#pragma omp parallel num_threads(thread_count)
    {
        tu__set_flushing(flushing);
        /* The team may be smaller than requested: inside the caller's parallel region, or under OMP_THREAD_LIMIT. */
        for (int i = omp_get_thread_num(); i < ranges; i += omp_get_num_threads())
            body(context, range_start(count, ranges, i), range_start(count, ranges, i + 1), i);
        /* The caller's loops use the same OpenMP threads, and threads we started inherited our setting: reset it. */
        if (omp_get_thread_num() > 0) tu__set_flushing(flushing_after);
    }
}

#else

typedef struct task {
    tu__parallel_body body;
    void *context;
    int64_t first, last;
    int worker;
} task;

static void *run_task(void *argument) {
    task *t = argument;
    t->body(t->context, t->first, t->last, t->worker);
    return 0;
}

enum { MAX_THREADS = 256 };

static void run_in_threads(int64_t count, int ranges, tu__parallel_body body, void *context) {
    if (ranges > MAX_THREADS) ranges = MAX_THREADS;
    pthread_t threads[MAX_THREADS]; /* they inherit the flushing mode of this thread */
    task tasks[MAX_THREADS];
    int started = 1;
    for (int i = 0; i < ranges; i++)
        tasks[i] = (task){body, context, range_start(count, ranges, i), range_start(count, ranges, i + 1), i};
    while (started < ranges && pthread_create(&threads[started], 0, run_task, &tasks[started]) == 0)
        started++;
    run_task(&tasks[0]);
    for (int i = started; i < ranges; i++)
        run_task(&tasks[i]); /* ranges for which no thread could be created */
    for (int i = 1; i < started; i++) pthread_join(threads[i], 0);
}

#endif

void tu__parallel_for(int64_t count, int64_t grain, tu__parallel_body body, void *context) {
    int ranges = tu__parallel_ranges(count, grain);
    if (ranges <= 1) {
        if (ranges == 1) body(context, 0, count, 0);
    } else if (used_pool && ranges <= tu__thread_pool_threads(used_pool)) {
        run_in_pool(count, ranges, body, context);
    } else {
        run_in_threads(count, ranges, body, context);
    }
}

/* ---- Work stealing: each worker processes its own range first, whose data may be in its cache, then chunks of the
 * other workers' ranges ---- */

enum { MAX_QUEUES = 128, CHUNKS_PER_RANGE = 8 };

typedef struct chunk_queue { /* one cache line each */
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} chunk_queue;

typedef struct stealing_loop {
    tu__parallel_body body;
    void *context;
    int64_t chunk;
    int queue_count;
    chunk_queue queue[MAX_QUEUES];
} stealing_loop;

static void run_queue(const stealing_loop *d, chunk_queue *queue, int worker) {
    for (;;) {
        int64_t first = atomic_fetch_add_explicit(&queue->next, d->chunk, memory_order_relaxed);
        if (first >= queue->end) return;
        d->body(d->context, first, first + d->chunk < queue->end ? first + d->chunk : queue->end, worker);
    }
}

static void run_own_then_steal(void *context, int64_t first, int64_t last, int worker) {
    stealing_loop *d = context;
    for (int64_t first_queue = first; first_queue < last; first_queue++)
        for (int i = 0; i < d->queue_count; i++)
            run_queue(d, &d->queue[(first_queue + i) % d->queue_count], worker);
}

void tu__parallel_for_stealing(int64_t count, int64_t grain, tu__parallel_body body, void *context) {
    int ranges = tu__parallel_ranges(count, grain);
    if (ranges <= 1 || ranges > MAX_QUEUES) {
        tu__parallel_for(count, grain, body, context);
        return;
    }
    stealing_loop d = {
        .body = body, .context = context, .chunk = grain < 1 ? 1 : grain, .queue_count = ranges};
    int64_t even_chunk = count / ((int64_t)ranges * CHUNKS_PER_RANGE);
    if (d.chunk < even_chunk) d.chunk = even_chunk;
    for (int i = 0; i < ranges; i++) {
        atomic_init(&d.queue[i].next, range_start(count, ranges, i));
        d.queue[i].end = range_start(count, ranges, i + 1);
    }
    tu__parallel_for(ranges, 1, run_own_then_steal, &d);
}
