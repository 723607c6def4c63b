/* The table of oneDNN's wrong primitives, each with the cases that show the error. The cases were found by
 * tests/sweep and are kept there (known.c). Excluded operations are computed by our own kernels.
 *
 * In f32 one kind of filter of oneDNN 2.6.3 was wrong. In bf16 it was right for common networks: square strides of 1 or 2, no
 * dilation, no groups, channels in multiples of 8. Outside of these it was wrong in so many different cases that it
 * is not used at all. The rows apply to all versions of oneDNN. */
#include "device/cpu/dnnl_bugs.h"

#include "device/cpu/isa/instruction_sets.h"

/* ---- Convolutions ---- */

typedef struct convolution_rule {
    const char *reason;
    bool (*applies)(const cpu_convolution *c, cpu_conv_result result);
} convolution_rule;

/* n6 5x1 c50 o65 k1x1 limited to AVX512_CORE, forward: error 0.7. bf16 is emulated there, and slower than our f32. */
static bool emulates_bf16(const cpu_convolution *c, cpu_conv_result result) {
    (void)c, (void)result;
    return cpu_isa_emulates_bf16();
}

/* Filter gradients: n3 16x33 c26 depthwise k2x3 dilation 2,1: error 5.6; n5 3x1 c20 o24 k2x2 stride 3 groups 2: 1.8;
 * n6 14x2 c32 depthwise k6x7: 1e37. */
static bool has_groups(const cpu_convolution *c, cpu_conv_result result) {
    (void)result;
    return c->groups > 1;
}

/* Filter gradient: n2 18x32 c50 o2 k3x1 dilation 2,1 on 3 threads: 7e36. Forward: n1 1x19 c101 o23 k1x3 stride 1,3
 * dilation 1,3 on 3 threads: 0.18. */
static bool is_dilated(const cpu_convolution *c, cpu_conv_result result) {
    (void)result;
    return c->windows.dilation[0] > 1 || c->windows.dilation[1] > 1;
}

/* Forward: n2 14x8 c17 o23 k4x4 stride 1,4 on 3 threads: 4e12. With AMX n1 25x3 c97 o128 k1x4 stride 4: 0.08. Filter
 * gradient: n2 32x23 c8 o1 k1x1 stride 2,1 on 3 threads: 0.1. */
static bool has_unusual_strides(const cpu_convolution *c, cpu_conv_result result) {
    (void)result;
    return c->windows.stride[0] != c->windows.stride[1] || c->windows.stride[0] > 2;
}

/* Input gradient: n4 10x18 c23 o13 k1x1: 0.35; c50 o1: 2.0. A first layer has few channels, and is right in the
 * forward pass. */
static bool has_unusual_channels(const cpu_convolution *c, cpu_conv_result result) {
    bool first_layer = result == CPU_CONV_Y && c->x_channels <= 4;
    return c->y_channels % 8 != 0 || (c->x_channels % 8 != 0 && !first_layer);
}

/* True if some tap of the filter along an axis is out of bounds for every window. */
static bool has_unused_tap(const cpu_convolution *c, int axis) {
    const tu__windows *w = &c->windows;
    for (int64_t k = 0; k < w->size[axis]; k++) {
        int64_t pixel = k * w->dilation[axis] - w->pad[2 * axis], stride = w->stride[axis];
        /* The first window that is not before the image. */
        int64_t window = pixel < 0 ? (stride - 1 - pixel) / stride : 0;
        if (window >= c->y_size[axis] || pixel + window * stride >= c->x_size[axis]) return true;
    }
    return false;
}

/* n5 3x1 c20 o24 k2x2 stride 3 pad 0,0,1,1, filter gradient: a column of the filter that is always out of bounds
 * should have a gradient of zero, but its memory is not written. */
static bool leaves_memory_unwritten(const cpu_convolution *c, cpu_conv_result result) {
    return result == CPU_CONV_DW && (has_unused_tap(c, 0) || has_unused_tap(c, 1));
}

/* Filters of 1x1 with a stride: oneDNN copies the pixels that they read, in groups of 8 or 16 channels. If there are fewer,
 * results are at times wrong, all three of them. With AVX2, filter gradient in f32: n3 8x8 c2 o48 k1x1 stride 2: 56 of 96
 * weights, and memory after the operands is overwritten. With AVX-512 f32 n1 26x34 c8 o16 stride 2 on 2 threads, forward: 2;
 * n1 32x8 c4 o8 on 2 threads, filter gradient: 0.8; bf16 n2 4x26 c8 o32 on 3 threads, input gradient: 2.5. */
static bool strides_over_few_channels(const cpu_convolution *c, cpu_conv_result result) {
    (void)result;
    const int64_t group = 16;
    return c->windows.size[0] == 1 && c->windows.size[1] == 1 &&
           (c->windows.stride[0] > 1 || c->windows.stride[1] > 1) && c->x_channels % group != 0;
}

static const convolution_rule bf16_rules[] = {
    {"bf16 is emulated below AVX512_BF16", emulates_bf16},
    {"groups in bf16", has_groups},
    {"dilated filters in bf16", is_dilated},
    {"strides beyond 1 and 2 in bf16", has_unusual_strides},
    {"channels that are no multiple of 8 in bf16", has_unusual_channels},
    {"strided 1x1 filters over channels that are no multiple of 16", strides_over_few_channels},
    {"filter gradients in bf16 with taps that are always out of bounds", leaves_memory_unwritten},
};

static const convolution_rule f32_rules[] = {
    {"strided 1x1 filters over channels that are no multiple of 16", strides_over_few_channels},
};

static const char *find_reason(size_t count, const convolution_rule *rules, const cpu_convolution *c,
                               cpu_conv_result result) {
    for (size_t i = 0; i < count; i++)
        if (rules[i].applies(c, result)) return rules[i].reason;
    return NULL;
}

const char *cpu_dnnl_conv_bug(const cpu_convolution *convolution, cpu_conv_result result, tu_dtype dtype) {
    if (dtype == TU_BF16)
        return find_reason(sizeof bf16_rules / sizeof *bf16_rules, bf16_rules, convolution, result);
    return find_reason(sizeof f32_rules / sizeof *f32_rules, f32_rules, convolution, result);
}

/* ---- Matrix products ---- */

/* m257 n5 k63, a transposed, with AMX on 2 threads: an illegal instruction. m63 n53 k41 on 3 threads: 8e28; a
 * gradient with m93 n67 k63, both transposed, batch 3 against one: 0.99. */
static bool has_partial_tiles(const cpu_dnnl_product *p) {
    enum { TILE = 16 };
    return cpu_isa_in_use() >= CPU_AMX && (p->m % TILE != 0 || p->n % TILE != 0 || p->k % TILE != 0);
}

const char *cpu_dnnl_matmul_bug(const cpu_dnnl_product *product) {
    if (product->dtype != TU_BF16) return NULL;
    if (cpu_isa_emulates_bf16()) return "bf16 is emulated below AVX512_BF16";
    return has_partial_tiles(product) ? "sizes that are no multiple of 16 in bf16 with AMX" : NULL;
}
