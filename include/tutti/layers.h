/* Layers: operations that own variables. Each opens a scope of its own name, so that variables are called
 * conv1/weights, conv1/bias, …
 *
 *     x = tu_conv2d(x, .filters = 64, .size = 5, .act = TU_RELU, .name = "conv1");
 *     x = tu_dense(tu_flatten(x), .units = 10, .name = "logits");
 *
 * Weights can be given instead: any value of the right type, such as a variable of another layer that is to be shared.
 * Then the layer makes no variable for them, and sizes left out are those of what is given.
 *
 *     tu_value tokens = tu_batch_input(g, "tokens", TU_I32, TU_SHAPE(64));
 *     x = tu_embedding(tokens, .entries = 5000, .width = 64, .name = "words");
 *     …
 *     x = tu_dense(x, .given_weights = tu_find(g, "words/weights"), .no_bias = true);   // 5000 units
 */
#ifndef TUTTI_LAYERS_H
#define TUTTI_LAYERS_H

#include <tutti/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_dense_options {
    size_t struct_size;
    int64_t units;
    tu_activation act;
    bool no_bias;
    tu_init weights;  /* default: He for ReLU and its kin, Xavier otherwise */
    tu_init bias;     /* default: zeros */
    const char *name; /* default: "dense" */
    tu_value given_weights,
        given_bias; /* instead of variables: [units, n] and [units], of x's element type */
} tu_dense_options;
/* [..., n] -> [..., units]; weights [units, n]. */
TU_API tu_value tu_dense_with(tu_value x, const tu_dense_options *options);
#define tu_dense(x, ...) tu_dense_with(x, TU_OPTIONS(tu_dense_options, __VA_ARGS__))

typedef struct tu_conv2d_options {
    size_t struct_size;
    int64_t filters;
    int64_t size; /* of a square filter; or .height and .width */
    int64_t height, width;
    int64_t stride;   /* of both axes; 0: 1; or .strides */
    int64_t dilation; /* likewise; or .dilations */
    tu_padding padding;
    int64_t pad[4];
    int64_t groups;
    tu_activation act;
    bool no_bias;
    tu_init weights;
    tu_init bias;
    const char *name;                 /* default: "conv2d" */
    int64_t strides[2], dilations[2]; /* height, width; 0: 1 */
    tu_value given_weights,
        given_bias; /* instead of variables: shaped as below and [filters], of x's element type */
} tu_conv2d_options;
/* [n,h,w,c] -> [n,h',w',filters]; weights [filters, kh, kw, c/groups]. */
TU_API tu_value tu_conv2d_with(tu_value x, const tu_conv2d_options *options);
#define tu_conv2d(x, ...) tu_conv2d_with(x, TU_OPTIONS(tu_conv2d_options, __VA_ARGS__))

typedef struct tu_batch_norm_options {
    size_t struct_size;
    double epsilon;  /* 0: 1e-5 */
    double momentum; /* of the running statistics; left out: 0.9; TU_ZERO: 0, the latest batch's alone */
    tu_batch_scope scope;
    tu_activation act;
    const char *name; /* default: "batch_norm" */
} tu_batch_norm_options;
/* The scope of batch normalisations that are built from now on and name none: whose part of a batch that several devices
 * share (tu_compile_options.strategy) they take the statistics of. Graphs start with TU_SCOPE_GLOBAL. */
TU_API void tu_set_batch_scope(tu_graph *graph, tu_batch_scope scope);
/* Training mode: the batch's statistics, and the running ones (moving_mean, moving_variance) are updated by
 * assignments. Inference mode: the running ones. */
TU_API tu_value tu_batch_norm_with(tu_value x, const tu_batch_norm_options *options);
/* The same with the options' own text, `written`, by which a .momentum of 0 is told from one left out, and refused: it
 * would be 0.9. */
TU_API tu_value tu_batch_norm_as_written(tu_value x, const char *written,
                                         const tu_batch_norm_options *options);
#define tu_batch_norm(x, ...)                                                                                \
    tu_batch_norm_as_written(x, #__VA_ARGS__, TU_OPTIONS(tu_batch_norm_options, __VA_ARGS__))

typedef struct tu_layer_norm_options {
    size_t struct_size;
    double epsilon;   /* 0: 1e-5 */
    int64_t axes;     /* trailing axes; 0: 1 */
    const char *name; /* default: "layer_norm" */
} tu_layer_norm_options;
TU_API tu_value tu_layer_norm_with(tu_value x, const tu_layer_norm_options *options);
#define tu_layer_norm(x, ...) tu_layer_norm_with(x, TU_OPTIONS(tu_layer_norm_options, __VA_ARGS__))

typedef struct tu_embedding_options {
    size_t struct_size;
    int64_t entries, width;
    tu_dtype dtype;         /* 0 is TU_F32 */
    tu_init weights;        /* default: normal with deviation 0.02 */
    const char *name;       /* default: "embedding" */
    tu_value given_weights; /* instead of a variable: [entries, width]; .dtype is then its own */
} tu_embedding_options;
/* indices [...] -> [..., width] */
TU_API tu_value tu_embedding_with(tu_value indices, const tu_embedding_options *options);
#define tu_embedding(indices, ...) tu_embedding_with(indices, TU_OPTIONS(tu_embedding_options, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
