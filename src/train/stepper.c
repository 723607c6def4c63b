/* Runs training steps. See stepper.h. */
#include "train/stepper.h"

#include "data/dataset.h"
#include "graph/graph.h"
#include "run/program.h"
#include "train/compile_options.h"

tu_value tu__find_input(tu_graph *graph, const char *name) {
    const tu__node *node = tu__find_node(graph, name);
    return node && node->op->code == TU__OP_INPUT ? tu__value(graph, node->id, 0) : tu__invalid(graph);
}

/* ---- Opening ---- */

/* Compiles a program. `samples` as for tu__run_compile_options. `receivers` may be NULL for TU__ANY_SAMPLES. */
static tu_status compile(tu_graph *graph, const tu__run_config *config, int64_t samples,
                         const tu_value *fetch, size_t count, bool plan_only, tu_program **program,
                         tu_process_group **receivers) {
    tu__device_spec first;
    tu_compile_options o;
    TU_TRY(tu__run_compile_options(config, samples, &first, &o));
    if (receivers && tu__computes_first_alone(config, &o)) {
        *receivers = config->group;
        if (!tu__has_run_variables(config)) return TU_OK;
    }
    o.fetch = fetch;
    o.fetch_count = count;
    o.updates = true;
    o.plan_only = plan_only;
    return tu_compile_with(graph, program, &o);
}

/* Outputs of a step graph. Rate and norm come last, because with gradient accumulation it has none. */
enum { LOSS, CORRECT, FINITE, RATE, NORM, RESULTS };
static const char *const result_names[RESULTS] = {"loss", "correct", "finite", "rate", "gradient_norm"};

/* Compiles the program of a micro-batch. run_graphs.c has checked its inputs and outputs. `must_shard`: fail rather
 * than run on one device; the rest of an epoch may be too small to be sharded. */
static tu_status open_micro_batch(tu_graph *graph, const tu__run_config *config, bool must_shard,
                                  bool plan_only, tu__micro_batch *micro_batch) {
    if (!graph) return TU_OK;
    *micro_batch = (tu__micro_batch){.graph = graph,
                                     .images = tu__find_input(graph, "images"),
                                     .labels = tu__find_input(graph, "labels"),
                                     .ordinals = tu__find_input(graph, "sample_ordinal"),
                                     .share = tu__find_input(graph, "share")};
    micro_batch->samples = tu_value_shape(micro_batch->images).dim[0];
    size_t count = tu_ok(micro_batch->share) ? RATE : RESULTS;
    tu_value fetch[RESULTS];
    for (size_t i = 0; i < count; i++) fetch[i] = tu_find_output(graph, result_names[i]);
    int64_t samples = must_shard ? TU__ANY_SAMPLES : micro_batch->samples;
    return compile(graph, config, samples, fetch, count, plan_only, &micro_batch->program,
                   &micro_batch->receivers);
}

static tu_status open_apply(tu_graph *graph, const tu__run_config *config, bool plan_only,
                            tu__stepper *stepper) {
    if (!graph) return TU_OK;
    stepper->apply_graph = graph;
    if (!plan_only && tu__has_run_variables(config))
        TU_TRY(tu__undo_new(stepper->full.graph, &stepper->undo));
    tu_value fetch[RESULTS - FINITE];
    for (size_t i = FINITE; i < RESULTS; i++) fetch[i - FINITE] = tu_find_output(graph, result_names[i]);
    return compile(graph, config, TU__ANY_SAMPLES, fetch, RESULTS - FINITE, plan_only, &stepper->apply, NULL);
}

static tu_status open_programs(const tu__run_graphs *graphs, const tu__run_config *config, bool plan_only,
                               tu__stepper *stepper) {
    const tu_dataset_info *dataset = &config->dataset;
    *stepper = (tu__stepper){.image_bytes = (size_t)(dataset->height * dataset->width * dataset->channels) *
                                            tu_dtype_size(dataset->dtype)};
    TU_TRY(open_micro_batch(graphs->step, config, true, plan_only, &stepper->full));
    if (*config->settings.lock && !plan_only)
        TU_TRY(tu_program_check_placement(stepper->full.program, config->settings.lock, false, NULL));
    TU_TRY(open_micro_batch(graphs->step_short, config, false, plan_only, &stepper->short_batch));
    return open_apply(graphs->apply, config, plan_only, stepper);
}

tu_status tu__stepper_open(const tu__run_graphs *graphs, const tu__run_config *config, tu__stepper *stepper) {
    return open_programs(graphs, config, false, stepper);
}

tu_status tu__stepper_plan(const tu__run_graphs *graphs, const tu__run_config *config, tu__stepper *stepper) {
    return open_programs(graphs, config, true, stepper);
}

void tu__stepper_close(tu__stepper *stepper) {
    tu_program_free(stepper->full.program);
    tu_program_free(stepper->short_batch.program);
    tu_program_free(stepper->apply);
    tu__undo_free(&stepper->undo);
    tu_table_free(stepper->images);
    tu_table_free(stepper->labels);
    *stepper = (tu__stepper){0};
}

/* ---- Images by index ---- */

static bool can_select(const tu__micro_batch *micro_batch) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    return !micro_batch->program ||
           (tu_program_multi_step(micro_batch->program, &report) == TU_OK && report.direct_copies);
}

/* A large memory-mapped file may not stay in memory; it is better prefetched by a thread. */
static bool stays_in_memory(const tu_dataset *dataset) {
    enum { MAX_BYTES = 1 << 30 };
    return (size_t)dataset->info.count[TU_TRAIN] * dataset->image_bytes <= MAX_BYTES;
}

tu_status tu__stepper_gather_from(tu__stepper *stepper, const tu__run_config *config,
                                  const tu_dataset *dataset) {
    int64_t count = dataset->info.count[TU_TRAIN];
    bool use_tables = dataset->images[TU_TRAIN] && stays_in_memory(dataset) && can_select(&stepper->full) &&
                      can_select(&stepper->short_batch);
    /* With batches, the processes agree before each step that all could be read. */
    if (config->group) TU_TRY(tu_process_group_broadcast(config->group, 0, &use_tables, sizeof use_tables));
    if (!use_tables) return TU_OK;
    tu__dataset_prefetch(dataset, TU_TRAIN);
    TU_TRY(tu_table_new(dataset->images[TU_TRAIN], dataset->image_bytes, count, &stepper->images));
    return tu_table_new(dataset->labels[TU_TRAIN], sizeof *dataset->labels[TU_TRAIN], count,
                        &stepper->labels);
}

static tu_status new_empty_state(uint64_t seed, tu_state **state) {
    tu_graph *nothing;
    TU_TRY(tu_graph_new(&nothing));
    tu_status status = tu_state_new(nothing, state, .seed = seed);
    tu_graph_free(nothing);
    return status;
}

tu_status tu__stepper_state(const tu__stepper *stepper, const tu__run_config *config, tu_state **state) {
    uint64_t seed = (uint64_t)config->settings.seed;
    if (!tu__has_run_variables(config)) return new_empty_state(seed, state);
    TU_TRY(tu_state_new(stepper->full.graph, state, .seed = seed));
    tu_status status = stepper->apply_graph ? tu_state_extend(*state, stepper->apply_graph) : TU_OK;
    if (status != TU_OK) {
        tu_state_free(*state);
        *state = NULL;
    }
    return status;
}

/* ---- Running ---- */

size_t tu__micro_batch_feeds(const tu__stepper *stepper, const tu__micro_batch *micro_batch,
                             const tu_batch *batch, int64_t first, float *share,
                             tu_feed feeds[TU__MAX_FEEDS]) {
    size_t count = 0;
    const char *images = batch->images;
    feeds[count++] = (tu_feed){micro_batch->images, images + (size_t)first * stepper->image_bytes};
    feeds[count++] = (tu_feed){micro_batch->labels, batch->labels + first};
    if (tu_ok(micro_batch->ordinals))
        feeds[count++] = (tu_feed){micro_batch->ordinals, batch->ordinals + first};
    if (tu_ok(micro_batch->share)) {
        *share = (float)((double)micro_batch->samples / (double)batch->count);
        feeds[count++] = (tu_feed){micro_batch->share, share};
    }
    return count;
}

/* Runs a micro-batch whose images are selected from the data set by index. */
static tu_status run_selected(const tu__stepper *stepper, const tu__micro_batch *micro_batch, tu_state *state,
                              const tu_batch *batch, int64_t first, void *const *fetches) {
    size_t count = 0;
    float share = (float)((double)micro_batch->samples / (double)batch->count);
    const int64_t *rows = batch->indices + first;
    tu_feed_many feeds[TU__MAX_FEEDS];
    feeds[count++] = (tu_feed_many){.input = micro_batch->images, .table = stepper->images, .rows = rows};
    feeds[count++] = (tu_feed_many){.input = micro_batch->labels, .table = stepper->labels, .rows = rows};
    if (tu_ok(micro_batch->ordinals))
        feeds[count++] = (tu_feed_many){.input = micro_batch->ordinals, .data = batch->ordinals + first};
    if (tu_ok(micro_batch->share))
        feeds[count++] = (tu_feed_many){.input = micro_batch->share, .data = &share};
    return tu_run_many(micro_batch->program, state, 1, count, feeds, fetches);
}

static tu_status run_fed(const tu__stepper *stepper, const tu__micro_batch *micro_batch, tu_state *state,
                         const tu_batch *batch, int64_t first, void *const *fetches) {
    tu_feed feeds[TU__MAX_FEEDS];
    float share;
    size_t count = tu__micro_batch_feeds(stepper, micro_batch, batch, first, &share, feeds);
    return tu_run(micro_batch->program, state, count, feeds, fetches);
}

/* Results of a micro-batch. */
typedef struct results {
    float loss, rate, norm;
    uint8_t finite;
    int64_t correct;
} results;

static tu_status compute(const tu__stepper *stepper, const tu__micro_batch *micro_batch, tu_state *state,
                         const tu_batch *batch, int64_t first, results *r) {
    void *fetches[RESULTS] = {&r->loss, &r->correct, &r->finite, &r->rate, &r->norm};
    return (stepper->images ? run_selected : run_fed)(stepper, micro_batch, state, batch, first, fetches);
}

static tu_status run_micro_batch(const tu__stepper *stepper, const tu__micro_batch *micro_batch,
                                 tu_state *state, const tu_batch *batch, int64_t first,
                                 tu__step_values *values) {
    results r = {0};
    tu_status status = micro_batch->program ? compute(stepper, micro_batch, state, batch, first, &r) : TU_OK;
    if (micro_batch->receivers) status = tu__share_results(micro_batch->receivers, status, &r, sizeof r);
    TU_TRY(status);
    values->loss += (double)r.loss * (double)micro_batch->samples / (double)batch->count;
    values->correct += r.correct;
    values->rate = r.rate;
    values->gradient_norm = r.norm;
    values->finite = r.finite;
    if (!r.finite) values->failed = micro_batch, values->failed_first = first;
    return TU_OK;
}

static const tu__micro_batch *next_micro_batch(const tu__stepper *stepper, int64_t left) {
    if (left >= stepper->full.samples) return &stepper->full;
    return stepper->short_batch.samples == left ? &stepper->short_batch : NULL;
}

bool tu__stepper_reads_row(void *context, int64_t count, int64_t row) {
    const tu__stepper *stepper = context;
    int64_t first = row / stepper->full.samples * stepper->full.samples;
    const tu__micro_batch *micro_batch = next_micro_batch(stepper, count - first);
    if (micro_batch && !micro_batch->program) return false; /* rank 0 computes it */
    return !micro_batch || tu__program_reads_row(micro_batch->program, micro_batch->images, row - first);
}

static tu_status run_apply(const tu__stepper *stepper, tu_state *state, tu__step_values *values) {
    uint8_t finite;
    float rate, norm;
    TU_TRY(tu_run(stepper->apply, state, 0, NULL, (void *[]){&finite, &rate, &norm}));
    values->finite = finite;
    values->rate = rate;
    values->gradient_norm = norm;
    if (!finite) values->failed = &stepper->full, values->failed_first = 0;
    return TU_OK;
}

/* Runs the micro-batches of a batch one after another, until one is not finite. */
static tu_status run_micro_batches(const tu__stepper *stepper, tu_state *state, const tu_batch *batch,
                                   tu__step_values *values) {
    for (int64_t first = 0; first < batch->count && values->finite;) {
        const tu__micro_batch *micro_batch = next_micro_batch(stepper, batch->count - first);
        if (!micro_batch)
            return tu_fail(TU_INTERNAL,
                           "a batch of %lld samples cannot be split into the run's micro-batches",
                           (long long)batch->count);
        TU_TRY(run_micro_batch(stepper, micro_batch, state, batch, first, values));
        first += micro_batch->samples;
    }
    return TU_OK;
}

tu_status tu__stepper_run(const tu__stepper *stepper, tu_state *state, const tu_batch *batch,
                          tu__step_values *values) {
    *values = (tu__step_values){.finite = true};
    if (!stepper->apply) return run_micro_batches(stepper, state, batch, values);
    TU_TRY(tu__undo_save(&stepper->undo, state));
    TU_TRY(run_micro_batches(stepper, state, batch, values));
    if (values->finite) TU_TRY(run_apply(stepper, state, values));
    return values->finite ? TU_OK : tu__undo_restore(&stepper->undo, state);
}
