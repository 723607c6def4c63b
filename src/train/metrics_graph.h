/* The graph of a task's metrics: its inputs are the totals of an evaluation, in f64, its outputs the metrics.
 *
 * It is stored in graphs/metrics.graph, so that a run is evaluated without the code of its task. It runs on the reference
 * device, in f64. */
#ifndef TU__TRAIN_METRICS_GRAPH_H
#define TU__TRAIN_METRICS_GRAPH_H

#include <tutti/run.h>
#include <tutti/task.h>

#include "train/run_folder.h"

/* The names of the totals that are not the task's: the mean loss, and the number of samples. */
#define TU__TOTAL_LOSS "loss"
#define TU__TOTAL_SAMPLES "samples"
/* Prefix of the outputs of an evaluation graph that tu_task_sum adds. */
#define TU__TOTAL_PREFIX "total/"

typedef struct tu__metrics_program {
    tu_graph *graph; /* owned by the caller */
    tu_program *program;
    tu_state *state;
    size_t metric_count, input_count;
    tu_value inputs[TU_MAX_METRICS * 4 + 2];
    const char *names[TU_MAX_METRICS * 4 + 2];
} tu__metrics_program;

/* Compiles the graph for the metrics that the configuration lists. Call tu__metrics_program_close even after a failure. */
tu_status tu__metrics_program_open(tu_graph *graph, const tu__run_config *config,
                                   tu__metrics_program *program);
void tu__metrics_program_close(tu__metrics_program *program);
/* Computes the metrics. find(context, name, elements) returns the sums of a total without TU__TOTAL_PREFIX, or NULL. */
tu_status tu__metrics_program_run(const tu__metrics_program *program,
                                  const double *(*find)(void *context, const char *name, int64_t elements),
                                  void *context, double metrics[TU_MAX_METRICS]);

#endif
