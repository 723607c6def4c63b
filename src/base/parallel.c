/* Parallel loops over OpenMP, or over plain threads where the thread sanitizer watches. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/flushing.h"

/* A checker may read these flags without having the header that the compiler brings along. */
#if defined(_OPENMP) && __has_include(<omp.h>)
#include <omp.h>
#define OVER_OPENMP 1
#endif

static _Thread_local int width = 1;
static _Thread_local int begun;               /* how often, and not ended yet */
static _Thread_local unsigned flushed_before; /* the thread's own setting, while begun */

void tu__parallel_set_width(int threads) {
    width = threads < 1 ? 1 : threads;
#ifdef OVER_OPENMP
    omp_set_dynamic(0); /* oneDNN's loops too: no fewer threads because the machine is busy */
    omp_set_num_threads(width);
#endif
}

tu__parallel_setting tu__parallel_begin(int threads) {
    tu__parallel_setting before = {.width = width, .flushing = tu__flushing()};
    if (!begun++) flushed_before = before.flushing;
    tu__set_flushing(TU__FLUSH_ALL);
#ifdef OVER_OPENMP
    before.threads = omp_get_max_threads();
    before.dynamic = omp_get_dynamic();
#endif
    tu__parallel_set_width(threads);
    return before;
}

void tu__parallel_end(tu__parallel_setting before) {
    width = before.width;
    tu__set_flushing(before.flushing);
    begun--;
#ifdef OVER_OPENMP
    omp_set_num_threads(before.threads);
    omp_set_dynamic(before.dynamic);
#endif
}

int tu__parallel_width(void) {
    return width;
}

int tu__parallel_ranges(int64_t count, int64_t grain) {
    if (count <= 0) return 0;
    if (grain < 1) grain = 1;
    int64_t most = (count + grain - 1) / grain;
    return most < width ? (int)most : width;
}

/* The start of range `i` of `ranges`: the first count % ranges of them are longer by one. */
static int64_t range_start(int64_t count, int ranges, int i) {
    int64_t each = count / ranges, extra = count % ranges;
    return i * each + (i < extra ? i : extra);
}

#ifdef OVER_OPENMP

void tu__parallel_for(int64_t count, int64_t grain, tu__parallel_body body, void *context) {
    int ranges = tu__parallel_ranges(count, grain);
    if (ranges <= 1) {
        if (ranges == 1) body(context, 0, count, 0);
        return;
    }
    unsigned flushing = tu__flushing(), afterwards = begun ? flushed_before : flushing;
    /* Always a team of the full width: a team that shrinks and grows makes libgomp end and start threads. */
#pragma omp parallel num_threads(width)
    {
        tu__set_flushing(flushing);
        /* A team may be smaller than asked for: inside a region of the caller's, or under OMP_THREAD_LIMIT. */
        for (int i = omp_get_thread_num(); i < ranges; i += omp_get_num_threads())
            body(context, range_start(count, ranges, i), range_start(count, ranges, i + 1), i);
        /* OpenMP's threads serve the user's loops, too, and have our setting from birth if we made them. */
        if (omp_get_thread_num() > 0) tu__set_flushing(afterwards);
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

void tu__parallel_for(int64_t count, int64_t grain, tu__parallel_body body, void *context) {
    int ranges = tu__parallel_ranges(count, grain);
    if (ranges > MAX_THREADS) ranges = MAX_THREADS;
    if (ranges <= 1) {
        if (ranges == 1) body(context, 0, count, 0);
        return;
    }
    pthread_t threads[MAX_THREADS]; /* which flush as the thread does that starts them */
    task tasks[MAX_THREADS];
    int started = 1;
    for (int i = 0; i < ranges; i++)
        tasks[i] = (task){body, context, range_start(count, ranges, i), range_start(count, ranges, i + 1), i};
    while (started < ranges && pthread_create(&threads[started], 0, run_task, &tasks[started]) == 0)
        started++;
    run_task(&tasks[0]);
    for (int i = started; i < ranges; i++) run_task(&tasks[i]); /* what no thread could be had for */
    for (int i = 1; i < started; i++) pthread_join(threads[i], 0);
}

#endif

/* ---- Dealing: everybody's own range first, whose data may be near, then what others have left ---- */

enum { MAX_HANDS = 128, PIECES = 8 /* of a range */ };

typedef struct hand { /* a line of the cache each */
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} hand;

typedef struct deal {
    tu__parallel_body body;
    void *context;
    int64_t piece;
    int hands;
    hand hand[MAX_HANDS];
} deal;

static void play(const deal *d, hand *from, int worker) {
    for (;;) {
        int64_t first = atomic_fetch_add_explicit(&from->next, d->piece, memory_order_relaxed);
        if (first >= from->end) return;
        d->body(d->context, first, first + d->piece < from->end ? first + d->piece : from->end, worker);
    }
}

static void play_all(void *context, int64_t first, int64_t last, int worker) {
    deal *d = context;
    for (int64_t own = first; own < last; own++)
        for (int i = 0; i < d->hands; i++) play(d, &d->hand[(own + i) % d->hands], worker);
}

void tu__parallel_deal(int64_t count, int64_t grain, tu__parallel_body body, void *context) {
    int ranges = tu__parallel_ranges(count, grain);
    if (ranges <= 1 || ranges > MAX_HANDS) {
        tu__parallel_for(count, grain, body, context);
        return;
    }
    deal d = {.body = body, .context = context, .piece = grain < 1 ? 1 : grain, .hands = ranges};
    int64_t even = count / ((int64_t)ranges * PIECES);
    if (d.piece < even) d.piece = even;
    for (int i = 0; i < ranges; i++) {
        atomic_init(&d.hand[i].next, range_start(count, ranges, i));
        d.hand[i].end = range_start(count, ranges, i + 1);
    }
    tu__parallel_for(ranges, 1, play_all, &d);
}
