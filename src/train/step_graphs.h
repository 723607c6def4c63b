/* The graphs of a run, built once when it begins and kept in its folder.
 *
 *     step, step-short   images, labels -> loss, correct, finite, rate, gradient_norm; and every update
 *     apply              where a batch is computed in pieces: step then only sums gradients, this updates
 *     evaluate           images, labels -> loss (a sum), correct, top5, class, probability; labels below zero count nowhere
 *     predict            one image -> probability
 *
 * Inputs are "images" as the set stores them, "labels" i32, "sample_ordinal" where something is drawn, and "share" (the
 * part of the batch that a piece is) where there are pieces. */
#ifndef TU__TRAIN_STEP_GRAPHS_H
#define TU__TRAIN_STEP_GRAPHS_H

#include "train/run_folder.h"

/* `config` needs network, set, settings, steps and steps_per_epoch. */

/* Samples in a piece: the whole batch where there is one piece. */
int64_t tu__piece_size(const tu__run_config *config);
tu_status tu__build_step(const tu__run_config *config, int64_t samples, tu_graph **graph);
tu_status tu__build_apply(const tu__run_config *config, const tu_graph *step, tu_graph **graph);
tu_status tu__build_evaluation(const tu__run_config *config, int64_t samples, tu_graph **graph);
tu_status tu__build_prediction(const tu__run_config *config, tu_graph **graph);

#endif
