/* Twenty networks whose losses and gradients are compared with f64 and with PyTorch. networks.c builds them,
 * bench_numerics.c runs them, bench/compare/numerics_networks.py has the same networks in PyTorch. */
#ifndef BENCH_NUMERICS_NETWORKS_H
#define BENCH_NUMERICS_NETWORKS_H

#include <tutti/tutti.h>

enum { MAX_TENSORS = 64, TENSOR_NAME = 40 };

/* An input. Its elements are uniform with mean `mean` and standard deviation `stddev`, or integers in [0, classes). */
typedef struct tensor {
    char name[TENSOR_NAME];
    tu_value value;
    double mean, stddev;
    int64_t classes;     /* 0: floats */
    bool differentiated; /* the gradient of the loss with respect to it is compared */
} tensor;

typedef struct network {
    tu_graph *graph;
    tu_dtype dtype; /* of all tensors except integers */
    tensor tensors[MAX_TENSORS];
    int tensor_count;
} network;

typedef struct network_kind {
    const char *name;
    tu_value (*build)(network *n); /* returns the loss, a scalar */
    const char *description;
} network_kind;

enum { NETWORKS = 20 };
extern const network_kind networks[NETWORKS];

#endif
