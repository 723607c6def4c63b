/* Internal declarations of quantization. quantize_find.c finds the layers, calibrate.c collects ranges,
 * quantize_weights.c converts weights, and quantize.c builds the graph. */
#ifndef TU__INFER_QUANTIZER_H
#define TU__INFER_QUANTIZER_H

#include "base/arena.h"
#include "infer/quantize.h"

/* The nodes of a layer, in the order of computation; TU_NO_NODE where there is none. */
typedef struct tu__layer {
    uint32_t product, bias, add, relu;
    uint32_t last;     /* the last of these: its value is the layer's */
    uint32_t residual; /* the other operand of `add` */
} tu__layer;

enum { TU__HISTOGRAM_BINS = 4096 };

/* The values of an activation: a histogram over [-limit, limit], where limit is a power of two that grows as needed. */
typedef struct tu__histogram {
    double low, high; /* of all values; 0 is within */
    double limit;     /* 0: no value yet */
    uint64_t count;
    uint64_t bins[TU__HISTOGRAM_BINS];
} tu__histogram;

void tu__histogram_add(tu__histogram *histogram, const float *values, int64_t count);
/* Sets the range that contains the fraction `coverage` of all values, half of the others on each side, and 0. */
void tu__histogram_range(const tu__histogram *histogram, double coverage, double *low, double *high);

struct tu__quantizer {
    const tu_graph *graph;
    tu__arena arena;
    size_t layer_count;
    tu__layer *layers;
    uint32_t *layer_of;    /* per node: the layer that it belongs to; UINT32_MAX: none */
    uint32_t *only_reader; /* per node: the only reader of its value; TU_NO_NODE: none, or several */
    /* Calibration: nodes whose value (output 0) is measured, and their histograms. */
    size_t measured_count;
    uint32_t *measured;
    uint32_t *measure_of; /* per node: index in `measured`; UINT32_MAX: none */
    tu__histogram *histograms;
    uint64_t batches;
    tu_program *program; /* computes the measured values */
    tu_state *state;
    void **values;
};

/* quantize_find.c */
tu_status tu__quantizer_find(tu__quantizer *quantizer);
/* True if the node is a mean over height and width of [n,h,w,c] to [n,c]. */
bool tu__is_mean_over_pixels(const tu_graph *graph, const tu__node *node);
/* True if the node is an addition of two f32 values of its own shape, neither of which is constant. */
bool tu__is_residual_addition(const tu_graph *graph, const tu__node *node);

/* quantize_weights.c: the weights of a layer for an input and output with these scales. */
typedef struct tu__quantized_weights {
    tu_type type; /* of the weights */
    int64_t channels;
    int8_t *weights;
    double *scales; /* per output channel */
    int32_t *bias;
} tu__quantized_weights;
tu_status tu__quantize_weights(const tu_graph *graph, const tu__layer *layer, double input_scale,
                               tu__arena *arena, tu__quantized_weights *quantized);

#endif
