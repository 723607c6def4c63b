/* Integer convolutions and products, with and without requantization in the same kernel, and operations on u8. Results
 * are compared exactly. Some operands contain extreme values only, whose products and sums would saturate in 16 bits. */
#include "sweep/sweep.h"

static int64_t zero_point(sweep *s) {
    return sweep_one_in(s, 3) ? 0 : sweep_random_int(s, 0, 255);
}

static tu_value bytes(sweep *s, tu_shape shape) {
    return sweep_input_bytes(s, TU_U8, shape, 0, 256, sweep_one_in(s, 4));
}

/* 255 and -128 only: the largest sums. */
static tu_value weights(sweep *s, tu_shape shape) {
    return sweep_input_bytes(s, TU_I8, shape, -128, sweep_one_in(s, 6) ? -127 : 128, sweep_one_in(s, 4));
}

/* Adds the sums as a result, or what a requantization makes of them; often both operands of a later layer's kernel. */
static void expect_sums(sweep *s, tu_value sums, int64_t terms) {
    if (sweep_one_in(s, 3)) {
        sweep_expect(s, "sums", sums, 0, NULL);
        return;
    }
    const tu_shape shape = tu_value_shape(sums), channels = TU_SHAPE(shape.dim[shape.rank - 1]);
    const double size = 100.0 / (3000.0 * (double)terms + 1);
    tu_value factors = tu_cast(sweep_input_between(s, channels, -size, 4 * size), TU_F32);
    tu_value bias = sweep_input_integers(s, channels, -20000, 20000);
    const int64_t zero = zero_point(s);
    const int64_t low = sweep_one_in(s, 2) ? zero : 0,
                  high = sweep_one_in(s, 3) ? sweep_random_int(s, low, 255) : 255;
    if (sweep_one_in(s, 2)) {
        sweep_note(s, " requantize %lld", (long long)zero);
        sweep_expect(s, "requantized",
                     tu_requantize(sums, factors, bias, .zero = zero, .low = low, .high = high ? high : 1), 0,
                     NULL);
        return;
    }
    sweep_note(s, " requantize_add %lld", (long long)zero);
    tu_value residual = bytes(s, shape);
    const int64_t residual_zero = zero_point(s);
    const double factor = sweep_random_double(s, 0.1, 2);
    sweep_expect(s, "requantized with a residual",
                 tu_requantize(sums, factors, bias, .zero = zero, .low = low, .high = high ? high : 1,
                               .residual = residual, .residual_zero = residual_zero,
                               .residual_factor = factor),
                 0, NULL);
}

void sweep_int8_convolution(sweep *s) {
    const int64_t images = sweep_random_int(s, 1, 5), channels = sweep_size(s, 70),
                  filters = sweep_size(s, 140);
    tu_convolve_options o = {.struct_size = sizeof o, .padding = TU_EXPLICIT};
    int64_t size[2], kernel[2];
    for (int axis = 0; axis < 2; axis++) {
        kernel[axis] = sweep_random_int(s, 1, 5);
        o.stride[axis] = sweep_random_int(s, 1, 3);
        o.dilation[axis] = sweep_one_in(s, 4) ? sweep_random_int(s, 2, 3) : 1;
        for (int side = 0; side < 2; side++)
            o.pad[2 * axis + side] = sweep_one_in(s, 2) ? 0 : sweep_random_int(s, 0, kernel[axis]);
        size[axis] = sweep_size(s, 24) + (kernel[axis] - 1) * o.dilation[axis];
    }
    const int64_t zero = zero_point(s);
    sweep_note(s,
               " n%lld %lldx%lld c%lld o%lld filter %lldx%lld stride %lld,%lld dilation %lld,%lld "
               "pad %lld,%lld,%lld,%lld zero %lld",
               (long long)images, (long long)size[0], (long long)size[1], (long long)channels,
               (long long)filters, (long long)kernel[0], (long long)kernel[1], (long long)o.stride[0],
               (long long)o.stride[1], (long long)o.dilation[0], (long long)o.dilation[1],
               (long long)o.pad[0], (long long)o.pad[1], (long long)o.pad[2], (long long)o.pad[3],
               (long long)zero);
    tu_value x = bytes(s, TU_SHAPE(images, size[0], size[1], channels));
    tu_value filter = weights(s, TU_SHAPE(filters, kernel[0], kernel[1], channels));
    expect_sums(s, tu_convolve_int8_with(x, filter, zero, &o), kernel[0] * kernel[1] * channels);
}

void sweep_int8_product(sweep *s) {
    const int64_t m = sweep_size(s, 300),
                  k = sweep_one_in(s, 6) ? sweep_random_int(s, 1, 5000) : sweep_size(s, 260);
    const int64_t n = sweep_size(s, 200), zero = zero_point(s);
    sweep_note(s, " m%lld k%lld n%lld zero %lld", (long long)m, (long long)k, (long long)n, (long long)zero);
    tu_value a = bytes(s, TU_SHAPE(m, k)), b = weights(s, TU_SHAPE(k, n));
    expect_sums(s, tu_matmul_int8(a, b, zero), k);
}

void sweep_int8_values(sweep *s) {
    const tu_shape shape =
        TU_SHAPE(sweep_random_int(s, 1, 4), sweep_size(s, 15), sweep_size(s, 15), sweep_size(s, 300));
    tu_value x = bytes(s, shape), y = bytes(s, shape);
    const double scale = sweep_random_double(s, 0.001, 0.5),
                 factors[2] = {sweep_random_double(s, 0.1, 2), sweep_random_double(s, -2, 2)};
    const int64_t zeros[3] = {zero_point(s), zero_point(s), zero_point(s)};
    sweep_expect(s, "quantized",
                 tu_quantize(tu_cast(sweep_input_between(s, shape, -40, 40), TU_F32), scale, zeros[0]), 0,
                 NULL);
    sweep_expect(s, "dequantized", tu_dequantize(x, scale, zeros[0]), 0, NULL);
    sweep_expect(s, "sum",
                 tu_add_int8(x, y, .factor = {factors[0], factors[1]}, .input_zero = {zeros[0], zeros[1]},
                             .zero = zeros[2]),
                 0, NULL);
    sweep_expect(s, "mean", tu_mean_int8(x, scale, zeros[0], zeros[1]), 0, NULL);
    sweep_expect(
        s, "maximum",
        tu_max_pool(x, .window = {1, 1}, .stride = {sweep_random_int(s, 1, 2), 1}, .padding = TU_VALID), 0,
        NULL);
}
