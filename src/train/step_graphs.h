/* Builds the graphs of a run.
 *
 *     step, step-short   columns -> loss, correct (of classification), finite, rate, gradient_norm; and all updates
 *     apply              only with gradient accumulation: step then only sums gradients, apply updates the variables
 *     evaluate           columns -> loss (a sum); of classification correct, top5, class, probability, for which
 *                        negative labels do not count; of other tasks total/NAME, which tu_task_sum has added
 *     metrics            of other tasks than classification: totals -> metrics (metrics_graph.h)
 *     predict            columns of one sample, without targets -> probability, or prediction
 *
 * Inputs: the columns of the data set, named and typed like them, that the task uses; "sample_ordinal" if the graph
 * uses random numbers per sample; "share", the micro-batch's fraction of the batch, with gradient accumulation; and
 * "counted", 1 or 0 per sample, by which the sums of an evaluation are multiplied. */
#ifndef TU__TRAIN_STEP_GRAPHS_H
#define TU__TRAIN_STEP_GRAPHS_H

#include "train/run_folder.h"

/* `config` needs the fields network, dataset, settings, steps and steps_per_epoch. */

/* Returns the number of samples per micro-batch; without gradient accumulation that is the batch. */
int64_t tu__micro_batch_size(const tu__run_config *config);
tu_status tu__build_step(const tu__run_config *config, int64_t samples, tu_graph **graph);
tu_status tu__build_apply(const tu__run_config *config, const tu_graph *step, tu_graph **graph);
tu_status tu__build_evaluation(const tu__run_config *config, int64_t samples, tu_graph **graph);
/* Lists the metrics in the configuration. */
tu_status tu__build_metrics(tu__run_config *config, const tu_graph *evaluation, tu_graph **graph);
tu_status tu__build_prediction(const tu__run_config *config, tu_graph **graph);

#endif
