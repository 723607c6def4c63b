/* The benchmark workload `branches`: 16 MLPs with summed logits, distributed over the devices. */
#ifndef TU__CLI_BRANCHES_WORKLOAD_H
#define TU__CLI_BRANCHES_WORKLOAD_H

#include <tutti/network.h>
#include <tutti/run.h>

/* Builds the forward pass and the loss. `device_list` is any compiled program: only the names of its devices are
 * used. */
tu_status branches_workload_build(tu_graph *graph, const tu_program *device_list, int64_t batch,
                                  tu_network_graph *net);

#endif
