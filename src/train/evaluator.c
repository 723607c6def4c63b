/* Evaluation. See evaluator.h.
 *
 * If the device runs many batches per call and the data set is in memory, all full batches run in one call, with
 * images from tables. The graph has a fixed batch size. The last batch is padded with copies of its first image with
 * label -1, which is no class, so that they count in neither the loss nor the accuracy. */
#include "train/evaluator.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "data/dataset.h"
#include "data/validation.h"
#include "run/program.h"
#include "train/compile_options.h"
#include "train/stepper.h"

enum { MAX_SPLIT_BYTES = 1 << 30 }; /* of a validation split that is copied into one array */

/* Outputs of the graph. Probabilities come last, because they are optional. */
enum { LOSS, CORRECT, TOP5, CLASS, PROBABILITY, RESULTS };
static const char *const result_names[RESULTS] = {"loss", "correct", "top5", "class", "probability"};

static tu_status compile(tu__evaluator *e, const tu__run_config *config) {
    tu__device_spec first;
    tu_compile_options o;
    tu_value fetch[RESULTS];
    /* Processes that evaluate together have the classes of their own samples only. */
    size_t count = e->probability ? RESULTS : e->group ? CLASS : PROBABILITY;
    for (size_t i = 0; i < count; i++) fetch[i] = tu_find_output(e->graph, result_names[i]);
    if (e->probability && !tu_ok(fetch[PROBABILITY]))
        return tu_fail(
            TU_UNSUPPORTED,
            "the evaluation graph of the run has no output 'probability': the run was started by an earlier version of tutti");
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

tu_status tu__evaluator_open(tu_graph *graph, const tu__run_config *config, bool probabilities,
                             tu__evaluator *e) {
    *e = (tu__evaluator){.graph = graph, .classes = config->dataset.classes, .group = config->group};
    e->images = tu__find_input(e->graph, "images");
    e->labels = tu__find_input(e->graph, "labels");
    tu_type type = tu_value_type(e->images);
    e->batch = type.shape.dim[0];
    e->image_bytes = tu_type_bytes(type) / (size_t)e->batch;
    e->padded = tu__alloc_aligned(tu_type_bytes(type), "a batch of images");
    e->labels_padded = tu__alloc_array((size_t)e->batch, sizeof *e->labels_padded, "a batch of labels");
    e->class_of = tu__alloc_array((size_t)e->batch, sizeof *e->class_of, "a batch of classes");
    e->images_of = tu__alloc_array((size_t)e->classes, sizeof *e->images_of, "the images of each class");
    if (!e->padded || !e->labels_padded || !e->class_of || !e->images_of) return TU_NO_MEMORY;
    size_t numbers = (size_t)e->batch * (size_t)e->classes;
    if (probabilities)
        e->probability = tu__alloc_array(numbers, sizeof *e->probability, "a batch of probabilities");
    if (probabilities && !e->probability) return TU_NO_MEMORY;
    return compile(e, config);
}

static void free_tables(tu__evaluator *e) {
    tu_table_free(e->image_table);
    tu_table_free(e->label_table);
    void *const blocks[] = {e->rows, e->classes_of, e->corrects, e->top5s, e->losses, e->split_labels};
    tu__free_aligned(e->split_images);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tu__free(blocks[i]);
    e->tabled = NULL;
    e->image_table = e->label_table = NULL;
    e->rows = e->classes_of = e->corrects = e->top5s = NULL;
    e->losses = NULL;
    e->split_images = NULL;
    e->split_labels = NULL;
}

void tu__evaluator_close(tu__evaluator *e) {
    tu_program_free(e->program);
    tu__free_aligned(e->padded);
    tu__free(e->labels_padded);
    tu__free(e->class_of);
    tu__free(e->probability);
    tu__free(e->images_of);
    free_tables(e);
    *e = (tu__evaluator){0};
}

/* Pads a short batch to the batch size of the graph. */
static void pad_batch(const tu__evaluator *e, const tu_batch *batch) {
    for (int64_t i = 0; i < e->batch; i++) {
        unsigned char *to = e->padded + (size_t)i * e->image_bytes;
        const unsigned char *images = batch->images;
        if (i < batch->count)
            memcpy(to, images + (size_t)i * e->image_bytes, e->image_bytes);
        else if (e->group) /* another process may have read the first image */
            memset(to, 0, e->image_bytes);
        else
            memcpy(to, images, e->image_bytes);
        e->labels_padded[i] = i < batch->count ? batch->labels[i] : -1;
    }
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

/* Stores the probabilities and labels of the batch after those of the images counted so far. */
static void store_probabilities(const tu__evaluator *e, const tu_batch *batch, const tu__score *score) {
    size_t row = (size_t)e->classes, first = (size_t)score->images, count = (size_t)batch->count;
    memcpy(score->probabilities + first * row, e->probability, count * row * sizeof *e->probability);
    memcpy(score->labels + first, batch->labels, count * sizeof *score->labels);
}

static bool reads_row(void *evaluator, int64_t count, int64_t row) {
    const tu__evaluator *e = evaluator;
    (void)count; /* a shorter batch is padded */
    return tu__program_reads_row(e->program, e->images, row);
}

static void count_labels(tu__evaluator *e, int64_t count, const int32_t *labels) {
    for (int64_t i = 0; i < count; i++)
        if (!e->group || reads_row(e, count, i)) e->images_of[labels[i]]++;
}

/* Adds the numbers of images that the processes have counted, unless each has counted all of them. */
static tu_status sum_labels(const tu__evaluator *e) {
    if (!e->group || !e->program->group) return TU_OK;
    tu_process_info info = TU_SIZED(tu_process_info);
    TU_TRY(tu_process_group_describe(e->group, &info));
    size_t classes = (size_t)e->classes;
    int64_t *all = tu__alloc_array(info.size * classes, sizeof *all, "the images of each class");
    if (!all) return TU_NO_MEMORY;
    tu_status status = tu_process_group_gather(e->group, e->images_of, classes * sizeof *all, all);
    for (size_t i = 0; status == TU_OK && i < classes; i++) {
        e->images_of[i] = 0;
        for (uint32_t r = 0; r < info.size; r++) e->images_of[i] += all[r * classes + i];
    }
    tu__free(all);
    return status;
}

static double largest_fraction(const tu__evaluator *e, int64_t images) {
    int64_t largest = 0;
    for (int64_t i = 0; i < e->classes; i++)
        if (e->images_of[i] > largest) largest = e->images_of[i];
    return images ? (double)largest / (double)images : 0;
}

static tu_status run_batch(tu__evaluator *e, tu_state *state, const tu_batch *batch, double *losses,
                           tu__score *score) {
    bool full = batch->count == e->batch;
    if (!full) pad_batch(e, batch);
    const tu_feed feeds[] = {{e->images, full ? batch->images : e->padded},
                             {e->labels, full ? batch->labels : e->labels_padded}};
    float loss;
    int64_t correct, top5;
    TU_TRY(tu_run(e->program, state, 2, feeds,
                  (void *[RESULTS]){&loss, &correct, &top5, e->class_of, e->probability}));
    if (score->probabilities) store_probabilities(e, batch, score);
    *losses += loss;
    score->correct += correct;
    score->top5 += top5;
    score->images += batch->count;
    count_labels(e, batch->count, batch->labels);
    if (!score->confusion) return TU_OK;
    return count_confusions(e, batch->count, batch->labels, e->class_of, score->confusion);
}

/* ---- Many batches per call ---- */

/* Copies the images of a validation split into one array, because a table of all training images would be a second
 * copy on the device. */
static tu_status copy_split(tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split) {
    e->split_images = tu__alloc_aligned((size_t)split->count * dataset->image_bytes, "the validation images");
    e->split_labels = tu__alloc_array((size_t)split->count, sizeof *e->split_labels, "the validation labels");
    if (!e->split_images || !e->split_labels) return TU_NO_MEMORY;
    for (int64_t i = 0; i < split->count; i++) {
        size_t index = (size_t)tu__image_split_index(split, i);
        memcpy(e->split_images + (size_t)i * dataset->image_bytes,
               (const unsigned char *)dataset->images[split->split] + index * dataset->image_bytes,
               dataset->image_bytes);
        e->split_labels[i] = dataset->labels[split->split][index];
    }
    return TU_OK;
}

static const int32_t *labels_of(const tu__evaluator *e, const tu_dataset *dataset) {
    return e->split_labels ? e->split_labels : dataset->labels[TU_TEST];
}

/* Allocates the arrays for all full batches and creates the tables. */
static tu_status make_tables(tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split,
                             int64_t validation) {
    int64_t count = split->count;
    free_tables(e);
    if (validation) TU_TRY(copy_split(e, dataset, split));
    const void *images = validation ? e->split_images : dataset->images[TU_TEST];
    e->full = count / e->batch;
    size_t batches = (size_t)e->full, samples = batches * (size_t)e->batch;
    e->rows = tu__alloc_array(samples, sizeof *e->rows, "the indices of test images");
    e->classes_of = tu__alloc_array(samples, sizeof *e->classes_of, "the classes of test images");
    e->corrects = tu__alloc_array(batches, sizeof *e->corrects, "an evaluation");
    e->top5s = tu__alloc_array(batches, sizeof *e->top5s, "an evaluation");
    e->losses = tu__alloc_array(batches, sizeof *e->losses, "an evaluation");
    if (!e->rows || !e->classes_of || !e->corrects || !e->top5s || !e->losses) return TU_NO_MEMORY;
    for (size_t i = 0; i < samples; i++) e->rows[i] = (int64_t)i;
    const int32_t *labels = labels_of(e, dataset);
    TU_TRY(tu_table_new(images, dataset->image_bytes, count, &e->image_table));
    TU_TRY(tu_table_new(labels, sizeof *labels, count, &e->label_table));
    e->tabled = dataset;
    e->tabled_validation = validation;
    return TU_OK;
}

static bool can_use_tables(const tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    bool fits =
        split->split == TU_TEST || (size_t)split->count * dataset->image_bytes <= (size_t)MAX_SPLIT_BYTES;
    return dataset->images[split->split] && fits && split->count >= e->batch &&
           tu_program_multi_step(e->program, &report) == TU_OK && report.in_one_call;
}

static tu_status prepare_tables(tu__evaluator *e, const tu_dataset *dataset, const tu__image_split *split,
                                int64_t validation) {
    bool are_made = e->tabled == dataset && e->tabled_validation == validation;
    return are_made ? TU_OK : make_tables(e, dataset, split, validation);
}

static tu_status run_full_batches(tu__evaluator *e, tu_state *state, const tu_dataset *dataset,
                                  double *losses, tu__score *score) {
    const tu_feed_many feeds[] = {{.input = e->images, .table = e->image_table, .rows = e->rows},
                                  {.input = e->labels, .table = e->label_table, .rows = e->rows}};
    void *fetches[RESULTS] = {e->losses, e->corrects, e->top5s, e->classes_of, score->probabilities};
    TU_TRY(tu_run_many(e->program, state, (size_t)e->full, 2, feeds, fetches));
    for (int64_t i = 0; i < e->full; i++) {
        *losses += e->losses[i];
        score->correct += e->corrects[i];
        score->top5 += e->top5s[i];
    }
    const int32_t *labels = labels_of(e, dataset);
    score->images = e->full * e->batch;
    count_labels(e, score->images, labels);
    if (score->probabilities) memcpy(score->labels, labels, (size_t)score->images * sizeof *score->labels);
    if (!score->confusion) return TU_OK;
    return count_confusions(e, score->images, labels, e->classes_of, score->confusion);
}

/* ---- Evaluation ---- */

/* A process that cannot go on must not leave the others in a collective. */
static tu_status agree(const tu__evaluator *e, tu_status status) {
    return e->group ? tu_process_group_agree(e->group, status) : status;
}

/* Evaluates the batches of the loader. */
static tu_status run_batches(tu__evaluator *e, tu_state *state, tu_loader *loader, int64_t count,
                             double *losses, tu__score *score) {
    while (score->images < count) {
        tu_batch batch = TU_SIZED(tu_batch);
        TU_TRY(agree(e, tu_loader_next(loader, &batch)));
        TU_TRY(run_batch(e, state, &batch, losses, score));
    }
    return TU_OK;
}

static tu_status evaluate(tu__evaluator *e, tu_state *state, const tu_dataset *dataset, int64_t validation,
                          tu__score *score) {
    *score = (tu__score){
        .confusion = score->confusion, .probabilities = score->probabilities, .labels = score->labels};
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(dataset, &info));
    double losses = 0;
    tu_split source = validation ? TU_TRAIN : TU_TEST;
    tu__image_split split = tu__image_split_of(&info, source, validation, true);
    memset(e->images_of, 0, (size_t)e->classes * sizeof *e->images_of);
    bool use_tables = can_use_tables(e, dataset, &split);
    tu_loader *loader = NULL;
    tu_status status = use_tables ? prepare_tables(e, dataset, &split, validation) : TU_OK;
    if (status == TU_OK)
        status = tu_loader_new(dataset, &loader, .split = source, .batch = e->batch,
                               .start = use_tables ? e->full * e->batch : 0, .threads = use_tables ? -1 : 1,
                               .validation = validation, .validation_only = validation > 0,
                               .is_used = e->group ? reads_row : NULL, .context = e);
    status = agree(e, status);
    if (status == TU_OK && use_tables) status = run_full_batches(e, state, dataset, &losses, score);
    if (status == TU_OK) status = run_batches(e, state, loader, split.count, &losses, score);
    tu_loader_free(loader);
    if (status == TU_OK) status = sum_labels(e);
    score->loss = losses / (double)score->images;
    score->largest = largest_fraction(e, score->images);
    return status;
}

tu_status tu__evaluator_run(tu__evaluator *e, tu_state *state, const tu_dataset *dataset, int64_t validation,
                            tu__score *score) {
    tu_status status = e->program ? evaluate(e, state, dataset, validation, score) : TU_OK;
    if (!e->receivers) return status;
    tu__score shared = *score;
    TU_TRY(tu__share_results(e->receivers, status, &shared, sizeof shared));
    shared.confusion = score->confusion;
    shared.probabilities = score->probabilities;
    shared.labels = score->labels;
    *score = shared;
    return TU_OK;
}
