/* Training: preprocessing, schedules and optimizers as parts of a graph; and whole training runs.
 *
 * The first half is for programs that build their own step. Everything is operations of the graph, so a step stays one
 * program: the schedule reads the variable "step", augmentation draws by sample.
 *
 *     tu_value x = tu_preprocess(bytes, .height = 24, .width = 24, .flip = true, .standardize = true);
 *     …
 *     tu_optimizer_values o;
 *     tu_add_optimizer(loss, &o, .name = "nesterov", .weight_decay = 5e-4,
 *                      .rate = tu_schedule(g, .kind = "one-cycle", .rate = 0.1, .steps = 4000));
 *
 * The second half trains a network on a set and keeps a run folder: what `tutti train`, `eval` and `predict` do.
 *
 *     tu_train_result result;
 *     tu_train("tutorial-cnn", "cifar10", &result, .epochs = 10, .out = "runs/first");
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include <signal.h>

#include <tutti/data.h>
#include <tutti/model.h>
#include <tutti/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Preprocessing ------------------------------------------------------------------------------------------- */

typedef struct tu_preprocess_options {
    size_t struct_size;
    int64_t height, width, channels; /* of the result; 0: as the images. Grey becomes colour by repetition */
    bool resize;        /* fit by resizing; default: by cropping where images are larger, else resizing */
    int64_t pad;        /* training: zeros around the image before the random crop */
    bool flip;          /* training: left-right, half of the time */
    double brightness;  /* training: + uniform in [-b, b), of pixels as 0 … 1 */
    double contrast[2]; /* training: a factor in [low, high) around each channel's mean; zeros: none */
    int64_t cutout;     /* training: a square of this side is zeroed at a random place; 0: none */
    bool standardize;   /* each image by its own mean and deviation, as the tutorial does; else: */
    double mean[TU_MAX_CHANNELS], deviation[TU_MAX_CHANNELS]; /* (x - mean) / deviation; deviation 0: 1 */
} tu_preprocess_options;
/* images u8 (counted as 0 … 1) or f32 [n,h,w,c] -> f32 [n,height,width,channels]. Random where the graph is in training
 * mode, each draw belonging to its sample; in inference mode the centre crop. */
TU_API tu_value tu_preprocess_with(tu_value images, const tu_preprocess_options *options);
#define tu_preprocess(images, ...) tu_preprocess_with(images, TU_OPTIONS(tu_preprocess_options, __VA_ARGS__))

/* ---- Schedules ------------------------------------------------------------------------------------------------ */

typedef struct tu_schedule_options {
    size_t struct_size;
    const char *kind; /* NULL, "constant"; "step", "exponential", "cosine", "one-cycle" */
    double rate;      /* the largest one */
    int64_t warmup;   /* steps at the beginning in which the rate grows linearly from rate / warmup */
    int64_t steps;    /* cosine, one-cycle: length of the whole run */
    int64_t every;    /* step, exponential: rate * factor^(steps since warm-up / every) … */
    double
        factor; /* … rounded down for "step"; 0: 0.1; negative (TU_ZERO): zero, the rate drops to nothing */
    double end; /* cosine, one-cycle: the last rate, as a share of the largest; 0 */
    double peak_at; /* one-cycle: share of the steps before the peak; 0: 0.3 */
} tu_schedule_options;
/* The learning rate of this step: an f32 scalar, a function of tu_step(graph). */
TU_API tu_value tu_schedule_with(tu_graph *graph, const tu_schedule_options *options);
#define tu_schedule(graph, ...) tu_schedule_with(graph, TU_OPTIONS(tu_schedule_options, __VA_ARGS__))

/* ---- Optimizers ----------------------------------------------------------------------------------------------- */

typedef struct tu_optimizer_group {
    const char *pattern; /* of names: a star stands for anything, commas separate patterns */
    double weight_decay; /* instead of the optimizer's */
    double rate_factor;  /* multiplies the rate; 0: 1 */
} tu_optimizer_group;

typedef struct tu_optimizer_options {
    size_t struct_size;
    const char *name; /* "sgd", "momentum" (NULL), "nesterov", "rmsprop", "adam", "adamw", "lars" */
    tu_value rate;    /* a scalar; leave it out to give */
    double constant_rate;
    double momentum;     /* 0: 0.9, but none for rmsprop; negative (TU_ZERO): zero */
    double beta1, beta2; /* adam: 0: 0.9, 0.999; rmsprop's decay is beta2, 0: 0.9 */
    double epsilon;      /* 0: 1e-8 */
    double trust;        /* lars: 0: 0.001 */
    double weight_decay; /* of variables of rank 2 and more; adamw: decoupled, else added to the gradient */
    const tu_optimizer_group *groups; /* the first whose pattern fits a variable decides for it */
    size_t group_count;
    double clip_norm; /* gradients are scaled down to this norm, all together; 0: not */
    double average; /* decay of a moving average of all variables of the network, under "average/"; 0: none */
    const char *freeze; /* a pattern: these variables stay as they are */
    bool unguarded;     /* default: a step whose loss or gradients are not finite changes nothing */
    /* After such a step no later one changes anything either, until "optimizer/healthy" is set to true again: for many
     * steps in one call, so that the state is the one before the first bad step. */
    bool stop_at_bad;
    /* The loss is multiplied by "optimizer/loss_scale", at first this number, and the gradients divided by it: for f16. A
     * step that is not finite halves it and is left out, 2000 good ones double it; 0: none. */
    double loss_scale;
} tu_optimizer_options;

typedef struct tu_optimizer_values {
    size_t struct_size;
    tu_value rate;          /* f32 scalar */
    tu_value gradient_norm; /* f32 scalar: of all gradients together, before clipping */
    tu_value
        finite; /* bool scalar: whether the step was good: applied, or left out because the loss scale was
                               too large (beyond 1). Invalid when unguarded */
} tu_optimizer_values;

/* Gradients of the loss, and an update of every trainable variable, of the optimizer's own (under "optimizer/"), and
 * of "step". */
TU_API tu_status tu_add_optimizer_with(tu_value loss, tu_optimizer_values *values,
                                       const tu_optimizer_options *options);
#define tu_add_optimizer(loss, values, ...)                                                                  \
    tu_add_optimizer_with(loss, values, TU_OPTIONS(tu_optimizer_options, __VA_ARGS__))

/* The same as two programs, for batches in several pieces: the first adds `share` times the gradients to the sums
 * "gradient/NAME" (and nothing when they are not finite: *finite); the second, built in a graph of its own that has the
 * variables of `network`, updates from the sums and clears them. */
TU_API tu_status tu_add_accumulation(tu_value loss, double share, const char *freeze, tu_value *finite);
TU_API tu_status tu_add_apply_with(tu_graph *graph, const tu_graph *network, tu_optimizer_values *values,
                                   const tu_optimizer_options *options);
#define tu_add_apply(graph, network, values, ...)                                                            \
    tu_add_apply_with(graph, network, values, TU_OPTIONS(tu_optimizer_options, __VA_ARGS__))

/* ---- Training runs --------------------------------------------------------------------------------------------- */

typedef enum tu_train_event {
    TU_TRAIN_LOADING, /* the set: `message` says what is done, step and steps how far it is (0: not known) */
    TU_TRAIN_BEGUN, /* everything is compiled; step is where a resumed run goes on, `message` its devices: "gpu:0" */
    TU_TRAIN_STEPPED,   /* after every step */
    TU_TRAIN_MEASURED,  /* a line was added to metrics.jsonl: about a hundred times a run */
    TU_TRAIN_EVALUATED, /* the test images were evaluated, at the end of the run: the test_ fields are new */
    TU_TRAIN_NOTICE,    /* `message` is a line for the user: something was not as hoped, the run goes on */
    TU_TRAIN_TRACED,    /* the trace asked for is written: `message` is its summary, of several lines */
    TU_TRAIN_VALIDATED, /* the validation part was evaluated: the validation_ fields are new */
} tu_train_event;

typedef struct tu_train_report {
    size_t struct_size;
    tu_train_event event;
    const char *message;
    const char *folder;
    int64_t step, steps;
    double epoch, epochs;         /* 2.5 of 6 */
    double loss, accuracy;        /* of the training batches since the latest measurement */
    double rate, gradient_norm;   /* of the latest step */
    double images_per_second;     /* since this process began to train */
    double seconds, seconds_left; /* of training, all processes together; left: a guess, negative: none yet */
    double test_loss, test_accuracy, test_top5;
    double validation_loss, validation_accuracy, validation_top5;
    /* In an ensemble of so many, who speaks. What TU_TRAIN_STEPPED and TU_TRAIN_MEASURED tell is then of all together:
     * steps and images/s are sums, loss and accuracy means. */
    int64_t members, member;
} tu_train_report;

typedef struct tu_train_result {
    size_t struct_size;
    char folder[4096];
    int64_t step, steps;   /* made, and planned */
    bool stopped;          /* by the flag: resume to go on */
    bool stopped_early;    /* by the setting early_stop */
    double loss, accuracy; /* of the training batches in the latest measurement */
    int64_t test_step;     /* when the test images were looked at: the last step; -1: they were not */
    double test_loss, test_accuracy, test_top5;
    int64_t best_step; /* with the highest validation accuracy; -1: none */
    double best_accuracy;
    double seconds; /* of training in this process, evaluations included */
    double images_per_second;
    int64_t parameters;
    char digest[TU_DIGEST_TEXT]; /* SHA-256 of all variables: runs with the same one computed the same bits */
    int64_t train_images, validation_images; /* trained on, and kept out to validate with */
    int64_t validation_step;                 /* of the latest evaluation of these; -1: there was none */
    double validation_loss, validation_accuracy, validation_top5;
    /* The share of the largest class among the images looked at: an accuracy not above it is nothing. */
    double validation_largest, test_largest;
} tu_train_result;

typedef struct tu_train_options {
    size_t struct_size;
    const char *recipe; /* a named list of settings: "quick" (NULL), "tutorial", "plain" */
    const char *out;    /* the run folder to make; NULL: runs/MODEL-DATA-NUMBER */
    bool resume;        /* go on with the run in `out`, or in the folder given as model */
    const char *init; /* a run folder or a safetensors file: variables of the same name and shape start so */
    const tu_dataset *set;             /* a set of your own, instead of the one `data` names */
    bool offline;                      /* refuse a set that would have to be fetched */
    const volatile sig_atomic_t *stop; /* once not zero: finish the step, save, return; read atomically */
    void (*watch)(void *context, const tu_train_report *report); /* called from the thread that trains */
    void *context;
    const char *trace;   /* a file: steps are traced (tu_program_trace_begin), after a few to warm up */
    int64_t trace_steps; /* how many; 0: 10 */
    /* The settings, a field each: .batch, .rate, .optimizer, …; tutti/settings.def lists and explains them. */
#define TU_SETTING_COUNT int64_t
#define TU_SETTING_SIZE int64_t
#define TU_SETTING_NUMBER double
#define TU_SETTING_SWITCH int
#define TU_SETTING_FLAG int
#define TU_SETTING_TEXT const char *
#define TU_SETTING(kind, field, option, letter, argument, standard, least, most, group, help)                \
    TU_SETTING_##kind field;
#define TU_TRAIN_FIELD(type, field) type field;
#include <tutti/settings.def>
#undef TU_TRAIN_FIELD
#undef TU_SETTING
} tu_train_options;

/* Trains `model`, a built-in network or a C file (tu_model_build, tu_model_load), on `data` (tu_dataset_open), and
 * writes the run folder: docs/training.md tells what is in it. TU_NUMERIC when a step was not finite: the message names
 * the step and the first operation at fault, and the folder holds the state before it. `result` may be NULL. */
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
    bool stopped;   /* by the flag, before all members were done: resume to go on */
    double seconds; /* in this process */
    void *internal;
} tu_ensemble_result;

/* Trains `members` networks that know nothing of each other, the simplest way to use many devices: member i has the seed
 * `seed` + i, and device i of the list, counted around; each device trains its members one after another. With `bootstrap`
 * each has its own sample of the training images. The folder holds the run folder of member i as members/i, and is used
 * like that of a run: tu_evaluate and tu_predict average the members' probabilities. To go on (`resume`) `members` may be
 * 0: as the folder has it. `watch` is called from many threads, one at a time. When a member fails the others go on; the
 * message, at the end, names it. Freed with tu_ensemble_result_free; `result` may be NULL. */
TU_API tu_status tu_train_ensemble_with(const char *model, const char *data, int64_t members,
                                        tu_ensemble_result *result, const tu_train_options *options);
#define tu_train_ensemble(model, data, members, result, ...)                                                 \
    tu_train_ensemble_with(model, data, members, result, TU_OPTIONS(tu_train_options, __VA_ARGS__))
TU_API tu_status tu_ensemble_result_member(const tu_ensemble_result *result, int64_t index,
                                           tu_train_result *member);
TU_API void tu_ensemble_result_free(tu_ensemble_result *result);
/* How many members the ensemble in `folder` has; 0: there is none. */
TU_API int64_t tu_ensemble_members(const char *folder);

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* What such a run would be, as far as it can be told without beginning it: to be asked what memory it needs, also where
 * that is more than there is. */
typedef struct tu_train_plan {
    size_t struct_size;
    /* The one of a step's programs that needs most memory: over a batch or a piece of it, or the update by the sum of all
     * pieces. It cannot be run. */
    const tu_program *program;
    int64_t batch, accumulate; /* samples of a step, and in how many pieces */
    const char *precision;
    const tu_dataset *set; /* what it would train on */
    void *internal;
} tu_train_plan;

/* Takes what tu_train_with takes; writes nothing. Freed with tu_train_plan_free. */
TU_API tu_status tu_plan_training_with(const char *model, const char *data, tu_train_plan *plan,
                                       const tu_train_options *options);
#define tu_plan_training(model, data, plan, ...)                                                             \
    tu_plan_training_with(model, data, plan, TU_OPTIONS(tu_train_options, __VA_ARGS__))
TU_API void tu_train_plan_free(tu_train_plan *plan);

/* Name and one-line summary of recipe `index`; TU_NOT_FOUND past the last. */
TU_API size_t tu_train_recipe_count(void);
TU_API tu_status tu_train_recipe(size_t index, const char **name, const char **summary);

/* ---- Using what was trained ------------------------------------------------------------------------------------- */

typedef struct tu_trained_options {
    size_t struct_size;
    const char *checkpoint; /* "last" (NULL), "best", or a step: "1200" */
    const char *devices;    /* NULL: those the run was trained on */
    int threads;
    const char *data;      /* tu_evaluate: another set of the same size and classes; NULL: the run's own */
    const tu_dataset *set; /* tu_evaluate: likewise, a set of your own */
    bool offline;
    const char *strategy; /* tu_evaluate: how several devices share a batch; NULL: as in training */
    /* tu_evaluate, of `data`, as in training: the run's own set is read as it was then. */
    bool skip_bad;            /* leave out damaged pictures of a folder */
    const char *ignore_label; /* leave out the images of this label of an array: "255"; NULL: none */
} tu_trained_options;

typedef struct tu_member_score { /* of a member of an ensemble by itself */
    size_t struct_size;
    int64_t step;
    double loss, accuracy, top5;
} tu_member_score;

typedef struct tu_evaluation {
    size_t struct_size;
    int64_t step; /* of the checkpoint */
    const char *set;
    int64_t images, classes;
    double loss, accuracy, top5;
    const char *const *class_names;
    const int64_t *confusion; /* [classes, classes]: images of class row that were taken for class column */
    int64_t
        member_count; /* of an ensemble, whose averaged probabilities the numbers above are of; 0: a run */
    void *internal;
    double largest;           /* share of the largest class among the images */
    int64_t skipped, ignored; /* left out of the set, test images or not: as in tu_dataset_info */
} tu_evaluation;

/* Runs the network of a run folder over the test images of its set. Freed with tu_evaluation_free. */
TU_API tu_status tu_evaluate_with(const char *folder, tu_evaluation *evaluation,
                                  const tu_trained_options *options);
#define tu_evaluate(folder, evaluation, ...)                                                                 \
    tu_evaluate_with(folder, evaluation, TU_OPTIONS(tu_trained_options, __VA_ARGS__))
TU_API tu_status tu_evaluation_member(const tu_evaluation *evaluation, int64_t index, tu_member_score *score);
TU_API void tu_evaluation_free(tu_evaluation *evaluation);
/* Draws the confusion matrix into an SVG file. */
TU_API tu_status tu_evaluation_draw(const tu_evaluation *evaluation, const char *path);

typedef struct tu_predictor tu_predictor;

/* The network of a run folder, ready for pictures and for images in memory. */
TU_API tu_status tu_predictor_new_with(const char *folder, tu_predictor **predictor,
                                       const tu_trained_options *options);
#define tu_predictor_new(folder, predictor, ...)                                                             \
    tu_predictor_new_with(folder, predictor, TU_OPTIONS(tu_trained_options, __VA_ARGS__))
TU_API void tu_predictor_free(tu_predictor *predictor);
TU_API int64_t tu_predictor_classes(const tu_predictor *predictor, const char *const **names);
/* The probability of each class, for a PNG or JPEG file of any size. */
TU_API tu_status tu_predict(tu_predictor *predictor, const char *file, float *probabilities);
/* The type of one image as the run's set has it: u8 or f32, [height, width, channels]. */
TU_API tu_type tu_predictor_input(const tu_predictor *predictor);
/* The same for `count` images in memory, each of the height, width and channels above, dense one after another; they are
 * neither resized nor cropped. Probabilities are [count, classes].
 *
 * dtype is TU_U8 or TU_F32. Where it is the set's own the images are what the set would hold; else bytes stand for floats of
 * 0 … 1: f32 images for a set of bytes are rounded to the nearest byte, and refused where a pixel is outside 0 … 1.
 *
 *     tu_predictor *predictor;
 *     float pixels[28 * 28] = {0}, chances[10];
 *     tu_predictor_new("runs/mlp-mnist-1", &predictor);
 *     tu_predict_images(predictor, TU_F32, pixels, 1, chances);
 */
TU_API tu_status tu_predict_images(tu_predictor *predictor, tu_dtype dtype, const void *images, int64_t count,
                                   float *probabilities);

#ifdef __cplusplus
}
#endif
#endif
