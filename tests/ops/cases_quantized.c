/* Cases of integer arithmetic: convolution, product, conversions, addition, pooling. Results are compared exactly. */
#include "ops/cases.h"

static tu_value random_bytes(case_run *c, tu_shape shape) {
    return case_integers(c, TU_U8, shape, 0, 256);
}

static tu_value random_weights(case_run *c, tu_shape shape) {
    return case_integers(c, TU_I8, shape, -128, 128);
}

/* Adds an f32 input, whatever the type of the run is. */
static tu_value floats(case_run *c, tu_shape shape, double low, double high) {
    return tu_cast(case_fixed(c, shape, low, high), TU_F32);
}

static tu_value random_convolution(case_run *c, int64_t channels, int64_t groups) {
    int64_t outputs = groups * case_size(c, 1, 5), kernel = case_size(c, 1, 3);
    tu_value x = random_bytes(
        c, TU_SHAPE(case_size(c, 1, 3), case_size(c, 5, 9), case_size(c, 5, 9), channels * groups));
    tu_value filter = random_weights(c, TU_SHAPE(outputs, kernel, case_size(c, 1, 3), channels));
    return tu_convolve_int8(x, filter, case_size(c, 0, 255),
                            .stride = {case_size(c, 1, 2), case_size(c, 1, 3)},
                            .dilation = {case_size(c, 1, 2), case_size(c, 1, 2)},
                            .padding = case_pick(c, "padding", 2) ? TU_SAME : TU_VALID, .groups = groups);
}

static tu_value requantized(case_run *c, tu_value sums, bool adds) {
    tu_shape shape = tu_value_shape(sums), channels = TU_SHAPE(shape.dim[shape.rank - 1]);
    tu_value factors = floats(c, channels, -0.01, 0.03);
    tu_value bias = case_integers(c, TU_I32, channels, -9000, 9000);
    int64_t low = case_pick(c, "low", 2) ? case_size(c, 0, 120) : 0;
    int64_t high = case_pick(c, "high", 2) ? case_size(c, 130, 255) : 0;
    if (!adds)
        return tu_requantize(sums, factors, bias, .zero = case_size(c, 0, 255), .low = low, .high = high);
    return tu_requantize(sums, factors, bias, .zero = case_size(c, 0, 255), .low = low, .high = high,
                         .residual = random_bytes(c, shape), .residual_zero = case_size(c, 0, 255),
                         .residual_factor = case_uniform(c, 0.1, 1.5));
}

OP_CASE(conv2d_int8, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    tu_value sums = random_convolution(c, case_size(c, 1, 9), case_pick(c, "groups", 3) == 2 ? 2 : 1);
    case_output(c, sums);
}

/* The sums have no other reader, so that devices may fuse. */
OP_CASE(conv2d_int8_requantize, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    tu_value sums = random_convolution(c, case_size(c, 1, 9), 1);
    case_output(c, requantized(c, sums, case_pick(c, "residual", 2)));
}

OP_CASE(matmul_int8, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    int64_t k = case_size(c, 1, 70);
    tu_value a = random_bytes(c, TU_SHAPE(case_size(c, 1, 40), k));
    tu_value b = random_weights(c, TU_SHAPE(k, case_size(c, 1, 90)));
    tu_value sums = tu_matmul_int8(a, b, case_size(c, 0, 255));
    case_output(c, case_pick(c, "requantize", 2) ? requantized(c, sums, case_pick(c, "residual", 2)) : sums);
}

OP_CASE(requantize, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 20);
    tu_value sums = case_integers(c, TU_I32, shape, -30000, 30000);
    case_output(c, requantized(c, sums, false));
    case_output(c, requantized(c, sums, true));
}

OP_CASE(quantize, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    tu_value x = floats(c, case_shape(c, case_size(c, 0, 4), 1, 12), -20, 20);
    int64_t zero = case_size(c, 0, 255);
    tu_value q = tu_quantize(x, case_uniform(c, 0.01, 0.2), zero);
    case_output(c, q);
    case_output(c, tu_dequantize(q, case_uniform(c, 0.01, 0.2), zero));
}

OP_CASE(add_int8, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 12);
    case_output(c, tu_add_int8(random_bytes(c, shape), random_bytes(c, shape),
                               .factor = {case_uniform(c, 0.1, 2), case_uniform(c, -2, -0.1)},
                               .input_zero = {case_size(c, 0, 255), case_size(c, 0, 255)},
                               .zero = case_size(c, 0, 255), .low = case_size(c, 0, 100)));
}

OP_CASE(mean_int8, CASE_NO_GRADIENT | CASE_CPU_ONLY) {
    tu_shape shape = case_shape(c, 4, 1, 8);
    shape.dim[3] = case_size(c, 1, 600);
    case_output(c, tu_mean_int8(random_bytes(c, shape), case_uniform(c, 0.01, 0.5), case_size(c, 0, 255),
                                case_size(c, 0, 255)));
}

OP_CASE(max_pool_bytes, CASE_NO_GRADIENT) {
    tu_value x = random_bytes(
        c, TU_SHAPE(case_size(c, 1, 3), case_size(c, 3, 9), case_size(c, 3, 9), case_size(c, 1, 40)));
    case_output(c, tu_max_pool(x, .window = {3, 2}, .stride = {case_size(c, 1, 3), case_size(c, 1, 3)},
                               .padding = case_pick(c, "padding", 2) ? TU_SAME : TU_VALID));
}
