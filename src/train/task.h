/* Tasks inside the library: the built-in ones, finding one by its name, and what their functions get.
 *
 * A task builds parts of the graphs of a run (step_graphs.c). Classification is the only task that the rest of the
 * library knows by name: its evaluation graph returns correct and top5 counts, classes and probabilities, which runs
 * of earlier versions have too. */
#ifndef TU__TRAIN_TASK_H
#define TU__TRAIN_TASK_H

#include <tutti/task.h>

#include "train/run_folder.h"

extern const tu_task tu__task_classification, tu__task_labels, tu__task_regression, tu__task_next_token;

typedef enum tu__task_use { TU__TASK_STEP, TU__TASK_EVALUATION, TU__TASK_PREDICTION } tu__task_use;

struct tu_task_batch {
    tu_graph *graph;
    const tu__run_config *config;
    int64_t samples;
    tu__task_use use;
};

struct tu_task_totals {
    tu_graph *graph;            /* of the metrics */
    const tu_graph *evaluation; /* which computes the totals */
    tu__run_config *config;     /* gets the names and orders of the metrics */
};

/* Finds a task by its name: a built-in one, one of the program, or one of a loaded file. */
tu_status tu__task_find(const char *name, const tu_task **task);
/* Chooses the task for the columns of a data set: by the target. */
tu_status tu__task_choose(const tu__run_config *config, const tu_task **task);
/* True if the run's task is classification, with which runs of earlier versions were trained. */
bool tu__is_classification(const tu__run_config *config);

/* The functions of a task, or what stands for those that are NULL. */
int64_t tu__task_outputs(const tu_task *task, const tu_task_batch *batch);
tu_value tu__task_input(const tu_task *task, const tu_task_batch *batch);
tu_value tu__task_predict(const tu_task *task, const tu_task_batch *batch, tu_value output);
/* Builds the graph of the metrics, and lists them in the configuration. */
tu_status tu__task_build_metrics(const tu_task *task, const tu_graph *evaluation, tu__run_config *config,
                                 tu_graph **graph);

/* Declares the sum of the losses of an evaluation. */
void tu__task_sum_losses(const tu_task_batch *batch, tu_value losses);

/* Returns preprocessed pictures (step_graphs.c). */
tu_value tu__preprocessed_pictures(const tu_task_batch *batch);
/* Returns the input for the fields of a table (task_features.c). */
tu_value tu__table_features(const tu_task_batch *batch);

#endif
