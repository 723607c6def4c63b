/* Texts about an exported model: what happens to a sample before the network, and how good the network is. */
#ifndef TU__TRAIN_EXPORT_TEXTS_H
#define TU__TRAIN_EXPORT_TEXTS_H

#include "base/text.h"
#include "train/checkpoint.h"

/* Appends a description of the inputs, and of the preprocessing in `graph`, a run's graph for prediction. */
void tu__describe_preprocessing(const tu_graph *graph, const tu__run_config *config, tu__text *text);

/* Appends a JSON object with the metrics that the checkpoint of a run, or those of an ensemble's members, contain. */
void tu__describe_metrics(size_t members, const tu__progress *progress, const tu__run_config *config,
                          tu__text *text);

#endif
