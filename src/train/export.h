/* Export with a transformation of the network, such as quantization, between loading it and writing the file. */
#ifndef TU__TRAIN_EXPORT_H
#define TU__TRAIN_EXPORT_H

#include <tutti/train.h>

#include "base/text.h"
#include "train/run_folder.h"

typedef struct tu__export_transform {
    /* Makes the graph of the file, with its variables, from the run's graph for prediction: input "images", outputs
     * "probability" and "logits". `text` describes what was done; the file has it under `key`. */
    tu_status (*run)(void *context, const tu__run_config *config, const tu_dataset *set,
                     const tu_graph *graph, const tu_state *state, tu_graph **new_graph, tu_state **new_state,
                     tu__text *text);
    void *context;
    const char *key;
    double min_bound; /* of outputs in all precisions: how much one rounding may change an output */
} tu__export_transform;

/* tu_export_with, with a transformation; NULL: none. */
tu_status tu__export(const char *folder, const char *path, tu_export_result *result,
                     const tu_export_options *options, const tu__export_transform *transform);

#endif
