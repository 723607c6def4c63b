/* Tasks: what a network is to learn from a data set.
 *
 * A data set has columns (data.h), a network turns one value into another (network.h); a task connects them: it chooses
 * the network's input, defines the loss and the metrics, and says what a prediction is. Built in are
 *
 *     classification   one class of several, of pictures or rows: accuracy, top-5; tutti eval adds F1, AUC, calibration
 *     labels           several targets that are 0 or 1: exact matches, F1, accuracy of each label
 *     regression       one or several numbers: MAE, RMSE, R2
 *     next-token       the next token at every position of a window: perplexity, accuracy
 *
 * `tutti train --task NAME` chooses one; without it the target decides. A C file may define its own, beside its network:
 *
 *     #include <tutti/tutti.h>
 *     static tu_value huber(const tu_task_batch *b, tu_value output) {         // Huber's loss
 *         tu_value error = tu_abs(tu_sub(tu_squeeze_axis(output, -1), tu_task_target(b)));
 *         return tu_select(tu_less_than(error, 1), tu_scale(tu_square(error), 0.5), tu_shift(error, -0.5));
 *     }
 *     static void measure(const tu_task_batch *b, tu_value output) {
 *         tu_task_sum(b, "error", tu_abs(tu_sub(tu_squeeze_axis(output, -1), tu_task_target(b))));
 *     }
 *     static void report(const tu_task_totals *t) {
 *         tu_task_metric(t, "mae", tu_div(tu_task_total(t, "error"), tu_task_samples(t)), TU_LOWER_IS_BETTER);
 *     }
 *     TU_TASK(.name = "huber", .summary = "a number, with Huber's loss", .loss = huber, .measure = measure,
 *             .report = report);
 *
 * All these functions build graphs, once, when a run starts. The run folder stores the graphs, so that resuming and
 * evaluating need neither the C file nor a compiler. Errors stick to the graph, as everywhere (graph.h).
 */
#ifndef TUTTI_TASK_H
#define TUTTI_TASK_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What the functions of a task get ------------------------------------------------------------------------- */

/* A batch: the graph of a step, of an evaluation or of a prediction, and the columns of the data set as its inputs. */
typedef struct tu_task_batch tu_task_batch;

typedef struct tu_task_setting {
    size_t struct_size;
    int64_t samples;        /* n, of the batch */
    int64_t classes;        /* of the target, or the size of the vocabulary; 0: no classes */
    int64_t targets;        /* numbers or labels to predict per sample; 1 for a class */
    double label_smoothing; /* --label-smoothing; 0 except in a step */
} tu_task_setting;

TU_API tu_graph *tu_task_graph(const tu_task_batch *batch);
TU_API tu_status tu_task_describe(const tu_task_batch *batch, tu_task_setting *setting);
/* Returns a column [n, ...] by its name. Columns that no function asks for are no inputs of the graph. The graph of a
 * prediction has no targets. */
TU_API tu_value tu_task_column(const tu_task_batch *batch, const char *name);
/* Returns the column to be predicted: i32 [n], or f32 [n] or [n,targets]. */
TU_API tu_value tu_task_target(const tu_task_batch *batch);
/* Subtract the mean of the target's training samples and divide by their standard deviation, and the reverse: a network
 * learns numbers around 0 of size 1 best. `x` is [n] or [n,targets]. */
TU_API tu_value tu_task_standardize(const tu_task_batch *batch, tu_value x);
TU_API tu_value tu_task_unstandardize(const tu_task_batch *batch, tu_value x);
/* Returns the usual input of a network: preprocessed pictures f32 [n,h,w,c]; or the fields of a table as f32 [n,features]:
 * numbers minus their mean divided by their standard deviation, 0 for missing ones, which have an indicator 0 or 1 if the
 * training samples lack some; categories as a 1 among zeros; or the first tokens of a window, i32 [n,context]. */
TU_API tu_value tu_task_features(const tu_task_batch *batch);
/* Adds a number per sample, f32 [n], or several, [n, ...], to the totals of an evaluation under this name. */
TU_API void tu_task_sum(const tu_task_batch *batch, const char *name, tu_value numbers);

/* The totals of an evaluation, f64. */
typedef struct tu_task_totals tu_task_totals;

typedef enum tu_task_order { TU_HIGHER_IS_BETTER, TU_LOWER_IS_BETTER } tu_task_order;

TU_API tu_value tu_task_total(const tu_task_totals *totals, const char *name);
/* Return the mean loss, and the number of samples. */
TU_API tu_value tu_task_loss(const tu_task_totals *totals);
TU_API tu_value tu_task_samples(const tu_task_totals *totals);
/* Declares a metric, a scalar. The first one selects the best state of a run. At most TU_MAX_METRICS, with names of at
 * most 31 characters. */
enum { TU_MAX_METRICS = 16 };
TU_API void tu_task_metric(const tu_task_totals *totals, const char *name, tu_value metric,
                           tu_task_order order);

/* ---- Tasks ----------------------------------------------------------------------------------------------------- */

typedef struct tu_task {
    uint32_t abi; /* TU_ABI when the file was compiled; TU_TASK sets this and struct_size */
    size_t struct_size;
    const char *name, *summary;
    /* Number of outputs of the network per sample, or per token. NULL: classes, or else targets. */
    int64_t (*outputs)(const tu_task_batch *batch);
    /* The network's input. NULL: tu_task_features. */
    tu_value (*input)(const tu_task_batch *batch);
    /* The loss of each sample, f32 [n], from the output of the network. */
    tu_value (*loss)(const tu_task_batch *batch, tu_value output);
    /* Calls tu_task_sum for what the metrics need. NULL: nothing but the loss. */
    void (*measure)(const tu_task_batch *batch, tu_value output);
    /* Calls tu_task_metric. NULL: the loss is the only metric. */
    void (*report)(const tu_task_totals *totals);
    /* The prediction [n, ...] that tutti predict writes. NULL: the output of the network. */
    tu_value (*predict)(const tu_task_batch *batch, tu_value output);
} tu_task;

/* Defines the task of a C file, which tu_network_load finds. */
#define TU_TASK(...)                                                                                         \
    TU_API extern const tu_task tu_user_task;                                                                \
    const tu_task tu_user_task = {.abi = TU_ABI, .struct_size = sizeof(tu_task), __VA_ARGS__}

/* Registers a task of the program, which must outlive the library's use. A task replaces an earlier one of the same
 * name, but not a built-in one. */
TU_API tu_status tu_task_add(const tu_task *task);
/* Returns the number of tasks, and the name and summary of one. Fails with TU_NOT_FOUND from the count on. */
TU_API size_t tu_task_count(void);
TU_API tu_status tu_task_at(size_t index, const char **name, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
