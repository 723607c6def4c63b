/* The networks of bench_inference; see networks.h. Tensors are numbered in the order in which onnx.js writes them, and
 * their elements in ONNX's order (NCHW), which is translated here to ours (NHWC). */
#include "networks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

static uint32_t next_tensor;

double bench_number(uint32_t tensor, uint32_t i) {
    uint32_t h = (i ^ ((tensor + 1) * 0x9e3779b9u)) * 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    return (h >> 8) / 8388608.0 - 1;
}

/* Makes a constant; `index` gives the position of each element in ONNX's order. */
static tu_value weight(tu_value like, tu_shape shape, double scale,
                       int64_t (*index)(const tu_shape *shape, int64_t i)) {
    int64_t count = tu_shape_elements(shape);
    tu__shared_data *shared = tu__shared_data_new((size_t)count * sizeof(float), "weights");
    if (!shared) exit(2);
    float *data = shared->data;
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(bench_number(next_tensor, (uint32_t)index(&shape, i)) * scale);
    next_tensor++;
    struct tu__constant_attrs attrs = {.dtype = TU_F32, .shape = shape};
    tu_value constant =
        tu__make(like.graph, &(tu__node_request){.op = TU__OP_CONSTANT, .attrs = &attrs, .shared = shared});
    tu__shared_data_release(shared);
    return constant;
}

static int64_t same_index(const tu_shape *shape, int64_t i) {
    (void)shape;
    return i;
}

/* A filter [o, kh, kw, c], in ONNX [o, c, kh, kw]. */
static int64_t filter_index(const tu_shape *shape, int64_t i) {
    int64_t channels = shape->dim[3], taps = shape->dim[1] * shape->dim[2];
    return (i / channels / taps * channels + i % channels) * taps + i / channels % taps;
}

/* Weights [6 * 6 * 64, n] after flattening [6, 6, 64], in ONNX [64, 6, 6]. */
static int64_t flattened_index(const tu_shape *shape, int64_t i) {
    int64_t row = i / shape->dim[1];
    return (row % 64 * 36 + row / 64) * shape->dim[1] + i % shape->dim[1];
}

static tu_value bias(tu_value x, int64_t count) {
    return tu_add(x, weight(x, TU_SHAPE(count), 0.1, same_index));
}

static tu_value conv(tu_value x, int64_t filters, int64_t size, int64_t stride) {
    int64_t channels = tu_value_shape(x).dim[3], pad = size / 2;
    tu_value w = weight(x, TU_SHAPE(filters, size, size, channels),
                        sqrt(6.0 / (double)(channels * size * size)), filter_index);
    return bias(
        tu_convolve(x, w, .stride = {stride, stride}, .padding = TU_EXPLICIT, .pad = {pad, pad, pad, pad}),
        filters);
}

static tu_value dense_with(tu_value x, int64_t units, int64_t (*index)(const tu_shape *shape, int64_t i)) {
    int64_t inputs = tu_value_shape(x).dim[1];
    return bias(tu_matmul(x, weight(x, TU_SHAPE(inputs, units), sqrt(6.0 / (double)inputs), index)), units);
}

static tu_value dense(tu_value x, int64_t units) {
    return dense_with(x, units, same_index);
}

static tu_value pool(tu_value x, int64_t before) {
    return tu_max_pool(x, .window = {3, 3}, .stride = {2, 2}, .padding = TU_EXPLICIT,
                       .pad = {before, 1, before, 1});
}

static tu_value lrn(tu_value x) {
    return tu_lrn(x, .radius = 4, .bias = 1, .alpha = 0.001 / 9, .beta = 0.75);
}

static tu_value build_mlp(tu_value x) {
    x = tu_relu(dense(tu_flatten(x), 512));
    x = tu_relu(dense(x, 512));
    return dense(x, 10);
}

static tu_value build_tutorial_cnn(tu_value x) {
    x = tu_relu(conv(x, 64, 5, 1));
    x = lrn(pool(x, 0));
    x = lrn(tu_relu(conv(x, 64, 5, 1)));
    x = tu_flatten(pool(x, 0));
    x = tu_relu(dense_with(x, 384, flattened_index));
    x = tu_relu(dense(x, 192));
    return dense(x, 10);
}

static tu_value bottleneck(tu_value x, int64_t width, int64_t stride, bool first) {
    tu_value y = tu_relu(conv(x, width, 1, 1));
    y = tu_relu(conv(y, width, 3, stride));
    y = conv(y, 4 * width, 1, 1);
    return tu_relu(tu_add(y, first ? conv(x, 4 * width, 1, stride) : x));
}

static tu_value build_resnet50(tu_value x) {
    static const int blocks[] = {3, 4, 6, 3};
    x = pool(tu_relu(conv(x, 64, 7, 2)), 1);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            x = bottleneck(x, 64 << stage, i == 0 && stage > 0 ? 2 : 1, i == 0);
    return dense(tu_global_avg_pool(x), 1000);
}

static const bench_network networks[] = {
    {"mlp", {28, 28, 1}, 10, build_mlp},
    {"tutorial-cnn", {24, 24, 3}, 10, build_tutorial_cnn},
    {"resnet50", {224, 224, 3}, 1000, build_resnet50},
};

const bench_network *bench_network_find(const char *name) {
    next_tensor = 0;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (strcmp(networks[i].name, name) == 0) return &networks[i];
    return NULL;
}
