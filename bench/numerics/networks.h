/* Twenty whole networks whose losses and gradients are compared with those in f64, and with PyTorch's: networks.c builds
 * them, bench_numerics.c runs them, bench/compare/numerics.py has the same in PyTorch. */
#ifndef BENCH_NUMERICS_NETWORKS_H
#define BENCH_NUMERICS_NETWORKS_H

#include <tutti/tutti.h>

enum { MAX_TENSORS = 64, TENSOR_NAME = 40 };

/* What is fed: its numbers are drawn uniformly, around `mean` with `deviation`, or from the integers below `classes`. */
typedef struct tensor {
    char name[TENSOR_NAME];
    tu_value value;
    double mean, deviation;
    int64_t classes; /* 0: floats */
    bool wanted;     /* the loss is differentiated by it */
} tensor;

typedef struct network {
    tu_graph *graph;
    tu_dtype dtype; /* of everything but labels */
    tensor tensors[MAX_TENSORS];
    int tensor_count;
} network;

typedef struct network_kind {
    const char *name;
    tu_value (*build)(network *n); /* -> the loss, a scalar */
    const char *about;
} network_kind;

enum { NETWORKS = 20 };
extern const network_kind networks[NETWORKS];

#endif
