/* Convolutions and their gradients: transposed, grouped, depthwise and 1x1, with and without bias and ReLU. */
#include "sweep/sweep.h"

typedef struct geometry {
    int64_t images, size[2], kernel[2], stride[2], dilation[2], pad[4];
    int64_t groups, in, out; /* channels per group */
} geometry;

/* Returns the size of the dilated filter. */
static int64_t dilated_size(const geometry *g, int axis) {
    return (g->kernel[axis] - 1) * g->dilation[axis] + 1;
}

static int64_t output_size(const geometry *g, int axis) {
    int64_t last_offset = g->size[axis] + g->pad[2 * axis] + g->pad[2 * axis + 1] - dilated_size(g, axis);
    return last_offset < 0 ? 0 : 1 + last_offset / g->stride[axis];
}

/* Returns the number of multiply-adds. */
static int64_t work_of(const geometry *g) {
    return g->images * output_size(g, 0) * output_size(g, 1) * g->kernel[0] * g->kernel[1] * g->groups *
           g->in * g->out;
}

static void choose_channels(sweep *s, geometry *g) {
    int64_t kind = sweep_random_int(s, 0, 5);
    g->groups = kind == 0 ? sweep_random_int(s, 2, 5) : kind == 1 ? sweep_size(s, 70) : 1;
    g->in = kind == 1 ? 1 : sweep_size(s, kind == 0 ? 20 : 130); /* 1: depthwise */
    g->out = kind == 1 ? sweep_random_int(s, 1, 2) : sweep_size(s, kind == 0 ? 20 : 130);
}

static void choose_axis_sizes(sweep *s, geometry *g, int axis, bool pointwise) {
    g->kernel[axis] = pointwise ? 1 : sweep_one_in(s, 3) ? 3 : sweep_random_int(s, 1, 7);
    g->stride[axis] = sweep_one_in(s, 2) ? 1 : sweep_random_int(s, 1, 4); /* may exceed the filter */
    g->dilation[axis] = pointwise || !sweep_one_in(s, 4) ? 1 : sweep_random_int(s, 2, 3);
    int64_t max_pad = sweep_one_in(s, 2) ? 0 : dilated_size(g, axis) - 1;
    for (int side = 0; side < 2; side++)
        g->pad[2 * axis + side] =
            sweep_one_in(s, 8) ? sweep_random_int(s, 0, 3) : sweep_random_int(s, 0, max_pad);
    g->size[axis] = sweep_one_in(s, 4) ? sweep_random_int(s, 1, 3) : sweep_size(s, 34);
}

/* Limits the work to what the reference kernel computes in some milliseconds. */
static geometry random_geometry(sweep *s, bool pointwise) {
    int64_t max_work = sweep_one_in(s, 12) ? 6000000 : 400000;
    for (;;) {
        geometry g = {.images = sweep_random_int(s, 1, 6)};
        choose_channels(s, &g);
        for (int axis = 0; axis < 2; axis++) choose_axis_sizes(s, &g, axis, pointwise);
        if (output_size(&g, 0) >= 1 && output_size(&g, 1) >= 1 && work_of(&g) <= max_work) return g;
    }
}

static void note_geometry(sweep *s, const geometry *g) {
    sweep_note(
        s,
        " n%lld %lldx%lld c%lld o%lld k%lldx%lld stride %lld,%lld dilation %lld,%lld pad %lld,%lld,%lld,%lld"
        " groups %lld",
        (long long)g->images, (long long)g->size[0], (long long)g->size[1], (long long)g->groups * g->in,
        (long long)g->groups * g->out, (long long)g->kernel[0], (long long)g->kernel[1],
        (long long)g->stride[0], (long long)g->stride[1], (long long)g->dilation[0],
        (long long)g->dilation[1], (long long)g->pad[0], (long long)g->pad[1], (long long)g->pad[2],
        (long long)g->pad[3], (long long)g->groups);
}

static tu_value convolve(const void *context, const tu_value *operands) {
    const geometry *g = context;
    return tu_convolve(operands[0], operands[1], .stride = {g->stride[0], g->stride[1]},
                       .dilation = {g->dilation[0], g->dilation[1]}, .padding = TU_EXPLICIT,
                       .pad = {g->pad[0], g->pad[1], g->pad[2], g->pad[3]}, .groups = g->groups);
}

static tu_value convolve_transposed(const void *context, const tu_value *operands) {
    const geometry *g = context;
    return tu_convolve_transpose(operands[0], operands[1], .stride = {g->stride[0], g->stride[1]},
                                 .dilation = {g->dilation[0], g->dilation[1]}, .padding = TU_EXPLICIT,
                                 .pad = {g->pad[0], g->pad[1], g->pad[2], g->pad[3]}, .groups = g->groups,
                                 .size = {g->size[0], g->size[1]});
}

static tu_value filter_of(sweep *s, const geometry *g) {
    return sweep_input(s, TU_SHAPE(g->groups * g->out, g->kernel[0], g->kernel[1], g->in));
}

static void expect_bias_and_relu(sweep *s, const geometry *g, tu_value y, const tu_value *y_magnitude) {
    tu_value bias = sweep_input(s, TU_SHAPE(g->groups * g->out));
    tu_value result = tu_relu(tu_add(y, bias)), magnitude = {0};
    if (sweep_is_oracle(s)) magnitude = tu_add(*y_magnitude, tu_abs(bias));
    /* In 16-bit types bias and relu are applied to a rounded sum, whether fused or not. */
    sweep_expect_dot_products(s, "convolution with bias and relu", result,
                              g->kernel[0] * g->kernel[1] * g->in + 1, sweep_is_16_bit(s), &magnitude);
}

static void expect_convolution(sweep *s, const geometry *g, bool epilogue) {
    note_geometry(s, g);
    tu_value operands[2] = {sweep_input(s, TU_SHAPE(g->images, g->size[0], g->size[1], g->groups * g->in)),
                            filter_of(s, g)};
    tu_value y, y_magnitude, gradients[2], magnitudes[2];
    sweep_differentiate(s, convolve, g, 2, operands, &y, &y_magnitude, gradients, magnitudes);
    int64_t window = g->kernel[0] * g->kernel[1];
    if (epilogue)
        expect_bias_and_relu(s, g, y, &y_magnitude);
    else
        sweep_expect_dot_products(s, "convolution", y, window * g->in, false, &y_magnitude);
    sweep_expect_dot_products(s, "input gradient", gradients[0], window * g->out, false, &magnitudes[0]);
    sweep_expect_dot_products(s, "filter gradient", gradients[1],
                              g->images * output_size(g, 0) * output_size(g, 1), false, &magnitudes[1]);
}

void sweep_convolution(sweep *s) {
    geometry g = random_geometry(s, false);
    expect_convolution(s, &g, sweep_one_in(s, 3));
}

void sweep_pointwise_convolution(sweep *s) {
    geometry g = random_geometry(s, true);
    expect_convolution(s, &g, sweep_one_in(s, 3));
}

/* Sizes that networks use, for which libraries are tested best. */
void sweep_network_convolution(sweep *s) {
    static const int64_t sizes[] = {1, 3, 3, 5, 7};
    int64_t max_work = sweep_one_in(s, 12) ? 8000000 : 1000000;
    geometry g;
    do {
        int64_t size = sizes[sweep_random_int(s, 0, 4)], stride = sweep_one_in(s, 3) ? 2 : 1;
        g = (geometry){.images = sweep_random_int(s, 1, 6),
                       .size = {sweep_random_int(s, 1, 34), sweep_random_int(s, 1, 34)},
                       .kernel = {size, size},
                       .stride = {stride, stride},
                       .dilation = {1, 1},
                       .groups = 1,
                       .in = sweep_one_in(s, 5) ? sweep_random_int(s, 1, 4) : 8 * sweep_random_int(s, 1, 10),
                       .out = 8 * sweep_random_int(s, 1, 10)};
        int64_t before = sweep_one_in(s, 4) ? 0 : (size - 1) / 2, after = sweep_one_in(s, 4) ? 0 : size / 2;
        for (int side = 0; side < 4; side++) g.pad[side] = side % 2 ? after : before;
    } while (output_size(&g, 0) < 1 || output_size(&g, 1) < 1 || work_of(&g) > max_work);
    expect_convolution(s, &g, sweep_one_in(s, 3));
}

static void expect_transposed(sweep *s, const geometry *g) {
    note_geometry(s, g);
    tu_value operands[2] = {
        sweep_input(s, TU_SHAPE(g->images, output_size(g, 0), output_size(g, 1), g->groups * g->out)),
        filter_of(s, g)};
    tu_value y, y_magnitude, gradients[2], magnitudes[2];
    sweep_differentiate(s, convolve_transposed, g, 2, operands, &y, &y_magnitude, gradients, magnitudes);
    int64_t window = g->kernel[0] * g->kernel[1];
    sweep_expect_dot_products(s, "transposed convolution", y, window * g->out, false, &y_magnitude);
    sweep_expect_dot_products(s, "input gradient", gradients[0], window * g->in, false, &magnitudes[0]);
    sweep_expect_dot_products(s, "filter gradient", gradients[1],
                              g->images * output_size(g, 0) * output_size(g, 1), false, &magnitudes[1]);
}

void sweep_transposed_convolution(sweep *s) {
    geometry g = random_geometry(s, sweep_one_in(s, 4));
    expect_transposed(s, &g);
}

/* ---- Regression cases, listed in known.c ---- */

#define REGRESSION(name, ...)                                                                                \
    void sweep_regression_##name(sweep *s);                                                                  \
    void sweep_regression_##name(sweep *s) {                                                                 \
        static const geometry g = {__VA_ARGS__};                                                             \
        expect_convolution(s, &g, false);                                                                    \
    }
#define ONES                                                                                                 \
    { 1, 1 }

REGRESSION(uneven_stride_3, .images = 3, .size = {30, 34}, .kernel = {4, 4}, .stride = {3, 3},
           .dilation = ONES, .pad = {0, 2, 1, 1}, .groups = 1, .in = 4, .out = 70)
REGRESSION(pixels_of_30_odd_outputs, .images = 4, .size = {10, 18}, .kernel = ONES, .stride = ONES,
           .dilation = ONES, .groups = 1, .in = 23, .out = 13)
REGRESSION(pixels_of_30_one_output, .images = 4, .size = {10, 18}, .kernel = ONES, .stride = ONES,
           .dilation = ONES, .groups = 1, .in = 50, .out = 1)
REGRESSION(grouped_stride_3_narrow, .images = 5, .size = {3, 1}, .kernel = {2, 2}, .stride = {3, 3},
           .dilation = ONES, .pad = {0, 0, 1, 1}, .groups = 2, .in = 10, .out = 12)
REGRESSION(grouped_stride_3_wide, .images = 5, .size = {3, 1}, .kernel = {2, 2}, .stride = {3, 3},
           .dilation = ONES, .pad = {1, 1, 1, 1}, .groups = 2, .in = 10, .out = 12)
REGRESSION(depthwise_6x7, .images = 6, .size = {14, 2}, .kernel = {6, 7}, .stride = ONES, .dilation = ONES,
           .pad = {2, 3, 3, 3}, .groups = 32, .in = 1, .out = 1)
REGRESSION(depthwise_6x7_stride_3, .images = 6, .size = {14, 2}, .kernel = {6, 7}, .stride = {3, 3},
           .dilation = ONES, .pad = {2, 3, 3, 3}, .groups = 32, .in = 1, .out = 1)
REGRESSION(depthwise_dilated, .images = 3, .size = {16, 33}, .kernel = {2, 3}, .stride = ONES,
           .dilation = {2, 1}, .groups = 26, .in = 1, .out = 1)
REGRESSION(depthwise_dilated_padded, .images = 4, .size = {17, 31}, .kernel = {5, 3}, .stride = ONES,
           .dilation = {2, 2}, .pad = {2, 0, 2, 2}, .groups = 2, .in = 1, .out = 1)
REGRESSION(dilated_column, .images = 2, .size = {18, 32}, .kernel = {3, 1}, .stride = ONES,
           .dilation = {2, 1}, .groups = 1, .in = 50, .out = 2)
REGRESSION(stride_4_wide, .images = 2, .size = {14, 8}, .kernel = {4, 4}, .stride = {1, 4}, .dilation = ONES,
           .pad = {0, 0, 3, 0}, .groups = 1, .in = 17, .out = 23)
REGRESSION(stride_4, .images = 1, .size = {25, 3}, .kernel = {1, 4}, .stride = {4, 4}, .dilation = ONES,
           .pad = {0, 0, 1, 3}, .groups = 1, .in = 97, .out = 128)
REGRESSION(stride_2_4, .images = 4, .size = {31, 5}, .kernel = {3, 1}, .stride = {2, 4}, .dilation = ONES,
           .pad = {1, 0, 0, 0}, .groups = 1, .in = 19, .out = 48)
REGRESSION(one_output_stride_2_1, .images = 2, .size = {32, 23}, .kernel = ONES, .stride = {2, 1},
           .dilation = ONES, .groups = 1, .in = 8, .out = 1)
REGRESSION(strided_pointwise, .images = 3, .size = {8, 8}, .kernel = ONES, .stride = {2, 2}, .dilation = ONES,
           .groups = 1, .in = 2, .out = 48)
REGRESSION(strided_pointwise_8, .images = 2, .size = {4, 26}, .kernel = ONES, .stride = {2, 2},
           .dilation = ONES, .groups = 1, .in = 8, .out = 32)
REGRESSION(strided_pointwise_f32_8, .images = 1, .size = {26, 34}, .kernel = ONES, .stride = {2, 2},
           .dilation = ONES, .groups = 1, .in = 8, .out = 16)
REGRESSION(strided_pointwise_f32_4, .images = 1, .size = {32, 8}, .kernel = ONES, .stride = {2, 2},
           .dilation = ONES, .groups = 1, .in = 4, .out = 8)
REGRESSION(one_channel_dilated_strided, .images = 5, .size = {20, 17}, .kernel = {1, 7}, .stride = {3, 4},
           .dilation = {1, 2}, .groups = 1, .in = 1, .out = 26)
REGRESSION(few_channels_dilated_strided, .images = 3, .size = {31, 12}, .kernel = {7, 6}, .stride = {4, 3},
           .dilation = {2, 1}, .pad = {3, 3, 5, 1}, .groups = 1, .in = 4, .out = 13)
REGRESSION(rounded_parts, .images = 1, .size = {28, 4}, .kernel = {3, 3}, .stride = ONES, .dilation = ONES,
           .groups = 1, .in = 16, .out = 80)
REGRESSION(pointwise_5x1, .images = 6, .size = {5, 1}, .kernel = ONES, .stride = ONES, .dilation = ONES,
           .groups = 1, .in = 50, .out = 65)

void sweep_regression_strided_transposed(sweep *s);
void sweep_regression_strided_transposed(sweep *s) {
    static const geometry g = {.images = 1,
                               .size = {1, 12},
                               .kernel = ONES,
                               .stride = {4, 1},
                               .dilation = ONES,
                               .groups = 1,
                               .in = 70,
                               .out = 12};
    expect_transposed(s, &g);
}

void sweep_regression_pointwise_transposed(sweep *s);
void sweep_regression_pointwise_transposed(sweep *s) {
    static const geometry g = {.images = 1,
                               .size = {5, 7},
                               .kernel = ONES,
                               .stride = {2, 1},
                               .dilation = ONES,
                               .groups = 1,
                               .in = 13,
                               .out = 8};
    expect_transposed(s, &g);
}
