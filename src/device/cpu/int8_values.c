/* Operations on quantized values other than convolutions and products: conversions, addition, pooling. The loops are in
 * isa/loops_int8.c. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/isa/loops.h"
#include "device/cpu/isa/loops_int8.h"
#include "device/cpu/ranges.h"
#include "graph/ops/window.h"

static const struct cpu_loops_int8 *loops_of(const tu__kernel *k) {
    return cpu_of(k)->loops->int8;
}

/* Makes a kernel of a node with its operands, and its data. */
static tu_status make_kernel(tu__selection *s, const tu__node *node, tu_status (*run)(const tu__kernel *k),
                             const void *data, size_t bytes) {
    tu__kernel *k = tu__kernel_new(s, node, node->op->name, run);
    void *copy = k ? tu__kernel_data(k, bytes) : NULL;
    if (!copy) return TU_NO_MEMORY;
    memcpy(copy, data, bytes);
    cpu_kernel_set_costs(k, s, node);
    return cpu_kernel_add_operands(k, node, -1);
}

/* ---- Element by element: quantize, dequantize, add ---- */

typedef struct elements_data {
    int64_t count;
    float factor[2];
    int32_t input_zero[2];
    cpu_requantization to;
} elements_data;

static void quantize_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const tu__kernel *k = context;
    const elements_data *d = k->data;
    loops_of(k)->quantize(last - first, (const float *)k->in[0] + first, d->factor[0], d->to.zero,
                          (uint8_t *)k->out[0] + first);
}

static void dequantize_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const tu__kernel *k = context;
    const elements_data *d = k->data;
    loops_of(k)->dequantize(last - first, (const uint8_t *)k->in[0] + first, d->factor[0], d->input_zero[0],
                            (float *)k->out[0] + first);
}

static void add_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const tu__kernel *k = context;
    const elements_data *d = k->data;
    loops_of(k)->add(last - first, (const uint8_t *)k->in[0] + first, (const uint8_t *)k->in[1] + first,
                     d->factor, d->input_zero, &d->to, (uint8_t *)k->out[0] + first);
}

static tu_status run_elements(const tu__kernel *k, tu__parallel_body body) {
    tu__parallel_for(((const elements_data *)k->data)->count, CPU_GRAIN, body, (void *)k);
    return TU_OK;
}

static tu_status run_quantize(const tu__kernel *k) {
    return run_elements(k, quantize_range);
}

static tu_status run_dequantize(const tu__kernel *k) {
    return run_elements(k, dequantize_range);
}

static tu_status run_add(const tu__kernel *k) {
    return run_elements(k, add_range);
}

static int64_t elements_of(const tu__node *node) {
    return tu_shape_elements(node->outputs[0].shape);
}

tu_status cpu_lower_quantize(tu__selection *s, const tu__node *node) {
    const struct tu__quantize_attrs *a = tu__attrs(node, quantize);
    const elements_data d = {
        .count = elements_of(node), .factor = {(float)a->factor}, .to = {.zero = (int32_t)a->zero}};
    return make_kernel(s, node, run_quantize, &d, sizeof d);
}

tu_status cpu_lower_dequantize(tu__selection *s, const tu__node *node) {
    const struct tu__dequantize_attrs *a = tu__attrs(node, dequantize);
    const elements_data d = {
        .count = elements_of(node), .factor = {(float)a->factor}, .input_zero = {(int32_t)a->zero}};
    return make_kernel(s, node, run_dequantize, &d, sizeof d);
}

tu_status cpu_lower_add_int8(tu__selection *s, const tu__node *node) {
    const struct tu__add_int8_attrs *a = tu__attrs(node, add_int8);
    const elements_data d = {
        .count = elements_of(node),
        .factor = {(float)a->factor[0], (float)a->factor[1]},
        .input_zero = {(int32_t)a->input_zero[0], (int32_t)a->input_zero[1]},
        .to = {.zero = (int32_t)a->zero, .low = (int32_t)a->low, .high = (int32_t)a->high}};
    return make_kernel(s, node, run_add, &d, sizeof d);
}

/* ---- Requantization of sums in memory ---- */

typedef struct requantize_data {
    int64_t rows, columns;
    cpu_requantization to; /* without addresses */
} requantize_data;

static void requantize_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const tu__kernel *k = context;
    const requantize_data *d = k->data;
    const bool adds = k->read_count == 4;
    const int64_t offset = first * d->columns;
    cpu_requantization to = d->to;
    to.factors = k->in[1];
    to.bias = k->in[2];
    const cpu_int8_rows m = {.rows = last - first,
                             .columns = d->columns,
                             .sums = (const int32_t *)k->in[0] + offset,
                             .sums_row = d->columns,
                             .residual = adds ? (const uint8_t *)k->in[3] + offset : NULL,
                             .out = (uint8_t *)k->out[0] + offset,
                             .out_row = d->columns};
    (adds ? loops_of(k)->requantize_add : loops_of(k)->requantize)(&to, &m);
}

static tu_status run_requantize(const tu__kernel *k) {
    const requantize_data *d = k->data;
    tu__parallel_for(d->rows, 1 + CPU_GRAIN / d->columns, requantize_range, (void *)k);
    return TU_OK;
}

static tu_status lower_requantize(tu__selection *s, const tu__node *node, const cpu_requantization *to) {
    const int64_t columns = cpu_input_type(s, node, 1).shape.dim[0];
    const requantize_data d = {.rows = elements_of(node) / columns, .columns = columns, .to = *to};
    return make_kernel(s, node, run_requantize, &d, sizeof d);
}

tu_status cpu_lower_requantize(tu__selection *s, const tu__node *node) {
    const struct tu__requantize_attrs *a = tu__attrs(node, requantize);
    const cpu_requantization to = {
        .zero = (int32_t)a->zero, .low = (int32_t)a->low, .high = (int32_t)a->high};
    return lower_requantize(s, node, &to);
}

tu_status cpu_lower_requantize_add(tu__selection *s, const tu__node *node) {
    const struct tu__requantize_add_attrs *a = tu__attrs(node, requantize_add);
    const cpu_requantization to = {.zero = (int32_t)a->zero,
                                   .low = (int32_t)a->low,
                                   .high = (int32_t)a->high,
                                   .residual_factor = (float)a->factor,
                                   .residual_zero = (int32_t)a->residual_zero};
    return lower_requantize(s, node, &to);
}

/* ---- Pooling ---- */

typedef struct mean_data {
    int64_t images, pixels, channels;
    float factor;
    int32_t input_zero, zero;
} mean_data;

enum { MEAN_CHANNELS = 256 }; /* whose sums are in memory at once */

/* Computes the mean of up to MEAN_CHANNELS channels of an image. */
static void mean_of(const tu__kernel *k, int64_t image, int64_t first, int64_t count) {
    const mean_data *d = k->data;
    int32_t sums[MEAN_CHANNELS] = {0}, bias[MEAN_CHANNELS];
    float factors[MEAN_CHANNELS];
    const uint8_t *x = (const uint8_t *)k->in[0] + image * d->pixels * d->channels + first;
    for (int64_t p = 0; p < d->pixels; p++) loops_of(k)->accumulate(count, x + p * d->channels, sums);
    for (int64_t j = 0; j < count; j++) {
        bias[j] = (int32_t)-d->pixels * d->input_zero;
        factors[j] = d->factor;
    }
    const cpu_requantization to = {
        .factors = factors, .bias = bias, .zero = d->zero, .low = 0, .high = UINT8_MAX};
    const cpu_int8_rows m = {
        .rows = 1, .columns = count, .sums = sums, .out = (uint8_t *)k->out[0] + image * d->channels + first};
    loops_of(k)->requantize(&to, &m);
}

static void mean_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const tu__kernel *k = context;
    const int64_t channels = ((const mean_data *)k->data)->channels;
    for (int64_t image = first; image < last; image++)
        for (int64_t c = 0; c < channels; c += MEAN_CHANNELS)
            mean_of(k, image, c, channels - c < MEAN_CHANNELS ? channels - c : MEAN_CHANNELS);
}

static tu_status run_mean(const tu__kernel *k) {
    const mean_data *d = k->data;
    tu__parallel_for(d->images, 1 + CPU_GRAIN / (d->pixels * d->channels), mean_range, (void *)k);
    return TU_OK;
}

tu_status cpu_lower_mean_int8(tu__selection *s, const tu__node *node) {
    const struct tu__mean_int8_attrs *a = tu__attrs(node, mean_int8);
    const int64_t *x = cpu_input_type(s, node, 0).shape.dim;
    const mean_data d = {.images = x[0],
                         .pixels = x[1] * x[2],
                         .channels = x[3],
                         .factor = (float)a->factor,
                         .input_zero = (int32_t)a->input_zero,
                         .zero = (int32_t)a->zero};
    return make_kernel(s, node, run_mean, &d, sizeof d);
}

typedef struct max_data {
    tu__windows windows;
    int64_t channels, x_size[2], y_size[2], rows;
} max_data;

/* Computes one pixel of y from the part of its window within the image. A window contains a pixel of it. */
static void max_pixel(const tu__kernel *k, const uint8_t *image, int64_t row, int64_t column, uint8_t *y) {
    const max_data *d = k->data;
    const tu__windows *w = &d->windows;
    const int64_t top = row * w->stride[0] - w->pad[0], left = column * w->stride[1] - w->pad[2];
    bool is_first = true;
    for (int64_t i = top < 0 ? 0 : top; i < top + w->size[0] && i < d->x_size[0]; i++)
        for (int64_t j = left < 0 ? 0 : left; j < left + w->size[1] && j < d->x_size[1]; j++) {
            const uint8_t *x = image + (i * d->x_size[1] + j) * d->channels;
            if (is_first)
                memcpy(y, x, (size_t)d->channels);
            else
                loops_of(k)->maximum(d->channels, x, y);
            is_first = false;
        }
}

static void max_range(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const tu__kernel *k = context;
    const max_data *d = k->data;
    for (int64_t r = first; r < last; r++) {
        const uint8_t *image =
            (const uint8_t *)k->in[0] + r / d->y_size[0] * d->x_size[0] * d->x_size[1] * d->channels;
        for (int64_t column = 0; column < d->y_size[1]; column++)
            max_pixel(k, image, r % d->y_size[0], column,
                      (uint8_t *)k->out[0] + (r * d->y_size[1] + column) * d->channels);
    }
}

static tu_status run_max(const tu__kernel *k) {
    const max_data *d = k->data;
    tu__parallel_for(d->rows, 1 + CPU_GRAIN / (d->y_size[1] * d->channels), max_range, (void *)k);
    return TU_OK;
}

/* pool.c calls this for max_pool of u8. */
tu_status cpu_lower_max_pool_u8(tu__selection *s, const tu__node *node) {
    static const int64_t no_dilation[2] = {1, 1};
    const struct tu__max_pool_attrs *a = tu__attrs(node, max_pool);
    const int64_t *x = cpu_input_type(s, node, 0).shape.dim, *y = node->outputs[0].shape.dim;
    const max_data d = {.windows = tu__windows_of(a->window, a->stride, no_dilation, a->pad),
                        .channels = x[3],
                        .x_size = {x[1], x[2]},
                        .y_size = {y[1], y[2]},
                        .rows = x[0] * y[1]};
    return make_kernel(s, node, run_max, &d, sizeof d);
}
