/* Many steps of a plan without the engine in between.
 *
 * Inputs of the steps to come wait in slots of a ring on the card, results are left in slots of another; a count on the
 * card says which slot a step's own is (kernels/ring.cu). So a step is the same graph every time: fill the inputs, run
 * the kernels, keep the results. Short steps are captured several to a graph.
 *
 * The ring has two halves. While the steps of one run, the other is filled: the host copies into pinned memory, the
 * card's copy engine takes it from there, on a stream of its own. What the steps of a half left is fetched behind them.
 *
 *     host     stage 0 | stage 1 |  … wait for 0, read results 0, stage 2 | …
 *     copies           upload 0  | upload 1 |                   upload 2
 *     compute                      steps of 0  | steps of 1  | steps of 2
 */
#include <string.h>

#include "base/alloc.h"
#include "device/cuda/plan.h"

#include "device/cuda/kernels/ring_args.h" /* after what it needs */

enum {
    HALVES = 2,
    MOST_STEPS = 256,       /* in a half */
    MOST_BYTES = 32 << 20,  /* of a half, unless a single step needs more */
    NODES_OF_A_GRAPH = 512, /* at most, when several steps share one */
    MOST_STEPS_OF_A_GRAPH = 16,
};

typedef struct lane { /* one feed or fetch */
    size_t bytes;     /* of a step: of row numbers, for a table */
    size_t offset;    /* of its slots, on the card and in pinned memory */
    bool same;
} lane;

typedef struct cuda_ring {
    uint32_t feed_count, fetch_count;
    tu_repeat_feed *feeds; /* as they were when the ring was made, without the host's addresses */
    tu_repeat_fetch *fetches;
    lane *in, *out;
    uint32_t half;                  /* steps */
    size_t feed_bytes, fetch_bytes; /* of all slots of both halves */
    CUdeviceptr block;              /* count, feed slots, fetch slots */
    unsigned char *pinned;          /* feed slots, fetch slots */
    CUstream copies;
    CUevent uploaded[HALVES], done[HALVES];
    uint64_t seed;
    uint32_t steps_of_a_graph;
    CUgraphExec one, several;
} cuda_ring;

enum { COUNT_BYTES = 256 };

/* ---- Making and freeing ---- */

void cuda_ring_free(cuda_runtime *runtime) {
    cuda_ring *r = runtime->ring;
    if (!r) return;
    if (r->copies) cuda.cuStreamSynchronize(r->copies);
    if (r->one) cuda.cuGraphExecDestroy(r->one);
    if (r->several) cuda.cuGraphExecDestroy(r->several);
    for (int i = 0; i < HALVES; i++) {
        if (r->uploaded[i]) cuda.cuEventDestroy(r->uploaded[i]);
        if (r->done[i]) cuda.cuEventDestroy(r->done[i]);
    }
    if (r->copies) cuda.cuStreamDestroy(r->copies);
    if (r->pinned) cuda.cuMemFreeHost(r->pinned);
    if (r->block) cuda.cuMemFree(r->block);
    tu__free(r->feeds);
    tu__free(r->fetches);
    tu__free(r->in);
    tu__free(r->out);
    tu__free(r);
    runtime->ring = NULL;
}

static size_t aligned(size_t bytes) {
    return (bytes + 255) & ~(size_t)255;
}

static bool is_same_feed(const tu_repeat_feed *a, const tu_repeat_feed *b) {
    return a->to == b->to && a->bytes == b->bytes && a->same == b->same && a->table == b->table &&
           a->row_bytes == b->row_bytes;
}

static bool fits(const cuda_ring *r, uint32_t steps, const tu_repetition *what) {
    if (!r || r->feed_count != what->feed_count || r->fetch_count != what->fetch_count) return false;
    if (r->half < MOST_STEPS && steps > HALVES * r->half && r->half < steps / HALVES &&
        r->feed_bytes + r->fetch_bytes < MOST_BYTES)
        return false; /* made for fewer steps than pay now */
    for (uint32_t i = 0; i < r->feed_count; i++)
        if (!is_same_feed(&r->feeds[i], &what->feeds[i])) return false;
    for (uint32_t i = 0; i < r->fetch_count; i++)
        if (r->fetches[i].from != what->fetches[i].from || r->fetches[i].bytes != what->fetches[i].bytes)
            return false;
    return true;
}

static size_t bytes_of_feed(const tu_repeat_feed *f) {
    return f->table ? f->bytes / f->row_bytes * sizeof *f->rows : f->bytes;
}

static uint32_t choose_half(const tu_repetition *what, uint32_t steps) {
    size_t bytes = 1;
    for (uint32_t i = 0; i < what->feed_count; i++)
        if (!what->feeds[i].same) bytes += bytes_of_feed(&what->feeds[i]);
    for (uint32_t i = 0; i < what->fetch_count; i++) bytes += what->fetches[i].bytes;
    size_t most = MOST_BYTES / bytes;
    uint32_t wanted = (steps + HALVES - 1) / HALVES;
    uint32_t half = most < 1 ? 1 : most < MOST_STEPS ? (uint32_t)most : MOST_STEPS;
    return wanted < half ? wanted : half;
}

/* Places of all slots; the lists are copied. */
static tu_status lay_out(cuda_ring *r, const tu_repetition *what) {
    r->feeds = tu__alloc_array(what->feed_count + 1, sizeof *r->feeds, "a ring");
    r->fetches = tu__alloc_array(what->fetch_count + 1, sizeof *r->fetches, "a ring");
    r->in = tu__alloc_array(what->feed_count + 1, sizeof *r->in, "a ring");
    r->out = tu__alloc_array(what->fetch_count + 1, sizeof *r->out, "a ring");
    if (!r->feeds || !r->fetches || !r->in || !r->out) return TU_NO_MEMORY;
    r->feed_count = what->feed_count;
    r->fetch_count = what->fetch_count;
    size_t slots = HALVES * (size_t)r->half;
    for (uint32_t i = 0; i < r->feed_count; i++) {
        r->feeds[i] = what->feeds[i];
        r->in[i] = (lane){bytes_of_feed(&what->feeds[i]), r->feed_bytes, what->feeds[i].same};
        r->feed_bytes += aligned(r->in[i].bytes * (r->in[i].same ? 1 : slots));
    }
    for (uint32_t i = 0; i < r->fetch_count; i++) {
        r->fetches[i] = what->fetches[i];
        r->out[i] = (lane){.bytes = what->fetches[i].bytes, .offset = r->fetch_bytes};
        r->fetch_bytes += aligned(r->out[i].bytes * slots);
    }
    return TU_OK;
}

static tu_status take_resources(cuda_ring *r) {
    size_t bytes = r->feed_bytes + r->fetch_bytes;
    CUDA_TRY(cuMemAlloc, &r->block, COUNT_BYTES + bytes);
    CUDA_TRY(cuMemHostAlloc, (void **)&r->pinned, bytes ? bytes : 1, 0);
    CUDA_TRY(cuStreamCreate, &r->copies, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < HALVES; i++) {
        CUDA_TRY(cuEventCreate, &r->uploaded[i], CU_EVENT_DISABLE_TIMING);
        CUDA_TRY(cuEventCreate, &r->done[i], CU_EVENT_DISABLE_TIMING);
    }
    return TU_OK;
}

static tu_status make_ring(cuda_runtime *runtime, uint32_t kernels, uint32_t steps,
                           const tu_repetition *what) {
    cuda_ring_free(runtime);
    cuda_ring *r = runtime->ring = tu__alloc(sizeof *r, "a ring");
    if (!r) return TU_NO_MEMORY;
    r->half = choose_half(what, steps);
    uint32_t several = NODES_OF_A_GRAPH / (kernels + 2);
    r->steps_of_a_graph = several > MOST_STEPS_OF_A_GRAPH ? MOST_STEPS_OF_A_GRAPH : several;
    TU_TRY(lay_out(r, what));
    return take_resources(r);
}

/* ---- A step ---- */

static unsigned char *feed_slots(const cuda_ring *r, uint32_t i) {
    return (unsigned char *)cuda_pointer(r->block) + COUNT_BYTES + r->in[i].offset;
}

static unsigned char *fetch_slots(const cuda_ring *r, uint32_t i) {
    return (unsigned char *)cuda_pointer(r->block) + COUNT_BYTES + r->feed_bytes + r->out[i].offset;
}

static int word_of(size_t bytes) {
    int word = 16;
    while (bytes % (size_t)word) word /= 2;
    return word;
}

static void fill_in(const cuda_ring *r, uint32_t i, ring_feed *f, long long begin) {
    const tu_repeat_feed *feed = &r->feeds[i];
    f->to = feed->to;
    f->slots = r->in[i].same ? 1 : HALVES * r->half;
    f->word = word_of(feed->table ? feed->row_bytes : feed->bytes);
    f->end = begin + (long long)(feed->bytes / (size_t)f->word);
    f->row = cuda_divider(1);
    f->from = feed_slots(r, i);
    f->stride = (long long)(feed->bytes / (size_t)f->word);
    if (!feed->table) return;
    f->from = feed->table;
    f->rows = (const long long *)(const void *)feed_slots(r, i);
    f->stride = (long long)(feed->bytes / feed->row_bytes);
    f->row = cuda_divider((uint32_t)(feed->row_bytes / (size_t)f->word));
}

/* Eight at a time; a launch without any keeps the count going. */
static tu_status enqueue_in(const tu__kernel *k, const cuda_runtime *runtime) {
    const cuda_ring *r = runtime->ring;
    uint32_t done = 0;
    do {
        ring_in_args a = {.count = cuda_pointer(r->block)};
        for (; a.feeds < RING_MOST && done < r->feed_count; done++) {
            fill_in(r, done, &a.feed[a.feeds], a.words);
            a.words = a.feed[a.feeds++].end;
        }
        TU_TRY(cuda_launch(k, runtime->ring_in, cuda_spread(k, a.words ? a.words : 1), &a));
    } while (done < r->feed_count);
    return TU_OK;
}

static tu_status enqueue_out(const tu__kernel *k, const cuda_runtime *runtime) {
    const cuda_ring *r = runtime->ring;
    uint32_t done = 0;
    do {
        ring_out_args a = {.count = cuda_pointer(r->block)};
        for (; a.fetches < RING_MOST && done < r->fetch_count; done++) {
            ring_fetch *f = &a.fetch[a.fetches++];
            const tu_repeat_fetch *fetch = &r->fetches[done];
            f->word = word_of(fetch->bytes);
            f->stride = (long long)(fetch->bytes / (size_t)f->word);
            f->end = a.words += f->stride;
            f->from = fetch->from;
            f->to = fetch_slots(r, done);
            f->slots = HALVES * r->half;
        }
        TU_TRY(cuda_launch(k, runtime->ring_out, cuda_spread(k, a.words ? a.words : 1), &a));
    } while (done < r->fetch_count);
    return TU_OK;
}

typedef struct steps_of {
    tu__kernel_plan *plan;
    uint32_t count;
} steps_of;

static tu_status enqueue_steps(cuda_device *device, void *context) {
    const steps_of *s = context;
    const cuda_runtime *runtime = s->plan->runtime;
    const tu__kernel stand_in = {.device = device};
    for (uint32_t i = 0; i < s->count; i++) {
        TU_TRY(enqueue_in(&stand_in, runtime));
        TU_TRY(cuda_enqueue(device, s->plan, 0, s->plan->kernel_count));
        TU_TRY(enqueue_out(&stand_in, runtime));
    }
    return TU_OK;
}

static tu_status launch_graph(cuda_device *device, tu__kernel_plan *p, uint32_t count, CUgraphExec *exec) {
    steps_of s = {p, count};
    if (!*exec) TU_TRY(cuda_capture(device, enqueue_steps, &s, exec));
    CUDA_TRY(cuGraphLaunch, *exec, device->stream);
    return TU_OK;
}

static tu_status launch_steps(cuda_device *device, tu__kernel_plan *p, uint32_t count) {
    cuda_runtime *runtime = p->runtime;
    cuda_ring *r = runtime->ring;
    for (uint32_t done = 0; done < count;) {
        if (!runtime->repeat_warm || runtime->capture_forbidden) {
            steps_of s = {p, 1};
            TU_TRY(enqueue_steps(device, &s)); /* libraries load what they need at first use */
            runtime->repeat_warm = true;
            done++;
        } else if (r->steps_of_a_graph > 1 && count - done >= r->steps_of_a_graph) {
            TU_TRY(launch_graph(device, p, r->steps_of_a_graph, &r->several));
            done += r->steps_of_a_graph;
        } else {
            TU_TRY(launch_graph(device, p, 1, &r->one));
            done++;
        }
    }
    return TU_OK;
}

/* ---- Halves ---- */

static const unsigned char *host_of(const tu_repeat_feed *f) {
    return f->table ? (const unsigned char *)f->rows : f->host;
}

static tu_status upload(const cuda_ring *r, uint32_t i, size_t from, size_t bytes) {
    CUdeviceptr to = cuda_address(feed_slots(r, i) + from);
    CUDA_TRY(cuMemcpyHtoDAsync, to, r->pinned + r->in[i].offset + from, bytes, r->copies);
    return TU_OK;
}

/* What is the same for all steps is brought once. */
static tu_status stage_same(const cuda_ring *r, const tu_repetition *what) {
    for (uint32_t i = 0; i < r->feed_count; i++) {
        if (!r->in[i].same || !r->in[i].bytes) continue;
        memcpy(r->pinned + r->in[i].offset, host_of(&what->feeds[i]), r->in[i].bytes);
        TU_TRY(upload(r, i, 0, r->in[i].bytes));
    }
    return TU_OK;
}

static tu_status stage(const cuda_device *device, const cuda_ring *r, const tu_repetition *what,
                       uint32_t half, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < r->feed_count; i++) {
        size_t bytes = r->in[i].bytes, slot = (size_t)half * r->half * bytes;
        if (r->in[i].same || !bytes) continue;
        memcpy(r->pinned + r->in[i].offset + slot, host_of(&what->feeds[i]) + (size_t)first * bytes,
               count * bytes);
        TU_TRY(upload(r, i, slot, count * bytes));
    }
    CUDA_TRY(cuEventRecord, r->uploaded[half], r->copies);
    CUDA_TRY(cuStreamWaitEvent, device->stream, r->uploaded[half], 0);
    return TU_OK;
}

static unsigned char *pinned_fetches(const cuda_ring *r, uint32_t i) {
    return r->pinned + r->feed_bytes + r->out[i].offset;
}

static tu_status fetch_behind(const cuda_device *device, const cuda_ring *r, uint32_t half, uint32_t count) {
    for (uint32_t i = 0; i < r->fetch_count; i++) {
        size_t bytes = r->out[i].bytes, slot = (size_t)half * r->half * bytes;
        if (!bytes) continue;
        CUDA_TRY(cuMemcpyDtoHAsync, pinned_fetches(r, i) + slot, cuda_address(fetch_slots(r, i) + slot),
                 count * bytes, device->stream);
    }
    CUDA_TRY(cuEventRecord, r->done[half], device->stream);
    return TU_OK;
}

/* Waits for the half's steps and hands over what they left. */
static tu_status collect(const cuda_ring *r, const tu_repetition *what, uint32_t half, uint32_t first,
                         uint32_t count) {
    CUDA_TRY(cuEventSynchronize, r->done[half]);
    for (uint32_t i = 0; i < r->fetch_count; i++) {
        size_t bytes = r->out[i].bytes;
        unsigned char *host = what->fetches[i].host;
        if (host)
            memcpy(host + (size_t)first * bytes, pinned_fetches(r, i) + (size_t)half * r->half * bytes,
                   count * bytes);
    }
    return TU_OK;
}

static uint32_t steps_in(const cuda_ring *r, uint32_t steps, uint32_t round) {
    uint32_t first = round * r->half;
    return steps - first < r->half ? steps - first : r->half;
}

static tu_status run_rounds(cuda_device *device, tu__kernel_plan *p, uint32_t steps,
                            const tu_repetition *what) {
    cuda_runtime *runtime = p->runtime;
    const cuda_ring *r = runtime->ring;
    uint32_t rounds = (steps + r->half - 1) / r->half;
    CUDA_TRY(cuMemsetD8Async, r->block, 0, COUNT_BYTES, device->stream);
    TU_TRY(stage_same(r, what));
    for (uint32_t round = 0; round < rounds + HALVES; round++) {
        uint32_t half = round % HALVES, before = round - HALVES;
        if (round >= HALVES) TU_TRY(collect(r, what, half, before * r->half, steps_in(r, steps, before)));
        if (round >= rounds) continue;
        uint32_t count = steps_in(r, steps, round);
        TU_TRY(stage(device, r, what, half, round * r->half, count));
        TU_TRY(launch_steps(device, p, count));
        TU_TRY(fetch_behind(device, r, half, count));
    }
    return TU_OK;
}

/* ---- A repetition ---- */

static void drop_graphs(cuda_ring *r) {
    if (r->one) cuda.cuGraphExecDestroy(r->one);
    if (r->several) cuda.cuGraphExecDestroy(r->several);
    r->one = r->several = NULL;
}

static tu_status prepare(tu__kernel_plan *p, uint32_t steps, const tu_repetition *what) {
    cuda_runtime *runtime = p->runtime;
    uint64_t seed = p->kernel_count ? *p->kernels[0]->seed : 0;
    if (!fits(runtime->ring, steps, what)) {
        tu_status status = make_ring(runtime, p->kernel_count, steps, what);
        if (status != TU_OK) {
            cuda_ring *r = runtime->ring;
            double bytes = r ? (double)(r->feed_bytes + r->fetch_bytes) : 0;
            tu_fail(status, "no ring of %.1f MiB for the inputs and results of steps: %s", bytes / 1048576,
                    tu_message());
            cuda_ring_free(runtime);
            return status;
        }
    }
    if (runtime->ring->seed != seed) drop_graphs(runtime->ring);
    runtime->ring->seed = seed;
    return TU_OK;
}

tu_status cuda_repeat_plan(cuda_device *device, tu_plan *plan, uint32_t steps, const tu_repetition *what) {
    tu__kernel_plan *p = (tu__kernel_plan *)plan;
    cuda_runtime *runtime = p->runtime;
    if (steps == 0) return TU_OK;
    TU_TRY(cuda_enter(device));
    bool timed = runtime->timed; /* events belong to single launches */
    runtime->timed = false;
    tu_status status = prepare(p, steps, what);
    if (status == TU_OK) status = run_rounds(device, p, steps, what);
    runtime->timed = timed;
    if (status == TU_OK) return TU_OK;
    tu_fail(status, "%s: %s", device->name, tu_message());
    cuda.cuStreamSynchronize(device->stream); /* nothing may be under way when the ring goes */
    cuda_ring_free(runtime);
    return status;
}
