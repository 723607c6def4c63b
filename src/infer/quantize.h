/* Quantization: a frozen graph becomes one that computes convolutions and matrix products in int8.
 *
 *     tu__quantizer *q;
 *     tu__quantizer_new(frozen, &q);                                  // finds the layers
 *     tu__quantizer_calibrate(q, feed_count, feeds);                  // once per batch: collects the range of values
 *     tu__quantizer_build(q, TU__PERCENTILE, NULL, &quantized);
 *
 * A layer is a convolution or a matrix product with constant weights, and what the same kernel computes: bias, residual
 * addition and relu. Weights become i8, symmetric, with a scale per output channel; activations become u8, with a scale
 * and zero point from calibration. Max pooling, reshapes, means over pixels and additions between quantized layers are
 * computed in u8 too. Everything else stays in f32, with conversions at the border. The result is a frozen graph. */
#ifndef TU__INFER_QUANTIZE_H
#define TU__INFER_QUANTIZE_H

#include <tutti/run.h>

#include "base/shared.h"
#include "graph/graph.h"
#include "io/safetensors.h"

typedef struct tu__quantizer tu__quantizer;

typedef enum tu__calibration_method {
    TU__MIN_MAX,    /* the whole range of an activation */
    TU__PERCENTILE, /* the range of 99.99% of its values; the others are clamped */
} tu__calibration_method;

/* `frozen` (tu__freeze) must outlive the quantizer. Fails with TU_UNSUPPORTED if it has no layer that can be
 * quantized. */
TU__SHARED tu_status tu__quantizer_new(const tu_graph *frozen, tu__quantizer **quantizer);
TU__SHARED void tu__quantizer_free(tu__quantizer *quantizer);

/* Returns the number of layers, and the name of one: that of its convolution or product, such as "conv1/conv2d". The order
 * is that of the graph. */
TU__SHARED size_t tu__quantizer_layer_count(const tu__quantizer *quantizer);
TU__SHARED const char *tu__quantizer_layer_name(const tu__quantizer *quantizer, size_t layer);

/* Runs the frozen graph with one batch and adds its activations to the histograms. Feeds are values of the frozen
 * graph. */
TU__SHARED tu_status tu__quantizer_calibrate(tu__quantizer *quantizer, size_t feed_count,
                                             const tu_feed *feeds);

/* Builds the quantized graph. keep[layer]: leave the layer in f32; NULL: quantize all. Fails with TU_INVALID if nothing has been
 * calibrated. */
TU__SHARED tu_status tu__quantizer_build(const tu__quantizer *quantizer, tu__calibration_method method,
                                         const bool *keep, tu_graph **quantized);

/* thaw.c: makes a copy of a frozen graph in which the constants with at least `min_elements` elements are variables again,
 * and lists their values: the form of a model file. The tensors point into the frozen graph; the caller frees the list
 * with tu__free. */
TU__SHARED tu_status tu__thaw(const tu_graph *frozen, int64_t min_elements, tu_graph **graph, size_t *count,
                              tu__named_tensor **variables);

#endif
