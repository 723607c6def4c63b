/* Networks: functions from images to logits, built by name.
 *
 *     tu_model_graph net = TU_SIZED(tu_model_graph);
 *     tu_model_build(g, "tutorial-cnn", &net, .batch = 128);
 *
 * The names are those of the built-in networks and of networks loaded from files (tu_model_load). Such a file
 * contains a function and one TU_MODEL:
 *
 *     #include <tutti/tutti.h>
 *     static tu_value build(tu_value x, const tu_model_options *o) {
 *         return tu_dense(tu_flatten(x), .units = o->classes);
 *     }
 *     TU_MODEL(.name = "mynet", .summary = "one dense layer",
 *              .defaults = TU_OPTIONS(tu_model_options, .height = 32, .width = 32, .channels = 3, .classes = 10,
 *                                     .base = 1),
 *              .build = build);
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
    int64_t height, width, channels; /* of the input; 0: the network's default */
    int64_t classes;                 /* 0: the network's default */
    int64_t base;   /* width of the first layer, others in proportion; 0: the network's default */
    tu_dtype dtype; /* of activations and variables; 0 is TU_F32 */
} tu_model_options;

typedef struct tu_model_graph {
    size_t struct_size;
    tu_value images; /* input "images" [n,h,w,c] */
    tu_value labels; /* input "labels" i32[n] */
    tu_value logits; /* result "logits" [n,classes] */
    tu_value loss;   /* result "loss": the mean cross-entropy */
} tu_model_graph;

/* Returns the number of networks. The built-in ones come first; loaded ones are added at the end. */
TU_API size_t tu_model_count(void);
/* Gets the name and a one-line summary of network `index`. Fails with TU_NOT_FOUND from tu_model_count() on. */
TU_API tu_status tu_model(size_t index, const char **name, const char **summary);
/* Fills `defaults`, made with TU_SIZED(tu_model_options): the values that the network uses for options of zero. */
TU_API tu_status tu_model_defaults(const char *name, tu_model_options *defaults);

/* Builds the network with its inputs and its loss. */
TU_API tu_status tu_model_build_with(tu_graph *graph, const char *name, tu_model_graph *model,
                                     const tu_model_options *options);
#define tu_model_build(graph, name, model, ...)                                                              \
    tu_model_build_with(graph, name, model, TU_OPTIONS(tu_model_options, __VA_ARGS__))

/* Builds only the network: images [n,h,w,c] of a floating-point type -> logits [n,classes]. Batch, size and type are
 * those of the images; of the options it uses .classes and .base. */
TU_API tu_status tu_model_logits_with(tu_value images, const char *name, tu_value *logits,
                                      const tu_model_options *options);
#define tu_model_logits(images, name, logits, ...)                                                           \
    tu_model_logits_with(images, name, logits, TU_OPTIONS(tu_model_options, __VA_ARGS__))

/* ---- User-defined networks ------------------------------------------------------------------------------------ */

typedef struct tu_model_definition {
    uint32_t abi; /* TU_ABI when the file was compiled; TU_MODEL sets this and struct_size */
    size_t struct_size;
    const char *name, *summary;
    const tu_model_options *defaults; /* for options of zero; size, channels, classes, base required */
    /* Builds images [n,h,w,c] -> logits [n,classes]. No field of `settings` is zero. */
    tu_value (*build)(tu_value images, const tu_model_options *settings);
} tu_model_definition;

/* Defines the network of a file for tu_model_load. */
#define TU_MODEL(...)                                                                                        \
    TU_API extern const tu_model_definition tu_user_model;                                                   \
    const tu_model_definition tu_user_model = {                                                              \
        .abi = TU_ABI, .struct_size = sizeof(tu_model_definition), __VA_ARGS__}

/* Compiles a C file with $CC (else cc), or opens a shared object (a path that ends in .so), and loads its network.
 * All functions above accept `*name` from then on. The compiler finds the headers next to the library or in
 * $TUTTI_INCLUDE. Loading a file runs its code: load only files that you trust. */
TU_API tu_status tu_model_load(const char *path, const char **name);
/* Returns true if `model` is the path of a file for tu_model_load (.c or .so) and not the name of a network. */
TU_API bool tu_model_is_file(const char *model);

/* Adds gradients of `loss` and an update of every trainable variable by gradient descent with momentum:
 * v = momentum * v + g; w = w - rate * v; and step = step + 1. train.h has more optimizers. */
TU_API tu_status tu_add_sgd(tu_value loss, double rate, double momentum);

#ifdef __cplusplus
}
#endif
#endif
