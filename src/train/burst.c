/* Many steps in one call. See burst.h. */
#include "train/burst.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "optim/optimizer.h"

enum { MAX_STEPS = 1024, MAX_PIXEL_BYTES = 64 << 20, GROWTH = 8 };

double tu__burst_seconds = 0.15;

/* ---- Whether ---- */

/* A piece whose device takes many steps at once, and whose graph keeps the steps behind a bad one from changing anything:
 * graphs of runs begun by earlier versions do not. */
static bool can_burst(const tu__piece *piece) {
    tu_many_report report = TU_SIZED(tu_many_report);
    return tu_program_many(piece->program, &report) == TU_OK && report.at_once &&
           tu__healthy_name(piece->graph);
}

/* ---- Life ---- */

static tu_status open_tables(tu__burst *b) {
    const tu_dataset *set = b->set;
    int64_t count = set->info.count[TU_TRAIN];
    if (!set->images[TU_TRAIN]) return TU_OK;
    TU_TRY(tu_table_new(set->images[TU_TRAIN], set->image_bytes, count, &b->images));
    return tu_table_new(set->labels[TU_TRAIN], sizeof *set->labels[TU_TRAIN], count, &b->labels);
}

static tu_status reserve(tu__burst *b) {
    size_t batch_bytes = (size_t)b->batch * b->set->image_bytes;
    b->capacity = MAX_STEPS;
    if (!b->images && batch_bytes * MAX_STEPS > MAX_PIXEL_BYTES)
        b->capacity = MAX_PIXEL_BYTES / (int64_t)batch_bytes;
    if (b->capacity < 1) b->capacity = 1;
    size_t steps = (size_t)b->capacity, samples = steps * (size_t)b->batch;
    /* Where tables serve, there is room for one batch's pixels: a bad step is looked at. */
    b->pixels = tu__alloc_aligned((b->images ? 1 : steps) * batch_bytes, "the images of many steps");
    b->classes = tu__alloc_array(samples, sizeof *b->classes, "the labels of many steps");
    b->ordinals = tu__alloc_array(samples, sizeof *b->ordinals, "the ordinals of many steps");
    b->indices = tu__alloc_array(samples, sizeof *b->indices, "the images' numbers of many steps");
    b->batches = tu__alloc_array(steps, sizeof *b->batches, "many steps");
    b->losses = tu__alloc_array(steps, sizeof *b->losses, "many steps");
    b->rates = tu__alloc_array(steps, sizeof *b->rates, "many steps");
    b->norms = tu__alloc_array(steps, sizeof *b->norms, "many steps");
    b->corrects = tu__alloc_array(steps, sizeof *b->corrects, "many steps");
    b->finite = tu__alloc_array(steps, sizeof *b->finite, "many steps");
    bool all = b->pixels && b->classes && b->ordinals && b->indices && b->batches && b->losses && b->rates &&
               b->norms && b->corrects && b->finite;
    return all ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__burst_open(const tu__stepper *stepper, const tu_dataset *set, int64_t batch, tu__burst *b) {
    *b = (tu__burst){.set = set, .batch = batch, .length = 1};
    bool possible =
        !stepper->apply && can_burst(&stepper->full) && (!stepper->rest.graph || can_burst(&stepper->rest));
    if (!possible) return TU_OK;
    b->stepper = stepper;
    TU_TRY(open_tables(b));
    return reserve(b);
}

void tu__burst_close(tu__burst *b) {
    tu_table_free(b->images);
    tu_table_free(b->labels);
    tu__free_aligned(b->pixels);
    void *const blocks[] = {b->classes, b->ordinals, b->indices,  b->batches, b->losses,
                            b->rates,   b->norms,    b->corrects, b->finite};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tu__free(blocks[i]);
    *b = (tu__burst){0};
}

/* ---- Gathering ---- */

/* Copies a batch of the loader to its place in the burst. */
static void keep_batch(tu__burst *b, int64_t step, const tu_batch *given) {
    size_t first = (size_t)(step * b->batch), count = (size_t)given->count;
    tu_batch *kept = &b->batches[step];
    *kept = *given;
    memcpy(b->ordinals + first, given->ordinals, count * sizeof *b->ordinals);
    memcpy(b->indices + first, given->indices, count * sizeof *b->indices);
    kept->ordinals = b->ordinals + first;
    kept->indices = b->indices + first;
    if (b->images) return;
    unsigned char *pixels = b->pixels + first * b->set->image_bytes;
    memcpy(pixels, given->images, count * b->set->image_bytes);
    memcpy(b->classes + first, given->labels, count * sizeof *b->classes);
    kept->images = pixels;
    kept->labels = b->classes + first;
}

/* Batches for up to `steps` steps. One that cannot be read ends the burst before it; when it is the first, this fails. */
static tu_status gather(tu__burst *b, tu_loader *loader, int64_t steps, int64_t *gathered) {
    tu_status status = TU_OK;
    for (*gathered = 0; *gathered < steps; ++*gathered) {
        tu_batch batch = TU_SIZED(tu_batch);
        status = tu_loader_next(loader, &batch);
        if (status != TU_OK) break;
        keep_batch(b, *gathered, &batch);
    }
    return *gathered ? TU_OK : status;
}

/* ---- Running ---- */

static size_t make_feeds(const tu__burst *b, const tu__piece *piece, tu_feed_many feeds[TU__MAX_FEEDS]) {
    size_t count = 0;
    if (b->images) {
        feeds[count++] = (tu_feed_many){.input = piece->images, .table = b->images, .rows = b->indices};
        feeds[count++] = (tu_feed_many){.input = piece->labels, .table = b->labels, .rows = b->indices};
    } else {
        feeds[count++] = (tu_feed_many){.input = piece->images, .data = b->pixels};
        feeds[count++] = (tu_feed_many){.input = piece->labels, .data = b->classes};
    }
    if (tu_ok(piece->ordinals))
        feeds[count++] = (tu_feed_many){.input = piece->ordinals, .data = b->ordinals};
    return count;
}

/* As many steps as the time allows, not many more at once than before: the first burst also moves the set. */
static void adapt(tu__burst *b, int64_t steps, double seconds) {
    double wanted = tu__burst_seconds * (double)steps / (seconds > 1e-9 ? seconds : 1e-9);
    int64_t most = b->length * GROWTH < b->capacity ? b->length * GROWTH : b->capacity;
    b->length = wanted < 1 ? 1 : wanted > (double)most ? most : (int64_t)wanted;
}

tu_status tu__burst_run(tu__burst *b, const tu__piece *piece, tu_state *state, tu_loader *loader,
                        int64_t steps, int64_t *made) {
    tu_feed_many feeds[TU__MAX_FEEDS];
    void *fetches[] = {b->losses, b->corrects, b->finite, b->rates, b->norms};
    double start = tu__now();
    TU_TRY(gather(b, loader, steps < b->capacity ? steps : b->capacity, made));
    TU_TRY(tu_run_many(piece->program, state, (size_t)*made, make_feeds(b, piece, feeds), feeds, fetches));
    adapt(b, *made, tu__now() - start);
    return TU_OK;
}

tu__step_values tu__burst_values(const tu__burst *b, const tu__piece *piece, int64_t index) {
    bool finite = b->finite[index];
    return (tu__step_values){.loss = b->losses[index],
                             .correct = b->corrects[index],
                             .rate = b->rates[index],
                             .gradient_norm = b->norms[index],
                             .finite = finite,
                             .bad = finite ? NULL : piece};
}

tu_status tu__burst_batch(tu__burst *b, int64_t index, tu_batch *batch) {
    *batch = b->batches[index];
    if (!b->images) return TU_OK;
    for (int64_t i = 0; i < batch->count; i++)
        TU_TRY(tu_dataset_read(b->set, TU_TRAIN, batch->indices[i],
                               b->pixels + (size_t)i * b->set->image_bytes, &b->classes[i]));
    batch->images = b->pixels;
    batch->labels = b->classes;
    return TU_OK;
}
