/* Weights of a layer as i8, symmetric, with a scale per output channel; the bias in units of the sums. */
#include <inttypes.h>
#include <math.h>

#include "base/number.h"
#include "infer/quantizer.h"

/* Where the weights of a layer are: weight i of a channel is at channel * channel_step + i * step. */
typedef struct weights {
    const float *data;
    int64_t channels, per_channel, channel_step, step;
} weights;

static weights weights_of(const tu_graph *graph, const tu__node *product) {
    const tu__node *constant = graph->nodes[product->inputs[1].node];
    const tu_shape shape = constant->outputs[0].shape;
    const bool is_by_column = product->op->code == TU__OP_MATMUL && !tu__attrs(product, matmul)->transpose_b;
    const int64_t channels = is_by_column ? shape.dim[1] : shape.dim[0];
    const int64_t per_channel = tu_shape_elements(shape) / channels;
    return (weights){constant->data, channels, per_channel, is_by_column ? 1 : per_channel,
                     is_by_column ? channels : 1};
}

static double bias_of(const tu_graph *graph, const tu__layer *layer, int64_t channel) {
    if (layer->bias == TU_NO_NODE) return 0;
    const tu__node *add = graph->nodes[layer->bias];
    const uint32_t constant = graph->nodes[add->inputs[0].node]->op->code == TU__OP_CONSTANT ? 0 : 1;
    return (double)((const float *)graph->nodes[add->inputs[constant].node]->data)[channel];
}

/* Returns the largest bias, in units of the sums, with which no sum of so many products overflows i32. */
static double largest_bias(int64_t terms) {
    return fmin(0x1p30, (double)INT32_MAX - 1 - (double)terms * UINT8_MAX * INT8_MAX);
}

/* Returns the scale of a channel: its largest weight becomes 127. It is larger if the bias would be too large. */
static double scale_of(const weights *w, double largest, double bias, double input_scale) {
    const double scale = fmax(largest / INT8_MAX, fabs(bias) / (input_scale * largest_bias(w->per_channel)));
    return scale > 0 ? scale : 1;
}

/* Sets the largest absolute weight of a channel. Fails if a number is not finite: it has no int8 value. */
static tu_status find_largest(const tu__node *product, const weights *w, int64_t channel, double bias,
                              double *largest) {
    bool is_finite = isfinite(bias);
    *largest = 0;
    for (int64_t i = 0; i < w->per_channel; i++) {
        const double weight = (double)w->data[channel * w->channel_step + i * w->step];
        is_finite = is_finite && isfinite(weight);
        *largest = fmax(*largest, fabs(weight));
    }
    if (is_finite) return TU_OK;
    return tu_fail(TU_NUMERIC,
                   "layer '%s' cannot be quantized: a weight or the bias of channel %" PRId64
                   " is not finite: choose another checkpoint",
                   product->name, channel);
}

/* The result of a product is [k, channels], and of a convolution [channels, ...], whatever the order of the f32
 * weights. */
static int64_t position_of(const tu__node *product, const weights *w, int64_t channel, int64_t i) {
    return product->op->code == TU__OP_MATMUL ? i * w->channels + channel : channel * w->per_channel + i;
}

tu_status tu__quantize_weights(const tu_graph *graph, const tu__layer *layer, double input_scale,
                               tu__arena *arena, tu__quantized_weights *q) {
    const tu__node *product = graph->nodes[layer->product];
    const weights w = weights_of(graph, product);
    *q = (tu__quantized_weights){.channels = w.channels};
    q->type = (tu_type){TU_I8, graph->nodes[product->inputs[1].node]->outputs[0].shape};
    if (product->op->code == TU__OP_MATMUL) q->type.shape = TU_SHAPE(w.per_channel, w.channels);
    q->weights = tu__arena_alloc(arena, (size_t)(w.channels * w.per_channel));
    q->scales = tu__arena_alloc(arena, (size_t)w.channels * sizeof *q->scales);
    q->bias = tu__arena_alloc(arena, (size_t)w.channels * sizeof *q->bias);
    if (!q->weights || !q->scales || !q->bias) return TU_NO_MEMORY;
    for (int64_t c = 0; c < w.channels; c++) {
        const double bias = bias_of(graph, layer, c);
        double largest;
        TU_TRY(find_largest(product, &w, c, bias, &largest));
        const double scale = scale_of(&w, largest, bias, input_scale);
        q->scales[c] = scale;
        q->bias[c] = (int32_t)nearbyint(bias / (input_scale * scale));
        for (int64_t i = 0; i < w.per_channel; i++) {
            const double x = nearbyint((double)w.data[c * w.channel_step + i * w.step] / scale);
            q->weights[position_of(product, &w, c, i)] = (int8_t)fmax(fmin(x, INT8_MAX), -INT8_MAX);
        }
    }
    return TU_OK;
}
