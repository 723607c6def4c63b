/* All graphs of a run. They are built when the run starts and loaded from graphs/ in its folder later, so that
 * neither the model's source nor a compiler is needed again. */
#ifndef TU__TRAIN_RUN_GRAPHS_H
#define TU__TRAIN_RUN_GRAPHS_H

#include "train/run_folder.h"

typedef struct tu__run_graphs {
    tu_graph *step;
    tu_graph *step_short; /* for the rest of an epoch; NULL if micro-batches divide it evenly */
    tu_graph *apply;      /* NULL without gradient accumulation */
    tu_graph *evaluate;
    tu_graph *metrics; /* NULL: the task is classification */
    tu_graph *predict;
} tu__run_graphs;

/* True if the graph has the output. tu_find_output would record an error in the graph if it has not. */
bool tu__has_output(const tu_graph *graph, const char *name);

/* Build or load the graphs. Building lists the task's metrics in the configuration. Call tu__run_graphs_free even after a failure. Loading checks that every input and output
 * has the type that the configuration implies, and that "step" has the stored digest; otherwise it fails with
 * TU_CORRUPT. */
tu_status tu__run_graphs_build(tu__run_config *config, tu__run_graphs *graphs);
tu_status tu__run_graphs_load(const char *folder, const tu__run_config *config, tu__run_graphs *graphs);
void tu__run_graphs_free(tu__run_graphs *graphs);

tu_status tu__run_graphs_save(const char *folder, const tu__run_graphs *graphs);
/* Loads one graph, "evaluate", "metrics" or "predict", with the same checks. */
tu_status tu__run_graph_load(const char *folder, const char *name, const tu__run_config *config,
                             tu_graph **graph);

#endif
