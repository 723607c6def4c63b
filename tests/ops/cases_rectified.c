/* Pooling and local response normalisation after a bias and a ReLU, as in networks. Channel counts are multiples
 * of the vector width, or not. In the backward pass the gradient is masked by the ReLU and summed for the bias,
 * which devices fuse into one kernel. The cases output gradients, so that gradients are compared in every float
 * type. */
#include "ops/cases.h"

static const int64_t channel_counts[] = {6, 8, 24, 64};

typedef struct layer {
    tu_value x, bias, rectified;
} layer;

/* Multiples of 1/64: every float type represents x, x + bias and their multiples exactly, so that rounding changes
 * neither a maximum nor the mask of a ReLU. */
static tu_value random_exact_values(case_run *c, tu_shape shape) {
    return tu_scale(tu_cast(case_integers(c, TU_I32, shape, -64, 65), case_dtype(c)), 1.0 / 64);
}

/* Option "ties": x has few distinct values, so that ties and zeros are common. */
static layer random_layer(case_run *c, tu_shape shape) {
    tu_value x = random_exact_values(c, shape),
             bias = random_exact_values(c, TU_SHAPE(shape.dim[shape.rank - 1]));
    tu_value few = tu_scale(tu_cast(tu_cast(tu_scale(x, 3), TU_I32), case_dtype(c)), 0.5);
    tu_value sum = tu_add(case_pick(c, "ties", 2) ? few : x, bias);
    return (layer){sum, bias, case_pick(c, "relu", 2) ? tu_relu(sum) : tu_scale(sum, 2)};
}

static void output_gradients(case_run *c, const layer *l, tu_value y) {
    tu_value wrt[2] = {l->x, l->bias}, gradients[2];
    tu_gradients(tu_sum(tu_mul(tu_square(y), y)), 2, wrt, gradients);
    case_output(c, y);
    case_output(c, gradients[0]);
    case_output(c, gradients[1]);
}

OP_CASE(max_pool_rectified, CASE_NO_GRADIENT) {
    tu_pool_options o = {.struct_size = sizeof o, .padding = (tu_padding)case_pick(c, "padding", 3)};
    int64_t window = case_pick(c, "window", 3) + 2, stride = case_pick(c, "stride", 3) + 1;
    for (int i = 0; i < 2; i++) o.window[i] = window, o.stride[i] = stride;
    for (int i = 0; i < 4 && o.padding == TU_EXPLICIT; i++) o.pad[i] = case_size(c, 0, window - 1);
    int64_t channels = channel_counts[case_pick(c, "channels", 4)];
    layer l = random_layer(c, TU_SHAPE(case_size(c, 1, 3), case_size(c, 4, 9), case_size(c, 4, 9), channels));
    output_gradients(c, &l, tu_max_pool_with(l.rectified, &o));
}

/* A window of 156 elements: too large for the GPU kernels that store the position in seven bits of a byte. */
OP_CASE(max_pool_large_window, CASE_NO_GRADIENT) {
    int64_t channels = channel_counts[case_pick(c, "channels", 3)];
    layer l = random_layer(c, TU_SHAPE(1, case_size(c, 12, 18), case_size(c, 13, 18), channels));
    output_gradients(c, &l,
                     tu_max_pool(l.rectified, .window = {12, 13}, .stride = {3, 2}, .padding = TU_VALID));
}

OP_CASE(lrn_rectified, CASE_NO_GRADIENT) {
    static const int64_t radii[] = {4, 7, 20};
    static const double betas[] = {0.5, 0.75, 1.25};
    int64_t channels = channel_counts[case_pick(c, "channels", 4)];
    layer l = random_layer(c, TU_SHAPE(case_size(c, 1, 40), case_size(c, 1, 3), channels));
    output_gradients(c, &l,
                     tu_lrn(l.rectified, .radius = radii[case_pick(c, "radius", 3)], .bias = 1,
                            .alpha = case_pick(c, "alpha", 2) ? 0.1 : 1,
                            .beta = betas[case_pick(c, "beta", 3)]));
}
