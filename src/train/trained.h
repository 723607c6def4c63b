/* A trained network, as evaluation and prediction take it from a run folder: configuration, one graph, the state of a
 * checkpoint. Nothing in the folder is changed, and training may go on there meanwhile. */
#ifndef TU__TRAIN_TRAINED_H
#define TU__TRAIN_TRAINED_H

#include <tutti/run.h>

#include "train/checkpoint.h"

typedef struct tu__trained {
    tu__arena arena; /* what the configuration's strings live in */
    tu__run_config config;
    tu_graph *graph;
    tu_state *state;
    tu__progress progress; /* at the checkpoint */
} tu__trained;

/* Loads graphs/NAME.graph and the checkpoint that the options name. tu__trained_close is needed in any case. */
tu_status tu__trained_open(const char *folder, const char *graph, const tu_trained_options *options,
                           tu__trained *trained);
void tu__trained_close(tu__trained *trained);

#endif
