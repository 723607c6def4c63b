/* All graphs of a run together: built when it begins, read from graphs/ of its folder ever after, so that neither the
 * model's source nor a compiler is needed again. */
#ifndef TU__TRAIN_RUN_GRAPHS_H
#define TU__TRAIN_RUN_GRAPHS_H

#include "train/run_folder.h"

typedef struct tu__run_graphs {
    tu_graph *step;
    tu_graph *step_short; /* NULL where the batches divide an epoch */
    tu_graph *apply;      /* NULL where a batch is one piece */
    tu_graph *evaluate;
    tu_graph *predict;
} tu__run_graphs;

/* Each needs tu__run_graphs_free in any case. What is loaded is checked: every input and output has the type that follows
 * from the configuration, and the step is the one that the run was begun with; TU_CORRUPT otherwise. */
tu_status tu__run_graphs_build(const tu__run_config *config, tu__run_graphs *graphs);
tu_status tu__run_graphs_load(const char *folder, const tu__run_config *config, tu__run_graphs *graphs);
void tu__run_graphs_free(tu__run_graphs *graphs);

tu_status tu__run_graphs_save(const char *folder, const tu__run_graphs *graphs);
/* One of them alone, checked likewise: "evaluate", "predict". */
tu_status tu__run_graph_load(const char *folder, const char *name, const tu__run_config *config,
                             tu_graph **graph);

#endif
