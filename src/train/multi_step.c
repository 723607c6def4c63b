/* Multi-step calls. See multi_step.h. */
#include "train/multi_step.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/process_group.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "optim/optimizer.h"

enum { MAX_STEPS = 1024, MAX_BATCH_BYTES = 64 << 20, MAX_GROWTH = 8 };

double tu__multi_step_loop_seconds = 0.15;

/* ---- Support ---- */

/* True if the device runs many steps per call and a non-finite step of the graph disables the later ones. Graphs of
 * runs that earlier versions started do not have this guard. */
static bool can_run_many(const tu__micro_batch *micro_batch) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    return tu_program_multi_step(micro_batch->program, &report) == TU_OK && report.in_one_call &&
           tu__healthy_name(micro_batch->graph);
}

/* ---- Opening and closing ---- */

static tu_status open_tables(tu__multi_step_loop *b) {
    const tu_dataset *dataset = b->dataset;
    b->feeder.columns = &dataset->columns;
    if (!tu__dataset_in_memory(dataset, TU_TRAIN)) return TU_OK;
    return tu__feeder_make_tables(&dataset->columns, dataset->data[TU_TRAIN], dataset->info.count[TU_TRAIN],
                                  &b->feeder);
}

static tu_status allocate_columns(tu__multi_step_loop *b) {
    const tu__columns *columns = &b->dataset->columns;
    for (size_t c = 0; c < columns->count; c++) {
        b->columns[c] = tu__alloc_aligned((size_t)b->capacity * (size_t)b->batch * columns->column[c].bytes,
                                          "the samples of many steps");
        if (!b->columns[c]) return TU_NO_MEMORY;
    }
    b->batch_columns =
        tu__alloc_array((size_t)b->capacity * TU_MAX_COLUMNS, sizeof *b->batch_columns, "many steps");
    return b->batch_columns ? TU_OK : TU_NO_MEMORY;
}

static tu_status allocate_arrays(tu__multi_step_loop *b) {
    size_t batch_bytes = (size_t)b->batch * tu__sample_bytes(&b->dataset->columns);
    b->capacity = MAX_STEPS;
    if (!b->feeder.has_tables && batch_bytes * MAX_STEPS > MAX_BATCH_BYTES)
        b->capacity = MAX_BATCH_BYTES / (int64_t)batch_bytes;
    if (b->capacity < 1) b->capacity = 1;
    size_t steps = (size_t)b->capacity, samples = steps * (size_t)b->batch;
    if (!b->feeder.has_tables) TU_TRY(allocate_columns(b));
    b->ordinals = tu__alloc_array(samples, sizeof *b->ordinals, "the ordinals of many steps");
    b->indices = tu__alloc_array(samples, sizeof *b->indices, "the sample indices of many steps");
    b->batches = tu__alloc_array(steps, sizeof *b->batches, "many steps");
    b->losses = tu__alloc_array(steps, sizeof *b->losses, "many steps");
    b->rates = tu__alloc_array(steps, sizeof *b->rates, "many steps");
    b->norms = tu__alloc_array(steps, sizeof *b->norms, "many steps");
    b->corrects = tu__alloc_array(steps, sizeof *b->corrects, "many steps");
    b->finite = tu__alloc_array(steps, sizeof *b->finite, "many steps");
    bool complete = b->ordinals && b->indices && b->batches && b->losses && b->rates && b->norms &&
                    b->corrects && b->finite;
    return complete ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__multi_step_loop_open(const tu__stepper *stepper, const tu_dataset *dataset, int64_t batch,
                                   tu_process_group *group, tu__multi_step_loop *b) {
    *b = (tu__multi_step_loop){.dataset = dataset, .group = group, .batch = batch, .length = 1};
    bool possible = !stepper->apply && can_run_many(&stepper->full) && !stepper->short_batch.receivers &&
                    (!stepper->short_batch.graph || can_run_many(&stepper->short_batch));
    if (!possible) return TU_OK;
    b->stepper = stepper;
    TU_TRY(open_tables(b));
    return allocate_arrays(b);
}

void tu__multi_step_loop_close(tu__multi_step_loop *b) {
    tu__feeder_close(&b->feeder);
    for (size_t c = 0; c < TU_MAX_COLUMNS; c++) tu__free_aligned(b->columns[c]);
    void *const blocks[] = {b->batch_columns, b->ordinals, b->indices,  b->batches, b->losses,
                            b->rates,         b->norms,    b->corrects, b->finite};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tu__free(blocks[i]);
    *b = (tu__multi_step_loop){0};
}

/* ---- Reading batches ---- */

/* Copies a batch of the loader into the arrays of the call. */
static void copy_batch(tu__multi_step_loop *b, int64_t step, const tu_batch *source) {
    size_t first = (size_t)(step * b->batch), count = (size_t)source->count;
    tu_batch *copy = &b->batches[step];
    *copy = *source;
    memcpy(b->ordinals + first, source->ordinals, count * sizeof *b->ordinals);
    memcpy(b->indices + first, source->indices, count * sizeof *b->indices);
    copy->ordinals = b->ordinals + first;
    copy->indices = b->indices + first;
    if (b->feeder.has_tables) return;
    const tu__columns *columns = &b->dataset->columns;
    copy->images = NULL; /* of the loader */
    copy->labels = NULL;
    copy->columns = b->batch_columns + (size_t)step * TU_MAX_COLUMNS;
    for (size_t c = 0; c < columns->count; c++) {
        size_t bytes = columns->column[c].bytes;
        unsigned char *to = b->columns[c] + first * bytes;
        memcpy(to, source->columns[c], count * bytes);
        b->batch_columns[(size_t)step * TU_MAX_COLUMNS + c] = to;
    }
}

/* Reads the batches of up to `steps` steps. Stops before a batch that cannot be read; fails only if that is the
 * first. */
static tu_status read_batches(tu__multi_step_loop *b, tu_loader *loader, int64_t steps, int64_t *count) {
    tu_status status = TU_OK;
    for (*count = 0; *count < steps; ++*count) {
        tu_batch batch = TU_SIZED(tu_batch);
        status = tu_loader_next(loader, &batch);
        if (status != TU_OK) break;
        copy_batch(b, *count, &batch);
    }
    return *count ? TU_OK : status;
}

/* All processes run as many steps as each of them has batches for. If one has none, all fail with its message. Indices
 * can always be read. */
static tu_status agree_on_count(const tu__multi_step_loop *b, tu_status status, int64_t *count) {
    int64_t counts[TU__MAX_PROCESSES];
    if (!b->group || b->feeder.has_tables) return status;
    TU_TRY(tu_process_group_agree(b->group, status));
    TU_TRY(tu_process_group_gather(b->group, count, sizeof *count, counts));
    for (uint32_t r = 0; r < b->group->info.size; r++)
        if (counts[r] < *count) *count = counts[r];
    return TU_OK;
}

/* ---- Running ---- */

static size_t make_feeds(const tu__multi_step_loop *b, const tu__micro_batch *micro_batch,
                         tu_feed_many feeds[TU__MAX_FEEDS]) {
    const tu__feed_source source = {
        .rows = b->indices, .columns = (const void *const *)b->columns, .ordinals = b->ordinals};
    return tu__make_feeds(&b->feeder, &micro_batch->inputs, &source, feeds);
}

/* Sets the length of the next call from the measured time. It grows by at most the factor MAX_GROWTH, because the
 * first call also copies the data set to the device. */
static void adapt_length(tu__multi_step_loop *b, int64_t steps, double seconds) {
    double wanted = tu__multi_step_loop_seconds * (double)steps / (seconds > 1e-9 ? seconds : 1e-9);
    int64_t limit = b->length * MAX_GROWTH < b->capacity ? b->length * MAX_GROWTH : b->capacity;
    b->length = wanted < 1 ? 1 : wanted > (double)limit ? limit : (int64_t)wanted;
}

tu_status tu__multi_step_loop_run(tu__multi_step_loop *b, const tu__micro_batch *micro_batch, tu_state *state,
                                  tu_loader *loader, int64_t steps, int64_t *completed) {
    tu_feed_many feeds[TU__MAX_FEEDS];
    void *fetches[5] = {b->losses};
    size_t results = 1;
    if (b->stepper->counts_correct) fetches[results++] = b->corrects;
    fetches[results++] = b->finite;
    fetches[results++] = b->rates;
    fetches[results++] = b->norms;
    double start = tu__now();
    tu_status status = read_batches(b, loader, steps < b->capacity ? steps : b->capacity, completed);
    TU_TRY(agree_on_count(b, status, completed));
    TU_TRY(tu_run_many(micro_batch->program, state, (size_t)*completed, make_feeds(b, micro_batch, feeds),
                       feeds, fetches));
    adapt_length(b, *completed, tu__now() - start);
    return TU_OK;
}

tu__step_values tu__multi_step_loop_values(const tu__multi_step_loop *b, const tu__micro_batch *micro_batch,
                                           int64_t index) {
    bool finite = b->finite[index];
    return (tu__step_values){.loss = b->losses[index],
                             .correct = b->corrects[index],
                             .rate = b->rates[index],
                             .gradient_norm = b->norms[index],
                             .finite = finite,
                             .failed = finite ? NULL : micro_batch};
}
