/* Runs training steps. See stepper.h. */
#include "train/stepper.h"

#include "base/open_file.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "run/program.h"
#include "train/compile_options.h"

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
    *micro_batch = (tu__micro_batch){.graph = graph, .inputs = tu__find_inputs(graph, &config->columns)};
    micro_batch->samples = tu__inputs_samples(&micro_batch->inputs);
    size_t end = tu_ok(micro_batch->inputs.share) ? RATE : RESULTS, count = 0;
    tu_value fetch[RESULTS];
    for (size_t i = 0; i < end; i++)
        if (i != CORRECT || tu__has_output(graph, result_names[CORRECT]))
            fetch[count++] = tu_find_output(graph, result_names[i]);
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

/* A run folder is data and may come from anybody: a lock file that only its config.json names is read, but not created. */
static tu_status check_placement(const tu__run_config *config, const tu_program *program) {
    const char *lock = config->settings.lock;
    if (!config->user_named_lock && !tu__file_exists(NULL, lock))
        return tu_fail(
            TU_NOT_FOUND,
            "the placement lock file '%s', which config.json names, does not exist: add --lock FILE "
            "to write one",
            lock);
    return tu_program_check_placement(program, lock, false, NULL);
}

static tu_status open_programs(const tu__run_graphs *graphs, const tu__run_config *config, bool plan_only,
                               tu__stepper *stepper) {
    *stepper = (tu__stepper){.feeder.columns = &config->columns,
                             .counts_correct = tu__has_output(graphs->step, result_names[CORRECT])};
    TU_TRY(open_micro_batch(graphs->step, config, true, plan_only, &stepper->full));
    if (*config->settings.lock && !plan_only) TU_TRY(check_placement(config, stepper->full.program));
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
    tu__feeder_close(&stepper->feeder);
    *stepper = (tu__stepper){0};
}

/* ---- Samples by index ---- */

static bool can_select(const tu__micro_batch *micro_batch) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    return !micro_batch->program ||
           (tu_program_multi_step(micro_batch->program, &report) == TU_OK && report.direct_copies);
}

/* A large memory-mapped file may not stay in memory; it is better prefetched by a thread. */
static bool stays_in_memory(const tu_dataset *dataset) {
    enum { MAX_BYTES = 1 << 30 };
    return (size_t)dataset->info.count[TU_TRAIN] * tu__sample_bytes(&dataset->columns) <= MAX_BYTES;
}

tu_status tu__stepper_gather_from(tu__stepper *stepper, const tu__run_config *config,
                                  const tu_dataset *dataset) {
    bool use_tables = tu__dataset_in_memory(dataset, TU_TRAIN) && stays_in_memory(dataset) &&
                      can_select(&stepper->full) && can_select(&stepper->short_batch);
    /* With batches, the processes agree before each step that all could be read. */
    if (config->group) TU_TRY(tu_process_group_broadcast(config->group, 0, &use_tables, sizeof use_tables));
    if (!use_tables) return TU_OK;
    tu__dataset_prefetch(dataset, TU_TRAIN);
    return tu__feeder_make_tables(&config->columns, dataset->data[TU_TRAIN], dataset->info.count[TU_TRAIN],
                                  &stepper->feeder);
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

static float share_of(const tu__micro_batch *micro_batch, const tu_batch *batch) {
    return (float)((double)micro_batch->samples / (double)batch->count);
}

size_t tu__micro_batch_feeds(const tu__stepper *stepper, const tu__micro_batch *micro_batch,
                             const tu_batch *batch, int64_t first, float *share,
                             tu_feed feeds[TU__MAX_FEEDS]) {
    const void *columns[TU_MAX_COLUMNS] = {0};
    const tu__feeder of_batches = {.columns = stepper->feeder.columns};
    *share = share_of(micro_batch, batch);
    tu__feed_source source = tu__feeds_of_batch(&of_batches, batch, first, share, columns);
    return tu__make_single_feeds(&micro_batch->inputs, &source, feeds);
}

/* Runs a micro-batch whose samples are selected from the data set by index. */
static tu_status run_selected(const tu__stepper *stepper, const tu__micro_batch *micro_batch, tu_state *state,
                              const tu_batch *batch, int64_t first, void *const *fetches) {
    float share = share_of(micro_batch, batch);
    tu_feed_many feeds[TU__MAX_FEEDS];
    tu__feed_source source = tu__feeds_of_batch(&stepper->feeder, batch, first, &share, NULL);
    size_t count = tu__make_feeds(&stepper->feeder, &micro_batch->inputs, &source, feeds);
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
    void *fetches[RESULTS] = {&r->loss};
    size_t count = 1;
    if (stepper->counts_correct) fetches[count++] = &r->correct;
    fetches[count++] = &r->finite;
    fetches[count++] = &r->rate;
    fetches[count++] = &r->norm;
    return (stepper->feeder.has_tables ? run_selected : run_fed)(stepper, micro_batch, state, batch, first,
                                                                 fetches);
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
    if (!micro_batch) return true;
    for (size_t i = 0; i < TU_MAX_COLUMNS; i++) /* all columns are divided among processes alike */
        if (tu_ok(micro_batch->inputs.column[i]))
            return tu__program_reads_row(micro_batch->program, micro_batch->inputs.column[i], row - first);
    return true;
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
