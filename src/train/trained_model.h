/* A trained network loaded from a run folder for evaluation or prediction: configuration, one graph and the state of
 * a checkpoint. Nothing in the folder is changed, and training may continue there. */
#ifndef TU__TRAIN_TRAINED_MODEL_H
#define TU__TRAIN_TRAINED_MODEL_H

#include <tutti/run.h>

#include "train/checkpoint.h"

typedef struct tu__trained_model {
    tu__arena arena; /* holds the strings of `config` */
    tu__run_config config;
    tu_graph *graph;
    tu_graph *metrics; /* with the graph "evaluate", unless the task is classification; else NULL */
    tu_state *state;
    tu__progress progress; /* progress at the checkpoint */
} tu__trained_model;

/* Loads graphs/NAME.graph and the checkpoint named in the options. Call tu__trained_model_close even after a
 * failure. */
tu_status tu__trained_model_open(const char *folder, const char *graph, const tu_trained_options *options,
                                 tu__trained_model *trained);
void tu__trained_model_close(tu__trained_model *trained);

#endif
