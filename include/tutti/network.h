/* Networks: functions from images to logits, built by name.
 *
 *     tu_network_graph net = TU_SIZED(tu_network_graph);
 *     tu_network_build(g, "tutorial-cnn", &net, .batch = 128);
 *
 * The names are those of the built-in networks and of networks loaded from files (tu_network_load). Such a file
 * contains a function and one TU_NETWORK:
 *
 *     #include <tutti/tutti.h>
 *     static tu_value build(tu_value x, const tu_network_options *o) {
 *         return tu_dense(tu_flatten(x), .units = o->classes);
 *     }
 *     TU_NETWORK(.name = "mynet", .summary = "one dense layer",
 *              .defaults = TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10,
 *                                     .base = 1),
 *              .build = build);
 */
#ifndef TUTTI_NETWORK_H
#define TUTTI_NETWORK_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_network_options {
    size_t struct_size;
    int64_t batch;                   /* 0: 128 */
    int64_t height, width, channels; /* of the input; 0: the network's default */
    int64_t classes;                 /* 0: the network's default */
    int64_t base;     /* width of the first layer, others in proportion; 0: the network's default */
    tu_dtype dtype;   /* of activations and variables; 0 is TU_F32 */
    int64_t features; /* of a row; 0: the network's default */
    int64_t context;  /* tokens of a window; 0: the network's default */
    /* Values of parameters that the network declares, "depth=3,dropout=0.2"; NULL: defaults. In .build it has all of
     * them: read it with tu_network_number. */
    const char *parameters;
} tu_network_options;

/* A number that a network declares, for `tutti train --network NAME=VALUE` and as a parameter of searches. Frozen: it gets
 * no more fields. */
typedef struct tu_network_parameter {
    const char *name; /* letters, digits, - _ or . */
    double value;     /* default */
    double minimum, maximum;
    bool whole; /* an integer */
    const char *help;
} tu_network_parameter;

/* What a network takes; a network may take several. */
typedef enum tu_network_input {
    TU_TAKES_IMAGES = 1, /* floating-point [n,h,w,c] -> [n,classes] */
    TU_TAKES_ROWS = 2,   /* floating-point [n,features] -> [n,classes] */
    TU_TAKES_TOKENS = 4, /* i32 [n,context] -> [n,context,classes] */
} tu_network_input;

typedef struct tu_network_graph {
    size_t struct_size;
    tu_value images; /* input "images" [n,h,w,c], "rows" [n,features], or "tokens" i32[n,context+1] */
    tu_value
        labels; /* input "labels" i32[n]; invalid for tokens, which are their own targets, one position later */
    tu_value logits; /* result "logits" [n,classes] or [n,context,classes] */
    tu_value loss;   /* result "loss": the mean cross-entropy */
} tu_network_graph;

/* Returns the number of networks. The built-in ones come first; loaded ones are added at the end. */
TU_API size_t tu_network_count(void);
/* Gets the name and a one-line summary of network `index`. Fails with TU_NOT_FOUND from tu_network_count() on. */
TU_API tu_status tu_network(size_t index, const char **name, const char **summary);
/* Fills `defaults`, made with TU_SIZED(tu_network_options): the values that the network uses for options of zero. */
TU_API tu_status tu_network_defaults(const char *name, tu_network_options *defaults);

/* Returns the number of parameters that a network declares, and gets one. Fails with TU_NOT_FOUND from the count on. */
TU_API size_t tu_network_parameter_count(const char *name);
TU_API tu_status tu_network_get_parameter(const char *name, size_t index, tu_network_parameter *parameter);
/* Returns the value of a parameter in `settings->parameters`; NaN if it is not there. For .build, where all that the network
 * declares are there. */
TU_API double tu_network_number(const tu_network_options *settings, const char *parameter);

/* Builds the network with its inputs and its loss. */
TU_API tu_status tu_network_build_with(tu_graph *graph, const char *name, tu_network_graph *network,
                                       const tu_network_options *options);
#define tu_network_build(graph, name, network, ...)                                                          \
    tu_network_build_with(graph, name, network, TU_OPTIONS(tu_network_options, __VA_ARGS__))

/* Builds only the network: images [n,h,w,c], rows [n,features] or tokens [n,context] -> logits (tu_network_input). Batch,
 * size and type are those of the input; of the options it uses .classes and .base. */
TU_API tu_status tu_network_logits_with(tu_value images, const char *name, tu_value *logits,
                                        const tu_network_options *options);
#define tu_network_logits(images, name, logits, ...)                                                         \
    tu_network_logits_with(images, name, logits, TU_OPTIONS(tu_network_options, __VA_ARGS__))

/* Returns what the network takes: the sum of its tu_network_input; 0 if there is no such network. */
TU_API unsigned tu_network_takes(const char *name);

/* ---- User-defined networks ------------------------------------------------------------------------------------ */

typedef struct tu_network_definition {
    uint32_t abi; /* TU_ABI when the file was compiled; TU_NETWORK sets this and struct_size */
    size_t struct_size;
    const char *name, *summary;
    const tu_network_options *defaults; /* for options of zero; size, channels, classes, base required */
    /* Builds images [n,h,w,c] -> logits [n,classes]. No field of `settings` is zero. */
    tu_value (*build)(tu_value images, const tu_network_options *settings);
    unsigned input;                         /* what it takes: TU_TAKES_ROWS | …; 0: TU_TAKES_IMAGES */
    const tu_network_parameter *parameters; /* that it declares; NULL: none */
    size_t parameter_count;
} tu_network_definition;

/* Defines the network of a file for tu_network_load. */
#define TU_NETWORK(...)                                                                                      \
    TU_API extern const tu_network_definition tu_user_network;                                               \
    const tu_network_definition tu_user_network = {                                                          \
        .abi = TU_ABI, .struct_size = sizeof(tu_network_definition), __VA_ARGS__}

/* Compiles a C file with $CC (else cc), or opens a shared object (a path that ends in .so), and loads its network.
 * All functions above accept `*name` from then on. The compiler finds the headers next to the library or in
 * $TUTTI_INCLUDE. Loading a file runs its code: load only files that you trust. */
TU_API tu_status tu_network_load(const char *path, const char **name);
/* Returns true if `network` is the path of a file for tu_network_load (.c or .so) and not the name of a network. */
TU_API bool tu_network_is_file(const char *network);

/* Adds gradients of `loss` and an update of every trainable variable by gradient descent with momentum:
 * v = momentum * v + g; w = w - rate * v; and step = step + 1. train.h has more optimizers. */
TU_API tu_status tu_add_sgd(tu_value loss, double rate, double momentum);

#ifdef __cplusplus
}
#endif
#endif
