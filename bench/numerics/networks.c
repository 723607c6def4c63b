/* Builds the networks. Each is small enough for the reference device in f64, and covers something that the others
 * do not: kinds of convolutions, normalisations, losses, linear algebra, long sums, many steps. Weights are graph
 * inputs, so that they can be saved for PyTorch; gradients are computed with respect to the weights and the data. */
#include "networks.h"

#include <math.h>
#include <stdio.h>

/* ---- Tensors ---- */

static tu_value add_tensor(network *n, const char *name, tu_dtype dtype, tu_shape shape, tensor t) {
    if (n->tensor_count == MAX_TENSORS) return (tu_value){0};
    snprintf(t.name, sizeof t.name, "%s", name);
    t.value = tu_input(n->graph, name, dtype, shape);
    n->tensors[n->tensor_count++] = t;
    return t.value;
}

static tu_value weights(network *n, const char *name, tu_shape shape, double mean, double stddev) {
    return add_tensor(n, name, n->dtype, shape,
                      (tensor){.mean = mean, .stddev = stddev, .differentiated = true});
}

/* Adds an input with mean 0 and standard deviation 1, which is differentiated too. */
static tu_value data_input(network *n, const char *name, tu_shape shape) {
    return weights(n, name, shape, 0, 1);
}

static tu_value target_input(network *n, tu_shape shape) {
    return add_tensor(n, "target", n->dtype, shape, (tensor){.stddev = 1});
}

static tu_value integer_input(network *n, const char *name, tu_shape shape, int64_t classes) {
    return add_tensor(n, name, TU_I32, shape, (tensor){.classes = classes});
}

/* Returns "block1.gamma" for "block1" and "gamma". The last four results stay valid. */
static const char *name_in(const char *layer, const char *name) {
    static char buffers[4][TENSOR_NAME];
    static int next;
    char *buffer = buffers[next++ % 4];
    snprintf(buffer, TENSOR_NAME, "%s.%s", layer, name);
    return buffer;
}

/* ---- Layers ---- */

/* x [..., k] -> [..., units] */
static tu_value dense(network *n, const char *layer, tu_value x, int64_t units) {
    tu_shape shape = tu_value_shape(x);
    int64_t k = shape.dim[shape.rank - 1];
    tu_value w = weights(n, name_in(layer, "weights"), TU_SHAPE(units, k), 0, sqrt(1.5 / (double)k));
    tu_value b = weights(n, name_in(layer, "bias"), TU_SHAPE(units), 0, 0.1);
    return tu_add(tu_matmul(x, w, .transpose_b = true), b);
}

/* A dense layer without bias: the gradient of a bias before a normalisation is zero. */
static tu_value project(network *n, const char *layer, tu_value x, int64_t units) {
    tu_shape shape = tu_value_shape(x);
    int64_t k = shape.dim[shape.rank - 1];
    tu_value w = weights(n, name_in(layer, "weights"), TU_SHAPE(units, k), 0, sqrt(1.0 / (double)k));
    return tu_matmul(x, w, .transpose_b = true);
}

typedef struct filter {
    int64_t count, height, width, stride[2], dilation, groups;
    int64_t pad[4]; /* top, bottom, left, right */
    bool bias;
} filter;

static tu_value convolve(network *n, const char *layer, tu_value x, filter f) {
    int64_t groups = f.groups ? f.groups : 1, channels = tu_value_shape(x).dim[3] / groups;
    int64_t fan_in = f.height * f.width * channels;
    tu_value w = weights(n, name_in(layer, "weights"), TU_SHAPE(f.count, f.height, f.width, channels), 0,
                         sqrt(1.5 / (double)fan_in));
    tu_value y = tu_convolve(x, w, .stride = {f.stride[0], f.stride[1]}, .dilation = {f.dilation, f.dilation},
                             .groups = groups, .padding = TU_EXPLICIT,
                             .pad = {f.pad[0], f.pad[1], f.pad[2], f.pad[3]});
    return f.bias ? tu_add(y, weights(n, name_in(layer, "bias"), TU_SHAPE(f.count), 0, 0.1)) : y;
}

/* Returns a 3x3 filter, padded so that stride 1 keeps the image size and stride 2 halves it. */
static filter filter_3x3(int64_t count, int64_t stride, bool bias) {
    return (filter){.count = count,
                    .height = 3,
                    .width = 3,
                    .stride = {stride, stride},
                    .pad = {1, 1, 1, 1},
                    .bias = bias};
}

static tu_value batch_norm(network *n, const char *layer, tu_value x) {
    tu_shape shape = tu_value_shape(x), c = TU_SHAPE(shape.dim[shape.rank - 1]);
    tu_value gamma = weights(n, name_in(layer, "gamma"), c, 1, 0.2);
    return tu_batch_normalize(x, gamma, weights(n, name_in(layer, "beta"), c, 0, 0.2));
}

static tu_value layer_norm(network *n, const char *layer, tu_value x) {
    tu_shape shape = tu_value_shape(x), c = TU_SHAPE(shape.dim[shape.rank - 1]);
    tu_value gamma = weights(n, name_in(layer, "gamma"), c, 1, 0.2);
    return tu_layer_normalize(x, gamma, weights(n, name_in(layer, "beta"), c, 0, 0.2));
}

/* Returns the mean cross-entropy of logits [rows, classes] with random labels. */
static tu_value cross_entropy_loss(network *n, tu_value logits) {
    tu_shape shape = tu_value_shape(logits);
    tu_value labels = integer_input(n, "labels", TU_SHAPE(shape.dim[0]), shape.dim[1]);
    return tu_mean(tu_cross_entropy(logits, labels));
}

static tu_value squared_error(network *n, tu_value y) {
    return tu_mean(tu_square(tu_sub(y, target_input(n, tu_value_shape(y)))));
}

/* ---- Networks ---- */

static tu_value softmax_regression(network *n) {
    return cross_entropy_loss(n, dense(n, "out", data_input(n, "x", TU_SHAPE(64, 784)), 10));
}

static tu_value mlp(network *n) {
    tu_value h = tu_relu(dense(n, "hidden1", data_input(n, "x", TU_SHAPE(64, 256)), 300));
    h = tu_relu(dense(n, "hidden2", h, 100));
    return cross_entropy_loss(n, dense(n, "out", h, 10));
}

static tu_value tanh_mlp(network *n) {
    static const char *const layers[] = {"hidden1", "hidden2", "hidden3", "hidden4", "hidden5", "hidden6"};
    tu_value h = data_input(n, "x", TU_SHAPE(32, 40));
    for (int i = 0; i < 6; i++) h = tu_tanh(dense(n, layers[i], h, 64));
    return squared_error(n, dense(n, "out", h, 5));
}

/* Sums of 2048 products. */
static tu_value wide_mlp(network *n) {
    tu_value h = tu_relu(dense(n, "hidden1", data_input(n, "x", TU_SHAPE(16, 2048)), 1024));
    return cross_entropy_loss(n, dense(n, "out", tu_relu(dense(n, "hidden2", h, 256)), 10));
}

static tu_value layer_norm_mlp(network *n) {
    static const char *const layers[][2] = {{"hidden1", "norm1"}, {"hidden2", "norm2"}, {"hidden3", "norm3"}};
    tu_value h = data_input(n, "x", TU_SHAPE(32, 100));
    for (int i = 0; i < 3; i++) h = tu_gelu(layer_norm(n, layers[i][1], dense(n, layers[i][0], h, 128)));
    return cross_entropy_loss(n, dense(n, "out", h, 10));
}

static tu_value batch_norm_mlp(network *n) {
    static const char *const layers[][2] = {{"hidden1", "norm1"}, {"hidden2", "norm2"}, {"hidden3", "norm3"}};
    tu_value h = data_input(n, "x", TU_SHAPE(64, 100));
    for (int i = 0; i < 3; i++) h = tu_relu(batch_norm(n, layers[i][1], project(n, layers[i][0], h, 96)));
    return cross_entropy_loss(n, dense(n, "out", h, 10));
}

/* The CNN of TensorFlow's CIFAR-10 tutorial with fewer channels: pooling, local response normalisation. */
static tu_value tutorial_cnn(network *n) {
    filter filter_5x5 = {.count = 32, .height = 5, .width = 5, .pad = {2, 2, 2, 2}, .bias = true};
    tu_value h = tu_relu(convolve(n, "conv1", data_input(n, "x", TU_SHAPE(8, 24, 24, 3)), filter_5x5));
    h = tu_max_pool(h, .window = {3, 3}, .stride = {2, 2}, .padding = TU_VALID);
    h = tu_lrn(h, .radius = 2, .bias = 1, .alpha = 0.1, .beta = 0.75);
    h = tu_lrn(tu_relu(convolve(n, "conv2", h, filter_5x5)), .radius = 2, .bias = 1, .alpha = 0.1,
               .beta = 0.75);
    h = tu_max_pool(h, .window = {3, 3}, .stride = {2, 2}, .padding = TU_VALID);
    h = tu_relu(dense(n, "local", tu_flatten(h), 96));
    return cross_entropy_loss(n, dense(n, "out", h, 10));
}

static tu_value vgg(network *n) {
    static const char *const layers[][2] = {{"conv1", "conv2"}, {"conv3", "conv4"}};
    tu_value h = data_input(n, "x", TU_SHAPE(4, 16, 16, 3));
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) h = tu_relu(convolve(n, layers[i][k], h, filter_3x3(16 << i, 1, true)));
        h = tu_max_pool(h);
    }
    return cross_entropy_loss(n, dense(n, "out", tu_flatten(h), 10));
}

/* A residual block of two convolutions; with stride 2 the shortcut is a 1x1 convolution. */
static tu_value residual_block(network *n, const char *const layers[6], tu_value x, int64_t channels,
                               int64_t stride) {
    tu_value h =
        tu_relu(batch_norm(n, layers[1], convolve(n, layers[0], x, filter_3x3(channels, stride, false))));
    h = batch_norm(n, layers[3], convolve(n, layers[2], h, filter_3x3(channels, 1, false)));
    if (stride > 1) {
        filter one = {.count = channels, .height = 1, .width = 1, .stride = {stride, stride}};
        x = batch_norm(n, layers[5], convolve(n, layers[4], x, one));
    }
    return tu_relu(tu_add(h, x));
}

static tu_value resnet(network *n) {
    static const char *const blocks[3][6] = {
        {"conv1a", "norm1a", "conv1b", "norm1b", "", ""},
        {"conv2a", "norm2a", "conv2b", "norm2b", "short2", "norm2s"},
        {"conv3a", "norm3a", "conv3b", "norm3b", "short3", "norm3s"},
    };
    tu_value h = convolve(n, "stem", data_input(n, "x", TU_SHAPE(8, 16, 16, 3)), filter_3x3(16, 1, false));
    h = tu_relu(batch_norm(n, "norm", h));
    for (int i = 0; i < 3; i++) h = residual_block(n, blocks[i], h, 16 << i, i ? 2 : 1);
    return cross_entropy_loss(n, dense(n, "out", tu_global_avg_pool(h), 10));
}

/* Alternating depthwise and pointwise convolutions. */
static tu_value mobilenet(network *n) {
    static const char *const layers[][4] = {{"depth1", "norm1a", "point1", "norm1b"},
                                            {"depth2", "norm2a", "point2", "norm2b"},
                                            {"depth3", "norm3a", "point3", "norm3b"}};
    tu_value h = convolve(n, "stem", data_input(n, "x", TU_SHAPE(8, 20, 20, 3)), filter_3x3(16, 2, false));
    h = tu_relu(batch_norm(n, "norm", h));
    for (int i = 0; i < 3; i++) {
        filter depthwise = filter_3x3(16 << i, i == 1 ? 2 : 1, false),
               pointwise = {.count = 32 << i, .height = 1, .width = 1};
        depthwise.groups = depthwise.count;
        h = tu_relu(batch_norm(n, layers[i][1], convolve(n, layers[i][0], h, depthwise)));
        h = tu_relu(batch_norm(n, layers[i][3], convolve(n, layers[i][2], h, pointwise)));
    }
    return cross_entropy_loss(n, dense(n, "out", tu_global_avg_pool(h), 10));
}

static tu_value grouped(network *n) {
    static const char *const layers[] = {"conv1", "conv2", "conv3"};
    tu_value h = data_input(n, "x", TU_SHAPE(4, 13, 11, 24));
    for (int i = 0; i < 3; i++) {
        filter f = filter_3x3(24 << i, i == 2 ? 2 : 1, true);
        f.groups = i == 1 ? 3 : 4;
        h = tu_silu(convolve(n, layers[i], h, f));
    }
    return cross_entropy_loss(n, dense(n, "out", tu_global_avg_pool(h), 7));
}

static tu_value dilated(network *n) {
    static const char *const layers[] = {"conv1", "conv2", "conv3"};
    tu_value h = data_input(n, "x", TU_SHAPE(3, 18, 21, 5));
    for (int i = 0; i < 3; i++) {
        filter f = filter_3x3(20, 1, true);
        f.dilation = 1 + i;
        for (int side = 0; side < 4; side++) f.pad[side] = 1 + i;
        h = tu_leaky_relu(convolve(n, layers[i], h, f), 0.1);
    }
    return squared_error(n, convolve(n, "out", h, (filter){2, 1, 1, .bias = true}));
}

/* Strides larger than the filter, asymmetric padding, odd channel counts. */
static tu_value odd_strides(network *n) {
    filter first = {70, 4, 4, {3, 3}, .pad = {0, 2, 1, 1}, .bias = true};
    filter second = {13, 1, 1, {2, 3}, .bias = true},
           third = {9, 5, 2, {2, 1}, .pad = {3, 1, 0, 1}, .bias = true};
    tu_value h = tu_relu(convolve(n, "conv1", data_input(n, "x", TU_SHAPE(3, 30, 34, 4)), first));
    h = tu_relu(convolve(n, "conv2", h, second));
    h = tu_relu(convolve(n, "conv3", h, third));
    return cross_entropy_loss(n, dense(n, "out", tu_flatten(h), 6));
}

static tu_value average_pooled(network *n) {
    filter valid = {12, 3, 3, .bias = true};
    tu_value h = tu_elu(convolve(n, "conv1", data_input(n, "x", TU_SHAPE(5, 19, 17, 3)), valid), 1);
    h = tu_avg_pool(h, .window = {3, 3}, .stride = {2, 2}, .padding = TU_EXPLICIT, .pad = {1, 1, 1, 1});
    valid.count = 20;
    h = tu_elu(convolve(n, "conv2", h, valid), 1);
    return cross_entropy_loss(n, dense(n, "out", tu_global_max_pool(h), 8));
}

/* x [n,h,w,c] -> [n,2h,2w,channels], by a transposed convolution; the filter has the layout of the convolution. */
static tu_value upsample(network *n, const char *layer, tu_value x, int64_t channels) {
    int64_t o = tu_value_shape(x).dim[3];
    tu_value w =
        weights(n, name_in(layer, "weights"), TU_SHAPE(o, 4, 4, channels), 0, sqrt(1.5 / (double)(4 * o)));
    tu_value b = weights(n, name_in(layer, "bias"), TU_SHAPE(channels), 0, 0.1);
    return tu_add(tu_convolve_transpose(x, w, .stride = {2, 2}, .padding = TU_EXPLICIT, .pad = {1, 1, 1, 1}),
                  b);
}

static tu_value autoencoder(network *n) {
    tu_value h =
        tu_relu(convolve(n, "conv1", data_input(n, "x", TU_SHAPE(4, 16, 20, 3)), filter_3x3(16, 2, true)));
    h = tu_relu(convolve(n, "conv2", h, filter_3x3(24, 2, true)));
    h = tu_relu(upsample(n, "wide1", h, 16));
    return squared_error(n, tu_sigmoid(upsample(n, "wide2", h, 3)));
}

/* [n,t,c] -> [n,heads,t,c/heads] */
static tu_value split_heads(tu_value x, int64_t heads) {
    tu_shape s = tu_value_shape(x);
    return tu_transpose(tu_reshape(x, TU_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads)), 0, 2, 1, 3);
}

static tu_value attention(network *n, tu_value x, int64_t heads) {
    tu_shape s = tu_value_shape(x);
    int64_t width = s.dim[2], head_width = width / heads;
    tu_value q = split_heads(dense(n, "query", x, width), heads);
    tu_value k = split_heads(project(n, "key", x, width),
                             heads); /* no bias: softmax is invariant to a bias of the keys */
    tu_value v = split_heads(dense(n, "value", x, width), heads);
    tu_value scores = tu_scale(tu_matmul(q, k, .transpose_b = true), 1 / sqrt((double)head_width));
    tu_value mixed = tu_transpose(tu_matmul(tu_softmax(scores, -1), v), 0, 2, 1, 3);
    return dense(n, "mix", tu_reshape(mixed, s), width);
}

/* A pre-norm transformer block. */
static tu_value transformer(network *n) {
    tu_value x = data_input(n, "x", TU_SHAPE(4, 24, 48));
    x = tu_add(x, attention(n, layer_norm(n, "norm1", x), 4));
    tu_value h = tu_gelu(dense(n, "wide", layer_norm(n, "norm2", x), 128));
    x = tu_add(x, dense(n, "narrow", h, 48));
    return cross_entropy_loss(n, dense(n, "out", tu_mean(layer_norm(n, "norm3", x), .axes = TU_AXES(1)), 10));
}

static tu_value embedding(network *n) {
    tu_value table = weights(n, "table", TU_SHAPE(101, 32), 0, 1);
    tu_value words = integer_input(n, "words", TU_SHAPE(16, 25), 101);
    tu_value h = tu_mean(tu_gather(table, words, 0), .axes = TU_AXES(1));
    return cross_entropy_loss(n, dense(n, "out", tu_relu(dense(n, "hidden", h, 64)), 12));
}

/* Eight steps of a gated recurrent unit (GRU) over x [8 steps, 16, 20]. */
static tu_value recurrent(network *n) {
    enum { STEPS = 8, BATCH = 16, WIDTH = 20, UNITS = 32 };
    tu_value x = data_input(n, "x", TU_SHAPE(STEPS, BATCH, WIDTH)),
             h = weights(n, "start", TU_SHAPE(BATCH, UNITS), 0, 0.5);
    tu_value in = weights(n, "in", TU_SHAPE(3 * UNITS, WIDTH), 0, sqrt(1.0 / WIDTH));
    tu_value gates = weights(n, "gates", TU_SHAPE(2 * UNITS, UNITS), 0, sqrt(1.0 / UNITS));
    tu_value candidate = weights(n, "again", TU_SHAPE(UNITS, UNITS), 0, sqrt(1.0 / UNITS));
    tu_value bias = weights(n, "bias", TU_SHAPE(3 * UNITS), 0, 0.1);
    for (int step = 0; step < STEPS; step++) {
        tu_value x_step = tu_reshape(tu_slice(x, 0, step, step + 1, 1), TU_SHAPE(BATCH, WIDTH));
        tu_value from_x = tu_add(tu_matmul(x_step, in, .transpose_b = true), bias);
        tu_value gate_values = tu_sigmoid(
            tu_add(tu_slice(from_x, 1, 0, 2 * UNITS, 1), tu_matmul(h, gates, .transpose_b = true)));
        tu_value keep = tu_slice(gate_values, 1, 0, UNITS, 1),
                 reset = tu_slice(gate_values, 1, UNITS, 2 * UNITS, 1);
        tu_value new_state = tu_tanh(tu_add(tu_slice(from_x, 1, 2 * UNITS, 3 * UNITS, 1),
                                            tu_matmul(tu_mul(reset, h), candidate, .transpose_b = true)));
        h = tu_add(tu_mul(keep, h), tu_mul(tu_shift(tu_neg(keep), 1), new_state));
    }
    return cross_entropy_loss(n, dense(n, "out", h, 5));
}

/* Returns `factor` times the identity matrix. */
static tu_value scaled_identity(network *n, int64_t size, double factor) {
    return tu_band(tu_fill(n->graph, n->dtype, TU_SHAPE(size, size), factor), 0, 0);
}

/* The negative log-likelihood of targets under a Gaussian process on learned features: Cholesky, triangular
 * systems. */
static tu_value gaussian_process(network *n) {
    enum { POINTS = 40 };
    tu_value f = tu_tanh(dense(n, "features", data_input(n, "x", TU_SHAPE(POINTS, 12)), 16));
    tu_value k = tu_scale(tu_matmul(f, f, .transpose_b = true), 1.0 / 16);
    tu_value l = tu_cholesky(tu_add(k, scaled_identity(n, POINTS, 0.5)));
    tu_value whitened = tu_triangular_solve(l, target_input(n, TU_SHAPE(POINTS, 1)));
    /* The diagonal of l, with ones elsewhere, whose logarithm is 0. */
    tu_value diagonal = tu_add(tu_band(l, 0, 0), tu_shift(tu_neg(scaled_identity(n, POINTS, 1)), 1));
    return tu_scale(tu_add(tu_scale(tu_sum(tu_square(whitened)), 0.5), tu_sum(tu_log(diagonal))),
                    1.0 / POINTS);
}

/* Ridge regression inside a network: weights are fitted to one half of the features by solving a linear system, and
 * evaluated on the other half. */
static tu_value ridge(network *n) {
    enum { POINTS = 60, FEATURES = 20 };
    tu_value f = tu_tanh(dense(n, "features", data_input(n, "x", TU_SHAPE(2, POINTS, 15)), FEATURES));
    tu_value train = tu_reshape(tu_slice(f, 0, 0, 1, 1), TU_SHAPE(POINTS, FEATURES));
    tu_value test = tu_reshape(tu_slice(f, 0, 1, 2, 1), TU_SHAPE(POINTS, FEATURES));
    tu_value y = data_input(n, "y", TU_SHAPE(POINTS, 3));
    tu_value gram = tu_scale(tu_matmul(train, train, .transpose_a = true), 1.0 / POINTS);
    tu_value right = tu_scale(tu_matmul(train, y, .transpose_a = true), 1.0 / POINTS);
    tu_value w = tu_solve(tu_add(gram, scaled_identity(n, FEATURES, 0.1)), right);
    return squared_error(n, tu_matmul(test, w));
}

const network_kind networks[NETWORKS] = {
    {"softmax-regression", softmax_regression, "one dense layer, cross-entropy"},
    {"mlp", mlp, "three dense layers, ReLU"},
    {"tanh-mlp", tanh_mlp, "seven dense layers, tanh, squared error"},
    {"wide-mlp", wide_mlp, "sums of 2048 products"},
    {"layer-norm-mlp", layer_norm_mlp, "layer normalisation, GELU"},
    {"batch-norm-mlp", batch_norm_mlp, "batch normalisation"},
    {"tutorial-cnn", tutorial_cnn, "5x5 convolutions, LRN, overlapping max-pooling"},
    {"vgg", vgg, "3x3 convolutions, max-pooling"},
    {"resnet", resnet, "residual blocks, batch normalisation, strides"},
    {"mobilenet", mobilenet, "depthwise and pointwise convolutions"},
    {"grouped", grouped, "convolutions in 3 and 4 groups, SiLU"},
    {"dilated", dilated, "dilated convolutions, leaky ReLU, squared error"},
    {"odd-strides", odd_strides, "4x4 with stride 3, asymmetric padding, 70, 13 and 9 channels"},
    {"average-pooled", average_pooled, "average pooling with padding, global max-pooling, ELU"},
    {"autoencoder", autoencoder, "transposed convolutions, sigmoid"},
    {"transformer", transformer, "attention with 4 heads, layer normalisation, residuals"},
    {"embedding", embedding, "gathered rows, scattered gradients"},
    {"recurrent", recurrent, "a gated recurrent unit, 8 steps"},
    {"gaussian-process", gaussian_process, "Cholesky, triangular systems, log-determinant"},
    {"ridge", ridge, "solves a linear system"},
};
