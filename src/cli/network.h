/* Loads the network that a command line names: a built-in one, a C file, a shared object or a graph file. */
#ifndef TU__CLI_NETWORK_H
#define TU__CLI_NETWORK_H

#include <stdbool.h>

#include <tutti/graph.h>

struct network_request {
    const char *command;      /* for messages: "graph" */
    const char *name_or_path; /* the operand of the command line */
    int64_t batch, base;      /* 0: the network's default */
    bool train; /* build the training step: training-mode layers, gradients, SGD with momentum */
};

/* Builds or loads the graph. The caller frees *graph, also after a failure; it may then be NULL. */
tu_status network_load(const struct network_request *request, tu_graph **graph);

/* True for the name of a built-in network, and of one that was loaded from a C file. */
bool network_is_known(const char *word);
/* Fails with "COMMAND: unknown network 'x': expected mlp, …, OTHERS…; did you mean 'mlp'?". `command` may be NULL.
 * `others` ends with NULL: what the command accepts besides networks. */
tu_status network_fail_unknown(const char *command, const char *word, const char *const *others);

#endif
