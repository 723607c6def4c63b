/* A network as commands are given it: the name of a built-in one, a C file or shared object with one, or a graph file. */
#ifndef CLI_NETWORK_H
#define CLI_NETWORK_H

#include <tutti/graph.h>

struct network_wish {
    const char *command; /* for messages: "graph" */
    const char *word;    /* what the user wrote */
    int64_t batch;       /* 0: the network's own */
    bool train; /* the training step: layers as in training, gradients, updates by SGD with momentum */
};

/* The graph is the caller's, also after a failure, when it may be NULL. */
tu_status network_get(const struct network_wish *wish, tu_graph **graph);

#endif
