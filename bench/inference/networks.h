/* The networks of bench_inference, as graphs ready for inference: weights are constants, and batch normalisation is
 * folded into the convolutions. onnx.js writes the same networks for ONNX Runtime. */
#ifndef BENCH_INFERENCE_NETWORKS_H
#define BENCH_INFERENCE_NETWORKS_H

#include <tutti/tutti.h>

enum { INPUT_TENSOR = 1000 };

/* Returns element i of a tensor: a number in [-1, 1) that depends only on both. */
double bench_number(uint32_t tensor, uint32_t i);

typedef struct bench_network {
    const char *name;
    int64_t input[3]; /* height, width, channels; of one sample */
    int64_t classes;
    tu_value (*build)(tu_value images);
} bench_network;

/* Returns NULL if there is no such network. */
const bench_network *bench_network_find(const char *name);

#endif
