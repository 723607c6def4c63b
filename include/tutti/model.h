/* The built-in networks: short functions that build a graph from a few settings.
 *
 *     tu_model_graph net;
 *     tu_model_build(g, "tutorial-cnn", &net, .batch = 128);
 */
#ifndef TUTTI_MODEL_H
#define TUTTI_MODEL_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_model_options {
    size_t struct_size;
    int64_t batch;                   /* 0: 128 */
    int64_t height, width, channels; /* of the input; 0: the model's own */
    int64_t classes;                 /* 0: the model's own */
    int64_t base;   /* width of the first layer, the others in proportion; 0: the model's own */
    tu_dtype dtype; /* of activations and variables; 0 is TU_F32 */
} tu_model_options;

typedef struct tu_model_graph {
    tu_value images; /* input "images" [n,h,w,c] */
    tu_value labels; /* input "labels" i32[n] */
    tu_value logits; /* result "logits" [n,classes] */
    tu_value loss;   /* result "loss": the mean cross-entropy */
} tu_model_graph;

/* Name and one-line summary of model `index`; TU_NOT_FOUND past the last. */
TU_API tu_status tu_model(size_t index, const char **name, const char **summary);
TU_API tu_status tu_model_build_with(tu_graph *graph, const char *name, tu_model_graph *model,
                                     const tu_model_options *options);
#define tu_model_build(graph, name, model, ...)                                                              \
    tu_model_build_with(graph, name, model, TU_OPTIONS(tu_model_options, __VA_ARGS__))

/* Adds gradients of `loss` and one update of every trainable variable by gradient descent with momentum:
 * v = momentum * v + g; w = w - rate * v; and step = step + 1. */
TU_API tu_status tu_add_sgd(tu_value loss, double rate, double momentum);

#ifdef __cplusplus
}
#endif
#endif
