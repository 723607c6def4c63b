/* The workload `branches`: independent networks side by side, each on a device of its own. */
#ifndef CLI_BRANCHES_H
#define CLI_BRANCHES_H

#include <tutti/model.h>
#include <tutti/run.h>

/* Builds forward and loss over the devices of `list`, a program compiled for them. */
tu_status branches_build(tu_graph *graph, const tu_program *list, int64_t batch, tu_model_graph *net);

#endif
