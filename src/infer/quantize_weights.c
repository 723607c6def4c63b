/* Weights of a layer as i8, symmetric, with a scale per output channel; the bias in units of the sums. */
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

/* Returns the scale of a channel: its largest weight becomes 127. It is larger if the bias would not fit in 2^30 units
 * of the sums. */
static double scale_of(const weights *w, int64_t channel, double bias, double input_scale) {
    double largest = 0;
    for (int64_t i = 0; i < w->per_channel; i++)
        largest = fmax(largest, fabs((double)w->data[channel * w->channel_step + i * w->step]));
    const double scale = fmax(largest / INT8_MAX, fabs(bias) / (input_scale * 0x1p30));
    return scale > 0 ? scale : 1;
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
        const double bias = bias_of(graph, layer, c), scale = scale_of(&w, c, bias, input_scale);
        q->scales[c] = scale;
        q->bias[c] = (int32_t)nearbyint(bias / (input_scale * scale));
        for (int64_t i = 0; i < w.per_channel; i++) {
            const double x = nearbyint((double)w.data[c * w.channel_step + i * w.step] / scale);
            q->weights[position_of(product, &w, c, i)] = (int8_t)fmax(fmin(x, INT8_MAX), -INT8_MAX);
        }
    }
    return TU_OK;
}
