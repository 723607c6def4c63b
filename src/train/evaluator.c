/* Evaluation. See evaluator.h.
 *
 * If the device runs many batches per call and the data set is in memory, all full batches run in one call, with
 * samples from tables. The graph has a fixed batch size. The last batch is padded with copies of its first sample: with
 * the class -1, which counts in neither the loss nor the accuracy, and with 0 for the input "counted", by which other
 * tasks multiply what they sum. */
#include "train/evaluator.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "data/validation.h"
#include "graph/graph.h"
#include "run/program.h"
#include "train/compile_options.h"
#include "train/run_graphs.h"

enum {
    MAX_SPLIT_BYTES = 1 << 30, /* of a validation split that is copied into one array */
    MAX_RESULTS = TU__MAX_TOTALS + 2
};

/* ---- Outputs ---- */

static bool is_per_sample(const char *name) {
    return strcmp(name, "class") == 0 || strcmp(name, "probability") == 0;
}

static tu_status add_total(tu__evaluator *e, const char *name, tu_value value) {
    if (e->total_count == TU__MAX_TOTALS)
        return tu_fail(TU_INVALID, "the evaluation graph of the run has more than %d sums", TU__MAX_TOTALS);
    tu__total *t = &e->totals[e->total_count++];
    t->name = name;
    t->type = tu_value_type(value);
    t->elements = tu_shape_elements(t->type.shape);
    t->batch = tu__alloc_aligned(tu_type_bytes(t->type), "the sums of a batch");
    t->sums = tu__alloc_array((size_t)t->elements, sizeof *t->sums, "the sums of an evaluation");
    return t->batch && t->sums ? TU_OK : TU_NO_MEMORY;
}

/* Lists what the program computes: totals first. Processes that evaluate together have the classes of their own samples
 * only. */
static tu_status find_outputs(tu__evaluator *e, tu_value fetch[MAX_RESULTS], size_t *count) {
    const tu_graph *graph = e->graph;
    *count = 0;
    for (uint32_t i = 0; i < graph->result_count; i++) {
        const char *name = graph->results[i].name;
        if (is_per_sample(name)) continue;
        fetch[*count] = tu_find_output(e->graph, name);
        TU_TRY(add_total(e, name, fetch[(*count)++]));
    }
    e->returns_class = tu__has_output(graph, "class") && (!e->group || e->probability);
    if (e->returns_class) fetch[(*count)++] = tu_find_output(e->graph, "class");
    if (!e->probability) return TU_OK;
    if (!tu__has_output(graph, "probability"))
        return tu_fail(
            TU_UNSUPPORTED,
            "the evaluation graph of the run has no output 'probability': the run was started by an earlier version of tutti");
    fetch[(*count)++] = tu_find_output(e->graph, "probability");
    return TU_OK;
}

static tu_status compile(tu__evaluator *e, const tu__run_config *config) {
    tu__device_spec first;
    tu_compile_options o;
    tu_value fetch[MAX_RESULTS];
    size_t count;
    TU_TRY(find_outputs(e, fetch, &count));
    TU_TRY(tu__run_compile_options(config, e->batch, &first, &o));
    if (tu__computes_first_alone(config, &o)) {
        e->receivers = config->group;
        e->group = NULL;
        if (!tu__has_run_variables(config)) return TU_OK;
    }
    o.fetch = fetch;
    o.fetch_count = count;
    return tu_compile_with(e->graph, &e->program, &o);
}

/* ---- Opening ---- */

static tu_status allocate(tu__evaluator *e, bool probabilities) {
    size_t batch = (size_t)e->batch, classes = (size_t)(e->classes ? e->classes : 1);
    for (size_t c = 0; c < e->columns->count; c++) {
        e->padded[c] = tu__alloc_aligned(batch * e->columns->column[c].bytes, "a batch of samples");
        if (!e->padded[c]) return TU_NO_MEMORY;
    }
    if (tu_ok(e->inputs.counted)) {
        e->counted = tu__alloc_array(batch, sizeof *e->counted, "a batch of samples");
        if (!e->counted) return TU_NO_MEMORY;
    }
    e->class_of = tu__alloc_array(batch, sizeof *e->class_of, "a batch of classes");
    e->samples_of = tu__alloc_array(classes, sizeof *e->samples_of, "the samples of each class");
    if (!e->class_of || !e->samples_of) return TU_NO_MEMORY;
    if (!probabilities) return TU_OK;
    e->probability = tu__alloc_array(batch * classes, sizeof *e->probability, "a batch of probabilities");
    return e->probability ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__evaluator_open(tu_graph *graph, tu_graph *metrics, const tu__run_config *config,
                             bool probabilities, tu__evaluator *e) {
    *e = (tu__evaluator){.graph = graph,
                         .columns = &config->columns,
                         .classes = config->dataset.classes,
                         .group = config->group,
                         .label_column = TU_MAX_COLUMNS};
    const tu__column *target = tu__columns_target(e->columns);
    if (target && target->kind == TU_COLUMN_CLASS) e->label_column = (size_t)(target - e->columns->column);
    e->inputs = tu__find_inputs(graph, e->columns);
    e->batch = tu__inputs_samples(&e->inputs);
    TU_TRY(allocate(e, probabilities));
    if (metrics) TU_TRY(tu__metrics_program_open(metrics, config, &e->metrics));
    return compile(e, config);
}

static void free_tables(tu__evaluator *e) {
    tu__feeder_close(&e->feeder);
    for (size_t c = 0; c < TU_MAX_COLUMNS; c++) {
        tu__free_aligned(e->split[c]);
        e->split[c] = NULL;
    }
    for (size_t i = 0; i < e->total_count; i++) {
        tu__free_aligned(e->totals[i].batches);
        e->totals[i].batches = NULL;
    }
    tu__free(e->rows);
    tu__free(e->counted_many);
    tu__free(e->classes_of);
    e->rows = e->classes_of = NULL;
    e->counted_many = NULL;
    e->tabled = NULL;
}

void tu__evaluator_close(tu__evaluator *e) {
    tu_program_free(e->program);
    tu__metrics_program_close(&e->metrics);
    free_tables(e);
    for (size_t c = 0; c < TU_MAX_COLUMNS; c++) tu__free_aligned(e->padded[c]);
    for (size_t i = 0; i < e->total_count; i++) {
        tu__free_aligned(e->totals[i].batch);
        tu__free(e->totals[i].sums);
    }
    tu__free(e->counted);
    tu__free(e->class_of);
    tu__free(e->probability);
    tu__free(e->samples_of);
    *e = (tu__evaluator){0};
}

/* ---- Counting ---- */

/* Adds the sums of a batch, the one at `index` of an array. */
static void add_sums(const tu__total *t, const void *batches, int64_t index) {
    for (int64_t i = 0; i < t->elements; i++)
        t->sums[i] += tu__load(t->type.dtype, batches, index * t->elements + i);
}

static const double *find_total(const tu__evaluator *e, const char *name) {
    for (size_t i = 0; i < e->total_count; i++)
        if (strcmp(e->totals[i].name, name) == 0) return e->totals[i].sums;
    return NULL;
}

/* Counts predictions per pair of classes. The graph may come from a file, so its class indices are checked. */
static tu_status count_confusions(const tu__evaluator *e, int64_t count, const int32_t *labels,
                                  const int64_t *class_of, int64_t *confusion) {
    for (int64_t i = 0; i < count; i++) {
        int64_t class = class_of[i];
        if (class < 0 || class >= e->classes)
            return tu_fail(TU_CORRUPT,
                           "the evaluation graph of the run returned class %" PRId64
                           ": expected 0 to %" PRId64,
                           class, e->classes - 1);
        confusion[labels[i] * e->classes + class]++;
    }
    return TU_OK;
}

/* Stores the probabilities of the batch after those of the samples counted so far. */
static void store_probabilities(const tu__evaluator *e, int64_t count, const tu__score *score) {
    size_t row = (size_t)e->classes, first = (size_t)score->images, size = (size_t)count;
    memcpy(score->probabilities + first * row, e->probability, size * row * sizeof *e->probability);
}

static bool reads_row(void *evaluator, int64_t count, int64_t row) {
    const tu__evaluator *e = evaluator;
    (void)count; /* a shorter batch is padded */
    for (size_t c = 0; c < e->columns->count; c++)
        if (tu_ok(e->inputs.column[c])) return tu__program_reads_row(e->program, e->inputs.column[c], row);
    return true;
}

static void count_labels(tu__evaluator *e, int64_t count, const int32_t *labels) {
    for (int64_t i = 0; i < count; i++)
        if (!e->group || reads_row(e, count, i)) e->samples_of[labels[i]]++;
}

/* Adds the numbers of samples that the processes have counted, unless each has counted all of them. */
static tu_status sum_labels(const tu__evaluator *e) {
    if (!e->group || !e->program->group || !e->classes) return TU_OK;
    tu_process_info info = TU_SIZED(tu_process_info);
    TU_TRY(tu_process_group_describe(e->group, &info));
    size_t classes = (size_t)e->classes;
    int64_t *all = tu__alloc_array(info.size * classes, sizeof *all, "the samples of each class");
    if (!all) return TU_NO_MEMORY;
    tu_status status = tu_process_group_gather(e->group, e->samples_of, classes * sizeof *all, all);
    for (size_t i = 0; status == TU_OK && i < classes; i++) {
        e->samples_of[i] = 0;
        for (uint32_t r = 0; r < info.size; r++) e->samples_of[i] += all[r * classes + i];
    }
    tu__free(all);
    return status;
}

static double largest_fraction(const tu__evaluator *e, int64_t samples) {
    int64_t largest = 0;
    for (int64_t i = 0; i < e->classes; i++)
        if (e->samples_of[i] > largest) largest = e->samples_of[i];
    return samples ? (double)largest / (double)samples : 0;
}

/* ---- One batch ---- */

/* Pads a short batch to the batch size of the graph. */
static void pad_batch(const tu__evaluator *e, const tu_batch *batch) {
    size_t filled = (size_t)batch->count, size = (size_t)e->batch;
    for (size_t c = 0; c < e->columns->count; c++) {
        size_t bytes = e->columns->column[c].bytes;
        char *to = e->padded[c];
        memcpy(to, batch->columns[c], filled * bytes);
        for (size_t i = filled; i < size; i++) {
            if (c == e->label_column)
                ((int32_t *)e->padded[c])[i] = -1;
            else if (e->group) /* another process may have read the first sample */
                memset(to + i * bytes, 0, bytes);
            else
                memcpy(to + i * bytes, batch->columns[c], bytes);
        }
    }
}

static const int32_t *labels_of(const tu__evaluator *e, const tu_batch *batch) {
    return e->label_column < TU_MAX_COLUMNS ? batch->columns[e->label_column] : NULL;
}

/* Adds what a batch or a call has returned per sample, and stores its labels after those of the samples counted so far. */
static tu_status count_samples(tu__evaluator *e, int64_t count, const int32_t *labels,
                               const int64_t *class_of, tu__score *score) {
    int64_t first = score->images;
    score->images += count;
    if (!labels) return TU_OK;
    if (score->labels) memcpy(score->labels + first, labels, (size_t)count * sizeof *labels);
    count_labels(e, count, labels);
    return score->confusion ? count_confusions(e, count, labels, class_of, score->confusion) : TU_OK;
}

static tu_status run_batch(tu__evaluator *e, tu_state *state, const tu_batch *batch, tu__score *score) {
    bool full = batch->count == e->batch;
    if (!full) pad_batch(e, batch);
    for (int64_t i = 0; e->counted && i < e->batch; i++) e->counted[i] = i < batch->count;
    tu_feed feeds[TU__MAX_FEEDS];
    const tu__feed_source source = {.columns = full ? batch->columns : (const void *const *)e->padded,
                                    .ordinals = batch->ordinals,
                                    .counted = e->counted};
    size_t feed_count = tu__make_single_feeds(&e->inputs, &source, feeds), count = 0;
    void *fetches[MAX_RESULTS];
    for (size_t i = 0; i < e->total_count; i++) fetches[count++] = e->totals[i].batch;
    if (e->returns_class) fetches[count++] = e->class_of;
    if (e->probability) fetches[count++] = e->probability;
    TU_TRY(tu_run(e->program, state, feed_count, feeds, fetches));
    for (size_t i = 0; i < e->total_count; i++) add_sums(&e->totals[i], e->totals[i].batch, 0);
    if (e->probability) store_probabilities(e, batch->count, score);
    return count_samples(e, batch->count, labels_of(e, batch), e->class_of, score);
}

/* ---- Many batches per call ---- */

/* Copies the samples of a validation split into arrays, because tables of all training samples would be a second
 * copy on the device. */
static tu_status copy_split(tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split) {
    for (size_t c = 0; c < e->columns->count; c++) {
        size_t bytes = e->columns->column[c].bytes;
        const char *from = dataset->data[split->split][c];
        e->split[c] = tu__alloc_aligned((size_t)split->count * bytes, "the validation samples");
        if (!e->split[c]) return TU_NO_MEMORY;
        for (int64_t i = 0; i < split->count; i++)
            memcpy((char *)e->split[c] + (size_t)i * bytes,
                   from + (size_t)tu__image_split_index(split, i) * bytes, bytes);
    }
    return TU_OK;
}

static const void *const *data_of(const tu__evaluator *e, const tu_dataset *dataset, int64_t validation) {
    return validation ? (const void *const *)e->split : dataset->data[TU_TEST];
}

static tu_status allocate_results(tu__evaluator *e) {
    size_t batches = (size_t)e->full, samples = batches * (size_t)e->batch;
    for (size_t i = 0; i < e->total_count; i++) {
        tu__total *t = &e->totals[i];
        t->batches = tu__alloc_aligned(batches * tu_type_bytes(t->type), "the sums of an evaluation");
        if (!t->batches) return TU_NO_MEMORY;
    }
    e->rows = tu__alloc_array(samples, sizeof *e->rows, "the indices of test samples");
    e->classes_of = tu__alloc_array(samples, sizeof *e->classes_of, "the classes of test samples");
    if (e->counted) e->counted_many = tu__alloc_array(samples, sizeof *e->counted_many, "test samples");
    if (!e->rows || !e->classes_of || (e->counted && !e->counted_many)) return TU_NO_MEMORY;
    for (size_t i = 0; i < samples; i++) {
        e->rows[i] = (int64_t)i;
        if (e->counted) e->counted_many[i] = 1;
    }
    return TU_OK;
}

/* Allocates the arrays for all full batches and creates the tables. */
static tu_status make_tables(tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split,
                             int64_t validation) {
    free_tables(e);
    if (validation) TU_TRY(copy_split(e, dataset, split));
    e->full = split->count / e->batch;
    TU_TRY(allocate_results(e));
    TU_TRY(tu__feeder_make_tables(e->columns, data_of(e, dataset, validation), split->count, &e->feeder));
    e->tabled = dataset;
    e->tabled_validation = validation;
    return TU_OK;
}

static bool can_use_tables(const tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    bool fits = split->split == TU_TEST ||
                (size_t)split->count * tu__sample_bytes(e->columns) <= (size_t)MAX_SPLIT_BYTES;
    return tu__dataset_in_memory(dataset, split->split) && fits && split->count >= e->batch &&
           tu_program_multi_step(e->program, &report) == TU_OK && report.in_one_call;
}

static tu_status prepare_tables(tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split,
                                int64_t validation) {
    bool are_made = e->tabled == dataset && e->tabled_validation == validation;
    return are_made ? TU_OK : make_tables(e, dataset, split, validation);
}

static tu_status run_full_batches(tu__evaluator *e, tu_state *state, const tu_dataset *dataset,
                                  int64_t validation, tu__score *score) {
    tu_feed_many feeds[TU__MAX_FEEDS];
    const tu__feed_source source = {.rows = e->rows, .ordinals = e->rows, .counted = e->counted_many};
    size_t feed_count = tu__make_feeds(&e->feeder, &e->inputs, &source, feeds), count = 0;
    void *fetches[MAX_RESULTS];
    for (size_t i = 0; i < e->total_count; i++) fetches[count++] = e->totals[i].batches;
    if (e->returns_class) fetches[count++] = e->classes_of;
    if (e->probability) fetches[count++] = score->probabilities;
    TU_TRY(tu_run_many(e->program, state, (size_t)e->full, feed_count, feeds, fetches));
    for (int64_t k = 0; k < e->full; k++)
        for (size_t i = 0; i < e->total_count; i++) add_sums(&e->totals[i], e->totals[i].batches, k);
    const int32_t *labels =
        e->label_column < TU_MAX_COLUMNS ? data_of(e, dataset, validation)[e->label_column] : NULL;
    return count_samples(e, e->full * e->batch, labels, e->classes_of, score);
}

/* ---- Evaluation ---- */

/* A process that cannot go on must not leave the others in a collective. */
static tu_status agree(const tu__evaluator *e, tu_status status) {
    return e->group ? tu_process_group_agree(e->group, status) : status;
}

/* Evaluates the batches of the loader. */
static tu_status run_batches(tu__evaluator *e, tu_state *state, tu_loader *loader, int64_t count,
                             tu__score *score) {
    while (score->images < count) {
        tu_batch batch = TU_SIZED(tu_batch);
        TU_TRY(agree(e, tu_loader_next(loader, &batch)));
        TU_TRY(run_batch(e, state, &batch, score));
    }
    return TU_OK;
}

struct totals {
    const tu__evaluator *evaluator;
    double loss, samples;
};

static const double *find_metric_total(void *context, const char *name, int64_t elements) {
    const struct totals *t = context;
    if (strcmp(name, TU__TOTAL_LOSS) == 0) return elements == 1 ? &t->loss : NULL;
    if (strcmp(name, TU__TOTAL_SAMPLES) == 0) return elements == 1 ? &t->samples : NULL;
    for (size_t i = 0; i < t->evaluator->total_count; i++) {
        const tu__total *total = &t->evaluator->totals[i];
        if (strncmp(total->name, TU__TOTAL_PREFIX, strlen(TU__TOTAL_PREFIX)) == 0 &&
            strcmp(total->name + strlen(TU__TOTAL_PREFIX), name) == 0)
            return total->elements == elements ? total->sums : NULL;
    }
    return NULL;
}

/* Computes the score from the totals. */
static tu_status finish(const tu__evaluator *e, tu__score *score) {
    const double *loss = find_total(e, "loss"), *correct = find_total(e, "correct"),
                 *top5 = find_total(e, "top5");
    double samples = (double)score->images;
    score->loss = *loss / samples;
    score->correct = correct ? (int64_t)*correct : 0;
    score->top5 = top5 ? (int64_t)*top5 : 0;
    score->largest = largest_fraction(e, score->images);
    if (!e->metrics.program) {
        score->metrics[0] = (double)score->correct / samples;
        score->metrics[1] = (double)score->top5 / samples;
        return TU_OK;
    }
    struct totals totals = {.evaluator = e, .loss = score->loss, .samples = samples};
    return tu__metrics_program_run(&e->metrics, find_metric_total, &totals, score->metrics);
}

static void clear(tu__evaluator *e, tu__score *score) {
    *score = (tu__score){
        .confusion = score->confusion, .probabilities = score->probabilities, .labels = score->labels};
    memset(e->samples_of, 0, (size_t)e->classes * sizeof *e->samples_of);
    for (size_t i = 0; i < e->total_count; i++)
        memset(e->totals[i].sums, 0, (size_t)e->totals[i].elements * sizeof *e->totals[i].sums);
}

static tu_status evaluate(tu__evaluator *e, tu_state *state, const tu_dataset *dataset, int64_t validation,
                          tu__score *score) {
    clear(e, score);
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(dataset, &info));
    tu_split source = validation ? TU_TRAIN : TU_TEST;
    tu__image_split split = tu__image_split_of(&info, source, validation, true);
    bool use_tables = can_use_tables(e, dataset, &split);
    tu_loader *loader = NULL;
    tu_status status = use_tables ? prepare_tables(e, dataset, &split, validation) : TU_OK;
    if (status == TU_OK)
        status = tu_loader_new(dataset, &loader, .split = source, .batch = e->batch,
                               .start = use_tables ? e->full * e->batch : 0, .threads = use_tables ? -1 : 1,
                               .validation = validation, .validation_only = validation > 0,
                               .is_used = e->group ? reads_row : NULL, .context = e);
    status = agree(e, status);
    if (status == TU_OK && use_tables) status = run_full_batches(e, state, dataset, validation, score);
    if (status == TU_OK) status = run_batches(e, state, loader, split.count, score);
    tu_loader_free(loader);
    if (status == TU_OK) status = sum_labels(e);
    return status == TU_OK ? finish(e, score) : status;
}

tu_status tu__evaluator_run(tu__evaluator *e, tu_state *state, const tu_dataset *dataset, int64_t validation,
                            tu__score *score) {
    tu_status status = e->program ? evaluate(e, state, dataset, validation, score) : TU_OK;
    if (status == TU_OK) status = tu__dataset_intact(dataset);
    if (!e->receivers) return status;
    tu__score shared = *score;
    TU_TRY(tu__share_results(e->receivers, status, &shared, sizeof shared));
    shared.confusion = score->confusion;
    shared.probabilities = score->probabilities;
    shared.labels = score->labels;
    *score = shared;
    return TU_OK;
}
