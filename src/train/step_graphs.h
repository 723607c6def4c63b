/* Builds the graphs of a run.
 *
 *     step, step-short   images, labels -> loss, correct, finite, rate, gradient_norm; and all updates
 *     apply              only with gradient accumulation: step then only sums gradients, apply updates the variables
 *     evaluate           images, labels -> loss (a sum), correct, top5, class, probability; ignores negative labels
 *     predict            one image -> probability
 *
 * Inputs: "images" in the data set's type, "labels" i32, "sample_ordinal" if the graph uses random numbers per
 * sample, and "share", the micro-batch's fraction of the batch, with gradient accumulation. */
#ifndef TU__TRAIN_STEP_GRAPHS_H
#define TU__TRAIN_STEP_GRAPHS_H

#include "train/run_folder.h"

/* `config` needs the fields network, dataset, settings, steps and steps_per_epoch. */

/* Returns the number of samples per micro-batch; without gradient accumulation that is the batch. */
int64_t tu__micro_batch_size(const tu__run_config *config);
tu_status tu__build_step(const tu__run_config *config, int64_t samples, tu_graph **graph);
tu_status tu__build_apply(const tu__run_config *config, const tu_graph *step, tu_graph **graph);
tu_status tu__build_evaluation(const tu__run_config *config, int64_t samples, tu_graph **graph);
tu_status tu__build_prediction(const tu__run_config *config, tu_graph **graph);

#endif
