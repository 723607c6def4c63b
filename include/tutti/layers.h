/* Layers: operations with variables. Each layer opens a scope of its name, so its variables are called conv1/weights,
 * conv1/bias, …
 *
 *     x = tu_conv2d(x, .filters = 64, .size = 5, .act = TU_RELU, .name = "conv1");
 *     x = tu_dense(tu_flatten(x), .units = 10, .name = "logits");
 *
 * A layer can use given weights: any value of the right type, such as a variable of another layer. It then makes no
 * variable for them, and sizes that are left out are those of the given weights.
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
    tu_init weights;  /* default: He for ReLU-like activations, else Xavier */
    tu_init bias;     /* default: zeros */
    const char *name; /* default: "dense" */
    /* Used instead of variables: [units, n] and [units], of x's element type. */
    tu_value given_weights, given_bias;
} tu_dense_options;
/* [..., n] -> [..., units]; weights [units, n]. */
TU_API tu_value tu_dense_with(tu_value x, const tu_dense_options *options);
#define tu_dense(x, ...) tu_dense_with(x, TU_OPTIONS(tu_dense_options, __VA_ARGS__))

typedef struct tu_conv2d_options {
    size_t struct_size;
    int64_t filters;
    int64_t size; /* side of a square filter; or give .height and .width */
    int64_t height, width;
    int64_t stride;   /* of both axes; 0: 1; or give .strides */
    int64_t dilation; /* of both axes; 0: 1; or give .dilations */
    tu_padding padding;
    int64_t pad[4];
    int64_t groups;
    tu_activation act;
    bool no_bias;
    tu_init weights;
    tu_init bias;
    const char *name;                 /* default: "conv2d" */
    int64_t strides[2], dilations[2]; /* height, width; 0: 1 */
    /* Used instead of variables: [filters, kh, kw, c/groups] and [filters], of x's element type. */
    tu_value given_weights, given_bias;
} tu_conv2d_options;
/* [n,h,w,c] -> [n,h',w',filters]; weights [filters, kh, kw, c/groups]. */
TU_API tu_value tu_conv2d_with(tu_value x, const tu_conv2d_options *options);
#define tu_conv2d(x, ...) tu_conv2d_with(x, TU_OPTIONS(tu_conv2d_options, __VA_ARGS__))

typedef struct tu_batch_norm_options {
    size_t struct_size;
    double epsilon;  /* 0: 1e-5 */
    double momentum; /* of the running statistics; 0: 0.9; TU_ZERO: only the latest batch is used */
    tu_batch_scope scope;
    tu_activation act;
    const char *name; /* default: "batch_norm" */
} tu_batch_norm_options;
/* Sets the scope of batch normalisations that are built from now on without a .scope: over which samples they compute
 * statistics if several devices share a batch (tu_compile_options.strategy). Graphs start with TU_SCOPE_GLOBAL. */
TU_API void tu_set_batch_norm_scope(tu_graph *graph, tu_batch_scope scope);
/* In training mode normalises by the batch's statistics and updates the running ones (moving_mean, moving_variance)
 * with assignments. In inference mode normalises by the running statistics. */
TU_API tu_value tu_batch_norm_with(tu_value x, const tu_batch_norm_options *options);
/* The same. `written` is the source text of the options: a written `.momentum = 0`, which would mean 0.9, is an
 * error. */
TU_API tu_value tu_batch_norm_as_written(tu_value x, const char *written,
                                         const tu_batch_norm_options *options);
#define tu_batch_norm(x, ...)                                                                                \
    tu_batch_norm_as_written(x, #__VA_ARGS__, TU_OPTIONS(tu_batch_norm_options, __VA_ARGS__))

typedef struct tu_layer_norm_options {
    size_t struct_size;
    double epsilon;   /* 0: 1e-5 */
    int64_t axes;     /* number of trailing axes; 0: 1 */
    const char *name; /* default: "layer_norm" */
} tu_layer_norm_options;
TU_API tu_value tu_layer_norm_with(tu_value x, const tu_layer_norm_options *options);
#define tu_layer_norm(x, ...) tu_layer_norm_with(x, TU_OPTIONS(tu_layer_norm_options, __VA_ARGS__))

typedef struct tu_embedding_options {
    size_t struct_size;
    int64_t entries, width;
    tu_dtype dtype;         /* 0 is TU_F32 */
    tu_init weights;        /* default: normal with standard deviation 0.02 */
    const char *name;       /* default: "embedding" */
    tu_value given_weights; /* used instead of a variable: [entries, width]; .dtype is not used then */
} tu_embedding_options;
/* indices [...] -> [..., width] */
TU_API tu_value tu_embedding_with(tu_value indices, const tu_embedding_options *options);
#define tu_embedding(indices, ...) tu_embedding_with(indices, TU_OPTIONS(tu_embedding_options, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
