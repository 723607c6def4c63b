/* Training: preprocessing, learning-rate schedules and optimizers as graph operations, and complete training runs.
 *
 * The first half is for programs that build a training step themselves. All functions add operations to the graph, so
 * a step is one program. Schedules read the variable "step"; augmentation uses random numbers per sample.
 *
 *     tu_value x = tu_preprocess(bytes, .height = 24, .width = 24, .flip = true, .standardize = true);
 *     …
 *     tu_optimizer_values o = TU_SIZED(tu_optimizer_values);
 *     tu_add_optimizer(loss, &o, .name = "nesterov", .weight_decay = 5e-4,
 *                      .rate = tu_schedule(g, .kind = "one-cycle", .rate = 0.1, .steps = 4000));
 *
 * The second half trains a network on a data set and writes a run folder, as `tutti train`, `eval` and `predict` do.
 *
 *     tu_train_result result = TU_SIZED(tu_train_result);
 *     tu_train("tutorial-cnn", "cifar10", &result, .epochs = 10, .out = "runs/first");
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include <signal.h>

#include <tutti/data.h>
#include <tutti/network.h>
#include <tutti/run.h>
#include <tutti/task.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Preprocessing ------------------------------------------------------------------------------------------- */

typedef struct tu_preprocess_options {
    size_t struct_size;
    int64_t height, width,
        channels;       /* of the result; 0: those of the images. Grey is repeated to make colour */
    bool resize;        /* fit by resizing; default: crop images that are larger, resize others */
    int64_t pad;        /* training: zeros to add around the image before the random crop */
    bool flip;          /* training: flip left-right with probability 1/2 */
    double brightness;  /* training: add a number from [-b, b) to pixels, which are 0 … 1 */
    double contrast[2]; /* training: scale around each channel's mean by [low, high); zeros: none */
    int64_t cutout;     /* training: side of a square set to zero at a random position; 0: none */
    bool standardize;   /* normalise each image by its mean and standard deviation; else by: */
    double mean[TU_MAX_CHANNELS],
        deviation[TU_MAX_CHANNELS]; /* (x - mean) / deviation, the standard deviation; 0: 1 */
} tu_preprocess_options;
/* Prepares images, u8 (scaled to 0 … 1) or f32 [n,h,w,c] -> f32 [n,height,width,channels]. Uses random numbers per
 * sample in training mode. In inference mode crops the centre. */
TU_API tu_value tu_preprocess_with(tu_value images, const tu_preprocess_options *options);
#define tu_preprocess(images, ...) tu_preprocess_with(images, TU_OPTIONS(tu_preprocess_options, __VA_ARGS__))

/* ---- Schedules ------------------------------------------------------------------------------------------------ */

typedef struct tu_schedule_options {
    size_t struct_size;
    const char *kind; /* NULL, "constant"; "step", "exponential", "cosine", "one-cycle" */
    double rate;      /* peak learning rate */
    int64_t warmup;   /* steps at the start in which the learning rate grows linearly from rate / warmup */
    int64_t steps;    /* cosine, one-cycle: steps of the whole run */
    /* step, exponential: the learning rate is rate * factor^(steps since warm-up / every); "step" rounds the exponent
     * down. */
    int64_t every;
    double factor;  /* 0: 0.1; TU_ZERO: 0 */
    double end;     /* cosine, one-cycle: the last learning rate, as a fraction of the peak */
    double peak_at; /* one-cycle: fraction of the steps before the peak learning rate, above 0; 0: 0.3 */
} tu_schedule_options;
/* Returns the learning rate of the current step, an f32 scalar that depends on tu_step(graph). */
TU_API tu_value tu_schedule_with(tu_graph *graph, const tu_schedule_options *options);
#define tu_schedule(graph, ...) tu_schedule_with(graph, TU_OPTIONS(tu_schedule_options, __VA_ARGS__))

/* ---- Optimizers ----------------------------------------------------------------------------------------------- */

/* Frozen: it gets no more fields. */
typedef struct tu_optimizer_group {
    const char *pattern; /* patterns of names with commas; a star matches any characters */
    double weight_decay; /* used instead of the optimizer's */
    double rate_factor;  /* multiplies the learning rate; 0: 1; TU_ZERO: 0 */
} tu_optimizer_group;

typedef struct tu_optimizer_options {
    size_t struct_size;
    const char *name;     /* "sgd", "momentum" (NULL), "nesterov", "rmsprop", "adam", "adamw", "lars" */
    tu_value rate;        /* the learning rate, a scalar value */
    double constant_rate; /* the learning rate if `rate` is not set */
    double momentum;      /* 0: 0.9, but none for rmsprop; TU_ZERO: 0 */
    double beta1, beta2;  /* adam: 0: 0.9 and 0.999; rmsprop's decay is beta2, 0: 0.9; TU_ZERO: 0 */
    double epsilon;       /* 0: 1e-8; TU_ZERO: 0 */
    double trust;         /* lars: trust coefficient; 0: 0.001 */
    double weight_decay;  /* of variables of rank 2 and more; decoupled only for adamw */
    const tu_optimizer_group *groups; /* the first group that matches a variable decides for it */
    size_t group_count;
    double clip_norm; /* scale all gradients together down to this norm; 0: no clipping */
    double average; /* decay of an exponential moving average of the variables, named "average/…"; 0: none */
    const char *freeze; /* patterns of names: these variables are not trained */
    bool unguarded;     /* apply every step; default: skip a step whose loss or gradients are not finite */
    /* After a skipped step also skip all later ones, until the variable "optimizer/healthy" is set to true. With many
     * steps in one call the state is then the one before the first non-finite step. */
    bool stop_at_nonfinite;
    /* For f16: multiplies the loss by the variable "optimizer/loss_scale", which starts with this number, and divides
     * the gradients by it. A step that is not finite is skipped and halves it; 2000 finite steps in a row double it.
     * 0: none. */
    double loss_scale;
} tu_optimizer_options;

typedef struct tu_optimizer_values {
    size_t struct_size;
    tu_value rate;          /* f32 scalar */
    tu_value gradient_norm; /* f32 scalar: norm of all gradients together, before clipping */
    /* Bool scalar: true if the step was applied, or skipped only because the loss scale was too large (and above 1).
     * Invalid if unguarded. */
    tu_value finite;
} tu_optimizer_values;

/* Adds gradients of the loss and updates of every trainable variable, of the optimizer's variables ("optimizer/…")
 * and of "step". `values` may be NULL. */
TU_API tu_status tu_add_optimizer_with(tu_value loss, tu_optimizer_values *values,
                                       const tu_optimizer_options *options);
#define tu_add_optimizer(loss, values, ...)                                                                  \
    tu_add_optimizer_with(loss, values, TU_OPTIONS(tu_optimizer_options, __VA_ARGS__))

/* The same as two programs, for gradient accumulation over micro-batches. The first adds the gradients times `share`
 * to the variables "gradient/NAME", or nothing if they are not finite (*finite). The second is built in another
 * graph, which gets the variables of `network`; it updates them with the sums and sets the sums to zero. */
TU_API tu_status tu_add_accumulation(tu_value loss, double share, const char *freeze, tu_value *finite);
TU_API tu_status tu_add_apply_with(tu_graph *graph, const tu_graph *network, tu_optimizer_values *values,
                                   const tu_optimizer_options *options);
#define tu_add_apply(graph, network, values, ...)                                                            \
    tu_add_apply_with(graph, network, values, TU_OPTIONS(tu_optimizer_options, __VA_ARGS__))

/* ---- Training runs --------------------------------------------------------------------------------------------- */

typedef enum tu_train_event {
    TU_TRAIN_LOADING, /* the data set is loaded: `message` says what is done; step of steps (0: unknown) are done */
    TU_TRAIN_BEGUN, /* everything is compiled: `step` is the first step, `message` lists the devices: "gpu:0" */
    TU_TRAIN_STEPPED,   /* a step is done */
    TU_TRAIN_MEASURED,  /* a line was added to metrics.jsonl, about a hundred times per run */
    TU_TRAIN_EVALUATED, /* the test split was evaluated at the end of the run: see the test_ fields */
    TU_TRAIN_NOTICE,    /* `message` is a warning for the user; the run goes on */
    TU_TRAIN_TRACED,    /* the trace is written; `message` is its summary, several lines */
    TU_TRAIN_VALIDATED, /* the validation split was evaluated: see the validation_ fields */
} tu_train_event;

/* A metric of a task. Frozen: it gets no more fields. */
typedef struct tu_metric {
    char name[32];
    double value;
} tu_metric;

/* The argument of tu_train_options.on_report, filled by the library. It sets struct_size; a program that needs a later
 * field
 * checks it. */
typedef struct tu_train_report {
    size_t struct_size;
    tu_train_event event;
    const char *message;
    const char *folder;
    int64_t step, steps;
    double epoch, epochs;         /* for example 2.5 of 6 */
    double loss, accuracy;        /* of the training batches since the latest TU_TRAIN_MEASURED */
    double rate, gradient_norm;   /* learning rate and gradient norm of the latest step */
    double images_per_second;     /* since this process started to train */
    double seconds, seconds_left; /* of training, over all resumes; left: an estimate, negative: none yet */
    double test_loss, test_accuracy, test_top5;
    double validation_loss, validation_accuracy, validation_top5;
    /* In an ensemble: the number of members, and the member that reports. TU_TRAIN_STEPPED and TU_TRAIN_MEASURED then
     * report on all members: steps and images/s are sums, loss and accuracy are means. */
    int64_t members, member;
    /* On several processes: their number, and per rank the milliseconds of a step that it waits for others: median of the
     * latest steps, and worst. NULL in one process. */
    uint32_t processes;
    const double *wait_ms, *worst_wait_ms;
    int64_t slow_rank; /* for which the others wait in most steps; -1: none */
    /* The task and its metrics. TU_TRAIN_VALIDATED and TU_TRAIN_EVALUATED: values of this evaluation. Without `has_accuracy`
     * accuracy and top5 of other tasks than classification are 0. */
    const char *task;
    size_t metric_count;
    const tu_metric *metrics;
    bool has_accuracy;
    const char *samples; /* what the samples are: "images", "rows", "windows" (of text) or "samples" */
} tu_train_report;

typedef struct tu_train_result {
    size_t struct_size;
    char folder[4096];
    int64_t step, steps;   /* done, and planned */
    bool stopped;          /* by tu_train_options.stop: resume to go on */
    bool stopped_early;    /* by the setting early_stop */
    double loss, accuracy; /* of the training batches in the latest TU_TRAIN_MEASURED */
    int64_t test_step;     /* of the evaluation of the test split; -1: there was none */
    double test_loss, test_accuracy, test_top5;
    int64_t best_step; /* step with the highest validation accuracy; -1: none */
    double best_accuracy;
    double seconds; /* of training and evaluating in this process */
    double images_per_second;
    int64_t parameters;
    char digest[TU_DIGEST_TEXT]; /* SHA-256 of all variables: equal if two runs computed the same bits */
    int64_t train_images, validation_images; /* sizes of the training and validation split */
    int64_t validation_step;                 /* of the latest evaluation of the validation split; -1: none */
    double validation_loss, validation_accuracy, validation_top5;
    /* Fraction of these images in the largest class: the accuracy of always guessing that class. */
    double validation_largest_class, test_largest_class;
    uint32_t processes; /* that trained together; 0: one */
    int64_t slow_rank;  /* for which the others wait in most steps; -1: none */
    /* Milliseconds of a step that ranks wait for others: the smallest and largest median, and the worst, with the rank for
     * which it was (-1: for no single one). */
    double min_wait_ms, max_wait_ms, worst_wait_ms;
    int64_t worst_wait_rank;
    /* The steps in which the others waited for slow_rank, of so many; the first step of a process is not counted. */
    int64_t slow_steps, compared_steps;
    char task[32];
    size_t metric_count; /* of the task; the first one selects the best state: best_accuracy is its value */
    tu_metric validation_metrics[TU_MAX_METRICS], test_metrics[TU_MAX_METRICS];
    char samples[16]; /* as in tu_train_report */
    bool has_accuracy;
} tu_train_result;

/* Functions that a run calls on the training thread. All are optional. A status other than TU_OK ends the run like any
 * other failure: the message is that of tu_fail, and the state before is saved. */
typedef struct tu_train_hooks {
    size_t struct_size;
    void *context;
    /* After a step: its report. With many steps in one call, after the call, once for each. */
    tu_status (*on_step)(void *context, const tu_train_report *report);
    /* After an evaluation of the validation split or, at the end, of the test split, before the best state is saved. The state
     * may be read (tu_state_get). */
    tu_status (*on_evaluation)(void *context, const tu_train_report *report, const tu_state *state);
    /* After a checkpoint was written to `path`. */
    tu_status (*on_checkpoint)(void *context, int64_t step, const char *path);
    /* Returns the learning rate, an f32 scalar that depends on tu_step(graph), instead of --schedule. It becomes part of the
     * run's graphs, so a resumed run needs no function. */
    tu_value (*schedule)(void *context, tu_graph *graph, double rate, int64_t steps);
} tu_train_hooks;

typedef struct tu_train_options {
    size_t struct_size;
    const char *recipe; /* a named list of settings: "quick" (NULL), "tutorial", "plain" */
    const char *out;    /* the run folder to write; NULL: runs/MODEL-DATA-NUMBER */
    bool resume;        /* go on with the run in `out`, or in the folder given as model */
    const char *init; /* run folder or safetensors file with initial values of variables, by name and shape */
    const tu_dataset *set; /* a data set to use instead of `data` */
    bool offline;          /* download nothing: fail if the data set is not in the cache */
    const volatile sig_atomic_t
        *stop; /* once it is not zero: finish the step, save, return; read atomically */
    void (*on_report)(void *context, const tu_train_report *report); /* called by the training thread */
    void *context;
    const char *trace;   /* file for a trace of some steps (tu_program_trace_begin) after a warm-up */
    int64_t trace_steps; /* steps to trace; 0: 10 */
    /* One field per setting: .batch, .rate, .optimizer, …; tutti/settings.def lists and explains them. 0 (NULL) means
     * "not given": the recipe or the default decides. A negative number (TU_ZERO) means 0, no or off. */
#define TU_SETTING_COUNT int64_t
#define TU_SETTING_SIZE int64_t
#define TU_SETTING_NUMBER double
#define TU_SETTING_SWITCH int
#define TU_SETTING_FLAG int
#define TU_SETTING_TEXT const char *
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    TU_SETTING_##kind field;
#define TU_TRAIN_FIELD(type, field) type field;
#include <tutti/settings.def>
#undef TU_TRAIN_FIELD
#undef TU_SETTING
} tu_train_options;

/* Trains `model`, a built-in network or a C file (tu_network_build, tu_network_load), on `data` (tu_dataset_open), and
 * writes a run folder, which docs/training.md describes. Fails with TU_NUMERIC if a step is not finite: the message
 * names the step and the first operation that was not finite, and the folder contains the state before that step.
 * `result` may be NULL. */
TU_API tu_status tu_train_with(const char *model, const char *data, tu_train_result *result,
                               const tu_train_options *options);
#define tu_train(model, data, result, ...)                                                                   \
    tu_train_with(model, data, result, TU_OPTIONS(tu_train_options, __VA_ARGS__))

/* ---- Ensembles --------------------------------------------------------------------------------------------------- */

enum { TU_MAX_ENSEMBLE = 10000 };

typedef struct tu_ensemble_result {
    size_t struct_size;
    char folder[4096];
    int64_t member_count;
    bool stopped;   /* by tu_train_options.stop, before all members were done: resume to go on */
    double seconds; /* in this process */
    void *internal; /* used by the library */
} tu_ensemble_result;

/* Trains `members` networks independently. Member i has the seed `seed` + i and uses device i modulo the number of
 * devices; each device trains its members one after another, or with `stack` several at once as one program. With `bootstrap` every member has its own sample of the
 * training images. With `snapshots` each member goes on from the weights of the one before it, with the schedule (default:
 * cosine) from the start: snapshots of one training along a cyclic learning rate. The folder contains the run folder of member i as members/i. tu_evaluate and tu_predict accept it
 * like a run folder and average the members' probabilities. With `resume`, `members` may be 0: the number in the
 * folder. Several threads call `on_report`, one at a time. If a member fails, the others go on, and the call fails at
 * the end with a message that names it. Free the result with tu_ensemble_result_free; `result` may be NULL. */
TU_API tu_status tu_train_ensemble_with(const char *model, const char *data, int64_t members,
                                        tu_ensemble_result *result, const tu_train_options *options);
#define tu_train_ensemble(model, data, members, result, ...)                                                 \
    tu_train_ensemble_with(model, data, members, result, TU_OPTIONS(tu_train_options, __VA_ARGS__))
/* Gets the result of member `index`. A member that did not start has no digest (""). */
TU_API tu_status tu_ensemble_result_member(const tu_ensemble_result *result, int64_t index,
                                           tu_train_result *member);
TU_API void tu_ensemble_result_free(tu_ensemble_result *result);
/* Returns the number of members of the ensemble in `folder`; 0 if there is no ensemble. */
TU_API int64_t tu_ensemble_members(const char *folder);

/* The measured time of a step of several members, trained by one device as one program. Frozen: it gets no more fields. */
typedef struct tu_stack_time {
    int64_t members;
    double seconds; /* of a step of all of them */
    uint64_t bytes; /* on the device */
} tu_stack_time;

/* Measures a step of 1, 2, 4, … up to `members` members, as far as they fit the first device of the run: the table from
 * which tu_train_options.stack "auto" chooses. Stores up to `capacity` rows in `times`, their number in `*count` and the
 * chosen number of members in `*fastest`. The other arguments are those of tu_train_with. */
TU_API tu_status tu_measure_stacks_with(const char *model, const char *data, int64_t members, size_t capacity,
                                        tu_stack_time *times, size_t *count, int64_t *fastest,
                                        const tu_train_options *options);
#define tu_measure_stacks(model, data, members, capacity, times, count, fastest, ...)                        \
    tu_measure_stacks_with(model, data, members, capacity, times, count, fastest,                            \
                           TU_OPTIONS(tu_train_options, __VA_ARGS__))

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* A run that was compiled but not started, to see what memory it needs, even if that does not fit. */
typedef struct tu_train_plan {
    size_t struct_size;
    /* The program of a step that needs the most memory: that of a batch or micro-batch, or that of the update. It
     * cannot run. */
    const tu_program *program;
    int64_t batch, accumulate; /* samples and micro-batches of a step */
    const char *precision;
    const tu_dataset *set; /* the data set of the run */
    void *internal;        /* used by the library */
} tu_train_plan;

/* Plans a run with the arguments of tu_train_with. Writes no files. Free the plan with tu_train_plan_free. */
TU_API tu_status tu_plan_training_with(const char *model, const char *data, tu_train_plan *plan,
                                       const tu_train_options *options);
#define tu_plan_training(model, data, plan, ...)                                                             \
    tu_plan_training_with(model, data, plan, TU_OPTIONS(tu_train_options, __VA_ARGS__))
TU_API void tu_train_plan_free(tu_train_plan *plan);

/* Returns the number of recipes. */
TU_API size_t tu_recipe_count(void);
/* Gets the name and a one-line summary of recipe `index`. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_recipe(size_t index, const char **name, const char **summary);

/* ---- Evaluation and prediction ---------------------------------------------------------------------------------- */

typedef struct tu_trained_options {
    size_t struct_size;
    const char *checkpoint; /* "last" (NULL), "best", or a step: "1200" */
    const char *devices;    /* NULL: those of the run */
    int threads;
    const char *data; /* tu_evaluate: another set with the same image size and classes; NULL: the run's */
    const tu_dataset *set; /* tu_evaluate: a data set to use instead of `data` */
    bool offline;
    const char *strategy; /* tu_evaluate: how devices share a batch; NULL: as in training */
    /* tu_evaluate with `data`. The run's data set is read with the options of the run. */
    bool skip_bad;            /* of a folder of images: skip damaged files instead of failing */
    const char *ignore_label; /* ignore images of an array with this label: "255"; NULL: none */
    const char *
        header; /* tu_predict_table: whether the file has a header, "yes" or "no"; NULL: as the table of the run */
} tu_trained_options;

struct tu_generator;
enum { TU_TOKENIZER_NAME = 4096 };
/* Makes a generator (generate.h) of a run folder or a model file whose network takes tokens. Sets `tokenizer` to the name of
 * the tokenizer (text.h) that its texts had; "" if it is not known. Of the options, .checkpoint (of a run), .devices and
 * .threads are used. Defined in libtutti_train. */
TU_API tu_status tu_trained_generator_with(const char *path, struct tu_generator **generator,
                                           char tokenizer[TU_TOKENIZER_NAME],
                                           const tu_trained_options *options);
#define tu_trained_generator(path, generator, tokenizer, ...)                                                \
    tu_trained_generator_with(path, generator, tokenizer, TU_OPTIONS(tu_trained_options, __VA_ARGS__))

/* Score of one member of an ensemble. */
typedef struct tu_member_score {
    size_t struct_size;
    int64_t step;
    double loss, accuracy, top5;
} tu_member_score;

typedef struct tu_evaluation {
    size_t struct_size;
    int64_t step; /* step of the checkpoint */
    const char *set;
    int64_t images, classes;
    double loss, accuracy, top5;
    const char *const *class_names;
    const int64_t *confusion; /* [classes, classes]: images of the row's class predicted as the column's */
    int64_t member_count;     /* of an ensemble, whose probabilities are averaged; 0 for a run */
    void *internal;           /* used by the library */
    double largest_class; /* fraction of images in the largest class: the accuracy of always guessing it */
    int64_t skipped, ignored; /* images of the data set that were not read: see tu_dataset_info */
    /* Of an ensemble: the fraction of images for which two members predict different classes, on average over all pairs;
     * and the expected calibration error of the averaged probabilities, in 15 bins. */
    double disagreement, calibration_error;
    const char *task;
    size_t metric_count; /* of the task; classification also has f1, auc and calibration_error */
    const tu_metric *metrics;
    const char *samples; /* as in tu_train_report */
} tu_evaluation;

/* Evaluates the network of a run folder on the test split of its data set. Free the result with
 * tu_evaluation_free. */
TU_API tu_status tu_evaluate_with(const char *folder, tu_evaluation *evaluation,
                                  const tu_trained_options *options);
#define tu_evaluate(folder, evaluation, ...)                                                                 \
    tu_evaluate_with(folder, evaluation, TU_OPTIONS(tu_trained_options, __VA_ARGS__))
/* Gets the score of member `index` of an ensemble. */
TU_API tu_status tu_evaluation_member(const tu_evaluation *evaluation, int64_t index, tu_member_score *score);
TU_API void tu_evaluation_free(tu_evaluation *evaluation);
/* Writes the confusion matrix as an SVG file. */
TU_API tu_status tu_evaluation_draw(const tu_evaluation *evaluation, const char *path);
/* Writes it as the file `name` of a folder, in which no link is followed: a link with that name is replaced. */
TU_API tu_status tu_evaluation_draw_in(const tu_evaluation *evaluation, const char *folder, const char *name);

typedef struct tu_predictor tu_predictor;

/* Loads the network of a run folder, or a model file (tu_export), to predict the classes of image files and of images in
 * memory. A model file is run on the device that tu_model_load would choose, unless `devices` names another. */
TU_API tu_status tu_predictor_new_with(const char *folder, tu_predictor **predictor,
                                       const tu_trained_options *options);
#define tu_predictor_new(folder, predictor, ...)                                                             \
    tu_predictor_new_with(folder, predictor, TU_OPTIONS(tu_trained_options, __VA_ARGS__))
TU_API void tu_predictor_free(tu_predictor *predictor);
/* Returns the number of classes and gets their names. */
TU_API int64_t tu_predictor_classes(const tu_predictor *predictor, const char *const **names);
/* Computes the probability of each class, for a PNG or JPEG file of any size. */
TU_API tu_status tu_predict(tu_predictor *predictor, const char *file, float *probabilities);
/* Returns the type of an image of the run's data set, or of the model's input: u8 or f32, [height, width, channels]. */
TU_API tu_type tu_predictor_input(const tu_predictor *predictor);
/* The same for `count` images in memory, dense and one after another, each of the height, width and channels of
 * tu_predictor_input. They are neither resized nor cropped. Probabilities are [count, classes].
 *
 * dtype is TU_U8 or TU_F32. If it differs from the data set's, bytes 0 … 255 correspond to floats 0 … 1: floats are
 * rounded to the nearest byte, and a pixel outside 0 … 1 is an error.
 *
 *     tu_predictor *predictor;
 *     float pixels[28 * 28] = {0}, chances[10];
 *     tu_predictor_new("runs/mlp-mnist-1", &predictor);
 *     tu_predict_images(predictor, TU_F32, pixels, 1, chances);
 */
TU_API tu_status tu_predict_images(tu_predictor *predictor, tu_dtype dtype, const void *images, int64_t count,
                                   float *probabilities);

typedef struct tu_table_prediction {
    size_t struct_size;
    int64_t rows;
    int64_t unseen;         /* cells with a category that training never saw; they count as missing */
    char first_unseen[512]; /* the first of them: file, line, column and text; "" if there is none */
} tu_table_prediction;

/* Predicts the target of the rows of a CSV file with the network of a run folder, or a model file, and writes a CSV file
 * with a row of predictions for each: the class and the probabilities of all classes, or the numbers. The file must have the
 * columns on which the network was trained, in any order; it may have others. `result` may be NULL.
 *
 *     tu_predict_table("runs/mlp-houses-1", "new.csv", "prices.csv", NULL);
 */
TU_API tu_status tu_predict_table_with(const char *folder, const char *csv, const char *out,
                                       tu_table_prediction *result, const tu_trained_options *options);
#define tu_predict_table(folder, csv, out, result, ...)                                                      \
    tu_predict_table_with(folder, csv, out, result, TU_OPTIONS(tu_trained_options, __VA_ARGS__))

/* ---- Export ------------------------------------------------------------------------------------------------------ */

typedef struct tu_export_options {
    size_t struct_size;
    const char *checkpoint; /* "last" (NULL), "best", or a step: "1200" */
    const char *name;       /* of the model; NULL: that of the network */
    const char *licence;    /* a text to include; NULL: none */
    const char *data;      /* set with the test images from which golden samples are taken; NULL: the run's */
    const tu_dataset *set; /* a data set to use instead of `data` */
    bool offline;          /* download nothing: fail if the data set is not in the cache */
    tu_progress progress;  /* of computing golden samples: `ref` is slow */
    void *context;
} tu_export_options;

typedef struct tu_export_result {
    size_t struct_size;
    int64_t step;                /* of the checkpoint; of the first member's, for an ensemble */
    int64_t members;             /* of an ensemble; 0: a run */
    int64_t parameters;          /* elements of all variables in the file */
    int64_t golden;              /* golden samples */
    uint64_t bytes;              /* of the file */
    char digest[TU_DIGEST_TEXT]; /* SHA-256 of the file without its last tensor, which is this digest */
} tu_export_result;

/* Writes the network of a run folder as a model file, which tutti/model.h loads: graph, weights, preprocessing, labels,
 * metrics, and golden samples with the outputs that `ref` computes. An ensemble is written as one model, which averages the
 * probabilities of the members. docs/model-file.md describes the file. `result` may be NULL.
 *
 *     tu_export("runs/mlp-mnist-1", "mlp.model", NULL, .checkpoint = "best");
 */
TU_API tu_status tu_export_with(const char *folder, const char *path, tu_export_result *result,
                                const tu_export_options *options);
#define tu_export(folder, path, result, ...)                                                                 \
    tu_export_with(folder, path, result, TU_OPTIONS(tu_export_options, __VA_ARGS__))

/* ---- Quantization ------------------------------------------------------------------------------------------------ */

typedef struct tu_quantize_options {
    size_t struct_size;
    const char *checkpoint, *name, *licence, *data; /* as of tu_export */
    const tu_dataset *set;
    bool offline;
    const char *
        method; /* range of activations: "minmax", or "percentile" (NULL): without the largest and smallest 0.005% */
    const char *keep;     /* layers that stay in f32: names with stars, separated by commas; NULL: none */
    int64_t calibration;  /* training images from which ranges are taken; 0: 512 */
    int64_t images;       /* test images on which both networks are evaluated; 0: all */
    int64_t layer_images; /* test images on which each layer is evaluated; 0: 1,000; TU_NO_LAYERS: do not */
    int threads;          /* of the CPU; 0: one per core */
} tu_quantize_options;
#define TU_NO_LAYERS (-1)

typedef struct tu_quantization tu_quantization;

typedef struct tu_quantize_result {
    size_t struct_size;
    int64_t step;                /* of the checkpoint; of the first member's, for an ensemble */
    uint64_t bytes;              /* of the file */
    char digest[TU_DIGEST_TEXT]; /* as in tu_export_result */
    int64_t quantized, layers;   /* layers in int8; layers that can be */
    int64_t images, calibration; /* test images; training images for the ranges */
    double accuracy_before,
        accuracy;               /* of the f32 network and of the quantized one, on `images` test images */
    double agreement;           /* fraction of the images to which both assign the same class */
    double speed_before, speed; /* images per second, in batches of 32 */
    uint64_t weight_bytes_before, weight_bytes;
} tu_quantize_result;

typedef struct tu_quantized_layer {
    size_t struct_size;
    const char *name;
    bool kept; /* in f32 */
    double
        error; /* if this layer alone is quantized: the distance of the logits from those of f32, relative to their spread */
    double accuracy; /* then, on `layer_images` test images */
} tu_quantized_layer;

/* Writes the network of a run folder as a model file in which convolutions and dense layers compute in int8: u8 activations,
 * i8 weights with a scale per output channel. Ranges of activations come from training images. CPUs with VNNI compute int8
 * about four times as fast as f32. The result is freed with tu_quantization_free; NULL: none wanted.
 *
 *     tu_quantization *q;
 *     tu_quantize_run("runs/resnet20-cifar10-1", "resnet20-int8.model", &q, .keep = "conv1*");
 */
TU_API tu_status tu_quantize_run_with(const char *folder, const char *path, tu_quantization **result,
                                      const tu_quantize_options *options);
#define tu_quantize_run(folder, path, result, ...)                                                           \
    tu_quantize_run_with(folder, path, result, TU_OPTIONS(tu_quantize_options, __VA_ARGS__))
TU_API tu_status tu_quantization_result(const tu_quantization *quantization, tu_quantize_result *result);
/* Returns the number of layers, and describes one, the most sensitive first: with the largest error. Fails with TU_NOT_FOUND
 * from the count on. */
TU_API size_t tu_quantization_layers(const tu_quantization *quantization);
TU_API tu_status tu_quantization_layer(const tu_quantization *quantization, size_t index,
                                       tu_quantized_layer *layer);
TU_API void tu_quantization_free(tu_quantization *quantization);

#ifdef __cplusplus
}
#endif
#endif
