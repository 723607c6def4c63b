/* See classifier_run.h. */
#include "train/classifier_run.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "graph/graph.h"
#include "infer/rebatch.h"

tu_status tu__classifier_open(const tu_graph *frozen, int64_t batch, int threads, tu__classifier *c) {
    *c = (tu__classifier){.batch = batch};
    TU_TRY(tu__rebatch(frozen, batch, &c->graph));
    const tu__node *images = tu__find_node(c->graph, "images");
    tu_value logits = tu_find_output(c->graph, "logits");
    TU_TRY(tu_graph_status(c->graph));
    if (!images) return tu_fail(TU_INVALID, "the network has no input 'images'");
    const tu_type type = tu_value_type(logits);
    c->images = tu__value(c->graph, images->id, 0);
    c->classes = tu_shape_elements(type.shape) / batch;
    c->logits = tu__alloc_aligned(tu_type_bytes(type), "logits");
    if (!c->logits) return TU_NO_MEMORY;
    TU_TRY(tu_compile(c->graph, &c->program, .devices = "cpu:0", .threads = threads, .fetch = &logits,
                      .fetch_count = 1));
    return tu_state_new(c->graph, &c->state);
}

void tu__classifier_close(tu__classifier *c) {
    tu_program_free(c->program);
    tu_state_free(c->state);
    tu_graph_free(c->graph);
    tu__free_aligned(c->logits);
    *c = (tu__classifier){0};
}

tu_status tu__classifier_run(tu__classifier *c, const void *images) {
    const tu_feed feed = {c->images, images};
    void *fetch = c->logits;
    const double start = tu__now();
    TU_TRY(tu_run(c->program, c->state, 1, &feed, &fetch));
    if (c->runs++) c->seconds += tu__now() - start;
    return TU_OK;
}

int64_t tu__classifier_class(const tu__classifier *c, int64_t sample) {
    const float *logits = c->logits + sample * c->classes;
    int64_t best = 0;
    for (int64_t i = 1; i < c->classes; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

double tu__classifier_speed(const tu__classifier *c) {
    return c->runs > 1 && c->seconds > 0 ? (double)((c->runs - 1) * c->batch) / c->seconds : 0;
}

/* ---- Images ---- */

tu_status tu__image_batches_open(const tu_dataset *set, tu_split split, int64_t count, int64_t batch,
                                 tu__image_batches *b) {
    *b = (tu__image_batches){.set = set, .split = split, .batch = batch};
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(set, &info));
    b->total = info.count[split];
    b->count = count > 0 && count < b->total ? count : b->total;
    b->image_bytes = tu_type_bytes((tu_type){info.dtype, TU_SHAPE(info.height, info.width, info.channels)});
    b->images = tu__alloc_array((size_t)batch, b->image_bytes, "images");
    b->labels = tu__alloc_array((size_t)batch, sizeof *b->labels, "labels");
    return b->images && b->labels ? TU_OK : TU_NO_MEMORY;
}

void tu__image_batches_close(tu__image_batches *b) {
    tu__free(b->images);
    tu__free(b->labels);
    *b = (tu__image_batches){0};
}

tu_status tu__image_batches_read(tu__image_batches *b, int64_t first, int64_t *count) {
    *count = b->count - first < b->batch ? b->count - first : b->batch;
    for (int64_t i = 0; i < *count; i++)
        TU_TRY(tu_dataset_read(b->set, b->split, (first + i) * b->total / b->count,
                               b->images + (size_t)i * b->image_bytes, &b->labels[i]));
    for (int64_t i = *count; i < b->batch; i++)
        memcpy(b->images + (size_t)i * b->image_bytes, b->images + (size_t)(*count - 1) * b->image_bytes,
               b->image_bytes);
    return TU_OK;
}
