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
 *     tu_train("tutorial-cnn", "cifar10", .epochs = 10, .out = "runs/first");
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

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
    double mean[TU_MOST_CHANNELS], deviation[TU_MOST_CHANNELS]; /* (x - mean) / deviation; deviation 0: 1 */
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
    double factor;    /* … rounded down for "step"; 0: 0.1 */
    double end;       /* cosine, one-cycle: the last rate, as a share of the largest; 0 */
    double peak_at;   /* one-cycle: share of the steps before the peak; 0: 0.3 */
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
    double momentum;     /* 0: 0.9 */
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
} tu_optimizer_options;

typedef struct tu_optimizer_values {
    tu_value rate;          /* f32 scalar */
    tu_value gradient_norm; /* f32 scalar: of all gradients together, before clipping */
    tu_value finite;        /* bool scalar: whether the step was applied. Invalid when unguarded */
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

#ifdef __cplusplus
}
#endif
#endif
