/* Running training steps. See stepper.h. */
#include "train/stepper.h"

#include "data/dataset.h"
#include "graph/graph.h"
#include "train/sharing.h"

tu_value tu__find_input(tu_graph *graph, const char *name) {
    const tu__node *node = tu__find_node(graph, name);
    return node && node->op->code == TU__OP_INPUT ? tu__value(graph, node->id, 0) : tu__invalid(graph);
}

/* ---- Opening ---- */

/* `samples`: as for tu__sharing_options. */
static tu_status compile(tu_graph *graph, const tu__run_config *config, int64_t samples,
                         const tu_value *fetch, size_t count, bool plan_only, tu_program **program) {
    tu__device_spec first;
    tu_compile_options o;
    TU_TRY(tu__sharing_options(&config->settings, samples, &first, &o));
    o.fetch = fetch;
    o.fetch_count = count;
    o.updates = true;
    o.plan_only = plan_only;
    return tu_compile_with(graph, program, &o);
}

/* What a piece tells, in this order; rate and norm come last, since a piece that only sums has none. */
enum { LOSS, CORRECT, FINITE, RATE, NORM, RESULTS };
static const char *const result_names[RESULTS] = {"loss", "correct", "finite", "rate", "gradient_norm"};

/* What the graph takes and gives was checked when it was built or loaded: run_graphs.c. A whole batch is shared as the
 * settings say or refused; what is left of an epoch may be too small for that. */
static tu_status open_piece(tu_graph *graph, const tu__run_config *config, bool whole, bool plan_only,
                            tu__piece *piece) {
    if (!graph) return TU_OK;
    *piece = (tu__piece){.graph = graph,
                         .images = tu__find_input(graph, "images"),
                         .labels = tu__find_input(graph, "labels"),
                         .ordinals = tu__find_input(graph, "sample_ordinal"),
                         .share = tu__find_input(graph, "share")};
    piece->samples = tu_value_shape(piece->images).dim[0];
    size_t count = tu_ok(piece->share) ? RATE : RESULTS;
    tu_value fetch[RESULTS];
    for (size_t i = 0; i < count; i++) fetch[i] = tu_find_output(graph, result_names[i]);
    int64_t samples = whole ? TU__ANY_SAMPLES : piece->samples;
    return compile(graph, config, samples, fetch, count, plan_only, &piece->program);
}

static tu_status open_apply(tu_graph *graph, const tu__run_config *config, bool plan_only,
                            tu__stepper *stepper) {
    if (!graph) return TU_OK;
    stepper->apply_graph = graph;
    if (!plan_only) TU_TRY(tu__undo_new(stepper->full.graph, &stepper->undo));
    tu_value fetch[RESULTS - FINITE];
    for (size_t i = FINITE; i < RESULTS; i++) fetch[i - FINITE] = tu_find_output(graph, result_names[i]);
    return compile(graph, config, TU__ANY_SAMPLES, fetch, RESULTS - FINITE, plan_only, &stepper->apply);
}

static tu_status open_programs(const tu__run_graphs *graphs, const tu__run_config *config, bool plan_only,
                               tu__stepper *stepper) {
    const tu_dataset_info *set = &config->set;
    *stepper = (tu__stepper){.image_bytes = (size_t)(set->height * set->width * set->channels) *
                                            tu_dtype_size(set->dtype)};
    TU_TRY(open_piece(graphs->step, config, true, plan_only, &stepper->full));
    if (*config->settings.lock && !plan_only)
        TU_TRY(tu_program_lock(stepper->full.program, config->settings.lock, false, NULL));
    TU_TRY(open_piece(graphs->step_short, config, false, plan_only, &stepper->rest));
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
    tu_program_free(stepper->rest.program);
    tu_program_free(stepper->apply);
    tu__undo_free(&stepper->undo);
    tu_table_free(stepper->images);
    tu_table_free(stepper->labels);
    *stepper = (tu__stepper){0};
}

/* ---- Images by number ---- */

static bool picks(const tu__piece *piece) {
    tu_many_report report = TU_SIZED(tu_many_report);
    return !piece->graph || (tu_program_many(piece->program, &report) == TU_OK && report.straight);
}

/* A mapped file that may not stay there, or takes long to come from a disk, is better read ahead by a thread. */
static bool stays_in_memory(const tu_dataset *set) {
    enum { MAX_BYTES = 1 << 30 };
    return (size_t)set->info.count[TU_TRAIN] * set->image_bytes <= MAX_BYTES;
}

tu_status tu__stepper_pick_from(tu__stepper *stepper, const tu_dataset *set) {
    int64_t count = set->info.count[TU_TRAIN];
    bool better =
        set->images[TU_TRAIN] && stays_in_memory(set) && picks(&stepper->full) && picks(&stepper->rest);
    if (!better) return TU_OK;
    tu__dataset_expect(set, TU_TRAIN);
    TU_TRY(tu_table_new(set->images[TU_TRAIN], set->image_bytes, count, &stepper->images));
    return tu_table_new(set->labels[TU_TRAIN], sizeof *set->labels[TU_TRAIN], count, &stepper->labels);
}

tu_status tu__stepper_state(const tu__stepper *stepper, uint64_t seed, tu_state **state) {
    TU_TRY(tu_state_new(stepper->full.graph, state, .seed = seed));
    tu_status status = stepper->apply_graph ? tu_state_extend(*state, stepper->apply_graph) : TU_OK;
    if (status != TU_OK) {
        tu_state_free(*state);
        *state = NULL;
    }
    return status;
}

/* ---- Running ---- */

size_t tu__piece_feeds(const tu__stepper *stepper, const tu__piece *piece, const tu_batch *batch,
                       int64_t first, float *share, tu_feed feeds[TU__MAX_FEEDS]) {
    size_t count = 0;
    const char *images = batch->images;
    feeds[count++] = (tu_feed){piece->images, images + (size_t)first * stepper->image_bytes};
    feeds[count++] = (tu_feed){piece->labels, batch->labels + first};
    if (tu_ok(piece->ordinals)) feeds[count++] = (tu_feed){piece->ordinals, batch->ordinals + first};
    if (tu_ok(piece->share)) {
        *share = (float)((double)piece->samples / (double)batch->count);
        feeds[count++] = (tu_feed){piece->share, share};
    }
    return count;
}

/* A piece whose images are picked from the set. */
static tu_status run_picked(const tu__stepper *stepper, const tu__piece *piece, tu_state *state,
                            const tu_batch *batch, int64_t first, void *const *fetches) {
    size_t count = 0;
    float share = (float)((double)piece->samples / (double)batch->count);
    const int64_t *rows = batch->indices + first;
    tu_feed_many feeds[TU__MAX_FEEDS];
    feeds[count++] = (tu_feed_many){.input = piece->images, .table = stepper->images, .rows = rows};
    feeds[count++] = (tu_feed_many){.input = piece->labels, .table = stepper->labels, .rows = rows};
    if (tu_ok(piece->ordinals))
        feeds[count++] = (tu_feed_many){.input = piece->ordinals, .data = batch->ordinals + first};
    if (tu_ok(piece->share)) feeds[count++] = (tu_feed_many){.input = piece->share, .data = &share};
    return tu_run_many(piece->program, state, 1, count, feeds, fetches);
}

static tu_status run_fed(const tu__stepper *stepper, const tu__piece *piece, tu_state *state,
                         const tu_batch *batch, int64_t first, void *const *fetches) {
    tu_feed feeds[TU__MAX_FEEDS];
    float share;
    size_t count = tu__piece_feeds(stepper, piece, batch, first, &share, feeds);
    return tu_run(piece->program, state, count, feeds, fetches);
}

static tu_status run_piece(const tu__stepper *stepper, const tu__piece *piece, tu_state *state,
                           const tu_batch *batch, int64_t first, tu__step_values *values) {
    float loss, rate = 0, norm = 0;
    int64_t correct;
    uint8_t finite;
    void *fetches[RESULTS] = {&loss, &correct, &finite, &rate, &norm};
    TU_TRY((stepper->images ? run_picked : run_fed)(stepper, piece, state, batch, first, fetches));
    values->loss += (double)loss * (double)piece->samples / (double)batch->count;
    values->correct += correct;
    values->rate = rate;
    values->gradient_norm = norm;
    values->finite = finite;
    if (!finite) values->bad = piece, values->bad_first = first;
    return TU_OK;
}

static const tu__piece *next_piece(const tu__stepper *stepper, int64_t left) {
    if (left >= stepper->full.samples) return &stepper->full;
    return stepper->rest.samples == left ? &stepper->rest : NULL;
}

static tu_status run_apply(const tu__stepper *stepper, tu_state *state, tu__step_values *values) {
    uint8_t finite;
    float rate, norm;
    TU_TRY(tu_run(stepper->apply, state, 0, NULL, (void *[]){&finite, &rate, &norm}));
    values->finite = finite;
    values->rate = rate;
    values->gradient_norm = norm;
    if (!finite) values->bad = &stepper->full, values->bad_first = 0;
    return TU_OK;
}

/* The pieces of a batch, one after the other, until one is not finite. */
static tu_status run_pieces(const tu__stepper *stepper, tu_state *state, const tu_batch *batch,
                            tu__step_values *values) {
    for (int64_t first = 0; first < batch->count && values->finite;) {
        const tu__piece *piece = next_piece(stepper, batch->count - first);
        if (!piece)
            return tu_fail(TU_INTERNAL, "a batch of %lld samples does not divide into the run's pieces",
                           (long long)batch->count);
        TU_TRY(run_piece(stepper, piece, state, batch, first, values));
        first += piece->samples;
    }
    return TU_OK;
}

tu_status tu__stepper_run(const tu__stepper *stepper, tu_state *state, const tu_batch *batch,
                          tu__step_values *values) {
    *values = (tu__step_values){.finite = true};
    if (!stepper->apply) return run_pieces(stepper, state, batch, values);
    TU_TRY(tu__undo_keep(&stepper->undo, state));
    TU_TRY(run_pieces(stepper, state, batch, values));
    if (values->finite) TU_TRY(run_apply(stepper, state, values));
    return values->finite ? TU_OK : tu__undo_restore(&stepper->undo, state);
}
