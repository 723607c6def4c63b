/* The programs of a stack of trainers. See stack_programs.h. */
#include "train/stack_programs.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "train/compile_options.h"

enum { MAX_STEPS = 1024, MAX_INPUT_BYTES = 64 << 20, MAX_GROWTH = 8 };

/* ---- Graphs and programs ---- */

typedef tu_graph *graph_of(const tu__trainer *t);

static tu_graph *full_graph(const tu__trainer *t) {
    return t->graphs.step;
}

static tu_graph *short_graph(const tu__trainer *t) {
    return t->graphs.step_short;
}

static const tu__trainer *first_of(int64_t places, tu__trainer *const *trainers) {
    int64_t i = 0;
    while (i + 1 < places && !trainers[i]) i++;
    return trainers[i];
}

/* Stacks one graph of each trainer; places without one get that of the first. */
static tu_status stack_graphs(int64_t places, tu__trainer *const *trainers, graph_of *graph,
                              const char *scope, tu_stacked **stack) {
    tu_graph **graphs = tu__alloc_array((size_t)places, sizeof *graphs, "the networks of a stack");
    if (!graphs) return TU_NO_MEMORY;
    for (int64_t i = 0; i < places; i++)
        graphs[i] = graph(trainers[i] ? trainers[i] : first_of(places, trainers));
    tu_status status = tu_stacked_new((size_t)places, graphs, stack, .scope = scope);
    tu__free(graphs);
    return status;
}

static tu_status compile_step(tu__stack_step *s, const tu__run_config *config) {
    enum { RESULTS = 5 };
    static const char *const names[RESULTS] = {"loss", "correct", "finite", "rate", "gradient_norm"};
    tu_graph *graph = tu_stacked_graph(s->stack);
    tu__device_spec first;
    tu_compile_options o;
    tu_value fetch[RESULTS];
    TU_TRY(tu__run_compile_options(config, TU__ANY_SAMPLES, &first, &o));
    for (int i = 0; i < RESULTS; i++) fetch[i] = tu_find_output(graph, names[i]);
    s->inputs = tu__find_inputs(graph, &config->columns);
    s->samples = tu__inputs_samples(&s->inputs) / (int64_t)tu_stacked_members(s->stack);
    o.fetch = fetch;
    o.fetch_count = RESULTS;
    o.updates = true;
    return tu_compile_with(graph, &s->program, &o);
}

static tu_status open_steps(tu__stack_programs *p, tu__trainer *const *trainers) {
    const tu__trainer *first = first_of(p->places, trainers);
    TU_TRY(stack_graphs(p->places, trainers, full_graph, "stack", &p->full.stack));
    TU_TRY(compile_step(&p->full, &first->config));
    TU_TRY(tu_state_new(tu_stacked_graph(p->full.stack), &p->state));
    if (!first->graphs.step_short) return TU_OK;
    TU_TRY(stack_graphs(p->places, trainers, short_graph, "stack/short", &p->short_batch.stack));
    TU_TRY(compile_step(&p->short_batch, &first->config));
    return tu_state_extend(p->state, tu_stacked_graph(p->short_batch.stack));
}

/* ---- Buffers ---- */

static tu_status allocate_columns(tu__stack_programs *p, size_t rows) {
    for (size_t c = 0; c < p->feeder.columns->count; c++) {
        size_t bytes = rows * p->feeder.columns->column[c].bytes;
        p->columns[c] = tu__alloc_aligned(bytes, "the samples of a stack");
        if (!p->columns[c]) return TU_NO_MEMORY;
        memset(p->columns[c], 0, bytes);
    }
    p->batch_columns = tu__alloc_array((size_t)(p->capacity * p->places) * TU_MAX_COLUMNS,
                                       sizeof *p->batch_columns, "the samples of a stack");
    return p->batch_columns ? TU_OK : TU_NO_MEMORY;
}

static tu_status allocate(tu__stack_programs *p) {
    size_t rows = (size_t)(p->places * p->full.samples),
           step_bytes = rows * tu__sample_bytes(p->feeder.columns);
    p->capacity = tu__healthy_name(tu_stacked_graph(p->full.stack)) ? MAX_STEPS : 1;
    if (p->feeder.has_tables) step_bytes = 2 * rows * sizeof *p->indices;
    if ((size_t)p->capacity * step_bytes > MAX_INPUT_BYTES)
        p->capacity = step_bytes < MAX_INPUT_BYTES ? (int64_t)(MAX_INPUT_BYTES / step_bytes) : 1;
    size_t steps = (size_t)p->capacity, values = steps * (size_t)p->places;
    rows *= steps;
    if (!p->feeder.has_tables) TU_TRY(allocate_columns(p, rows));
    p->ordinals = tu__alloc_array(rows, sizeof *p->ordinals, "the ordinals of a stack");
    p->indices = tu__alloc_array(rows, sizeof *p->indices, "the indices of a stack");
    p->losses = tu__alloc_array(values, sizeof *p->losses, "the results of a stack");
    p->rates = tu__alloc_array(values, sizeof *p->rates, "the results of a stack");
    p->norms = tu__alloc_array(values, sizeof *p->norms, "the results of a stack");
    p->corrects = tu__alloc_array(values, sizeof *p->corrects, "the results of a stack");
    p->finite = tu__alloc_array(values, sizeof *p->finite, "the results of a stack");
    bool complete =
        p->ordinals && p->indices && p->losses && p->rates && p->norms && p->corrects && p->finite;
    return complete ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__stack_programs_open(tu__stack_programs *p, int64_t places, tu__trainer *const *trainers,
                                  const tu_dataset *dataset) {
    const tu__trainer *first = first_of(places, trainers);
    *p = (tu__stack_programs){.places = places, .length = 1, .feeder.columns = &dataset->columns};
    TU_TRY(open_steps(p, trainers));
    if (tu__dataset_in_memory(dataset, TU_TRAIN))
        TU_TRY(tu__feeder_make_tables(&dataset->columns, dataset->data[TU_TRAIN],
                                      dataset->info.count[TU_TRAIN], &p->feeder));
    TU_TRY(allocate(p));
    for (int64_t i = 0; i < places; i++)
        TU_TRY(tu__stack_programs_insert(p, i, trainers[i] ? trainers[i] : first));
    return TU_OK;
}

void tu__stack_programs_close(tu__stack_programs *p) {
    tu_program_free(p->full.program);
    tu_program_free(p->short_batch.program);
    tu_state_free(p->state);
    tu_stacked_free(p->full.stack);
    tu_stacked_free(p->short_batch.stack);
    tu__feeder_close(&p->feeder);
    for (size_t c = 0; c < TU_MAX_COLUMNS; c++) tu__free_aligned(p->columns[c]);
    void *const blocks[] = {p->batch_columns, p->ordinals, p->indices,  p->losses,
                            p->rates,         p->norms,    p->corrects, p->finite};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tu__free(blocks[i]);
    *p = (tu__stack_programs){0};
}

/* ---- Places ---- */

tu_status tu__stack_programs_insert(tu__stack_programs *p, int64_t place, const tu__trainer *t) {
    if ((p->short_batch.stack != NULL) != (t->graphs.step_short != NULL))
        return tu_fail(TU_INVALID,
                       "the run cannot join the stack: its epochs have another number of samples");
    TU_TRY(tu_stacked_insert(p->full.stack, p->state, (size_t)place, t->graphs.step, t->state));
    if (!p->short_batch.stack) return TU_OK;
    return tu_stacked_insert(p->short_batch.stack, p->state, (size_t)place, t->graphs.step_short, t->state);
}

tu_status tu__stack_programs_extract(const tu__stack_programs *p, int64_t place, const tu__trainer *t) {
    return tu_stacked_extract(p->full.stack, p->state, (size_t)place, t->state);
}

/* ---- Steps ---- */

void tu__stack_programs_copy(tu__stack_programs *p, const tu__stack_step *s, int64_t step, int64_t place,
                             const tu_batch *batch, tu_batch *copy) {
    size_t first = (size_t)((step * p->places + place) * s->samples), count = (size_t)batch->count;
    *copy = *batch;
    memcpy(p->ordinals + first, batch->ordinals, count * sizeof *p->ordinals);
    memcpy(p->indices + first, batch->indices, count * sizeof *p->indices);
    copy->ordinals = p->ordinals + first;
    copy->indices = p->indices + first;
    if (p->feeder.has_tables) return;
    const void **columns = p->batch_columns + (size_t)(step * p->places + place) * TU_MAX_COLUMNS;
    for (size_t c = 0; c < p->feeder.columns->count; c++) {
        size_t bytes = p->feeder.columns->column[c].bytes;
        unsigned char *to = p->columns[c] + first * bytes;
        memcpy(to, batch->columns[c], count * bytes);
        columns[c] = to;
    }
    copy->images = NULL; /* of the loader */
    copy->labels = NULL;
    copy->columns = columns;
}

static size_t make_feeds(const tu__stack_programs *p, const tu__stack_step *s,
                         tu_feed_many feeds[TU__MAX_FEEDS]) {
    const tu__feed_source source = {
        .rows = p->indices, .columns = (const void *const *)p->columns, .ordinals = p->ordinals};
    return tu__make_feeds(&p->feeder, &s->inputs, &source, feeds);
}

/* Sets the length of the next call from the measured time, like multi_step.c. */
static void adapt_length(tu__stack_programs *p, int64_t steps, double seconds) {
    double wanted = tu__multi_step_loop_seconds * (double)steps / (seconds > 1e-9 ? seconds : 1e-9);
    int64_t limit = p->length * MAX_GROWTH < p->capacity ? p->length * MAX_GROWTH : p->capacity;
    p->length = wanted < 1 ? 1 : wanted > (double)limit ? limit : (int64_t)wanted;
}

tu_status tu__stack_programs_run(tu__stack_programs *p, const tu__stack_step *s, int64_t steps) {
    tu_feed_many feeds[TU__MAX_FEEDS];
    void *fetches[] = {p->losses, p->corrects, p->finite, p->rates, p->norms};
    double start = tu__now();
    TU_TRY(tu_run_many(s->program, p->state, (size_t)steps, make_feeds(p, s, feeds), feeds, fetches));
    adapt_length(p, steps, tu__now() - start);
    return TU_OK;
}
